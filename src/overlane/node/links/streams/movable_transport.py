"""A transport whose stream can continue over another connection, so that nothing is lost, repeated or out of order.

Written data is kept until the neighbour confirms it (notices of `watched_path`). `freeze` ends the connection: nothing
more is read from it, and written data is only kept. `resume` sends the data that the neighbour does not have over a new
connection. If more than KEPT_BYTES_MAX is unacknowledged, the oldest data is dropped: if it is needed later, the link
is closed and opened again, as without this class.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any, cast

from overlane.node.links.streams.tcp import tune

KEPT_BYTES_MAX = 8 * 1024 * 1024


class _Nobody(asyncio.Protocol):
    """The protocol of a connection that was left."""


class MovableTransport(asyncio.Transport):
    """`sent_bytes`: how much of the stream was written before."""

    def __init__(self, inner: asyncio.Transport, sent_bytes: int) -> None:
        super().__init__()
        self._inner: asyncio.Transport | None = inner
        self._extra = inner
        """Asked for information about the connection, also after it has ended."""
        self._left: asyncio.Transport | None = None
        self._protocol = inner.get_protocol()
        self._loop = asyncio.get_running_loop()
        self._kept: deque[bytes] = deque()
        self._kept_from = self._sent = sent_bytes
        self._is_reading = True
        self._is_closed = False

    @property
    def kept_bytes(self) -> int:
        return self._sent - self._kept_from

    @property
    def is_frozen(self) -> bool:
        return self._inner is None

    def acknowledged(self, count: int) -> None:
        """The neighbour has so much of the stream."""
        kept = self._kept
        while kept and self._kept_from + len(kept[0]) <= count:
            self._kept_from += len(kept.popleft())

    def freeze(self) -> None:
        """Leave the connection. It is ended only when the neighbour has left it too: to it, an end would be one of the
        link."""
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.set_protocol(_Nobody())
            self._left = inner

    def _end_left(self) -> None:
        left, self._left = self._left, None
        if left is not None:
            left.abort()

    def resume(self, inner: asyncio.Transport, protocol: asyncio.BufferedProtocol, peer_has: int) -> bool:
        """Continue over this connection; False if what is missing is not kept any more, or was never sent."""
        self.freeze()
        self._end_left()
        if self._is_closed or not self._kept_from <= peer_has <= self._sent:
            return False
        self.acknowledged(peer_has)
        missing = b"".join(self._kept)[peer_has - self._kept_from :]
        self._inner = self._extra = inner
        inner.set_write_buffer_limits(1, 0)
        tune(inner.get_extra_info("socket"))
        inner.set_protocol(protocol)
        if not self._is_reading:
            inner.pause_reading()
        if missing:
            inner.write(missing)
        return True

    # As every transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        said = bytes(data)
        self._kept.append(said)
        self._sent += len(said)
        while self.kept_bytes > KEPT_BYTES_MAX:
            self._kept_from += len(self._kept.popleft())
        if self._inner is not None:
            self._inner.write(said)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return self._inner.get_write_buffer_size() if self._inner is not None else 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._extra.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        if self._inner is not None:
            self._inner.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def pause_reading(self) -> None:
        self._is_reading = False
        if self._inner is not None:
            self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._is_reading = True
        if self._inner is not None:
            self._inner.resume_reading()

    def is_closing(self) -> bool:
        return self._is_closed or (self._inner is not None and self._inner.is_closing())

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()
        self._end()

    def abort(self) -> None:
        if self._inner is not None:
            self._inner.abort()
        self._end()

    def _end(self) -> None:
        """Without a connection nobody else tells the protocol."""
        self._end_left()
        if self._inner is None and not self._is_closed:
            self._loop.call_soon(cast(asyncio.BufferedProtocol, self._protocol).connection_lost, None)
        self._is_closed = True
