"""The overlay's side of a broker: its neighbours, who is dialled when, and which connection counts.

Either end of a link may dial. One connection to a neighbour counts at a time; a second one is turned away as long as
the first is alive, so that nothing that works is ever dropped for something that may not. Only when both ends have
dialled at the same moment does it matter which: the one dialled by the broker with the lesser name stays, and both ends
decide so alike.

Where the network file allows it, datagrams are offered beside each connection (`datagramlink`).

A neighbour that cannot be reached is tried again after pauses that grow and vary, at each of its addresses in turn
(`redialling`).
"""

import asyncio
import logging
import secrets
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Protocol

from overlane.core.broker import INTERNAL_ERROR, OverlayBroker
from overlane.core.events import Close, CloseLink, Event, Lane, LinkDown, LinkUp, NamesakeRefused
from overlane.core.links.neighbour import Chunk
from overlane.core.units import SECOND, Nanos
from overlane.core.wire import frame_codec
from overlane.core.wire.control_messages import Farewell, encode
from overlane.errors import Failure, InDoubt, Unavailable
from overlane.network.schema import Endpoint
from overlane.node.failures import Failures
from overlane.node.links.datagram_link import DatagramLink
from overlane.node.links.datagram_socket import DatagramSockets
from overlane.node.links.emulation import Conditions, Emulation
from overlane.node.links.greeting import KEY_PART_BYTES, Credentials, Offer, Session
from overlane.node.links.overlay_link import OverlayLink
from overlane.node.links.pacing import Pace
from overlane.node.links.redialling import PAUSE_MIN, Redialling
from overlane.node.security.tls import broker_of
from overlane.secret import Secret

DIAL_S = 5.0
SAME_MOMENT: Nanos = 2 * SECOND
"""Two connections that came up within this time were dialled at once from both ends."""

log = logging.getLogger("overlane.link")


@dataclass(frozen=True, slots=True)
class Way:
    """Whether datagrams go beside the connection to a neighbour, and how many bits a second it takes in all."""

    has_datagrams: bool = True
    rate_bps: int | None = None


class Turns(Protocol):
    """Where what comes of neighbours goes: the driver."""

    def handle(self, event: Event) -> None: ...
    def tell_core(self, event: Event) -> None:
        """As `handle`; an exception ends the process."""

    def received(self, peer: str, data: bytes, lane: Lane) -> None: ...
    def links_have_room(self) -> None: ...
    def meet_others(self) -> None: ...


class Overlay:
    """Drives the core's links: pulls from it what is to be sent, and hands to the turns what has come."""

    def __init__(
        self,
        core: OverlayBroker,
        now: Callable[[], Nanos],
        turns: Turns,
        *,
        failures: Failures | None = None,
        secret: Secret | None = None,
        is_open: bool = False,
        instance: int = 0,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
        datagram_port: int | None = None,
        luck: Random | None = None,
    ) -> None:
        self._core = core
        self.now = now
        self._turns = turns
        self._failures = failures or Failures()
        self._secret = secret
        self._is_open = is_open
        self._instance = instance
        self._server_tls = server_tls
        self._client_tls = client_tls
        self.sockets = DatagramSockets(datagram_port) if datagram_port is not None else None
        self._luck = luck or Random()
        self.links: dict[str, OverlayLink] = {}
        self._addresses: dict[str, tuple[Endpoint, ...]] = {}
        self._emulations: dict[str, Emulation] = {}
        self._ways: dict[str, Way] = {}
        self._conditions_at_first: dict[str, Conditions | None] = {}
        self._dialling: dict[str, asyncio.Task[None]] = {}
        self._told_in_vain: dict[str, set[str]] = {}
        self._idle: dict[str, asyncio.Event] = {}
        """Set while there is no connection to a neighbour."""
        self._server: asyncio.Server | None = None
        self.linked = asyncio.Event()
        """Set once every neighbour that is expected has been there at the same time."""
        self._expected: set[str] = set()

    # Life

    async def listen(self, endpoint: Endpoint) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: OverlayLink(self), endpoint.host, endpoint.port, ssl=self._server_tls
            )
        except OSError as error:
            raise Unavailable(f"overlay address {endpoint}", error.strerror or str(error)) from None

    def join(
        self,
        name: str,
        addresses: Iterable[Endpoint],
        conditions: Conditions | None = None,
        *,
        is_expected: bool = True,
        way: Way | None = None,
    ) -> None:
        """A neighbour, from now on, or known anew; it is dialled where an address is known. A connection stays."""
        self._addresses[name] = tuple(addresses)
        self._ways[name] = way or self._ways.get(name, Way())
        if (link := self.links.get(name)) is not None:
            link.paced(self.pace(name))
        if is_expected:
            self._expected.add(name)
        idle = self._idle.setdefault(name, asyncio.Event())
        if name not in self.links:
            idle.set()
        self._conditions_at_first[name] = conditions
        self.emulate(name, conditions)
        self._turns.meet_others()
        if self._addresses[name] and (name not in self._dialling or self._dialling[name].done()):
            task = self._dialling[name] = asyncio.get_running_loop().create_task(self._keep_dialling(name))
            task.add_done_callback(lambda done: self._failures.look_at(done, f"dialling {name}"))

    def part(self, name: str) -> None:
        """No neighbour any more."""
        self._addresses.pop(name, None)
        self._expected.discard(name)
        if (task := self._dialling.pop(name, None)) is not None:
            task.cancel()
        if (link := self.links.get(name)) is not None:
            link.close("no neighbour any more")

    @property
    def neighbours(self) -> list[str]:
        return sorted(self._addresses)

    async def end(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._dialling.values():
            task.cancel()
        for link in list(self.links.values()):
            link.close("the broker ends")
        if self.sockets is not None:
            self.sockets.close()

    def settle(self) -> None:
        """Every neighbour of the start has been named."""
        self._look_around()

    # Emulation

    def emulate(self, name: str, conditions: Conditions | None) -> None:
        """Let the link to a neighbour behave like this from now on, our direction of it."""
        if conditions is None:
            self._emulations.pop(name, None)
        elif name in self._emulations:
            self._emulations[name].conditions = conditions
        else:
            self._emulations[name] = Emulation(conditions, self._luck)
        if name in self.links:
            self.links[name].emulated(self._emulations.get(name))

    def heal(self, name: str) -> None:
        """Let the link be again as it was when the neighbour was named."""
        self.emulate(name, self._conditions_at_first.get(name))

    def conditions(self, name: str) -> Conditions | None:
        found = self._emulations.get(name)
        return found.conditions if found is not None else None

    def _is_cut(self, name: str) -> bool:
        conditions = self.conditions(name)
        return conditions is not None and conditions.is_cut

    # Dialling

    async def _keep_dialling(self, name: str) -> None:
        redialling = Redialling(self._luck)
        # Who has the greater name waits a little at first: the other's call usually comes before.
        if name < self._core.name:
            await asyncio.sleep(2 * PAUSE_MIN / SECOND)
        while True:
            redialling.lasted(await self._until_idle(name))
            addresses = self._addresses.get(name, ())
            if not addresses:
                return
            address = redialling.next(addresses)
            if not self._is_cut(name) and await self._dial(name, address):
                redialling.lasted(await self._until_idle(name))
            await asyncio.sleep(redialling.pause_ns(len(addresses)) / SECOND)

    async def _until_idle(self, name: str) -> Nanos:
        """How long there has been a connection meanwhile, whoever had dialled."""
        since_ns = self.now()
        await self._idle[name].wait()
        return self.now() - since_ns

    def _tell_in_vain(self, name: str, address: Endpoint, error: Exception) -> None:
        """Each reason once until it is reached: it may just not be there yet. A certificate is for people to mend."""
        why = f"{name} at {address}: {str(error) or 'no answer'}"
        told = self._told_in_vain.setdefault(name, set())
        level = logging.WARNING if isinstance(error, ssl.SSLError) else logging.INFO
        log.log(logging.DEBUG if why in told else level, "cannot reach %s", why)
        told.add(why)

    async def _dial(self, name: str, address: Endpoint) -> bool:
        """Whether the neighbour is linked with afterwards, by this call or one of its own."""
        loop = asyncio.get_running_loop()
        try:
            _, link = await asyncio.wait_for(
                loop.create_connection(
                    lambda: OverlayLink(self, name),
                    address.host,
                    address.port,
                    ssl=self._client_tls,
                    server_hostname=name if self._client_tls is not None else None,
                ),
                DIAL_S,
            )
        except (OSError, TimeoutError) as error:
            self._tell_in_vain(name, address, error)
            return False
        self._told_in_vain.pop(name, None)
        await link.settled.wait()
        return name in self.links

    # What connections ask (overlaylink.Host)

    def credentials(self, transport: asyncio.Transport) -> Credentials:
        address = transport.get_extra_info("peername") or ("?",)
        secure = transport.get_extra_info("ssl_object")
        return Credentials(
            self._core.name,
            self._secret,
            broker_of(secure.getpeercert()) if secure is not None else None,
            self._is_open or Endpoint(str(address[0]), 0).is_loopback(),
            self._instance,
        )

    def offer(self, transport: asyncio.Transport) -> Offer | None:
        own = transport.get_extra_info("sockname")
        if self.sockets is None or not isinstance(own, tuple) or (socket := self.sockets.at(own)) is None:
            return None
        is_private = transport.get_extra_info("ssl_object") is not None
        return Offer(socket.port, secrets.randbits(64), secrets.token_bytes(KEY_PART_BYTES) if is_private else b"")

    def datagrams(self, link: OverlayLink, session: Session, transport: asyncio.Transport) -> DatagramLink | None:
        way = self._ways.get(link.peer, Way())
        socket = self.sockets.at(transport.get_extra_info("sockname")) if self.sockets is not None else None
        if socket is None or not way.has_datagrams:
            return None
        host, _, *scope = transport.get_extra_info("peername")
        return DatagramLink(
            socket,
            session,
            (host, session.port, *scope) if link.was_dialled_by_us else None,
            self.now,
            lambda frames: self._received_beside(link, frames),
            link.pump,
            link.rescue,
            pace=link.pace,
            emulation=self.emulation(link.peer),
            failed=lambda error: self.failed(link, error),
        )

    def emulation(self, peer: str) -> Emulation | None:
        return self._emulations.get(peer)

    def pace(self, peer: str) -> Pace | None:
        rate_bps = self._ways.get(peer, Way()).rate_bps
        return None if rate_bps is None else Pace(rate_bps)

    def greeted(self, link: OverlayLink) -> bool:
        peer = link.peer
        if peer not in self._addresses:
            log.warning("%s calls itself %s, which is no neighbour", link.address, peer)
            link.close("no neighbour of ours")
            return False
        if self._is_cut(peer):
            link.close("cut")
            return False
        before = self.links.get(peer)
        if before is not None and not before.is_broken and before.instance != link.instance:
            self._refuse_namesake(link, before)
            return False
        if before is not None and not self._replaces(link, before):
            link.close("there is a connection already")
            return False
        if before is not None and before.is_broken:
            self._turns.handle(LinkDown(peer))
        self.links[peer] = link
        self._idle[peer].clear()
        self._look_around()
        if before is not None:
            before.close("another connection, dialled at the same moment, stays")
        self._turns.handle(LinkUp(peer))
        return True

    def _refuse_namesake(self, link: OverlayLink, before: OverlayLink) -> None:
        """Two brokers have one name. Who is there keeps its place; pings tell soon if it is not there any more."""
        reason = f"another broker named {link.peer} is connected from {before.address}"
        link.close(reason, frame_codec.control(0, encode(Farewell(reason, is_name_taken=True))))
        self._turns.handle(NamesakeRefused(link.peer, link.address))

    def _look_around(self) -> None:
        if self._expected <= self.links.keys():
            self.linked.set()

    def _replaces(self, link: OverlayLink, before: OverlayLink) -> bool:
        if link.was_dialled_by_us == before.was_dialled_by_us:
            return before.is_broken
        first = min(self._core.name, link.peer)
        is_preferred = (first == self._core.name) == link.was_dialled_by_us
        return is_preferred and abs(link.opened_ns - before.opened_ns) < SAME_MOMENT

    def received(self, link: OverlayLink, data: bytes, lane: Lane = Lane.CONTROL) -> None:
        if self.links.get(link.peer) is link:
            self._turns.received(link.peer, data, lane)

    def _received_beside(self, link: OverlayLink, frames: bytes) -> None:
        if link.heard_beside():
            self.received(link, frames, Lane.DATA)

    def pull(self, peer: str, bytes_max: int) -> bytes:
        chunks = self._core.pull(peer, bytes_max, self.now())
        return chunks[0][1] if len(chunks) == 1 else b"".join([data for _, data in chunks])

    def pull_apart(self, peer: str, bytes_max: int) -> list[Chunk]:
        return self._core.pull(peer, bytes_max, self.now())

    def pull_urgent(self, peer: str, bytes_max: int) -> list[Chunk]:
        return self._core.pull_urgent(peer, bytes_max, self.now())

    def is_crowded(self, besides: str) -> bool:
        return self._core.is_congested(besides)

    def left_bytes(self, besides: str) -> int:
        return self._core.left_bytes(besides)

    def patience_ns(self, peer: str) -> Nanos:
        return self._core.patience_ns(peer)

    def sent(self) -> None:
        for link in self.links.values():
            link.read_on()
        self._turns.links_have_room()

    def lost(self, link: OverlayLink, why: str) -> None:
        if self.links.get(link.peer) is not link:
            return
        del self.links[link.peer]
        self._idle[link.peer].set()
        log.info("connection to %s is lost: %s", link.peer, why)
        self._turns.tell_core(LinkDown(link.peer))

    def failed(self, link: OverlayLink, error: Exception) -> None:
        """The connection to one neighbour met with a fault of ours: it is closed, with a reason, and dialled anew."""
        if isinstance(error, InDoubt):
            self._failures.fatal(f"the connection to {link.peer}: {error}", error)
        self._failures.isolated(Failure("neighbour", link.peer or link.address, error))
        if self.links.get(link.peer) is not link:
            link.close(INTERNAL_ERROR)
            return
        self._turns.tell_core(CloseLink(link.peer, INTERNAL_ERROR))

    # What the driver asks

    def close(self, effect: Close) -> None:
        """The core has given a connection up."""
        link = self.links.pop(effect.peer, None)
        if link is not None:
            self._idle[effect.peer].set()
            log.warning("link to %s: %s", effect.peer, effect.reason)
            link.close(effect.reason, effect.last_words)

    def recorded(self, peer: str, size_bytes: int, turn: int) -> None:
        """What a neighbour has said of its interest makes records of so many bytes, written in this turn."""
        if (link := self.links.get(peer)) is not None:
            link.recorded(size_bytes, turn)

    def written(self, turn: int) -> None:
        """The records of all turns up to this one are on disk."""
        for link in self.links.values():
            link.written(turn)

    def pump(self) -> None:
        for peer in self._core.ready():
            if (link := self.links.get(peer)) is not None:
                link.pump()
