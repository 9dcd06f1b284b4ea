"""The overlay side of a broker: its neighbours, when they are dialled, and which connection counts.

Either end of a link may dial. One connection per neighbour counts at a time; a second one is rejected as long as the
first is alive, so that a working connection is never dropped for one that may not work. One that the same broker has
dialled later replaces the first: it would not dial if it had a connection, so it is somewhere else now. If both ends
have dialled at the same moment, the connection dialled by the broker with the lesser name stays; both ends decide
alike.

If the network file allows it, datagrams are offered with each connection (`datagrams.link`).

An unreachable neighbour is tried again after growing, partly random pauses, at each of its addresses in turn
(`dialling`).
"""

import asyncio
import logging
import secrets
import ssl
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Protocol

from msgspec import structs

from overlane.core.broker import INTERNAL_ERROR, OverlayBroker
from overlane.core.events import (
    Close,
    CloseLink,
    Event,
    Lane,
    LinkDown,
    LinkUp,
    NamesakeRefused,
    PathChanged,
    StandbyChanged,
)
from overlane.core.links.neighbour import Chunk
from overlane.core.units import Nanos
from overlane.core.wire import frame_codec
from overlane.core.wire.control_messages import Farewell, encode
from overlane.errors import Failure, InDoubt, Unavailable
from overlane.membership.carrier import Carrier
from overlane.membership.endpoint import Endpoint
from overlane.membership.neighbours import NeighbourChanges, NeighbourConfig
from overlane.node.failures import Failures
from overlane.node.links.datagrams.link import DatagramLink
from overlane.node.links.datagrams.seal import new_session
from overlane.node.links.datagrams.sockets import DatagramSockets
from overlane.node.links.dialling.dialling import DIAL_S, MOVED, Dialling
from overlane.node.links.dialling.replacing import replaces
from overlane.node.links.emulation import Emulation, LinkConditions
from overlane.node.links.greeting import KEY_PART_BYTES, Credentials, DatagramSession, Offer
from overlane.node.links.multipath.multipath import Multipath
from overlane.node.links.multipath.paths import DatagramPaths
from overlane.node.links.multipath.uplinks import OwnUplinks
from overlane.node.links.overlay_link import OverlayLink
from overlane.node.links.pacing import Pace
from overlane.node.links.streams.move import StreamMove
from overlane.node.security.tls import brokers_of
from overlane.secret import Secret

if TYPE_CHECKING:
    from overlane.node.links.carrier.tunnels import CarrierTunnels

log = logging.getLogger("overlane.link")


class Turns(Protocol):
    """Where what comes of neighbours goes: the driver."""

    def handle(self, event: Event) -> None: ...
    def tell_core(self, event: Event) -> None:
        """As `handle`; an exception ends the process."""

    def received(self, peer: str, data: bytes, lane: Lane) -> None: ...
    def links_have_room(self) -> None: ...


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
        uplinks: OwnUplinks | None = None,
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
        self._configs: dict[str, NeighbourConfig] = {}
        self._emulations: dict[str, Emulation] = {}
        self._dialling = Dialling(
            core.name, now, self._luck, self._failures, self._dial, self._is_cut, self._close_moved
        )
        self.multipath = Multipath(self, self.sockets, uplinks or OwnUplinks())
        self._server: asyncio.Server | None = None
        self.on_stranger: Callable[[str], None] = lambda _: None
        """Called with a broker that has shown who it is, and was refused since it is no neighbour."""
        self.on_passed_in: Callable[[str, asyncio.Transport, bytes], bool] = lambda *_: False
        """Called with a broker that has shown who it is and passes the connection of a client on (`LinkHost`)."""
        self._tunnels: CarrierTunnels | None = None
        self._listens_at: Endpoint | None = None
        self.linked = asyncio.Event()
        """Set once every neighbour that is expected has been there at the same time."""
        self._expected: set[str] = set()

    # Life

    async def listen(self, endpoint: Endpoint) -> None:
        loop = asyncio.get_running_loop()
        self._listens_at = endpoint
        try:
            self._server = await loop.create_server(
                lambda: OverlayLink(self), endpoint.host, endpoint.port, ssl=self._server_tls
            )
        except OSError as error:
            raise Unavailable(f"overlay address {endpoint}", error.strerror or str(error)) from None
        self.multipath.open()

    def reconfigure(self, changes: NeighbourChanges) -> None:
        """Neighbours come, change or go. A connection to one that goes is closed by the core (`close`)."""
        for name in changes.gone:
            self._configs.pop(name, None)
            self._expected.discard(name)
            self._dialling.forget(name)
            if self._tunnels is not None:
                self._tunnels.forget(name)
            log.info("removed neighbour %s", name)
        for name, config in changes.set.items():
            self._set(name, config)
        self._look_around()

    def _set(self, name: str, config: NeighbourConfig) -> None:
        """A neighbour, from now on, or known anew; it is dialled where an address is known. A connection stays."""
        before, self._configs[name] = self._configs.get(name), config
        link = self.links.get(name)
        if link is not None:
            link.paced(self.pace(name))
            link.marked(config.dscp)
        if config.is_expected:
            self._expected.add(name)
        if before is None or before.emulated != config.emulated:
            self.heal(name)
        self._dialling.set(
            name,
            config.addresses if config.carrier is None else (self._carried(name, config.carrier),),
            is_linked=link is not None,
            dialled_at=None if link is None else link.dialled_at,
        )
        if link is not None and before is not None and before.addresses != config.addresses:
            self.multipath.replan(link)

    def _carried(self, name: str, carrier: Carrier) -> Endpoint:
        """Where to dial a neighbour whose link an MQTT broker carries."""
        if self._tunnels is None:
            # Only here: most brokers have no such links.
            from overlane.node.links.carrier.tunnels import CarrierTunnels

            if self._secret is None:
                raise Unavailable(f"link to {name}", "a carrier requires overlay_secret in [security]")
            self._tunnels = CarrierTunnels(self._core.name, lambda: self._listens_at, self._secret)
        return self._tunnels.set(name, carrier)

    @property
    def missing(self) -> list[str]:
        """Neighbours that are expected and not linked."""
        return sorted(self._expected - self.links.keys())

    @property
    def neighbours(self) -> list[str]:
        return sorted(self._configs)

    async def end(self) -> None:
        if self._server is not None:
            self._server.close()
        self._dialling.end()
        if self._tunnels is not None:
            self._tunnels.end()
        self.multipath.close()
        for link in list(self.links.values()):
            link.close("the broker ends")
        if self.sockets is not None:
            self.sockets.close()

    # Emulation

    def emulate(self, name: str, conditions: LinkConditions | None) -> None:
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
        """Let the link be again as it is configured."""
        emulated = self._configs[name].emulated
        self.emulate(name, None if emulated is None else LinkConditions(**structs.asdict(emulated)))

    def conditions(self, name: str) -> LinkConditions | None:
        found = self._emulations.get(name)
        return found.conditions if found is not None else None

    def _is_cut(self, name: str) -> bool:
        conditions = self.conditions(name)
        return conditions is not None and conditions.is_cut

    # Dialling

    async def _dial(self, name: str, address: Endpoint) -> bool:
        """Whether the neighbour is linked with afterwards, by this call or one of its own; OSError or TimeoutError."""
        async with asyncio.timeout(DIAL_S):
            _, link = await asyncio.get_running_loop().create_connection(
                lambda: OverlayLink(self, name, address),
                address.host,
                address.port,
                ssl=self._client_tls,
                server_hostname=name if self._client_tls is not None else None,
            )
        await link.settled.wait()
        return name in self.links

    async def dial_move(self, link: OverlayLink, host: str, remote: Endpoint) -> None:
        """Dial a connection from one address of ours to one of the neighbour, on which the stream of a link continues;
        OSError or TimeoutError."""
        async with asyncio.timeout(DIAL_S):
            _, moving = await asyncio.get_running_loop().create_connection(
                lambda: OverlayLink(self, link.peer, remote, link.id),
                remote.host,
                remote.port,
                local_addr=(host, 0),
                ssl=self._client_tls,
                server_hostname=link.peer if self._client_tls is not None else None,
            )
        await moving.settled.wait()

    async def dial_for_client(self, name: str, address: Endpoint, protocol: asyncio.BaseProtocol) -> None:
        """A connection to a neighbour that is no link, encrypted as those are; OSError."""
        await asyncio.get_running_loop().create_connection(
            lambda: protocol,
            address.host,
            address.port,
            ssl=self._client_tls,
            server_hostname=name if self._client_tls is not None else None,
        )

    def addresses_by_use(self, peer: str) -> list[Endpoint]:
        """Where a neighbour is dialled, beginning with the address that works."""
        known, link = list(self.addresses(peer)), self.links.get(peer)
        if link is not None and link.dialled_at is not None:
            return [link.dialled_at, *(one for one in known if one != link.dialled_at)]
        return known

    def _close_moved(self, name: str, reason: str) -> None:
        self.close_link(name, reason)

    def close_link(self, name: str, reason: str) -> None:
        self._turns.tell_core(CloseLink(name, reason))

    # What connections ask (link_host.LinkHost)

    def credentials(self, transport: asyncio.Transport) -> Credentials:
        address = transport.get_extra_info("peername") or ("?",)
        secure = transport.get_extra_info("ssl_object")
        return Credentials(
            self._core.name,
            self._secret,
            brokers_of(secure.getpeercert()) if secure is not None else None,
            self._is_open or Endpoint(str(address[0]), 0).is_loopback(),
            self._instance,
        )

    def offer(self, transport: asyncio.Transport) -> Offer | None:
        own = transport.get_extra_info("sockname")
        if self.sockets is None or not isinstance(own, tuple) or (socket := self.sockets.at(own)) is None:
            return None
        is_private = transport.get_extra_info("ssl_object") is not None
        key_part = secrets.token_bytes(KEY_PART_BYTES) if is_private else b""
        return Offer(socket.port, new_session(secrets.randbits(64)), key_part)

    def datagrams(
        self, link: OverlayLink, session: DatagramSession, transport: asyncio.Transport
    ) -> DatagramLink | DatagramPaths | None:
        config = self._configs.get(link.peer)
        socket = self.sockets.at(transport.get_extra_info("sockname")) if self.sockets is not None else None
        if socket is None or config is None or not config.has_datagrams:
            return None
        host, _, *scope = transport.get_extra_info("peername")
        first = DatagramLink(
            socket,
            session,
            (host, session.port, *scope) if link.was_dialled_by_us else None,
            self.now,
            lambda frames: self.received_beside(link, frames),
            link.pump,
            link.rescue,
            pace=link.pace,
            emulation=self.emulation(link.peer),
            failed=lambda error: self.failed(link, error),
            dscp=config.dscp,
        )
        return self.multipath.began(link, first, session, transport)

    def emulation(self, peer: str) -> Emulation | None:
        return self._emulations.get(peer)

    def rate_bps(self, peer: str) -> int | None:
        config = self._configs.get(peer)
        return None if config is None else config.rate_bps

    def pace(self, peer: str) -> Pace | None:
        rate_bps = self.rate_bps(peer)
        return None if rate_bps is None else Pace(rate_bps)

    def dscp(self, peer: str) -> int:
        config = self._configs.get(peer)
        return 0 if config is None else config.dscp

    def addresses(self, peer: str) -> tuple[Endpoint, ...]:
        """Where a neighbour is dialled."""
        config = self._configs.get(peer)
        return () if config is None else config.addresses

    def path_changed(self, link: OverlayLink, rtt_ns: Nanos) -> None:
        if self.links.get(link.peer) is link:
            self._turns.handle(PathChanged(link.peer, rtt_ns))

    def standby_changed(self, link: OverlayLink, rtt_ns: Nanos) -> None:
        if self.links.get(link.peer) is link:
            self._turns.handle(StandbyChanged(link.peer, rtt_ns))

    def moves(self, link: OverlayLink, link_id: bytes, transport: asyncio.Transport, data: bytes) -> None:
        before = self.links.get(link.peer)
        if before is None or before.id != link_id or before.instance != link.instance or not before.is_up:
            log.info("%s tries to continue a link with %s that has ended", link.address, link.peer)
            transport.abort()
            return
        if link.was_dialled_by_us:
            before.dialled_at = link.dialled_at
        self.multipath.moves(before, transport)
        StreamMove(before, transport).begin(data)

    def greeted(self, link: OverlayLink) -> bool:
        peer = link.peer
        if peer not in self._configs:
            log.warning("%s presents itself as %s, which is not a neighbour", link.address, peer)
            link.close("not a neighbour")
            self.on_stranger(peer)
            return False
        if self._is_cut(peer):
            link.close("cut")
            return False
        before = self.links.get(peer)
        if before is not None and not before.is_broken and before.instance != link.instance:
            self._refuse_namesake(link, before)
            return False
        if before is not None and not replaces(self._core.name, link, before):
            link.close("there is a connection already")
            return False
        if before is not None and before.is_broken:
            self._turns.handle(LinkDown(peer))
        self.links[peer] = link
        self._dialling.linked(peer)
        self._look_around()
        if before is not None:
            before.close("another connection that was opened at the same moment is used")
        self._turns.handle(LinkUp(peer, is_encrypted=link.has_tls))
        return True

    def passed_in(self, link: OverlayLink, transport: asyncio.Transport, data: bytes) -> bool:
        """Only from the very broker that the link is with, and that has proven to be it."""
        linked = self.links.get(link.peer)
        if linked is None or linked.instance != link.instance or not self.may_pass_clients(transport):
            log.warning(
                "%s forwards a client as %s; refused, because it is not authenticated as that broker",
                link.address,
                link.peer,
            )
            return False
        return self.on_passed_in(link.peer, transport, data)

    def may_pass_clients(self, transport: asyncio.Transport) -> bool:
        """Whether the other end has to prove who it is, or is on this machine: a mere name (`overlay_open`) is not
        enough to speak for clients."""
        if self._secret is not None or transport.get_extra_info("ssl_object") is not None:
            return True
        address = transport.get_extra_info("peername") or ("?",)
        return Endpoint(str(address[0]), 0).is_loopback()

    def _refuse_namesake(self, link: OverlayLink, before: OverlayLink) -> None:
        """Two brokers have one name. The existing link stays; pings soon show if it is dead."""
        reason = f"another broker named {link.peer} is connected from {before.address}"
        link.close(reason, frame_codec.control(0, encode(Farewell(reason, is_name_taken=True))))
        self._turns.handle(NamesakeRefused(link.peer, link.address))

    def _look_around(self) -> None:
        if self._expected <= self.links.keys():
            self.linked.set()

    def received(self, link: OverlayLink, data: bytes, lane: Lane = Lane.CONTROL) -> None:
        if self.links.get(link.peer) is link:
            self._turns.received(link.peer, data, lane)

    def received_beside(self, link: OverlayLink, frames: bytes) -> None:
        if link.heard_beside():
            self.received(link, frames, Lane.DATA)

    def pull(self, peer: str, bytes_max: int) -> bytes:
        chunks = self._core.pull(peer, bytes_max, self.now())
        return chunks[0][1] if len(chunks) == 1 else b"".join([data for _, data in chunks])

    def pull_apart(self, peer: str, bytes_max: int, now: Nanos) -> list[Chunk]:
        return self._core.pull(peer, bytes_max, now)

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
            link.reading.others_have_room()
        self._turns.links_have_room()

    def lost(self, link: OverlayLink, why: str) -> None:
        if self.links.get(link.peer) is not link:
            return
        del self.links[link.peer]
        self._dialling.lost(link.peer)
        log.info("connection to %s lost: %s", link.peer, why)
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
            self._dialling.lost(effect.peer)
            level = logging.WARNING if effect.peer in self._configs and effect.reason != MOVED else logging.INFO
            log.log(level, "link to %s: %s", effect.peer, effect.reason)
            link.close(effect.reason, effect.last_words)

    def recorded(self, peer: str, size_bytes: int, turn: int) -> None:
        """The interest of a neighbour made records of so many bytes, written in this turn."""
        if (link := self.links.get(peer)) is not None:
            link.reading.recorded(size_bytes, turn)

    def written(self, turn: int) -> None:
        """The records of all turns up to this one are on disk."""
        for link in self.links.values():
            link.reading.written(turn)

    def pump(self) -> None:
        for peer in self._core.ready():
            if (link := self.links.get(peer)) is not None:
                link.pump()
