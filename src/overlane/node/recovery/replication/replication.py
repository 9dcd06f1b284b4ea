"""Replication between the hosts of one broker: connections by host, and questions of neighbours.

The mirror connects to the primary (`primary_watch`). Only the latest connection per host counts. If the connection of a
mirror is closed without a new one within a short time, its process has ended: this is reported, and the mirror is
removed from the replica set, without loss of messages.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic_ns

from overlane.core.units import NEVER, Nanos
from overlane.errors import Unavailable
from overlane.membership.endpoint import Endpoint
from overlane.node.links.greeting import Credentials
from overlane.node.recovery.replication.replication_link import ReplicationLink
from overlane.node.recovery.replication.replication_pace import ReplicationPace
from overlane.node.security.tls import brokers_of
from overlane.recovery.events import Event as ReplicaEvent
from overlane.recovery.events import MirrorLost, Received
from overlane.recovery.hosts.host_records import endpoint_name
from overlane.recovery.hosts.questions import NOT_LINKED, HeardAgo, HeardQuestion, Message
from overlane.recovery.replication.frames import PART_BYTES, Frame
from overlane.secret import Secret

REDIAL_S = 0.3
"""How long after its connection was closed a mirror may dial again before it counts as lost."""
DIAL_S = 2.0

log = logging.getLogger("overlane.recovery")


@dataclass(frozen=True, slots=True)
class ReplicaIdentity:
    """Who this end is, and by what others prove who they are."""

    broker: str
    host: str
    secret: Secret | None
    is_open: bool
    """Whether a host on another machine is believed its mere name."""
    tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None
    """For those who dial, and for those who are dialled: as on overlay links (`security.tls.link_contexts`)."""


async def _knows_nobody(_: str) -> int:
    return NOT_LINKED


class Replication:
    """A `Transport` of the replica's driver, and the owner of its connections."""

    def __init__(self, identity: ReplicaIdentity, buffer_bytes_max: int) -> None:
        self._identity = identity
        self._buffer_bytes_max = buffer_bytes_max
        self._links: dict[str, ReplicationLink] = {}
        self._server: asyncio.Server | None = None
        self._losses: dict[str, asyncio.TimerHandle] = {}
        self._answers: dict[ReplicationLink, asyncio.Future[int]] = {}
        self.on_event: Callable[[ReplicaEvent], None] = lambda _: None
        self.on_sign_of_life: Callable[[str], None] = lambda _: None
        """Called with the host that has sent something."""
        self.on_closed: Callable[[], None] = lambda: None
        self.heard_ago_ns: Callable[[str], Awaitable[int]] = _knows_nobody
        """How long ago this host has heard a broker: awaited when another host asks."""
        self.pace_of: Callable[[str], ReplicationPace | None] = lambda _: None
        """Of the line to another host, where its rate is known."""
        self._paces: dict[str, ReplicationPace | None] = {}
        self.bytes_in = self.bytes_out = 0
        """Of all connections, behind their greetings."""
        self._answering: set[asyncio.Task[None]] = set()

    async def listen(self, host: str) -> Endpoint:
        """At a free port; Unavailable."""
        loop = asyncio.get_running_loop()
        tls = None if self._identity.tls is None else self._identity.tls[0]
        try:
            self._server = await loop.create_server(
                lambda: ReplicationLink(self, self._buffer_bytes_max), host, 0, ssl=tls
            )
        except OSError as error:
            raise Unavailable(f"replication address {host}", error.strerror or str(error)) from None
        return Endpoint(host, self._server.sockets[0].getsockname()[1])

    async def dial(self, name: str, at: Endpoint) -> ReplicationLink | None:
        """BROKER@HOST; None where it does not greet as such. OSError or TimeoutError."""
        tls = None if self._identity.tls is None else self._identity.tls[1]
        async with asyncio.timeout(DIAL_S):
            _, link = await asyncio.get_running_loop().create_connection(
                lambda: ReplicationLink(self, self._buffer_bytes_max, name),
                at.host,
                at.port,
                ssl=tls,
                # The greeting checks that the certificate names the broker as well.
                server_hostname=None if tls is None else name.partition("@")[2],
            )
        try:
            await link.settled.wait()
        except asyncio.CancelledError:
            link.close()
            raise
        return link if link.is_open else None

    async def ask(self, name: str, at: Endpoint, broker: str, within_s: float) -> int:
        """How long ago BROKER@HOST has heard a broker; OSError or TimeoutError where it does not answer."""
        async with asyncio.timeout(within_s):
            link = await self._dial_to_ask(name, at)
            try:
                return await self._asked(link, broker)
            finally:
                link.close()

    async def round_trip(self, name: str, at: Endpoint, questions: int, within_s: float) -> Nanos:
        """The shortest that BROKER@HOST has answered one of several questions in; OSError or TimeoutError where it does
        not answer."""
        shortest = NEVER
        async with asyncio.timeout(within_s):
            link = await self._dial_to_ask(name, at)
            try:
                for _ in range(questions):
                    asked_at = monotonic_ns()
                    await self._asked(link, name.partition("@")[0])
                    shortest = min(shortest, monotonic_ns() - asked_at)
            finally:
                link.close()
        return shortest

    async def _dial_to_ask(self, name: str, at: Endpoint) -> ReplicationLink:
        link = await self.dial(name, at)
        if link is None:
            raise ConnectionError(f"{name} does not greet")
        return link

    async def _asked(self, link: ReplicationLink, broker: str) -> int:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._answers[link] = future
        try:
            link.send(HeardQuestion(broker))
            return await future
        finally:
            del self._answers[link]

    def probe(self, host: str) -> None:
        """Ask the replica of this broker at another host for a sign of life."""
        if (link := self._links.get(host)) is not None:
            link.send(HeardQuestion(self._identity.broker))

    def hang_up(self, host: str) -> None:
        """Its connection carries nothing any more; another one may."""
        if (link := self._links.get(host)) is not None:
            link.close()

    def is_linked(self, host: str) -> bool:
        return host in self._links

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._answering:
            task.cancel()
        for timer in self._losses.values():
            timer.cancel()
        self._losses.clear()
        for link in list(self._links.values()):
            link.close()

    # replica_driver.Transport

    def send(self, host: str, frame: Frame) -> None:
        if (link := self._links.get(host)) is not None:
            link.send(frame)

    async def send_slowly(self, host: str, frame: Frame) -> bool:
        link = self._links.get(host)
        return link is not None and await link.send_slowly(frame)

    def part_bytes(self, host: str) -> int:
        pace = self._paces.get(host)
        return PART_BYTES if pace is None else min(PART_BYTES, pace.room_bytes_max)

    # replication_link.LinkOwner

    def credentials(self, transport: asyncio.Transport) -> Credentials:
        address = transport.get_extra_info("peername") or ("?",)
        mine = self._identity
        is_near = mine.is_open or Endpoint(str(address[0]), 0).is_loopback()
        secure = transport.get_extra_info("ssl_object")
        certified = brokers_of(secure.getpeercert()) if secure is not None else None
        return Credentials(endpoint_name(mine.broker, mine.host), mine.secret, certified, is_near)

    def opened(self, link: ReplicationLink) -> ReplicationPace | None:
        broker, _, host = link.peer.partition("@")
        if broker != self._identity.broker:
            return None  # somebody who asks, or is asked
        former = self._links.get(host)
        self._links[host] = link
        if (timer := self._losses.pop(host, None)) is not None:
            timer.cancel()
        if former is not None and former is not link:
            former.close()
        self.on_sign_of_life(host)
        self._paces[host] = pace = self.pace_of(host)
        return pace

    def sent_bytes(self, size: int) -> None:
        self.bytes_out += size

    def heard(self, link: ReplicationLink, size: int) -> None:
        self.bytes_in += size
        broker, _, host = link.peer.partition("@")
        if broker == self._identity.broker:
            self.on_sign_of_life(host)

    def received(self, link: ReplicationLink, message: Message) -> None:
        match message:
            case HeardQuestion(broker) if broker == self._identity.broker:
                link.send(HeardAgo(broker, 0))
            case HeardQuestion(broker):
                task = asyncio.get_running_loop().create_task(self._answer(link, broker))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
            case HeardAgo(_, ago_ns):
                if (future := self._answers.get(link)) is not None and not future.done():
                    future.set_result(ago_ns)
            case _:
                broker, _, host = link.peer.partition("@")
                if broker != self._identity.broker or message.broker != broker:
                    link.close()
                    return
                self.on_event(Received(host, message))

    async def _answer(self, link: ReplicationLink, broker: str) -> None:
        link.send(HeardAgo(broker, await self.heard_ago_ns(broker)))

    def closed(self, link: ReplicationLink) -> None:
        _, _, host = link.peer.partition("@")
        if self._links.get(host) is not link:
            return
        del self._links[host]
        self.on_closed()
        # Also where this end has dialled: it may be the primary by then, and the other end its mirror.
        self._losses[host] = asyncio.get_running_loop().call_later(REDIAL_S, self._lost, host)

    def _lost(self, host: str) -> None:
        self._losses.pop(host, None)
        if host not in self._links:
            self.on_event(MirrorLost(host))
