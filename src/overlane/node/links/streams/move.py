"""Moving the stream of a link to a new connection, once both ends have greeted over it.

    dialler   greeting with the id of the link | stream in u64 | what the other end does not have, then what follows
    dialled   greeting                         | stream in u64 | the same

Each end leaves the old connection before it says how much it has of the stream: nothing that comes later over the old
one counts, and the other end sends it again. A connection that ends before it has said so ends the link too, since the
old one was left.
"""

import asyncio
import struct

from overlane.node.links.overlay_link import OverlayLink

WITHIN_S = 5.0

_COUNT = struct.Struct("!Q")


class StreamMove(asyncio.Protocol):
    """Takes over a connection whose greeting is done, and gives it to the link when both have said what they have."""

    def __init__(self, link: OverlayLink, transport: asyncio.Transport) -> None:
        self._link: OverlayLink | None = link
        self._transport = transport
        self._data = b""
        self._late = asyncio.get_running_loop().call_later(WITHIN_S, transport.abort)

    def begin(self, data: bytes) -> None:
        """`data` came behind the greeting."""
        link = self._link
        movable = link.make_movable() if link is not None else None
        if link is None or movable is None:
            self._transport.abort()
            return
        movable.freeze()
        link.pause_writing()
        self._transport.set_protocol(self)
        self._transport.write(_COUNT.pack(link.stream_in))
        self.data_received(data)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if len(self._data) < _COUNT.size or self._link is None:
            return
        link, self._link = self._link, None
        self._late.cancel()
        link.moved(self._transport, _COUNT.unpack_from(self._data)[0], self._data[_COUNT.size :])

    def connection_lost(self, exc: Exception | None) -> None:
        self._late.cancel()
        link, self._link = self._link, None
        if link is not None:
            link.close(f"the connection could not be moved: {exc or 'closed by the neighbour'}")
