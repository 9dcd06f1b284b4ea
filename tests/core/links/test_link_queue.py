"""Link queues: what goes next, what is not worth sending, what goes overboard."""

from itertools import accumulate, combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlane.core.links.link_queue import LATE_SHARE, OPEN_SHARE, LinkQueue, QueuedItem, SchedulingPolicy
from overlane.core.units import MS, NEVER, SECOND, US

POLICIES = [policy.value for policy in SchedulingPolicy]
NS_PER_BYTE = 1_000


def urgent(name: object, due_ms: float, size: int = 100, *, reliable: bool = False, budget_ms: int = 0) -> QueuedItem:
    return QueuedItem(name, size, 0, int(due_ms * MS), not reliable, budget_ms * MS)


def open_ended(name: object, size: int = 100, *, reliable: bool = False) -> QueuedItem:
    return QueuedItem(name, size, 0, NEVER, not reliable)


def queue(policy: str, *items: QueuedItem, bytes_max: int = 1_000_000, ns_per_byte: int = 0) -> LinkQueue:
    made = LinkQueue(policy, bytes_max)
    made.observe_rate(1_000, 1_000 * ns_per_byte)
    for item in items:
        assert made.push(item, 0) == []
    return made


def names(items: list[QueuedItem]) -> list[object]:
    return [item.chunk for item in items]


def send_all(waiting: LinkQueue, now: int = 0, ns_per_byte: int = 0) -> tuple[list[object], list[object]]:
    """What goes over a link of this rate, in order, and what is dropped on the way."""
    sent: list[object] = []
    lost: list[object] = []
    while True:
        item, dropped = waiting.pull(now)
        lost += names(dropped)
        if item is None:
            assert len(waiting) == waiting.bytes == 0
            return sent, lost
        sent.append(item.chunk)
        now += item.size * ns_per_byte


# Order


def test_earliest_due_goes_first_and_equals_in_the_order_of_arrival() -> None:
    for policy in ("edf", "edf-shed"):
        waiting = queue(policy, urgent("c", 30), urgent("a", 10), urgent("d", 30), urgent("b", 20))
        assert send_all(waiting) == (["a", "b", "c", "d"], [])


def test_laxity_goes_by_arrival_plus_budget_whatever_the_due_time() -> None:
    waiting = queue("laxity", urgent("slow", 10, budget_ms=9), urgent("fast", 90, budget_ms=2))
    assert waiting.push(QueuedItem("later", 100, 5 * MS, 99 * MS, True, 2 * MS), 5 * MS) == []
    assert send_all(waiting) == (["fast", "later", "slow"], [])


@pytest.mark.parametrize("policy", POLICIES)
def test_a_droppable_item_is_sent_until_its_due_time_and_not_after(policy: str) -> None:
    assert send_all(queue(policy, urgent("a", 10)), now=10 * MS) == (["a"], [])
    assert send_all(queue(policy, urgent("a", 10)), now=10 * MS + 1) == ([], ["a"])


@pytest.mark.parametrize("policy", POLICIES)
def test_a_reliable_item_is_sent_however_late(policy: str) -> None:
    assert send_all(queue(policy, urgent("a", 10, reliable=True)), now=SECOND) == (["a"], [])


@pytest.mark.parametrize("policy", POLICIES)
def test_items_without_deadline_go_behind_in_the_order_of_arrival(policy: str) -> None:
    waiting = queue(policy, open_ended("x"), open_ended("y", reliable=True), urgent("a", 10), open_ended("z"))
    assert send_all(waiting) == (["a", "x", "y", "z"], [])


@pytest.mark.parametrize("policy", POLICIES)
def test_items_without_deadline_get_their_share_of_a_link_that_is_never_idle(policy: str) -> None:
    waiting = queue(policy, *[open_ended(n) for n in range(100)])
    opened = 0
    for turn in range(50 * OPEN_SHARE):
        assert waiting.push(urgent("urgent", SECOND), 0) == []
        item, _ = waiting.pull(0)
        assert item is not None
        opened += item.chunk != "urgent"
        assert opened == (turn + 1) // OPEN_SHARE


def test_late_reliable_items_give_way_to_what_can_be_in_time_but_get_their_share() -> None:
    waiting = queue("edf-shed", urgent("late", 1, reliable=True), ns_per_byte=NS_PER_BYTE)
    now, order = 2 * MS, []
    for _ in range(LATE_SHARE):
        assert waiting.push(QueuedItem("in time", 100, now, now + MS, True), now) == []
        item, _ = waiting.pull(now)
        assert item is not None
        order.append(item.chunk)
        now += 100 * NS_PER_BYTE
    assert order == ["in time"] * (LATE_SHARE - 1) + ["late"]


# Shedding


def test_of_two_that_cannot_both_be_in_time_the_longer_gives_way() -> None:
    # 1 us a byte: the long one lasts 10 ms, and after it the short one would be too late.
    items = [urgent("long", 10, 10_000), urgent("short", 10.05)]
    assert send_all(queue("edf", *items), ns_per_byte=NS_PER_BYTE) == (["long", "short"], [])
    waiting = queue("edf-shed", *items, ns_per_byte=NS_PER_BYTE)
    assert send_all(waiting, ns_per_byte=NS_PER_BYTE) == (["short", "long"], [])
    waiting = queue("edf-shed", *items, urgent("next", 20, 9_000), ns_per_byte=NS_PER_BYTE)
    assert send_all(waiting, ns_per_byte=NS_PER_BYTE) == (["short", "next", "long"], [])
    waiting = queue("edf-shed", *items, urgent("next", 20, 9_950), ns_per_byte=NS_PER_BYTE)
    assert send_all(waiting, ns_per_byte=NS_PER_BYTE) == (["short", "next"], ["long"])


def test_a_reliable_item_counts_as_load_and_does_not_give_way() -> None:
    items = [urgent("long", 10, 10_000, reliable=True), urgent("short", 5), urgent("patient", 20)]
    waiting = queue("edf-shed", *items, ns_per_byte=NS_PER_BYTE)
    assert send_all(waiting, ns_per_byte=NS_PER_BYTE) == (["long", "patient"], ["short"])


def test_of_reliable_items_alone_the_longest_comes_late() -> None:
    items = [urgent("long", 10, 10_000, reliable=True), urgent("short", 5, reliable=True)]
    waiting = queue("edf-shed", *items, ns_per_byte=NS_PER_BYTE)
    assert send_all(waiting, ns_per_byte=NS_PER_BYTE) == (["short", "long"], [])


def test_what_gave_way_is_sent_after_all_if_the_link_is_faster_than_thought() -> None:
    items = [urgent("long", 8, 10_000), urgent("short", 5)]
    waiting = queue("edf-shed", *items, ns_per_byte=NS_PER_BYTE)
    assert send_all(waiting, ns_per_byte=NS_PER_BYTE // 10) == (["short", "long"], [])


def test_items_go_by_their_plan_and_once_it_is_missed_by_the_middle_of_what_is_left() -> None:
    def item(name: str, plan_ms: int, due_ms: int) -> QueuedItem:
        return QueuedItem(name, 1_000, 0, due_ms * MS, True, 0, plan_ms * MS)

    items = [item("two hops", 5, 10), item("last hop", 8, 8)]
    assert send_all(queue("edf-shed", *items), ns_per_byte=NS_PER_BYTE) == (["two hops", "last hop"], [])
    # At 6 ms the plan is past, and with 7 to 10 ms left its middle is 8.5: the other one is more urgent.
    waiting = queue("edf-shed", *items, ns_per_byte=NS_PER_BYTE)
    assert send_all(waiting, now=6 * MS, ns_per_byte=NS_PER_BYTE) == (["last hop", "two hops"], [])
    items = [item("two hops", 5, 10), item("last hop", 9, 9)]
    waiting = queue("edf-shed", *items, ns_per_byte=NS_PER_BYTE)
    assert send_all(waiting, now=6 * MS, ns_per_byte=NS_PER_BYTE) == (["two hops", "last hop"], [])


def test_a_reliable_item_that_gave_way_is_in_reserve_until_it_is_late() -> None:
    items = [urgent("long", 10, 10_000, reliable=True), urgent("short", 5, reliable=True), open_ended("open")]
    waiting = queue("edf-shed", *items, ns_per_byte=NS_PER_BYTE)
    assert send_all(waiting, ns_per_byte=NS_PER_BYTE) == (["short", "long", "open"], [])


def test_a_new_rate_brings_back_what_had_given_way() -> None:
    waiting = queue("edf-shed", urgent("long", 4, 10_000), urgent("short", 5), ns_per_byte=NS_PER_BYTE)
    waiting.push(urgent("other", 4.5), 0)
    first, _ = waiting.pull(0)
    assert first is not None
    assert first.chunk == "other"
    for _ in range(100):
        waiting.observe_rate(1_000, 1_000)
    assert send_all(waiting) == (["long", "short"], [])


# The wire


def test_what_is_pulled_leaves_behind_what_lies_in_the_send_buffer() -> None:
    items = [urgent("a", 50, 1_000), urgent("b", 50, 2_000), urgent("c", 50, 3_000)]
    waiting = queue("edf", *items, ns_per_byte=NS_PER_BYTE)
    leaves = []
    for now, in_buffer in [(10 * MS, 4_000), (10 * MS, 4_000), (12 * MS, 5_000)]:
        waiting.pull(now, in_buffer)
        leaves.append(waiting.leaves_at)
    assert leaves == [15 * MS, 17 * MS, 20 * MS]


def test_an_item_that_would_leave_too_late_behind_the_send_buffer_gives_way() -> None:
    items = [urgent("soon", 3, 1_000), urgent("later", 5.5, 1_000)]
    waiting = queue("edf-shed", *items, ns_per_byte=NS_PER_BYTE)
    item, dropped = waiting.pull(0, in_buffer=4_000)
    assert item is items[1]
    assert dropped == []


@pytest.mark.parametrize("pulled_ahead", [0, 20_000])
def test_the_queue_learns_the_rate_of_a_busy_link(pulled_ahead: int) -> None:
    waiting = LinkQueue("edf-shed", 10**9)
    rng = Random(1)
    now, in_buffer = 0, 0
    for _ in range(200):
        while waiting.bytes < 50_000:
            waiting.push(QueuedItem("x", rng.randrange(100, 2_000), now, now + SECOND, True), now)
        pulled = 0
        while not pulled or in_buffer + pulled < pulled_ahead:
            item, _ = waiting.pull(now, in_buffer)
            assert item is not None
            pulled += item.size
        in_buffer += pulled
        left = in_buffer - pulled_ahead // 2
        now, in_buffer = now + left * NS_PER_BYTE, in_buffer - left
    waiting.pull(now, in_buffer)
    took = waiting.leaves_at - now - in_buffer * NS_PER_BYTE
    assert 90 * NS_PER_BYTE < took < 2_010 * NS_PER_BYTE


sizes = st.integers(1, 12).map(lambda units: 1_000 * units)
jobs = st.lists(st.tuples(st.integers(0, 60), sizes), max_size=8)


def in_time(jobs: list[tuple[int, int]]) -> int:
    """How many of these the queue gets through in time."""
    items = [urgent(number, due, size) for number, (due, size) in enumerate(jobs)]
    waiting = queue("edf-shed", *items, bytes_max=10**9, ns_per_byte=NS_PER_BYTE)
    sent, lost = send_all(waiting, ns_per_byte=NS_PER_BYTE)
    assert len(sent) + len(lost) == len(jobs)
    now = count = 0
    for number in sent:
        due, size = jobs[int(str(number))]
        now += size * NS_PER_BYTE
        count += now <= due * MS
    return count


@given(jobs)
def test_shedding_keeps_the_largest_number_in_time(jobs: list[tuple[int, int]]) -> None:
    def is_in_time(chosen: tuple[tuple[int, int], ...]) -> bool:
        finished = accumulate(size * NS_PER_BYTE for _, size in chosen)
        return all(now <= due * MS for now, (due, _) in zip(finished, chosen, strict=True))

    by_due = sorted(jobs)
    counts = range(len(jobs), -1, -1)
    assert in_time(jobs) == next(count for count in counts if any(map(is_in_time, combinations(by_due, count))))


@given(st.integers(0, 2**32))
def test_shedding_many_keeps_as_many_as_the_textbook_rule(seed: int) -> None:
    rng = Random(seed)
    jobs = [(rng.randrange(0, 1_000), 100 * rng.randrange(1, 60)) for _ in range(400)]
    now = 0
    kept: list[int] = []
    for due, size in sorted(jobs):
        kept.append(size)
        now += size * NS_PER_BYTE
        if now > due * MS:
            longest = max(kept)
            kept.remove(longest)
            now -= longest * NS_PER_BYTE
    assert in_time(jobs) == len(kept)


# The bound


@pytest.mark.parametrize("policy", POLICIES)
def test_room_is_made_by_expired_items_then_open_ended_ones_then_the_latest_due(policy: str) -> None:
    held = [urgent("expired", 1), urgent("soon", 20), open_ended("open"), urgent("far", 90), urgent("mid", 50)]
    waiting = queue(policy, *held, bytes_max=500)
    gone = [waiting.push(urgent(name, 10), 5 * MS) for name in "abcdef"]
    assert [names(each) for each in gone] == [["expired"], ["open"], ["far"], ["mid"], ["soon"], ["f"]]
    assert waiting.bytes == 500


@pytest.mark.parametrize("policy", POLICIES)
def test_a_newcomer_displaces_nothing_if_that_does_not_make_enough_room(policy: str) -> None:
    waiting = queue(policy, urgent("soon", 10, 400), urgent("far", 90, 100), bytes_max=500)
    assert names(waiting.push(urgent("big", 20, 200), 0)) == ["big"]
    assert names(waiting.push(urgent("fits", 20, 100), 0)) == ["far"]
    assert names(waiting.push(open_ended("open"), 0)) == ["open"]
    assert names(waiting.push(urgent("huge", 1, 501), 0)) == ["huge"]
    assert names(waiting.push(urgent("too late", 1), 2 * MS)) == ["too late"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_reliable_item_displaces_droppable_ones_and_is_refused_beyond_its_part(policy: str) -> None:
    waiting = queue(policy, *[urgent(n, n) for n in range(1, 5)], bytes_max=400)
    assert names(waiting.push(open_ended("r1", reliable=True), 0)) == [4]
    assert names(waiting.push(open_ended("r2", reliable=True), 0)) == [3]
    assert names(waiting.push(open_ended("r3", reliable=True), 0)) == [2]
    assert names(waiting.push(open_ended("r4", reliable=True), 0)) == ["r4"]
    assert send_all(waiting) == ([1, "r1", "r2", "r3"], [])


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("reliable", [True, False])
def test_an_item_larger_than_the_queue_is_sent_and_keeps_nothing_urgent_out(policy: str, reliable: bool) -> None:
    waiting = queue(policy, bytes_max=400)
    huge = open_ended("huge", 5_000, reliable=reliable)
    assert waiting.takes(huge.size)
    assert waiting.push(huge, 0) == []
    assert waiting.bytes == 100
    assert [waiting.push(urgent(n, n), 0) for n in range(1, 4)] == [[], [], []]
    assert send_all(waiting) == ([1, 2, 3, "huge"], [])
    assert waiting.bytes == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_items_larger_than_the_queue_are_few_at_a_time(policy: str) -> None:
    waiting = queue(policy, bytes_max=400)
    for n in range(3):
        assert waiting.push(open_ended(n, 5_000, reliable=True), 0) == []
    assert not waiting.takes(5_000)
    assert names(waiting.push(open_ended(3, 5_000, reliable=True), 0)) == [3]
    assert names(waiting.push(open_ended("small", 100, reliable=True), 0)) == ["small"]
    assert send_all(waiting) == ([0, 1, 2], [])


@pytest.mark.parametrize("policy", POLICIES)
def test_an_item_larger_than_the_queue_makes_as_much_room_as_it_has_taken(policy: str) -> None:
    held = [urgent("soon", 10), urgent("mid", 50, 200), open_ended("huge", 5_000)]
    waiting = queue(policy, *held, bytes_max=400)
    assert names(waiting.push(urgent("new", 20, 200), 0)) == ["huge", "mid"]
    assert send_all(waiting) == (["soon", "new"], [])


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("before", "after"), [(400, 10_000), (10_000, 400)])
def test_what_waits_while_the_limit_changes_leaves_an_empty_queue_behind(policy: str, before: int, after: int) -> None:
    items = [open_ended("large", 5_000, reliable=True), open_ended("small"), urgent("soon", 10)]
    waiting = queue(policy, *items, bytes_max=before)
    waiting.resize(after)
    assert send_all(waiting) == (["soon", "large", "small"], [])
    assert waiting.takes(after)
    assert waiting.push(open_ended("first", after // 2), 0) == []
    assert waiting.push(open_ended("second", after // 2), 0) == []
    assert names(waiting.push(open_ended("third"), 0)) == ["third"]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_smallest_queue_sends_one_item_after_the_other(policy: str) -> None:
    waiting = queue(policy, open_ended("one", 5_000, reliable=True), bytes_max=1)
    assert not waiting.takes(5_000)
    assert names(waiting.push(open_ended("other", 5_000, reliable=True), 0)) == ["other"]
    assert send_all(waiting) == (["one"], [])


def test_what_gave_way_goes_overboard_before_what_can_be_in_time() -> None:
    items = [urgent("long", 1, 10_000), urgent("short", 5, 1_000), urgent("next", 8, 1_000)]
    waiting = queue("edf-shed", *items, bytes_max=12_000, ns_per_byte=NS_PER_BYTE)
    first, _ = waiting.pull(0)
    assert first is not None
    assert first.chunk == "short"
    assert names(waiting.push(urgent("new", 9, 2_000), 0)) == ["long"]


def test_a_reliable_item_that_gave_way_does_not_go_overboard() -> None:
    items = [urgent("long", 3, 3_000, reliable=True), urgent("short", 4, 2_000, reliable=True)]
    waiting = queue("edf-shed", *items, bytes_max=8_000, ns_per_byte=NS_PER_BYTE)
    first, _ = waiting.pull(0)
    assert first is items[1]
    assert names(waiting.push(urgent("new", 9, 5_001), 0)) == ["new"]
    assert send_all(waiting) == (["long"], [])


@pytest.mark.parametrize("policy", POLICIES)
def test_draining_hands_back_everything_and_leaves_an_empty_queue(policy: str) -> None:
    items = [urgent("d", 5), urgent("a", 10), open_ended("b"), urgent("c", 6, reliable=True)]
    waiting = queue(policy, *items, ns_per_byte=NS_PER_BYTE)
    waiting.pull(4 * MS)
    assert names(waiting.drain()) == ["a", "b", "c"]
    assert (len(waiting), waiting.bytes) == (0, 0)
    assert waiting.pull(4 * MS) == (None, [])
    waiting.push(urgent("again", 10), 4 * MS)
    assert send_all(waiting, 4 * MS) == (["again"], [])


# Whatever happens

steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("push"),
            st.integers(1, 400),
            st.one_of(st.integers(-3, 40), st.none()),
            st.booleans(),
            st.integers(0, 20),
        ),
        st.tuples(st.just("pull")),
        st.tuples(st.just("pass"), st.integers(0, 10)),
        st.tuples(st.just("rate"), st.integers(1, 100_000)),
    ),
    max_size=60,
)


@given(st.sampled_from(POLICIES), steps)
def test_every_item_comes_out_once_and_the_promises_hold(policy: str, steps: list[tuple[object, ...]]) -> None:
    waiting = LinkQueue(policy, 1_000)
    now = 0
    inside: dict[int, QueuedItem] = {}
    for number, step in enumerate(steps):
        match step:
            case ("push", int(size), due, bool(droppable), int(budget)):
                due_ns = now + due * MS if isinstance(due, int) else NEVER
                item = QueuedItem(number, size, now, due_ns, droppable, budget * MS, now + budget * MS)
                inside[number] = item
                gone = waiting.push(item, now)
                for out in gone:
                    assert inside.pop(int(str(out.chunk))) is out
                    assert out.droppable or out is item
                if item in gone:
                    assert not item.droppable or all(out.due_ns < now or out is item for out in gone)
            case ("pull",):
                sent, dropped = waiting.pull(now)
                for out in dropped:
                    assert inside.pop(int(str(out.chunk))) is out
                    assert out.droppable
                    assert out.due_ns < now
                if sent is None:
                    assert not inside
                else:
                    assert inside.pop(int(str(sent.chunk))) is sent
                    assert not (sent.droppable and sent.due_ns < now)
                    now += sent.size * US
            case ("pass", int(milliseconds)):
                now += milliseconds * MS
            case ("rate", int(ns_per_byte)):
                waiting.observe_rate(1_000, 1_000 * ns_per_byte)
        assert waiting.bytes == sum(item.size for item in inside.values()) <= 1_000
        assert len(waiting) == len(inside)
    assert waiting.drain() == list(inside.values())


@given(st.sampled_from(POLICIES), st.integers(0, 2**32))
def test_under_overload_every_reliable_or_open_ended_item_gets_out(policy: str, seed: int) -> None:
    rng = Random(seed)
    waiting = LinkQueue(policy, 100_000)
    waiting.observe_rate(1_000, 1_000 * NS_PER_BYTE)
    now, sent = 0, []
    for number in range(5):
        waiting.push(open_ended(number, rng.randrange(1, 2_000)), 0)
        waiting.push(urgent(10 + number, 1, rng.randrange(1, 2_000), reliable=True), 0)
    # Twice what the link carries, all with a deadline. The slower share bounds the wait: 16 x 10 items of 2,000 bytes.
    while now < 16 * 10 * 2_000 * NS_PER_BYTE:
        for _ in range(2):
            waiting.push(QueuedItem("load", 1_000, now, now + rng.randrange(5, 50) * MS, True, 5 * MS), now)
        item, _ = waiting.pull(now)
        assert item is not None
        now += item.size * NS_PER_BYTE
        sent.append(item.chunk)
    assert sorted(str(chunk) for chunk in sent if chunk != "load") == sorted(map(str, [*range(5), *range(10, 15)]))


@pytest.mark.parametrize("policy", POLICIES)
def test_only_what_has_a_deadline_leaves_where_there_is_room_for_nothing_else(policy: str) -> None:
    waiting = queue(policy, open_ended("bulk"), urgent("later", 20), urgent("soon", 10), open_ended("more bulk"))
    pulled = []
    while (item := waiting.pull_urgent(0)[0]) is not None:
        pulled.append(item.chunk)
    assert sorted(map(str, pulled)) == ["later", "soon"]
    assert send_all(waiting)[0] == ["bulk", "more bulk"]


def test_what_waits_alone_without_a_deadline_stays_and_what_has_one_leaves_unless_it_is_late() -> None:
    assert queue("edf-shed", open_ended("bulk")).pull_urgent(0) == (None, [])
    assert names([item for item in queue("edf-shed", urgent("soon", 10)).pull_urgent(0)[:1] if item]) == ["soon"]
    item, dropped = queue("edf-shed", urgent("late", 10)).pull_urgent(11 * MS)
    assert (item, names(dropped)) == (None, ["late"])
