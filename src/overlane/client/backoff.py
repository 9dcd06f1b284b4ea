"""Backoff: the pause before the next connection attempt, doubling and partly random.

Many clients lose a broker at the same moment. Each waits between half of the pause and all of it, so that they do not
reconnect at the same moment. A connection counts as a success only after it has lasted for a while: a broker that
accepts and closes at once gets growing pauses, not a storm of connections.
"""

from overlane.core.units import MS, SECOND, Nanos

PAUSE_FIRST: Nanos = 100 * MS
PAUSE_MAX: Nanos = 15 * SECOND
LASTED: Nanos = 5 * SECOND
"""A connection that held this long ends the series of failures."""


class Backoff:
    def __init__(self, first_ns: Nanos = PAUSE_FIRST, max_ns: Nanos = PAUSE_MAX) -> None:
        self._first_ns = first_ns
        self._max_ns = max_ns
        self._pause_ns = min(first_ns, max_ns)

    def pause(self, luck: float) -> Nanos:
        """The next pause; `luck` is between 0 and 1."""
        pause_ns = self._pause_ns
        self._pause_ns = min(self._max_ns, 2 * pause_ns)
        return pause_ns // 2 + int(luck * (pause_ns - pause_ns // 2))

    def held(self, duration_ns: Nanos) -> None:
        """A connection held for this long and is lost now."""
        if duration_ns >= LASTED:
            self._pause_ns = min(self._first_ns, self._max_ns)
