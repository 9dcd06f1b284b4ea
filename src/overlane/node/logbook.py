"""The logbook: what the overlay's side of the broker did lately, with the cause of each thing, for whoever watches.

Entries are numbered from 1 in each life of the broker. So many are kept; who asks for those after a number, and finds
the next one to be another, knows that some have gone.
"""

from collections import deque
from dataclasses import dataclass
from typing import assert_never

from msgspec import structs

from overlane.core.broker import Broker
from overlane.core.events import DeadlineUnmeetable, Deliver, LinkChanged, RouteChanged
from overlane.core.paths import paths_in
from overlane.core.qos import QosClass
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.node.clock import Clock
from overlane.node.views import EventView

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


class Logbook:
    """An observer of the driver."""

    def __init__(self, core: Broker, clock: Clock) -> None:
        self._core = core
        self._clock = clock
        self._entries: deque[_Entry] = deque(maxlen=ENTRIES_MAX)
        self.newest = 0
        """The number of the last entry; 0 if there was none."""

    def delivered(self, effect: Deliver) -> None:
        """The tally has it."""

    def happened(self, effect: LinkChanged | RouteChanged | DeadlineUnmeetable) -> None:
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

    def _view(self, effect: LinkChanged | RouteChanged | DeadlineUnmeetable) -> EventView:
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
            case _:
                assert_never(effect)


def _deadline_ms(qos: QosClass) -> float | None:
    return None if qos.deadline_ns >= NEVER else qos.deadline_ns / MS
