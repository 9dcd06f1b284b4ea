"""Replication over a line whose rate is known: at most half of it, and nothing with a deadline waits for a copy."""

import asyncio
from time import monotonic

from overlane.core.units import MS, SECOND, Nanos
from overlane.node.links.pacing import AHEAD, DATAGRAM_HEADERS, Pace
from overlane.node.recovery.replication.replication import ReplicaIdentity, Replication
from overlane.node.recovery.replication.replication_pace import PART_BYTES_MIN, ReplicationPace
from overlane.recovery.events import Event, Received
from overlane.recovery.replication.frames import Append, Heartbeat, snapshot_parts
from overlane.secret import Secret
from waiting import eventually_async

RATE_BPS = 1_000_000
EVERY: Nanos = 10 * MS
URGENT_BYTES = 200


class Line:
    """What a line of this rate has been given, and when it has sent it: a FIFO queue, as a router has."""

    def __init__(self) -> None:
        self.free_at: Nanos = 0
        self.copied = 0

    def give(self, size: int, now: Nanos) -> Nanos:
        """How long it takes until the last byte is sent."""
        self.free_at = max(self.free_at, now) + size * 8 * SECOND // RATE_BPS
        return self.free_at - now


def test_a_parcel_with_a_deadline_waits_for_one_part_of_a_copy_at_most_and_copies_get_half_of_the_line() -> None:
    line, pace = Line(), Pace(RATE_BPS)
    copying = ReplicationPace(RATE_BPS, lambda: pace)
    waits: list[Nanos] = []
    end, urgent_due = 10 * SECOND, 0
    for now in range(0, end, MS // 4):
        if now >= urgent_due and now >= pace.next_room:
            waits.append(now - urgent_due + line.give(URGENT_BYTES + DATAGRAM_HEADERS, now))
            pace.sent(URGENT_BYTES, now)
            urgent_due += EVERY
        while size := copying.part_bytes(now):
            line.give(size, now)
            line.copied += size
            copying.sent(size, now)
    one_part = (PART_BYTES_MIN + 60) * 8 * SECOND // RATE_BPS
    own = (URGENT_BYTES + DATAGRAM_HEADERS) * 8 * SECOND // RATE_BPS
    assert max(waits) <= AHEAD + 2 * one_part + own + MS
    share = line.copied * 8 * SECOND / end / RATE_BPS
    assert 0.35 < share <= 0.5, share


def test_without_an_overlay_link_copies_take_half_of_the_rate_all_the_same() -> None:
    copying, copied = ReplicationPace(RATE_BPS), 0
    for now in range(0, 10 * SECOND, MS):
        while size := copying.part_bytes(now):
            copied += size
            copying.sent(size, now)
    assert 0.35 < copied * 8 / 10 / RATE_BPS <= 0.5


def test_a_connection_over_a_slow_line_is_given_no_more_than_it_takes_and_all_arrives() -> None:
    """Of real time only a lower bound is judged: 60 kB at 1 Mbit/s, of which half is used, take a second."""

    async def go() -> None:
        secret = Secret(b"a secret of sixteen bytes or more")
        primary, mirror = (
            Replication(ReplicaIdentity("seattle", host, secret, False), 1 << 20) for host in ("one", "other")
        )
        primary.pace_of = lambda _: ReplicationPace(RATE_BPS)
        events: list[Event] = []
        mirror.on_event = events.append
        signs: list[float] = []
        mirror.on_sign_of_life = lambda _: signs.append(monotonic())
        assert await mirror.dial("seattle@one", await primary.listen("127.0.0.1")) is not None
        await eventually_async(lambda: primary.is_linked("other"), "the primary knows the mirror")
        started = monotonic()
        large = Append("seattle", 1, 1, (("table", b"key", b"x" * 60_000),), 5)
        primary.send("other", large)
        primary.send("other", Heartbeat("seattle", 1, 1, 6))
        (part,) = snapshot_parts("seattle", 1, 1, 1, [("table", b"key", b"x")], 7)
        assert await primary.send_slowly("other", part)
        assert monotonic() - started > 0.5, "a snapshot waits for the line"
        await eventually_async(lambda: len(events) == 3, "all has arrived", 60)
        assert monotonic() - started > 0.9
        heartbeat = Heartbeat("seattle", 1, 0, 6)
        assert events == [Received("one", frame) for frame in (heartbeat, large, part)], "the heartbeat goes first"
        assert len(signs) > 20, "every part is a sign of life"
        primary.close()
        mirror.close()

    asyncio.run(go())
