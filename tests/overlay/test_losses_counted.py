"""What was published either arrives or is counted as lost, in messages; and a broker that did not run for a while does
not blame its links for that."""

import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from overlane.adminapi.views import OVERLAY_LOSSES
from overlays import RealOverlay, overlay
from waiting import eventually

pytestmark = pytest.mark.slow

NARROW = {
    "a-b": 'latency = "1ms"\ntransport = "stream"',
    "b-c": 'latency = "1ms"\ntransport = "stream"\nrate = "1Mbit"\nemulate = true',
}
TABLES = """
[topics."urgent/#"]
deadline = "200ms"
"""
WITHIN_S = 90.0
COUNT = 6_000
BODY_BYTES = 250
PAUSE_S = 1.3


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealOverlay]:
    with overlay(tmp_path_factory.mktemp("narrow"), NARROW, TABLES, ("--no-sync",)) as net:
        yield net


def counted(net: RealOverlay) -> int:
    """Messages that the brokers have counted as lost."""
    total = 0
    for member in net.members.values():
        told = member.ask("/status")
        assert isinstance(told, dict)
        total += sum(told["overlay"][name] for name in OVERLAY_LOSSES) + sum(told["dropped"].values())
    return total


@pytest.mark.usefixtures("bench_folder")
@pytest.mark.parametrize("topic", ["urgent/t", "bulk/t"])
def test_everything_published_arrives_or_is_counted_where_a_link_takes_too_little(
    narrow: RealOverlay, topic: str
) -> None:
    from _wire import Far, Mqtt

    ports = {name: int(narrow[name].mqtt.rpartition(":")[2]) for name in "ac"}
    wire = Mqtt()
    reader = Far(wire, ports["a"]).subscribe(wire.connect(ports["c"], f"reader of {topic}"), [topic])
    message = wire.published(topic, BODY_BYTES).message
    before, heard = counted(narrow), 0
    reader.settimeout(0.05)

    def is_all_told() -> bool:
        nonlocal heard
        try:
            while data := reader.recv(1 << 16):
                heard += len(data)
        except TimeoutError:
            pass
        return heard // len(message) + counted(narrow) - before >= COUNT

    with wire.connect(ports["a"], f"writer of {topic}") as writer:
        writer.settimeout(WITHIN_S)
        writer.sendall(message * COUNT)
        writer.shutdown(socket.SHUT_WR)
        eventually(is_all_told, "all arrived or counted", WITHIN_S, lambda: f"{heard // len(message)} arrived")
    reader.close()
    lost = counted(narrow) - before
    assert heard // len(message) + lost == COUNT
    assert heard > 0
    assert lost > 0 or topic.startswith("bulk")


def test_a_broker_that_did_not_run_for_a_while_does_not_blame_its_links(tmp_path: Path) -> None:
    with overlay(tmp_path, {"a-b": 'latency = "1ms"'}, "", ("--no-sync",)) as net:
        eventually(lambda: "link to b is up" in net["a"].log.read_text(), "the link up", WITHIN_S, net.logs)
        for _ in range(3):
            os.kill(net["a"].process_id, signal.SIGSTOP)
            time.sleep(PAUSE_S)  # it does not run
            os.kill(net["a"].process_id, signal.SIGCONT)
            turns = re.findall(r"link to b is \w+", net["a"].log.read_text())
            eventually(lambda: net["a"].ask("/health"), "it runs again", WITHIN_S, net.logs)
            assert "link to b is failed" not in turns
        log = net["a"].log.read_text()
        assert "not answered" not in log
        assert "link to b is suspect" not in log
