"""The write batch of a turn: the records that the parts of pubsub save and erase until the turn ends.

As in a database, a batch only grows until it is taken whole. Parts add to it and cannot read it: what they have to know
of what they stored is returned to them as a value (decision 16). Of several changes of one record the last one counts.
"""

from collections.abc import Callable, Iterable, Sized

from overlane.core.events import RecordChange


class WriteBatch:
    __slots__ = ("_changes", "add", "extend", "pending")

    def __init__(self) -> None:
        self._changes: list[RecordChange] = []
        # Bound once: messages that are stored need them.
        self.add: Callable[[RecordChange], None] = self._changes.append
        self.extend: Callable[[Iterable[RecordChange]], None] = self._changes.extend
        self.pending: Sized = self._changes
        """Whether there is anything to be written, and how much."""

    def take(self) -> list[RecordChange]:
        """All changes since the last call, in order: for the end of the turn alone."""
        changes = self._changes.copy()
        self._changes.clear()
        return changes
