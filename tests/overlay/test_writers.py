"""Many writers at QoS 0 through a row of brokers: all are slowed down to what the brokers take, and nothing is lost."""

import selectors
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from overlays import RealOverlay, overlay

pytestmark = [pytest.mark.usefixtures("bench_folder"), pytest.mark.slow]

ROW = {"a-b": 'latency = "0.1ms"', "b-c": 'latency = "0.1ms"'}
WRITERS = 100
BLOCKS = 2
"""Of each writer, of 64 KiB: all together are three times of what may wait for a link."""
QUIET_S = 30.0
"""When nothing has come for so long, nothing more will."""


@pytest.fixture
def row(tmp_path: Path) -> Iterator[RealOverlay]:
    with overlay(tmp_path, ROW, "", ("--no-sync",)) as net:
        yield net


def losses(net: RealOverlay) -> str:
    """What brokers have counted, and logged last."""
    told = {name: member.ask("/status") for name, member in net.members.items()}
    return "\n".join([*(f"{name}: {one}" for name, one in told.items()), net.logs()])


def test_a_hundred_writers_at_once_lose_nothing_and_no_link_fails(row: RealOverlay) -> None:
    from _mixed_load import EVERYTHING, READ_BYTES, Marks, Writer
    from _wire import Far, Mqtt

    ports = {name: int(row[name].mqtt.rpartition(":")[2]) for name in "ac"}
    wire = Mqtt()
    reader = wire.connect(ports["c"], "reader")
    Far(wire, ports["a"]).subscribe(reader, [EVERYTHING])
    reader.setblocking(False)
    marks = Marks(WRITERS)
    writers = [Writer(wire, ports["a"], number, seed=7) for number in range(WRITERS)]
    unfinished = set(writers)
    with selectors.DefaultSelector() as ready:
        ready.register(reader, selectors.EVENT_READ)
        for writer in writers:
            ready.register(writer.connection, selectors.EVENT_WRITE, writer)
        quiet_s = time.monotonic() + QUIET_S
        while (unfinished or marks.counts.sum() < sum(one.count for one in writers)) and time.monotonic() < quiet_s:
            for key, _ in ready.select(1.0):
                quiet_s = time.monotonic() + QUIET_S
                writer = key.data
                if writer is None:
                    marks.take(reader.recv(READ_BYTES))
                else:
                    writer.write()
                    if writer.blocks_done == BLOCKS:
                        ready.unregister(writer.connection)
                        unfinished.discard(writer)
    sent = [one.count for one in writers]
    for writer in writers:
        writer.connection.close()
    reader.close()
    assert marks.counts.tolist() == sent, losses(row)
    assert marks.disorder == 0
    for name in "abc":
        log = row[name].log.read_text()
        assert "not answered" not in log
        assert "is failed" not in log
