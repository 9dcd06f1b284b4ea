"""While the disk fails, exchanges of QoS 2 stand still, and nothing else of their clients does.

What was said just before it failed is not on disk either: who comes back and says it again is not answered earlier.
"""

import mqtt5
import pytest
from clients import Bench, Client, Got


def breaks(bench: Bench) -> None:
    bench.server.store_is_failing(True)
    bench.is_store_slow = True


def works_again(bench: Bench) -> None:
    bench.server.store_is_failing(False)
    bench.is_store_slow = False
    bench.commit()
    bench.settle()


def is_answered(client: Client) -> bool:
    client.saw(mqtt5.PingRespPacket)
    client.send(mqtt5.PingReqPacket())
    return len(client.saw(mqtt5.PingRespPacket)) == 1


@pytest.mark.parametrize("version", [4, 5])
def test_a_subscriber_in_the_middle_of_a_qos_2_exchange_hears_all_else(version: int) -> None:
    bench = Bench()
    alice = bench.client("alice", version, expiry=60)
    alice.subscribe("t/#", qos=2)
    alice.polite = False
    bob = bench.client("bob")
    bob.publish("t/1", b"x", qos=2)
    (sent,) = alice.saw(mqtt5.PublishPacket)
    breaks(bench)
    for _ in range(3):
        alice.send(mqtt5.PubRecPacket(sent.packet_id))
    assert not alice.saw(mqtt5.PubRelPacket)
    assert is_answered(alice)
    bob.publish("t/2", b"y")
    assert [one.payload for one in alice.saw(mqtt5.PublishPacket)] == [b"y"]
    works_again(bench)
    assert len(alice.saw(mqtt5.PubRelPacket)) == 1
    alice.send(mqtt5.PubCompPacket(sent.packet_id))
    assert "mqtt.queue@2" not in bench.tables()


def test_a_subscriber_that_has_reconnected_meanwhile_gets_its_message_once() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t", qos=2)
    alice.polite = False
    bench.client("bob").publish("t", b"x", qos=2)
    (sent,) = alice.saw(mqtt5.PublishPacket)
    breaks(bench)
    alice.send(mqtt5.PubRecPacket(sent.packet_id))
    alice.reconnect()
    assert is_answered(alice)
    works_again(bench)
    assert not alice.saw(mqtt5.PubRelPacket)
    alice.send(mqtt5.PubRecPacket(sent.packet_id))
    assert len(alice.saw(mqtt5.PubRelPacket)) == 1
    alice.send(mqtt5.PubCompPacket(sent.packet_id))
    assert alice.got() == [Got("t", b"x", qos=2)]
    assert "mqtt.queue@2" not in bench.tables()


@pytest.mark.parametrize("version", [4, 5])
def test_a_publisher_in_the_middle_of_a_qos_2_exchange_hears_all_else(version: int) -> None:
    bench = Bench()
    bob = bench.client("bob", version, expiry=60)
    bob.polite = False
    bob.publish("t", b"x", qos=2)
    (received,) = bob.saw(mqtt5.PubRecPacket)
    breaks(bench)
    for _ in range(3):
        bob.send(mqtt5.PubRelPacket(received.packet_id))
    assert not bob.saw(mqtt5.PubCompPacket)
    assert is_answered(bob)
    works_again(bench)
    assert [one.packet_id for one in bob.saw(mqtt5.PubCompPacket)] == [received.packet_id]
    assert "mqtt.received" not in bench.tables()


def test_to_unsubscribe_is_refused_where_it_could_not_be_kept() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t", qos=1)
    breaks(bench)
    assert alice.unsubscribe("t") == [0x83]
    assert alice.unsubscribe("u") == [0x11]
    assert is_answered(alice)
    works_again(bench)
    assert alice.unsubscribe("t") == [0]


def test_who_reads_a_long_queue_while_the_disk_is_full_reads_all_of_it() -> None:
    """How far it has come has to be written, or after a crash nobody would know what was sent."""
    bench = Bench(in_flight=2)
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t", qos=1)
    alice.drop()
    bob = bench.client("bob")
    for number in range(50):
        bob.publish("t", b"%d" % number, qos=1)
    bench.server.store_is_failing(True, can_erase=True)
    alice.reconnect()
    assert [one.payload for one in alice.got()] == [b"%d" % number for number in range(50)]
    assert "mqtt.queue@2" not in bench.tables()


# What was said just before


def falls_behind(bench: Bench) -> None:
    bench.is_store_slow = True


def came_back(version: int) -> tuple[Bench, Client, int]:
    """A subscriber that has said it has a message of QoS 2, which was not written; and the message's identifier."""
    bench = Bench()
    alice = bench.client("alice", version, expiry=60)
    alice.subscribe("t", qos=2)
    alice.polite = False
    bench.client("bob").publish("t", b"x", qos=2)
    (sent,) = alice.saw(mqtt5.PublishPacket)
    falls_behind(bench)
    alice.send(mqtt5.PubRecPacket(sent.packet_id))
    breaks(bench)
    alice.reconnect()
    return bench, alice, sent.packet_id


@pytest.mark.parametrize("version", [4, 5])
def test_a_subscriber_that_comes_back_is_not_released_before_that_is_on_disk(version: int) -> None:
    """After a crash the message would come again, and be taken for a new one."""
    bench, alice, packet_id = came_back(version)
    alice.send(mqtt5.PubRecPacket(packet_id))
    assert not alice.saw(mqtt5.PubRelPacket)
    assert is_answered(alice)
    bench.crash()
    bench.is_store_slow = False
    alice.polite = True
    alice.reconnect()
    assert alice.got() == [Got("t", b"x", qos=2)]
    assert "mqtt.queue@2" not in bench.tables()


@pytest.mark.parametrize("version", [4, 5])
def test_a_subscriber_that_comes_back_is_released_as_soon_as_that_is_on_disk(version: int) -> None:
    bench, alice, packet_id = came_back(version)
    works_again(bench)
    assert [one.packet_id for one in alice.saw(mqtt5.PubRelPacket)] == [packet_id]
    alice.send(mqtt5.PubCompPacket(packet_id))
    assert "mqtt.queue@2" not in bench.tables()


@pytest.mark.parametrize("version", [4, 5])
def test_a_message_that_is_published_again_is_not_acknowledged_before_it_is_on_disk(version: int) -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t", qos=2)
    bob = bench.client("bob", version, expiry=60)
    falls_behind(bench)
    bob.publish("t", b"x", qos=2)
    breaks(bench)
    bob.reconnect()
    assert bob.owed
    assert not bob.saw(mqtt5.PubRecPacket)
    assert is_answered(bob)
    bench.crash()
    bench.is_store_slow = False
    alice.reconnect()
    bob.reconnect()
    assert not bob.owed
    assert alice.got() == [Got("t", b"x", qos=2)]


@pytest.mark.parametrize("version", [4, 5])
def test_an_identifier_is_not_free_before_it_is_forgotten_on_disk(version: int) -> None:
    """After a crash the next message under it would be taken for the one before."""
    bench = Bench()
    bob = bench.client("bob", version, expiry=60)
    bob.polite = False
    bob.publish("t", b"x", qos=2)
    (received,) = bob.saw(mqtt5.PubRecPacket)
    falls_behind(bench)
    bob.send(mqtt5.PubRelPacket(received.packet_id))
    breaks(bench)
    bob.reconnect()
    bob.send(mqtt5.PubRelPacket(received.packet_id))
    assert not bob.saw(mqtt5.PubCompPacket)
    assert is_answered(bob)
    works_again(bench)
    assert [one.packet_id for one in bob.saw(mqtt5.PubCompPacket)] == [received.packet_id]
    assert "mqtt.received" not in bench.tables()


def test_a_session_that_is_not_on_disk_yet_is_not_promised_to_one_that_comes_back() -> None:
    bench = Bench()
    falls_behind(bench)
    alice = bench.client("alice", expiry=60)
    assert alice.connack is None
    breaks(bench)
    alice.reconnect()
    assert alice.refusal == 0x97
    works_again(bench)
    alice.reconnect()
    assert alice.is_resumed


def test_answers_are_not_handed_over_without_the_records_that_they_wait_for() -> None:
    """A driver that tells of the disk in the middle of the end of a turn would send them too early."""
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t", qos=2)
    alice.polite = False
    bench.client("bob").publish("t", b"x", qos=2)
    (sent,) = alice.saw(mqtt5.PublishPacket)
    breaks(bench)
    alice.send(mqtt5.PubRecPacket(sent.packet_id))
    server = bench.server
    server.store_is_failing(False)
    server.take_records()
    assert server.durable(server.last_turn, bench.now)
    with pytest.raises(RuntimeError, match="records were made"):
        server.take_touched()
    assert server.take_records()
    assert server.take_touched() == [alice.connection]
