"""A connection between neighbours: what cannot be passed on at once is not taken in at once either."""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from overlane.core.links.neighbour import Chunk
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.network import Security
from overlane.node.links import reading
from overlane.node.links.datagrams.link import DatagramLink
from overlane.node.links.emulation import Emulation
from overlane.node.links.greeting import Credentials, DatagramSession, Offer
from overlane.node.links.overlay_link import READ_BYTES, OverlayLink
from overlane.node.links.pacing import Pace
from overlane.node.links.reading import (
    CALM_PATIENCE_NS,
    MOVING_BYTES,
    PATIENCE_NS,
    READ_SLOWLY_BYTES,
    RECORDED_BYTES_MAX,
)
from overlane.node.security.tls import client_context, server_context
from overlane.testbed.certificates import Authority

SENT_BYTES = 8 * READ_BYTES


class Broker:
    """Counts what it is told; its other neighbours are crowded when it says so. Its clock stands unless it is moved."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.clock: Nanos = 0
        self.others_are_crowded = False
        self.left = 0
        """Bytes that have left for other neighbours."""
        self.patience: Nanos = SECOND
        self.received_bytes = 0
        self.to_send: list[bytes] = []

    def now(self) -> Nanos:
        return self.clock

    def credentials(self, _: asyncio.Transport) -> Credentials:
        return Credentials(self._name, None, None, True)

    def offer(self, _: asyncio.Transport) -> Offer | None:
        return None

    def datagrams(
        self, _link: OverlayLink, _session: DatagramSession, _transport: asyncio.Transport
    ) -> DatagramLink | None:
        return None

    def emulation(self, _: str) -> Emulation | None:
        return None

    def pace(self, _: str) -> Pace | None:
        return None

    def dscp(self, _: str) -> int:
        return 0

    def greeted(self, _: OverlayLink) -> bool:
        return True

    def passed_in(self, _: OverlayLink, _transport: asyncio.Transport, _data: bytes) -> bool:
        raise AssertionError("no client is passed on here")

    def moves(self, _: OverlayLink, _link_id: bytes, transport: asyncio.Transport, _data: bytes) -> None:
        transport.abort()

    def received(self, _: OverlayLink, data: bytes) -> None:
        self.received_bytes += len(data)

    def is_crowded(self, besides: str) -> bool:
        return besides == "sender" and self.others_are_crowded

    def left_bytes(self, _besides: str) -> int:
        return self.left

    def patience_ns(self, _peer: str) -> Nanos:
        return self.patience

    def pull(self, _peer: str, _bytes_max: int) -> bytes:
        return self.to_send.pop() if self.to_send else b""

    def pull_apart(self, _peer: str, _bytes_max: int, _now: Nanos) -> list[Chunk]:
        return []

    def pull_urgent(self, _peer: str, _bytes_max: int) -> list[Chunk]:
        return []

    def sent(self) -> None:
        pass

    def lost(self, link: OverlayLink, why: str) -> None:
        pass

    def failed(self, _: OverlayLink, error: Exception) -> None:
        raise error


async def _until(holds: Callable[[], bool], within_s: float = 20.0) -> None:
    patience_ends = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < patience_ends
        await asyncio.sleep(0.001)


async def joined(
    sender: Broker, receiver: Broker, tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None
) -> tuple[OverlayLink, OverlayLink]:
    """The two ends of a connection that the sender has dialled."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    server_tls, client_tls = tls or (None, None)
    sending, receiving = OverlayLink(sender, "receiver"), OverlayLink(receiver)
    await asyncio.gather(
        loop.create_connection(lambda: sending, sock=ours, ssl=client_tls, server_hostname=tls and "receiver"),
        loop.connect_accepted_socket(lambda: receiving, theirs, ssl=server_tls),
    )
    await _until(lambda: sending.is_up and receiving.is_up)
    return sending, receiving


async def _flooded(receiver: Broker) -> OverlayLink:
    """The receiver's end of a connection, over which much comes."""
    sender = Broker("sender")
    sending, receiving = await joined(sender, receiver)
    sender.to_send = [bytes(READ_BYTES)] * (SENT_BYTES // READ_BYTES)
    sending.pump()
    await _until(lambda: receiver.received_bytes > 0)
    return receiving


async def _as_much_as_comes(receiver: Broker) -> int:
    """Turns of the loop enough for everything that would be read."""
    for _ in range(50):
        await asyncio.sleep(0.001)
    return receiver.received_bytes


def test_what_comes_is_read_when_there_is_room_for_it_again() -> None:
    async def story() -> tuple[bool, int]:
        receiver = Broker("receiver")
        receiver.others_are_crowded = True
        link = await _flooded(receiver)
        while_crowded = await _as_much_as_comes(receiver)
        receiver.others_are_crowded = False
        link.reading.others_have_room()
        await _until(lambda: receiver.received_bytes == SENT_BYTES)
        return while_crowded <= READ_BYTES, receiver.received_bytes

    assert asyncio.run(story()) == (True, SENT_BYTES)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("is_encrypted", [False, True])
def test_what_is_sent_does_not_wait_for_an_answer_to_what_was_sent_before(
    tmp_path: Path, run: Callable[[Coroutine[Any, Any, None]], None], is_encrypted: bool
) -> None:
    authority = Authority(tmp_path)
    own = authority.broker("receiver")
    files = {"certificate": str(own.certificate), "key": str(own.key)}
    tls = server_context(Security(**files)), client_context(ca=authority.ca)  # type: ignore[arg-type]

    async def story() -> None:
        sender, receiver = Broker("sender"), Broker("receiver")
        sending, _ = await joined(sender, receiver, tls if is_encrypted else None)
        for number in range(1, 6):
            sender.to_send = [b"x"]
            sending.pump()
            await _until(lambda number=number: receiver.received_bytes == number)  # type: ignore[misc]

    run(story())


def test_a_neighbour_that_stays_crowded_holds_nobody_up_for_long() -> None:
    async def story() -> int:
        receiver = Broker("receiver")
        receiver.others_are_crowded = True
        await _flooded(receiver)
        receiver.clock = PATIENCE_NS
        await _until(lambda: receiver.received_bytes == SENT_BYTES)
        return receiver.received_bytes

    assert asyncio.run(story()) == SENT_BYTES


def test_a_connection_that_was_given_up_takes_nothing_that_is_meant_for_the_next() -> None:
    async def given_up() -> list[bytes]:
        sender, receiver = Broker("sender"), Broker("receiver")
        sending, _ = await joined(sender, receiver)
        sending.close("another connection stays")
        sender.to_send = [b"the greeting of the next connection"]
        sending.pump()
        sending.resume_writing()
        return sender.to_send

    assert asyncio.run(given_up()) == [b"the greeting of the next connection"]


def test_where_nothing_is_urgent_there_is_more_patience_though_not_without_end() -> None:
    async def story() -> int:
        receiver = Broker("receiver")
        receiver.others_are_crowded, receiver.patience = True, NEVER
        await _flooded(receiver)
        receiver.clock = CALM_PATIENCE_NS - 1
        assert await _as_much_as_comes(receiver) <= READ_BYTES
        receiver.clock = CALM_PATIENCE_NS
        await _until(lambda: receiver.received_bytes == SENT_BYTES)
        return receiver.received_bytes

    assert asyncio.run(story()) == SENT_BYTES


def test_others_that_take_much_are_waited_for_again_and_again() -> None:
    async def story() -> int:
        receiver = Broker("receiver")
        receiver.others_are_crowded, receiver.patience = True, NEVER
        await _flooded(receiver)
        for _ in range(5):
            receiver.clock += CALM_PATIENCE_NS - 1
            receiver.left += MOVING_BYTES
            assert await _as_much_as_comes(receiver) <= READ_BYTES
        receiver.clock += CALM_PATIENCE_NS
        await _until(lambda: receiver.received_bytes == SENT_BYTES)
        return receiver.received_bytes

    assert asyncio.run(story()) == SENT_BYTES


def test_what_is_urgent_waits_no_longer_than_it_has_time_to_spare() -> None:
    async def story() -> int:
        receiver = Broker("receiver")
        receiver.others_are_crowded, receiver.patience = True, 5 * MS
        await _flooded(receiver)
        assert await _as_much_as_comes(receiver) <= READ_BYTES
        receiver.clock = 5 * MS
        await _until(lambda: receiver.received_bytes == SENT_BYTES)
        return receiver.received_bytes

    assert asyncio.run(story()) == SENT_BYTES


class Recorder(Broker):
    """Makes records of what it is told, ten times as large."""

    def received(self, link: OverlayLink, data: bytes) -> None:
        super().received(link, data)
        self.reads.append(len(data))
        link.reading.recorded(10 * len(data), turn=self.turn)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.reads: list[int] = []
        self.turn = 1


def test_a_neighbour_whose_words_are_recorded_is_read_on_when_they_are_on_disk_and_less_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On a busy machine the usual patience ends before the disk is said to be done.
    monkeypatch.setattr(reading, "CALM_PATIENCE_NS", 3_600 * SECOND)

    async def story() -> list[int]:
        receiver = Recorder("receiver")
        link = await _flooded(receiver)
        first = await _as_much_as_comes(receiver)
        assert first <= READ_BYTES
        link.reading.written(0)
        assert await _as_much_as_comes(receiver) == first
        link.reading.written(1)
        assert first < await _as_much_as_comes(receiver) <= first + RECORDED_BYTES_MAX // 10 + READ_SLOWLY_BYTES
        while receiver.received_bytes < SENT_BYTES:
            link.reading.written(1)
            await asyncio.sleep(0.001)
        return receiver.reads

    reads = asyncio.run(story())
    assert max(reads[1:]) <= READ_SLOWLY_BYTES


def test_a_link_does_not_fail_for_a_disk_that_takes_nothing() -> None:
    async def story() -> int:
        receiver = Recorder("receiver")
        await _flooded(receiver)
        first = await _as_much_as_comes(receiver)
        await _until(lambda: receiver.received_bytes > first)
        return receiver.received_bytes

    assert asyncio.run(story()) <= 2 * READ_BYTES
