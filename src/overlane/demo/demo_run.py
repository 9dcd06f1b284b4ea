"""Runs the demo: real brokers and clients, the monitor, and the steps."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic_ns

from overlane.core.units import SECOND, Nanos
from overlane.demo.route_moves import Move, RouteLog
from overlane.demo.step_results import Figures, step_figures
from overlane.demo.steps import STEPS, Step
from overlane.errors import Unavailable
from overlane.extras import is_installed
from overlane.local_ports import HOST, free_ports
from overlane.monitor.page_server import LiveOverlay, PageListener, serve_live
from overlane.network.schema import Endpoint, Network
from overlane.sim.setup import SimulationSetup
from overlane.testbed.client_processes import ClientProcesses
from overlane.testbed.loopback import LoopbackEnvironment
from overlane.testbed.processes import Processes
from overlane.testbed.trial import apply_event
from overlane.testbed.trial_clients import Observations

SOURCE = "seattle"
SETTLE_S = 1.2
"""Wait for the last messages of a step."""
DRAIN_S_MAX = 20.0
WITHOUT_END_NS: Nanos = 30 * 86_400 * SECOND
"""Publishers continue until they are stopped, for --stay."""


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """The effects of a step, so far or finally."""

    step: Step
    moves: list[Move]
    figures: list[Figures]


class DemoRun:
    def __init__(self, network: Network, directory: Path, step_s: float) -> None:
        self.lake = directory / "telemetry"
        self._environment = LoopbackEnvironment(network)
        if is_installed("pyarrow"):
            self._environment.broker_options = (*self._environment.broker_options, "--telemetry", str(self.lake))
        self.network = self._environment.network
        self._plan = SimulationSetup(self.network, None, None)
        self._processes = Processes(self._environment, directory)
        self._clients = ClientProcesses(self._environment, self._processes.file, directory / "clients.log")
        self._step_s = step_s

    @property
    def file(self) -> Path:
        """The network file with the actual addresses of the brokers."""
        return self._processes.file

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        try:
            await self._processes.start_all()
            await self._clients.start()
            await self._clients.wait_until_reached()
            yield
        finally:
            await self._clients.end()
            await self._processes.end()
            self._processes.end_at_once()

    @asynccontextmanager
    async def page(self, port: int) -> AsyncIterator[str]:
        """Yields the URL of the monitor, on this port or, if it is taken, on another."""
        for wanted in (port, *free_ports(1)):
            page = PageListener(Endpoint(HOST, wanted), None)
            watched = LiveOverlay(self.network, "five cities", page, True, _ProcessControl(self._processes))
            try:
                async with serve_live(watched) as address:
                    yield address
                    return
            except Unavailable:
                if wanted != port:
                    raise

    async def run_steps(
        self, announce: Callable[[int, Step], None], report: Callable[[StepOutcome], None]
    ) -> tuple[list[StepOutcome], list[Figures]]:
        """Run all steps. Returns the final outcome of each step, and the figures of all messages."""
        start_ns = self._clients.begin(WITHOUT_END_NS)
        await asyncio.sleep((start_ns - monotonic_ns()) / SECOND)
        route_log = await asyncio.to_thread(RouteLog, self._environment, SOURCE)
        outcomes: list[tuple[StepOutcome, Nanos, Nanos]] = []
        for number, step in enumerate(STEPS):
            announce(number, step)
            from_ns, done_s = monotonic_ns() - start_ns, time.monotonic()
            await self._do(step)
            await asyncio.sleep(self._step_s)
            until_ns = monotonic_ns() - start_ns
            moves = await asyncio.to_thread(route_log.moves, done_s) if step.events else []
            await asyncio.sleep(SETTLE_S)
            outcome = StepOutcome(
                step, moves, step_figures(self._plan, await self._clients.observations(), from_ns, until_ns)
            )
            outcomes.append((outcome, from_ns, until_ns))
            report(outcome)
        all_until_ns = monotonic_ns() - start_ns
        seen = await self._final_observations(all_until_ns)
        in_the_end = [
            replace(outcome, figures=step_figures(self._plan, seen, from_ns, until_ns))
            for outcome, from_ns, until_ns in outcomes
        ]
        return in_the_end, step_figures(self._plan, seen, 0, all_until_ns)

    async def _final_observations(self, until_ns: Nanos) -> list[Observations]:
        """The observations once all messages published until then have arrived, or time is up."""
        patience_s = time.monotonic() + DRAIN_S_MAX
        while True:
            seen = await self._clients.observations()
            if (
                not any(one.missing for one in step_figures(self._plan, seen, 0, until_ns))
                or time.monotonic() > patience_s
            ):
                return seen
            await asyncio.sleep(0.2)

    async def _do(self, step: Step) -> None:
        for event in step.events:
            await apply_event(event, self._environment, self._processes)


class _ProcessControl:
    """Stops and starts brokers for the monitor."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    async def stop(self, broker: str) -> None:
        await self._processes.stop(broker)

    async def kill(self, broker: str) -> None:
        await self._processes.kill(broker)

    async def restart(self, broker: str) -> None:
        await self._processes.stop(broker)
        await self._processes.start(broker)
