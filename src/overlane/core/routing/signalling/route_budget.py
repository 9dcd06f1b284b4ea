"""The budget of a route table: how much memory descriptions of routes may take, and who gives way.

Any broker may describe routes through this one, as many and as long as it likes. Each description is charged to the
broker it begins at. While there is room, all are taken. Where there is none, the origin with the largest share gives
way: its own new routes are refused, and its oldest ones make room for those of others. Routes of this broker always
have room.
"""

from overlane.core.wire.control_messages import Establish

BYTES_MAX = 64 << 20
SWEPT = 16
"""When room is made, one part in so many is freed at once: to look for the oldest routes takes a look at all."""
ENTRY_BYTES = 1024
NAME_BYTES = 64
NUMBER_BYTES = 36


def size_of(message: Establish) -> int:
    """About what one version of a route takes in memory."""
    numbers = len(message.kept) + len(message.added) + len(message.obsolete)
    numbers += len(message.destinations) + len(message.ahead_us)
    names = sum(map(len, message.brokers)) + NAME_BYTES * len(message.brokers)
    return ENTRY_BYTES + names + NUMBER_BYTES * numbers


class RouteBudget:
    def __init__(self, me: int, bytes_max: int = BYTES_MAX) -> None:
        self._me = me
        self._bytes_max = bytes_max
        self._held: dict[int, int] = {}
        self.held_bytes = 0

    def take(self, origin: int, size: int) -> None:
        self._held[origin] = self._held.get(origin, 0) + size
        self.held_bytes += size

    def give_back(self, origin: int, size: int) -> None:
        self.held_bytes -= size
        self._held[origin] -= size
        if not self._held[origin]:
            del self._held[origin]

    def has_room(self, size: int) -> bool:
        return self.held_bytes + size <= self._bytes_max

    def is_tidy(self, size: int) -> bool:
        """Whether enough was freed."""
        return self.held_bytes + size <= self._bytes_max - self._bytes_max // SWEPT

    def who_gives_way(self, origin: int, size: int) -> int | None:
        """The origin whose routes make room for one of another; None if that one has the largest share itself."""
        others = {one: held for one, held in self._held.items() if one not in (origin, self._me)}
        largest = max(others, key=lambda one: (others[one], one), default=None)
        if largest is None or (origin != self._me and others[largest] <= self._held.get(origin, 0) + size):
            return None
        return largest
