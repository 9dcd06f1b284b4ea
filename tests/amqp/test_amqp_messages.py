"""Messages of AMQP to messages of the broker and back: what other protocols see, and what AMQP clients get again."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlane.amqp.addresses import Address, NodeKind, read_address
from overlane.amqp.codec import composites
from overlane.amqp.codec.decoding import decode as decode_value
from overlane.amqp.codec.encoding import described, encode, symbol
from overlane.amqp.codec.malformed import AmqpError, Malformed
from overlane.amqp.codec.types import Byte, Described, Int, Symbol, Timestamp, UByte, UInt, ULong, Uuid
from overlane.amqp.messages import sections
from overlane.amqp.messages.reading import EXTRAS, read_message
from overlane.amqp.messages.sections import Header, MessageProperties
from overlane.amqp.messages.writing import write_message
from overlane.core.units import MS, NEVER, SECOND
from overlane.pubsub.message import Message
from overlane.pubsub.properties import Properties, decode

NOW = 1_000 * SECOND


def section(code: int, value: object) -> bytes:
    return described(code, encode(value))


def message(*parts: bytes) -> bytes:
    return b"".join(parts)


def through(raw: bytes, qos: int = 1) -> dict[int, Any]:
    """What another AMQP client gets of it: the values of its sections by their code."""
    incoming = read_message(raw, 32)
    kept = Message("t", incoming.payload, qos, encoded=incoming.properties)
    written = write_message(kept, qos, False, 0, NOW)
    found: dict[int, Any] = {}
    for one in sections.split(written):
        value, _ = decode_value(written, one.value)
        found[one.code] = value
    return found


def test_data_is_the_payload() -> None:
    incoming = read_message(message(section(0x75, b"\x00\xff"), section(0x75, b"more")), 32)
    assert incoming.payload == b"\x00\xffmore"
    assert incoming.properties == b""


def test_a_string_is_text_both_ways() -> None:
    incoming = read_message(section(0x77, "grüße"), 32)
    assert incoming.payload == "grüße".encode()
    assert decode(incoming.properties) == Properties(is_text=True)
    assert through(section(0x77, "grüße"))[0x77] == "grüße"


@pytest.mark.parametrize(
    "body",
    [
        section(0x77, {"a": Int(1), "b": [True, None, b"x"]}),
        section(0x77, None),
        section(0x77, ULong(7)),
        section(0x76, ["a", Int(1)]) + section(0x76, []),
    ],
)
def test_other_bodies_reach_amqp_clients_as_they_were_sent(body: bytes) -> None:
    incoming = read_message(body, 32)
    assert incoming.payload == body
    kept = Message("t", incoming.payload, 1, encoded=incoming.properties)
    assert write_message(kept, 1, False, 0, NOW).endswith(body)


def test_a_message_without_a_body_is_empty_and_reaches_amqp_clients_without_one() -> None:
    """As JMS clients send it, though the standard wants a body."""
    incoming = read_message(section(0x70, [True]) + composites.write(MessageProperties(message_id="ID:1")), 32)
    assert incoming.payload == b""
    kept = Message("t", incoming.payload, 1, encoded=incoming.properties)
    written = sections.split(write_message(kept, 1, False, 0, NOW))
    assert [one.code for one in written] == [sections.HEADER, sections.MESSAGE_ANNOTATIONS, sections.PROPERTIES]


def test_messages_with_the_same_properties_differ_in_their_bodies() -> None:
    """What is in front of a body is read and written once, and kept: it must not be taken for something else."""
    head = section(0x70, [True]) + section(0x74, {"a": "b", "c": "d"})
    bodies = [section(0x77, "1"), section(0x75, b"1"), section(0x77, Int(1)), section(0x75, b"2"), b""]
    for _ in range(2):
        for body in bodies:
            incoming = read_message(head + body, 2)
            kept = Message("t", incoming.payload, 1, encoded=incoming.properties)
            assert write_message(kept, 1, False, 0, NOW).endswith(section(0x74, {"a": "b", "c": "d"}) + body)
            assert incoming.user_properties == (("a", "b"), ("c", "d"))
        with pytest.raises(AmqpError, match="at most 1"):
            read_message(head + bodies[0], 1)
        seen = {
            write_message(kept, qos, retain, tries, NOW)
            for qos in (0, 1)
            for retain in (False, True)
            for tries in (0, 1)
        }
        assert len(seen) == 8


def test_what_the_broker_has_a_field_for_is_seen_by_every_protocol() -> None:
    raw = message(
        section(0x70, [True, UByte(4), UInt(5_000)]),
        composites.write(
            MessageProperties(reply_to="topic://answers", correlation_id=b"\x01", content_type="text/plain")
        ),
        section(0x74, {"site": "lab", "floor": Int(3), "hot": True, "id": Uuid(bytes(16))}),
        section(0x75, b"x"),
    )
    incoming = read_message(raw, 32)
    assert incoming.ttl_ms == 5_000
    values = decode(incoming.properties)
    assert values.content_type == "text/plain"
    assert values.response_topic == "answers"
    assert values.correlation_data == b"\x01"
    assert values.user_properties[:4] == (
        ("site", "lab"),
        ("floor", "3"),
        ("hot", "true"),
        ("id", "00000000-0000-0000-0000-000000000000"),
    )


def test_what_it_has_none_for_reaches_amqp_clients_with_its_types() -> None:
    about = MessageProperties(
        message_id=ULong(9),
        subject="order",
        correlation_id="ID:1",
        reply_to="queue://answers",
        creation_time=1_700_000_000_000,
        group_id="g",
        group_sequence=3,
    )
    raw = message(
        section(0x70, [True, UByte(9)]),
        section(0x72, {Symbol("x-opt-jms-msg-type"): Byte(5), Symbol("x-opt-retain"): True}),
        composites.write(about),
        section(0x74, {"floor": Int(3), "at": Timestamp(4)}),
        section(0x77, "text"),
    )
    found = through(raw)
    assert composites.compose(Described(ULong(0x73), found[0x73])) == about
    assert found[0x74] == {"floor": Int(3), "at": Timestamp(4)}
    assert type(found[0x74]["floor"]) is Int
    assert found[0x72] == {Symbol("x-opt-jms-msg-type"): Byte(5), Symbol("x-opt-topic"): "t"}
    header = composites.compose(Described(ULong(0x70), found[0x70]))
    assert header == Header(True, 9, delivery_count=0)
    assert read_message(raw, 32).retain


def test_a_message_of_another_protocol_has_its_topic_properties_and_the_rest_of_its_time() -> None:
    values = Properties("text/plain", "answers", b"\x07", True, (("a", "1"), ("b", "2"), ("a", "3")))
    kept = Message("t/1", b"hi", 1, encoded=values.encode(), published_ns=NOW, expires_ns=NOW + 2_500 * MS)
    raw = write_message(kept, 1, True, 2, NOW + SECOND)
    found = {one.code: decode_value(raw, one.value)[0] for one in sections.split(raw)}
    assert composites.compose(Described(ULong(0x70), found[0x70])) == Header(True, None, 1_500, None, 2)
    assert composites.compose(Described(ULong(0x73), found[0x73])) == MessageProperties(
        to="t/1", reply_to="answers", correlation_id=b"\x07", content_type="text/plain"
    )
    assert found[0x72] == {Symbol("x-opt-topic"): "t/1", Symbol("x-opt-retain"): True}
    assert found[0x74] == {"a": "3", "b": "2"}
    assert found[0x77] == "hi"


def test_text_that_is_none_and_sections_that_are_none_are_data() -> None:
    for values in (
        Properties(is_text=True),
        Properties(user_properties=((EXTRAS, "encoded:"),)),
        Properties(user_properties=((EXTRAS, "data:!!"),)),
        Properties(user_properties=((EXTRAS, "data:AFNz"),)),
        Properties(user_properties=((EXTRAS, "nonsense"),)),
        Properties(content_type="grün"),
    ):
        kept = Message("t", b"\xff\x00", 0, encoded=values.encode())
        raw = write_message(kept, 0, False, 0, NOW)
        assert read_message(raw, 32).payload == b"\xff\x00"


def test_the_user_of_a_message_is_not_passed_on() -> None:
    raw = message(composites.write(MessageProperties(user_id=b"alice", subject="s")), section(0x75, b""))
    assert read_message(raw, 32).user == b"alice"
    assert composites.compose(Described(ULong(0x73), through(raw)[0x73])) == MessageProperties(subject="s")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        section(0x75, "text"),
        section(0x75, b"") + section(0x77, None),
        section(0x77, None) + section(0x77, None),
        section(0x74, {}) + section(0x73, []) + section(0x75, b""),
        section(0x73, ["x"] * 14) + section(0x75, b""),
        section(0x79, None) + section(0x75, b""),
        b"\x40",
        b"\x00" + symbol("amqp:nothing:list") + b"\x45",
    ],
)
def test_what_is_no_message_is_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        read_message(raw, 32)


def test_too_many_or_too_large_properties_are_refused() -> None:
    with pytest.raises(AmqpError, match="at most 3"):
        read_message(message(section(0x74, {str(at): "x" for at in range(4)}), section(0x75, b"")), 3)
    for wrong in ({"a": ["list"]}, {1: "x"}, {"a": "x" * 70_000}, {"a": "nul\0"}, {"a": b"x" * 60_000}):
        with pytest.raises(AmqpError):
            read_message(message(section(0x74, wrong), section(0x75, b"")), 32)


@given(st.binary(max_size=120))
def test_garbage_is_a_message_or_refused(data: bytes) -> None:
    for raw in (data, b"\x00\x53\x73" + data + section(0x75, b""), b"\x00\x53\x74" + data + section(0x75, b"")):
        try:
            incoming = read_message(raw, 32)
        except AmqpError:
            continue
        write_message(Message("t", incoming.payload, 1, encoded=incoming.properties), 1, False, 0, NOW)


def test_addresses() -> None:
    assert read_address("a/+/b") == Address("a/+/b", NodeKind.TOPIC)
    assert read_address("topic://a") == Address("a", NodeKind.TOPIC)
    assert read_address("queue://a") == Address("a", NodeKind.QUEUE)
    assert read_address("queue://a", ["topic"]) == Address("a", NodeKind.TOPIC)
    assert read_address("a", ["queue"]) == Address("a", NodeKind.QUEUE)
    assert read_address("a", ["temporary-queue"]) == Address("a", NodeKind.TOPIC)


def test_a_message_that_never_expires_has_no_time_to_live() -> None:
    kept = Message("t", b"x", 1, encoded=Properties("text/plain").encode(), expires_ns=NEVER)
    raw = write_message(kept, 1, False, 0, NOW)
    assert read_message(raw, 32).ttl_ms is None
