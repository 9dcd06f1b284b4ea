"""The log of a stream: the messages of one subscription, numbered in the order of arrival, kept until committed.

    first                 written            next
      |  can be read        |  on its way      |
      |  repeatedly         |  to the disk     |

A message gets the next offset and is a record of its own in the store. Readers see it when it is on disk, so an offset
that was read never refers to another message, even after a crash. Committed messages are erased, from the front. If the
log is full, its oldest messages are removed and counted as lost: an absent reader does not block publishers, and a
reader that is too late gets an error.

Offsets start again if a stream of the same name is created again: `since_ns` distinguishes them. The expiry of a
message does not apply here; otherwise a range could not be read twice with the same result.
"""

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

import msgspec

from overlane.core.events import Erase, RecordChange, Save
from overlane.core.records import Owner, OwnerKind, RecordKind
from overlane.core.units import Nanos
from overlane.errors import OverlaneError
from overlane.pubsub.limits import Limits
from overlane.pubsub.message import Message

STREAMS = "mqtt.stream"
LOGS = "mqtt.streamlog"

_OFFSET_BYTES = 8


class Scope(StrEnum):
    HERE = "here"
    """What clients publish at this broker."""
    EVERYWHERE = "everywhere"
    """What clients publish at any broker."""


class Gone(OverlaneError):
    """Offsets that are no more, or were never given: what is wrong with them."""

    error_code = "OVL-403"


class Logged(NamedTuple):
    """A message in a log. `properties`: as `Message.encoded`."""

    arrived_ns: Nanos
    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, str, bytes, int, bool, bytes]).decode
_decode_stream = msgspec.msgpack.Decoder(tuple[str, Scope, str | None, int, int, int]).decode


class StreamLog:
    """`user` None: an operator's, who may read everything."""

    def __init__(
        self,
        name: str,
        topic_filter: str,
        scope: Scope,
        user: str | None,
        since_ns: Nanos,
        limits: Callable[[], Limits],
    ) -> None:
        self.name = name
        self.filter = topic_filter
        self.scope = scope
        self.user = user
        self.since_ns = since_ns
        self.first = 0
        self.next = 0
        self.lost = 0
        """Messages that made room before they were committed."""
        self.bytes = 0
        self._records: dict[int, bytes] = {}
        """By offset; a hole is a record that was damaged on disk."""
        self._unwritten: deque[tuple[int, int]] = deque()
        """Turns whose records are not known to be on disk, and the first offset of each."""
        self._limits = limits
        self.watchers: set[Callable[[], object]] = set()
        """Called when a message was appended; it can be read when it is on disk."""

    def __len__(self) -> int:
        return len(self._records)

    # Writing

    def append(self, message: Message, qos: int, retain: bool, turn: int, now: Nanos) -> tuple[int, list[RecordChange]]:
        """How many messages had to make room for it; and its records."""
        if self.scope is Scope.HERE and not message.sender:
            return 0, []  # it came from another broker, where it is logged
        logged = Logged(now, message.topic, message.payload, qos, retain, message.encoded)
        record = _encode(logged)
        limits = self._limits()
        effects: list[RecordChange] = []
        while self._records and (
            len(self._records) >= limits.stream_messages or self.bytes + len(record) > limits.stream_bytes
        ):
            effects += self._take(self.first)
            self.first += 1
        lost = len(effects)
        offset = self.next
        self.next += 1
        self._records[offset] = record
        self.bytes += len(record)
        effects.append(Save(LOGS, self._key(offset), record))
        if not self._unwritten or self._unwritten[-1][0] != turn:
            self._unwritten.append((turn, offset))
        if lost:
            self.lost += lost
            effects.append(self.saved())
        for watcher in self.watchers:
            watcher()
        return lost, effects

    def commit(self, to: int, durable_turn: int) -> list[RecordChange]:
        """Everything before this offset has been dealt with, and need not be kept; Gone if it was never given."""
        if to > self.written(durable_turn):
            raise Gone(f"nothing can be committed up to {to}: the log ends at {self.written(durable_turn)}")
        if to <= self.first:
            return []
        effects = [effect for offset in range(self.first, to) for effect in self._take(offset)]
        self.first = to
        return [*effects, self.saved()]

    def _take(self, offset: int) -> list[RecordChange]:
        """None where there was none any more."""
        record = self._records.pop(offset, None)
        if record is None:
            return []
        self.bytes -= len(record)
        return [Erase(LOGS, self._key(offset))]

    # Reading

    def written(self, durable_turn: int) -> int:
        """The offset after the last message that is on disk."""
        while self._unwritten and self._unwritten[0][0] <= durable_turn:
            self._unwritten.popleft()
        return max(self.first, self._unwritten[0][1]) if self._unwritten else self.next

    def read(
        self, start: int, end: int, durable_turn: int, messages_max: int, bytes_max: int
    ) -> tuple[list[tuple[int, Logged]], int]:
        """Messages from `start` on, before `end`, and the offset to go on from; at least one if there is one."""
        written = self.written(durable_turn)
        if start < self.first:
            raise Gone(f"offset {start} is not kept any more: the log begins at {self.first}")
        if start > written:
            raise Gone(f"offset {start} was never given: the log ends at {written}")
        found: list[tuple[int, Logged]] = []
        offset, end, size_bytes = start, min(end, written), 0
        while offset < end and len(found) < messages_max:
            record = self._records.get(offset)
            if record is not None:
                size_bytes += len(record)
                if found and size_bytes > bytes_max:
                    break
                found.append((offset, Logged(*_decode(record))))
            offset += 1
        return found, offset

    # Records

    def saved(self) -> RecordChange:
        value = self.filter, str(self.scope), self.user, self.since_ns, self.first, self.lost
        return Save(STREAMS, self.name.encode(), _encode(value))

    def erased(self) -> list[RecordChange]:
        erased: list[RecordChange] = [Erase(LOGS, self._key(offset)) for offset in self._records]
        return [*erased, Erase(STREAMS, self.name.encode())]

    def restore(self, offset: int, record: bytes) -> None:
        self._records[offset] = record
        self.bytes += len(record)
        self.next = max(self.next, offset + 1)

    def _key(self, offset: int) -> bytes:
        return self.name.encode() + b"\0" + offset.to_bytes(_OFFSET_BYTES)


def restored(key: bytes, value: bytes, limits: Callable[[], Limits]) -> StreamLog:
    name, (topic_filter, scope, user, since_ns, first, lost) = _read_stream(key, value)
    log = StreamLog(name, topic_filter, scope, user, since_ns, limits)
    log.first = log.next = first
    log.lost = lost
    return log


def owner(key: bytes) -> tuple[str, int]:
    """Whose record it is, and its offset."""
    if len(key) <= _OFFSET_BYTES or key[-_OFFSET_BYTES - 1]:
        raise ValueError("a key without a stream and an offset")
    return key[: -_OFFSET_BYTES - 1].decode(), int.from_bytes(key[-_OFFSET_BYTES:])


def _read_stream(key: bytes, value: bytes) -> tuple[str, tuple[str, Scope, str | None, Nanos, int, int]]:
    return key.decode(), _decode_stream(value)


STREAM_KIND = RecordKind(STREAMS, lambda key: Owner(OwnerKind.STREAM, key.decode()), _read_stream)
LOG_KIND = RecordKind(
    LOGS, lambda key: Owner(OwnerKind.STREAM, owner(key)[0]), lambda key, value: (owner(key), _decode(value))
)
