"""Links with several paths: the opened paths, and the reaction to added and removed addresses of this machine.

The end that opened the connection opens paths from each of its uplinks (`uplinks`) to each address of the neighbour,
and moves the connection. A link with one path at both ends stays a plain one, at no cost. It gets a second path when
the address of its connection was removed or has no carrier and the kernel would now send from another one: so the link
continues when a broker changes its network.

When the kernel reports that an address was removed (`address_watch`), or refuses to send from it, its paths are no
longer used, and the neighbours are notified over the others.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from overlane.core.units import MS, Nanos
from overlane.membership.endpoint import Endpoint
from overlane.node.links.datagrams.link import DatagramLink
from overlane.node.links.datagrams.seal import PATH_MAX
from overlane.node.links.datagrams.sockets import Address, DatagramSocket, DatagramSockets
from overlane.node.links.greeting import DatagramSession
from overlane.node.links.multipath.address_watch import AddressWatch
from overlane.node.links.multipath.netlink import LocalAddress
from overlane.node.links.multipath.path_link import LinkCallbacks
from overlane.node.links.multipath.paths import DatagramPaths
from overlane.node.links.multipath.uplinks import OwnUplinks, is_literal, same_family
from overlane.node.links.overlay_link import OverlayLink

UNREACHABLE_S = 1.0
"""After this time an address from which the kernel would not send is tried again."""
MOVE_GAP: Nanos = 200 * MS
ADDRESS_GONE = "the address of this end is gone"

log = logging.getLogger("overlane.link")


class PathsHost(Protocol):
    """What is needed of the overlay."""

    links: dict[str, OverlayLink]

    def now(self) -> Nanos: ...
    def addresses(self, peer: str) -> tuple[Endpoint, ...]: ...
    def received_beside(self, link: OverlayLink, frames: bytes) -> None: ...
    def failed(self, link: OverlayLink, error: Exception) -> None: ...
    def path_changed(self, link: OverlayLink, rtt_ns: Nanos) -> None: ...
    def standby_changed(self, link: OverlayLink, rtt_ns: Nanos) -> None: ...
    def close_link(self, name: str, reason: str) -> None: ...
    async def dial_move(self, link: OverlayLink, host: str, remote: Endpoint) -> None: ...


class _Multi:
    """What is known of one link with datagrams."""

    def __init__(self, link: OverlayLink, first: DatagramLink, session: DatagramSession, port: int) -> None:
        self.link = link
        self.first = first
        self.session = session
        self.tcp_port = port
        self.paths: DatagramPaths | None = None
        self.local_host = first.local_host
        """Of the connection."""
        self.moving: asyncio.Task[None] | None = None
        self.may_move_ns: Nanos = 0

    @property
    def is_current(self) -> bool:
        current = self.paths if self.paths is not None else self.first
        return self.link.is_up and self.link.datagrams in (None, current)

    @property
    def may_have_paths(self) -> bool:
        """Whether the neighbour knows of paths."""
        return not self.session.theirs & PATH_MAX and self.first.emulation is None


class Multipath:
    def __init__(self, host: PathsHost, sockets: DatagramSockets | None, uplinks: OwnUplinks) -> None:
        self._host = host
        self._sockets = sockets
        self._uplinks = uplinks
        self._watch = AddressWatch(self._changed)
        self._unreachable: set[str] = set()
        self._known: set[str] = set()
        """All addresses that the kernel has reported: of others, such as loopback, it reports nothing."""
        self._multi: dict[OverlayLink, _Multi] = {}
        self.on_addresses: Callable[[], None] = lambda: None
        """Called when addresses of this machine have come or gone."""
        self.moved = 0
        """How often a connection was moved to another path."""

    def open(self) -> None:
        self._watch.open()
        self._known.update(one.host for one in self._watch.addresses or ())
        if self._sockets is not None:
            self._sockets.on_unreachable = self._cannot_send
        self._open_sockets()

    def _open_sockets(self) -> None:
        """Where neighbours may open paths to."""
        if self._sockets is not None:
            for host in self._local_hosts():
                self._sockets.at(_socket_address(host, 0))

    def close(self) -> None:
        self._watch.close()
        for multi in self._multi.values():
            if multi.moving is not None:
                multi.moving.cancel()

    # Links

    def began(
        self, link: OverlayLink, first: DatagramLink, session: DatagramSession, transport: asyncio.Transport
    ) -> DatagramLink | DatagramPaths:
        """A connection has datagrams: what it is to use for them."""
        self._multi = {one: multi for one, multi in self._multi.items() if not one.is_broken}
        multi = self._multi[link] = _Multi(link, first, session, transport.get_extra_info("peername")[1])
        if not multi.may_have_paths or self._sockets is None:
            return first
        if link.was_dialled_by_us:
            if len(planned := self._planned(multi)) > 1:
                self._make_paths(multi)
                self._open_paths(multi, planned)
        else:
            self._sockets.admit(session.ours, lambda *found: self._admit(multi, *found))
        return multi.paths or first

    def replan(self, link: OverlayLink) -> None:
        """The neighbour may have other addresses now."""
        multi = self._multi.get(link)
        if multi is None or not link.was_dialled_by_us or not link.is_up or not multi.may_have_paths:
            return
        planned = self._planned(multi)
        if multi.paths is None and len(planned) > 1 and link.datagrams is multi.first:
            link.datagrams = self._make_paths(multi)
        self._open_paths(multi, planned)

    def set_uplinks(self, uplinks: OwnUplinks) -> None:
        """The file names other uplinks of this broker."""
        if uplinks != self._uplinks:
            self._uplinks = uplinks
            self._open_sockets()
            for link in list(self._multi):
                self.replan(link)

    def _admit(self, multi: _Multi, number: int, at: DatagramSocket, datagram: bytes, address: Address) -> None:
        """The neighbour opens the first path beside the plain one."""
        if not multi.link.is_up or multi.link.datagrams is not multi.first or not multi.may_have_paths:
            return
        paths = self._make_paths(multi)
        paths.admit(number, at, datagram, address)
        if paths.local_hosts:
            multi.link.datagrams = paths
        elif self._sockets is not None:  # it was not authentic
            multi.paths = None
            self._sockets.admit(multi.session.ours, lambda *found: self._admit(multi, *found))

    def _make_paths(self, multi: _Multi) -> DatagramPaths:
        assert self._sockets is not None
        link = multi.link
        multi.paths = DatagramPaths(
            multi.first,
            multi.session,
            self._sockets,
            LinkCallbacks(
                now=self._host.now,
                hear=lambda frames: self._host.received_beside(link, frames),
                go_on=link.pump,
                rescue=link.rescue,
                failed=lambda error: self._host.failed(link, error),
                path_changed=lambda rtt_ns: self._path_changed(multi, rtt_ns),
                standby_changed=lambda rtt_ns: self._host.standby_changed(link, rtt_ns),
                stream_in=lambda: link.stream_in,
                stream_has=lambda count: _acknowledge(link, count),
                move_stream=lambda host, remote: self._move(multi, host, remote),
                keeps_link=lambda reason: self._keeps(multi, reason),
            ),
            pace=link.pace,
            has_dialled=link.was_dialled_by_us,
        )
        link.make_movable()
        return multi.paths

    def _path_changed(self, multi: _Multi, rtt_ns: Nanos) -> None:
        log.info("link to %s uses another path; round trip %.1f ms", multi.link.peer, rtt_ns / MS)
        self._host.path_changed(multi.link, rtt_ns)

    # Which paths

    def _planned(self, multi: _Multi) -> list[tuple[str, str]]:
        """Pairs of an address of ours and one of the neighbour, the connection's first."""
        remote = multi.first.remote
        there = [str(remote[0])] if remote is not None else []
        there += [one.host for one in self._host.addresses(multi.link.peer) if is_literal(one.host)]
        here = [multi.local_host, *self._local_hosts()]
        if not self._is_usable(multi.local_host):
            here += [host for one in there if (host := _kernel_choice(one)) is not None]
        pairs = ((one, other) for other in there for one in here if self._is_usable(one) and same_family(one, other))
        return list(dict.fromkeys(pairs))

    def _open_paths(self, multi: _Multi, planned: list[tuple[str, str]]) -> None:
        if multi.paths is None or self._sockets is None:
            return
        for host, remote in planned:
            at = self._sockets.at(_socket_address(host, 0))
            if at is not None:
                multi.paths.open_path(at, _socket_address(remote, multi.session.port))
        remote_now = multi.first.remote
        if multi.paths.stream_number is None and remote_now is not None:
            multi.paths.stream_number = multi.paths.number_of(multi.local_host, str(remote_now[0]))

    def _local_hosts(self) -> tuple[str, ...]:
        if self._watch.addresses is not None:
            return self._uplinks.local_hosts(self._watch.addresses)
        return tuple(host for host in self._uplinks.hosts if _is_ours(host)) if self._uplinks.are_several else ()

    def _is_usable(self, host: str) -> bool:
        if host in self._unreachable:
            return False
        return host not in self._known or any(one.host == host and one.is_usable for one in self._watch.addresses or ())

    # Addresses

    def _changed(self, addresses: tuple[LocalAddress, ...]) -> None:
        present = {one.host for one in addresses}
        self._known |= present
        self._open_sockets()
        self._unreachable.clear()
        for multi in list(self._multi.values()):
            self._look(multi, present)
        self.on_addresses()

    def _cannot_send(self, host: str) -> None:
        """The kernel refuses to send from this address."""
        if host in self._unreachable or not any(multi.paths is not None for multi in self._multi.values()):
            return
        self._unreachable.add(host)
        loop = asyncio.get_running_loop()
        loop.call_soon(self._look_again)
        loop.call_later(UNREACHABLE_S, self._try_again, host)

    def _try_again(self, host: str) -> None:
        self._unreachable.discard(host)
        self._look_again()

    def _look_again(self) -> None:
        for multi in list(self._multi.values()):
            self._look(multi, None)

    def _look(self, multi: _Multi, present: set[str] | None) -> None:
        """The paths of a link, after addresses have changed. `present`: all that there are, where that is known."""
        link = multi.link
        if link.is_broken or not multi.is_current:
            self._multi.pop(link, None)
            return
        is_removed = present is not None and multi.local_host in self._known - present
        if link.was_dialled_by_us and multi.may_have_paths and self._sockets is not None:
            planned = self._planned(multi)
            if multi.paths is None and planned and not self._is_usable(multi.local_host):
                link.datagrams = self._make_paths(multi)
            self._open_paths(multi, planned)
        if multi.paths is not None:
            multi.paths.addresses_changed(
                frozenset(host for host in multi.paths.local_hosts if not self._is_usable(host))
            )
        elif is_removed:
            self._host.close_link(link.peer, ADDRESS_GONE)

    # The connection

    def moves(self, link: OverlayLink, transport: asyncio.Transport) -> None:
        """The stream of a link is about to continue over this connection."""
        self.moved += 1
        multi = self._multi.get(link)
        if multi is None:
            return
        multi.local_host = str(transport.get_extra_info("sockname")[0])
        remote = str(transport.get_extra_info("peername")[0])
        log.info("the connection to %s moves: from %s to %s", link.peer, multi.local_host, remote)
        if multi.paths is not None:
            multi.paths.stream_number = multi.paths.number_of(multi.local_host, remote)

    def _move(self, multi: _Multi, host: str, remote: Address) -> None:
        now = self._host.now()
        if multi.moving is not None or now < multi.may_move_ns or not multi.link.is_up:
            return
        multi.may_move_ns = now + MOVE_GAP
        addresses = {one.host: one for one in self._host.addresses(multi.link.peer)}
        endpoint = addresses.get(str(remote[0]), Endpoint(str(remote[0]), multi.tcp_port))
        multi.moving = asyncio.get_running_loop().create_task(self._dial(multi, host, endpoint))

    async def _dial(self, multi: _Multi, host: str, endpoint: Endpoint) -> None:
        try:
            with suppress(OSError, TimeoutError):
                await self._host.dial_move(multi.link, host, endpoint)
        finally:
            multi.moving = None

    def _keeps(self, multi: _Multi, reason: Exception | None) -> bool:
        """Whether the link survives the end of its connection: one that a path has ended, not the neighbour."""
        if not isinstance(reason, OSError) or isinstance(reason, ConnectionError) or multi.paths is None:
            return False
        movable = multi.link.make_movable()
        if movable is None or not multi.paths.has_other_path:
            return False
        movable.freeze()
        multi.link.pause_writing()
        multi.paths.stream_number = None
        multi.paths.review()
        return True


def _acknowledge(link: OverlayLink, count: int) -> None:
    movable = link.make_movable()
    if movable is not None:
        movable.acknowledged(count)


def _socket_address(host: str, port: int) -> Address:
    return (host, port, 0, 0) if ":" in host else (host, port)


def _kernel_choice(remote: str) -> str | None:
    """From which address the kernel would send there now."""
    family = socket.AF_INET6 if ":" in remote else socket.AF_INET
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asked:
        asked.connect((remote, 9))
        return str(asked.getsockname()[0])
    return None


def _is_ours(host: str) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asked:
        asked.bind((host, 0))
        return True
    return False
