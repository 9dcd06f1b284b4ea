"""While the disk fails, exchanges of QoS 2 stand still, and nothing else of their clients does."""

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
    assert "mqtt.queue" not in bench.tables()


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
    assert "mqtt.queue" not in bench.tables()


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
