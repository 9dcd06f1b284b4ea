"""Which address of a neighbour is dialled next, and how long after the last try.

Its addresses take turns. The pause doubles with each round in which none of them led to a connection that lasted, up to
a bound, and is drawn from its upper half: neighbours of a broker that was restarted do not all come back to it at the
same instant, nor, some rounds later, still together.

No I/O, and no randomness but what is passed in.
"""

from collections.abc import Sequence
from random import Random

from overlane.core.units import MS, SECOND, Nanos
from overlane.network.schema import Endpoint

PAUSE_MIN: Nanos = 100 * MS
PAUSE_MAX: Nanos = 10 * SECOND
STEADY: Nanos = 5 * SECOND
"""A connection that has lasted so long was a good one: the next pause is short again."""


class Redialling:
    def __init__(self, luck: Random) -> None:
        self._luck = luck
        self._turn = 0
        self._pause_ns = PAUSE_MIN

    def next(self, addresses: Sequence[Endpoint]) -> Endpoint:
        address = addresses[self._turn % len(addresses)]
        self._turn += 1
        return address

    def lasted(self, duration_ns: Nanos) -> None:
        """What was dialled last was linked with for so long."""
        if duration_ns > STEADY:
            self._pause_ns = PAUSE_MIN

    def pause_ns(self, address_count: int) -> Nanos:
        """Until the next try."""
        pause_ns = int(self._pause_ns * self._luck.uniform(0.5, 1.0))
        if self._turn % address_count == 0:
            self._pause_ns = min(PAUSE_MAX, 2 * self._pause_ns)
        return pause_ns
