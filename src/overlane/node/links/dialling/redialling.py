"""Which address of a neighbour is dialled next, and after which pause.

The addresses are used in turn. The pause doubles with each round in which no address led to a lasting connection, up to
a limit, and is drawn from its upper half: the neighbours of a restarted broker do not all reconnect at the same moment,
nor some rounds later.

No I/O, and no randomness except what is passed in.
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
