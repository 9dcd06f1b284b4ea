"""MQTT 3.1.1: the same packets as of MQTT 5 come out of its bytes, and what it forbids is refused."""

import mqtt5
import pytest
from any_packets import PACKETS, PACKETS_311, mutated
from hypothesis import given
from hypothesis import strategies as st
from raw import connect, connect_311, packet, text, u16

from examples import examples
from overlane.mqtt.codec import codec311
from overlane.mqtt.codec.malformed import Malformed

WRITTEN = PACKETS_311.map(codec311.write)


@given(PACKETS_311)
def test_every_packet_is_read_as_it_was_written(value: mqtt5.Packet) -> None:
    assert codec311.read(codec311.write(value)) == value


@given(WRITTEN)
def test_bytes_that_were_read_are_written_again_the_same(data: bytes) -> None:
    assert codec311.write(codec311.read(data)) == data


@given(WRITTEN, st.binary(max_size=8), st.binary(max_size=8))
def test_a_packet_is_read_out_of_the_middle_of_a_buffer(data: bytes, before: bytes, after: bytes) -> None:
    view = memoryview(before + data + after)[len(before) : len(before) + len(data)]
    assert codec311.read(view) == codec311.read(data)


@given(PACKETS.filter(lambda value: getattr(value, "topic", "topic") != ""))
def test_every_packet_of_mqtt_5_is_written_as_one_of_3_1_1_or_not_at_all(value: mqtt5.Packet) -> None:
    if isinstance(value, mqtt5.ConnectPacket) and value.username is None and value.password is not None:
        return  # refused, see below
    data = codec311.write(value)
    if data:
        assert type(codec311.read(data)) is type(value)
    else:
        assert isinstance(value, mqtt5.AuthPacket | mqtt5.DisconnectPacket | mqtt5.ConnAckPacket)


def test_the_example_of_a_connect_in_the_specification_is_read() -> None:
    # Section 3.1.2.11: flags 0xCE, keep alive 10 s.
    head = bytes.fromhex("0004 4D515454 04 CE 000A")
    data = packet(0x10, head, text("client"), text("will"), text("gone"), text("user"), text("secret"))
    assert codec311.read(data) == mqtt5.ConnectPacket(
        "client",
        username="user",
        password=b"secret",
        clean_start=True,
        will=mqtt5.Will("will", payload=b"gone", qos=mqtt5.QoS.AT_LEAST_ONCE),
        keep_alive=10,
    )


def test_a_session_that_is_not_clean_never_expires() -> None:
    assert codec311.read(connect_311(0x00)) == mqtt5.ConnectPacket(
        "c", clean_start=False, session_expiry_interval=0xFFFF_FFFF, keep_alive=60
    )


def test_a_connect_of_mqtt_3_1_is_read_too() -> None:
    assert codec311.read(connect_311(name="MQIsdp", level=3)) == codec311.read(connect_311())


def test_an_empty_client_id_is_left_to_be_judged_by_the_session() -> None:
    value = codec311.read(connect_311(0x00, text("")))
    assert isinstance(value, mqtt5.ConnectPacket)
    assert value.client_id == ""


def test_a_subscription_gets_own_and_retained_messages_with_the_flag_only_on_those_retained_before() -> None:
    # Section 3.8.3.1, the example.
    data = packet(0x82, bytes.fromhex("000A 0003 612F62 01 0003 632F64 02"))
    assert codec311.read(data) == mqtt5.SubscribePacket(
        10,
        [
            mqtt5.TopicFilter(
                pattern,
                max_qos=qos,
                no_local=False,
                retain_as_published=False,
                retain_handling=mqtt5.RetainHandling.SEND_ALWAYS,
            )
            for pattern, qos in (("a/b", mqtt5.QoS.AT_LEAST_ONCE), ("c/d", mqtt5.QoS.EXACTLY_ONCE))
        ],
    )


@pytest.mark.parametrize(
    ("data", "value"),
    [
        pytest.param(
            packet(0x32, bytes.fromhex("0003 612F62 000A"), b"hi"),
            mqtt5.PublishPacket("a/b", b"hi", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=10),
            id="PUBLISH, section 3.3.2.3",
        ),
        pytest.param(packet(0x31, text("a")), mqtt5.PublishPacket("a", b"", retain=True), id="an empty PUBLISH"),
        pytest.param(
            packet(0xA2, bytes.fromhex("000A 0003 612F62 0003 632F64")),
            mqtt5.UnsubscribePacket(10, ["a/b", "c/d"]),
            id="UNSUBSCRIBE, section 3.10.3",
        ),
        pytest.param(
            packet(0x90, u16(10), b"\x00\x02\x80"),
            mqtt5.SubAckPacket(
                10,
                [
                    mqtt5.SubAckReasonCode.GRANTED_QOS_AT_MOST_ONCE,
                    mqtt5.SubAckReasonCode.GRANTED_QOS_EXACTLY_ONCE,
                    mqtt5.SubAckReasonCode.UNSPECIFIED_ERROR,
                ],
            ),
            id="SUBACK, section 3.9.3",
        ),
        pytest.param(b"\xb0\x02\x00\x0a", mqtt5.UnsubAckPacket(10, []), id="UNSUBACK"),
        pytest.param(b"\x20\x02\x01\x00", mqtt5.ConnAckPacket(session_present=True), id="CONNACK"),
        pytest.param(b"\x62\x02\x00\x0a", mqtt5.PubRelPacket(10), id="PUBREL"),
        pytest.param(b"\xe0\x00", mqtt5.DisconnectPacket(), id="DISCONNECT"),
    ],
)
def test_a_packet_of_known_bytes_is_read_and_written(data: bytes, value: mqtt5.Packet) -> None:
    assert codec311.read(data) == value
    assert codec311.write(value) == data


def test_filters_are_left_to_be_judged_by_whoever_subscribes() -> None:
    for pattern in ("", "a/#/b", "a+", "$share/g", "$share//a"):
        subscription = codec311.read(packet(0x82, u16(1), text(pattern), b"\x01"))
        assert isinstance(subscription, mqtt5.SubscribePacket)
        assert [each.pattern for each in subscription.topic_filters] == [pattern]
        end = codec311.read(packet(0xA2, u16(1), text(pattern)))
        assert isinstance(end, mqtt5.UnsubscribePacket)
        assert end.patterns == [pattern]


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (0x00, 0),
        (0x80, 3),
        (0x81, None),
        (0x82, None),
        (0x83, 3),
        (0x84, 1),
        (0x85, 2),
        (0x86, 4),
        (0x87, 5),
        (0x88, 3),
        (0x89, 3),
        (0x8A, 5),
        (0x8C, 5),
        (0x90, None),
        (0x95, None),
        (0x97, 3),
        (0x99, None),
        (0x9A, None),
        (0x9B, None),
        (0x9C, 3),
        (0x9D, 3),
        (0x9F, 3),
    ],
)
def test_a_refusal_is_told_by_the_nearest_return_code_or_not_at_all(reason: int, code: int | None) -> None:
    data = codec311.write(mqtt5.ConnAckPacket(reason_code=mqtt5.ConnAckReasonCode(reason), reason_str="why"))
    assert data == (b"" if code is None else bytes((0x20, 2, 0, code)))


def test_every_failure_to_subscribe_is_told_as_one() -> None:
    codes = [mqtt5.SubAckReasonCode(code) for code in (0, 1, 2, 0x80, 0x87, 0x8F, 0xA2)]
    assert codec311.write(mqtt5.SubAckPacket(7, codes)) == packet(0x90, u16(7), b"\x00\x01\x02\x80\x80\x80\x80")


def test_what_3_1_1_has_no_words_for_is_not_written() -> None:
    assert codec311.write(mqtt5.AuthPacket()) == b""
    for reason in (0x04, 0x81, 0x8B):
        assert codec311.write(mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode(reason))) == b""


def test_reasons_and_properties_are_left_out() -> None:
    refused = mqtt5.PubAckPacket(7, reason_code=mqtt5.PubAckReasonCode.NOT_AUTHORIZED, reason_str="why")
    assert codec311.write(refused) == b"\x40\x02\x00\x07"
    told = mqtt5.PublishPacket("a", b"x", content_type="t", topic_alias=3, user_properties=[("k", "v")])
    assert codec311.write(told) == packet(0x30, text("a"), b"x")


def test_a_password_without_a_user_name_is_not_written() -> None:
    with pytest.raises(Malformed):
        codec311.write(mqtt5.ConnectPacket("c", password=b"secret"))


WILL = text("c") + text("t") + text("")
NOT_TEXT = b"\xff"

WRONG = {
    "nothing at all": (0x81, b""),
    "half a header": (0x81, b"\x30"),
    "a type that does not exist": (0x81, packet(0x00)),
    "AUTH, which is of MQTT 5": (0x81, packet(0xF0)),
    "a length of five bytes": (0x81, b"\x30\x80\x80\x80\x80\x01"),
    "a packet shorter than its length": (0x81, packet(0x30, text("a"), b"payload")[:-1]),
    "a packet longer than its length": (0x81, packet(0x30, text("a"), b"payload") + b"x"),
    "CONNECT of MQTT 5": (0x84, connect()),
    "CONNECT of another protocol": (0x84, connect_311(name="MQTX")),
    "CONNECT of MQTT 3.1 by its new name": (0x84, connect_311(level=3)),
    "CONNECT of a bridge of MQTT 5": (0x84, connect_311(level=0x85)),
    "CONNECT with header flags": (0x81, connect_311(first=0x11)),
    "CONNECT with the reserved flag": (0x81, connect_311(0x03)),
    "CONNECT with the QoS of no will": (0x81, connect_311(0x0A)),
    "CONNECT with the retain flag of no will": (0x81, connect_311(0x22)),
    "CONNECT with a will of QoS 3": (0x81, connect_311(0x1E, WILL)),
    "CONNECT without the will it promises": (0x81, connect_311(0x06)),
    "CONNECT without the user name it promises": (0x81, connect_311(0x82)),
    "CONNECT without the password it promises": (0x81, connect_311(0xC2, text("c") + text("u"))),
    "CONNECT with a password but no user name": (0x82, connect_311(0x42, text("c") + text("p"))),
    "CONNECT that goes on": (0x81, connect_311(0x02, text("c") + b"x")),
    "CONNECT without a client id": (0x81, connect_311(0x02, b"")),
    "CONNECT with a client id that is no text": (0x81, connect_311(0x02, text(NOT_TEXT))),
    "CONNECT with U+0000 in the client id": (0x81, connect_311(0x02, text("a\0b"))),
    "CONNECT with a user name that is no text": (0x81, connect_311(0x82, text("c") + text(NOT_TEXT))),
    "CONNECT with a will's topic that is no text": (0x81, connect_311(0x06, text("c") + text(NOT_TEXT) + text(""))),
    "CONNECT with a wildcard in the will's topic": (0x90, connect_311(0x06, text("c") + text("#") + text(""))),
    "CONNECT with a will without a topic": (0x90, connect_311(0x06, text("c") + text("") + text(""))),
    "CONNACK with a reserved flag": (0x81, packet(0x20, b"\x02\x00")),
    "CONNACK with a session although refused": (0x82, packet(0x20, b"\x01\x05")),
    "CONNACK with a return code that does not exist": (0x82, packet(0x20, b"\x00\x06")),
    "CONNACK with properties": (0x81, packet(0x20, b"\x00\x00\x00")),
    "PUBLISH with QoS 3": (0x81, packet(0x36, text("a"), u16(1))),
    "PUBLISH as duplicate at QoS 0": (0x81, packet(0x38, text("a"))),
    "PUBLISH with packet id 0": (0x82, packet(0x32, text("a"), u16(0))),
    "PUBLISH that ends in its packet id": (0x81, packet(0x32, text("a"), b"\x00")),
    "PUBLISH that ends in its topic": (0x81, packet(0x30, b"\x00\x05a")),
    "PUBLISH without a topic": (0x90, packet(0x30, text(""), b"x")),
    "PUBLISH on a filter with +": (0x90, packet(0x30, text("a/+"))),
    "PUBLISH on a filter with #": (0x90, packet(0x30, text("#"))),
    "PUBLISH on what is no text": (0x81, packet(0x30, text(NOT_TEXT))),
    "PUBLISH on a surrogate": (0x81, packet(0x30, text(b"\xed\xa0\x80"))),
    "PUBLISH with U+0000 in the topic": (0x81, packet(0x30, text("a\0b"))),
    "PUBACK with header flags": (0x81, packet(0x42, u16(1))),
    "PUBACK with packet id 0": (0x82, packet(0x40, u16(0))),
    "PUBACK with half a packet id": (0x81, packet(0x40, b"\x00")),
    "PUBACK with a reason": (0x81, packet(0x40, u16(1), b"\x00")),
    "PUBREL without its header flags": (0x81, packet(0x60, u16(1))),
    "SUBSCRIBE without its header flags": (0x81, packet(0x80, u16(1), text("a"), b"\x00")),
    "SUBSCRIBE with packet id 0": (0x82, packet(0x82, u16(0), text("a"), b"\x00")),
    "SUBSCRIBE to nothing": (0x82, packet(0x82, u16(1))),
    "SUBSCRIBE with QoS 3": (0x82, packet(0x82, u16(1), text("a"), b"\x03")),
    "SUBSCRIBE with no-local of MQTT 5": (0x81, packet(0x82, u16(1), text("a"), b"\x04")),
    "SUBSCRIBE with retain-as-published of MQTT 5": (0x81, packet(0x82, u16(1), text("a"), b"\x08")),
    "SUBSCRIBE with retain handling of MQTT 5": (0x81, packet(0x82, u16(1), text("a"), b"\x00", text("b"), b"\x10")),
    "SUBSCRIBE with a reserved bit": (0x81, packet(0x82, u16(1), text("a"), b"\x40")),
    "SUBSCRIBE without QoS": (0x81, packet(0x82, u16(1), text("a"))),
    "SUBSCRIBE to what is no text": (0x81, packet(0x82, u16(1), text(NOT_TEXT), b"\x00")),
    "SUBACK for nothing": (0x82, packet(0x90, u16(1))),
    "SUBACK with a return code that does not exist": (0x82, packet(0x90, u16(1), b"\x03")),
    "UNSUBSCRIBE without its header flags": (0x81, packet(0xA0, u16(1), text("a"))),
    "UNSUBSCRIBE with packet id 0": (0x82, packet(0xA2, u16(0), text("a"))),
    "UNSUBSCRIBE from nothing": (0x82, packet(0xA2, u16(1))),
    "UNSUBSCRIBE from what is no text": (0x81, packet(0xA2, u16(1), text(NOT_TEXT))),
    "UNSUBACK with a reason": (0x81, packet(0xB0, u16(1), b"\x00")),
    "PINGREQ with a body": (0x81, packet(0xC0, b"x")),
    "PINGRESP with header flags": (0x81, packet(0xD1)),
    "DISCONNECT with a reason": (0x81, packet(0xE0, b"\x00")),
}


@pytest.mark.parametrize(("reason", "data"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_packet_is_refused_with_its_reason(reason: int, data: bytes) -> None:
    for given_as in (data, memoryview(data)):
        with pytest.raises(Malformed) as refused:
            codec311.read(given_as)
        assert (refused.value.reason, str(refused.value) != "") == (reason, True)


@given(WRITTEN)
def test_a_packet_that_is_not_whole_is_refused_wherever_it_is_cut(data: bytes) -> None:
    for end in range(len(data)):
        with pytest.raises(Malformed):
            codec311.read(data[:end])


def test_more_filters_or_answers_than_allowed_are_refused() -> None:
    bounds = codec311.Bounds(filters=2)
    for first, each in ((0x82, text("a") + b"\x00"), (0xA2, text("a")), (0x90, b"\x00")):
        codec311.read(packet(first, u16(1), each * 2), bounds)
        with pytest.raises(Malformed) as refused:
            codec311.read(packet(first, u16(1), each * 3), bounds)
        assert refused.value.reason == 0x97


def takes_or_refuses(data: bytes) -> None:
    try:
        value = codec311.read(data)
    except Malformed:
        return
    assert codec311.read(codec311.write(value)) == value


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
