"""Clocks that are wrong, at the start and while a broker runs: real processes whose clock a test sets."""

import asyncio
import os
import shutil
import time
from pathlib import Path

import pytest

from overlane.client import connect
from overlays import RealOverlay

pytestmark = pytest.mark.slow

DAY_S = 86_400
YEARS_100_S = 100 * 365 * DAY_S
LINKS = dict.fromkeys(("a-b", "b-c"), 'latency = "1ms"')
SHIFT = """
import os, time

_time, _time_ns, _file = time.time, time.time_ns, os.environ["OVERLANE_TEST_CLOCK"]

def _ahead():
    try:
        return int(open(_file).read() or 0)
    except (OSError, ValueError):
        return 0

time.time = lambda: _time() + _ahead()
time.time_ns = lambda: _time_ns() + _ahead() * 1_000_000_000
"""
"""Loaded by the interpreter before all else (`sitecustomize`)."""


@pytest.fixture
def clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the seconds by which clocks of brokers are ahead, at every moment."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SHIFT)
    file = tmp_path / "ahead"
    file.write_text("0")
    monkeypatch.setenv("OVERLANE_TEST_CLOCK", str(file))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]))
    return file


def incarnation(net: RealOverlay, name: str) -> int:
    try:
        answer = net[name].ask("/status")
    except OSError:
        return 0
    assert isinstance(answer, dict)
    return int(answer["incarnation"])


def later_life(net: RealOverlay, name: str, known: int) -> int:
    net.wait_until(lambda: incarnation(net, name) > known, "a later life", 90)
    return incarnation(net, name)


async def crosses(net: RealOverlay, topic: str, number: int = 1) -> None:
    """QoS 1 messages pass from a to c, and none comes twice."""
    async with connect(net["c"].mqtt) as there, connect(net["a"].mqtt) as here:
        got: list[bytes] = []

        async def read() -> None:
            async for message in there.subscribe(topic):
                got.append(bytes(message.body))

        reading = asyncio.create_task(read())
        sent = 0
        while len(got) < number:
            sent += 1
            await here.publish(topic, b"%d" % sent, qos=1)
            await asyncio.sleep(0.05)
        reading.cancel()
        assert len(got) == len(set(got))


def test_a_replaced_host_with_an_empty_disk_and_a_clock_a_day_behind_is_heard_again(
    clocks: Path, tmp_path: Path
) -> None:
    net = RealOverlay(tmp_path, LINKS)
    try:
        net.start()
        asyncio.run(crosses(net, "before"))
        known = incarnation(net, "c")
        net["c"].kill()
        shutil.rmtree(tmp_path / "c")
        clocks.write_text(str(-DAY_S))
        net["c"].start()
        later_life(net, "c", known)
        asyncio.run(crosses(net, "after"))
        assert "b knows a later incarnation of this broker" in net["c"].log.read_text()
        assert incarnation(net, "c") < known + 100
        assert "Traceback" not in net.logs()
    finally:
        net.end()


def test_a_clock_beyond_all_bounds_leaves_no_trace_and_jumps_while_it_runs_do_no_harm(
    clocks: Path, tmp_path: Path
) -> None:
    net = RealOverlay(tmp_path, LINKS)
    try:
        net.start()
        before = incarnation(net, "c")
        for ahead_s in (YEARS_100_S, -YEARS_100_S // 10, 20 * YEARS_100_S // 100):
            clocks.write_text(str(ahead_s))
            asyncio.run(crosses(net, f"while/{ahead_s}", 3))
            net["c"].kill()
            net["c"].start()
            before = later_life(net, "c", before)
            assert before < time.time() + DAY_S
            asyncio.run(crosses(net, f"after/{ahead_s}"))
        assert "the clock" in net["c"].log.read_text()
        assert "Traceback" not in net.logs()
    finally:
        net.end()
