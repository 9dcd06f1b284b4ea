"""The stream of a link continues over another connection: nothing is lost, repeated or out of order."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest
import uvloop
from test_overlay_link import Broker, _until, joined

from overlane.network.schema import Security
from overlane.node.links.overlay_link import OverlayLink
from overlane.node.links.streams.movable_transport import KEPT_BYTES_MAX, MovableTransport
from overlane.node.links.streams.move import StreamMove
from overlane.node.security.tls import client_context, server_context
from overlane.testbed.certificates import Authority

Run = Callable[[Coroutine[Any, Any, None]], None]
Tls = tuple[ssl.SSLContext, ssl.SSLContext] | None


class Movable(Broker):
    """Has one link, whose stream may continue over other connections, and writes down what comes."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.link: OverlayLink
        self.heard = bytearray()
        self.lost_for: list[str] = []

    def received(self, _: OverlayLink, data: bytes) -> None:
        self.heard += data

    def pull(self, _peer: str, _bytes_max: int) -> bytes:
        taken, self.to_send = b"".join(self.to_send), []
        return taken

    def moves(self, _: OverlayLink, link_id: bytes, transport: asyncio.Transport, data: bytes) -> None:
        assert link_id == self.link.id
        StreamMove(self.link, transport).begin(data)

    def lost(self, link: OverlayLink, why: str) -> None:
        if link is self.link:
            self.lost_for.append(why)

    def send(self, data: bytes) -> None:
        self.to_send.append(data)
        self.link.pump()


async def linked(tls: Tls) -> tuple[Movable, Movable]:
    one, other = Movable("sender"), Movable("receiver")
    one.link, other.link = await joined(one, other, tls)
    for broker in (one, other):
        assert broker.link.make_movable() is broker.link.make_movable()
    return one, other


async def move(one: Movable, other: Movable, tls: Tls) -> None:
    """Dial a new connection, and wait until the stream has moved there at both ends."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    server_tls, client_tls = tls or (None, None)
    dialled = OverlayLink(one, "receiver", None, one.link.id)
    await asyncio.gather(
        loop.create_connection(lambda: dialled, sock=ours, ssl=client_tls, server_hostname=tls and "receiver"),
        loop.connect_accepted_socket(lambda: OverlayLink(other), theirs, ssl=server_tls),
    )
    await dialled.settled.wait()


def _movable(broker: Movable) -> MovableTransport:
    found = broker.link.make_movable()
    assert found is not None
    return found


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    directory: Path = tmp_path_factory.mktemp("tls")
    authority = Authority(directory)
    own = authority.broker("receiver")
    files = {"certificate": str(own.certificate), "key": str(own.key)}
    return server_context(Security(**files)), client_context(ca=authority.ca)  # type: ignore[arg-type]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("is_encrypted", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_under_way_arrives_once_and_in_order(
    seed: int, is_encrypted: bool, run: Run, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    print("seed", seed)
    luck = Random(seed)

    async def story() -> None:
        tls = contexts if is_encrypted else None
        one, other = await linked(tls)
        sent = {one: bytearray(), other: bytearray()}
        for _ in range(6):
            # A path that swallows what is under way: nothing more is read from it.
            for broker in (one, other):
                if luck.random() < 0.5:
                    _movable(broker).pause_reading()
            for _ in range(luck.randint(1, 20)):
                broker = luck.choice((one, other))
                data = luck.randbytes(luck.randint(1, 50_000))
                sent[broker] += data
                broker.send(data)
                if luck.random() < 0.3:
                    await asyncio.sleep(0)
            await move(one, other, tls)
            await _until(lambda: not _movable(one).is_frozen and not _movable(other).is_frozen)
            for broker in (one, other):
                _movable(broker).resume_reading()
            if luck.random() < 0.5:
                _movable(one).acknowledged(other.link.stream_in)
                _movable(other).acknowledged(one.link.stream_in)
        await _until(lambda: len(other.heard) >= len(sent[one]) and len(one.heard) >= len(sent[other]))
        assert (other.heard, one.heard) == (sent[one], sent[other])
        assert one.lost_for == other.lost_for == []

    run(story())


def test_what_the_neighbour_has_is_not_kept() -> None:
    async def story() -> None:
        one, other = await linked(None)
        for _ in range(10):
            one.send(bytes(1_000))
        await _until(lambda: other.link.stream_in == 10_000)
        assert _movable(one).kept_bytes == 10_000
        _movable(one).acknowledged(9_500)
        assert _movable(one).kept_bytes == 1_000  # in whole writes
        _movable(one).acknowledged(10_000)
        assert _movable(one).kept_bytes == 0

    asyncio.run(story())


def test_where_what_is_missing_is_no_longer_kept_the_link_is_lost() -> None:
    async def story() -> None:
        one, other = await linked(None)
        _movable(other).pause_reading()
        for _ in range(KEPT_BYTES_MAX // 65_536 + 20):
            _movable(one).write(bytes(65_536))
        assert _movable(one).kept_bytes <= KEPT_BYTES_MAX
        await move(one, other, None)
        await _until(lambda: bool(one.lost_for))

    asyncio.run(story())


def test_a_connection_that_ends_before_it_has_taken_over_ends_the_link() -> None:
    async def story() -> None:
        one, _ = await linked(None)
        ours, theirs = socket.socketpair()
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
        StreamMove(one.link, transport).begin(b"1234")
        theirs.close()
        await _until(lambda: bool(one.lost_for))

    asyncio.run(story())
