"""Uses: which brokers have clients that use which bundles, by broker and by bundle. Kept up to date report by report:
with a thousand edges a decision of the leader need not go through all of their bundles again.
"""

from collections.abc import Mapping, Set
from typing import Self

from overlane.core.bundles import NONE

_NOBODY: frozenset[str] = frozenset()


class Uses:
    def __init__(self) -> None:
        self._bundles: dict[str, frozenset[int]] = {}
        self._users: dict[int, set[str]] = {}

    @classmethod
    def of(cls, bundles: Mapping[str, frozenset[int]]) -> Self:
        """By broker."""
        made = cls()
        for broker, used in bundles.items():
            made.replace(broker, used)
        return made

    def replace(self, broker: str, bundles: frozenset[int]) -> None:
        """The bundles that the clients of this broker use from now on."""
        before = self._bundles.get(broker, NONE)
        for bundle in before - bundles:
            self._users[bundle].discard(broker)
            if not self._users[bundle]:
                del self._users[bundle]
        for bundle in bundles - before:
            self._users.setdefault(bundle, set()).add(broker)
        if bundles:
            self._bundles[broker] = bundles
        else:
            self._bundles.pop(broker, None)

    def bundles(self) -> Set[int]:
        """Those that anybody uses."""
        return self._users.keys()

    def users(self, bundle: int) -> Set[str]:
        return self._users.get(bundle, _NOBODY)
