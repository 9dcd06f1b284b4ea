"""Brokers of a trial that come and go, faster than a process can."""

import asyncio
from pathlib import Path

import pytest

from overlane.network import parse_network
from overlane.testbed.loopback import LoopbackEnvironment
from overlane.testbed.processes import Processes

PAIR = """
[brokers.a]
[brokers.b]
[[links]]
ends = ["a", "b"]
latency = "1ms"
"""


@pytest.mark.slow
def test_a_broker_called_back_while_it_leaves_comes_when_it_has_left(tmp_path: Path) -> None:
    ground = LoopbackEnvironment(parse_network(PAIR, "<test>"))
    processes = Processes(ground, tmp_path)

    async def story() -> None:
        await processes.start_all()
        leaving = asyncio.create_task(processes.leave("b"))
        while processes.is_running("b"):
            await asyncio.sleep(0.001)
        assert not leaving.done()
        await processes.start("b")
        assert leaving.done()
        assert processes.is_running("b")
        await processes.linked("b")
        await processes.end()

    ground.open()
    try:
        asyncio.run(story())
    finally:
        processes.end_at_once()
        ground.close()
    first, second = (directory for directory in processes.records() if directory.name.startswith("b"))
    assert first != second
    assert first.is_dir()
    assert second.is_dir()
