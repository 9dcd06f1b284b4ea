"""Which of two connections with the same neighbour stays. No I/O, no clock."""

from typing import Protocol

from overlane.core.units import SECOND, Nanos

SAME_MOMENT: Nanos = 2 * SECOND
"""Two connections that came up within this time were dialled at once from both ends."""


class EstablishedConnection(Protocol):
    """What is asked of a connection to decide whether it stays."""

    @property
    def peer(self) -> str: ...
    @property
    def instance(self) -> int: ...
    @property
    def opened_ns(self) -> Nanos: ...
    @property
    def is_broken(self) -> bool: ...
    @property
    def was_dialled_by_us(self) -> bool: ...


def replaces(me: str, link: EstablishedConnection, before: EstablishedConnection) -> bool:
    """Whether a new connection with the same instance of a neighbour takes the place of the one before."""
    if before.is_broken:
        return True
    if not link.was_dialled_by_us and link.instance and link.opened_ns - before.opened_ns >= SAME_MOMENT:
        # The same broker dials only when it has no connection: it has lost this one, or is somewhere else now.
        return True
    if link.was_dialled_by_us == before.was_dialled_by_us:
        return False
    is_preferred = (min(me, link.peer) == me) == link.was_dialled_by_us
    return is_preferred and abs(link.opened_ns - before.opened_ns) < SAME_MOMENT
