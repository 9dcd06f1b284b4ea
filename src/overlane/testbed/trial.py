"""A trial: a network file played by real brokers in real time, and reported as a simulation is.

    start the brokers -> connect publishers and subscribers -> wait until all are reached
    -> traffic and events, at their times -> wait for what is under way -> report -> end everything

The report has the simulator's rows, so that both can be laid side by side. Times are from application to application,
on a machine that does other things too: what the simulator calls 42 ms is 42 ms and what the machine adds.
"""

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic_ns
from typing import assert_never

import msgspec

from overlane.core.units import NEVER, SECOND, Nanos
from overlane.errors import ConfigError, Fault
from overlane.network.schema import (
    Crash,
    Cut,
    Event,
    Heal,
    Join,
    Leave,
    Lossy,
    Network,
    Partition,
    Restart,
    Slow,
)
from overlane.sim.report import TopicReport, latency
from overlane.sim.setup import Plan
from overlane.testbed.processes import Processes
from overlane.testbed.traffic import Reader, Row, Writer, client_of

LAST_WORDS_S = 3.0
"""How long is waited for messages under way at the end."""


class TrialReport(msgspec.Struct, frozen=True):
    topics: dict[str, TopicReport]
    duration_s: float


async def run_trial(
    network: Network, duration_ns: Nanos | None = None, tell: Callable[[float, str], None] = lambda _, __: None
) -> TrialReport:
    """Play it; `tell` hears of events, with the time in seconds. ConfigError, Unavailable."""
    _refuse_unplayable(network)
    stop_ns = network.simulation.duration_ns if duration_ns is None else duration_ns
    plan = Plan(network, None, None)
    with tempfile.TemporaryDirectory(prefix="overlane-trial-") as directory:
        processes = Processes(network, Path(directory))
        try:
            await processes.start_all()
            return await _play(network, processes, plan, stop_ns, tell)
        finally:
            await processes.end()


async def _play(
    network: Network, processes: Processes, plan: Plan, stop_ns: Nanos, tell: Callable[[float, str], None]
) -> TrialReport:
    rows: dict[str, Row] = {}
    of_publisher: dict[int, Row] = {}
    readers = [Reader(one, of_publisher) for one in network.subscribers]
    writers = []
    for number, described in enumerate(network.publishers):
        qos = plan.qos_of(described.topic)
        row = rows.setdefault(plan.row_of(described.topic), Row(qos.deadline_ns))
        of_publisher[number] = row
        writers.append(Writer(number, described, row, qos, readers))
    async with AsyncExitStack() as stack:
        reading = []
        for number, reader in enumerate(readers):
            address = processes.mqtt(reader.described.broker)
            client = await stack.enter_async_context(client_of(address, f"subscriber-{number}"))
            reading.append(asyncio.create_task(reader.run(client, 1)))
        clients = [
            await stack.enter_async_context(client_of(processes.mqtt(one.described.broker), f"publisher-{number}"))
            for number, one in enumerate(writers)
        ]
        try:
            await asyncio.gather(*(one.reach(client) for one, client in zip(writers, clients, strict=True)))
            start_ns = monotonic_ns()
            staging = asyncio.create_task(_stage(network, processes, start_ns, stop_ns, tell))
            await asyncio.gather(
                *(one.run(client, start_ns, start_ns + stop_ns) for one, client in zip(writers, clients, strict=True))
            )
            await staging
            await _last_words(rows, writers)
        finally:
            for task in reading:
                task.cancel()
    return TrialReport({name: _topic_report(row) for name, row in rows.items()}, stop_ns / SECOND)


async def _last_words(rows: dict[str, Row], writers: list[Writer]) -> None:
    until = monotonic_ns() + int(LAST_WORDS_S * SECOND)
    while monotonic_ns() < until and any(row.delivered < row.expected for row in rows.values()):
        await asyncio.sleep(0.05)
    await asyncio.wait([asyncio.create_task(one.finish()) for one in writers], timeout=LAST_WORDS_S)


async def _stage(
    network: Network, processes: Processes, start_ns: Nanos, stop_ns: Nanos, tell: Callable[[float, str], None]
) -> None:
    """The events of the file, at their times."""
    for event in network.events:
        if event.at_ns >= stop_ns:
            return
        await asyncio.sleep(max(0, start_ns + event.at_ns - monotonic_ns()) / SECOND)
        await _happen(event, network, processes)
        tell(event.at_ns / SECOND, _told(event))


async def _happen(event: Event, network: Network, processes: Processes) -> None:
    match event:
        case Slow(_, (one, other), latency_ns):
            await processes.slow(one, other, latency_ns)
        case Lossy(_, (one, other), loss):
            await processes.lose(one, other, loss)
        case Cut(_, (one, other)):
            await processes.cut(one, other)
        case Partition(_, inside):
            for link in network.links:
                if len(set(link.ends) & set(inside)) == 1:
                    await processes.cut(*link.ends)
        case Heal(_, healed):
            for ends in [healed] if healed is not None else [link.ends for link in network.links]:
                await processes.heal(*ends)
        case Crash(_, broker):
            await processes.kill(broker)
        case Restart(_, broker) | Join(_, broker):
            await processes.start(broker)
        case Leave():
            raise AssertionError("refused before")
        case _:
            assert_never(event)


def _told(event: Event) -> str:
    match event:
        case Slow(_, (one, other), latency_ns):
            return f"{one} - {other} slows down to {latency_ns / 1e6:g} ms"
        case Lossy(_, (one, other), loss):
            return f"{one} - {other} loses {loss:.0%}"
        case Cut(_, (one, other)):
            return f"{one} - {other} is cut"
        case Partition(_, inside):
            return f"{', '.join(inside)} are cut off"
        case Heal(_, healed):
            return "everything heals" if healed is None else f"{healed[0]} - {healed[1]} heals"
        case Crash(_, broker):
            return f"{broker} is killed"
        case Restart(_, broker) | Join(_, broker) | Leave(_, broker):
            return f"{broker} starts"
        case _:
            assert_never(event)


def _refuse_unplayable(network: Network) -> None:
    if any(isinstance(event, Leave) for event in network.events):
        raise ConfigError([Fault("<network>", 0, "events", "a broker that leaves", "what a trial can play")])


def _topic_report(row: Row) -> TopicReport:
    return TopicReport(
        published=row.published,
        expected=row.expected,
        delivered=row.delivered,
        in_time=row.in_time if row.deadline_ns < NEVER else row.delivered,
        late=row.delivered - row.in_time if row.deadline_ns < NEVER else 0,
        lost=row.expected - row.delivered,
        duplicates=row.duplicates,
        latency_ms=latency(row.latencies_ns),
    )
