"""What subscribers get: the window of QoS 1 and 2, resends, queues and their limits, and dead letters."""

from typing import Any

import mqtt5
import pytest
from clients import NEVER_S, Bench, Client, Got

from overlane.mqtt.connection import Connection
from overlane.pubsub.access import Rule
from overlane.pubsub.counters import Drop
from overlane.pubsub.delivery.window import TAGS

VERSIONS = pytest.mark.parametrize("version", [4, 5])


def silent(bench: Bench, version: int = 5, topic: str = "t", qos: int = 2, **wishes: Any) -> Client:
    """A subscriber that acknowledges nothing by itself."""
    client = bench.client("alice", version, expiry=NEVER_S, polite=False, **wishes)
    client.subscribe(topic, qos=qos)
    client.saw()
    return client


def sent(client: Client) -> list[tuple[int | None, bytes, bool]]:
    """The messages it got: packet identifier, payload and duplicate flag."""
    return [(one.packet_id, one.payload, one.duplicate) for one in client.saw(mqtt5.PublishPacket)]


# Quality


@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_a_message_comes_with_the_lesser_of_both_qualities(published: int, wanted: int) -> None:
    # MQTT-3.8.4-8 (5), MQTT-3.8.4-6 (3.1.1)
    bench = Bench()
    alice = bench.client("alice")
    assert alice.subscribe("t", qos=wanted) == [wanted]
    bench.client("bob").publish("t", b"x", qos=published)
    assert alice.got() == [Got("t", b"x", qos=min(published, wanted))]


def test_packet_identifiers_are_never_0_and_never_in_use() -> None:
    # MQTT-2.2.1-4
    bench = Bench(in_flight=3)
    alice = silent(bench, qos=1)
    bob = bench.client("bob")
    used: set[int] = set()
    for _ in range(100):
        bob.publish("t", b"", qos=1)
        for packet_id, _, _ in sent(alice):
            assert packet_id not in used | {0, None}
            assert packet_id is not None
            used.add(packet_id)
        if len(used) == 3:
            alice.ack(mqtt5.PubAckPacket, used.pop())


def test_packet_identifiers_go_round() -> None:
    """Twice, from a little before the last identifier to a little behind it."""
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t", qos=1)
    bob = bench.client("bob")
    window = bench.server.state.sessions["alice"].window
    payloads = [b"%d" % number for number in range(2_000)]
    used: list[int | None] = []
    for number, payload in enumerate(payloads):
        if number in (0, 1_000):
            window._next_sequence += TAGS - 500
        bob.publish("t", payload, qos=1)
        used += [packet_id for packet_id, _, _ in sent(alice)]
        bob.packets.clear()
        alice.packets.clear()
    assert [got.payload for got in alice.got()] == payloads
    assert set(used) >= {1, 2, TAGS - 1, TAGS}


def test_an_identifier_still_in_use_when_its_turn_comes_again_is_waited_for() -> None:
    bench = Bench()
    alice = silent(bench, qos=1)
    window = bench.server.state.sessions["alice"].window
    bob = bench.client("bob")
    bob.publish("t", b"first", qos=1)
    window._next_sequence += 65_534
    bob.publish("t", b"same identifier", qos=1)
    assert sent(alice) == [(2, b"first", False)]
    alice.ack(mqtt5.PubAckPacket, 2)
    assert sent(alice) == [(2, b"same identifier", False)]


# Acknowledgements and resends


@VERSIONS
def test_what_was_not_acknowledged_is_sent_again_to_who_comes_back(version: int) -> None:
    # MQTT-4.4.0-1, MQTT-3.3.1-1
    bench = Bench()
    alice = silent(bench, version, qos=1)
    bob = bench.client("bob")
    for number in range(4):
        bob.publish("t", b"%d" % number, qos=1)
    assert sent(alice) == [(2, b"0", False), (3, b"1", False), (4, b"2", False), (5, b"3", False)]
    alice.ack(mqtt5.PubAckPacket, 3)
    alice.drop()
    bob.publish("t", b"4", qos=1)
    alice.reconnect()
    assert alice.is_resumed
    assert sent(alice) == [(2, b"0", True), (4, b"2", True), (5, b"3", True), (6, b"4", False)]


def test_nothing_is_sent_again_while_the_connection_lasts() -> None:
    # MQTT-4.4.0-1
    bench = Bench()
    alice = silent(bench, qos=1)
    bench.client("bob").publish("t", b"x", qos=1)
    sent(alice)
    bench.wait(1_000)
    assert sent(alice) == []


def test_a_qos_2_message_that_the_client_has_is_only_released_again() -> None:
    # MQTT-4.3.3-4, MQTT-4.3.3-5, MQTT-4.3.3-6
    bench = Bench()
    alice = silent(bench)
    bench.client("bob").publish("t", b"x", qos=2)
    alice.ack(mqtt5.PubRecPacket, 2)
    assert alice.saw()[-1] == mqtt5.PubRelPacket(2)
    alice.drop()
    alice.reconnect()
    assert alice.saw()[1:] == [mqtt5.PubRelPacket(2)]
    alice.ack(mqtt5.PubCompPacket, 2)
    assert bench.tables() == {"mqtt.session": 1, "mqtt.subscription": 1}
    alice.drop()
    alice.reconnect()
    assert alice.saw()[1:] == []


def test_a_second_pubrec_is_answered_like_the_first() -> None:
    bench = Bench()
    alice = silent(bench)
    bench.client("bob").publish("t", b"x", qos=2)
    alice.saw()
    alice.ack(mqtt5.PubRecPacket, 2)
    alice.ack(mqtt5.PubRecPacket, 2)
    assert alice.saw() == [mqtt5.PubRelPacket(2)] * 2


def test_releases_are_repeated_in_the_order_of_the_pubrecs() -> None:
    # MQTT-4.6.0-4
    bench = Bench()
    alice = silent(bench)
    bob = bench.client("bob")
    for _ in range(3):
        bob.publish("t", b"x", qos=2)
    for packet_id in (3, 2):
        alice.ack(mqtt5.PubRecPacket, packet_id)
    alice.drop()
    alice.reconnect()
    assert [one.packet_id for one in alice.saw(mqtt5.PubRelPacket)] == [3, 2]


def test_a_qos_2_message_that_the_client_refuses_is_done_with() -> None:
    # MQTT-4.3.3-4
    bench = Bench()
    alice = silent(bench)
    bob = bench.client("bob")
    bob.publish("t", b"x", qos=2)
    alice.saw()
    alice.ack(mqtt5.PubRecPacket, 2, 0x97)
    assert alice.saw() == []
    assert "mqtt.queue@2" not in bench.tables()


def test_an_acknowledgement_of_the_wrong_kind_settles_nothing() -> None:
    bench = Bench()
    alice = silent(bench)
    bob = bench.client("bob")
    bob.publish("t", b"one", qos=1)
    bob.publish("t", b"two", qos=2)
    alice.ack(mqtt5.PubCompPacket, 2)
    alice.ack(mqtt5.PubCompPacket, 3)
    assert alice.is_open
    alice.ack(mqtt5.PubAckPacket, 3)
    assert alice.ended == 0x82
    alice.drop()
    alice.reconnect()
    assert sent(alice) == [(2, b"one", True), (3, b"two", True)]


# The receive maximum


@VERSIONS
def test_no_more_is_under_way_than_the_client_takes(version: int) -> None:
    # MQTT-3.3.4-7, MQTT-4.9.0-2
    bench = Bench(in_flight=5)
    wishes: dict[str, Any] = {"receive_max": 2} if version == 5 else {}
    alice = silent(bench, version, **wishes)
    bob = bench.client("bob")
    for number in range(10):
        bob.publish("t", b"%d" % number, qos=1 + number % 2)
    at_most = 2 if version == 5 else 5
    assert len(sent(alice)) == at_most
    alice.ack(mqtt5.PubAckPacket, 2)
    assert len(sent(alice)) == 1
    alice.ack(mqtt5.PubRecPacket, 3)
    assert sent(alice) == []
    alice.ack(mqtt5.PubCompPacket, 3)
    assert len(sent(alice)) == 1


def test_qos_0_is_not_held_up_by_the_receive_maximum() -> None:
    # MQTT-4.9.0-3
    bench = Bench()
    alice = silent(bench, receive_max=1)
    bob = bench.client("bob")
    for qos in (1, 1, 0):
        bob.publish("t", b"%d" % qos, qos=qos)
    assert sent(alice) == [(2, b"1", False), (None, b"0", False)]


def test_the_receive_maximum_holds_for_what_is_sent_again() -> None:
    bench = Bench()
    alice = silent(bench, receive_max=10)
    bob = bench.client("bob")
    for number in range(10):
        bob.publish("t", b"%d" % number, qos=2)
    for packet_id in (2, 3):
        alice.ack(mqtt5.PubRecPacket, packet_id)
    alice.drop()
    alice.reconnect(receive_max=4)
    assert sent(alice) == [(4, b"2", True), (5, b"3", True)]
    alice.ack(mqtt5.PubCompPacket, 2)
    assert sent(alice) == [(6, b"4", True)]


# The maximum packet size


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_too_large_for_the_client_is_left_out(qos: int) -> None:
    # MQTT-3.1.2-24, MQTT-3.1.2-25
    bench = Bench()
    alice = bench.client("alice", max_packet_size=100, expiry=60)
    alice.subscribe("t", qos=2)
    bob = bench.client("bob")
    for payload in (b"x", b"y" * 100, b"z"):
        bob.publish("t", payload, qos=qos)
    assert [got.payload for got in alice.got()] == [b"x", b"z"]
    assert bench.server.counters.dropped[Drop.TOO_LARGE] == 1
    assert "mqtt.queue@2" not in bench.tables()


def test_the_size_that_counts_is_that_of_the_packet_sent() -> None:
    bench = Bench()
    alice = bench.client("alice", max_packet_size=50)
    alice.subscribe("t", identifier=7)
    bob = bench.client("bob")
    for size in range(30, 60):
        bob.publish("t", bytes(size))
    # header 2, topic 3, properties 1 + 2
    assert [len(got.payload) for got in alice.got()] == list(range(30, 50 - 8 + 1))


# Topic aliases


def test_topics_are_sent_by_alias_to_a_client_that_takes_them() -> None:
    # MQTT-3.1.2-26, MQTT-3.1.2-27
    bench = Bench()
    alice = bench.client("alice", topic_alias_max=2)
    alice.subscribe("t/#", qos=1)
    bob = bench.client("bob")
    for topic in ("t/1", "t/1", "t/2", "t/3", "t/2", "t/3"):
        bob.publish(topic, b"", qos=1)
    packets = alice.saw(mqtt5.PublishPacket)
    assert [(one.topic, one.topic_alias) for one in packets] == [
        ("t/1", 1),
        ("", 1),
        ("t/2", 2),
        ("t/3", None),
        ("", 2),
        ("t/3", None),
    ]
    assert [got.topic for got in alice.got()] == ["t/1", "t/1", "t/2", "t/3", "t/2", "t/3"]


def test_no_alias_is_sent_to_a_client_that_takes_none() -> None:
    # MQTT-3.1.2-27
    bench = Bench()
    alice = bench.client("alice")
    alice.subscribe("t", qos=1)
    bench.client("bob").publish("t", b"", qos=1)
    assert alice.saw(mqtt5.PublishPacket)[0].topic_alias is None


def test_an_alias_of_a_message_that_was_not_sent_is_not_used() -> None:
    bench = Bench()
    alice = bench.client("alice", topic_alias_max=2, max_packet_size=100)
    alice.subscribe("t/#", qos=1)
    bob = bench.client("bob")
    bob.publish("t/1", bytes(200), qos=1)
    bob.publish("t/1", b"x", qos=1)
    bob.publish("t/1", b"y", qos=1)
    assert [(one.topic, one.topic_alias) for one in alice.saw(mqtt5.PublishPacket)] == [("t/1", 1), ("", 1)]


def test_aliases_start_anew_with_each_connection() -> None:
    bench = Bench()
    alice = silent(bench, qos=1, topic_alias_max=2)
    bench.client("bob").publish("t", b"", qos=1)
    alice.drop()
    alice.reconnect()
    assert [(one.topic, one.topic_alias) for one in alice.saw(mqtt5.PublishPacket)] == [("t", 1)]


# While the client is away


@VERSIONS
def test_a_kept_session_gets_what_it_missed_in_order(version: int) -> None:
    # MQTT-4.5.0-1, MQTT-3.1.2-5 of 3.1.1
    bench = Bench()
    alice = bench.client("alice", version, expiry=NEVER_S)
    alice.subscribe("t", qos=2)
    alice.drop()
    bob = bench.client("bob")
    for number in range(300):
        bob.publish("t", b"%d" % number, qos=number % 3)
    alice.reconnect()
    assert [int(got.payload) for got in alice.got()] == [number for number in range(300) if number % 3]


def test_what_waits_survives_a_crash_and_comes_once() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t", qos=2)
    alice.drop()
    bob = bench.client("bob", expiry=60)
    for number in range(10):
        bob.publish("t", b"%d" % number, qos=2)
    bench.crash()
    bob.reconnect()
    for number in range(10, 20):
        bob.publish("t", b"%d" % number, qos=2)
    alice.reconnect()
    assert [int(got.payload) for got in alice.got()] == list(range(20))
    assert bench.tables() == {"mqtt.session": 2, "mqtt.subscription": 1}


def test_a_message_for_many_is_stored_once_and_as_long_as_somebody_needs_it() -> None:
    bench = Bench()
    crowd = [bench.client(f"c{number}", expiry=60) for number in range(5)]
    for one in crowd:
        one.subscribe("t", qos=1)
        one.drop()
    bench.client("bob").publish("t", b"x" * 1_000, qos=1)
    assert bench.tables()["mqtt.message@2"] == 1
    for one in crowd[:4]:
        one.reconnect()
    assert bench.tables()["mqtt.message@2"] == 1
    crowd[4].reconnect()
    assert "mqtt.message@2" not in bench.tables()


def test_messages_numbered_after_a_crash_do_not_overwrite_those_before() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t", qos=1)
    alice.drop()
    for round_number in range(5):
        bob = bench.client("bob")
        bob.publish("t", b"%d" % (2 * round_number), qos=1)
        bob.publish("t", b"%d" % (2 * round_number + 1), qos=1)
        bench.crash()
    alice.reconnect()
    assert [int(got.payload) for got in alice.got()] == list(range(10))


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_sent_before_a_crash_comes_again_under_the_same_identifier_marked_as_duplicate(qos: int) -> None:
    # MQTT-3.3.1-1, MQTT-4.3.3-10
    bench = Bench()
    alice = silent(bench)
    bob = bench.client("bob")
    for number in range(3):
        bob.publish("t", b"%d" % number, qos=qos)
    before = sent(alice)
    bench.crash()
    alice.reconnect()
    assert sent(alice) == [(packet_id, payload, True) for packet_id, payload, _ in before]


def test_what_was_never_sent_before_a_crash_is_not_marked_as_duplicate() -> None:
    bench = Bench(in_flight=2)
    alice = silent(bench)
    bob = bench.client("bob")
    for number in range(4):
        bob.publish("t", b"%d" % number, qos=1)
    alice.drop()
    bob.publish("t", b"4", qos=1)
    bench.crash()
    alice.reconnect(receive_max=100)
    for packet_id in (2, 3, 4, 5):
        alice.ack(mqtt5.PubAckPacket, packet_id)
    assert [(payload, is_again) for _, payload, is_again in sent(alice)] == [
        (b"0", True),
        (b"1", True),
        (b"2", False),
        (b"3", False),
        (b"4", False),
    ]


@VERSIONS
def test_all_that_was_sent_is_marked_after_a_crash_although_the_store_knows_of_no_answer(version: int) -> None:
    """MQTT-3.3.1-1. A slow store lets many be sent and acknowledged that are not forgotten yet."""
    bench = Bench(in_flight=2)
    alice = silent(bench, version, qos=1)
    bob = bench.client("bob")
    for number in range(50):
        bob.publish("t", b"%d" % number, qos=1)
    bench.is_store_slow = True
    got: list[bytes] = []
    while news := sent(alice):
        for packet_id, payload, _ in news:
            assert packet_id is not None
            got.append(payload)
            alice.ack(mqtt5.PubAckPacket, packet_id)
    assert 2 * bench.settings.limits.in_flight < len(got) < 40, "it goes ahead of the store, but not for ever"
    bench.crash()
    bench.is_store_slow = False
    alice.polite = True
    alice.inbox.clear()
    alice.reconnect()
    again = {one.payload: one.dup for one in alice.inbox}
    assert len(again) == 50
    assert all(again[payload] for payload in got)
    assert not again[b"49"]


def test_a_released_message_is_only_released_again_after_a_crash() -> None:
    bench = Bench()
    alice = silent(bench)
    bob = bench.client("bob")
    bob.publish("t", b"x", qos=2)
    alice.ack(mqtt5.PubRecPacket, 2)
    bench.crash()
    alice.reconnect()
    assert alice.saw()[1:] == [mqtt5.PubRelPacket(2)]


def test_a_message_is_not_released_before_the_store_knows() -> None:
    bench = Bench()
    alice = silent(bench)
    bench.client("bob").publish("t", b"x", qos=2)
    alice.saw()
    bench.is_store_slow = True
    alice.ack(mqtt5.PubRecPacket, 2)
    assert alice.saw() == []
    bench.is_store_slow = False
    bench.crash()
    alice.reconnect()
    assert sent(alice) == [(2, b"x", True)]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_is_not_sent_to_a_kept_session_before_it_is_on_disk(qos: int) -> None:
    bench = Bench()
    alice = silent(bench)
    bob = bench.client("bob")
    bench.is_store_slow = True
    bob.publish("t", b"x", qos=qos)
    assert sent(alice) == []
    bench.commit()
    bench.settle()
    assert sent(alice) == [(2, b"x", False)]


def test_a_message_that_waited_for_room_is_not_sent_before_it_is_on_disk_either() -> None:
    bench = Bench()
    alice = silent(bench, receive_max=1)
    bob = bench.client("bob")
    bob.publish("t", b"one", qos=1)
    sent(alice)
    bench.is_store_slow = True
    bob.publish("t", b"two", qos=1)
    alice.ack(mqtt5.PubAckPacket, 2)
    assert sent(alice) == []
    bench.commit()
    bench.settle()
    assert sent(alice) == [(3, b"two", False)]


def test_the_identifiers_a_client_holds_are_not_given_to_other_messages_after_a_crash() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t", qos=2)
    bob = bench.client("bob")
    for number in range(5):
        bob.publish("t", b"%d" % number, qos=2)
    alice.polite = False
    bob.publish("t", b"5", qos=2)
    bench.crash()
    alice.polite = True
    bob.reconnect()
    bob.publish("t", b"6", qos=2)
    alice.reconnect()
    assert [int(got.payload) for got in alice.got()] == list(range(7))


# Expiry of what was sent


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_sent_once_does_not_expire_any_more(qos: int) -> None:
    # MQTT-4.3.3-7
    bench = Bench()
    alice = silent(bench)
    bench.client("bob").publish("t", b"x", qos=qos, message_expiry_interval=60)
    alice.drop()
    bench.wait(100)
    alice.reconnect()
    assert alice.got() == [Got("t", b"x", qos=qos, expiry=60), Got("t", b"x", qos=qos, expiry=0, dup=True)][: 3 - qos]
    assert sent(alice) == [(2, b"x", True)]


def test_what_was_sent_once_does_not_expire_after_a_crash_either() -> None:
    bench = Bench()
    alice = silent(bench)
    bob = bench.client("bob")
    bob.publish("t", b"x", qos=2, message_expiry_interval=60)
    alice.drop()
    bob.publish("t", b"never sent", qos=2, message_expiry_interval=60)
    bench.crash()
    bench.wait(100)
    alice.reconnect()
    assert sent(alice) == [(2, b"x", True)]


# Giving up


def test_a_message_that_was_sent_too_often_goes_to_the_dead_letters() -> None:
    bench = Bench(tries=3)
    watcher = bench.client("watcher")
    watcher.subscribe("$dead-letter/#", qos=1)
    alice = silent(bench, topic="t/#", qos=1)
    bob = bench.client("bob")
    bob.publish("t/1", b"poison", qos=1, content_type="text/plain", user_properties=[("a", "b")])
    for _ in range(2):
        alice.drop()
        alice.reconnect()
    assert watcher.got() == []
    alice.drop()
    alice.reconnect()
    letter = watcher.saw(mqtt5.PublishPacket)[-1]
    assert (letter.topic, letter.payload, int(letter.qos)) == ("$dead-letter/t/1", b"poison", 1)
    assert letter.content_type == "text/plain"
    assert letter.user_properties == [
        ("a", "b"),
        ("overlane-client", "alice"),
        ("overlane-reason", "too many tries"),
    ]
    assert bench.server.counters.dropped[Drop.TRIES] == 1
    assert bench.server.counters.dead_letters == 1
    assert "mqtt.queue@2" not in bench.tables()


def test_tries_are_counted_over_a_crash() -> None:
    bench = Bench(tries=3)
    alice = silent(bench, qos=1)
    bench.client("bob").publish("t", b"x", qos=1)
    for _ in range(2):
        alice.drop()
        bench.crash()
        alice.reconnect()
        assert sent(alice) == [(2, b"x", True)]
    alice.drop()
    alice.reconnect()
    assert sent(alice) == []


def test_a_qos_2_message_that_is_given_up_is_released_so_that_its_identifier_is_free_again() -> None:
    bench = Bench(tries=2)
    alice = silent(bench)
    bob = bench.client("bob")
    bob.publish("t", b"given up", qos=2)
    alice.drop()
    alice.reconnect()
    alice.drop()
    alice.saw()
    alice.reconnect()
    assert alice.saw()[1:] == [mqtt5.PubRelPacket(2)]
    bench.crash()
    alice.reconnect()
    assert alice.saw()[1:] == [mqtt5.PubRelPacket(2)]
    alice.ack(mqtt5.PubCompPacket, 2, 0x92)
    assert bench.tables() == {"mqtt.session": 1, "mqtt.subscription": 1}


def test_there_are_no_dead_letters_of_dead_letters() -> None:
    bench = Bench(tries=1, queue_messages=3)
    watcher = bench.client("watcher", expiry=60)
    watcher.subscribe("$dead-letter/#", qos=1)
    watcher.drop()
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t", qos=1)
    alice.drop()
    bob = bench.client("bob")
    for _ in range(20):
        bob.publish("t", b"x", qos=1)
    assert bench.server.counters.dead_letters == 17
    watcher.reconnect()
    assert len(watcher.got()) == 3


# Queues


def test_a_full_queue_takes_no_more_messages_and_they_go_to_the_dead_letters() -> None:
    bench = Bench(queue_messages=3)
    watcher = bench.client("watcher")
    watcher.subscribe("$dead-letter/#", qos=1)
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t", qos=1)
    alice.drop()
    bob = bench.client("bob")
    for number in range(5):
        assert bob.publish("t", b"%d" % number, qos=1) == 0
    alice.reconnect()
    assert [got.payload for got in alice.got()] == [b"0", b"1", b"2"]
    assert [(got.topic, got.payload) for got in watcher.got()] == [("$dead-letter/t", b"3"), ("$dead-letter/t", b"4")]
    assert bench.server.counters.dropped[Drop.QUEUE_FULL] == 2


def test_a_queue_is_bounded_in_bytes_too() -> None:
    bench = Bench(queue_bytes=1_000)
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t", qos=1)
    alice.drop()
    bob = bench.client("bob")
    for _ in range(5):
        bob.publish("t", bytes(300), qos=1)
    alice.reconnect()
    assert len(alice.got()) == 3
    assert bench.server.state.sessions["alice"].window.bytes == 0


def test_what_has_expired_in_a_full_queue_makes_room() -> None:
    bench = Bench(queue_messages=3)
    alice = bench.client("alice", expiry=600)
    alice.subscribe("t", qos=1)
    alice.drop()
    bob = bench.client("bob")
    for number in range(3):
        bob.publish("t", b"%d" % number, qos=1, message_expiry_interval=10 if number != 1 else None)
    bench.wait(20)
    for number in range(3, 6):
        bob.publish("t", b"%d" % number, qos=1)
    assert bench.tables()["mqtt.queue@2"] == 3
    bench.crash()
    alice.reconnect()
    assert [got.payload for got in alice.got()] == [b"1", b"3", b"4"]
    assert bench.store.keys() == {("mqtt.session", b"alice"), ("mqtt.subscription", b"alice\0t")}


def test_a_client_that_does_not_read_costs_no_more_than_its_queue() -> None:
    bench = Bench(queue_bytes=10_000)
    slow = bench.client("slow")
    slow.subscribe("t")
    fast = bench.client("fast")
    fast.subscribe("t")
    bob = bench.client("bob")
    slow.connection.unsent_bytes = 10_001
    held = slow.connection
    bob.publish("t", b"x")
    held.unsent_bytes = 10_001
    bob.publish("t", b"y")
    assert [got.payload for got in fast.got()] == [b"x", b"y"]
    assert slow.got() == []
    assert bench.server.counters.dropped[Drop.SLOW_CLIENT] >= 1


def test_assured_messages_wait_in_the_window_while_a_client_does_not_read() -> None:
    bench = Bench()
    alice = silent(bench, qos=1)
    bob = bench.client("bob")
    connection = alice.connection
    connection.unsent_bytes = 1_000_000
    bob.send(*(mqtt5.PublishPacket("t", b"x", qos=mqtt5.QoS(1), packet_id=n) for n in range(1, 4)), settle=False)
    assert connection.out == []
    connection.unsent_bytes = 0
    bench.server.writable(connection, bench.now)
    bench.settle()
    assert len(sent(alice)) == 3


def test_a_client_that_is_gone_can_become_writable_without_harm() -> None:
    bench = Bench()
    alice = bench.client("alice")
    connection: Connection = alice.connection
    alice.drop()
    bench.server.writable(connection, bench.now)


# Rights


def test_what_waited_is_not_sent_to_a_client_whose_right_was_revoked() -> None:
    everything = Rule(user="anonymous", publish=("#",), subscribe=("#",))
    bench = Bench(rules=[everything])
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t/#", qos=1)
    alice.drop()
    bob = bench.client("bob")
    bob.publish("t/open", b"1", qos=1)
    bob.publish("t/secret", b"2", qos=1)
    bench.reconfigure([Rule(user="anonymous", publish=("#",), subscribe=("t/open",))])
    alice.reconnect()
    assert [got.topic for got in alice.got()] == ["t/open"]
    assert bench.server.counters.dropped[Drop.DENIED] == 1
    assert bench.tables() == {"mqtt.session": 1, "mqtt.subscription": 1}


def test_a_qos_2_message_under_way_when_the_right_was_revoked_is_released() -> None:
    bench = Bench(rules=[Rule(user="anonymous", publish=("#",), subscribe=("#",))])
    alice = silent(bench)
    bench.client("bob").publish("t", b"x", qos=2)
    alice.drop()
    bench.reconfigure([Rule(user="anonymous", publish=("#",))])
    alice.saw()
    alice.reconnect()
    assert alice.saw()[1:] == [mqtt5.PubRelPacket(2)]
