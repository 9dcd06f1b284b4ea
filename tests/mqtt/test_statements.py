"""Statements of MQTT 5 that no other test is about; and a test that none is left out that concerns a server."""

import re
from pathlib import Path

import mqtt5
import pytest
from clients import Bench, Client, Got
from raw import connect, packet, pair, properties, publish, subscribe, text, u16

from overlane.mqtt.codec import codec5, writing
from overlane.pubsub.cluster.names import TOPIC_BYTES_MAX


def listener(bench: Bench, topic_filter: str = "#", qos: int = 2) -> Client:
    alice = bench.client("alice")
    alice.subscribe(topic_filter, qos=qos)
    return alice


def heard_raw(bench: Bench, *sent: bytes) -> bytes:
    """What a client that says this hears, byte by byte."""
    connection = bench.server.connected(Bench().stranger().peer, bench.now)
    for one in sent:
        bench.server.receive(connection, one, bench.now)
        bench.server.take_records()
    bench.answer_all()
    return b"".join(connection.taken()[0])


# Strings and topics


def test_a_byte_order_mark_is_a_character_like_any_other() -> None:
    # MQTT-1.5.4-3, MQTT-4.7.3-4
    bench = Bench()
    alice = listener(bench, "\ufefft")
    bob = bench.client("bob")
    bob.publish("t", b"without")
    bob.publish("\ufefft", b"with", user_properties=[("\ufeffa", "\ufeffb")])
    assert alice.got() == [Got("\ufefft", b"with")]
    assert bench.client("\ufeffbob").connack is not None
    assert bob.is_open


def test_topics_are_compared_as_they_are() -> None:
    # MQTT-4.7.3-4
    bench = Bench()
    alice = listener(bench, "caf\u00e9")
    bob = bench.client("bob")
    for topic in ("cafe\u0301", "Caf\u00e9", "caf\u00e9"):
        bob.publish(topic, b"x")
    assert alice.got() == [Got("caf\u00e9", b"x")]


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(publish(pair(b"\xff", "b")), id="MQTT-1.5.7-1"),
        pytest.param(publish(pair("a", b"\xed\xa0\x80")), id="MQTT-1.5.7-1"),
        pytest.param(publish(b"\x08" + text(b"\xff")), id="MQTT-3.3.2-13"),
        pytest.param(publish(b"\x03" + text(b"\xff")), id="MQTT-3.3.2-19"),
        pytest.param(publish(topic=b"\xc0\x80"), id="MQTT-3.3.2-1"),
        pytest.param(subscribe(b"\xff"), id="MQTT-3.8.3-1"),
        pytest.param(subscribe(b"a\0"), id="MQTT-4.7.3-2"),
        pytest.param(packet(0xA2, u16(1), properties(), text(b"\xff")), id="MQTT-3.10.3-1"),
        pytest.param(packet(0x60, u16(1)), id="MQTT-3.6.1-1"),
        pytest.param(packet(0x41, u16(1)), id="MQTT-2.1.3-1 PUBACK"),
        pytest.param(packet(0x51, u16(1)), id="MQTT-2.1.3-1 PUBREC"),
        pytest.param(packet(0x71, u16(1)), id="MQTT-2.1.3-1 PUBCOMP"),
        pytest.param(packet(0xC1), id="MQTT-2.1.3-1 PINGREQ"),
        pytest.param(packet(0xE1), id="MQTT-3.14.1-1"),
        pytest.param(packet(0xF1), id="MQTT-3.15.1-1"),
    ],
)
def test_what_is_malformed_ends_the_connection_with_0x81(wrong: bytes) -> None:
    alice = Bench().client("alice")
    alice.send(wrong)
    assert alice.ended == 0x81
    assert alice.is_closed


@pytest.mark.parametrize("pattern", ["a+", "+a", "a/b+/c", "a/+b", "a#", "#/a", "a/#/b"])
def test_a_wildcard_takes_a_whole_level(pattern: str) -> None:
    # MQTT-4.7.0-1, MQTT-4.7.1-2
    alice = Bench().client("alice")
    alice.send(subscribe(pattern))
    (suback,) = alice.saw(mqtt5.SubAckPacket)
    assert [int(code) for code in suback.reason_codes] == [0x8F]
    alice.subscribe("+")
    alice.subscribe("+/+/b")
    alice.publish("x/y/b", b"1")
    alice.publish("x", b"2")
    assert [got.payload for got in alice.got()] == [b"1", b"2"]


def test_a_topic_of_the_greatest_length_is_carried() -> None:
    # MQTT-4.7.3-3
    bench = Bench(topic_bytes=TOPIC_BYTES_MAX)
    alice = listener(bench)
    topic = "t" * TOPIC_BYTES_MAX
    bench.client("bob").publish(topic, b"x", qos=1)
    assert alice.got() == [Got(topic, b"x", qos=1)]


# CONNECT and CONNACK


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(connect(0x06), id="a will without topic and message, MQTT-3.1.2-9"),
        pytest.param(connect(0x0A), id="QoS without a will, MQTT-3.1.2-13"),
        pytest.param(connect(0x02, rest=text("c") + text("user")), id="a user name without its flag, MQTT-3.1.2-18"),
        pytest.param(connect(0x82), id="no user name, MQTT-3.1.2-19"),
        pytest.param(connect(0x82, rest=text("c") + text("u") + text("p")), id="a password too much, MQTT-3.1.2-20"),
        pytest.param(connect(0xC2, rest=text("c") + text("u")), id="no password, MQTT-3.1.2-21"),
        pytest.param(connect(0x02, rest=b""), id="no client identifier, MQTT-3.1.3-3"),
        pytest.param(connect(0x02, rest=text(b"\xff")), id="MQTT-3.1.3-4"),
        pytest.param(connect(0x82, rest=text("c") + text(b"\xff")), id="MQTT-3.1.3-10"),
    ],
)
def test_a_connect_whose_fields_are_not_those_of_its_flags_is_refused(wrong: bytes) -> None:
    # MQTT-3.1.3-1, MQTT-3.1.4-1, MQTT-3.2.2-6, MQTT-3.2.2-7, MQTT-4.13.2-1, MQTT-3.14.0-1
    alice = Bench().stranger().open()
    alice.send(wrong)
    assert (alice.refusal, alice.is_resumed, alice.is_closed) == (0x81, False, True)
    assert [type(one) for one in alice.saw()] == [mqtt5.ConnAckPacket]


def test_every_short_client_identifier_of_letters_and_digits_is_let_in_and_has_a_session_of_its_own() -> None:
    # MQTT-3.1.3-2, MQTT-3.1.3-5, MQTT-3.1.2-6, MQTT-3.1.4-4, MQTT-3.2.2-2, MQTT-3.2.2-3
    bench = Bench()
    for name in ("a", "0123456789abcdefghijklm", "ABCDEFGHIJKLMNOPQRSTUVW", "nopqrstuvwxyzXYZ"):
        one = bench.client(name, expiry=60, clean=False)
        assert (one.refusal, one.is_resumed) == (0, False)
        one.subscribe(f"of/{name}", qos=1)
        one.reconnect(clean=False)
        assert one.is_resumed
        one.publish(f"of/{name}", b"x", qos=1)
        assert [got.topic for got in one.got()] == [f"of/{name}"]
        one.reconnect(clean=True)
        assert not one.is_resumed


def test_a_connack_has_no_reserved_bits_and_comes_once() -> None:
    # MQTT-3.2.2-1, MQTT-3.2.0-2, MQTT-3.1.2-31, MQTT-4.12.0-6
    said = heard_raw(Bench(), connect(0x02), connect(0x02))
    end = said[1] + 2
    assert (said[0], said[2], said[3]) == (0x20, 0, 0)
    connack = codec5.read(said[:end])
    assert isinstance(connack, mqtt5.ConnAckPacket)
    assert (connack.response_info, connack.authentication_method) == (None, None)
    assert said[end] == 0xE0


@pytest.mark.parametrize("retain", [False, True])
def test_a_will_is_retained_if_it_says_so(retain: bool) -> None:
    # MQTT-3.1.2-7, MQTT-3.1.2-16, MQTT-3.1.2-17
    bench = Bench()
    doomed = bench.client("doomed", will=mqtt5.Will("w", payload=b"gone", retain=retain))
    doomed.drop()
    late = bench.client("late")
    late.subscribe("w")
    assert late.got() == ([Got("w", b"gone", retain=True)] if retain else [])


def test_who_does_not_want_to_know_of_problems_is_told_codes_alone() -> None:
    # MQTT-3.1.2-32
    bench = Bench()
    alice = bench.client("alice", request_problem_info=False)
    alice.send(subscribe("a/#/b"))
    (suback,) = alice.saw(mqtt5.SubAckPacket)
    assert (int(suback.reason_codes[0]), suback.reason_str) == (0x8F, None)


# PUBLISH


def test_what_the_client_does_not_take_is_dropped_as_if_it_had_been_sent() -> None:
    # MQTT-3.1.2-28
    bench = Bench()
    alice = bench.client("alice", expiry=60, max_packet_size=100)
    alice.subscribe("t", qos=1)
    bob = bench.client("bob")
    assert bob.publish("t", bytes(200), qos=1) == 0
    bob.publish("t", b"small", qos=1)
    assert [got.payload for got in alice.got()] == [b"small"]
    assert "mqtt.queue@2" not in bench.tables()


@pytest.mark.parametrize("maximum", [0, 2])
def test_aliases_go_as_far_as_the_client_takes_them(maximum: int) -> None:
    # MQTT-3.1.2-30, MQTT-3.3.2-11, MQTT-3.3.2-3
    bench = Bench()
    alice = bench.client("alice", topic_alias_max=maximum)
    alice.subscribe("t/#", qos=1)
    bob = bench.client("bob")
    for number in range(8):
        bob.publish(f"t/{number % 4}", b"x", qos=1)
    used = {one.topic_alias for one in alice.packets if isinstance(one, mqtt5.PublishPacket)}
    assert used == {None, *range(1, maximum + 1)}
    assert [got.topic for got in alice.got()] == [f"t/{number % 4}" for number in range(8)]


def test_all_aliases_up_to_the_maximum_are_taken() -> None:
    # MQTT-3.3.2-12
    bench = Bench(topic_aliases=5)
    alice, bob = listener(bench), bench.client("bob")
    for alias in range(1, 6):
        bob.publish(f"t/{alias}", b"x", topic_alias=alias)
    for alias in range(1, 6):
        bob.publish("", b"y", topic_alias=alias)
    assert [got.topic for got in alice.got()] == [f"t/{alias}" for alias in range(1, 6)] * 2


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_properties_are_passed_on_unaltered_and_in_order(qos: int) -> None:
    # MQTT-3.3.2-15, MQTT-3.3.2-16, MQTT-3.3.2-17, MQTT-3.3.2-18, MQTT-3.3.2-20
    bench = Bench()
    alice = listener(bench)
    given = [("b", "1"), ("a", "2"), ("b", "3"), ("", "")]
    bench.client("bob").publish(
        "t",
        b"x",
        qos=qos,
        response_topic="answers/bob",
        correlation_data=b"\0\xff7",
        content_type="text/plain",
        user_properties=given,
    )
    (sent,) = [one for one in alice.packets if isinstance(one, mqtt5.PublishPacket)]
    assert (sent.response_topic, sent.correlation_data, sent.content_type) == (
        "answers/bob",
        b"\0\xff7",
        "text/plain",
    )
    assert [tuple(one) for one in sent.user_properties] == given


def test_each_quality_has_its_answer_under_the_same_identifier() -> None:
    # MQTT-2.2.1-2, MQTT-2.2.1-5, MQTT-3.3.4-1
    bench = Bench()
    bob = bench.client("bob")
    bob.saw()
    bob.send(publish())
    assert bob.saw() == []
    bob.send(publish(first=0x32, packet_id=u16(77)))
    (puback,) = bob.saw()
    assert (type(puback), puback.packet_id) == (mqtt5.PubAckPacket, 77)
    bob.send(publish(first=0x34, packet_id=u16(78)))
    (pubrec,) = bob.saw()
    assert (type(pubrec), pubrec.packet_id) == (mqtt5.PubRecPacket, 78)
    bob.send(packet(0x62, u16(78)))
    (pubcomp,) = bob.saw()
    assert (type(pubcomp), pubcomp.packet_id) == (mqtt5.PubCompPacket, 78)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_is_sent_first_without_the_duplicate_flag_and_owed_until_it_is_acknowledged(qos: int) -> None:
    # MQTT-4.3.2-2, MQTT-4.3.2-3, MQTT-4.3.3-2, MQTT-4.3.3-3, MQTT-4.9.0-1
    bench = Bench()
    alice = bench.client("alice", expiry=60, receive_max=1)
    alice.subscribe("t", qos=2)
    alice.polite = False
    bench.client("bob").publish("t", b"x", qos=qos)
    (sent,) = alice.saw(mqtt5.PublishPacket)
    assert (sent.duplicate, int(sent.qos)) == (False, qos)
    alice.reconnect()
    (again,) = alice.saw(mqtt5.PublishPacket)
    assert (again.duplicate, again.packet_id) == (True, sent.packet_id)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_the_client_refuses_is_not_sent_again(qos: int) -> None:
    # MQTT-4.4.0-2, MQTT-4.8.2-6
    bench = Bench()
    members = [bench.client(name, expiry=60) for name in ("alice", "carol")]
    for member in members:
        member.subscribe("$share/g/t", qos=2)
        member.polite = False
    bench.client("bob").publish("t", b"x", qos=qos)
    (chosen,) = [member for member in members if member.inbox]
    (sent,) = chosen.saw(mqtt5.PublishPacket)
    chosen.ack(mqtt5.PubAckPacket if qos == 1 else mqtt5.PubRecPacket, sent.packet_id, 0x83)
    for member in members:
        member.saw()
        member.reconnect()
        assert not member.saw(mqtt5.PublishPacket)
    assert "mqtt.queue@2" not in bench.tables()


@pytest.mark.parametrize("qos", [1, 2])
def test_an_answer_of_the_wrong_kind_is_a_protocol_error(qos: int) -> None:
    # MQTT-4.13.1-1, section 4.3
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t", qos=2)
    alice.polite = False
    bench.client("bob").publish("t", b"x", qos=qos)
    (sent,) = alice.saw(mqtt5.PublishPacket)
    alice.ack(mqtt5.PubRecPacket if qos == 1 else mqtt5.PubAckPacket, sent.packet_id)
    assert alice.ended == 0x82
    alice.polite = True
    alice.reconnect()
    assert "mqtt.queue@2" not in bench.tables()


def test_an_exchange_goes_on_though_the_message_has_expired() -> None:
    # MQTT-4.3.3-13
    bench = Bench()
    bob = bench.client("bob", polite=False)
    bob.publish("t", b"x", qos=2, message_expiry_interval=1)
    (pubrec,) = bob.saw(mqtt5.PubRecPacket)
    bench.wait(5)
    bob.send(mqtt5.PubRelPacket(pubrec.packet_id))
    (pubcomp,) = bob.saw(mqtt5.PubCompPacket)
    assert (pubcomp.packet_id, int(pubcomp.reason_code)) == (pubrec.packet_id, 0)


def test_a_client_that_owes_acknowledgements_hears_all_that_is_no_publish() -> None:
    # MQTT-3.3.4-10
    bench = Bench()
    alice = bench.client("alice", receive_max=1)
    alice.subscribe("t", qos=2)
    alice.polite = False
    bob = bench.client("bob")
    for _ in range(3):
        bob.publish("t", b"x", qos=1)
    alice.saw()
    alice.ping()
    alice.subscribe("u")
    alice.publish("v", b"", qos=1)
    alice.publish("v", b"", qos=2)
    alice.unsubscribe("u")
    assert [type(one) for one in alice.saw()] == [
        mqtt5.PingRespPacket,
        mqtt5.SubAckPacket,
        mqtt5.PubAckPacket,
        mqtt5.PubRecPacket,
        mqtt5.UnsubAckPacket,
    ]


# SUBSCRIBE and UNSUBSCRIBE


def test_every_filter_has_its_code_in_one_answer_under_the_same_identifier() -> None:
    # MQTT-2.2.1-6, MQTT-3.8.4-1, MQTT-3.8.4-7, MQTT-3.9.3-2, MQTT-3.10.4-5, MQTT-3.10.4-6, MQTT-3.11.3-1,
    # MQTT-3.11.3-2
    alice = Bench().client("alice")
    asked = [text(name) + bytes((qos,)) for name, qos in (("a", 2), ("b/#/c", 1), ("d", 0))]
    alice.send(packet(0x82, u16(500), properties(), *asked))
    (suback,) = alice.saw(mqtt5.SubAckPacket)
    assert (suback.packet_id, [int(code) for code in suback.reason_codes]) == (500, [2, 0x8F, 0])
    alice.send(packet(0xA2, u16(501), properties(), *map(text, ("b/#/c", "d", "d", "a"))))
    (unsuback,) = alice.saw(mqtt5.UnsubAckPacket)
    assert (unsuback.packet_id, [int(code) for code in unsuback.reason_codes]) == (501, [0x11, 0, 0x11, 0])


# What the server may say


def test_packets_without_properties_say_so_where_they_must() -> None:
    # MQTT-2.2.2-1
    said = heard_raw(Bench(), connect(0x02), subscribe("a", packet_id=9), publish())
    end = said[1] + 2
    assert said[end:] == packet(0x90, u16(9), properties(), b"\0") + packet(0x30, text("a"), properties(), b"payload")


def test_every_code_that_is_sent_is_one_of_its_packet() -> None:
    # MQTT-3.2.2-8, MQTT-3.4.2-1, MQTT-3.5.2-1, MQTT-3.6.2-1, MQTT-3.7.2-1, MQTT-3.14.2-1
    known = {
        writing.PUBACK: mqtt5.PubAckReasonCode,
        writing.PUBREC: mqtt5.PubRecReasonCode,
        writing.PUBREL: mqtt5.PubRelReasonCode,
        writing.PUBCOMP: mqtt5.PubCompReasonCode,
    }
    said = {writing.PUBACK: (0, 0x10), writing.PUBREC: (0, 0x10), writing.PUBREL: (0, 0x92), writing.PUBCOMP: (0, 0x92)}
    for kind, codes in said.items():
        for code in codes:
            read = codec5.read(writing.ack(5, kind, 1, code))
            assert isinstance(read, mqtt5.PubAckPacket | mqtt5.PubRecPacket | mqtt5.PubRelPacket | mqtt5.PubCompPacket)
            assert read.reason_code == known[kind](code)
    # All others are written by mqtt5, which has no others.
    for codes_of in (mqtt5.ConnAckReasonCode, mqtt5.DisconnectReasonCode):
        with pytest.raises(ValueError, match="1"):
            codes_of(1)


# All of them

OF_CLIENTS = """
    2.2.1-3 3.1.2-22 3.1.2-23 3.1.2-33 3.2.2-4 3.2.2-5 3.2.2-11 3.2.2-14 3.2.2-15 3.2.2-17 3.2.2-18 3.2.2-21 3.3.2-10
    3.3.4-7 3.3.4-8 4.5.0-2 4.6.0-1 4.12.0-3 4.12.0-7 4.12.1-1 6.0.0-3 7.1.2-1
"""
OF_WHAT_IS_NOT_OFFERED = """
    3.2.2-9 3.2.2-10 3.2.2-12 3.3.4-5 3.15.2-1 3.15.2-2 4.12.0-2 4.12.0-4 4.12.0-5 4.12.1-2 7.0.0-1 7.0.0-2 7.1.1-1
"""
"""QoS 1 and 2 are there, overlapping subscriptions get one message, AUTH is never sent; and of
servers as such."""
OF_USER_PROPERTIES_OF_ANSWERS = """
    3.2.2-20 3.4.2-3 3.5.2-3 3.6.2-2 3.6.2-3 3.7.2-2 3.7.2-3 3.9.2-2 3.11.2-1 3.11.2-2 3.14.2-4
"""
"""And of reason strings there: none are sent."""
LAST = {
    "1.5.4": 3, "1.5.5": 1, "1.5.7": 1, "2.1.3": 1, "2.2.1": 6, "2.2.2": 1, "3.1.0": 2, "3.1.2": 33, "3.1.3": 10,
    "3.1.4": 6, "3.2.0": 2, "3.2.2": 22, "3.3.1": 13, "3.3.2": 20, "3.3.4": 10, "3.4.2": 3, "3.5.2": 3, "3.6.1": 1,
    "3.6.2": 3, "3.7.2": 3, "3.8.1": 1, "3.8.3": 5, "3.8.4": 8, "3.9.2": 2, "3.9.3": 2, "3.10.1": 1, "3.10.3": 2,
    "3.10.4": 6, "3.11.2": 2, "3.11.3": 2, "3.12.4": 1, "3.14.0": 1, "3.14.1": 1, "3.14.2": 4, "3.14.4": 3,
    "3.15.1": 1, "3.15.2": 2, "4.1.0": 2, "4.3.1": 1, "4.3.2": 5, "4.3.3": 13, "4.4.0": 2, "4.5.0": 2, "4.6.0": 6,
    "4.7.0": 1, "4.7.1": 2, "4.7.2": 1, "4.7.3": 4, "4.8.2": 6, "4.9.0": 3, "4.12.0": 7, "4.12.1": 2, "4.13.1": 1,
    "4.13.2": 1, "6.0.0": 4, "7.0.0": 2, "7.1.1": 1, "7.1.2": 1,
}  # fmt: skip
"""How many statements each section has."""
UNNUMBERED = {"2.2.1-1"}
"""The numbers of the standard have a gap here."""


def test_every_statement_of_mqtt_5_for_servers_is_named_by_a_test() -> None:
    every = {f"{section}-{number}" for section, last in LAST.items() for number in range(1, last + 1)} - UNNUMBERED
    tests = Path(__file__).parent.parent
    text_of_tests = "".join(
        file.read_text() for folder in ("mqtt", "node", "stress") for file in (tests / folder).rglob("test_*.py")
    )
    named = set(re.findall(r"MQTT-([0-9.]+-[0-9]+)", text_of_tests))
    left_out = {*f"{OF_CLIENTS}{OF_WHAT_IS_NOT_OFFERED}{OF_USER_PROPERTIES_OF_ANSWERS}".split()}
    assert every - named - left_out == set()
