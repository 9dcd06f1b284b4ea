"""Outflows: what a source owes, for how long, and how it pays."""

import msgspec
import pytest

from overlane.core.flows.outflow import Outflow, Retained, StoredParcel
from overlane.core.flows.send_window import REORDER_MIN, RESEND_MARGIN, RESEND_MAX, UNSENT, WINDOW_MAX, WINDOW_MIN
from overlane.core.flows.topic_order import ALONE_MAX, PLACES_BYTES_MAX, RECENT, TIDY_TOPICS, Precedence, TopicOrder
from overlane.core.qos import Order, QosClass, Routing
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.core.wire.frame_codec import broker_id
from overlane.core.wire.parcel import ALONE, LOSSY, PREDECESSORS_MAX, FlowPart, Predecessor, names_too_many

NOW = 30 * SECOND
RELIABLE = QosClass(reliable=True, lifespan_ns=60 * SECOND)


def flow(destinations: str = "bc", qos: QosClass = RELIABLE, number: int = 1) -> Outflow:
    return Outflow((7, number), qos, tuple(destinations))


def seal(one: Outflow, size: int = 10, now: Nanos = NOW, after: int = 0) -> Retained:
    parcel = one.seal((("t",), (0,), (bytes(size),)), after, (), False, now)
    parcel.is_saved = True
    return parcel


def due(one: Outflow, destination: str, now: Nanos, *, at_once: bool = False) -> list[int]:
    return [parcel.sequence for parcel in one.due_for_resend(destination, 20 * MS, now, at_once)]


# Retention


def test_sequence_numbers_have_no_gaps() -> None:
    one = flow()
    assert [seal(one).sequence for _ in range(3)] == [1, 2, 3]


def test_a_reliable_parcel_is_kept_until_every_destination_has_it() -> None:
    one = flow()
    seal(one)
    seal(one)
    assert one.acknowledge("b", 3, 0, NOW) == ([], True)
    assert one.acknowledge("c", 2, 0, NOW) == ([1], True)
    assert (list(one.retained), one.floor) == ([2], 2)
    assert one.acknowledge("c", 3, 0, NOW) == ([2], True)
    assert (one.retained, one.retained_bytes, one.floor) == ({}, 0, 3)


def test_a_receipt_also_tells_what_has_come_beyond_a_gap() -> None:
    one = flow("b")
    for _ in range(5):
        seal(one)
    assert one.acknowledge("b", 2, 0b101, NOW) == ([1, 3, 5], True)
    assert list(one.retained) == [2, 4]


def test_a_receipt_that_tells_nothing_new_or_comes_from_a_stranger_changes_nothing() -> None:
    one = flow("b")
    seal(one)
    assert [one.acknowledge("b", 1, 0, NOW), one.acknowledge("z", 9, 0, NOW)] == [([], False), ([], False)]
    assert list(one.retained) == [1]


def test_a_best_effort_parcel_is_not_kept() -> None:
    one = flow(qos=QosClass())
    parcel = seal(one)
    assert (one.retained, one.part(parcel)) == ({}, FlowPart(7, 1, 1, 0, 0))


def test_the_floor_is_the_oldest_that_may_still_come_and_never_above_the_parcel_itself() -> None:
    one = flow("b")
    first, second = seal(one), seal(one, after=1)
    assert one.part(second) == FlowPart(7, 1, 2, 1, 1)
    one.acknowledge("b", 2, 0, NOW)
    assert one.part(second) == FlowPart(7, 1, 2, 2, 1)
    assert one.part(first).floor == 1


def test_at_the_end_of_its_lifespan_a_parcel_is_given_up() -> None:
    one = flow()
    seal(one)
    seal(one, now=NOW + SECOND)
    assert one.next_expiry() == NOW + 60 * SECOND
    assert (one.expire(NOW + 60 * SECOND - 1), one.expire(NOW + 60 * SECOND)) == ([], [1])
    assert (list(one.retained), one.owes("b", 1), one.owes("b", 2)) == ([2], False, True)
    assert one.expire(NOW + 61 * SECOND) == [2]
    assert (one.next_expiry(), one.retained_bytes) == (NEVER, 0)


def test_nothing_is_kept_for_a_destination_that_left() -> None:
    one = flow()
    seal(one)
    seal(one)
    one.acknowledge("b", 2, 0, NOW)
    assert one.give_up("c") == [1]
    assert (list(one.retained), one.owes("c", 9), one.give_up("c")) == ([2], False, [])


# Resending


def test_what_is_not_durable_is_not_sent_again() -> None:
    one = flow("b")
    parcel = one.seal((("t",), (0,), (b"x",)), 0, (), False, NOW)
    assert due(one, "b", NOW + SECOND, at_once=True) == []
    parcel.is_saved = True
    assert due(one, "b", NOW + SECOND, at_once=True) == [1]


def test_what_is_unacknowledged_is_sent_again_after_a_round_trip_and_a_margin() -> None:
    one = flow("b")
    seal(one)
    wait = 20 * MS + RESEND_MARGIN
    assert (due(one, "b", NOW + wait - 1), due(one, "b", NOW + wait)) == ([], [1])


def test_the_wait_doubles_without_progress_up_to_a_limit() -> None:
    one = flow("b")
    seal(one)
    waits, now = [], NOW
    for _ in range(9):
        due(one, "b", now)
        sent, now = now, one.send_windows["b"].resend_at
        waits.append(now - sent)
    wait = 20 * MS + RESEND_MARGIN
    assert waits == [min(RESEND_MAX, wait << doubled) for doubled in range(9)]


@pytest.mark.parametrize("is_held", [False, True])
def test_what_something_sent_well_after_it_has_overtaken_is_sent_again_at_once(is_held: bool) -> None:
    one = flow("b")
    for milliseconds in (0, 5, 15):
        seal(one, now=NOW + milliseconds * MS)
    later = NOW + 15 * MS + REORDER_MIN
    if is_held:
        one.held("b", 1, 0b100, {}, later)  # the third waits there for the others
    else:
        one.acknowledge("b", 1, 0b10, later)
    window = one.send_windows["b"].window
    assert due(one, "b", later) == [1, 2]
    assert (one.send_windows["b"].window, one.send_windows["b"].backoff) == (window // 2, 0)
    assert due(one, "b", later) == []
    seal(one, now=later + MS)
    one.acknowledge("b", 1, 0b110, later + 2 * MS)
    assert due(one, "b", later + 2 * MS) == []


def test_what_has_come_says_nothing_of_others_if_it_was_sent_more_than_once() -> None:
    one = flow("b")
    for _ in range(3):
        seal(one)
    later = NOW + SECOND
    assert due(one, "b", later) == [1, 2, 3]
    seal(one, now=later)
    one.acknowledge("b", 1, 0b10, later + 20 * MS)
    assert due(one, "b", later + 20 * MS) == []


def test_progress_ends_the_backoff() -> None:
    one = flow("b")
    seal(one)
    seal(one)
    now = NOW
    for _ in range(4):
        now += RESEND_MAX
        due(one, "b", now)
    one.acknowledge("b", 2, 0, NOW)
    assert due(one, "b", now + 20 * MS + RESEND_MARGIN) == [2]


def test_at_once_means_at_once() -> None:
    one = flow("b")
    seal(one)
    assert due(one, "b", NOW, at_once=True) == [1]


def test_only_what_the_destination_misses_is_sent_to_it() -> None:
    one = flow("bc")
    for _ in range(3):
        seal(one)
    one.acknowledge("b", 2, 0b1, NOW)
    assert (due(one, "b", NOW + SECOND), due(one, "c", NOW + SECOND)) == ([2], [1, 2, 3])


def test_no_more_than_a_window_is_resent_and_it_shrinks_when_what_was_sent_does_not_come() -> None:
    one = flow("b")
    for _ in range(200):
        seal(one, size=10_000)
    sizes = []
    now = NOW
    for _ in range(6):
        now += RESEND_MAX
        sizes.append(10_000 * len(due(one, "b", now)))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] < 200_000
    assert 0 < sizes[-1] <= 2 * WINDOW_MIN


def test_a_full_window_holds_new_parcels_back_until_something_is_acknowledged() -> None:
    one = flow("b")
    while not one.is_full():
        seal(one, size=10_000)
    in_flight = one.sequence
    held = seal(one, size=10_000)
    assert one.send_windows["b"].unacknowledged[held.sequence] == UNSENT
    one.acknowledge("b", in_flight, 0, NOW)
    assert (one.is_full(), due(one, "b", NOW + MS)) == (False, [held.sequence])


def test_the_window_grows_with_what_is_acknowledged_but_not_without_end() -> None:
    one = flow("b")
    windows = []
    for _ in range(2_000):
        parcel = seal(one, size=50_000)
        one.acknowledge("b", parcel.sequence + 1, 0, NOW)
        windows.append(one.send_windows["b"].window)
    assert windows == sorted(windows)
    assert windows[-1] <= WINDOW_MAX


# The store


def test_a_parcel_is_stored_with_all_that_its_next_life_needs() -> None:
    qos = QosClass(80 * MS, True, Routing.MULTIPATH, 3, 60 * SECOND, 2, Order.DEADLINE)
    one = flow(qos=qos)
    parcel = one.seal((("t",), (4,), (b"x",)), 5, (Predecessor(6, 2, 9, (1, 2), ALONE),), True, NOW, (3, 5))
    stored = msgspec.msgpack.decode(one.stored(parcel), type=StoredParcel)
    assert Outflow.read_key(one.key(1)) == ((7, 1), 1)
    assert (stored.qos(), stored.destinations) == (qos, ["b", "c"])
    again = stored.parcel(1)
    again.missing = {"b", "c"}
    parcel.is_saved = True
    assert again == parcel


def test_keys_sort_as_their_parcels_were_sealed() -> None:
    keys = [Outflow((life, number), RELIABLE, ()).key(at) for life in (1, 2) for number in (9, 10) for at in (99, 100)]
    assert keys == sorted(keys)


# Order


def after(places: TopicOrder, one: Outflow, flows: list[Outflow], *topics: str, now: Nanos = NOW) -> Precedence:
    """What the next parcel must come after, and seals it."""
    found = places.order(one, topics, {each.name: each for each in flows}, now)
    messages = topics, (0,) * len(topics), (b"",) * len(topics)
    one.seal(messages, found.after, found.predecessors, False, now, found.follows)
    return found


def test_a_topic_comes_after_its_own_last_message_and_no_other() -> None:
    places, one = TopicOrder(), flow()
    assert [after(places, one, [one], *topics) for topics in ("t", "u", "t", "uv", "tv")] == [
        Precedence(0, ()),
        Precedence(0, ()),
        Precedence(1, (), (1,)),
        Precedence(2, (), (2,)),
        Precedence(4, (), (3, 4)),
    ]


def test_where_a_parcel_comes_after_many_others_it_comes_after_all_up_to_the_last() -> None:
    places, one = TopicOrder(), flow()
    topics = [f"t{number}" for number in range(ALONE_MAX + 1)]
    for topic in topics:
        after(places, one, [one], topic)
    assert after(places, one, [one], *topics[1:]).follows == tuple(range(2, ALONE_MAX + 2))
    for topic in topics:
        after(places, one, [one], topic)
    assert after(places, one, [one], *topics) == Precedence(2 * ALONE_MAX + 3, ())


def test_of_many_places_in_other_flows_the_last_of_each_flow_is_named() -> None:
    places, old, other, new = TopicOrder(), flow(), flow(number=2), flow(number=3)
    topics = [f"t{number}" for number in range(ALONE_MAX + 1)]
    for topic in topics:
        after(places, old, [old, other], topic)
    after(places, other, [old, other], topics[0])
    found = after(places, new, [old, other, new], *topics).predecessors
    assert [(one.flow, one.sequence, one.kind) for one in found] == [(1, ALONE_MAX + 1, 0), (2, 1, 0)]


def test_a_best_effort_parcel_comes_after_all_up_to_the_last_of_its_topics() -> None:
    places, one = TopicOrder(), flow(qos=QosClass())
    assert [after(places, one, [one], *topics) for topics in ("t", "u", "tu")][-1] == Precedence(2, ())


def test_a_topic_that_moved_names_its_place_before_to_those_that_both_flows_have() -> None:
    places, old, new = TopicOrder(), flow("bc"), flow("cd", number=2)
    after(places, old, [old, new], "t")
    assert after(places, new, [old, new], "t") == Precedence(0, (Predecessor(7, 1, 1, (broker_id("c"),), ALONE),))
    old.acknowledge("c", 2, 0, NOW)
    assert after(places, new, [old, new], "t") == Precedence(1, (), (1,))


def test_a_place_is_remembered_for_destinations_that_the_topic_left_and_comes_back_to() -> None:
    places, old, new = TopicOrder(), flow("bc"), flow("cd", number=2)
    flows = [old, new]
    after(places, old, flows, "t")
    after(places, new, flows, "t")
    there = Predecessor(7, 2, 1, (broker_id("c"),), ALONE)
    assert after(places, old, flows, "t") == Precedence(1, (there,), (1,))
    old.acknowledge("b", 3, 0, NOW)
    old.acknowledge("c", 3, 0, NOW)
    new.acknowledge("c", 2, 0, NOW)
    assert after(places, old, flows, "t") == Precedence(2, (), (2,))
    new.acknowledge("d", 2, 0, NOW)
    after(places, new, flows, "t")
    assert len(places.of("t")) == 2  # what b has not acknowledged
    old.acknowledge("b", 4, 0, NOW)
    after(places, new, flows, "t")
    assert len(places.of("t")) == 1


@pytest.mark.parametrize("between", [QosClass(), QosClass(80 * MS, reliable=True, order=Order.DEADLINE)])
def test_what_would_not_wait_does_not_stand_for_what_is_before_it(between: QosClass) -> None:
    places, strict, other = TopicOrder(), flow("b"), flow("b", between, 2)
    flows = [strict, other]
    after(places, strict, flows, "t")
    after(places, other, flows, "t")
    assert after(places, strict, flows, "t").follows == (1,)


def test_what_comes_after_more_flows_than_a_parcel_can_name_is_still_put_after_all_of_them() -> None:
    places, flows = TopicOrder(), [flow("b", number=number) for number in range(1, PREDECESSORS_MAX + 3)]
    for each in flows[:-1]:
        places.recover(seal(each), each.name)
    found = after(places, flows[-1], flows, "t")
    assert len(found.predecessors) == PREDECESSORS_MAX + 1
    assert names_too_many(flows[-1].part(flows[-1].retained[1]))


def test_what_is_acknowledged_is_no_predecessor() -> None:
    places, old, new = TopicOrder(), flow("bc"), flow("c", number=2)
    after(places, old, [old, new], "t")
    old.acknowledge("c", 2, 0, NOW)
    assert after(places, new, [old, new], "t") == Precedence(0, ())


def test_a_best_effort_message_is_a_predecessor_only_for_a_while() -> None:
    for qos in (QosClass(), RELIABLE):
        for wait, found in ((RECENT - 1, (Predecessor(7, 1, 1, (broker_id("c"),), LOSSY),)), (RECENT, ())):
            places, old, new = TopicOrder(), flow("bc", QosClass()), flow("c", qos, 2)
            after(places, old, [old, new], "t")
            assert after(places, new, [old, new], "t", now=NOW + wait) == Precedence(0, found)


def test_what_was_retained_from_a_former_life_comes_before_what_is_new() -> None:
    places, old, new = TopicOrder(), flow("b"), Outflow((8, 1), RELIABLE, ("b",))
    parcel = seal(old)
    places.recover(parcel, old.name)
    assert after(places, new, [old, new], "t") == Precedence(0, (Predecessor(7, 1, 1, (broker_id("b"),), ALONE),))


# As many topics as publishers think up


def places_of(
    one: Outflow, topics: int, places: TopicOrder | None = None, now: Nanos = NOW, size: int = 0
) -> TopicOrder:
    """One parcel per topic."""
    places = places or TopicOrder()
    for number in range(topics):
        places.order(one, [f"{now}/{number}".ljust(size, "x")], {one.name: one}, now)
        seal(one, now=now)
    return places


def test_of_topics_whose_last_messages_are_acknowledged_no_more_than_a_limit_are_remembered() -> None:
    one = flow("b")
    places = places_of(one, TIDY_TOPICS)
    one.acknowledge("b", TIDY_TOPICS + 1, 0, NOW)
    places_of(one, TIDY_TOPICS // 2, places, NOW + RECENT)
    assert len(places) <= TIDY_TOPICS


def test_a_topic_whose_last_message_is_owed_is_never_forgotten() -> None:
    one = flow("b")
    places = places_of(one, 1)
    places_of(one, 2 * TIDY_TOPICS, places, NOW + RECENT)
    assert places.of(f"{NOW}/0") == {one.name: (1, NOW)}
    assert len(places) == 1 + 2 * TIDY_TOPICS


def test_of_best_effort_the_bytes_of_topics_are_bounded_whatever_is_recent() -> None:
    one = flow("b", QosClass())
    size = 60_000
    places = places_of(one, 2 * PLACES_BYTES_MAX // size, size=size)
    assert len(places) <= PLACES_BYTES_MAX // size + 1
