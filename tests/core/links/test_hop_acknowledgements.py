"""Watching: what a notice, or its absence, tells of the parcels sent over a hop."""

from overlane.core.links.hop_acknowledgements import REORDERED_MAX, HopAckReport, UnacknowledgedParcels
from overlane.core.units import MS, Nanos
from overlane.core.wire.frame_codec import HopAck

SLOW, QUICK = 400 * MS, 70 * MS
"""Patience with a link of 170 ms, and with one of 30 ms."""


def watch_of(parcels: int, patience_ns: Nanos) -> UnacknowledgedParcels[str]:
    """So many parcels, sent at 0, 10, 20 ms and so on."""
    watch: UnacknowledgedParcels[str] = UnacknowledgedParcels()
    watch.next_overdue(patience_ns)
    for number in range(parcels):
        assert watch.add(f"parcel {number + 1}", prompt=True, now=number * 10 * MS) == number + 1
    return watch


def test_what_stays_without_notice_is_overdue_and_lost_once_later_parcels_have_come() -> None:
    watch = watch_of(5, QUICK)
    assert watch.next_overdue(QUICK) == QUICK
    assert watch.take_overdue(QUICK, QUICK) == ["parcel 1"]
    assert watch.handle_hop_ack(HopAck(3, 0, 0b10 >> 1), QUICK) == HopAckReport(2, 0, QUICK - 20 * MS, late=False)
    assert watch.handle_hop_ack(HopAck(2 + REORDERED_MAX, 0, 0b11), QUICK) == HopAckReport(
        1, 1, QUICK - 30 * MS, late=False
    )


def test_parcels_that_are_overtaken_on_a_link_that_became_quicker_are_neither_overdue_nor_lost() -> None:
    watch = watch_of(12, SLOW)  # the link becomes quicker before the last two are sent
    now = 170 * MS
    assert watch.handle_hop_ack(HopAck(11, 0, 0), now).lost == 0
    assert watch.handle_hop_ack(HopAck(12, 0, 0b1), now).lost == 0
    assert watch.take_overdue(QUICK, now) == []
    assert watch.next_overdue(QUICK) == SLOW
    came = [
        watch.handle_hop_ack(HopAck(12, 0, (1 << 11) - (1 << 11 - number)), now + 50 * MS) for number in range(1, 11)
    ]
    assert [told.lost for told in came] == [0] * 10
    assert watch.take_overdue(QUICK, SLOW + 200 * MS) == []


def test_parcels_that_were_sent_again_over_another_path_have_time_anew_and_measure_nothing() -> None:
    watch = watch_of(3, QUICK)
    watch.sent_again(SLOW, now=60 * MS)
    assert watch.next_overdue(QUICK) == 60 * MS + SLOW
    assert watch.handle_hop_ack(HopAck(3, 0, 0b1), 61 * MS) == HopAckReport(2, 0, None, late=False)
    assert watch.take_overdue(QUICK, 60 * MS + SLOW) == ["parcel 1"]
    number = watch.add("parcel 4", prompt=True, now=500 * MS)
    assert watch.handle_hop_ack(HopAck(number, 0, 0b11), 580 * MS) == HopAckReport(1, 1, 80 * MS, late=False)
