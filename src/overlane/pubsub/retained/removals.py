"""Removals: times when retained messages were removed, so that no earlier ones from other brokers replace them.

Another broker, or the routing broker of a topic, may send a message that it stored before it was informed of a removal,
also after a restart of this broker. So with other brokers, removals are records. Beyond a limit the oldest are dropped.
"""

from collections.abc import Callable, Iterator

from overlane.core.events import Erase, RecordChange, Save
from overlane.core.records import THE_BROKER, RecordKind
from overlane.core.units import Nanos

TABLE = "mqtt.removal"

REMEMBERED_MAX = 10_000
CHARS_MAX = 4 * 2**20
"""Topics whose message was taken away, and their characters."""
_STAMP_BYTES = 8


class Removals:
    def __init__(self, are_records: Callable[[], bool]) -> None:
        self._are_records = are_records
        self._removed: dict[str, Nanos] = {}
        self._recorded: set[str] = set()
        self._chars = 0

    def stamp_of(self, topic: str) -> Nanos:
        """0 if nothing is known of it."""
        return self._removed.get(topic, 0)

    def __contains__(self, topic: str) -> bool:
        return topic in self._removed

    def __iter__(self) -> Iterator[str]:
        return iter(self._removed)

    def add(self, topic: str, stamp: Nanos) -> list[RecordChange]:
        changes: list[RecordChange] = []
        if self._are_records():
            self._recorded.add(topic)
            changes.append(Save(TABLE, topic.encode(), stamp.to_bytes(_STAMP_BYTES, "big")))
        self._enter(topic, stamp)
        while len(self._removed) > REMEMBERED_MAX or self._chars > CHARS_MAX:
            oldest = next(iter(self._removed))
            del self._removed[oldest]
            self._chars -= len(oldest)
            if oldest in self._recorded:
                self._recorded.discard(oldest)
                changes.append(Erase(TABLE, oldest.encode()))
        return changes

    def _enter(self, topic: str, stamp: Nanos) -> None:
        if self._removed.pop(topic, None) is None:
            self._chars += len(topic)
        self._removed[topic] = stamp

    def restore(self, key: bytes, value: bytes) -> None:
        topic, stamp = _read(key, value)
        self._recorded.add(topic)
        self._enter(topic, stamp)


def _read(key: bytes, value: bytes) -> tuple[str, Nanos]:
    if len(value) != _STAMP_BYTES:
        raise ValueError("a removal without a stamp")
    return key.decode(), int.from_bytes(value, "big")


REMOVAL_KIND = RecordKind(TABLE, lambda _: THE_BROKER, _read)
