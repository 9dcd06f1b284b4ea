"""A trial: the traffic and events of a network file on real brokers in real time, reported as by the simulator.

    create the environment -> start brokers -> connect clients -> wait until all are reached
    -> traffic and events on schedule -> wait for messages in flight -> stop everything -> report

The report has the format of the simulator's, so that both can be compared. Latencies are from application to
application and include what the machine adds.
"""

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic_ns, time_ns
from typing import assert_never

from overlane.core.units import SECOND, Nanos
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
    Plug,
    Restart,
    Slow,
    Unplug,
)
from overlane.sim.report import Report
from overlane.sim.run_log import RunEvent, told
from overlane.sim.setup import SimulationSetup
from overlane.testbed import route_report
from overlane.testbed.client_processes import ClientProcesses
from overlane.testbed.delivery_report import topic_reports
from overlane.testbed.environment import Environment
from overlane.testbed.loopback import LoopbackEnvironment
from overlane.testbed.presence import Presence
from overlane.testbed.processes import GRACE_S, Processes
from overlane.testbed.site_environment import SiteEnvironment

DRAIN_S = 3.0
RELIABLE_DRAIN_S = 20.0
"""Maximum wait for messages in flight at the end."""

_DIRECTORY = "overlane-trial-"

Tell = Callable[[float, str], None]
"""Called with the time in seconds and a description."""


async def run_trial(
    network: Network,
    duration_ns: Nanos | None = None,
    tell: Tell = lambda _, __: None,
    *,
    emulate: bool = False,
    is_urgent: bool = False,
) -> Report:
    """Run the trial in a wide area or, with `emulate`, on loopback. `is_urgent`: with real-time priority, in a wide
    area only. Raises ConfigError, Unavailable."""
    stop_ns = network.simulation.duration_ns if duration_ns is None else duration_ns
    environment: Environment = (
        LoopbackEnvironment(network) if emulate else SiteEnvironment(network, is_urgent=is_urgent)
    )
    _remove_leftovers()
    with tempfile.TemporaryDirectory(prefix=f"{_DIRECTORY}{os.getpid()}-") as directory:
        trial = _Trial(environment, Path(directory), stop_ns, tell)
        try:
            environment.open()
            return await trial.run()
        finally:
            trial.end_at_once()
            environment.close()


class _Trial:
    def __init__(self, environment: Environment, directory: Path, stop_ns: Nanos, tell: Tell) -> None:
        self._environment = environment
        self._stop_ns = stop_ns
        self._tell = tell
        self._processes = Processes(environment, directory)
        self._clients = ClientProcesses(environment, self._processes.file, directory / "clients.log")
        self._deeds: list[RunEvent] = []
        self._presence = Presence(environment.network)
        self._coming: dict[str, asyncio.Task[None]] = {}  # it takes a broker a while to come, and to go
        self._going: list[asyncio.Task[None]] = []

    async def run(self) -> Report:
        network, processes, clients = self._environment.network, self._processes, self._clients
        try:
            await processes.start_all()
            await clients.start()
            await clients.wait_until_reached()
            before = await processes.counters()
            start_ns = clients.begin(self._stop_ns)
            zero_ns = time_ns() + start_ns - monotonic_ns()
            await self._run_events(start_ns)
            await _until(start_ns + self._stop_ns)
            control_bytes = (await processes.counters() - before)["control_bytes_sent"]
            await self._drain()
            messages = (await processes.counters() - before)["messages_sent"]
            seen = await clients.final_observations()
            await self._settle_down()
        finally:
            await clients.end()
            for task in [*self._coming.values(), *self._going]:
                task.cancel()
        await processes.end()
        plan = SimulationSetup(network, None, None)
        topics = topic_reports(plan, seen, self._presence)
        published = sum(topic.published for topic in topics.values())
        records = processes.records()
        classes = plan.filters_of_classes()
        return Report(
            topics=topics,
            sent_per_message=round(messages / published, 4) if published else 0.0,
            route_changes=route_report.route_changes(records, zero_ns, classes, self._deeds),
            unmeetable=route_report.unmeetable(records, zero_ns, classes),
            control_bytes_per_broker_s=round(control_bytes / (len(network.brokers) * self._stop_ns / SECOND), 1),
            digest="",  # no two real runs are the same
        )

    def end_at_once(self) -> None:
        self._processes.end_at_once()

    async def _run_events(self, start_ns: Nanos) -> None:
        """The events of the file, at their times."""
        for event in self._environment.network.events:
            if event.at_ns >= self._stop_ns:
                return
            await _until(start_ns + event.at_ns)
            await self._happen(event, start_ns)
            self._deeds.append(RunEvent(event.at_ns, told(event)))
            self._tell(event.at_ns / SECOND, told(event))

    async def _happen(self, event: Event, start_ns: Nanos) -> None:
        processes = self._processes
        match event:
            case Leave(at_ns, broker):
                if processes.is_running(broker):
                    self._presence.left(broker, at_ns)
                self._stop_coming(broker)
                self._going.append(asyncio.create_task(processes.leave(broker)))
            case Join(_, broker) | Restart(_, broker) if not self._presence.is_there(broker):
                self._stop_coming(broker)
                self._coming[broker] = asyncio.create_task(self._come(broker, start_ns))
            case Crash(_, broker):
                self._stop_coming(broker)
                await processes.kill(broker)
            case _:
                await apply_event(event, self._environment, processes)

    async def _come(self, broker: str, start_ns: Nanos) -> None:
        """A process takes a while to start: it is there when it has met the others."""
        await self._processes.start(broker)
        await self._processes.linked(broker)
        self._presence.came(broker, monotonic_ns() - start_ns)

    def _stop_coming(self, broker: str) -> None:
        """It is no longer waited for."""
        if (coming := self._coming.pop(broker, None)) is not None:
            coming.cancel()

    async def _settle_down(self) -> None:
        """Until those who come or go have done so; Unavailable if one could not."""
        if moving := [*self._coming.values(), *self._going]:
            done, _ = await asyncio.wait(moving, timeout=GRACE_S)
            for task in done:
                task.result()

    async def _drain(self) -> None:
        network = self._environment.network
        plan = SimulationSetup(network, None, None)
        reliable = {number for number, one in enumerate(network.publishers) if plan.qos_of(one.topic).reliable}
        began_ns = monotonic_ns()
        while under_way := await self._clients.publishers_pending():
            waits_s = RELIABLE_DRAIN_S if under_way & reliable else DRAIN_S
            if monotonic_ns() > began_ns + int(waits_s * SECOND):
                return
            await asyncio.sleep(0.05)


async def apply_event(event: Event, environment: Environment, processes: Processes) -> None:
    """Make it so."""
    match event:
        case Crash(_, broker):
            await processes.kill(broker)
        case Restart(_, broker) | Join(_, broker):
            await processes.start(broker)
        case Leave(_, broker):
            await processes.leave(broker)
        case _:
            await asyncio.to_thread(_change, environment, event)


def _change(environment: Environment, event: Slow | Lossy | Cut | Partition | Heal | Unplug | Plug) -> None:
    """What happens to the environment itself."""
    links = [link.ends for link in environment.network.links]
    match event:
        case Slow(_, (one, other), latency_ns):
            environment.slow(one, other, latency_ns)
        case Lossy(_, (one, other), loss):
            environment.lose(one, other, loss)
        case Cut(_, (one, other)):
            environment.cut(one, other)
        case Partition(_, inside):
            for ends in links:
                if len(set(ends) & set(inside)) == 1:
                    environment.cut(*ends)
        case Heal(_, healed):
            for ends in links if healed is None else [healed]:
                environment.heal(*ends)
            if healed is None:
                for broker in environment.network.brokers:
                    for uplink in broker.uplinks:
                        environment.plug(broker.name, uplink.name)
        case Unplug(_, broker, uplink):
            environment.unplug(broker, uplink)
        case Plug(_, broker, uplink):
            environment.plug(broker, uplink)
        case _:
            assert_never(event)


def _remove_leftovers() -> None:
    """The directories of trials whose process is no more."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_DIRECTORY}*"):
        owner = re.match(rf"{_DIRECTORY}([0-9]+)-", directory.name)
        if owner is not None and not Path(f"/proc/{owner[1]}").exists():
            with suppress(OSError):
                shutil.rmtree(directory)


async def _until(moment_ns: Nanos) -> None:
    await asyncio.sleep(max(0, moment_ns - monotonic_ns()) / SECOND)
