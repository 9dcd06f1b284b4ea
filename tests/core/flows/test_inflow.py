"""Inflows: what is handed on, when, in which order, and never twice."""

from collections.abc import Iterable, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from overlane.core.events import Reception
from overlane.core.flows.arrival import HELD_MAX, LATE_WAIT, REORDER_WAIT_MAX, REORDER_WAIT_MIN, SKIPPED_MAX, Arrival
from overlane.core.flows.inflow import (
    FLOWS_MAX,
    IDLE_MAX,
    IDLE_RELIABLE_MAX,
    RECEIPT_AFTER,
    RECEIPT_DELAY,
    InflowName,
    Inflows,
    bits_to_bytes,
    decode_name,
    encode_name,
)
from overlane.core.routing.forwarding.message_losses import MessageLosses
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.core.wire.control_messages import Receipt, decode, encode
from overlane.core.wire.frame_codec import FRAME_BYTES_MAX, control
from overlane.core.wire.message_fields import BEHIND_MAX, BEHIND_PERCENT_MAX
from overlane.core.wire.parcel import ALONE, LOSSY, FlowPart, Predecessor

ME, ORIGIN = 5, 9
NOW = 40 * SECOND


def parcel(
    sequence: int,
    after: int | None = None,
    floor: int = 0,
    reliable: bool = True,
    deadline: Nanos = NEVER,
    age: Nanos = 0,
    flow: int = 1,
    predecessors: Iterable[Predecessor] = (),
    follows: tuple[int, ...] = (),
    overtakes: bool = False,
) -> Arrival:
    """By default all parcels of a flow are of one topic: each comes after the one before."""
    latest = max(follows, default=sequence - 1) if after is None else after
    part = FlowPart(1, flow, sequence, floor, latest, tuple(predecessors), follows, overtakes)
    return Arrival(part, [("t", 0, b"")], reliable, False, deadline, age, NOW)


class Sink:
    def __init__(self) -> None:
        self.saved: dict[InflowName, bytes] = {}
        self.losses = MessageLosses()
        self.inflows = Inflows(ME, self.saved.__setitem__, self.losses)

    def takes(self, *arrivals: Arrival, now: Nanos = NOW) -> list[int]:
        """The sequences that are handed on as these come."""
        return [one.part.sequence for arrival in arrivals for _, one in self.inflows.accept(ORIGIN, arrival, now)]

    def lets_go(self, now: Nanos) -> list[int]:
        released = [arrival.part.sequence for _, arrival in self.inflows.release_due(now)]
        self.inflows.set_wake()
        return released

    def receipts(self, now: Nanos) -> list[tuple[int, int]]:
        receipts = [(one.next, one.beyond) for one in self.inflows.due_receipts(now)]
        self.inflows.set_wake()
        return receipts


# Order


def test_parcels_in_order_are_handed_on_as_they_come() -> None:
    assert Sink().takes(parcel(1), parcel(2), parcel(3)) == [1, 2, 3]


def test_a_parcel_waits_for_what_it_comes_after() -> None:
    sink = Sink()
    assert sink.takes(parcel(1), parcel(3), parcel(4)) == [1]
    assert sink.takes(parcel(2)) == [2, 3, 4]


def test_a_parcel_of_another_topic_does_not_wait() -> None:
    sink = Sink()
    assert sink.takes(parcel(3, after=0), parcel(2, after=1)) == [3]
    assert sink.takes(parcel(1)) == [1, 2]


def test_what_came_is_never_handed_on_again() -> None:
    sink = Sink()
    assert sink.takes(parcel(1), parcel(1), parcel(3, after=0), parcel(3, after=0), parcel(4), parcel(4)) == [1, 3]
    assert sink.takes(parcel(2, after=1), parcel(2, after=1), parcel(1), parcel(3), parcel(4)) == [2, 4]


def test_a_reliable_flow_is_waited_for_from_its_first_parcel_on_another_from_what_comes_first() -> None:
    assert Sink().takes(parcel(5)) == []
    assert Sink().takes(parcel(5, reliable=False), parcel(6, reliable=False)) == [5, 6]


# Waiting no longer than the deadline allows


@pytest.mark.parametrize("deadline", [NEVER, 100 * MS])
def test_a_reliable_parcel_waits_as_long_as_it_takes(deadline: Nanos) -> None:
    sink = Sink()
    sink.takes(parcel(2, deadline=deadline, predecessors=[Predecessor(1, 2, 7, (ME,))]))
    assert sink.lets_go(NOW + 86_400 * SECOND) == []
    assert sink.takes(parcel(1), parcel(2)) == [1, 2]


def test_a_parcel_that_may_overtake_is_let_go_shortly_before_its_deadline_and_the_missing_one_is_still_taken() -> None:
    sink = Sink()
    sink.takes(parcel(2, deadline=100 * MS, age=40 * MS, overtakes=True))
    assert (sink.lets_go(NOW + 50 * MS), sink.lets_go(NOW + 59 * MS)) == ([], [2])
    assert sink.takes(parcel(1, deadline=100 * MS, age=300 * MS)) == [1]
    assert sink.takes(parcel(1), parcel(2)) == []


def test_a_parcel_that_may_overtake_and_is_late_anyway_waits_a_while_for_its_order() -> None:
    sink = Sink()
    sink.takes(parcel(2, deadline=100 * MS, age=200 * MS, overtakes=True))
    assert (sink.lets_go(NOW + LATE_WAIT - 1), sink.lets_go(NOW + LATE_WAIT)) == ([], [2])


def test_a_best_effort_parcel_waits_only_a_moment() -> None:
    sink = Sink()
    assert sink.takes(parcel(1, reliable=False, after=0), parcel(3, reliable=False)) == [1]
    assert (sink.lets_go(NOW + REORDER_WAIT_MIN - 1), sink.lets_go(NOW + REORDER_WAIT_MIN)) == ([], [3])


def test_the_moment_is_twice_what_the_slowest_lately_took() -> None:
    sink = Sink()
    sink.takes(parcel(1, reliable=False, after=0, age=80 * MS), parcel(3, reliable=False, age=5 * MS))
    assert (sink.lets_go(NOW + 157 * MS), sink.lets_go(NOW + 160 * MS)) == ([], [3])


def test_the_moment_is_bounded_however_slow_the_way_is() -> None:
    sink = Sink()
    sink.takes(parcel(1, reliable=False, after=0, age=3 * SECOND), parcel(3, reliable=False))
    assert (sink.lets_go(NOW + REORDER_WAIT_MAX - 1), sink.lets_go(NOW + REORDER_WAIT_MAX)) == ([], [3])


def test_a_best_effort_parcel_that_was_overtaken_is_dropped() -> None:
    sink = Sink()
    sink.takes(parcel(1, reliable=False, after=0), parcel(3, reliable=False))
    sink.lets_go(NOW + REORDER_WAIT_MIN)
    assert sink.takes(parcel(2, reliable=False)) == []
    assert sink.takes(parcel(4, reliable=False)) == [4]


def test_best_effort_parcels_that_were_overtaken_are_counted_once_and_others_are_not() -> None:
    sink = Sink()
    sink.takes(parcel(2, reliable=False, after=0), parcel(4, reliable=False))
    sink.lets_go(NOW + REORDER_WAIT_MIN)
    assert sink.losses.overtaken == 0  # they may not have been sent to here, or be on their way
    for late in (3, 1):
        sink.takes(parcel(late, reliable=False))
    assert sink.losses.overtaken == 2
    for copy in (1, 2, 3, 4):
        sink.takes(parcel(copy, reliable=False))
    assert sink.losses.overtaken == 2


def test_however_much_is_skipped_little_is_remembered_of_it() -> None:
    sink = Sink()
    last = 1 << 40
    for sequence in range(1, last, last // 8):
        sink.takes(parcel(sequence, reliable=False))
        sink.lets_go(NOW + REORDER_WAIT_MAX)
    (flow,) = sink.inflows._flows.values()
    assert len(flow.skipped) <= 2 * SKIPPED_MAX
    assert max(flow.skipped) == flow.next - 2


def test_letting_one_go_lets_go_all_that_it_held_back() -> None:
    sink = Sink()
    due = (2, 100), (3, 900), (5, 900)
    sink.takes(*(parcel(sequence, deadline=ms * MS, overtakes=True) for sequence, ms in due))
    assert sink.lets_go(NOW + 100 * MS) == [2, 3]


# Given up by the source


def test_below_the_floor_nothing_is_waited_for() -> None:
    sink = Sink()
    assert sink.takes(parcel(1), parcel(5, floor=5)) == [1, 5]
    assert sink.receipts(NOW + SECOND) == [(6, 0)]


def test_a_parcel_held_below_the_floor_is_handed_on_before_those_above_it() -> None:
    sink = Sink()
    assert sink.takes(parcel(1), parcel(3)) == [1]
    assert sink.takes(parcel(4, floor=4)) == [3, 4]
    assert sink.receipts(NOW + SECOND) == [(5, 0)]


def test_what_was_handed_on_at_the_floor_is_not_handed_on_again() -> None:
    sink = Sink()
    assert sink.takes(parcel(1), parcel(3, after=0), parcel(4, after=0, floor=3)) == [1, 3, 4]
    assert sink.takes(parcel(3, after=0)) == []
    assert sink.receipts(NOW + SECOND) == [(5, 0)]


# Order across flows


def test_a_topic_that_moved_to_another_flow_keeps_its_order() -> None:
    sink = Sink()
    before = Predecessor(1, 1, 2, (ME,))
    assert sink.takes(parcel(1), parcel(1, flow=2, predecessors=[before])) == [1]
    assert sink.takes(parcel(2)) == [2, 1]


def test_a_predecessor_binds_only_the_brokers_it_names() -> None:
    assert Sink().takes(parcel(1, flow=2, predecessors=[Predecessor(1, 1, 7, (ME + 1,))])) == [1]


def test_an_unknown_predecessor_is_waited_for_until_the_source_gives_it_up() -> None:
    sink = Sink()
    assert sink.takes(parcel(1, flow=2, predecessors=[Predecessor(1, 1, 7, (ME,))])) == []
    assert sink.takes(parcel(1, flow=2)) == [1]
    assert sink.takes(parcel(1, flow=2)) == []


def test_a_predecessor_holds_what_may_overtake_no_longer_than_its_deadline_allows() -> None:
    sink = Sink()
    held = parcel(1, flow=2, deadline=100 * MS, predecessors=[Predecessor(1, 1, 7, (ME,))], overtakes=True)
    assert sink.takes(held) == []
    assert sink.lets_go(NOW + 100 * MS) == [1]


def test_a_reliable_parcel_waits_for_a_best_effort_one_only_a_moment_and_for_a_reliable_one_on() -> None:
    sink = Sink()
    lossy, sure = Predecessor(1, 2, 7, (ME,), LOSSY), Predecessor(1, 3, 1, (ME,), ALONE)
    sink.takes(parcel(1, predecessors=[lossy]), parcel(2, after=0, predecessors=[lossy, sure]))
    assert (sink.lets_go(NOW + REORDER_WAIT_MIN - 1), sink.lets_go(NOW + REORDER_WAIT_MIN)) == ([], [1])
    assert sink.takes(parcel(1, flow=3)) == [1, 2]


def test_the_source_may_give_a_predecessor_up_for_one_broker_and_not_for_another() -> None:
    sink = Sink()
    assert sink.takes(parcel(1, flow=2, predecessors=[Predecessor(1, 1, 7, (ME, ME + 1))])) == []
    assert sink.takes(parcel(1, flow=2, predecessors=[Predecessor(1, 1, 7, (ME + 1,))])) == [1]


def test_what_the_source_has_given_up_is_not_handed_on_after_what_waited_for_it() -> None:
    sink = Sink()
    gone = Predecessor(1, 1, 2, (ME,), ALONE)
    assert sink.takes(parcel(1), parcel(1, flow=2, predecessors=[gone])) == [1]
    assert sink.takes(parcel(1, flow=2)) == [1]
    assert sink.takes(parcel(2)) == []


# A hole holds up its own topics alone


def test_a_parcel_that_follows_single_ones_does_not_wait_for_others_before_them() -> None:
    sink = Sink()
    assert sink.takes(parcel(1), parcel(3, follows=(1,)), parcel(4, follows=(3,))) == [1, 3, 4]
    assert sink.takes(parcel(5, follows=(2, 4)), parcel(6, follows=(4,)), parcel(7, follows=(5, 6))) == [6]
    assert sink.takes(parcel(2, follows=(1,))) == [2, 5, 7]


def test_a_predecessor_that_stands_alone_does_not_wait_for_others_before_it() -> None:
    sink = Sink()
    assert sink.takes(parcel(3, after=0)) == [3]
    for kind, found in ((0, []), (ALONE, [2])):
        later = parcel(2, flow=2, after=0, predecessors=[Predecessor(1, 1, 3, (ME,), kind)])
        assert sink.takes(later if kind else parcel(1, flow=2, predecessors=later.part.predecessors)) == found


# Receipts and progress


def test_a_receipt_tells_what_has_come_soon_but_for_many_together() -> None:
    sink = Sink()
    sink.takes(parcel(1), parcel(2))
    assert sink.inflows.wake_at == NOW + RECEIPT_DELAY
    assert (sink.receipts(NOW + RECEIPT_DELAY - 1), sink.receipts(NOW + RECEIPT_DELAY)) == ([], [(3, 0)])
    assert sink.inflows.wake_at == NEVER


def test_many_parcels_are_acknowledged_at_once() -> None:
    sink = Sink()
    sink.takes(*(parcel(sequence) for sequence in range(1, RECEIPT_AFTER + 1)))
    assert sink.receipts(NOW) == [(RECEIPT_AFTER + 1, 0)]


def test_a_gap_is_told_at_once_with_what_lies_beyond_it() -> None:
    sink = Sink()
    sink.takes(parcel(1), parcel(3, after=0), parcel(5, after=0))
    assert sink.receipts(NOW) == [(2, 0b101)]


def test_what_is_held_is_not_acknowledged_but_told_at_once_with_what_is_missing() -> None:
    sink = Sink()
    sink.takes(parcel(1), parcel(3), parcel(5))
    (told,) = sink.inflows.due_receipts(NOW)
    assert (told.next, told.beyond, told.held) == (2, 0, 0b1010)


def test_what_is_held_for_another_flow_is_not_told_so_that_it_comes_again_with_news_of_that() -> None:
    sink = Sink()
    sink.takes(parcel(1), parcel(3, predecessors=[Predecessor(1, 2, 7, (ME,))]))
    assert [one.held for one in sink.inflows.due_receipts(NOW)] == [0]


def test_a_duplicate_is_acknowledged_again_since_the_receipt_may_be_lost() -> None:
    sink = Sink()
    sink.takes(parcel(1))
    sink.receipts(NOW + SECOND)
    sink.takes(parcel(1))
    assert sink.receipts(NOW + SECOND) == [(2, 0)]


class Behind(Sink):
    """Readers that take everything, and are as far behind as a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.sequence = 0

    def come(self, topics: Sequence[str], percent: int) -> None:
        """A parcel of these topics, whose readers are so far behind."""
        self.sequence += 1
        arrival = parcel(self.sequence)
        arrival.messages = [(topic, 0, b"") for topic in topics]
        steps = self.inflows.accept(ORIGIN, arrival, NOW)
        next(steps)
        with pytest.raises(StopIteration):
            steps.send(Reception(True, dict.fromkeys(topics, percent) if percent else {}))

    def told(self) -> dict[str, int]:
        """By a receipt that a neighbour can read, since it would close the link otherwise."""
        (progress,) = self.inflows.due_receipts(NOW + RECEIPT_DELAY)
        receipt = Receipt("a", "b", 9, *progress.name[1:], progress.next, b"", b"", progress.behind)
        assert len(control(0, encode(receipt))) <= FRAME_BYTES_MAX
        assert decode(memoryview(encode(receipt))) == receipt
        return progress.behind


def test_a_receipt_tells_of_no_more_topics_than_it_may_however_often_their_readers_fall_behind() -> None:
    half = BEHIND_MAX // 2
    first, second, third = ([f"{name}/{number}" for number in range(half)] for name in ("first", "second", "third"))
    sink = Behind()
    sink.come(first, 50)
    assert sink.told() == dict.fromkeys(first, 50)
    sink.come(second, 50)
    sink.come(first, 0)
    sink.come(first, 50)
    assert sink.told() == dict.fromkeys([*first, *second], 50)
    sink.come(third, 50)
    sink.come([*first, *second], 0)
    told = sink.told()
    assert (len(told), [topic for topic in told if told[topic]]) == (BEHIND_MAX, third)


def test_readers_that_are_farther_behind_than_can_be_told_are_told_to_be_as_far_as_can_be() -> None:
    sink = Behind()
    sink.come("t", 4 * BEHIND_PERCENT_MAX)
    assert sink.told() == {"t": BEHIND_PERCENT_MAX}


def test_a_receipt_fits_a_frame_however_long_the_topics_are() -> None:
    topics = [f"{number:02}".ljust(65_535, "x") for number in range(BEHIND_MAX // 2)]
    sink = Behind()
    sink.come(topics, 100)
    assert sink.told() == {topics[0]: 100}


def test_best_effort_parcels_are_not_acknowledged() -> None:
    sink = Sink()
    sink.takes(parcel(1, reliable=False, after=0))
    assert (sink.receipts(NOW + SECOND), sink.saved) == ([], {})


def test_progress_is_saved_so_that_a_restart_hands_on_nothing_twice() -> None:
    sink, again = Sink(), Sink()
    sink.takes(parcel(1), parcel(2), parcel(4, after=0), parcel(6))
    for name, value in sink.saved.items():
        again.inflows.restore(decode_name(encode_name(name)), value, NOW)
    assert again.takes(*(parcel(sequence, after=0) for sequence in (1, 2, 4))) == []
    assert again.takes(parcel(3), parcel(6), parcel(5)) == [3, 5, 6]
    assert again.receipts(NOW + SECOND) == [(7, 0)]


def test_bits_beyond_travel_as_bytes() -> None:
    assert [bits_to_bytes(bits) for bits in (0, 1, 0x100)] == [b"", b"\x01", b"\x00\x01"]


# Limits


def test_the_missing_parcel_is_taken_however_many_are_held_for_it() -> None:
    sink = Sink()
    sink.takes(*(parcel(sequence) for sequence in range(2, HELD_MAX + 100)))
    assert len(sink.takes(parcel(1))) >= HELD_MAX
    following, _ = sink.receipts(NOW + SECOND)[0]
    assert following >= HELD_MAX


def test_best_effort_parcels_wait_for_a_lost_one_only_as_long_as_there_is_room_and_none_of_them_is_lost() -> None:
    sink = Sink()
    assert sink.takes(parcel(1, reliable=False)) == [1]
    later = [parcel(sequence, reliable=False) for sequence in range(3, 3 + HELD_MAX)]
    assert sink.takes(*later) == []
    following = 3 + HELD_MAX
    assert sink.takes(parcel(following, reliable=False)) == list(range(3, following + 1))
    assert sink.takes(parcel(following + 1, reliable=False)) == [following + 1]
    assert sink.takes(parcel(2, reliable=False)) == []


def test_a_flow_that_nobody_uses_is_forgotten_and_a_reliable_one_much_later() -> None:
    sink = Sink()
    sink.takes(parcel(1), parcel(1, flow=2, reliable=False, after=0))
    assert sink.inflows.forget_idle(NOW + IDLE_MAX + 1) == []
    assert sink.inflows.forget_idle(NOW + IDLE_RELIABLE_MAX + 1) == [(ORIGIN, 1, 1)]


# Any loss, duplication and reordering


def test_parcels_that_wait_for_each_other_in_turn_all_go_once_the_first_has_come() -> None:
    sink = Sink()
    third = parcel(2, flow=1, after=0, predecessors=[Predecessor(1, 2, 1, (ME,))])
    second = parcel(1, flow=2, predecessors=[Predecessor(1, 1, 1, (ME,))])
    assert sink.takes(third, second) == []
    assert sink.takes(parcel(1)) == [1, 1, 2]


@examples(200)
@given(
    topics=st.lists(st.integers(0, 2), min_size=1, max_size=25),
    flows=st.lists(st.integers(1, 2), min_size=25, max_size=25),
    seed=st.integers(0, 1 << 32),
)
def test_every_reliable_message_is_handed_on_exactly_once_and_in_order(
    topics: list[int], flows: list[int], seed: int
) -> None:
    luck = Random(seed)
    last: dict[int, tuple[int, int]] = {}  # where each topic's latest message went: flow, sequence
    counts = {1: 0, 2: 0}
    parcels: dict[tuple[int, int], tuple[int, Arrival]] = {}
    for topic, flow in zip(topics, flows, strict=False):
        counts[flow] += 1
        where, sequence = last.get(topic, (flow, 0))
        after, before = (sequence, []) if where == flow else (0, [Predecessor(1, where, sequence, (ME,))])
        last[topic] = flow, counts[flow]
        parcels[flow, counts[flow]] = topic, parcel(counts[flow], after, 1, flow=flow, predecessors=before)
    sink, handed = Sink(), list[tuple[int, int]]()
    missing = set(parcels)
    for _ in range(100):
        # What is unacknowledged is sent again, until everything is; half of it is lost, the rest comes in any order.
        sent = [name for name in sorted(missing) * 2 if luck.random() < 0.5]
        luck.shuffle(sent)
        for name in sent:
            arrival = Arrival(*(getattr(parcels[name][1], slot) for slot in Arrival.__slots__))
            handed += [(one.part.flow, one.part.sequence) for _, one in sink.inflows.accept(ORIGIN, arrival, NOW)]
        for (_, _, flow), following, beyond, *_ in sink.inflows.due_receipts(NOW + SECOND):
            if luck.random() < 0.7:
                missing -= {(flow, at) for at in range(1, following)}
                missing -= {(flow, following + 1 + bit) for bit in range(64) if beyond >> bit & 1}
    assert (missing, sorted(handed)) == (set(), sorted(parcels))
    for topic in set(topics):
        order = [name for name in parcels if parcels[name][0] == topic]
        assert [name for name in handed if parcels[name][0] == topic] == order


def test_an_origin_that_makes_up_flows_gets_no_more_than_a_limit_until_they_are_idle() -> None:
    sink = Sink()
    for number in range(FLOWS_MAX):
        assert sink.takes(parcel(1, flow=number)) == [1]
    assert sink.takes(parcel(1, flow=FLOWS_MAX)) == []
    assert sink.takes(parcel(2, flow=0)) == [2]
    assert [one.part.sequence for _, one in sink.inflows.accept(ORIGIN + 1, parcel(1, flow=FLOWS_MAX), NOW)] == [1]
    sink.inflows.forget_idle(NOW + IDLE_RELIABLE_MAX + 1)
    assert sink.takes(parcel(1, flow=FLOWS_MAX), now=NOW + IDLE_RELIABLE_MAX + 1) == [1]


def test_best_effort_parcels_that_wait_for_another_flow_keep_their_order_when_the_wait_is_over() -> None:
    # Each is held for twice the age of the slowest, which fades from parcel to parcel: the later is due earlier.
    sink = Sink()
    earlier = Predecessor(1, 2, 1, (ME,))
    assert sink.takes(parcel(1, reliable=False, age=100 * MS)) == [1]
    held = [parcel(number, reliable=False, predecessors=[earlier]) for number in (2, 3, 4)]
    assert sink.takes(*held) == []
    assert held[2].release_at < held[1].release_at < held[0].release_at
    assert sink.lets_go(held[2].release_at) == [2, 3, 4]
    assert sink.lets_go(held[0].release_at) == []
