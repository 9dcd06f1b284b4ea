"""The log of a run: changes of the network, changes of routes in response, and deadlines that could not be met.

A route is in use from the moment its source changes it, since parcels carry a new route with them; that it is
established, confirmed by every broker on it, comes later and is recorded too. The delay of a route change is counted
from the last change of the network before it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from overlane.core.events import (
    DeadlineUnmeetable,
    LinkChanged,
    PathSuspected,
    PathTrusted,
    RequirementChanged,
    RouteChanged,
    RouteEstablished,
)
from overlane.core.qos import QosClass
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.network.schema import (
    Crash,
    Cut,
    Event,
    Heal,
    Join,
    Leave,
    Lossy,
    Partition,
    Plug,
    Restart,
    Slow,
    Unplug,
)
from overlane.sim.engine import Engine


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something that was done to the network."""

    at: Nanos
    what: str


@dataclass(slots=True)
class RouteMove:
    at: Nanos
    source: str
    topics: tuple[str, ...]
    effect: RouteChanged
    deed: RunEvent | None
    established_at: Nanos = NEVER


@dataclass(frozen=True, slots=True)
class Unmeetable:
    at: Nanos
    source: str
    topics: tuple[str, ...]
    effect: DeadlineUnmeetable


@dataclass(frozen=True, slots=True)
class Requirement:
    """Not met from now on, or met again."""

    at: Nanos
    source: str
    topics: tuple[str, ...]
    effect: RequirementChanged


@dataclass(frozen=True, slots=True)
class LinkMove:
    at: Nanos
    broker: str
    peer: str
    state: str


@dataclass(frozen=True, slots=True)
class PathVerdict:
    at: Nanos
    source: str
    effect: PathSuspected | PathTrusted


class RunLog:
    """`topics` names the topic filters that a change concerns: brokers know QoS classes, people know topics."""

    def __init__(self, engine: Engine, topics: Callable[[str, QosClass], tuple[str, ...]]) -> None:
        self._engine = engine
        self._topics = topics
        self._in_force: dict[tuple[str, int, int], RouteMove] = {}
        self.deeds: list[RunEvent] = []
        self.route_moves: list[RouteMove] = []
        self.unmeetable: list[Unmeetable] = []
        self.requirements: list[Requirement] = []
        self.link_moves: list[LinkMove] = []
        self.path_verdicts: list[PathVerdict] = []

    def note(self, what: str) -> None:
        """Something is done to the network now."""
        self.deeds.append(RunEvent(self._engine.now, what))

    def route_changed(self, broker: str, effect: RouteChanged) -> None:
        deed = self.deeds[-1] if self.deeds else None
        move = RouteMove(self._engine.now, broker, self._topics(broker, effect.qos), effect, deed)
        self.route_moves.append(move)
        self._in_force[broker, effect.route, effect.version] = move

    def route_established(self, broker: str, effect: RouteEstablished) -> None:
        move = self._in_force.pop((broker, effect.route, effect.version), None)
        if move is not None:
            move.established_at = self._engine.now

    def deadline_unmeetable(self, broker: str, effect: DeadlineUnmeetable) -> None:
        self.unmeetable.append(Unmeetable(self._engine.now, broker, self._topics(broker, effect.qos), effect))

    def requirement_changed(self, broker: str, effect: RequirementChanged) -> None:
        self.requirements.append(Requirement(self._engine.now, broker, self._topics(broker, effect.qos), effect))

    def link_changed(self, broker: str, effect: LinkChanged) -> None:
        self.link_moves.append(LinkMove(self._engine.now, broker, effect.peer, effect.state))

    def path_judged(self, broker: str, effect: PathSuspected | PathTrusted) -> None:
        self.path_verdicts.append(PathVerdict(self._engine.now, broker, effect))


def seconds(time: Nanos) -> float:
    return round(time / SECOND, 6)


def milliseconds(duration: Nanos) -> float:
    return round(duration / MS, 3)


def told(event: Event) -> str:
    """What happens, in words."""
    match event:
        case Slow(_, (one, other), latency_ns):
            return f"{one} - {other} slows down to {latency_ns / MS:g} ms"
        case Lossy(_, (one, other), loss):
            return f"{one} - {other} loses {loss:.1%}"
        case Cut(_, (one, other)):
            return f"{one} - {other} is cut"
        case Partition(_, inside):
            return f"{', '.join(inside)} cut off from the rest"
        case Heal(_, healed):
            return "all links heal" if healed is None else f"{healed[0]} - {healed[1]} heals"
        case Crash(_, broker):
            return f"{broker} crashes"
        case Restart(_, broker):
            return f"{broker} restarts"
        case Join(_, broker):
            return f"{broker} joins"
        case Leave(_, broker):
            return f"{broker} leaves"
        case Unplug(_, broker, uplink):
            return f"{broker} loses its uplink {uplink}"
        case Plug(_, broker, uplink):
            return f"{broker} has its uplink {uplink} again"
        case _:
            assert_never(event)
