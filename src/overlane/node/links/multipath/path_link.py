"""One of several paths of a link: a datagram link that is watched, and reports to its owner what it measures."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from overlane.core.links.path_choice import PathSample
from overlane.core.units import MS, Nanos
from overlane.node.links.datagrams.link import DatagramLink
from overlane.node.links.datagrams.path import DatagramPath, PathState
from overlane.node.links.datagrams.seal import Opener, Sealer
from overlane.node.links.datagrams.sockets import Address, DatagramSocket
from overlane.node.links.greeting import DatagramSession
from overlane.node.links.multipath.watched_path import PathNotice, WatchedPath
from overlane.node.links.pacing import Pace

REPORT_EVERY: Nanos = 20 * MS


class PathOwner(Protocol):
    """All paths of a link together."""

    def notice(self) -> PathNotice: ...
    def review(self) -> None:
        """Something was measured, or time has passed."""

    def swallowed(self, link: "PathLink", frames: bytes) -> None:
        """The path may have swallowed these frames."""


@dataclass(frozen=True, slots=True)
class LinkCallbacks:
    """What the paths need of their link and its broker."""

    now: Callable[[], Nanos]
    hear: Callable[[bytes], None]
    """Gets frames that came."""
    go_on: Callable[[], None]
    """There may be room again."""
    rescue: Callable[[bytes], None]
    """Sends frames over the connection."""
    failed: Callable[[Exception], None]
    path_changed: Callable[[Nanos], None]
    """Another path with this round trip is in use."""
    standby_changed: Callable[[Nanos], None]
    """The next best path has this round trip; 0: there is none."""
    stream_in: Callable[[], int]
    stream_has: Callable[[int], None]
    """The neighbour has so much of the stream."""
    move_stream: Callable[[str, Address], None]
    """The connection should go from this address of ours to that one of the neighbour."""
    keeps_link: Callable[[Exception | None], bool]


class PathLink(DatagramLink):
    """One of several paths."""

    def __init__(
        self,
        paths: PathOwner,
        number: int,
        socket: DatagramSocket,
        session: DatagramSession,
        address: Address | None,
        callbacks: LinkCallbacks,
        pace: Pace | None,
        dscp: int = 0,
    ) -> None:
        self._paths = paths
        self._reported: tuple[PathState, bool, PathNotice | None] | None = None
        self._reports_at: Nanos = 0
        self.watched: WatchedPath
        super().__init__(
            socket,
            session,
            address,
            callbacks.now,
            callbacks.hear,
            callbacks.go_on,
            lambda frames: paths.swallowed(self, frames),
            pace=pace,
            emulation=None,
            failed=callbacks.failed,
            number=number,
            dscp=dscp,
        )

    def _make_path(self) -> DatagramPath:
        session = self._session
        self.watched = WatchedPath(
            Sealer(session.theirs, session.key_out, self.number),
            Opener(session.key_in, self.number),
            self._now(),
            begins=self._address is not None,
            notice=self._paths.notice,
        )
        return self.watched

    def first(self, datagram: bytes, address: Address) -> bool:
        """The first datagram of a path that the other end has opened; whether it is authentic."""
        self._take(datagram, address)
        return self._address is not None

    def sample(self, is_gone: bool) -> PathSample:
        path = self.watched
        return PathSample(
            self.number, path.is_usable, path.is_silent, is_gone, path.flight.rtt_ns, path.loss_millionths
        )

    def tell_now(self) -> None:
        self.watched.tell_now()
        self._tend()

    def probe_now(self) -> None:
        self.watched.probe_now(self._now())
        self._arm(self._now())

    def _take(self, datagram: bytes, address: Address) -> None:
        super()._take(datagram, address)
        if not self._is_closed:
            self._report()

    def _tend(self) -> None:
        super()._tend()
        self._report()

    def _report(self) -> None:
        """Not after each of many datagrams: only if something is different, and now and then."""
        path, now = self.watched, self._now()
        reported = path.state, path.is_silent, path.told
        if reported != self._reported or now >= self._reports_at:
            self._reported, self._reports_at = reported, now + REPORT_EVERY
            self._paths.review()
