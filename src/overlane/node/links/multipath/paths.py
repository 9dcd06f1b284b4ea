"""The datagrams of a link with several paths: one per pair of addresses, and the choice between them.

The end that dialled opens a path for each of its own addresses and each of its neighbour's, numbered from 1; the other
end accepts them when their first authentic datagram comes. Path 0, which every link has, is left when one of them
works. All are measured (`watched_path`); `core.links.path_choice` says which one is in use, which one gets copies, and,
at the end that dialled, which one the connection should take.

When another path takes over, everything that was not acknowledged on the old one is sent again over it, and the core is
told its round trip. Both ends say in notices which of their addresses are gone: the other one need not find out.
"""

import asyncio
from typing import Literal, TypeAlias

from overlane.core.links.path_choice import PathChoice
from overlane.core.units import US, Nanos
from overlane.core.wire import frame_codec
from overlane.node.links.datagrams.link import DatagramLink
from overlane.node.links.datagrams.path import DatagramPath, PathState
from overlane.node.links.datagrams.seal import PATH_MAX
from overlane.node.links.datagrams.sockets import Address, DatagramSocket, DatagramSockets
from overlane.node.links.emulation import Emulation
from overlane.node.links.greeting import DatagramSession
from overlane.node.links.multipath.path_link import LinkCallbacks, PathLink
from overlane.node.links.multipath.watched_path import PathNotice
from overlane.node.links.pacing import Pace
from overlane.node.links.streams.window import StreamWindow

PathWord: TypeAlias = Literal["in_use", "copies", "standby", "silent", "probing", "gone"]

PATHS_OPEN_MAX = 16
LEFT_S = 5.0
"""How long path 0 is kept for what is under way, after another one has taken over."""


class DatagramPaths:
    """Has the methods of a `DatagramLink`, for several paths. `first`: path 0."""

    def __init__(
        self,
        first: DatagramLink,
        session: DatagramSession,
        sockets: DatagramSockets,
        callbacks: LinkCallbacks,
        *,
        pace: Pace | None,
        has_dialled: bool,
    ) -> None:
        self._first = first
        self._is_first_left = False
        self._session = session
        self._sockets = sockets
        self._callbacks = callbacks
        self._pace = pace
        self._has_dialled = has_dialled
        self._links: dict[int, PathLink] = {}
        self._in_use: DatagramLink = first
        self._copies: PathLink | None = None
        self._choice = PathChoice()
        self._next_number = 1
        self._closed: set[int] = set()
        self._is_closed = False
        self._gone_hosts: frozenset[str] = frozenset()
        self._is_reviewing = False
        self._standby_ns: Nanos = 0
        self._past_bytes = 0, 0
        self._past_counts = 0, 0
        self.stream_number: int | None = None
        """The path that the connection takes."""
        sockets.admit(session.ours, self.admit)

    # Paths

    def open_path(self, socket: DatagramSocket, address: Address) -> int | None:
        """Open a path to this address, unless there is one or there are too many; its number."""
        for number, link in self._links.items():
            if (link.local_host, link.remote) == (socket.host, address):
                return number
        if self._next_number > PATH_MAX or not self._make_room():
            return None
        number = self._next_number
        self._next_number += 1
        self._add(number, socket, address)
        return number

    def admit(self, number: int, socket: DatagramSocket, datagram: bytes, address: Address) -> None:
        """The neighbour opens a path."""
        if self._has_dialled or number in self._links or number in self._closed or not self._make_room():
            return
        link = self._add(number, socket, None)
        if not link.first(datagram, address):
            del self._links[number]
            link.close()

    def _add(self, number: int, socket: DatagramSocket, address: Address | None) -> PathLink:
        self._is_reviewing = True  # not before it is among them
        try:
            link = PathLink(self, number, socket, self._session, address, self._callbacks, self._pace, self.dscp)
        finally:
            self._is_reviewing = False
        self._links[number] = link
        return link

    def _make_room(self) -> bool:
        """Whether there may be one more path. The oldest that does not work makes room for it, as where a broker has
        changed its address often. Its number is not used again: nonces are not either."""
        if len(self._links) < PATHS_OPEN_MAX:
            return True
        number = next((number for number, link in self._links.items() if not link.is_usable), None)
        if number is None:
            return False
        self._closed.add(number)
        link = self._links.pop(number)
        link.close()
        self._past_bytes = self._past_bytes[0] + link.bytes_in, self._past_bytes[1] + link.bytes_out
        self._past_counts = self._past_counts[0] + link.sent, self._past_counts[1] + link.received
        return True

    def addresses_changed(self, gone: frozenset[str]) -> None:
        """These addresses of ours are not to be used: the neighbour is told over the other paths."""
        if gone == self._gone_hosts:
            return
        back, self._gone_hosts = self._gone_hosts - gone, gone
        for link in self._links.values():
            if link.local_host in back:
                link.probe_now()
        self.review()
        for link in list(self._links.values()):
            if link.local_host not in gone and link.is_usable:
                link.tell_now()

    @property
    def local_hosts(self) -> frozenset[str]:
        """Our addresses that it uses."""
        return frozenset(link.local_host for link in self._links.values())

    @property
    def has_other_path(self) -> bool:
        """Whether one of them works, beside that of the connection."""
        gone = self._gone_paths()
        samples = [link.sample(number in gone) for number, link in self._links.items()]
        return any(sample.works and sample.number != self.stream_number for sample in samples)

    def number_of(self, host: str, remote_host: str) -> int | None:
        """The path from this address of ours to that one of the neighbour."""
        for number, link in self._links.items():
            if link.local_host == host and link.remote is not None and link.remote[0] == remote_host:
                return number
        return None

    def notice(self) -> PathNotice:
        gone = frozenset(number for number, link in self._links.items() if link.local_host in self._gone_hosts)
        return PathNotice(self._callbacks.stream_in(), gone)

    # Choice

    def review(self) -> None:
        """Something was measured, or time has passed."""
        if self._is_reviewing or self._is_closed:
            return
        self._is_reviewing = True
        try:
            self._review(self._callbacks.now())
        finally:
            self._is_reviewing = False

    def _review(self, now: Nanos) -> None:
        gone = self._gone_paths()
        before = self._in_use
        is_changed = self._choice.judge([link.sample(number in gone) for number, link in self._links.items()], now)
        if (number := self._choice.in_use) is None:
            return
        used = self._in_use = self._links[number]
        copies = self._choice.copies
        self._copies = self._links[copies] if copies is not None else None
        if is_changed:
            self._changed(before, used, now)
        standby_ns = self._choice.standby_ns
        if abs(standby_ns - self._standby_ns) > standby_ns >> 2:
            self._standby_ns = standby_ns
            self._callbacks.standby_changed(standby_ns)
        if self._has_dialled and (path := self._choice.stream_path(self.stream_number, now)) is not None:
            link = self._links[path]
            if link.remote is not None:
                self._callbacks.move_stream(link.local_host, link.remote)

    def _gone_paths(self) -> frozenset[int]:
        """Paths that one of the two ends cannot use."""
        here = frozenset(number for number, link in self._links.items() if link.local_host in self._gone_hosts)
        told = [link.watched for link in self._links.values() if link.watched.told is not None]
        newest = max(told, key=lambda path: path.told_ns, default=None)
        there = newest.told.gone if newest is not None and newest.told is not None else frozenset[int]()
        if newest is not None and newest.told is not None:
            self._callbacks.stream_has(max(path.told.stream_in for path in told if path.told is not None))
        return here | there

    def _changed(self, before: DatagramLink, used: PathLink, now: Nanos) -> None:
        if isinstance(before, PathLink):
            if not before.sample(before.number in self._gone_paths()).works:
                for frames, sent_ns in before.watched.take_all_unheard():
                    older = frame_codec.older(frames, (now - sent_ns) // US)
                    if not used.send(older):
                        self._callbacks.rescue(older)
            self._callbacks.path_changed(used.path.flight.rtt_ns)
        elif not self._is_first_left:
            self._is_first_left = True
            # What the neighbour has sent over it is still taken.
            asyncio.get_running_loop().call_later(LEFT_S, self._leave_first)
        self._callbacks.go_on()

    def _leave_first(self) -> None:
        if not self._is_closed:
            self._first.close()
            self._sockets.admit(self._session.ours, self.admit)

    def swallowed(self, link: PathLink, frames: bytes) -> None:
        """The path may have swallowed these frames. What went over another path too is not sent a third time."""
        if link is self._in_use and self._copies is None:
            self._callbacks.rescue(frames)

    # As a datagram link

    @property
    def pace(self) -> Pace | None:
        return self._pace

    @pace.setter
    def pace(self, pace: Pace | None) -> None:
        self._pace = pace
        for link in self._all():
            link.pace = pace

    @property
    def emulation(self) -> Emulation | None:
        return self._first.emulation

    @emulation.setter
    def emulation(self, emulation: Emulation | None) -> None:
        for link in self._all():
            link.emulation = emulation

    @property
    def dscp(self) -> int:
        return self._first.dscp

    @dscp.setter
    def dscp(self, dscp: int) -> None:
        for link in self._all():
            link.dscp = dscp
        self._first.dscp = dscp

    @property
    def path(self) -> DatagramPath:
        """The one in use."""
        return self._in_use.path

    @property
    def stream_window(self) -> StreamWindow:
        """That of the path in use, which is the connection's as a rule."""
        return self._in_use.stream_window

    @property
    def is_usable(self) -> bool:
        return self._in_use.is_usable

    @property
    def is_doubted(self) -> bool:
        return self._in_use.is_doubted and self._copies is None

    @property
    def sent(self) -> int:
        return self._past_counts[0] + sum(link.sent for link in self._all())

    @property
    def received(self) -> int:
        return self._past_counts[1] + sum(link.received for link in self._all())

    @property
    def bytes_in(self) -> int:
        return self._past_bytes[0] + sum(link.bytes_in for link in self._all())

    @property
    def bytes_out(self) -> int:
        return self._past_bytes[1] + sum(link.bytes_out for link in self._all())

    def find_room(self) -> bool:
        return self._in_use.find_room()

    def send(self, chunk: bytes) -> bool:
        if self._copies is None:
            return self._in_use.send(chunk)
        is_copied = self._copies.send(chunk)
        return self._in_use.send(chunk) or is_copied

    def keeps_link(self, reason: Exception | None) -> bool:
        return self._callbacks.keeps_link(reason)

    def close(self) -> None:
        self._is_closed = True
        self._sockets.admit(self._session.ours, None)
        for link in self._all():
            link.close()

    def _all(self) -> list[DatagramLink]:
        return [*self._links.values(), self._first]

    # What people see

    def views(self) -> list[tuple[PathLink, PathWord]]:
        """All paths, and what each is."""
        gone = self._gone_paths()
        return [(link, self._word(link, number in gone)) for number, link in sorted(self._links.items())]

    def _word(self, link: PathLink, is_gone: bool) -> PathWord:
        if is_gone:
            return "gone"
        if link is self._in_use:
            return "in_use"
        if link is self._copies:
            return "copies"
        if link.path.state is PathState.PROBING:
            return "probing"
        return "silent" if link.watched.is_silent else "standby"
