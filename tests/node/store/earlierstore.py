"""A store with every kind of record that clients can bring about, and whether a broker that opens it has them all.

    PYTHONPATH=src:tests python tests/node/store/earlierstore.py FILE.tar.xz RELEASE/src

writes one with the brokers of a release, which `test_earlier_stores` opens from then on. Two brokers a and b are filled
and ended; what is half done when they end is finished after the next start.
"""

import base64
import os
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import mqtt5

from overlays import Member, RealOverlay
from waiting import eventually
from watched import Caller

LINK = {"a-b": 'latency = "1ms"'}
TOPICS = '\n[topics."kept/#"]\nreliability = "reliable"\nhistory = 3\n'
EXPIRY_S = 0xFFFFFFFE
NOT_RECORDS = (".reserve", ".lock", "-shm")


def port(member: Member) -> int:
    return int(member.mqtt.rpartition(":")[2])


def connected(member: Member, client_id: str, **options: Any) -> tuple[Caller, bool]:
    """A client with a session that lasts, and whether there was one before."""
    caller = Caller(port(member))
    caller.send(mqtt5.ConnectPacket(client_id, clean_start=False, session_expiry_interval=EXPIRY_S, **options))
    answer = caller.read(mqtt5.ConnAckPacket)
    assert answer.reason_code == mqtt5.ConnAckReasonCode.SUCCESS, answer
    return caller, answer.session_present


def fill(net: RealOverlay) -> None:
    """Leave records of every kind behind at a, and a session at b that a owes messages to."""
    a, b = net["a"], net["b"]
    far, _ = connected(b, "far")
    far.subscribe("kept/#", 1)
    far.close()
    reader, _ = connected(a, "reader")
    reader.send(mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("plant/#", max_qos=mqtt5.QoS(2))], subscription_id=42))
    reader.read(mqtt5.SubAckPacket)
    reader.subscribe("$share/workers/jobs/#", 1)
    reader.close()
    a.ask("/streams/s1?filter=plant/%23&scope=here", "PUT")
    half, _ = connected(a, "half")
    half.send(mqtt5.PublishPacket("plant/once", b"half done", qos=mqtt5.QoS(2), packet_id=9))
    half.read(mqtt5.PubRecPacket)
    half.close()
    will = mqtt5.Will("plant/will", payload=b"gone", qos=mqtt5.QoS(1), will_delay_interval=EXPIRY_S)
    mourned, _ = connected(a, "mourned", will=will)
    mourned.close()
    with Caller(port(a)) as writer:
        writer.connect("writer")
        writer.publish("plant/state", b"retained", retain=True)
        for number in range(3):
            writer.publish("plant/line", b"%d" % number)
        writer.publish("jobs/1", b"job")
        writer.send(
            mqtt5.PublishPacket(
                "plant/rich",
                b"rich",
                qos=mqtt5.QoS(1),
                packet_id=8,
                content_type="text/plain",
                response_topic="plant/answers",
                correlation_data=b"\x00\x01",
                user_properties=[("site", "west")],
            )
        )
        writer.read(mqtt5.PubAckPacket)
        # Acknowledged with matching subscribers: the session at b is known here.
        eventually(lambda: int(writer.publish("kept/0", b"0")) == 0, "the need of b is known", 60)
        b.kill()
        for number in range(1, 4):
            writer.publish("kept/line", b"%d" % number)
    part = {"batch": 7, "start": 0, "messages": [["plant/written", base64.b64encode(b"w").decode(), 1, False]]}
    a.ask("/writers/w1", "POST", part)


def check(net: RealOverlay) -> None:
    """All that `fill` left is there, and goes on."""
    a = net["a"]
    half, was_there = connected(a, "half")
    assert was_there
    half.send(mqtt5.PublishPacket("plant/once", b"half done", qos=mqtt5.QoS(2), packet_id=9, duplicate=True))
    half.read(mqtt5.PubRecPacket)
    half.send(mqtt5.PubRelPacket(9))
    half.read(mqtt5.PubCompPacket)
    half.close()
    part = {"batch": 7, "start": 0, "messages": [["plant/written", base64.b64encode(b"w").decode(), 1, False]]}
    written: Any = a.ask("/writers/w1", "POST", part)
    assert written == {"count": 1, "refused": ""}
    reader, was_there = connected(a, "reader")
    assert was_there
    got: list[mqtt5.PublishPacket] = []
    with Caller(port(a)) as writer:
        writer.connect("writer")
        writer.publish("plant/last", b"last")
    while not got or got[-1].topic != "plant/last":
        packet = reader.next()
        if isinstance(packet, mqtt5.PubRelPacket):
            reader.send(mqtt5.PubCompPacket(packet.packet_id))
            continue
        assert isinstance(packet, mqtt5.PublishPacket), packet
        got.append(packet)
        assert packet.packet_id is not None
        second = packet.qos is mqtt5.QoS.EXACTLY_ONCE
        reader.send(mqtt5.PubRecPacket(packet.packet_id) if second else mqtt5.PubAckPacket(packet.packet_id))
    reader.close()
    plant = [(one.topic, one.payload) for one in got if one.topic.startswith("plant/")]
    assert plant == [
        ("plant/once", b"half done"),
        ("plant/state", b"retained"),
        *(("plant/line", b"%d" % number) for number in range(3)),
        ("plant/rich", b"rich"),
        ("plant/written", b"w"),
        ("plant/last", b"last"),
    ], plant
    assert [one.payload for one in got if one.topic == "jobs/1"] == [b"job"]
    (rich,) = (one for one in got if one.topic == "plant/rich")
    assert (rich.content_type, rich.response_topic, rich.correlation_data) == (
        "text/plain",
        "plant/answers",
        b"\x00\x01",
    )
    assert (list(rich.user_properties), list(rich.subscription_ids)) == ([("site", "west")], [42])
    with Caller(port(a)) as late:
        late.connect("late")
        late.subscribe("plant/state", 1)
        kept = late.read(mqtt5.PublishPacket)
        assert (kept.payload, kept.retain) == (b"retained", True)
    logged: Any = a.ask("/streams/s1/messages")
    assert [topic for _, _, topic, *_ in logged["messages"]] == [topic for topic, _ in plant]
    mourned, was_there = connected(a, "mourned")
    assert was_there
    mourned.close()
    far, was_there = connected(net["b"], "far")
    assert was_there
    owed: list[bytes] = []
    while owed[-1:] != [b"3"]:
        packet = far.read(mqtt5.PublishPacket)
        owed.append(packet.payload)
        assert packet.packet_id is not None
        far.send(mqtt5.PubAckPacket(packet.packet_id))
    assert owed[-3:] == [b"1", b"2", b"3"], owed
    assert set(owed[:-3]) == {b"0"}, owed
    far.close()
    assert "Traceback" not in net.logs()
    assert "salvage" not in net.logs()


def pack(directory: Path, file: Path) -> None:
    """The data directories of a and b, without what is no record."""
    with tarfile.open(file, "w:xz") as archive:
        for path in sorted(directory.glob("[ab]/*")):
            if path.is_file() and not path.name.endswith(NOT_RECORDS):
                archive.add(path, str(path.relative_to(directory)))


def main() -> None:
    file, source = sys.argv[1:]
    os.environ["PYTHONPATH"] = source  # for the brokers
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        net = RealOverlay(directory, LINK, TOPICS)
        try:
            net.start()
            fill(net)
            net["a"].stop()
        finally:
            net.end()
        pack(directory, Path(file))


if __name__ == "__main__":
    main()
