"""Which offset of each partition may be committed: all records before it are done; pure.

    arrived     a record that was read; it counts as held until it is done or forgotten
    done        the overlay has it
    forgotten   its partition was given to another member of the consumer group, which reads it from the last commit

An offset is committed only when every record that was read before it is done. So a commit never passes over a record
that could still get lost. Offsets may have gaps (compaction, transactions).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

Partition: TypeAlias = tuple[str, int]


class KafkaReceipt(NamedTuple):
    topic: str
    partition: int
    offset: int

    @property
    def place(self) -> Partition:
        return self.topic, self.partition


@dataclass(slots=True)
class _Held:
    size_bytes: int
    is_done: bool = False


@dataclass(slots=True)
class CommitOrder:
    held: int = 0
    held_bytes: int = 0
    _pending: dict[Partition, dict[int, _Held]] = field(default_factory=dict)
    """In the order of their arrival, which is the order of their offsets."""

    def arrived(self, receipt: KafkaReceipt, size_bytes: int) -> bool:
        """False if it is here already, as after a partition was taken away and given back."""
        pending = self._pending.setdefault(receipt.place, {})
        if receipt.offset in pending:
            return False
        pending[receipt.offset] = _Held(size_bytes)
        self.held += 1
        self.held_bytes += size_bytes
        return True

    def done(self, receipt: KafkaReceipt) -> int | None:
        """The offset to commit for its partition, if that has changed: the next one to read."""
        pending = self._pending.get(receipt.place, {})
        if receipt.offset not in pending:
            return None
        pending[receipt.offset].is_done = True
        committed = None
        while pending:
            offset, first = next(iter(pending.items()))
            if not first.is_done:
                break
            del pending[offset]
            self._leave(first)
            committed = offset + 1
        return committed

    def holds(self, places: Iterable[Partition]) -> bool:
        return any(self._pending.get(place) for place in places)

    def forget(self, place: Partition) -> None:
        for one in self._pending.pop(place, {}).values():
            self._leave(one)

    def _leave(self, one: _Held) -> None:
        self.held -= 1
        self.held_bytes -= one.size_bytes
