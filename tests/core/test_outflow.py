"""Outflows: what a source owes, for how long, and how it pays."""

import msgspec

from overlane.core.debt import RESEND_MARGIN, RESEND_MAX, UNSENT, WINDOW_MAX, WINDOW_MIN
from overlane.core.outflow import Outflow, Retained, StoredParcel
from overlane.core.parcel import FlowPart, Predecessor
from overlane.core.places import RECENT, TopicPlaces
from overlane.core.qos import QosClass, Routing
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.core.wire import broker_id

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
        sent, now = now, one.debts["b"].resend_at
        waits.append(now - sent)
    wait = 20 * MS + RESEND_MARGIN
    assert waits == [min(RESEND_MAX, wait << doubled) for doubled in range(9)]


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
    under_way = one.sequence
    held = seal(one, size=10_000)
    assert one.debts["b"].unacknowledged[held.sequence] == UNSENT
    one.acknowledge("b", under_way, 0, NOW)
    assert (one.is_full(), due(one, "b", NOW + MS)) == (False, [held.sequence])


def test_the_window_grows_with_what_is_acknowledged_but_not_without_end() -> None:
    one = flow("b")
    windows = []
    for _ in range(2_000):
        parcel = seal(one, size=50_000)
        one.acknowledge("b", parcel.sequence + 1, 0, NOW)
        windows.append(one.debts["b"].window)
    assert windows == sorted(windows)
    assert windows[-1] <= WINDOW_MAX


# The store


def test_a_parcel_is_stored_with_all_that_its_next_life_needs() -> None:
    qos = QosClass(80 * MS, True, Routing.MULTIPATH, 3, 60 * SECOND, 2)
    one = flow(qos=qos)
    parcel = one.seal((("t",), (4,), (b"x",)), 5, (Predecessor(6, 2, 9, (1, 2)),), True, NOW)
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


def after(places: TopicPlaces, one: Outflow, flows: list[Outflow], *topics: str, now: Nanos = NOW) -> object:
    """What the next parcel must come after, and seals it."""
    found = places.order(one, topics, {each.name: each for each in flows}, now)
    one.seal((topics, (0,) * len(topics), (b"",) * len(topics)), *found, False, now)
    return found


def test_a_topic_comes_after_its_own_last_message_and_no_other() -> None:
    places, one = TopicPlaces(), flow()
    assert [after(places, one, [one], *topics) for topics in ("t", "u", "t", "uv", "tv")] == [
        (0, ()),
        (0, ()),
        (1, ()),
        (2, ()),
        (4, ()),
    ]


def test_a_topic_that_moved_names_its_place_before_to_those_that_both_flows_have() -> None:
    places, old, new = TopicPlaces(), flow("bc"), flow("cd", number=2)
    after(places, old, [old, new], "t")
    assert after(places, new, [old, new], "t") == (0, (Predecessor(7, 1, 1, (broker_id("c"),)),))
    assert after(places, new, [old, new], "t") == (1, ())


def test_what_is_acknowledged_is_no_predecessor() -> None:
    places, old, new = TopicPlaces(), flow("bc"), flow("c", number=2)
    after(places, old, [old, new], "t")
    old.acknowledge("c", 2, 0, NOW)
    assert after(places, new, [old, new], "t") == (0, ())


def test_a_best_effort_message_is_a_predecessor_only_for_a_while() -> None:
    for wait, found in ((RECENT - 1, (Predecessor(7, 1, 1, (broker_id("c"),)),)), (RECENT, ())):
        places, old, new = TopicPlaces(), flow("bc", QosClass()), flow("c", QosClass(), 2)
        after(places, old, [old, new], "t")
        assert after(places, new, [old, new], "t", now=NOW + wait) == (0, found)


def test_what_was_retained_from_a_former_life_comes_before_what_is_new() -> None:
    places, old, new = TopicPlaces(), flow("b"), Outflow((8, 1), RELIABLE, ("b",))
    parcel = seal(old)
    places.recover(parcel, old.name)
    assert after(places, new, [old, new], "t") == (0, (Predecessor(7, 1, 1, (broker_id("b"),)),))
