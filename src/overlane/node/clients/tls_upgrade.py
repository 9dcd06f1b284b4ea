"""Connections that begin without TLS and become TLS when the server has introduced itself: NATS.

    plain -- the first line of the server, INFO --> handshake of TLS -- done --> open, as over TLS -- any end --> closed

What the server wants to send beyond its first line waits for the end of the handshake, and so does what the client has
sent behind it. Nothing is read between that line and the handshake, and a client that sends something before the line
is closed: it could not be told from what was injected on the way.
"""

import asyncio
import ssl
from typing import cast

from overlane.core.units import SECOND
from overlane.node.clients.client_end import ClientEnd
from overlane.node.clients.connection_limiter import ConnectionDecision, ConnectionLimiter, peer_of
from overlane.pubsub.counters import Refusal
from overlane.turn.client_link import WRITE_HIGH_BYTES, WRITE_LOW_BYTES

END_OF_LINE = b"\r\n"


class TlsUpgradePipe(asyncio.Protocol):
    """The protocol of both transports, one after the other, and to the client's link a pipe like any other."""

    def __init__(self, limiter: ConnectionLimiter, name: str, protocol: str, tls: ssl.SSLContext) -> None:
        self._limiter = limiter
        self._name = name
        self._protocol = protocol
        self._tls = tls
        self._since_ns = limiter.driver.clock.now()
        self._transport: asyncio.Transport | None = None
        self._link: ClientEnd | None = None
        self._upgrade: asyncio.Task[None] | None = None
        self._is_secure = False
        self._is_paused = False
        self._is_closing = False
        self._unsent: list[bytes] = []
        self._unread: list[bytes] = []

    # The transports' side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        plain = self._transport = cast(asyncio.Transport, transport)  # uvloop's has all of it, but is no subclass
        decision = self._limiter.admit()
        if decision is ConnectionDecision.CLOSE:
            plain.abort()
            return
        is_turned_away = decision is ConnectionDecision.REJECT
        self._link = self._limiter.driver.attach(
            self, peer_of(plain, self._name), self._since_ns, is_turned_away, self._protocol
        )

    def data_received(self, data: bytes) -> None:
        if self._upgrade is None:
            if self._link is not None:
                self._limiter.refuse(Refusal.PROTOCOL, "bytes before TLS", self._link)
            self.abort()
        elif not self._is_secure:
            self._unread.append(data)
        elif self._link is not None:
            self._link.received(data)

    def pause_writing(self) -> None:
        if self._link is not None and self._is_secure:
            self._link.full()

    def resume_writing(self) -> None:
        if self._link is not None and self._is_secure:
            self._link.drained()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        link, self._link = self._link, None
        if link is not None:
            link.lost()

    def _begin(self) -> None:
        self._upgrade = asyncio.get_running_loop().create_task(self._secure())

    async def _secure(self) -> None:
        loop, plain = asyncio.get_running_loop(), self._transport
        if plain is None:
            return
        within_s = self._limiter.left_ns(self._since_ns) / SECOND
        try:
            secure = await loop.start_tls(
                plain, self, self._tls, server_side=True, ssl_handshake_timeout=max(within_s, 0.001)
            )
        except (OSError, ssl.SSLError, TimeoutError):
            secure = None
        if secure is None or self._link is None:
            if self._link is not None:
                self._limiter.refuse(Refusal.CONNECT_LATE, "the TLS handshake did not finish in time", self._link)
            plain.abort()
            self.connection_lost(None)
            return
        self._transport = secure
        self._is_secure = True
        secure.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        self._link.connection.peer = peer_of(secure, self._name)
        unsent, self._unsent = self._unsent, []
        for data in unsent:
            secure.write(data)
        if self._is_closing:
            secure.close()
            return
        unread, self._unread = b"".join(self._unread), []
        if unread:
            self._link.received(unread)
        if self._is_paused:
            secure.pause_reading()

    # The client link's side

    def divert(self, end: ClientEnd) -> None:
        """All further bytes of the client, and its end, go there."""
        self._link = end

    def write(self, data: bytes) -> None:
        transport = self._transport
        if transport is None:
            return
        if self._is_secure:
            transport.write(data)
        elif self._upgrade is not None:
            self._unsent.append(data)
        else:
            line, end, rest = data.partition(END_OF_LINE)
            # Not when the connection is made: uvloop begins to read after that, whatever was said.
            transport.pause_reading()
            transport.write(line + end)
            if rest:
                self._unsent.append(rest)
            self._begin()

    def get_write_buffer_size(self) -> int:
        buffered = self._transport.get_write_buffer_size() if self._transport is not None and self._is_secure else 0
        return buffered + sum(map(len, self._unsent))

    def pause_reading(self) -> None:
        self._is_paused = True
        if self._transport is not None and self._is_secure:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if self._transport is not None and self._is_secure:
            self._transport.resume_reading()

    def can_write_eof(self) -> bool:
        return False

    def write_eof(self) -> None:
        raise NotImplementedError("TLS has no half-close")

    def close(self) -> None:
        """When the handshake is over, the client reads why."""
        if self._is_secure and self._transport is not None:
            self._transport.close()
        elif self._upgrade is None:
            self.abort()
        self._is_closing = True

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
