"""The event log: recent events of the overlay with their causes, for the admin API and the monitor.

Events are numbered from 1 in each incarnation of the broker. A bounded number is kept: a reader that asks for those
after a number and gets a gap knows that some are gone.
"""

from collections import deque
from dataclasses import dataclass
from typing import assert_never

from msgspec import structs

from overlane.adminapi.views import EventView
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
from overlane.core.qos import QosClass
from overlane.core.routing.paths import paths_in
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.mqtt.arrival_counts import Tally
from overlane.node.clock import Clock

ENTRIES_MAX = 1_000
TOPICS_LOOKED_AT = 2_000
TOPICS_SHOWN = 5
PATHS_SHOWN = 4


@dataclass(frozen=True, slots=True)
class _Entry:
    at_ns: Nanos
    view: EventView
    """With `ago_s` and `topics` still to be filled in."""
    route: tuple[QosClass, tuple[str, ...]] | None
    """The class and destinations of a route that moved."""


class EventLog:
    """An observer of the driver."""

    def __init__(self, core: OverlayBroker, clock: Clock) -> None:
        self._core = core
        self._clock = clock
        self._entries: deque[_Entry] = deque(maxlen=ENTRIES_MAX)
        self.newest = 0
        """The number of the last entry; 0 if there was none."""

    def delivered(self, tally: Tally) -> None:
        """Delivery statistics have it."""

    def happened(self, effect: ReportedEffect) -> None:
        self.newest += 1
        route = (effect.qos, effect.destinations) if isinstance(effect, RouteChanged) else None
        self._entries.append(_Entry(self._clock.now(), self._view(effect), route))

    def after(self, number: int) -> tuple[EventView, ...]:
        """Those with a greater number, as far as they are kept, oldest first."""
        now = self._clock.now()
        wanted = [entry for entry in self._entries if entry.view.number > number]
        # Not when they happen: many routes move at once, and then there is something more urgent to do.
        topics = self._core.carried_topics(TOPICS_LOOKED_AT) if any(entry.route for entry in wanted) else {}
        return tuple(
            structs.replace(
                entry.view,
                ago_s=round((now - entry.at_ns) / SECOND, 6),
                topics=tuple(topics.get(entry.route, ())[:TOPICS_SHOWN]) if entry.route is not None else (),
            )
            for entry in wanted
        )

    def _view(self, effect: ReportedEffect) -> EventView:
        match effect:
            case LinkChanged(peer, state):
                return EventView(number=self.newest, ago_s=0.0, kind="link", peer=peer, state=state)
            case RouteChanged():
                paths = {
                    to: tuple(paths_in(effect.links, self._core.name, to, PATHS_SHOWN)) for to in effect.destinations
                }
                return EventView(
                    number=self.newest,
                    ago_s=0.0,
                    kind="route",
                    route=effect.route,
                    cause=effect.cause,
                    destinations=effect.destinations,
                    paths=paths,
                    latency_ms=None if effect.latency_ns >= NEVER else effect.latency_ns / MS,
                    deadline_ms=_deadline_ms(effect.qos),
                )
            case DeadlineUnmeetable(qos, destination, latency_ns):
                return EventView(
                    number=self.newest,
                    ago_s=0.0,
                    kind="deadline",
                    peer=destination,
                    latency_ms=None if latency_ns >= NEVER else latency_ns / MS,
                    deadline_ms=_deadline_ms(qos),
                )
            case RequirementChanged(qos, unmet, is_met):
                return EventView(
                    number=self.newest,
                    ago_s=0.0,
                    kind="requirement",
                    peer=unmet.destination,
                    state="met" if is_met else "unmet",
                    cause=f"{unmet.requirement}: {'met again' if is_met else unmet}",
                    deadline_ms=_deadline_ms(qos),
                )
            case PathSuspected(destination, path, hops) | PathTrusted(destination, path, hops):
                return EventView(
                    number=self.newest,
                    ago_s=0.0,
                    kind="path",
                    peer=", ".join(hops),
                    state="suspect" if isinstance(effect, PathSuspected) else "trusted",
                    destinations=(destination,),
                    paths={destination: (path,)},
                )
            case NameConflict(broker, detail):
                return EventView(number=self.newest, ago_s=0.0, kind="name-conflict", peer=broker, cause=detail)
            case BrokersRefused(neighbour, adverts, brokers_max):
                return EventView(
                    number=self.newest,
                    ago_s=0.0,
                    kind="brokers-refused",
                    peer=neighbour,
                    cause=f"{adverts} adverts were not kept; [limits] brokers is {brokers_max}",
                )
            case RefusedAtBorder(origin, topic, messages):
                return EventView(
                    number=self.newest,
                    ago_s=0.0,
                    kind="border",
                    peer=origin,
                    cause=f"{messages} messages may not enter, for example on {topic[:100]}",
                )
            case _:
                assert_never(effect)


def _deadline_ms(qos: QosClass) -> float | None:
    return None if qos.deadline_ns >= NEVER else qos.deadline_ns / MS
