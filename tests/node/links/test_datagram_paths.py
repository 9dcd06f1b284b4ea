"""The paths of a link at both ends, over loopback addresses: opened, accepted, chosen, closed."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic_ns

from test_overlay_link import _until

from overlane.core.units import Nanos
from overlane.core.wire import frame_codec
from overlane.node.links.datagrams.link import DatagramLink
from overlane.node.links.datagrams.sockets import DatagramSocket, DatagramSockets
from overlane.node.links.greeting import DatagramSession
from overlane.node.links.multipath.path_link import LinkCallbacks
from overlane.node.links.multipath.paths import PATHS_OPEN_MAX, DatagramPaths

PING = frame_codec.ping(1)
HOSTS = [f"127.0.0.{number}" for number in range(1, 40)]
SESSIONS = {"dialler": 0x1100, "dialled": 0x2200}


@dataclass
class End:
    """One of two brokers."""

    name: str
    key: bytes | None
    heard: list[bytes] = field(default_factory=list)
    rescued: list[bytes] = field(default_factory=list)
    changes: list[Nanos] = field(default_factory=list)
    standby: list[Nanos] = field(default_factory=list)
    moves: list[tuple[str, str]] = field(default_factory=list)
    stream_in: int = 0
    peer_has: int = 0

    def __post_init__(self) -> None:
        self.sockets = DatagramSockets(0)
        self.paths: DatagramPaths

    def at(self, host: str) -> DatagramSocket:
        found = self.sockets.at((host, 0))
        assert found is not None
        return found

    def connect(self, other: "End") -> None:
        keys = (b"k" * 32, b"l" * 32) if self.key is not None else (None, None)
        key_out, key_in = keys if self.name == "dialler" else keys[::-1]
        there = other.at(HOSTS[0])
        session = DatagramSession(SESSIONS[self.name], SESSIONS[other.name], there.port, key_out, key_in)
        callbacks = LinkCallbacks(
            now=monotonic_ns,
            hear=self.heard.append,
            go_on=lambda: None,
            rescue=self.rescued.append,
            failed=_raise,
            path_changed=self.changes.append,
            standby_changed=self.standby.append,
            stream_in=lambda: self.stream_in,
            stream_has=self._has,
            move_stream=lambda host, remote: self.moves.append((host, str(remote[0]))),
            keeps_link=lambda _: False,
        )
        has_dialled = self.name == "dialler"
        first = DatagramLink(
            self.at(HOSTS[0]),
            session,
            (HOSTS[0], there.port) if has_dialled else None,
            monotonic_ns,
            self.heard.append,
            lambda: None,
            self.rescued.append,
            pace=None,
            emulation=None,
            failed=_raise,
        )
        self.paths = DatagramPaths(first, session, self.sockets, callbacks, pace=None, has_dialled=has_dialled)

    def _has(self, count: int) -> None:
        self.peer_has = count

    def states(self) -> dict[str, str]:
        return {link.local_host: word for link, word in self.paths.views()}


def _raise(error: Exception) -> None:
    raise error


@contextmanager
def two_ends(key: bytes | None = None) -> Iterator[tuple[End, End]]:
    dialler, dialled = End("dialler", key), End("dialled", key)
    dialler.connect(dialled)
    dialled.connect(dialler)
    try:
        yield dialler, dialled
    finally:
        for end in (dialler, dialled):
            end.paths.close()
            end.sockets.close()


def open_path(dialler: End, dialled: End, host: str) -> int | None:
    """From and to this address, at the two ends."""
    return dialler.paths.open_path(dialler.at(host), (host, dialled.at(host).port))


def test_both_ends_see_the_paths_that_one_opens_and_use_one_of_them() -> None:
    async def story() -> None:
        with two_ends(b"key") as (dialler, dialled):
            # The second one comes first: nothing depends on the order in which they are accepted.
            assert [open_path(dialler, dialled, host) for host in HOSTS[:3]] == [1, 2, 3]
            assert open_path(dialler, dialled, HOSTS[1]) == 2, "it is there already"
            for end in (dialler, dialled):
                await _until(lambda end=end: sorted(end.states().values()) == ["in_use", "standby", "standby"])  # type: ignore[misc]
            before = len(dialled.heard)
            assert dialler.paths.send(PING)
            await _until(lambda: dialled.heard[before:] == [PING])

    asyncio.run(story())


def test_an_address_that_is_gone_is_told_over_the_other_path_and_used_again_when_it_is_back() -> None:
    async def story() -> None:
        with two_ends() as (dialler, dialled):
            for host in HOSTS[:2]:
                open_path(dialler, dialled, host)
            for end in (dialler, dialled):
                await _until(lambda end=end: sorted(end.states().values()) == ["in_use", "standby"])  # type: ignore[misc]
            used = next(host for host, word in dialled.states().items() if word == "in_use")
            other = next(host for host in HOSTS[:2] if host != used)
            dialled.stream_in = 4711
            dialled.paths.addresses_changed(frozenset({used}))
            assert dialled.states() == {used: "gone", other: "in_use"}
            await _until(lambda: dialler.states() == {used: "gone", other: "in_use"})
            assert dialler.peer_has == 4711
            assert dialler.moves[-1] == (other, other)
            dialled.paths.addresses_changed(frozenset())
            await _until(lambda: "gone" not in dialler.states().values())

    asyncio.run(story())


def test_a_path_with_the_wrong_key_is_not_accepted() -> None:
    async def story() -> None:
        with two_ends(b"key") as (dialler, dialled), two_ends() as (stranger, _):
            forged = stranger.paths.open_path(stranger.at(HOSTS[1]), (HOSTS[1], dialled.at(HOSTS[1]).port))
            assert forged == 1
            open_path(dialler, dialled, HOSTS[2])
            await _until(lambda: dialled.states() == {HOSTS[2]: "in_use"})
            open_path(dialler, dialled, HOSTS[1])
            await _until(lambda: set(dialled.states()) == {HOSTS[1], HOSTS[2]})

    asyncio.run(story())


def test_paths_that_never_answered_make_room_for_new_ones() -> None:
    async def story() -> None:
        with two_ends() as (dialler, dialled):
            for host in HOSTS[1 : PATHS_OPEN_MAX + 5]:
                assert dialler.paths.open_path(dialler.at(host), (host, 9)) is not None
            assert len(dialler.states()) == PATHS_OPEN_MAX
            assert open_path(dialler, dialled, HOSTS[0]) == PATHS_OPEN_MAX + 5
            await _until(lambda: dialled.states() == {HOSTS[0]: "in_use"})

    asyncio.run(story())
