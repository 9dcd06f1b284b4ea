"""Path latency: how long paths really take, if brokers claim less.

A broker may claim less latency for its links than they have, or not add the time that it kept a parcel to its age. Two
measures are beyond its influence: the age at the destination, which includes the latency of the last link as the
destination measured it, and the round trip of a confirmation by this source's own clock. The excess over the claimed
latency is at least the greater of the excess of the age and half of the excess of the round trip.

The least excess of several samples counts, so that a temporary queue does not. It is added to the links onward from
brokers in between, in equal parts; if another path shares one of them and takes less, it is removed again. A lie of
more than a quarter of the path's latency, and of more than 10 ms, is thus corrected after `SAMPLES` samples. The
correction expires after a time that doubles, and is measured anew.
"""

from collections import deque
from itertools import pairwise

from overlane.core.units import MS, NEVER, SECOND, US, Nanos

Link = tuple[str, str]

SAMPLES = 8
TOLERATED: Nanos = 10 * MS
TOLERATED_PART = 4
HOLDS: Nanos = 60 * SECOND
HOLDS_MAX: Nanos = 3600 * SECOND
PATHS_MAX = 4096


class PathLatency:
    def __init__(self) -> None:
        self.extra_us: dict[Link, int] = {}
        """What links take longer than is claimed."""
        self.changes = 0
        self.expires_at: Nanos = NEVER
        self._excess: dict[tuple[str, ...], deque[Nanos]] = {}
        self._until: dict[Link, Nanos] = {}
        self._strikes: dict[Link, int] = {}

    def measured(self, path: tuple[str, ...], took_ns: Nanos, claimed_ns: Nanos, now: Nanos) -> None:
        """A sample took at least so long to the end of a path for which so much is claimed."""
        links = list(pairwise(path[1:]))
        if not links:
            return
        excess = self._excess.get(path)
        if excess is None:
            if len(self._excess) >= PATHS_MAX:
                del self._excess[next(iter(self._excess))]
            excess = self._excess[path] = deque(maxlen=SAMPLES)
        excess.append(took_ns - claimed_ns)
        if len(excess) < SAMPLES:
            return
        known_ns = sum(self.extra_us.get(link, 0) for link in links) * US
        rest_ns = min(excess) - known_ns
        tolerated_ns = max(TOLERATED, claimed_ns // TOLERATED_PART)
        if rest_ns > tolerated_ns:
            for link in links:
                self._slow(link, self.extra_us.get(link, 0) + rest_ns // len(links) // US, now)
        elif known_ns and rest_ns < -tolerated_ns:
            for link in links:
                if link in self.extra_us:
                    share = max(0, known_ns + rest_ns) / known_ns
                    self._slow(link, int(self.extra_us[link] * share), now)
        else:
            return
        excess.clear()
        self.changes += 1

    def _slow(self, link: Link, extra_us: int, now: Nanos) -> None:
        if extra_us <= 0:
            self.extra_us.pop(link, None)
            self._until.pop(link, None)
        else:
            if link not in self.extra_us:
                if len(self._strikes) >= PATHS_MAX:
                    self._strikes.clear()
                strikes = self._strikes[link] = min(self._strikes.get(link, 0) + 1, 16)
                self._until[link] = now + min(HOLDS_MAX, HOLDS << strikes - 1)
            self.extra_us[link] = extra_us
        self.expires_at = min(self._until.values(), default=NEVER)

    def expire(self, now: Nanos) -> None:
        """What has held long enough is measured anew."""
        if now < self.expires_at:
            return
        for link in [link for link, until in self._until.items() if until <= now]:
            del self._until[link], self.extra_us[link]
        self._excess.clear()
        self.expires_at = min(self._until.values(), default=NEVER)
        self.changes += 1
