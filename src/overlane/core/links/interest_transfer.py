"""Interest transfer: complete sets of filters, sent to one neighbour in parts.

A set is requested, waits for its turn, and is then sent in parts. Each part is made when the link has room for it, so
that neither a large set nor a slow link costs memory, and other traffic is sent in between.

The set may change during the transfer. A part lists what is needed at the moment it is made; changes are sent beside
the parts, in the order in which they happen. A receiver of all parts, and of all changes since the first, therefore
knows the set. Changes of a set that still waits are not sent at all: its parts will contain them.
"""

from collections.abc import Callable
from typing import NamedTuple

from overlane.core.wire.control_messages import InterestUpdate
from overlane.core.wire.message_fields import PART_FILTERS_MAX

PART_BYTES_MAX = 16 * 1024
"""Filters in one message, unless it is one filter alone: with it all else that waits for the link gets its turn."""

Filters = dict[str, None]
"""In the order in which they came."""


class WholeSet(NamedTuple):
    """All filters that a broker needs. They are those of the moment, also later."""

    incarnation: int
    sequence: int
    filters: Filters


class InterestTransfers:
    def __init__(self) -> None:
        self._waiting: dict[str, None] = {}
        self._broker = ""
        """The broker whose set is being sent; "" if none."""
        self._version = (0, 0)
        self._set: Filters = {}
        self._names: list[str] = []
        """What was in the set when it was begun."""
        self._at = 0
        self._part = 0
        self.is_active = False
        """Whether there is anything to send."""

    def want(self, broker: str) -> None:
        """Tell the whole set of a broker, from the start."""
        if broker == self._broker:
            self._end()
        self._waiting[broker] = None
        self.is_active = True

    def is_waiting(self, broker: str) -> bool:
        return broker in self._waiting

    def next_part(self, whole_of: Callable[[str], WholeSet | None]) -> InterestUpdate | None:
        """The next part of the set that is being sent, or the first of the next one; None if there is none."""
        while self._broker or self._waiting:
            if not self._broker:
                self._broker = next(iter(self._waiting))
                del self._waiting[self._broker]
                whole = whole_of(self._broker)
                if whole is not None:
                    self._version, self._set = whole[:2], whole.filters
                    self._names, self._at, self._part = list(whole.filters), 0, 0
                    return self._make_part()
            else:
                whole = whole_of(self._broker)
                if whole is not None and whole.filters is self._set and whole.incarnation == self._version[0]:
                    return self._make_part()
            self._end()  # it is not whole any more, or another: whoever has a part of it hears of that
        self.is_active = False
        return None

    def _make_part(self) -> InterestUpdate:
        end = part_end(self._names, self._at)
        filters = [one for one in self._names[self._at : end] if one in self._set]
        more = end < len(self._names)
        part = InterestUpdate(self._broker, *self._version, -1, filters, [], self._part, more)
        self._at, self._part = end, self._part + 1
        if not more:
            self._end()
        self.is_active = bool(self._broker or self._waiting)
        return part

    def _end(self) -> None:
        self._broker, self._set, self._names = "", {}, []


def part_end(filters: list[str], start: int) -> int:
    """Up to where filters fit into one message: at least one does."""
    size, at = 0, start
    while at < len(filters) and at - start < PART_FILTERS_MAX:
        size += 4 * len(filters[at]) + 5
        if size > PART_BYTES_MAX and at > start:
            break
        at += 1
    return at
