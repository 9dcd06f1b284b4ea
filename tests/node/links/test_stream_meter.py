"""The meter of a connection: long parcels leave in parts, whole in the end, and what is urgent passes them."""

import asyncio
from functools import partial

from test_datagram_link import URGENT, Urgent, _link_to, _neighbour
from test_overlay_link import Broker, joined

from overlane.core.events import Lane
from overlane.core.links.neighbour import Chunk
from overlane.core.units import MS, SECOND, Nanos
from overlane.core.wire.frame_codec import FrameType
from overlane.node.links.datagrams.path import PathState
from overlane.node.links.datagrams.seal import FRAMES_BYTES_MAX
from overlane.node.links.overlay_link import OverlayLink
from overlane.node.links.pacing import USED_PERCENT, Pace
from overlane.node.links.streams.meter import PART_BYTES_MIN, REST_BYTES_MAX, StreamMeter
from waiting import eventually_async

RATE_BPS = 8_000_000 * 100 // USED_PERCENT + 1  # of which a byte a microsecond is used
BULK = bytes([0, 0, 0, 0, FrameType.PARCEL, 0]) + bytes(range(250)) * 240
"""A parcel without a deadline."""


class Sender(Urgent):
    def __init__(self) -> None:
        super().__init__("sender")
        self.bulk: list[Chunk] = []

    def pace(self, _: str) -> Pace | None:
        return Pace(RATE_BPS)

    def pull_apart(self, _peer: str, _bytes_max: int, _now: Nanos) -> list[Chunk]:
        taken, self.bulk = self.bulk, []
        return taken


class Receiver(Broker):
    def __init__(self) -> None:
        super().__init__("receiver")
        self.got = b""

    def received(self, _: OverlayLink, data: bytes) -> None:
        self.got += data


def _has(receiver: Receiver, size: int) -> bool:
    return len(receiver.got) >= size


def test_what_is_urgent_passes_a_long_parcel_of_which_a_part_has_left() -> None:
    async def story() -> None:
        sender, receiver = Sender(), Receiver()
        sending, receiving = await joined(sender, receiver)
        with _neighbour() as neighbour, _link_to(neighbour) as beside:
            sending.datagrams = beside
            beside.path.state, beside.path.frames_bytes_max = PathState.OPEN, FRAMES_BYTES_MAX
            before = sending.bytes_out - beside.bytes_out
            sender.bulk = [(Lane.DATA, BULK)]
            sending.pump()
            first = sending.bytes_out - beside.bytes_out - before
            assert 0 < first < len(BULK) // 4
            sender.urgent = [(Lane.DATA, URGENT)]
            datagrams_before = beside.sent
            sender.clock += 2 * MS
            sending.pump()
            assert beside.sent == datagrams_before + 1
            assert sending.bytes_out - beside.bytes_out - before <= first + PART_BYTES_MIN
            sender.clock += SECOND
            while not _has(receiver, len(BULK)):
                sending.pump()
                sender.clock += 10 * MS
                await asyncio.sleep(0)
            await eventually_async(partial(_has, receiver, len(BULK)), "the whole parcel is there")
            assert receiver.got == BULK
            sending.close("enough")
            receiving.close("enough")

    asyncio.run(story())


def test_what_datagrams_did_not_bring_follows_the_rest_of_a_parcel() -> None:
    async def story() -> None:
        sender, receiver = Sender(), Receiver()
        sending, receiving = await joined(sender, receiver)
        with _neighbour() as neighbour, _link_to(neighbour) as beside:
            sending.datagrams = beside
            beside.path.state, beside.path.frames_bytes_max = PathState.OPEN, FRAMES_BYTES_MAX
            sender.bulk = [(Lane.DATA, BULK)]
            sending.pump()
            sending.rescue(URGENT)
            while not _has(receiver, len(BULK + URGENT)):
                sender.clock += 10 * MS
                sending.pump()
                await asyncio.sleep(0)
            assert receiver.got == BULK + URGENT
            sending.close("enough")
            receiving.close("enough")

    asyncio.run(story())


def test_parts_are_not_smaller_than_is_worth_a_packet_and_together_the_whole() -> None:
    meter = StreamMeter()
    parts = [meter.part(BULK, 1, 2)]
    while meter.rest:
        parts.append(meter.part(meter.take_rest(), 1, 2))
    assert b"".join(parts) == BULK
    assert {len(part) for part in parts[:-1]} == {PART_BYTES_MIN}


def test_where_there_is_as_much_room_as_can_be_everything_leaves_at_once() -> None:
    meter = StreamMeter()
    assert meter.part(BULK, 2, 2) == BULK
    assert not meter.rest
    assert not meter.joins(URGENT)


def test_a_rest_that_grows_too_long_is_full() -> None:
    meter = StreamMeter()
    meter.part(BULK, 1, 2)
    assert not meter.is_full
    assert meter.joins(bytes(REST_BYTES_MAX))
    assert meter.is_full
