"""A subscriber that never reads, a publisher that never stops: memory stays bounded, what is dropped is counted, and
nobody else loses a message or waits."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from floods import SMALL_BUFFER_BYTES, Flood, Heard, Keen, connected, subscribed
from stage import Bystanders, StrainedBroker, strained

pytestmark = pytest.mark.slow

MIB = 1 << 20
QUEUE_BYTES = 8 * MIB
LIMITS = f'queue = "{QUEUE_BYTES // MIB}MiB"\nqueue_messages = 5000\n'
PAYLOAD_BYTES = 1_000
FLOOD = 60_000
"""Messages: several times what may wait."""
MEMORY_BYTES_MAX = 6 * QUEUE_BYTES
"""What two queues come to, with what each piece of them costs besides its bytes."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[StrainedBroker]:
    with strained(StrainedBroker(tmp_path, LIMITS)) as broker:
        yield broker


@pytest.mark.parametrize(("qos", "reason"), [(0, "slow client"), (1, "queue full")])
def test_a_subscriber_that_never_reads_loses_messages_and_nobody_else_does(
    broker: StrainedBroker, qos: int, reason: str
) -> None:
    with (
        Bystanders(broker.port) as bystanders,
        Keen(broker.port, "keen", "flood/#", qos) as keen,
        connected(broker.port, "deaf", buffer_bytes=SMALL_BUFFER_BYTES) as deaf,
    ):
        subscribed(deaf, "flood/#", qos)
        before, empty_bytes = bystanders.window_of(300), broker.peak_bytes
        flood = Flood(broker.port, "flood", "flood/x", qos, PAYLOAD_BYTES)
        while flood.sent < FLOOD:
            flood.pour(640)
            if qos:
                flood.settle(640)
        heard = keen.heard(flood.sent)
        meanwhile = bystanders.window()
        grown_bytes, status = broker.peak_bytes - empty_bytes, broker.status()
        print(f"grown by {grown_bytes / MIB:.1f} MiB, dropped {status['dropped']}\nbefore {before}\nthen {meanwhile}")
        assert heard == Heard(flood.sent)
        meanwhile.judge(before)
        assert status["dropped"].keys() == {reason}
        assert 0 < status["dropped"][reason] < flood.sent
        assert grown_bytes < MEMORY_BYTES_MAX
        waiting = broker.get("/clients/deaf")["client"]
        assert waiting["connection"]["unsent_bytes"] + waiting["queue"]["bytes"] > QUEUE_BYTES // 3, waiting
        flood.close()


@pytest.mark.parametrize("qos", [0, 1])
def test_publishers_that_never_stop_lose_nothing_and_hold_nobody_up(broker: StrainedBroker, qos: int) -> None:
    with Bystanders(broker.port) as bystanders, Keen(broker.port, "keen", "flood/#", qos) as keen:
        before, empty_bytes = bystanders.window_of(300), broker.peak_bytes
        floods = [Flood(broker.port, f"flood-{one}", f"flood/{one}", qos, PAYLOAD_BYTES, one) for one in range(3)]
        while sum(flood.sent for flood in floods) < FLOOD:
            for flood in floods:
                flood.pour(640)
            for flood in floods if qos else []:
                flood.settle(640)
        total = sum(flood.sent for flood in floods)
        heard, meanwhile = keen.heard(total), bystanders.window()
        grown_bytes, status = broker.peak_bytes - empty_bytes, broker.status()
        print(f"grown by {grown_bytes / MIB:.1f} MiB, dropped {status['dropped']}\nbefore {before}\nthen {meanwhile}")
        assert heard == Heard(total)
        assert status["dropped"] == {}
        meanwhile.judge(before)
        assert grown_bytes < MEMORY_BYTES_MAX
        for flood in floods:
            flood.close()


@pytest.mark.parametrize("qos", [1, 2])
def test_a_publisher_that_never_reads_its_acknowledgements_is_not_listened_to_any_more(
    broker: StrainedBroker, qos: int
) -> None:
    with Bystanders(broker.port) as bystanders:
        before, empty_bytes = bystanders.window_of(300), broker.peak_bytes
        flood = Flood(broker.port, "flood", "flood/x", qos, PAYLOAD_BYTES)
        flood.line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER_BYTES)
        for _ in flood.pour_until_blocked():
            pass
        meanwhile = bystanders.window()
        grown_bytes = broker.peak_bytes - empty_bytes
        print(f"took {flood.sent} messages, grown by {grown_bytes / MIB:.1f} MiB\nbefore {before}\nthen {meanwhile}")
        meanwhile.judge(before)
        assert grown_bytes < MEMORY_BYTES_MAX
        # It may read after all, and go on.
        if qos == 1:
            flood.settle(640)
        flood.close()


def test_small_packets_by_the_thousand_and_greedy_subscribers_hold_nobody_up(broker: StrainedBroker) -> None:
    count = 10_000
    with Bystanders(broker.port) as bystanders, connected(broker.port, "busy") as busy:
        before = bystanders.window_of(300)
        packets = []
        for number in range(count):
            topic = b"kept/%d" % number
            body = len(topic).to_bytes(2) + topic + b"x"
            packets.append(bytes((0x31, len(body))) + body)
        busy.sendall(b"".join(packets))
        broker.wait_for_status(lambda status: status["retained"]["messages"] >= count, "all are kept")
        while_written = bystanders.window()

        with connected(broker.port, "greedy") as greedy:
            asked = b"\x82\x0b\0\1\0\6kept/#\0"
            wanted = 1
            greedy.sendall(asked)
            heard, seen = 0, b""
            while heard < count:
                data = greedy.recv(1 << 20)
                assert data, "cut off"
                heard += (seen[-4:] + data).count(b"kept") - seen[-4:].count(b"kept")
                seen = data
                if wanted < 20:
                    wanted += 1
                    greedy.sendall(asked)
        while_asked = bystanders.window()
        print(f"before {before}\nwritten {while_written}\nasked {while_asked}")
        while_written.judge(before)
        while_asked.judge(before)
