"""PUBLISH from clients: QoS 0, 1 and 2, acknowledgements, duplicates, aliases, and what is refused."""

from typing import Any

import mqtt5
import pytest
from clients import NEVER_S, Bench, Client, Got, again
from raw import packet, pair, properties, publish, text, u16

from overlane.core.units import SECOND
from overlane.pubsub.access import Rule
from overlane.pubsub.counters import Refusal

VERSIONS = pytest.mark.parametrize("version", [4, 5])


def listener(bench: Bench, version: int = 5) -> Client:
    client = bench.client("listener", version)
    client.subscribe("t/#", qos=2)
    return client


# The three qualities


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_reaches_its_subscriber_with_its_quality(version: int, qos: int) -> None:
    # MQTT-4.3.1-1, MQTT-4.3.2-1, MQTT-4.3.3-1
    bench = Bench()
    alice = listener(bench, version)
    bob = bench.client("bob", version)
    assert bob.publish("t/1", b"x", qos=qos) == (None if qos == 0 else 0)
    assert alice.got() == [Got("t/1", b"x", qos=qos)]
    assert bob.owed == {}


def test_qos_1_is_acknowledged_with_its_packet_identifier() -> None:
    # MQTT-4.3.2-4
    bench = Bench()
    listener(bench)
    bob = bench.client("bob")
    bob.send(mqtt5.PublishPacket("t", b"", qos=mqtt5.QoS(1), packet_id=77))
    assert bob.saw()[-1] == mqtt5.PubAckPacket(77)


def test_qos_2_takes_two_steps_with_the_same_packet_identifier() -> None:
    # MQTT-4.3.3-8, MQTT-4.3.3-11
    bench = Bench()
    listener(bench)
    bob = bench.client("bob", polite=False)
    bob.send(mqtt5.PublishPacket("t/1", b"", qos=mqtt5.QoS(2), packet_id=77))
    bob.send(mqtt5.PubRelPacket(77))
    assert bob.saw()[-2:] == [mqtt5.PubRecPacket(77), mqtt5.PubCompPacket(77)]


def test_a_qos_2_message_that_comes_again_is_acknowledged_again_and_passed_on_once() -> None:
    # MQTT-4.3.3-10
    bench = Bench()
    alice = listener(bench)
    bob = bench.client("bob", polite=False)
    message = mqtt5.PublishPacket("t/1", b"x", qos=mqtt5.QoS(2), packet_id=7)
    bob.send(message)
    bob.send(again(message), again(message))
    assert bob.saw(mqtt5.PubRecPacket) == [mqtt5.PubRecPacket(7)] * 3
    assert alice.got() == [Got("t/1", b"x", qos=2)]


def test_after_its_release_a_packet_identifier_stands_for_a_new_message() -> None:
    # MQTT-4.3.3-12
    bench = Bench()
    alice = listener(bench)
    bob = bench.client("bob", polite=False)
    for payload in (b"one", b"two"):
        bob.send(mqtt5.PublishPacket("t/1", payload, qos=mqtt5.QoS(2), packet_id=7))
        bob.send(mqtt5.PubRelPacket(7))
    assert [got.payload for got in alice.got()] == [b"one", b"two"]


def test_a_qos_1_message_that_comes_again_is_a_new_one() -> None:
    # MQTT-4.3.2-5
    bench = Bench()
    alice = listener(bench)
    bob = bench.client("bob", polite=False)
    message = mqtt5.PublishPacket("t/1", b"x", qos=mqtt5.QoS(1), packet_id=7)
    bob.send(message, again(message))
    assert alice.got() == [Got("t/1", b"x", qos=1)] * 2


def test_the_duplicate_flag_is_not_passed_on() -> None:
    # MQTT-3.3.1-3
    bench = Bench()
    alice = listener(bench)
    bench.client("bob").send(mqtt5.PublishPacket("t/1", b"x", qos=mqtt5.QoS(1), packet_id=7, duplicate=True))
    assert alice.got() == [Got("t/1", b"x", qos=1, dup=False)]


@VERSIONS
def test_a_release_of_nothing_is_answered_all_the_same(version: int) -> None:
    # MQTT-4.3.3-11, section 3.7.2.1
    bob = Bench().client("bob", version)
    bob.send(mqtt5.PubRelPacket(9))
    answer = bob.saw()[-1]
    assert isinstance(answer, mqtt5.PubCompPacket)
    assert (answer.packet_id, int(answer.reason_code)) == (9, 0x92 if version == 5 else 0)


def test_a_publisher_that_comes_back_finishes_what_it_began() -> None:
    # MQTT-4.4.0-1: the client resends with the same identifiers
    bench = Bench()
    alice = listener(bench)
    bob = bench.client("bob", expiry=60, polite=False)
    for number in range(3):
        bob.publish("t/1", b"%d" % number, qos=2)
    bob.send(mqtt5.PubRelPacket(1))
    bob.drop()
    bob.polite = True
    bob.reconnect()
    assert bob.owed == {}
    assert [got.payload for got in alice.got()] == [b"0", b"1", b"2"]
    assert bench.tables() == {"mqtt.session": 1}


def test_what_a_publisher_began_survives_a_crash() -> None:
    bench = Bench()
    alice = bench.client("listener", expiry=60)
    alice.subscribe("t/#", qos=2)
    bob = bench.client("bob", expiry=60, polite=False)
    bob.publish("t/1", b"x", qos=2)
    bench.crash()
    alice.reconnect()
    bob.polite = True
    bob.reconnect()
    assert bob.owed == {}
    assert alice.got() == [Got("t/1", b"x", qos=2)]


def test_a_message_of_qos_2_that_was_not_on_disk_is_taken_when_it_is_sent_again_after_a_crash() -> None:
    bench = Bench()
    alice = bench.client("listener", expiry=60)
    alice.subscribe("t/#", qos=2)
    bob = bench.client("bob", expiry=60)
    bench.is_store_slow = True
    assert bob.publish("t/1", b"x", qos=2) is None
    assert alice.got() == []
    bench.is_store_slow = False
    bench.crash()
    alice.reconnect()
    bob.reconnect()
    assert bob.owed == {}
    assert alice.got() == [Got("t/1", b"x", qos=2)]


@pytest.mark.parametrize("qos", [1, 2])
def test_an_acknowledgement_waits_until_the_message_is_on_disk(qos: int) -> None:
    bench = Bench()
    alice = bench.client("listener", expiry=60)
    alice.subscribe("t", qos=2)
    alice.drop()
    bob = bench.client("bob")
    bench.is_store_slow = True
    assert bob.publish("t", b"x", qos=qos) is None
    bench.commit()
    bench.settle()
    assert bob.saw(mqtt5.PubAckPacket | mqtt5.PubRecPacket) != []


def test_nothing_is_stored_where_nobody_needs_it_stored() -> None:
    bench = Bench()
    listener(bench)
    bob = bench.client("bob")
    bench.is_store_slow = True
    assert bob.publish("t/1", b"x", qos=1) == 0
    assert bob.publish("t/1", b"x", qos=2) == 0
    assert bench.uncommitted == 0


def test_a_release_is_answered_when_it_is_on_disk() -> None:
    bench = Bench()
    bob = bench.client("bob", expiry=60, polite=False)
    bob.publish("t", b"x", qos=2)
    bench.is_store_slow = True
    bob.saw()
    bob.send(mqtt5.PubRelPacket(1))
    assert bob.saw() == []
    bench.commit()
    bench.settle()
    assert bob.saw() == [mqtt5.PubCompPacket(1)]


def test_a_message_that_nobody_gets_is_acknowledged_as_such() -> None:
    # MQTT 5, section 3.4.2.1
    bench = Bench()
    bob = bench.client("bob")
    assert bob.publish("nobody/cares", b"", qos=1) == 0x10
    assert bob.publish("nobody/cares", b"", qos=2) == 0x10
    assert bench.client("old", 4).publish("nobody/cares", b"", qos=1) == 0


@VERSIONS
def test_what_comes_from_one_publisher_on_one_topic_stays_in_order(version: int) -> None:
    # MQTT-4.6.0-2, MQTT-4.6.0-3, MQTT-4.6.0-5, MQTT-4.6.0-6
    bench = Bench()
    alice = listener(bench, version)
    bob = bench.client("bob", version)
    for qos in (0, 1, 2):
        for number in range(50):
            bob.publish("t/1", b"%d" % number, qos=qos)
        assert [int(got.payload) for got in alice.got()] == list(range(50))


# Receive maximum


def test_more_qos_2_messages_under_way_than_allowed_are_an_error() -> None:
    # MQTT-3.3.4-9 (sender's quota), section 3.3.4: DISCONNECT with 0x93
    bench = Bench(in_flight=3)
    bob = bench.client("bob", polite=False)
    for _ in range(3):
        assert bob.publish("t", b"", qos=2) == 0x10
    bob.publish("t", b"", qos=2)
    assert bob.ended == 0x93


def test_more_messages_than_allowed_while_answers_wait_for_the_disk_are_an_error() -> None:
    # MQTT-3.3.4-7; who is answered at once may send at any pace
    bench = Bench(in_flight=3)
    bob = bench.client("bob", polite=False)
    for _ in range(50):
        bob.publish("t", b"", qos=1, settle=False)
    bench.settle()
    bob.publish("t", b"", qos=2)
    bob.connection.acks_held = 1  # by the driver
    bob.publish("t", b"", qos=1)
    assert bob.is_open
    bob.connection.acks_held = 2
    bob.publish("t", b"", qos=1)
    assert bob.ended == 0x93


def test_a_release_makes_room_for_another_message() -> None:
    bench = Bench(in_flight=3)
    bob = bench.client("bob", polite=False)
    for number in range(20):
        assert bob.publish("t", b"", qos=2) == 0x10
        if number >= 2:
            bob.send(mqtt5.PubRelPacket(number - 1))


def test_what_was_under_way_on_an_earlier_connection_does_not_count() -> None:
    # MQTT 5, section 4.9: the quota starts anew with each connection
    bench = Bench(in_flight=3)
    bob = bench.client("bob", expiry=60, polite=False)
    for _ in range(3):
        bob.publish("t", b"", qos=2)
    bob.drop()
    bob.reconnect()
    for _ in range(3):
        assert bob.publish("t", b"", qos=2) == 0x10
    bob.publish("t", b"", qos=2)
    assert bob.ended == 0x93


def test_3_1_1_has_no_receive_maximum() -> None:
    bench = Bench(in_flight=3)
    bob = bench.client("bob", 4, polite=False)
    for _ in range(50):
        assert bob.publish("t", b"", qos=2) == 0
    for _ in range(50):
        bob.publish("t", b"", qos=1, settle=False)
    bench.settle()
    assert bob.is_open


# Topic aliases


def test_an_alias_stands_for_its_topic() -> None:
    # MQTT-3.3.2-8 and following
    bench = Bench()
    alice = listener(bench)
    bob = bench.client("bob")
    bob.publish("t/long/topic", b"1", topic_alias=3)
    bob.publish("", b"2", topic_alias=3)
    bob.publish("", b"3", qos=2, topic_alias=3)
    assert [(got.topic, got.payload) for got in alice.got()] == [
        ("t/long/topic", b"1"),
        ("t/long/topic", b"2"),
        ("t/long/topic", b"3"),
    ]


def test_an_alias_may_be_given_another_topic() -> None:
    bench = Bench()
    alice = listener(bench)
    bob = bench.client("bob")
    for topic in ("t/1", "", "t/2", ""):
        bob.publish(topic, b"", topic_alias=1)
    assert [got.topic for got in alice.got()] == ["t/1", "t/1", "t/2", "t/2"]


def test_an_alias_is_forgotten_with_its_connection() -> None:
    # MQTT-3.3.2-7
    bench = Bench()
    bob = bench.client("bob", expiry=60)
    bob.publish("t/1", b"", topic_alias=1)
    bob.drop()
    bob.reconnect()
    bob.publish("", b"", topic_alias=1)
    assert bob.ended == 0x82


@pytest.mark.parametrize(
    ("reason", "wrong"),
    [
        pytest.param(0x94, publish(b"\x23\0\0"), id="alias 0, MQTT-3.3.2-8"),
        pytest.param(0x94, publish(b"\x23\0\4"), id="alias above the maximum, MQTT-3.3.2-9"),
        pytest.param(0x82, publish(b"\x23\0\1", topic=""), id="alias that stands for nothing"),
        pytest.param(0x82, publish(topic=""), id="neither topic nor alias"),
        pytest.param(0x82, publish(b"\x0b\1"), id="subscription identifier from a client, MQTT-3.3.4-6"),
        pytest.param(0x90, publish(topic="a/+"), id="wildcard, MQTT-3.3.2-2"),
        pytest.param(0x90, publish(topic="a/#"), id="wildcard, MQTT-3.3.2-2"),
        pytest.param(0x81, publish(topic=b"a\0b"), id="U+0000, MQTT-1.5.4-2"),
        pytest.param(0x81, publish(topic=b"\xff"), id="no UTF-8, MQTT-1.5.4-1"),
        pytest.param(0x81, publish(first=0x36), id="QoS 3, MQTT-3.3.1-4"),
        pytest.param(0x81, publish(first=0x38), id="duplicate of QoS 0, MQTT-3.3.1-2"),
        pytest.param(0x82, publish(first=0x32, packet_id=u16(0)), id="packet identifier 0, MQTT-2.2.1-3"),
        pytest.param(0x82, publish(b"\x02\0\0\0\1", b"\x02\0\0\0\1"), id="expiry twice"),
        pytest.param(0x82, publish(b"\x01\2"), id="payload format 2"),
        pytest.param(0x82, publish(b"\x08" + text("a/#")), id="response topic with wildcard, MQTT-3.3.2-14"),
        pytest.param(0x90, publish(topic="/".join("a" * 65)), id="too many levels"),
        pytest.param(0x97, publish(*[pair()] * 33), id="too many user properties"),
        pytest.param(0x95, packet(0x30, text("t"), b"\0", bytes(1_100)), id="too large, MQTT-3.2.2-15"),
    ],
)
def test_a_wrong_publish_ends_the_connection_with_its_reason(reason: int, wrong: bytes) -> None:
    # MQTT-4.13.1-1
    bench = Bench(topic_aliases=3, packet_bytes=1_000)
    alice = bench.client("alice")
    alice.subscribe("#")
    bob = bench.client("bob")
    bob.send(wrong)
    assert bob.ended == reason
    assert bob.is_closed
    assert alice.got() == []


@pytest.mark.parametrize(
    "wrong",
    [
        packet(0x30, text(""), b"x"),
        packet(0x30, text("a/+"), b"x"),
        packet(0x36, text("a"), u16(1), b"x"),
        packet(0x38, text("a"), b"x"),
        packet(0x32, text("a"), u16(0), b"x"),
        packet(0x30, text("/".join("a" * 65)), b"x"),
        packet(0x30, text("a"), bytes(1_100)),
    ],
)
def test_a_wrong_publish_of_3_1_1_closes_the_connection(wrong: bytes) -> None:
    bench = Bench(packet_bytes=1_000)
    bob = bench.client("bob", 4)
    bob.saw()
    bob.send(wrong)
    assert bob.is_closed
    assert bob.saw() == []


@pytest.mark.parametrize(
    "wrong",
    [
        mqtt5.ConnAckPacket(),
        mqtt5.SubAckPacket(1, [mqtt5.SubAckReasonCode(0)]),
        mqtt5.UnsubAckPacket(1, [mqtt5.UnsubAckReasonCode(0)]),
        mqtt5.PingRespPacket(),
    ],
)
def test_what_only_servers_say_is_a_protocol_error(wrong: mqtt5.Packet) -> None:
    bob = Bench().client("bob")
    bob.send(wrong)
    assert bob.ended == 0x82


@pytest.mark.parametrize("first", [0x40, 0x50, 0x62, 0x70])
def test_an_acknowledgement_with_packet_identifier_0_is_a_protocol_error(first: int) -> None:
    bob = Bench().client("bob")
    bob.send(packet(first, u16(0)))
    assert bob.ended == 0x82


def test_acknowledgements_of_nothing_are_ignored() -> None:
    bob = Bench().client("bob")
    bob.saw()
    bob.send(mqtt5.PubAckPacket(5), mqtt5.PubCompPacket(5), mqtt5.PubRecPacket(5))
    assert bob.is_open
    assert bob.saw() == [mqtt5.PubRelPacket(5, reason_code=mqtt5.PubRelReasonCode(0x92))]


# Properties and expiry


def test_the_properties_of_a_message_are_passed_on_unaltered_and_in_order() -> None:
    # MQTT-3.3.2-4, -15, -16, -17, -18, -20
    bench = Bench()
    alice, old = listener(bench), bench.client("old", 4)
    old.subscribe("t/#", qos=2)
    given: dict[str, Any] = {
        "payload_format_indicator": 1,
        "content_type": "text/plain",
        "response_topic": "answers/bob",
        "correlation_data": b"\0\1\2",
        "user_properties": [("b", "1"), ("a", "2"), ("b", "1")],
    }
    for qos in (0, 1, 2):
        bench.client("bob").publish("t/1", b"x", qos=qos, **given)
    for message in alice.saw(mqtt5.PublishPacket):
        assert {name: getattr(message, name) for name in given} == given
        assert message.message_expiry_interval is None
    assert old.got() == [Got("t/1", b"x", qos=qos) for qos in (0, 1, 2)]


def test_a_message_is_sent_on_with_what_is_left_of_its_expiry() -> None:
    # MQTT-3.3.2-6
    bench = Bench()
    alice = bench.client("alice", expiry=600)
    alice.subscribe("t", qos=1)
    alice.drop()
    bench.client("bob").publish("t", b"x", qos=1, message_expiry_interval=60)
    bench.wait(25)
    alice.reconnect()
    assert alice.got() == [Got("t", b"x", qos=1, expiry=35)]


def test_an_expired_message_is_not_sent() -> None:
    # MQTT-3.3.2-5
    bench = Bench()
    alice = bench.client("alice", expiry=600)
    alice.subscribe("t", qos=1)
    alice.drop()
    bob = bench.client("bob")
    bob.publish("t", b"short", qos=1, message_expiry_interval=60)
    bob.publish("t", b"long", qos=1, message_expiry_interval=61)
    bench.wait(60)
    alice.reconnect()
    assert [got.payload for got in alice.got()] == [b"long"]
    assert bench.tables() == {"mqtt.session": 1, "mqtt.subscription": 1}


def test_a_message_that_expires_at_once_is_sent_at_once_or_never() -> None:
    bench = Bench()
    here, away = bench.client("here", expiry=60), bench.client("away", expiry=60)
    here.subscribe("t", qos=1)
    away.subscribe("t", qos=1)
    away.drop()
    bench.client("bob").publish("t", b"x", qos=1, message_expiry_interval=0)
    bench.wait(1)
    away.reconnect()
    assert here.got() == [Got("t", b"x", qos=1, expiry=0)]
    assert away.got() == []


def test_the_expiry_goes_on_while_the_broker_is_down() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=600)
    alice.subscribe("t", qos=1)
    alice.drop()
    bob = bench.client("bob")
    bob.publish("t", b"short", qos=1, message_expiry_interval=60)
    bob.publish("t", b"long", qos=1, message_expiry_interval=90)
    bench.crash(restart=False)
    bench.now += 70 * SECOND
    bench.start()
    alice.reconnect()
    assert alice.got() == [Got("t", b"long", qos=1, expiry=20)]


# Refusals


def test_a_client_that_may_not_publish_is_told_so() -> None:
    bench = Bench(rules=[Rule(user="anonymous", publish=("open/#",), subscribe=("#",))])
    alice = bench.client("alice")
    alice.subscribe("#")
    bob, old = bench.client("bob"), bench.client("old", 4)
    assert bob.publish("closed", b"", qos=1) == 0x87
    assert bob.publish("closed", b"", qos=2) == 0x87
    assert bob.publish("closed", b"") is None
    assert bob.owed == {}
    assert old.publish("closed", b"", qos=1) == 0  # MQTT-3.3.5-2 of 3.1.1: 3.1.1 can only acknowledge or close
    assert old.publish("closed", b"", qos=2) == 0
    assert alice.got() == []
    assert bob.publish("open/1", b"x", qos=1) == 0
    assert alice.got() == [Got("open/1", b"x")]
    assert bench.server.counters.refused[Refusal.DENIED] == 5


def test_after_a_refusal_the_packet_identifier_stands_for_a_new_message() -> None:
    # MQTT-4.3.3-9
    bench = Bench(rules=[Rule(user="anonymous", publish=("open",), subscribe=("#",))])
    alice = bench.client("alice")
    alice.subscribe("open", qos=2)
    bob = bench.client("bob", polite=False)
    bob.send(mqtt5.PublishPacket("closed", b"", qos=mqtt5.QoS(2), packet_id=7))
    bob.send(mqtt5.PublishPacket("open", b"x", qos=mqtt5.QoS(2), packet_id=7))
    assert alice.got() == [Got("open", b"x", qos=2)]


@pytest.mark.parametrize("topic", ["$SYS/broker/uptime", "$share/g/t", "$dead-letter/x", "$anything"])
def test_no_client_publishes_to_the_servers_own_topics(topic: str) -> None:
    # MQTT-4.7.2-1
    bench = Bench()
    alice = bench.client("alice")
    alice.subscribe(topic)
    alice.got()
    assert bench.client("bob").publish(topic, b"x", qos=1) == 0x87
    assert alice.got() == []


def test_a_wish_that_means_nothing_is_refused() -> None:
    bench = Bench()
    bob = bench.client("bob")
    assert bob.publish("t", b"", qos=1, user_properties=[("overlane-deadline", "soon")]) == 0x83
    assert bob.publish("t", b"", qos=1, user_properties=[("overlane-deadline", "60ms")]) == 0x10
    assert bob.publish("t", b"", qos=1, user_properties=[("overlane-reliability", "very")]) == 0x83
    assert bob.publish("t", b"", qos=1, user_properties=[("overlane-order", "loose")]) == 0x83


def test_other_clients_do_not_notice_a_violation() -> None:
    bench = Bench()
    alice = listener(bench)
    bob, mallory = bench.client("bob"), bench.client("mallory")
    mallory.send(b"\xff\xff\xff\xff\xff\xff")
    bob.publish("t/1", b"x")
    assert mallory.is_closed
    assert alice.got() == [Got("t/1", b"x")]


def test_what_precedes_a_violation_in_the_same_read_is_passed_on() -> None:
    bench = Bench()
    alice = listener(bench)
    mallory = bench.client("mallory")
    good = mqtt5.PublishPacket("t/1", b"x").write()
    mallory.send(good, good, good, packet(0x30, text("t/#"), properties()), good)
    assert len(alice.got()) == 3
    assert mallory.ended == 0x90


# A failing store


def test_while_the_store_fails_plain_traffic_goes_on() -> None:
    bench = Bench()
    alice = listener(bench)
    bob = bench.client("bob")
    bench.server.store_is_failing(True)
    bench.is_store_slow = True
    for qos in (0, 1, 2):
        bob.publish("t/1", b"x", qos=qos)
    assert alice.got() == [Got("t/1", b"x", qos=qos) for qos in (0, 1, 2)]
    carol = bench.client("carol")
    carol.subscribe("t/#")
    bob.publish("t/1", b"y")
    assert carol.got() == [Got("t/1", b"y")]


def test_while_the_store_fails_what_would_have_to_be_stored_is_refused() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t", qos=1)
    bob, durable = bench.client("bob"), bench.client("durable", expiry=60)
    bench.server.store_is_failing(True)
    bench.is_store_slow = True
    assert bob.publish("t", b"", qos=1) == 0x97
    assert bob.publish("t", b"", qos=2) == 0x97
    assert bob.publish("kept", b"x", qos=1, retain=True) == 0x97
    assert durable.publish("elsewhere", b"", qos=2) == 0x97
    assert durable.publish("elsewhere", b"", qos=1) == 0x10
    assert alice.subscribe("u") == [0x97]
    assert bench.client("carol", expiry=60).refusal == 0x97
    assert bench.client("dave", 4, expiry=NEVER_S).refusal == 0x88
    assert bench.uncommitted == 0
    old = bench.client("old", 4)
    assert old.publish("t", b"", qos=1) is None
    assert old.is_closed
    bench.server.store_is_failing(False)
    bench.is_store_slow = False
    assert bob.publish("t", b"x", qos=1) == 0
    assert alice.got() == [Got("t", b"x", qos=1)]
    assert bench.server.counters.refused[Refusal.STORE] == 8


def test_while_the_store_fails_a_message_of_qos_0_reaches_everybody_who_is_there() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t", qos=1)
    bench.server.store_is_failing(True)
    bench.is_store_slow = True
    bob = bench.client("bob")
    bob.publish("t", b"x")
    bob.publish("t", b"y", retain=True)
    assert alice.got() == [Got("t", b"x"), Got("t", b"y")]


def test_while_the_store_fails_a_client_with_a_will_is_let_in() -> None:
    bench = Bench()
    alice = bench.client("alice")
    alice.subscribe("w")
    bench.server.store_is_failing(True)
    bench.is_store_slow = True
    bob = bench.client("bob", will=mqtt5.Will("w", payload=b"gone"))
    assert bob.refusal == 0
    bob.reconnect()
    assert bob.refusal == 0
    assert alice.got() == [Got("w", b"gone")]


def test_while_the_store_fails_a_client_whose_session_is_stored_cannot_begin_another() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    alice.drop()
    bench.server.store_is_failing(True)
    bench.is_store_slow = True
    assert alice.reconnect(expiry=0).refusal == 0x97
    assert alice.reconnect(expiry=60, clean=True).refusal == 0x97


@pytest.mark.parametrize("version", [4, 5])
def test_while_the_store_fails_a_client_may_come_back_to_its_session_and_so_make_room(version: int) -> None:
    bench = Bench()
    alice, bob = bench.client("alice", version, expiry=60), bench.client("bob")
    alice.subscribe("t", qos=2)
    alice.drop()
    for qos in (1, 2):
        bob.publish("t", b"%d" % qos, qos=qos)
    bench.server.store_is_failing(True)
    bench.is_store_slow = True
    assert alice.reconnect().refusal == 0
    assert alice.is_resumed
    assert alice.got() == [Got("t", b"1", qos=1), Got("t", b"2", qos=2)]
    bench.server.store_is_failing(False)
    bench.is_store_slow = False
    bench.settle()
    assert "mqtt.queue@2" not in bench.tables()


def test_while_the_store_is_full_whatever_makes_room_is_accepted() -> None:
    bench = Bench()
    bob, alice = bench.client("bob"), bench.client("alice", expiry=60)
    alice.subscribe("t", qos=1)
    alice.drop()
    bob.publish("t", b"x", qos=1)
    bob.publish("kept", b"x", qos=1, retain=True)
    before = bench.tables()
    bench.server.store_is_failing(True, can_erase=True)
    assert bob.publish("kept", b"y", qos=1, retain=True) == 0x97
    assert bob.publish("kept", b"", qos=1, retain=True) == 0x10
    assert alice.reconnect(expiry=60, clean=True).refusal == 0x97
    assert alice.reconnect(expiry=0, clean=True).refusal == 0
    assert not alice.is_resumed
    assert {table for table in before if table not in bench.tables()} == {
        "mqtt.message@2",
        "mqtt.queue@2",
        "mqtt.retained",
        "mqtt.session",
        "mqtt.subscription",
    }
