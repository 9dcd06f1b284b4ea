"""MQTT 5: what is written is read, and what the specification forbids is refused with the reason it asks for."""

from collections.abc import Callable

import mqtt5
import pytest
from any_packets import PACKETS, mutated
from hypothesis import given
from hypothesis import strategies as st
from raw import connect, packet, pair, properties, publish, subscribe, text, u16

from examples import examples
from overlane.mqtt.codec import codec5
from overlane.mqtt.codec.malformed import Malformed

WRITTEN = PACKETS.map(codec5.write)


@given(PACKETS)
def test_every_packet_is_read_as_it_was_written(value: mqtt5.Packet) -> None:
    assert codec5.read(codec5.write(value)) == value


@given(WRITTEN)
def test_bytes_that_were_read_are_written_again_the_same(data: bytes) -> None:
    assert codec5.write(codec5.read(data)) == data


@given(WRITTEN, st.binary(max_size=8), st.binary(max_size=8))
def test_a_packet_is_read_out_of_the_middle_of_a_buffer(data: bytes, before: bytes, after: bytes) -> None:
    view = memoryview(before + data + after)[len(before) : len(before) + len(data)]
    assert codec5.read(view) == codec5.read(data)


@pytest.mark.parametrize("payload_bytes", [0, 100, 130, 2_000, 3_000, 17_000, 2_200_000])
def test_a_publish_of_any_size_is_read_from_bytes_and_from_a_view(payload_bytes: int) -> None:
    value = mqtt5.PublishPacket("a/b", bytes(payload_bytes), user_properties=[("k", "v")])
    data = codec5.write(value)
    assert codec5.read(data) == codec5.read(memoryview(data)) == value


def test_the_example_of_a_connect_in_the_specification_is_read() -> None:
    # Section 3.1.2.12: flags 0xCE, keep alive 10 s, session expiry 10 s.
    head = bytes.fromhex("0004 4D515454 05 CE 000A 05 11 0000000A")
    data = packet(0x10, head, text("client"), properties(), text("will"), text("gone"), text("user"), text("secret"))
    assert codec5.read(data) == mqtt5.ConnectPacket(
        "client",
        username="user",
        password=b"secret",
        clean_start=True,
        will=mqtt5.Will("will", payload=b"gone", qos=mqtt5.QoS.AT_LEAST_ONCE),
        keep_alive=10,
        session_expiry_interval=10,
    )


@pytest.mark.parametrize(
    ("data", "value"),
    [
        pytest.param(
            packet(0x32, bytes.fromhex("0003 612F62 000A 00"), b"hi"),
            mqtt5.PublishPacket("a/b", b"hi", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=10),
            id="PUBLISH, section 3.3.2.3.9",
        ),
        pytest.param(
            packet(0x82, bytes.fromhex("000A 00 0003 612F62 01 0003 632F64 02")),
            mqtt5.SubscribePacket(
                10,
                [
                    mqtt5.TopicFilter("a/b", max_qos=mqtt5.QoS.AT_LEAST_ONCE, retain_as_published=False),
                    mqtt5.TopicFilter("c/d", max_qos=mqtt5.QoS.EXACTLY_ONCE, retain_as_published=False),
                ],
            ),
            id="SUBSCRIBE, section 3.8.3.2",
        ),
        pytest.param(
            packet(0xA2, bytes.fromhex("000A 00 0003 612F62 0003 632F64")),
            mqtt5.UnsubscribePacket(10, ["a/b", "c/d"]),
            id="UNSUBSCRIBE, section 3.10.3.1",
        ),
        pytest.param(
            publish(topic=bytes.fromhex("41 F0AA9B94")),
            mqtt5.PublishPacket("A\U0002a6d4", b"payload"),
            id="the text in figure 1-2",
        ),
        pytest.param(
            publish(topic=bytes.fromhex("EFBBBF 61")),
            mqtt5.PublishPacket("\ufeffa", b"payload"),
            id="U+FEFF is not stripped, section 1.5.4",
        ),
        pytest.param(b"\x40\x02\x00\x0a", mqtt5.PubAckPacket(10), id="PUBACK without a reason"),
        pytest.param(b"\x40\x03\x00\x0a\x00", mqtt5.PubAckPacket(10), id="PUBACK with a reason alone"),
        pytest.param(b"\x62\x04\x00\x0a\x00\x00", mqtt5.PubRelPacket(10), id="PUBREL with no properties"),
        pytest.param(b"\xc0\x00", mqtt5.PingReqPacket(), id="PINGREQ"),
        pytest.param(b"\xe0\x00", mqtt5.DisconnectPacket(), id="DISCONNECT without a reason"),
        pytest.param(
            b"\xe0\x01\x04",
            mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode.DISCONNECT_WITH_WILL_MESSAGE),
            id="DISCONNECT with a reason alone",
        ),
        pytest.param(
            connect(0x42, rest=text("c") + text("secret")),
            mqtt5.ConnectPacket("c", password=b"secret", clean_start=True, keep_alive=60),
            id="a password without a user name",
        ),
        pytest.param(
            publish(b"\x23\x00\x07", topic=""),
            mqtt5.PublishPacket("", b"payload", topic_alias=7),
            id="an alias in place of the topic",
        ),
        pytest.param(
            publish(pair("k", "1"), b"\x0b\x05", pair("k", "2"), b"\x0b\x06", pair("", "")),
            mqtt5.PublishPacket(
                "a", b"payload", subscription_ids=[5, 6], user_properties=[("k", "1"), ("k", "2"), ("", "")]
            ),
            id="repeated user properties and subscription identifiers keep their order",
        ),
    ],
)
def test_a_packet_of_known_bytes_is_read(data: bytes, value: mqtt5.Packet) -> None:
    assert codec5.read(data) == value


def test_filters_are_left_to_be_judged_by_whoever_subscribes() -> None:
    for pattern in ("", "a/#/b", "a+", "$share/g", "$share//a"):
        subscription = codec5.read(subscribe(pattern))
        assert isinstance(subscription, mqtt5.SubscribePacket)
        assert [each.pattern for each in subscription.topic_filters] == [pattern]
        end = codec5.read(packet(0xA2, u16(1), properties(), text(pattern)))
        assert isinstance(end, mqtt5.UnsubscribePacket)
        assert end.patterns == [pattern]


# Texts that must not be in any packet (section 1.5.4), wherever a packet has a text.
WRONG_TEXTS = {
    "not UTF-8": b"\xff",
    "a cut-off character": b"a\xc3",
    "an overlong encoding": b"\xc0\x80",
    "a surrogate": b"\xed\xa0\x80",
    "beyond Unicode": b"\xf4\x90\x80\x80",
    "U+0000": b"a\x00b",
}
WILL_FLAGS = 0x06


def places_of_texts(wrong: bytes) -> dict[str, bytes]:
    will = properties() + text("t") + text(b"")
    return {
        "topic": publish(topic=wrong),
        "topic at QoS 2": publish(topic=wrong, first=0x34, packet_id=u16(1)),
        "content type": publish(b"\x03" + text(wrong)),
        "response topic": publish(b"\x08" + text(wrong)),
        "user property's name": publish(pair(), pair(wrong)),
        "user property's value": publish(pair(), pair("k", wrong)),
        "user property's value after text that is not ASCII": publish(pair("ä", "ö"), pair("k", wrong)),
        "client id": connect(rest=text(wrong)),
        "user name": connect(0x82, rest=text("c") + text(wrong)),
        "will topic": connect(WILL_FLAGS, rest=text("c") + properties() + text(wrong) + text(b"")),
        "will content type": connect(
            WILL_FLAGS, rest=text("c") + properties(b"\x03" + text(wrong)) + text("t") + text(b"")
        ),
        "will user property": connect(WILL_FLAGS, rest=text("c") + properties(pair("k", wrong)) + will[1:]),
        "authentication method": connect(0x02, b"\x15" + text(wrong)),
        "filter": subscribe(wrong),
        "filter to unsubscribe from": packet(0xA2, u16(1), properties(), text(wrong)),
        "SUBSCRIBE's user property": subscribe("a", 0, pair(wrong)),
        "UNSUBSCRIBE's user property": packet(0xA2, u16(1), properties(pair(wrong)), text("a")),
        "PUBACK's reason": packet(0x40, u16(1), b"\x00", properties(b"\x1f" + text(wrong))),
        "SUBACK's reason": packet(0x90, u16(1), properties(b"\x1f" + text(wrong)), b"\x00"),
        "CONNACK's client id": packet(0x20, b"\x00\x00", properties(b"\x12" + text(wrong))),
        "CONNACK's server reference": packet(0x20, b"\x00\x00", properties(b"\x1c" + text(wrong))),
        "DISCONNECT's reason": packet(0xE0, b"\x00", properties(b"\x1f" + text(wrong))),
        "AUTH's method": packet(0xF0, b"\x18", properties(b"\x15" + text(wrong))),
    }


@pytest.mark.parametrize("wrong", WRONG_TEXTS.values(), ids=WRONG_TEXTS.keys())
@pytest.mark.parametrize("place", places_of_texts(b""))
def test_a_text_that_is_none_is_malformed_in_every_place(
    place: str, wrong: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Malformed) as refused:
        codec5.read(places_of_texts(wrong)[place])
    assert refused.value.reason == 0x81
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "place", sorted(set(places_of_texts(b"")) - {"response topic", "will topic", "topic", "topic at QoS 2"})
)
def test_a_right_text_is_taken_in_all_those_places(place: str) -> None:
    codec5.read(places_of_texts("grüße".encode())[place])


MALFORMED = {
    "nothing at all": b"",
    "half a header": b"\x30",
    "a type that does not exist": packet(0x00),
    "a length of five bytes": b"\x30\x80\x80\x80\x80\x01",
    "a length in more bytes than needed": b"\xc0\x80\x00",
    "a packet shorter than its length": publish()[:-1],
    "a packet longer than its length": publish() + b"x",
    "a PUBACK longer than its length": b"\x40\x02\x00\x01\x00",
    "CONNECT with header flags": b"\x11" + connect()[1:],
    "CONNECT with the reserved flag": connect(0x03),
    "CONNECT with the QoS of no will": connect(0x0A),
    "CONNECT with the retain flag of no will": connect(0x22),
    "CONNECT with a will of QoS 3": connect(0x1E, rest=text("c") + properties() + text("t") + text("")),
    "CONNECT without the will it promises": connect(0x06),
    "CONNECT without the user name it promises": connect(0x82),
    "CONNECT without the password it promises": connect(0x42),
    "CONNECT that goes on": connect(rest=text("c") + b"x"),
    "CONNECT without a client id": connect(rest=b""),
    "CONNECT that ends in its protocol name": packet(0x10, b"\x00\x04MQ"),
    "CONNECT with a property of PUBLISH": connect(0x02, b"\x23\x00\x01"),
    "CONNECT with a property of wills": connect(0x02, b"\x18\x00\x00\x00\x01"),
    "CONNECT with a property of PUBLISH in the will": connect(
        0x06, rest=text("c") + properties(b"\x23\x00\x01") + text("t") + text("")
    ),
    "CONNACK with a reserved flag": packet(0x20, b"\x02\x00", properties()),
    "CONNACK without properties' length": packet(0x20, b"\x00\x00"),
    "CONNACK with a property of PUBLISH": packet(0x20, b"\x00\x00", properties(b"\x23\x00\x01")),
    "PUBLISH with QoS 3": publish(first=0x36, packet_id=u16(1)),
    "PUBLISH as duplicate at QoS 0": publish(first=0x38),
    "PUBLISH that ends in its topic": packet(0x30, b"\x00\x05a"),
    "PUBLISH without properties' length": packet(0x30, text("a")),
    "PUBLISH that ends in its packet id": packet(0x32, text("a"), b"\x00"),
    "PUBLISH with a property that does not exist": publish(b"\x7f\x00"),
    "PUBLISH with a property identifier of two bytes": publish(b"\x81\x00\x01"),
    "PUBLISH with a property of CONNECT": publish(b"\x11\x00\x00\x00\x01"),
    "PUBLISH with properties longer than the packet": packet(0x30, text("a"), b"\x7f"),
    "PUBLISH with a property that ends in the payload": packet(0x30, text("a"), b"\x02\x02\x00", b"\x00\x00\x01"),
    "PUBLISH with a user property that ends in the payload": packet(
        0x30, text("a"), b"\x06\x26\x00\x01a\x00\x01", b"b"
    ),
    "PUBLISH with half a user property": publish(b"\x26" + text("a")),
    "PUBLISH with a subscription identifier of five bytes": publish(b"\x0b\xff\xff\xff\xff\x01"),
    "PUBLISH with a subscription identifier in more bytes than needed": publish(b"\x0b\x81\x00"),
    "PUBACK with header flags": packet(0x42, u16(1)),
    "PUBACK with half a packet id": packet(0x40, b"\x00"),
    "PUBACK with a property of PUBLISH": packet(0x40, u16(1), b"\x00", properties(b"\x23\x00\x01")),
    "PUBACK that goes on": packet(0x40, u16(1), b"\x00", properties(), b"x"),
    "PUBREL without its header flags": packet(0x60, u16(1)),
    "SUBSCRIBE without its header flags": b"\x80" + subscribe()[1:],
    "SUBSCRIBE with a reserved option": subscribe("a", 0x40),
    "SUBSCRIBE with the other reserved option": subscribe("a", 0x80),
    "SUBSCRIBE without options": packet(0x82, u16(1), properties(), text("a")),
    "SUBSCRIBE with a property of PUBLISH": subscribe("a", 0, b"\x23\x00\x01"),
    "UNSUBSCRIBE without its header flags": packet(0xA0, u16(1), properties(), text("a")),
    "UNSUBSCRIBE with a subscription identifier": packet(0xA2, u16(1), properties(b"\x0b\x01"), text("a")),
    "UNSUBSCRIBE that ends in its filter": packet(0xA2, u16(1), properties(), b"\x00\x05a"),
    "PINGREQ with header flags": packet(0xC1),
    "PINGREQ with a body": packet(0xC0, b"x"),
    "PINGRESP with a body": packet(0xD0, b"x"),
    "DISCONNECT with header flags": packet(0xE1),
    "DISCONNECT that goes on": packet(0xE0, b"\x00", properties(), b"x"),
    "DISCONNECT with a property of PUBLISH": packet(0xE0, b"\x00", properties(b"\x23\x00\x01")),
    "AUTH with a reason alone": packet(0xF0, b"\x18"),
    "AUTH with header flags": packet(0xF1, b"\x18", properties(b"\x15" + text("m"))),
}

ONCE = {
    "payload format indicator": b"\x01\x01",
    "message expiry interval": b"\x02\x00\x00\x00\x01",
    "content type": b"\x03" + text("t"),
    "response topic": b"\x08" + text("t"),
    "correlation data": b"\x09" + text("t"),
    "topic alias": b"\x23\x00\x01",
}
ONCE_IN_CONNECT = {
    "session expiry interval": b"\x11\x00\x00\x00\x01",
    "authentication method": b"\x15" + text("m"),
    "request problem information": b"\x17\x01",
    "request response information": b"\x19\x01",
    "receive maximum": b"\x21\x00\x01",
    "topic alias maximum": b"\x22\x00\x01",
    "maximum packet size": b"\x27\x00\x00\x00\x01",
}

PROTOCOL_ERRORS = {
    **{f"PUBLISH with {name} twice": publish(each, each) for name, each in ONCE.items()},
    **{f"CONNECT with {name} twice": connect(0x02, each, each) for name, each in ONCE_IN_CONNECT.items()},
    "CONNECT with authentication data twice": connect(
        0x02, b"\x15" + text("m"), b"\x16" + text("d"), b"\x16" + text("d")
    ),
    "CONNECT with the will's delay twice": connect(
        0x06, rest=text("c") + properties(b"\x18\x00\x00\x00\x01" * 2) + text("t") + text("")
    ),
    "CONNECT with a receive maximum of 0": connect(0x02, b"\x21\x00\x00"),
    "CONNECT with a maximum packet size of 0": connect(0x02, b"\x27\x00\x00\x00\x00"),
    "CONNECT with request problem information 2": connect(0x02, b"\x17\x02"),
    "CONNECT with request response information 2": connect(0x02, b"\x19\x02"),
    "CONNECT with authentication data but no method": connect(0x02, b"\x16" + text("d")),
    "CONNECT with a will of payload format 2": connect(
        0x06, rest=text("c") + properties(b"\x01\x02") + text("t") + text("")
    ),
    "CONNACK with a session although refused": packet(0x20, b"\x01\x87", properties()),
    "CONNACK with a reason that does not exist": packet(0x20, b"\x00\x01", properties()),
    "CONNACK with a maximum QoS of 2": packet(0x20, b"\x00\x00", properties(b"\x24\x02")),
    "CONNACK with retain available 2": packet(0x20, b"\x00\x00", properties(b"\x25\x02")),
    "CONNACK with a receive maximum of 0": packet(0x20, b"\x00\x00", properties(b"\x21\x00\x00")),
    "PUBLISH with packet id 0 at QoS 1": publish(first=0x32, packet_id=u16(0)),
    "PUBLISH with packet id 0 at QoS 2": publish(first=0x34, packet_id=u16(0)),
    "PUBLISH without topic and alias": publish(topic=""),
    "PUBLISH without topic and alias but with a user property": publish(pair(), topic=""),
    "PUBLISH without topic and alias but with another property": publish(b"\x01\x01", topic=""),
    "PUBLISH with payload format 2": publish(b"\x01\x02"),
    "PUBLISH with subscription identifier 0": publish(b"\x0b\x00"),
    "PUBLISH with a wildcard in the response topic": publish(b"\x08" + text("a/#")),
    "PUBLISH with an empty response topic": publish(b"\x08" + text("")),
    "PUBACK with packet id 0": packet(0x40, u16(0)),
    "PUBACK with a reason that does not exist": packet(0x40, u16(1), b"\x01"),
    "PUBACK with its reason twice": packet(0x40, u16(1), b"\x00", properties((b"\x1f" + text("r")) * 2)),
    "PUBREC with packet id 0": packet(0x50, u16(0)),
    "PUBREL with packet id 0": packet(0x62, u16(0)),
    "PUBCOMP with packet id 0": packet(0x70, u16(0)),
    "PUBCOMP with a reason of PUBACK": packet(0x70, u16(1), b"\x80"),
    "SUBSCRIBE with packet id 0": subscribe(packet_id=0),
    "SUBSCRIBE to nothing": packet(0x82, u16(1), properties()),
    "SUBSCRIBE with QoS 3": subscribe("a", 0x03),
    "SUBSCRIBE with retain handling 3": subscribe("a", 0x30),
    "SUBSCRIBE with no-local on a shared subscription": subscribe("$share/g/a", 0x04),
    "SUBSCRIBE with subscription identifier 0": subscribe("a", 0, b"\x0b\x00"),
    "SUBSCRIBE with two subscription identifiers": subscribe("a", 0, b"\x0b\x01", b"\x0b\x02"),
    "SUBACK for nothing": packet(0x90, u16(1), properties()),
    "SUBACK with a reason that does not exist": packet(0x90, u16(1), properties(), b"\x05"),
    "UNSUBSCRIBE with packet id 0": packet(0xA2, u16(0), properties(), text("a")),
    "UNSUBSCRIBE from nothing": packet(0xA2, u16(1), properties()),
    "UNSUBACK for nothing": packet(0xB0, u16(1), properties()),
    "UNSUBACK with a reason that does not exist": packet(0xB0, u16(1), properties(), b"\x05"),
    "DISCONNECT with a reason that does not exist": packet(0xE0, b"\x05"),
    "DISCONNECT with session expiry twice": packet(0xE0, b"\x00", properties(b"\x11\x00\x00\x00\x01" * 2)),
    "AUTH with nothing": packet(0xF0),
    "AUTH without a method": packet(0xF0, b"\x18", properties()),
    "AUTH with data but no method": packet(0xF0, b"\x18", properties(b"\x16" + text("d"))),
    "AUTH with a reason that does not exist": packet(0xF0, b"\x01", properties(b"\x15" + text("m"))),
}

OTHER = {
    "CONNECT of another protocol": (0x84, connect(name="MQTX")),
    "CONNECT of MQTT 3.1.1": (0x84, connect(level=4)),
    "CONNECT of a version to come": (0x84, connect(level=6)),
    "CONNECT with a wildcard in the will's topic": (
        0x90,
        connect(0x06, rest=text("c") + properties() + text("a/+") + text("")),
    ),
    "CONNECT with a will without a topic": (0x90, connect(0x06, rest=text("c") + properties() + text("") + text(""))),
    "PUBLISH on a filter with +": (0x90, publish(topic="a/+")),
    "PUBLISH on a filter with #": (0x90, publish(topic="#")),
    "PUBLISH with topic alias 0": (0x94, publish(b"\x23\x00\x00")),
    "PUBLISH with topic alias 0 and no topic": (0x94, publish(b"\x23\x00\x00", topic="")),
}

WRONG = [
    *((name, 0x81, data) for name, data in MALFORMED.items()),
    *((name, 0x82, data) for name, data in PROTOCOL_ERRORS.items()),
    *((name, reason, data) for name, (reason, data) in OTHER.items()),
]


@pytest.mark.parametrize(("reason", "data"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_a_wrong_packet_is_refused_with_its_reason(reason: int, data: bytes) -> None:
    for given_as in (data, memoryview(data)):
        with pytest.raises(Malformed) as refused:
            codec5.read(given_as)
        assert (refused.value.reason, str(refused.value) != "") == (reason, True)


@given(WRITTEN)
def test_a_packet_that_is_not_whole_is_refused_wherever_it_is_cut(data: bytes) -> None:
    for end in range(len(data)):
        with pytest.raises(Malformed):
            codec5.read(data[:end])


@pytest.mark.parametrize(
    "written",
    [
        lambda pairs: publish(*pairs),
        lambda pairs: publish(b"\x01\x01", *pairs, b"\x03" + text("t")),
        lambda pairs: connect(0x02, *pairs),
        lambda pairs: connect(0x06, rest=text("c") + properties(*pairs) + text("t") + text("")),
        lambda pairs: packet(0x20, b"\x00\x00", properties(*pairs)),
        lambda pairs: subscribe("a", 0, *pairs),
        lambda pairs: packet(0xA2, u16(1), properties(*pairs), text("a")),
        lambda pairs: packet(0x40, u16(1), b"\x00", properties(*pairs)),
        lambda pairs: packet(0x90, u16(1), properties(*pairs), b"\x00"),
        lambda pairs: packet(0xE0, b"\x00", properties(*pairs)),
        lambda pairs: packet(0xF0, b"\x18", properties(b"\x15" + text("m"), *pairs)),
    ],
    ids=[
        "PUBLISH",
        "PUBLISH with others",
        "CONNECT",
        "will",
        "CONNACK",
        "SUBSCRIBE",
        "UNSUBSCRIBE",
        "PUBACK",
        "SUBACK",
        "DISCONNECT",
        "AUTH",
    ],
)
def test_more_user_properties_than_allowed_are_refused(written: Callable[[list[bytes]], bytes]) -> None:
    bounds = codec5.Bounds(user_properties=2)
    codec5.read(written([pair()] * 2), bounds)
    codec5.read(written([pair()] * 3))
    with pytest.raises(Malformed) as refused:
        codec5.read(written([pair()] * 3), bounds)
    assert refused.value.reason == 0x97


def test_more_filters_than_allowed_are_refused() -> None:
    bounds = codec5.Bounds(filters=2)
    for first, each in ((0x82, text("a") + b"\x00"), (0xA2, text("a"))):
        codec5.read(packet(first, u16(1), properties(), each * 2), bounds)
        codec5.read(packet(first, u16(1), properties(), each * 3))
        with pytest.raises(Malformed) as refused:
            codec5.read(packet(first, u16(1), properties(), each * 3), bounds)
        assert refused.value.reason == 0x97


def test_more_subscription_identifiers_or_answers_than_allowed_are_refused() -> None:
    bounds = codec5.Bounds(user_properties=2, filters=2)
    allowed = [
        publish(*[b"\x0b\x01"] * 2),
        packet(0x90, u16(1), properties(), bytes(2)),
        packet(0xB0, u16(1), properties(), bytes(2)),
    ]
    too_many = [
        publish(*[b"\x0b\x01"] * 3),
        packet(0x90, u16(1), properties(), bytes(3)),
        packet(0xB0, u16(1), properties(), bytes(3)),
    ]
    for data in allowed:
        codec5.read(data, bounds)
    for data in too_many:
        with pytest.raises(Malformed) as refused:
            codec5.read(data, bounds)
        assert refused.value.reason == 0x97


def takes_or_refuses(data: bytes) -> None:
    try:
        value = codec5.read(data)
    except Malformed:
        return
    assert codec5.read(codec5.write(value)) == value


def test_any_bytes_are_a_packet_or_refused_and_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    @examples(500)
    @given(st.binary(max_size=64))
    def any_bytes(data: bytes) -> None:
        takes_or_refuses(data)

    @examples(500)
    @given(st.integers(0, 255), st.binary(max_size=64))
    def any_body(first: int, body: bytes) -> None:
        takes_or_refuses(packet(first, body))

    any_bytes()
    any_body()
    assert capfd.readouterr().err == ""


def test_a_damaged_packet_is_still_one_or_refused_and_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    @examples(1000)
    @given(mutated(WRITTEN))
    def damaged(data: bytes) -> None:
        takes_or_refuses(data)

    damaged()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("payload", [b"", b"plain", "grüße".encode()])
def test_a_payload_that_is_said_to_be_text_and_is_passes(payload: bytes) -> None:
    codec5.check_payload(mqtt5.PublishPacket("a", payload, payload_format_indicator=1))
    codec5.check_payload(mqtt5.Will("a", payload=payload, payload_format_indicator=1))


def test_a_payload_that_is_said_to_be_text_and_is_not_is_refused() -> None:
    for message in (
        mqtt5.PublishPacket("a", b"\xff", payload_format_indicator=1),
        mqtt5.Will("a", payload=b"\xff", payload_format_indicator=1),
    ):
        with pytest.raises(Malformed) as refused:
            codec5.check_payload(message)
        assert refused.value.reason == 0x99


def test_a_payload_of_no_said_format_may_be_anything() -> None:
    codec5.check_payload(mqtt5.PublishPacket("a", b"\xff"))
    codec5.check_payload(mqtt5.Will("a"))


def test_a_payload_larger_than_mqtt_can_carry_is_not_written(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Malformed) as refused:
        codec5.write(mqtt5.PublishPacket("a", bytes(1 << 28)))
    assert refused.value.reason == 0x95
    assert capfd.readouterr().err == ""
