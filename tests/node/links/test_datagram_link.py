"""The datagrams of a link: they feel what its emulation says, and share what they are trusted with."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from random import Random

import pytest
from test_overlay_link import Broker, _until, joined

from overlane.core.events import Lane
from overlane.core.links.neighbour import Chunk
from overlane.core.units import Nanos
from overlane.core.wire import frame_codec
from overlane.node.links.datagrams.link import DatagramLink
from overlane.node.links.datagrams.path import PathState
from overlane.node.links.datagrams.seal import FRAMES_BYTES_MAX, DatagramAck, DatagramKind, Opener, Sealer
from overlane.node.links.datagrams.sockets import DatagramSockets
from overlane.node.links.emulation import Emulation, LinkConditions
from overlane.node.links.greeting import DatagramSession

LOOPBACK = ("127.0.0.1", 0)
URGENT = frame_codec.ping(1)


def _raise(error: Exception) -> None:
    raise error


@contextmanager
def _link_to(neighbour: socket.socket, emulation: Emulation | None = None) -> Iterator[DatagramLink]:
    """One that was dialled by us, so that it probes at once. Its clock stands."""

    def now() -> Nanos:
        return 0

    sockets = DatagramSockets(0)
    own = sockets.at(LOOPBACK)
    assert own is not None
    link = DatagramLink(
        own,
        DatagramSession(1, 2, neighbour.getsockname()[1], None, None),
        neighbour.getsockname(),
        now,
        hear=lambda _: None,
        go_on=lambda: None,
        rescue=lambda _: None,
        pace=None,
        emulation=emulation,
        failed=_raise,
    )
    try:
        yield link
    finally:
        link.close()
        sockets.close()


@contextmanager
def _neighbour() -> Iterator[socket.socket]:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as made:
        made.bind(LOOPBACK)
        made.setblocking(False)
        yield made


def test_the_very_first_probe_feels_the_emulation() -> None:
    async def story() -> None:
        with _neighbour() as neighbour:
            with _link_to(neighbour) as link:
                assert link.sent == 1
                assert neighbour.recv(2_000)
            with _link_to(neighbour, Emulation(LinkConditions(is_cut=True), Random(1))) as link:
                assert link.sent == 1
                with pytest.raises(BlockingIOError):
                    neighbour.recv(2_000)

    asyncio.run(story())


class Urgent(Broker):
    """Has one thing to send, which is urgent."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.urgent: list[Chunk] = []

    def pull_urgent(self, _peer: str, _bytes_max: int) -> list[Chunk]:
        taken, self.urgent = self.urgent, []
        return taken


@pytest.mark.parametrize(("state", "over_the_connection"), [(PathState.OPEN, 0), (PathState.DOUBTED, len(URGENT))])
def test_beside_a_full_connection_a_doubted_path_is_not_trusted_alone(
    state: PathState, over_the_connection: int
) -> None:
    async def story() -> None:
        sender, receiver = Urgent("sender"), Broker("receiver")
        sending, receiving = await joined(sender, receiver)
        with _neighbour() as neighbour, _link_to(neighbour) as beside:
            sending.datagrams = beside
            beside.path.state, beside.path.frames_bytes_max = state, FRAMES_BYTES_MAX
            sending.pause_writing()
            before, datagrams_before = sending.bytes_out - beside.bytes_out, beside.sent
            sender.urgent = [(Lane.DATA, URGENT)]
            sending.pump()
            assert beside.sent == datagrams_before + 1
            assert sending.bytes_out - beside.bytes_out - before == over_the_connection
            counted = sending.bytes_out
            sending.close("enough")
            assert sending.bytes_out == counted, "what was counted stays counted"
            receiving.close("enough")

    asyncio.run(story())


def _received(at: socket.socket) -> bytes:
    """The next datagram that is there; nothing if there is none."""
    try:
        return at.recv(2_000)
    except BlockingIOError:
        return b""


def test_a_neighbour_at_another_address_is_followed_when_it_has_answered_a_challenge_there() -> None:
    async def story() -> None:
        with _neighbour() as before, _neighbour() as after, _link_to(before) as link:
            sealer, opener = Sealer(1, None), Opener(None)
            ours = "127.0.0.1", link.port
            assert _received(before)
            # Something authentic comes from elsewhere: it is challenged there, and nothing else changes.
            after.sendto(sealer.seal(0, None, URGENT), ours)
            await _until(lambda: link.received == 1)
            assert link.remote == before.getsockname()
            challenge = opener.open(_received(after))
            assert challenge.kind & DatagramKind.PROBE
            # An answer to something else proves nothing.
            after.sendto(sealer.seal(0, DatagramAck(challenge.number - 1, 0, 0)), ours)
            await _until(lambda: link.received == 2)
            assert link.remote == before.getsockname()
            after.sendto(sealer.seal(0, DatagramAck(challenge.number, 0, 0)), ours)
            await _until(lambda: link.remote == after.getsockname())

    asyncio.run(story())


def test_what_is_not_authentic_is_not_challenged() -> None:
    async def story() -> None:
        with _neighbour() as before, _neighbour() as after, _link_to(before) as link:
            replayed = Sealer(1, None).seal(0, None, URGENT)
            for sender in (before, after):
                sender.sendto(replayed, ("127.0.0.1", link.port))
            await _until(lambda: link.received == 2)
            assert link.remote == before.getsockname()
            assert _received(after) == b""

    asyncio.run(story())
