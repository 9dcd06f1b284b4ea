"""The stage of the demo: real brokers, real clients, the monitor's page, and hands that do what the story says."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic_ns

from overlane.core.units import SECOND, Nanos
from overlane.demo.judging import Figures, judge
from overlane.demo.moves import Diary, Move
from overlane.demo.steps import STEPS, Step
from overlane.errors import Unavailable
from overlane.monitor.serving import Page, Watched, serving_live
from overlane.network.schema import Endpoint, Network
from overlane.sim.setup import Plan
from overlane.testbed.crew import Crew
from overlane.testbed.loopback import HOST, Loopback, free_ports
from overlane.testbed.players import Everything
from overlane.testbed.processes import Processes
from overlane.testbed.trial import happen

SOURCE = "seattle"
SETTLE_S = 1.2
"""How long after a step its last messages are waited for."""
LAST_WORDS_S = 20.0
WITHOUT_END_NS: Nanos = 30 * 86_400 * SECOND
"""Publishers go on until they are ended: who stays may want to watch."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step brought about, so far or in the end."""

    step: Step
    moves: list[Move]
    figures: list[Figures]


class Stage:
    def __init__(self, network: Network, directory: Path, step_s: float) -> None:
        self.lake = directory / "telemetry"
        self._ground = Loopback(network)
        self._ground.broker_options = (*self._ground.broker_options, "--telemetry", str(self.lake))
        self.network = self._ground.network
        self._plan = Plan(self.network, None, None)
        self._processes = Processes(self._ground, directory)
        self._crew = Crew(self._ground, self._processes.file, directory / "clients.log")
        self._step_s = step_s

    @property
    def file(self) -> Path:
        """The network file with the addresses that the brokers have."""
        return self._processes.file

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        try:
            await self._processes.start_all()
            await self._crew.start()
            await self._crew.reach()
            yield
        finally:
            await self._crew.end()
            await self._processes.end()
            self._processes.end_at_once()

    @asynccontextmanager
    async def page(self, port: int) -> AsyncIterator[str]:
        """The monitor's address: with this port, or with another where somebody has it."""
        for wanted in (port, *free_ports(1)):
            page = Page(Endpoint(HOST, wanted), None)
            watched = Watched(self.network, "five cities", page, True, _Hands(self._processes))
            try:
                async with serving_live(watched) as address:
                    yield address
                    return
            except Unavailable:
                if wanted != port:
                    raise

    async def play(
        self, tell: Callable[[int, Step], None], told: Callable[[Outcome], None]
    ) -> tuple[list[Outcome], list[Figures]]:
        """All steps; what became of each of them in the end, and of all messages."""
        start_ns = self._crew.begin(WITHOUT_END_NS)
        await asyncio.sleep((start_ns - monotonic_ns()) / SECOND)
        diary = await asyncio.to_thread(Diary, self._ground, SOURCE)
        outcomes: list[tuple[Outcome, Nanos, Nanos]] = []
        for number, step in enumerate(STEPS):
            tell(number, step)
            from_ns, done_s = monotonic_ns() - start_ns, time.monotonic()
            await self._do(step)
            await asyncio.sleep(self._step_s)
            until_ns = monotonic_ns() - start_ns
            moves = await asyncio.to_thread(diary.moves, done_s) if step.events else []
            await asyncio.sleep(SETTLE_S)
            outcome = Outcome(step, moves, judge(self._plan, await self._crew.recount(), from_ns, until_ns))
            outcomes.append((outcome, from_ns, until_ns))
            told(outcome)
        all_until_ns = monotonic_ns() - start_ns
        seen = await self._everything(all_until_ns)
        in_the_end = [
            replace(outcome, figures=judge(self._plan, seen, from_ns, until_ns))
            for outcome, from_ns, until_ns in outcomes
        ]
        return in_the_end, judge(self._plan, seen, 0, all_until_ns)

    async def _everything(self, until_ns: Nanos) -> list[Everything]:
        """What was seen when all that was published until then has come, or has had its time."""
        patience_s = time.monotonic() + LAST_WORDS_S
        while True:
            seen = await self._crew.recount()
            if not any(one.missing for one in judge(self._plan, seen, 0, until_ns)) or time.monotonic() > patience_s:
                return seen
            await asyncio.sleep(0.2)

    async def _do(self, step: Step) -> None:
        for event in step.events:
            await happen(event, self._ground, self._processes)


class _Hands:
    """What the monitor's buttons do to brokers."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    async def stop(self, broker: str) -> None:
        await self._processes.stop(broker)

    async def kill(self, broker: str) -> None:
        await self._processes.kill(broker)

    async def restart(self, broker: str) -> None:
        await self._processes.stop(broker)
        await self._processes.start(broker)
