"""Route changes of a step and their delay, as reported by the broker that decided them."""

import time
from dataclasses import dataclass, replace

import msgspec

from overlane.adminapi.views import EventList
from overlane.errors import Unavailable
from overlane.testbed.environment import Environment

CLOCKS_DIFFER_S = 0.02


@dataclass(frozen=True, slots=True)
class Move:
    """A topic was rerouted, once or several times."""

    topic: str
    after_s: float
    """Time until it was first rerouted; `cause`: why."""
    cause: str
    paths: tuple[tuple[str, ...], ...]
    times: int = 1


class RouteLog:
    """Route changes of one broker since the last call."""

    def __init__(self, environment: Environment, broker: str) -> None:
        self._environment = environment
        self._broker = broker
        self._newest = self._events(0).newest

    def moves(self, since_s: float) -> list[Move]:
        """Since a time of the monotonic clock: per topic the first change and its cause, and the current paths."""
        asked_s = time.monotonic()
        news = self._events(self._newest)
        self._newest = news.newest
        moves: dict[str, Move] = {}
        for event in news.items:
            paths = tuple(path for ways in event.paths.values() for path in ways)
            at_s = asked_s - event.ago_s - since_s
            if event.kind != "route" or not paths or at_s < -CLOCKS_DIFFER_S:
                continue
            for topic in event.topics:
                known = moves.get(topic)
                moves[topic] = (
                    Move(topic, max(0.0, at_s), event.cause, paths)
                    if known is None
                    else replace(known, paths=paths, times=known.times + 1)
                )
        return [moves[topic] for topic in sorted(moves)]

    def _events(self, after: int) -> EventList:
        try:
            return msgspec.json.decode(
                self._environment.admin_request(self._broker, "GET", f"/events?after={after}"), type=EventList
            )
        except Unavailable:
            return EventList(items=(), newest=after)
