"""Which routes moved in a step, and how soon, by what the broker that decided it tells of itself."""

import time
from dataclasses import dataclass, replace

import msgspec

from overlane.errors import Unavailable
from overlane.node.views import EventList
from overlane.testbed.ground import Ground

CLOCKS_DIFFER_S = 0.02


@dataclass(frozen=True, slots=True)
class Move:
    """A topic takes other paths from now on; perhaps after others in between."""

    topic: str
    after_s: float
    """Until it first moved, and why it did."""
    cause: str
    paths: tuple[tuple[str, ...], ...]
    times: int = 1


class Diary:
    """The routes of one broker, since this was made or last asked."""

    def __init__(self, ground: Ground, broker: str) -> None:
        self._ground = ground
        self._broker = broker
        self._newest = self._ask(0).newest

    def moves(self, since_s: float) -> list[Move]:
        """Since a moment of the monotonic clock: per topic how soon it first moved and why, and where it is now."""
        asked_s = time.monotonic()
        news = self._ask(self._newest)
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

    def _ask(self, after: int) -> EventList:
        try:
            return msgspec.json.decode(self._ground.ask(self._broker, "GET", f"/events?after={after}"), type=EventList)
        except Unavailable:
            return EventList(items=(), newest=after)
