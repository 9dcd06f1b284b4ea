"""Listeners: accept connections of clients over TCP or TLS, plain or as WebSocket.

The time limit for CONNECT starts when the connection is accepted, and includes the TLS handshake. Authentication is
done by the server of the protocol.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, cast

from overlane.binding import bound
from overlane.core.units import SECOND
from overlane.errors import Unavailable
from overlane.network.listeners import ListenerKind
from overlane.network.schema import Endpoint
from overlane.node.clients.client_end import ClientEnd
from overlane.node.clients.connection_limiter import ConnectionDecision, ConnectionLimiter, peer_of
from overlane.node.clients.tls_upgrade import TlsUpgradePipe
from overlane.node.driver import Driver
from overlane.pubsub.counters import Refusal
from overlane.turn.client_link import WRITE_HIGH_BYTES, WRITE_LOW_BYTES
from overlane.turn.protocols import MQTT

if TYPE_CHECKING:
    from overlane.node.clients.websocket import WebSocketPipe
    from overlane.node.web.connections import WebConnection

BACKLOG = 4_096
READ_BYTES = 64 * 1024
READ_LITTLE_BYTES = 4 * 1024
"""At once from one client, where many have to wait with what was read of them."""

_buffer = memoryview(bytearray(READ_BYTES))
_little = _buffer[:READ_LITTLE_BYTES]

log = logging.getLogger("overlane.node")


def read_bytes(nbytes: int) -> bytes:
    """What was read just now."""
    return bytes(_buffer[:nbytes])


class ClientProtocol(asyncio.BufferedProtocol):
    """A protocol straight upon a transport. All connections read into one buffer, in which nothing is kept."""

    __slots__ = ("_limiter", "_link", "_name", "_protocol", "_since_ns", "tls_late")

    def __init__(self, limiter: ConnectionLimiter, name: str, protocol: str = MQTT) -> None:
        """`name` of the listener; `protocol` that clients speak there."""
        self._limiter = limiter
        self._name = name
        self._protocol = protocol
        self._since_ns = limiter.driver.clock.now()
        self._link: ClientEnd | None = None
        self.tls_late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's has all of it, but is no subclass
        if self.tls_late is not None:
            self.tls_late.cancel()
            self.tls_late = None
        decision = self._limiter.admit()
        if decision is ConnectionDecision.CLOSE:
            transport.abort()
            return
        transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        self._link = self._limiter.driver.attach(
            transport,
            peer_of(transport, self._name),
            self._since_ns,
            decision is ConnectionDecision.REJECT,
            self._protocol,
        )

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return _little if self._limiter.driver.backpressure.reads_little else _buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._link is not None:
            self._link.received(bytes(_buffer[:nbytes]), nbytes in (READ_BYTES, READ_LITTLE_BYTES))

    def divert(self, end: ClientEnd) -> None:
        """All further bytes of the client, and its end, go there."""
        self._link = end

    def pause_writing(self) -> None:
        if self._link is not None:
            self._link.full()

    def resume_writing(self) -> None:
        if self._link is not None:
            self._link.drained()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self._link is not None:
            self._link.lost()
            self._link = None


Accepted: TypeAlias = "ClientProtocol | WebSocketPipe | WebConnection"


def _web_socket_pipe() -> "Callable[[ConnectionLimiter, str], Accepted]":
    """Imported for a listener that needs it alone: the library takes some MiB."""
    from overlane.node.clients.websocket import WebSocketPipe

    return WebSocketPipe


class Listener:
    """One address where clients come in. `renew` changes its certificate and lets nobody stand before a closed door: a
    new server takes over the same sockets before the old one lets go of them."""

    def __init__(
        self,
        driver: Driver,
        kind: ListenerKind,
        endpoint: Endpoint,
        protocol: "Callable[[ConnectionLimiter, str], Accepted] | None" = None,
    ) -> None:
        """`protocol`: what reads the bytes of a connection, where that is no server of `turn.protocols`."""
        self._driver = driver
        self.name = kind.name
        self._endpoint = endpoint
        self._limiter = ConnectionLimiter(driver)
        self._kind = kind
        self._make = protocol or (_web_socket_pipe() if kind.is_websocket else None)
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self.is_secure = False

    async def open(self, tls: ssl.SSLContext | None) -> None:
        """Let clients in; Unavailable if the address cannot be had."""
        self.is_secure = tls is not None
        if self._make is None or self._kind.is_websocket:
            self._driver.turn.protocol(self._kind.protocol)  # it may have work to do before the first client comes
        self._sockets = await bound(self.name, self._endpoint, BACKLOG)
        self._servers = await self._serve(tls)

    async def prepare(self, tls: ssl.SSLContext) -> list[asyncio.Server]:
        """Servers with another certificate that do not accept connections yet; Unavailable changes nothing."""
        try:
            return await self._serve(tls, is_open=False)
        except OSError as error:
            raise Unavailable(f"{self.name} address {self._endpoint}", error.strerror or str(error)) from None

    async def renew(self, prepared: list[asyncio.Server]) -> None:
        """Those who come from now on meet these servers; those who are there stay."""
        before, self._servers = self._servers, prepared
        for server in prepared:
            await server.start_serving()
        for server in before:
            server.close()

    @property
    def is_open(self) -> bool:
        """Whether clients can connect."""
        return bool(self._servers) and all(server.is_serving() for server in self._servers)

    def close(self) -> None:
        for server in self._servers:
            server.close()
        for one in self._sockets:
            one.close()

    async def _serve(self, tls: ssl.SSLContext | None, *, is_open: bool = True) -> list[asyncio.Server]:
        loop = asyncio.get_running_loop()
        within_s = self._driver.server.state.limits.connect_within_ns / SECOND
        servers = []
        for one in self._sockets:
            if tls is not None and self._kind.is_upgraded:
                server = await loop.create_server(
                    partial(TlsUpgradePipe, self._limiter, self.name, self._kind.protocol, tls),
                    sock=one.dup(),
                    backlog=BACKLOG,
                    start_serving=is_open,
                )
            else:
                server = await loop.create_server(
                    self._knocking if tls is None else self._knocking_by_tls,
                    sock=one.dup(),
                    ssl=tls,
                    backlog=BACKLOG,
                    ssl_handshake_timeout=within_s if tls else None,
                    start_serving=is_open,
                )
            servers.append(server)
        return servers

    def _knocking(self) -> "Accepted":
        kind = self._kind
        if self._make is not None:
            return self._make(self._limiter, kind.name)
        return ClientProtocol(self._limiter, kind.name, kind.protocol)

    def _knocking_by_tls(self) -> "Accepted":
        """asyncio reports a connection after the TLS handshake. A handshake that never ends must be counted too."""
        protocol = self._knocking()
        within_s = self._driver.server.state.limits.connect_within_ns / SECOND
        protocol.tls_late = asyncio.get_running_loop().call_later(
            within_s, self._limiter.refuse, Refusal.CONNECT_LATE, "the TLS handshake did not finish in time"
        )
        return protocol
