"""Connections of clients that another broker of the domain passes on to this one, which has their sessions.

They come in at the overlay address, behind the greeting of a broker that has proven to be one of this domain, and begin
with an introduction. From then on they are like any other connection of a client, and count as one.
"""

import asyncio
import logging

from overlane.errors import ProtocolViolation
from overlane.node.clients.connection_limiter import ConnectionDecision, ConnectionLimiter
from overlane.node.clients.introduction import read_introduction
from overlane.node.clients.listeners import ClientProtocol, read_bytes
from overlane.node.driver import Driver
from overlane.turn.client_link import WRITE_HIGH_BYTES, WRITE_LOW_BYTES

INTRODUCED_WITHIN_S = 5.0

log = logging.getLogger("overlane.node")


class PassedInProtocol(ClientProtocol):
    """Takes a transport over from the link that has read the greeting."""

    __slots__ = ("_head", "_late", "_transport", "_via")

    def __init__(self, limiter: ConnectionLimiter, via: str) -> None:
        super().__init__(limiter, "overlay")
        self._via = via
        self._head = bytearray()
        self._transport: asyncio.Transport | None = None
        self._late: asyncio.TimerHandle | None = None

    def begin(self, transport: asyncio.Transport, data: bytes) -> None:
        """The greeting is over; this lies behind it."""
        self._transport = transport
        transport.set_protocol(self)
        transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        self._late = asyncio.get_running_loop().call_later(INTRODUCED_WITHIN_S, transport.abort)
        if data:
            self._introduced(data)

    def buffer_updated(self, nbytes: int) -> None:
        if self._link is None:
            self._introduced(read_bytes(nbytes))
        else:
            super().buffer_updated(nbytes)

    def _introduced(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._head += data
        try:
            read = read_introduction(self._head)
        except ProtocolViolation as violation:
            log.warning("%s forwards a client: %s", self._via, violation.reason)
            transport.abort()
            return
        if read is None:
            return
        if self._late is not None:
            self._late.cancel()
        introduction, end = read
        decision = self._limiter.admit()
        if decision is ConnectionDecision.CLOSE:
            transport.abort()
            return
        peer = introduction.peer(self._via)
        is_turned_away = decision is ConnectionDecision.REJECT
        self._link = self._limiter.driver.attach(transport, peer, self._since_ns, is_turned_away)
        rest = bytes(self._head[end:])
        self._head.clear()
        if rest:
            self._link.received(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._late is not None:
            self._late.cancel()
        self._transport = None
        super().connection_lost(exc)


class PassedIn:
    """The way in for clients that other brokers of the domain pass on."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._limiter = ConnectionLimiter(driver)

    def take(self, via: str, transport: asyncio.Transport, data: bytes) -> bool:
        """False: this broker is none of the domain, and may not speak for clients."""
        if not self._driver.server.lookup.knows(via):
            log.warning("%s forwards a client, but is not a broker of this domain", via)
            return False
        PassedInProtocol(self._limiter, via).begin(transport, data)
        return True
