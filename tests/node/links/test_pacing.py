"""The pace of a link whose rate is known: the line is kept busy, and nothing piles up in front of it."""

import asyncio
from functools import partial

from test_overlay_link import Broker, joined

from overlane.core.units import MS, SECOND, Nanos
from overlane.node.links.overlay_link import OverlayLink
from overlane.node.links.pacing import AHEAD, DATAGRAM_HEADERS, SEGMENT_BYTES, SEGMENT_HEADERS, USED_PERCENT, Pace
from waiting import eventually_async

RATE_BPS = 8_000_000 * 100 // USED_PERCENT + 1  # of which a byte a microsecond is used
START: Nanos = 1_000 * SECOND


def test_the_line_is_kept_busy_and_no_more() -> None:
    pace = Pace(RATE_BPS)
    now, sent_bytes = START, 0
    while now < START + SECOND:
        while pace.room_bytes(now):
            pace.sent(500 - DATAGRAM_HEADERS, now)
            sent_bytes += 500
        now = max(now, pace.next_room)
    assert 1_000_000 <= sent_bytes <= 1_000_000 + AHEAD // 1_000 + 500


def test_what_was_not_used_while_there_was_nothing_to_send_is_not_made_up_for() -> None:
    pace = Pace(RATE_BPS)
    pace.sent(100, START)
    assert pace.room_bytes(START + 60 * SECOND) == AHEAD // 1_000


def test_headers_count() -> None:
    pace = Pace(RATE_BPS)
    pace.streamed(10 * SEGMENT_BYTES, START)
    assert pace.next_room == START + 10 * (SEGMENT_BYTES + SEGMENT_HEADERS) * 1_000 - AHEAD


def test_however_slow_the_line_is_something_leaves_when_nothing_is_before_it() -> None:
    pace = Pace(1_000)
    assert pace.room_bytes(START) == 1
    pace.sent(1_000, START)
    assert pace.room_bytes(START + 7 * SECOND) == 0
    assert pace.next_room > START + 7 * SECOND
    assert pace.room_bytes(pace.next_room) == 1


class Paced(Broker):
    """Has more to send than its line takes. What it keeps has an order still."""

    def pace(self, _: str) -> Pace | None:
        return Pace(RATE_BPS)

    def pull(self, _peer: str, bytes_max: int) -> bytes:
        return bytes(500 * -(-bytes_max // 500))


def _has_sent_more(link: OverlayLink, than_bytes: int) -> bool:
    return link.bytes_out > than_bytes


def test_a_link_takes_from_the_core_what_its_line_takes_and_comes_again_by_itself() -> None:
    async def story() -> None:
        sender, receiver = Paced("sender"), Broker("receiver")
        sending, receiving = await joined(sender, receiver)
        sending.pump()
        for moved_ms in range(20):
            sent_bytes = sending.bytes_out
            assert sent_bytes <= moved_ms * 1_000 + AHEAD // 1_000 + 500
            sender.clock += MS
            await eventually_async(partial(_has_sent_more, sending, sent_bytes), "more leaves")
        assert sending.bytes_out > 15_000
        sending.close("enough")
        receiving.close("enough")

    asyncio.run(story())


def test_a_rate_that_is_known_anew_holds_for_the_connection_that_there_is() -> None:
    async def story() -> None:
        sender, receiver = Paced("sender"), Broker("receiver")
        sending, receiving = await joined(sender, receiver)
        sending.pump()
        sender.to_send = [bytes(100_000)]
        sender.pull = Broker.pull.__get__(sender)  # type: ignore[method-assign]
        sending.paced(None)
        sending.pump()
        assert not sender.to_send
        sending.close("enough")
        receiving.close("enough")

    asyncio.run(story())
