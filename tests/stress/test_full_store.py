"""A store that may grow no more: what would have to be kept is refused and says why, all else goes on, and when room is
made it is as before."""

from collections.abc import Iterator
from pathlib import Path

import mqtt5
import pytest
from stage import StrainedBroker, strained

from waiting import eventually
from watched import Caller, let_in

pytestmark = pytest.mark.slow

KIB = 1 << 10
Code = mqtt5.PubAckReasonCode
Full = Code.QUOTA_EXCEEDED
LIMITS = 'store = "1MiB"\n'
MESSAGES_MAX = 300
"""More than fit into the store."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[StrainedBroker]:
    with strained(StrainedBroker(tmp_path, LIMITS)) as broker:
        yield broker


def is_full(broker: StrainedBroker) -> bool:
    ready = broker.request("/ready")
    if ready.status == 200:
        return False
    assert ready.json == {"ready": False, "reasons": ["the store cannot write: full"]}
    return True


def fill(broker: StrainedBroker, caller: Caller, topic: str, size: int = 8 * KIB, retain: bool = False) -> int:
    """Publish until it is refused; how many were accepted."""
    for number in range(MESSAGES_MAX):
        name = f"{topic}/{number}" if retain else topic
        code = caller.publish(name, number.to_bytes(2) + bytes(size), retain=retain)
        if code == Full:
            assert is_full(broker)
            return number
    raise AssertionError("the store takes everything")


def away(broker: StrainedBroker, client: str, topic: str, qos: int) -> None:
    """A client that has subscribed and gone, and whose session is kept."""
    with let_in(broker.port, client, expiry_s=600) as caller:
        caller.subscribe(topic, qos)
    eventually(lambda: broker.get(f"/clients/{client}")["client"]["connection"] is None, "away")


def test_while_the_store_is_full_what_must_be_kept_is_refused_and_all_else_goes_on(broker: StrainedBroker) -> None:
    away(broker, "away", "kept/#", 1)
    with let_in(broker.port, "writer") as writer, let_in(broker.port, "there") as there:
        there.subscribe("live/#", 1)
        assert broker.request("/ready").status == 200
        assert fill(broker, writer, "kept/x") > 50
        status = broker.status()
        assert status["store"]["state"] == "failing"
        assert "limit" in status["store"]["trouble"]
        assert status["refused"]["store unavailable"] >= 1
        # A session that is not kept needs no store, whatever the QoS; nor does QoS 0, whoever it is for.
        assert writer.publish("live/1", b"x") == Code.SUCCESS
        assert there.read(mqtt5.PublishPacket).payload == b"x"
        writer.publish("live/0", b"y", qos=0)
        assert there.read(mqtt5.PublishPacket).payload == b"y"
        writer.publish("kept/x", b"y", qos=0)
        assert writer.publish("nobody", b"x") == Code.NO_MATCHING_SUBSCRIBERS
        assert writer.publish("kept/x", b"x", retain=True) == Full
        with let_in(broker.port, "new") as new:
            new.subscribe("live/#", 1)
        with Caller(broker.port) as durable:
            assert durable.connect("durable", expiry_s=600).reason_code == mqtt5.ConnAckReasonCode.QUOTA_EXCEEDED
        assert is_full(broker)


@pytest.mark.parametrize("qos", [1, 2])
def test_who_comes_back_and_reads_its_queue_makes_room(broker: StrainedBroker, qos: int) -> None:
    away(broker, "away", "kept/#", qos)
    with let_in(broker.port, "writer") as writer:
        accepted = 0
        for number in range(MESSAGES_MAX):
            packet = mqtt5.PublishPacket("kept/x", bytes(8 * KIB), qos=mqtt5.QoS(qos), packet_id=number + 1)
            writer.send(packet)
            if qos == 1:
                refused = writer.read(mqtt5.PubAckPacket).reason_code == Full
            else:
                refused = writer.read(mqtt5.PubRecPacket).reason_code == mqtt5.PubRecReasonCode.QUOTA_EXCEEDED
                if not refused:
                    writer.send(mqtt5.PubRelPacket(number + 1))
                    writer.read(mqtt5.PubCompPacket)
            if refused:
                break
            accepted += 1
        assert is_full(broker)

        with Caller(broker.port) as back:
            assert back.connect("away", expiry_s=600).session_present
            heard = read_all(back, accepted, qos)
        assert heard == accepted
        eventually(lambda: broker.request("/ready").status == 200, "ready again")
        writer.send(mqtt5.PublishPacket("kept/x", b"x", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=1_000))
        assert writer.read(mqtt5.PubAckPacket).reason_code == Code.SUCCESS


def read_all(caller: Caller, count: int, qos: int) -> int:
    """Take so many messages and acknowledge them to the end; how many there were."""
    heard = ended = 0
    while ended < count:
        packet = caller.next()
        match packet:
            case mqtt5.PublishPacket() if qos == 1:
                heard += 1
                ended += 1
                caller.send(mqtt5.PubAckPacket(packet.packet_id or 0))
            case mqtt5.PublishPacket():
                heard += 1
                caller.send(mqtt5.PubRecPacket(packet.packet_id or 0))
            case mqtt5.PubRelPacket():
                ended += 1
                caller.send(mqtt5.PubCompPacket(packet.packet_id))
            case _:
                raise AssertionError(packet)
    return heard


def test_who_removes_retained_messages_makes_room(broker: StrainedBroker) -> None:
    with let_in(broker.port, "writer") as writer:
        kept = fill(broker, writer, "kept", retain=True)
        for number in range(kept):
            assert writer.publish(f"kept/{number}", b"", retain=True) == Code.NO_MATCHING_SUBSCRIBERS
        eventually(lambda: broker.request("/ready").status == 200, "ready again")
        assert writer.publish("kept/again", b"x", retain=True) == Code.NO_MATCHING_SUBSCRIBERS


def test_what_was_acknowledged_before_the_store_was_full_survives_and_so_does_the_limit(broker: StrainedBroker) -> None:
    away(broker, "away", "kept/#", 1)
    with let_in(broker.port, "writer") as writer:
        accepted = fill(broker, writer, "kept/x")
    broker.kill()
    broker.start()
    with Caller(broker.port) as back:
        assert back.connect("away", expiry_s=600).session_present
        assert read_all(back, accepted, 1) == accepted


SOME = 70
"""Messages of 8 KiB: more than half of the store."""


def overfill(broker: StrainedBroker, writer: Caller) -> None:
    """Publish more at once than the store has room for: it can be neither written nor refused any more."""
    for _ in range(SOME):
        assert writer.publish("kept/x", bytes(8 * KIB)) == Code.SUCCESS
    writer.send(mqtt5.PublishPacket("kept/x", bytes(500 * KIB), qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=8))
    eventually(lambda: is_full(broker), "full")


def test_more_at_once_than_there_is_room_for_waits_and_is_not_lost(broker: StrainedBroker) -> None:
    away(broker, "away", "kept/#", 1)
    with let_in(broker.port, "writer") as writer:
        overfill(broker, writer)
        with let_in(broker.port, "other") as other:
            assert other.publish("kept/x", b"x") == Full
        with Caller(broker.port) as back:
            assert back.connect("away", expiry_s=600).session_present
            assert read_all(back, SOME + 1, 1) == SOME + 1
        acknowledged = writer.read(mqtt5.PubAckPacket)
        assert (acknowledged.packet_id, acknowledged.reason_code) == (8, Code.SUCCESS)
        eventually(lambda: broker.request("/ready").status == 200, "ready again")


def test_whoever_goes_on_talking_while_its_answers_wait_for_the_disk_is_not_listened_to_any_more(
    broker: StrainedBroker,
) -> None:
    away(broker, "away", "kept/#", 1)
    with let_in(broker.port, "writer") as writer:
        overfill(broker, writer)
        before_bytes = broker.peak_bytes
        ping = b"\xc0\x00" * 50_000
        writer.write_until_blocked(ping)
        assert broker.peak_bytes - before_bytes < 64 << 20
        with Caller(broker.port) as back:
            assert back.connect("away", expiry_s=600).session_present
            assert read_all(back, SOME + 1, 1) == SOME + 1
        assert writer.read(mqtt5.PubAckPacket).packet_id == 8
        writer.read(mqtt5.PingRespPacket)


def test_who_does_wrong_while_its_answers_wait_for_the_disk_is_closed_all_the_same(broker: StrainedBroker) -> None:
    away(broker, "away", "kept/#", 1)
    with let_in(broker.port, "writer") as writer:
        overfill(broker, writer)
        writer.write(b"\xff\xff\xff\xff\xff")
        assert writer.is_closed()
    broker.wait_for_status(lambda status: status["connections"] == 0, "gone")
