"""What a host measures of itself."""

import asyncio
import sys

import pytest

from overlane.network.schema import Scoring
from overlane.node.recovery.hosts.measuring import Measuring, measured, printed_by
from waiting import eventually_async


def test_this_machine_has_memory_and_uses_a_share_of_it() -> None:
    found = measured(0.5, (10.0,))
    assert found.memory_gib is not None
    assert found.memory_gib > 0
    assert 0 <= found.memory_used <= 1
    assert 0 <= found.cpu_used <= 1
    assert (found.command, found.bandwidth_mbps) == (0.5, (10.0,))


@pytest.mark.parametrize(
    ("program", "number"),
    [("print('free', 0.75)", 0.75), ("print('none')", None), ("raise SystemExit(1)", None)],
)
def test_the_last_word_of_a_command_is_its_number(program: str, number: float | None) -> None:
    assert asyncio.run(printed_by((sys.executable, "-c", program))) == number


def test_a_command_that_is_not_there_is_reported_and_counts_as_none() -> None:
    assert asyncio.run(printed_by(("/no/such/command",))) is None


def test_a_score_by_a_command_alone_is_told() -> None:
    told: list[float] = []

    async def go() -> None:
        command = (sys.executable, "-c", "print(0.25)")
        scoring = Scoring(cpu=0.0, memory=0.0, bandwidth=0.0, battery=0.0, command=command)
        measuring = Measuring(scoring, list, told.append)
        await eventually_async(lambda: bool(told), "it is measured", 60)
        measuring.end()

    asyncio.run(go())
    assert told == [0.25]
