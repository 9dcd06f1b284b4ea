"""A recording: all telemetry of one broker, from its start to its end.

The driver reports its actions (`delivered`, `happened`), the sampler reads the counters once per second, and the writer
thread does everything that takes time.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, time_ns

from overlane.core.broker import OverlayBroker
from overlane.core.events import (
    BrokersRefused,
    DeadlineUnmeetable,
    LinkChanged,
    NameConflict,
    PathSuspected,
    PathTrusted,
    RefusedAtBorder,
    ReportedEffect,
    RequirementChanged,
    RouteChanged,
)
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.errors import Unavailable
from overlane.mqtt.arrival_counts import Tally
from overlane.mqtt.server import MqttServer
from overlane.network.schema import Telemetry
from overlane.telemetry.arrivals import ArrivalCounter
from overlane.telemetry.deliveries import DeliverySample
from overlane.telemetry.file_rotation import FileRotation
from overlane.telemetry.message_paths import MessagePaths, shortest_paths
from overlane.telemetry.publishing import TelemetryPublisher, check_lake
from overlane.telemetry.recorder import WORTH_SECONDS, Recorder
from overlane.telemetry.rows import Event, EventKind
from overlane.telemetry.sampler import Neighbours, Sampler
from overlane.telemetry.topic_rates import TopicRates
from overlane.telemetry.writer import Writer

SPOOL = ".open"
"""Directory of journals in a lake that is a directory: hidden from readers of the lake."""
CLOSE_S = 10.0
CAUSES_MAX = 16
"""Of failures that are logged one by one."""

log = logging.getLogger("overlane.telemetry")


class Recording:
    """`where` is a directory or an address; journals lie in `spool`, on this machine.

    Unavailable if nothing can be written there at all.
    """

    def __init__(
        self,
        where: str,
        spool: Path,
        settings: Telemetry,
        server: MqttServer,
        core: OverlayBroker,
        overlay: Neighbours,
        wall: Callable[[], Nanos] = time_ns,
    ) -> None:
        self._wall = wall
        self._core = core
        self.recorder = Recorder(worth_seconds=_worth_seconds(settings))
        try:
            spool.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Unavailable(f"telemetry in {spool}", error.strerror or str(error)) from None
        publisher = TelemetryPublisher()
        check_lake(where, core.name, str(spool), publisher)
        filing = FileRotation(where, spool, core.name, core.incarnation, settings, monotonic(), publisher)
        self.writer = Writer(self.recorder, filing, publisher)
        state = server.state
        self._rates = TopicRates(state)
        self._sample = DeliverySample(
            lambda: state.settings.qos,
            MessagePaths(core),
            self.recorder.add,
            wall,
            settings.deliveries_per_second,
        )
        self._arrivals = ArrivalCounter(self._rates, self._sample)
        self._sampler = Sampler(server, core, overlay, self._rates, self.recorder.add, wall)
        self._task: asyncio.Task[None] | None = None
        self._causes: dict[str, int] = {}
        """Why samples have failed since the last one that did not, and how often."""
        self.samples_failed = 0

    # Life

    def start(self) -> None:
        self.recorder.add(Event(self._wall(), EventKind.BROKER_STARTED))
        self.recorder.hand_over()
        self.writer.start()
        self._task = asyncio.get_running_loop().create_task(self._keep_sampling())

    async def stop(self) -> None:
        """Write what there is to be written; what cannot be now is found by the next life of the broker."""
        if self._task is None:
            return
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._try_to_look()
        self.recorder.add(Event(self._wall(), EventKind.BROKER_STOPPED))
        is_written = await asyncio.get_running_loop().run_in_executor(None, self.writer.close, CLOSE_S)
        if not is_written:
            log.warning("telemetry was not written in time; it will be written after the next start")

    def reconfigure(self, settings: Telemetry) -> None:
        """New limits, from now on."""
        self.writer.filing.limits = settings
        self.recorder.worth_seconds = _worth_seconds(settings)
        self._sample.rows_per_second = settings.deliveries_per_second

    async def _keep_sampling(self) -> None:
        while True:
            await self._sampler.wait_for_second()
            await self._try_to_look()
            self.recorder.next_second()

    async def _try_to_look(self) -> None:
        """A defect of ours costs a second of telemetry, and the broker goes on. Each cause is logged once until samples
        are taken again."""
        try:
            await self._look()
        except Exception as error:
            self.samples_failed += 1
            cause = _cause_of(error)
            if cause in self._causes:
                self._causes[cause] += 1
            elif len(self._causes) < CAUSES_MAX:
                self._causes[cause] = 1
                log.exception("a telemetry sample failed; further failures with the same cause are only counted")
        else:
            if self._causes:
                log.warning("telemetry samples succeed again; failed: %d", sum(self._causes.values()))
                self._causes.clear()

    async def _look(self) -> None:
        self._sample.next_second()
        await self._sampler.sample()
        for event in self._sampler.told(self._losses(), self._wall()):
            self.recorder.add(event)

    def _losses(self) -> dict[tuple[str, str], int]:
        losses: dict[tuple[str, str], int] = {}
        for reason, lost in (
            ("buffer full", self.recorder.lost),
            ("disk", self.writer.lost),
            ("schema", self.writer.filing.rows_lost),
        ):
            losses |= {(EventKind.TELEMETRY_LOST, f"{table}: {reason}"): count for table, count in lost.items()}
        losses[EventKind.TELEMETRY_LOST, "samples: internal error"] = self.samples_failed
        losses[EventKind.TELEMETRY_REMOVED, "disk limit"] = self.writer.filing.files_removed
        losses[EventKind.TELEMETRY_LOST, "topic_rates: too many topics"] = self._rates.untold
        return losses

    # What the driver shows

    def delivered(self, tally: Tally) -> None:
        """Messages were handed to clients. Those of this broker itself, of its history, were not under way."""
        if tally.effect.origin != self._core.name:
            self._arrivals.delivered(tally)

    def happened(self, effect: ReportedEffect) -> None:
        at_ns = self._wall()
        match effect:
            case LinkChanged(peer, state):
                self.recorder.add(Event(at_ns, EventKind.LINK, peer=peer, state=state))
            case RouteChanged():
                self.recorder.add(self._route(effect, at_ns))
            case DeadlineUnmeetable(qos, destination, latency_ns):
                self.recorder.add(
                    Event(
                        at_ns,
                        EventKind.DEADLINE_UNMEETABLE,
                        peer=destination,
                        deadline_ns=qos.deadline_ns,
                        reliable=qos.reliable,
                        latency_ns=latency_ns,
                    )
                )
            case RequirementChanged(qos, unmet, is_met):
                self.recorder.add(
                    Event(
                        at_ns,
                        EventKind.REQUIREMENT,
                        peer=unmet.destination,
                        state="met" if is_met else "unmet",
                        reason=unmet.requirement,
                        deadline_ns=qos.deadline_ns,
                        reliable=qos.reliable,
                    )
                )
            case PathSuspected(destination, path, hops) | PathTrusted(destination, path, hops):
                state = "suspect" if isinstance(effect, PathSuspected) else "trusted"
                self.recorder.add(
                    Event(
                        at_ns,
                        EventKind.PATH,
                        peer=", ".join(hops),
                        state=state,
                        destinations=(destination,),
                        paths=(path,),
                    )
                )

            case NameConflict(broker, detail):
                self.recorder.add(Event(at_ns, EventKind.NAME_CONFLICT, peer=broker, reason=detail))
            case RefusedAtBorder():
                pass  # it is counted (sampler.py)
            case BrokersRefused(neighbour, adverts, _):
                self.recorder.add(Event(at_ns, EventKind.BROKERS_REFUSED, peer=neighbour, times=adverts))

    def _route(self, effect: RouteChanged, at_ns: Nanos) -> Event:
        qos = effect.qos
        return Event(
            at_ns,
            EventKind.ROUTE,
            reason=effect.cause,
            route=effect.route,
            version=effect.version,
            deadline_ns=None if qos.deadline_ns >= NEVER else qos.deadline_ns,
            reliable=qos.reliable,
            latency_ns=None if effect.latency_ns >= NEVER else effect.latency_ns,
            destinations=effect.destinations,
            paths=shortest_paths(effect.links, self._core.name, effect.destinations),
            links=effect.links,
        )


def _cause_of(error: Exception) -> str:
    """What failed, and where."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    line = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place is not None else "?"
    return f"{type(error).__name__} at {line}"


def _worth_seconds(settings: Telemetry) -> float:
    """Rows must not wait longer for the writer than they may for their file."""
    return min(WORTH_SECONDS, settings.file_age_ns / SECOND)
