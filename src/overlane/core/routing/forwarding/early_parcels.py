"""Early parcels: those that came ahead of the description of their route, and wait for it.

A description goes ahead of the parcels that need it, but in another lane: where parcels travel as datagrams, one may
overtake it. It waits here until the description comes, or until it is too late for that. What waits is bounded for each
neighbour, so that one that sends parcels of invented routes displaces no others.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from overlane.core.units import SECOND, Nanos

WAIT_MAX: Nanos = 1 * SECOND
"""Longer than the description can be on its way: the sender repeats it earlier."""
PARCELS_MAX = 256
BYTES_MAX = 256 << 10
"""Of each neighbour."""


@dataclass(frozen=True, slots=True)
class EarlyParcel:
    peer: str
    body: bytes
    came_ns: Nanos


class EarlyParcels:
    def __init__(self) -> None:
        self._waiting: dict[bytes, list[EarlyParcel]] = {}
        self._held: dict[str, tuple[int, int]] = {}
        """Parcels and bytes of each neighbour."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, key: bytes, peer: str, body: bytes, now: Nanos) -> bool:
        """Whether there was room."""
        parcels, size = self._held.get(peer, (0, 0))
        if parcels >= PARCELS_MAX or size + len(body) > BYTES_MAX:
            return False
        self._held[peer] = parcels + 1, size + len(body)
        self._waiting.setdefault(key, []).append(EarlyParcel(peer, body, now))
        return True

    def take(self, key: bytes) -> list[EarlyParcel]:
        """Those of a route that is known now, in the order in which they came."""
        found = self._waiting.pop(key, [])
        for one in found:
            self._let_go(one)
        return found

    def take_expired(self, now: Nanos) -> Iterator[EarlyParcel]:
        """Those that have waited in vain."""
        for key, held in list(self._waiting.items()):
            expired = [one for one in held if now - one.came_ns > WAIT_MAX]
            if not expired:
                continue
            self._waiting[key] = held[len(expired) :]  # later ones stand behind
            if not self._waiting[key]:
                del self._waiting[key]
            for one in expired:
                self._let_go(one)
                yield one

    def _let_go(self, one: EarlyParcel) -> None:
        parcels, size = self._held[one.peer]
        if parcels == 1:
            del self._held[one.peer]
        else:
            self._held[one.peer] = parcels - 1, size - len(one.body)
