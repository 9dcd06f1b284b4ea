"""Reachability: which of the routing brokers that an edge needs it cannot reach. Pure.

A link that was up may be down for a moment, in which it is dialled again; one that has not been up yet may take longer.
After that its routing broker counts as unreachable, until the link is up or nobody needs it.
"""

from collections.abc import Callable, Set

from overlane.core.units import MS, SECOND, Nanos

DOWN_MAX: Nanos = 200 * MS
"""How long a link that was up may be down before its routing broker counts as unreachable: one try to dial it again."""
NEVER_UP_MAX: Nanos = 3 * SECOND
"""The same for a link that has not been up yet."""


class Reachability:
    def __init__(self) -> None:
        self._down_since: dict[str, Nanos] = {}
        self._was_up: set[str] = set()

    def look(self, needed: Set[str], is_up: Callable[[str], bool], now: Nanos) -> tuple[str, ...]:
        """Those that cannot be reached, sorted."""
        self._was_up &= needed
        self._down_since = {name: since for name, since in self._down_since.items() if name in needed}
        unreachable = []
        for name in sorted(needed):
            if is_up(name):
                self._was_up.add(name)
                self._down_since.pop(name, None)
                continue
            since = self._down_since.setdefault(name, now)
            if now - since >= (DOWN_MAX if name in self._was_up else NEVER_UP_MAX):
                unreachable.append(name)
        return tuple(unreachable)
