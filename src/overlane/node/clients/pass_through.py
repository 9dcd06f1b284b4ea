"""Pass-through: connections of clients whose session is at another broker of the domain.

    client ==== this broker ---- greeting, introduction, CONNECT, then bytes both ways ==== broker with the session

The other broker is dialled at its overlay address, where brokers prove who they are (`links.greeting`): there is no way
to claim at a listener for clients that a connection was passed on. The introduction says who the client is, as this
broker has found out, and where it came from (`introduction`).

Bytes are passed as they come. While one end does not read, nothing more is read from the other. Keep-alive is a matter
of the client and the broker with its session. When either end closes, the other one is closed at once; when the link to
that broker has failed and is not soon back, the client's is.
"""

import asyncio
import logging
import secrets
from typing import cast

from overlane.core.events import LinkChanged
from overlane.core.links.link_health import LinkState
from overlane.errors import ProtocolViolation
from overlane.node.clients.client_end import Diverting
from overlane.node.clients.introduction import Introduction
from overlane.node.driver import Driver
from overlane.node.links.greeting import CLIENT, NONCE_BYTES, Greeting
from overlane.node.links.overlay import Overlay
from overlane.node.links.streams.tcp import tune
from overlane.pubsub.contract.questions import PassOn
from overlane.turn.client_link import LINGER_S, WRITE_HIGH_BYTES, WRITE_LOW_BYTES, ClientLink, Pipe
from overlane.turn.lingering import Drain

DIAL_S = 2.0
"""For one address of the other broker, greeting included."""
LINKED_WITHIN_S = 1.0
"""How long a link may be down before the connections that are passed on to its broker are closed."""

log = logging.getLogger("overlane.node")


class Upstream(asyncio.Protocol):
    """The connection to the broker that has the session. `greeted` is set when that has shown who it is."""

    def __init__(self, overlay: Overlay, broker: str) -> None:
        self._overlay = overlay
        self._broker = broker
        self._transport: asyncio.Transport | None = None
        self._greeting: Greeting | None = None
        self.greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.relay: Relay | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
        tune(self._transport.get_extra_info("socket"))
        if not self._overlay.may_pass_clients(self._transport):
            self._fail("it cannot prove who it is: clients are passed on with overlay_secret or overlay_tls only")
            self._transport.abort()
            return
        credentials = self._overlay.credentials(self._transport)
        self._greeting = Greeting(credentials, secrets.token_bytes(NONCE_BYTES), self._broker, purpose=CLIENT)
        self._transport.write(self._greeting.opening())

    def data_received(self, data: bytes) -> None:
        if self._greeting is not None:
            data = self._greet(self._greeting, data)
        if data and self.relay is not None:
            self.relay.answered(data)

    def _greet(self, greeting: Greeting, data: bytes) -> bytes:
        try:
            answer, rest = greeting.receive(data)
        except ProtocolViolation as violation:
            self._fail(violation.reason)
            self.abort()
            return b""
        self.write(answer)
        if greeting.is_done:
            self._greeting = None
            if not self.greeted.done():
                self.greeted.set_result(None)
        return rest

    def _fail(self, reason: str) -> None:
        if not self.greeted.done():
            self.greeted.set_exception(OSError(reason))
            self.greeted.exception()  # looked at: whoever waited may have given up

    def pause_writing(self) -> None:
        if self.relay is not None:
            self.relay.upstream_full()

    def resume_writing(self) -> None:
        if self.relay is not None:
            self.relay.upstream_drained()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(str(exc) if exc is not None else "closed by the other broker")
        if self.relay is not None:
            self.relay.end()

    # The relay's side

    @property
    def is_lost(self) -> bool:
        return self._transport is None

    def write(self, data: bytes) -> None:
        if self._transport is not None and data:
            self._transport.write(data)

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Relay:
    """One client's connection, passed on: in place of its link to the server."""

    def __init__(self, link: ClientLink, upstream: Upstream, broker: str, driver: Driver) -> None:
        self.connection = link.connection
        self.broker = broker
        self._link = link
        self._pipe: Pipe = link.pipe
        self._upstream = upstream
        self._driver = driver
        self._is_over = False
        self._drain: Drain | None = None
        self.on_lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # From the client

    def received(self, data: bytes, is_more: bool = False) -> None:  # noqa: ARG002
        if self._drain is not None:
            self._drain.discard(len(data))
        elif not self._is_over:
            self.connection.bytes_in += len(data)
            self._driver.server.counters.bytes_in += len(data)
            self._upstream.write(data)

    def full(self) -> None:
        self._upstream.pause_reading()

    def drained(self) -> None:
        self._upstream.resume_reading()

    def lost(self) -> None:
        self._is_over = True
        if self._drain is not None:
            self._drain.cancel()
        self._upstream.close()
        self._link.lost()
        if not self.on_lost.done():
            self.on_lost.set_result(None)

    # From the other broker

    def answered(self, data: bytes) -> None:
        if not self._is_over:
            self.connection.bytes_out += len(data)
            self._driver.server.counters.bytes_out += len(data)
            self._pipe.write(data)

    def upstream_full(self) -> None:
        if not self._is_over:
            self._pipe.pause_reading()

    def upstream_drained(self) -> None:
        if not self._is_over:
            self._pipe.resume_reading()

    def end(self) -> None:
        """Nothing more comes from the other broker: the client reads what has come, and then the end."""
        if self._is_over:
            return
        self._is_over = True
        self._upstream.abort()
        if self._pipe.can_write_eof():
            self._drain = self._driver.lingering.begin(self._pipe)
        else:
            self._pipe.close()
        asyncio.get_running_loop().call_later(LINGER_S, self._abort)

    def _abort(self) -> None:
        if not self.on_lost.done():
            self._pipe.abort()


class PassThrough:
    """Passes connections on, and knows those that are."""

    def __init__(self, driver: Driver, overlay: Overlay) -> None:
        self._driver = driver
        self._overlay = overlay
        self._tasks: set[asyncio.Task[None]] = set()
        self._relays: set[Relay] = set()

    def pass_on(self, placement: PassOn) -> None:
        task = asyncio.get_running_loop().create_task(self._pass_on(placement))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def link_changed(self, change: LinkChanged) -> None:
        """A broker that has gone without a word is noticed by its link: its clients connect again, and are let in where
        their sessions go on. A link that was only interrupted is soon back."""
        if change.state == LinkState.FAILED.name.lower():
            asyncio.get_running_loop().call_later(LINKED_WITHIN_S, self._look_at, change.peer)

    def _look_at(self, broker: str) -> None:
        if not self._driver.core.is_linked(broker):
            for relay in [one for one in self._relays if one.broker == broker]:
                relay.end()

    async def _pass_on(self, placement: PassOn) -> None:
        try:
            await self._connect(placement)
        except Exception as error:
            self._driver.isolate("pass-through", placement.connection, error)

    async def _connect(self, placement: PassOn) -> None:
        upstream = await self._dial(placement.broker)
        if upstream is None:
            told = f"the session is at {placement.broker}, which cannot be reached; try again"
            self._driver.cannot_pass_on(placement, told)
            return
        link = placement.connection.driver
        assert isinstance(link, ClientLink)
        more = self._driver.server.passing_on(placement.connection)
        if more is None:
            upstream.close()
            return
        relay = upstream.relay = Relay(link, upstream, placement.broker, self._driver)
        self._relays.add(relay)
        relay.on_lost.add_done_callback(lambda _: self._relays.discard(relay))
        protocol_of(link.pipe).divert(relay)
        peer = placement.connection.peer
        introduction = Introduction(peer.address, peer.is_loopback, peer.is_secure, placement.user, peer.listener)
        upstream.write(introduction.encoded() + placement.connect + more)
        if upstream.is_lost:
            relay.end()

    async def _dial(self, broker: str) -> Upstream | None:
        for address in self._overlay.addresses_by_use(broker):
            upstream = Upstream(self._overlay, broker)
            try:
                async with asyncio.timeout(DIAL_S):
                    await self._overlay.dial_for_client(broker, address, upstream)
                    await asyncio.shield(upstream.greeted)
            except OSError as error:  # a TimeoutError is one
                upstream.abort()
                log.warning(
                    "the connection of a client could not be forwarded to %s at %s: %s", broker, address, _reason(error)
                )
            else:
                return upstream
        return None


def protocol_of(pipe: Pipe) -> Diverting:
    """What reads the bytes of a client: the pipe itself, or the protocol of the transport."""
    protocol = pipe if isinstance(pipe, Diverting) else cast(asyncio.Transport, pipe).get_protocol()
    assert isinstance(protocol, Diverting)
    return protocol


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
