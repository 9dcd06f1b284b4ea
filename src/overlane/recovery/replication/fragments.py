"""Frames as the bytes of a connection: whole, or in fragments between which heartbeats pass.

    fragment    u32 flags and length | bytes
    flags       MORE: another fragment of this frame follows       CONTINUES: this one is not the first

A frame without flags is whole, and may come between the fragments of another one. If the rate of the line is known,
`Waiting` keeps frames that it cannot send yet. A heartbeat overtakes waiting batches: its number is lowered to that of
the batch before the first of these. It overtakes no other frames: if parts of a snapshot are missing, a heartbeat means
for the mirror that the rest is lost. Of a snapshot only a few parts wait at a time.

Lengths are checked before data is stored, and memory is allocated for received data, not for announced lengths.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import structs

from overlane.errors import ProtocolViolation
from overlane.recovery.hosts.questions import Message, decode_message, encode_message
from overlane.recovery.replication.frames import FRAME_BYTES_MAX, Append, Heartbeat

LENGTH_BYTES = 4
FRAGMENT_BYTES_MAX = 64 * 1024
MORE, CONTINUES = 1 << 31, 1 << 30
_LENGTH_MASK = CONTINUES - 1


def whole(frame: bytes) -> bytes:
    return len(frame).to_bytes(LENGTH_BYTES) + frame


def fragments(frame: bytes, size: int) -> Iterator[bytes]:
    """Of at most `size` bytes each, besides their lengths."""
    for start in range(0, len(frame), size):
        part = frame[start : start + size]
        flags = (MORE if start + size < len(frame) else 0) | (CONTINUES if start else 0)
        yield (flags | len(part)).to_bytes(LENGTH_BYTES) + part


@dataclass(frozen=True, slots=True)
class _Fragment:
    data: bytes
    batch: int | None = None
    """Its number, where this belongs to one."""
    is_heartbeat: bool = False


class Waiting:
    """What is to be sent over a line that does not take it at once."""

    def __init__(self, fragment_bytes: int) -> None:
        self.size_bytes = 0
        self._fragment_bytes = min(fragment_bytes, FRAGMENT_BYTES_MAX)
        self._begun = b""
        """The rest of a fragment of which a part was taken."""
        self._queue: deque[_Fragment] = deque()

    def add(self, message: Message) -> None:
        """Unsendable."""
        if isinstance(message, Heartbeat) and all(one.batch is not None or one.is_heartbeat for one in self._queue):
            self._let_pass(message)
            return
        batch = message.sequence if isinstance(message, Append) else None
        for data in fragments(encode_message(message), self._fragment_bytes):
            self._queue.append(_Fragment(data, batch, isinstance(message, Heartbeat)))
            self.size_bytes += len(data)

    def _let_pass(self, message: Heartbeat) -> None:
        if self._queue and self._queue[0].is_heartbeat:
            self.size_bytes -= len(self._queue.popleft().data)  # an earlier one, which says less
        first = next((one.batch for one in self._queue if one.batch is not None), None)
        if first is not None and first <= message.sequence:
            message = structs.replace(message, sequence=first - 1)
        data = whole(encode_message(message))
        self._queue.appendleft(_Fragment(data, is_heartbeat=True))
        self.size_bytes += len(data)

    def take(self, size: int) -> bytes:
        """At most so many bytes, of one fragment."""
        if not self._begun and self._queue:
            self._begun = self._queue.popleft().data
        taken, self._begun = self._begun[:size], self._begun[size:]
        self.size_bytes -= len(taken)
        return taken

    def clear(self) -> None:
        self._begun, self.size_bytes = b"", 0
        self._queue.clear()


class Reassembly:
    """Messages of what comes over one connection."""

    def __init__(self, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._received = bytearray()
        self._begun: bytearray | None = None
        """Of a frame of which more fragments follow."""

    def receive(self, data: bytes) -> list[Message]:
        """Those that are complete now. ProtocolViolation."""
        self._received += data
        messages: list[Message] = []
        at = 0
        with memoryview(self._received) as view:
            while len(view) - at >= LENGTH_BYTES:
                head = int.from_bytes(view[at : at + LENGTH_BYTES])
                start = at + LENGTH_BYTES
                end = start + self._checked_length(head)
                if len(view) < end:
                    break
                with view[start:end] as part:
                    at = end
                    if not head & (MORE | CONTINUES):
                        messages.append(decode_message(part))
                    elif (frame := self._joined(head, part)) is not None:
                        messages.append(decode_message(frame))
        del self._received[:at]
        return messages

    def _checked_length(self, head: int) -> int:
        length = head & _LENGTH_MASK
        if head & (MORE | CONTINUES) and bool(head & CONTINUES) is (self._begun is None):
            raise ProtocolViolation("a fragment that belongs to no frame, or begins another one")
        before = len(self._begun or b"") if head & CONTINUES else 0
        if not 0 < length <= self._bytes_max - before:
            raise ProtocolViolation(f"a frame of {before + length} bytes; allowed are 1 to {self._bytes_max}")
        return length

    def _joined(self, head: int, part: memoryview) -> bytearray | None:
        frame = self._begun = self._begun if self._begun is not None else bytearray()
        frame += part
        if head & MORE:
            return None
        self._begun = None
        return frame
