"""Any packet that may be sent, of every type, in MQTT 5 and in 3.1.1; and bytes that are almost one."""

from collections.abc import Callable
from typing import TypeVar

import mqtt5
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")

U16 = st.integers(0, 0xFFFF)
U32 = st.integers(0, 0xFFFF_FFFF)
IDS = st.integers(1, 0xFFFF)
SUBSCRIPTION_IDS = st.integers(1, 268_435_455)
BINARY = st.binary(max_size=24)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
TOPICS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0+#"), min_size=1, max_size=12)
FILTERS = st.lists(
    st.sampled_from(["+", "$share", ""])
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0+#/"), max_size=6),
    min_size=1,
    max_size=4,
).flatmap(lambda levels: st.sampled_from(["/".join(levels), "/".join([*levels, "#"])]))
PAIRS = st.lists(st.tuples(TEXTS, TEXTS), max_size=3)


def members(values: Callable[[int], T]) -> list[T]:
    """The members of an enumeration of `mqtt5`, which cannot be iterated over."""
    found: list[T] = []
    for number in range(256):
        try:
            found.append(values(number))
        except ValueError:
            continue
    return found


def any_of(values: Callable[[int], T]) -> SearchStrategy[T]:
    return st.sampled_from(members(values))


def maybe(values: SearchStrategy[T]) -> SearchStrategy[T | None]:
    return st.none() | values


QOS = any_of(mqtt5.QoS)
REASON = {"reason_str": maybe(TEXTS), "user_properties": PAIRS}

WILLS = st.builds(
    mqtt5.Will,
    TOPICS,
    payload=BINARY,
    qos=QOS,
    retain=st.booleans(),
    payload_format_indicator=st.integers(0, 1),
    message_expiry_interval=maybe(U32),
    content_type=maybe(TEXTS),
    response_topic=maybe(TOPICS),
    correlation_data=maybe(BINARY),
    will_delay_interval=U32,
    user_properties=PAIRS,
)


@st.composite
def connects(draw: st.DrawFn) -> mqtt5.ConnectPacket:
    method = draw(maybe(TEXTS))
    return mqtt5.ConnectPacket(
        draw(TEXTS),
        username=draw(maybe(TEXTS)),
        password=draw(maybe(BINARY)),
        clean_start=draw(st.booleans()),
        will=draw(maybe(WILLS)),
        keep_alive=draw(U16),
        session_expiry_interval=draw(U32),
        authentication_method=method,
        authentication_data=None if method is None else draw(maybe(BINARY)),
        request_problem_info=draw(st.booleans()),
        request_response_info=draw(st.booleans()),
        receive_max=draw(IDS),
        topic_alias_max=draw(U16),
        max_packet_size=draw(maybe(st.integers(1, 0xFFFF_FFFF))),
        user_properties=draw(PAIRS),
    )


@st.composite
def connacks(draw: st.DrawFn) -> mqtt5.ConnAckPacket:
    reason = draw(any_of(mqtt5.ConnAckReasonCode))
    return mqtt5.ConnAckPacket(
        session_present=not int(reason) and draw(st.booleans()),
        reason_code=reason,
        session_expiry_interval=draw(maybe(U32)),
        assigned_client_id=draw(maybe(TEXTS)),
        server_keep_alive=draw(maybe(U16)),
        authentication_method=draw(maybe(TEXTS)),
        response_info=draw(maybe(TEXTS)),
        server_reference=draw(maybe(TEXTS)),
        reason_str=draw(maybe(TEXTS)),
        receive_max=draw(IDS),
        topic_alias_max=draw(U16),
        max_qos=draw(QOS),
        retain_available=draw(st.booleans()),
        max_packet_size=draw(maybe(st.integers(1, 0xFFFF_FFFF))),
        wildcard_subscription_available=draw(st.booleans()),
        subscription_id_available=draw(st.booleans()),
        shared_subscription_available=draw(st.booleans()),
        user_properties=draw(PAIRS),
    )


@st.composite
def publishes(draw: st.DrawFn) -> mqtt5.PublishPacket:
    qos = draw(QOS)
    alias = draw(maybe(IDS))
    return mqtt5.PublishPacket(
        draw(TOPICS) if alias is None else draw(st.just("") | TOPICS),
        draw(BINARY),
        qos=qos,
        retain=draw(st.booleans()),
        packet_id=draw(IDS) if int(qos) else None,
        duplicate=bool(int(qos)) and draw(st.booleans()),
        subscription_ids=draw(st.lists(SUBSCRIPTION_IDS, max_size=3)),
        topic_alias=alias,
        payload_format_indicator=draw(st.integers(0, 1)),
        message_expiry_interval=draw(maybe(U32)),
        content_type=draw(maybe(TEXTS)),
        response_topic=draw(maybe(TOPICS)),
        correlation_data=draw(maybe(BINARY)),
        user_properties=draw(PAIRS),
    )


@st.composite
def filters(draw: st.DrawFn) -> mqtt5.TopicFilter:
    pattern = draw(FILTERS)
    return mqtt5.TopicFilter(
        pattern,
        max_qos=draw(QOS),
        no_local=not pattern.startswith("$share/") and draw(st.booleans()),
        retain_as_published=draw(st.booleans()),
        retain_handling=draw(any_of(mqtt5.RetainHandling)),
    )


PACKETS: SearchStrategy[mqtt5.Packet] = st.one_of(
    connects(),
    connacks(),
    publishes(),
    st.builds(mqtt5.PubAckPacket, IDS, reason_code=any_of(mqtt5.PubAckReasonCode), **REASON),
    st.builds(mqtt5.PubRecPacket, IDS, reason_code=any_of(mqtt5.PubRecReasonCode), **REASON),
    st.builds(mqtt5.PubRelPacket, IDS, reason_code=any_of(mqtt5.PubRelReasonCode), **REASON),
    st.builds(mqtt5.PubCompPacket, IDS, reason_code=any_of(mqtt5.PubCompReasonCode), **REASON),
    st.builds(
        mqtt5.SubscribePacket,
        IDS,
        st.lists(filters(), min_size=1, max_size=3),
        subscription_id=maybe(SUBSCRIPTION_IDS),
        user_properties=PAIRS,
    ),
    st.builds(mqtt5.SubAckPacket, IDS, st.lists(any_of(mqtt5.SubAckReasonCode), min_size=1, max_size=3), **REASON),
    st.builds(mqtt5.UnsubscribePacket, IDS, st.lists(FILTERS, min_size=1, max_size=3), user_properties=PAIRS),
    st.builds(mqtt5.UnsubAckPacket, IDS, st.lists(any_of(mqtt5.UnsubAckReasonCode), min_size=1, max_size=3), **REASON),
    st.builds(mqtt5.PingReqPacket),
    st.builds(mqtt5.PingRespPacket),
    st.builds(
        mqtt5.DisconnectPacket,
        reason_code=any_of(mqtt5.DisconnectReasonCode),
        session_expiry_interval=maybe(U32),
        server_reference=maybe(TEXTS),
        **REASON,
    ),
    st.builds(
        mqtt5.AuthPacket,
        reason_code=any_of(mqtt5.AuthReasonCode),
        authentication_method=TEXTS,
        authentication_data=maybe(BINARY),
        **REASON,
    ),
)
"""Every packet of MQTT 5."""


@st.composite
def connects_311(draw: st.DrawFn) -> mqtt5.ConnectPacket:
    is_clean = draw(st.booleans())
    username = draw(maybe(TEXTS))
    return mqtt5.ConnectPacket(
        draw(TEXTS),
        username=username,
        password=None if username is None else draw(maybe(BINARY)),
        clean_start=is_clean,
        will=draw(maybe(st.builds(mqtt5.Will, TOPICS, payload=BINARY, qos=QOS, retain=st.booleans()))),
        keep_alive=draw(U16),
        session_expiry_interval=0 if is_clean else 0xFFFF_FFFF,
    )


@st.composite
def publishes_311(draw: st.DrawFn) -> mqtt5.PublishPacket:
    qos = draw(QOS)
    return mqtt5.PublishPacket(
        draw(TOPICS),
        draw(BINARY),
        qos=qos,
        retain=draw(st.booleans()),
        packet_id=draw(IDS) if int(qos) else None,
        duplicate=bool(int(qos)) and draw(st.booleans()),
    )


CONNACKS_311 = st.builds(
    mqtt5.ConnAckPacket,
    reason_code=st.sampled_from([0x84, 0x85, 0x88, 0x86, 0x87]).map(mqtt5.ConnAckReasonCode),
) | st.builds(mqtt5.ConnAckPacket, session_present=st.booleans())

PACKETS_311: SearchStrategy[mqtt5.Packet] = st.one_of(
    connects_311(),
    CONNACKS_311,
    publishes_311(),
    st.builds(mqtt5.PubAckPacket, IDS),
    st.builds(mqtt5.PubRecPacket, IDS),
    st.builds(mqtt5.PubRelPacket, IDS),
    st.builds(mqtt5.PubCompPacket, IDS),
    st.builds(
        mqtt5.SubscribePacket,
        IDS,
        st.lists(
            st.builds(mqtt5.TopicFilter, FILTERS, max_qos=QOS, retain_as_published=st.just(False)),
            min_size=1,
            max_size=3,
        ),
    ),
    st.builds(
        mqtt5.SubAckPacket,
        IDS,
        st.lists(st.sampled_from([0, 1, 2, 0x80]).map(mqtt5.SubAckReasonCode), min_size=1, max_size=3),
    ),
    st.builds(mqtt5.UnsubscribePacket, IDS, st.lists(FILTERS, min_size=1, max_size=3)),
    st.builds(mqtt5.UnsubAckPacket, IDS, st.just([])),
    st.builds(mqtt5.PingReqPacket),
    st.builds(mqtt5.PingRespPacket),
    st.builds(mqtt5.DisconnectPacket),
)
"""Every packet of MQTT 3.1.1, as far as it can tell it from others."""


@st.composite
def mutated(draw: st.DrawFn, packets: SearchStrategy[bytes]) -> bytes:
    """A packet with a few bytes changed, put in or taken out; often with a length that fits again."""
    damaged = bytearray(draw(packets))
    for _ in range(draw(st.integers(1, 3))):
        position = draw(st.integers(0, max(0, len(damaged) - 1)))
        match draw(st.sampled_from(["change", "insert", "remove", "flip"])):
            case "change" if damaged:
                damaged[position] = draw(st.integers(0, 255) | st.sampled_from([0, 1, 0x26, 0x7F, 0x80, 0xED, 0xFF]))
            case "flip" if damaged:
                damaged[position] ^= 1 << draw(st.integers(0, 7))
            case "remove" if damaged:
                del damaged[position : position + draw(st.integers(1, 4))]
            case _:
                damaged[position:position] = draw(st.binary(min_size=1, max_size=4))
    if 2 <= len(damaged) < 0x80 and draw(st.booleans()):
        damaged[1] = len(damaged) - 2
    return bytes(damaged)
