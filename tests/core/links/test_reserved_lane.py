"""The reserved lane of a link queue: who has a reservation goes first, within it."""

from overlane.core.events import LinkReservation
from overlane.core.links.link_queue import LinkQueue, QueuedItem
from overlane.core.units import MS, NEVER, SECOND

FLOW, OTHER = (1, 7), (2, 7)
ONE = LinkReservation(1000, 300, "one")


def item(name: str, size: int, flow: tuple[int, int] | None = None, due_ns: int = NEVER) -> QueuedItem:
    return QueuedItem(name, size, 0, due_ns, droppable=True, flow=flow)


def pulled(queue: LinkQueue, now: int = 0) -> list[str]:
    found = []
    while (one := queue.pull(now)[0]) is not None:
        found.append(one.chunk)
    return found


def test_a_reserved_parcel_goes_before_all_others() -> None:
    queue = LinkQueue("edf-shed", 10_000)
    queue.reserve({FLOW: ONE})
    for one in (item("bulk", 100), item("urgent", 100, due_ns=SECOND), item("reserved", 100, FLOW)):
        assert queue.push(one, 0) == []
    assert len(queue) == 3
    assert not queue.is_empty
    assert pulled(queue) == ["reserved", "urgent", "bulk"]
    assert queue.is_empty


def test_it_does_so_where_only_urgent_ones_may_go() -> None:
    queue = LinkQueue("edf-shed", 10_000)
    queue.reserve({FLOW: ONE})
    queue.push(item("bulk", 100), 0)
    queue.push(item("reserved", 100, FLOW), 0)
    first = queue.pull_urgent(0)[0]
    assert first is not None
    assert first.chunk == "reserved"
    assert queue.pull_urgent(0)[0] is None


def test_a_full_queue_takes_what_is_reserved() -> None:
    queue = LinkQueue("edf-shed", 1000)
    queue.reserve({FLOW: ONE})
    assert queue.push(item("a", 500), 0) == queue.push(item("b", 500), 0) == []
    assert [one.chunk for one in queue.push(item("late", 200), 0)] == ["late"]
    assert queue.push(item("reserved", 200, FLOW), 0) == []
    assert pulled(queue) == ["reserved", "a", "b"]


def test_beyond_its_bucket_a_flow_is_like_all_others() -> None:
    queue = LinkQueue("edf-shed", 10_000)
    queue.reserve({FLOW: ONE})
    queue.push(item("bulk", 100), 0)
    for number in range(4):
        queue.push(item(f"reserved {number}", 100, FLOW), 0)
    assert pulled(queue) == ["reserved 0", "reserved 1", "reserved 2", "bulk", "reserved 3"]
    assert queue.reserved is not None
    assert {group: (one.reserved_bytes, one.excess_bytes) for group, one in queue.reserved.counters().items()} == {
        "one": (300, 100)
    }
    # A tenth of a second fills the bucket for one more.
    queue.push(item("bulk", 100), 100 * MS)
    queue.push(item("reserved 4", 100, FLOW), 100 * MS)
    assert pulled(queue, 100 * MS) == ["reserved 4", "bulk"]


def test_flows_are_served_by_their_rates() -> None:
    queue = LinkQueue("edf-shed", 10_000)
    queue.reserve({FLOW: LinkReservation(1000, 1000, "slow"), OTHER: LinkReservation(3000, 1000, "quick")})
    for number in range(2):
        queue.push(item(f"slow {number}", 100, FLOW), 0)
    for number in range(4):
        queue.push(item(f"quick {number}", 100, OTHER), 0)
    assert pulled(queue) == ["quick 0", "quick 1", "quick 2", "slow 0", "quick 3", "slow 1"]


def test_flows_that_share_a_reservation_share_its_bucket() -> None:
    queue = LinkQueue("edf-shed", 10_000)
    queue.reserve({FLOW: ONE, OTHER: ONE})
    queue.push(item("bulk", 100), 0)
    queue.push(item("a", 200, FLOW), 0)
    queue.push(item("b", 200, OTHER), 0)
    assert pulled(queue) == ["a", "bulk", "b"]


def test_what_waits_when_a_reservation_ends_is_sent() -> None:
    queue = LinkQueue("edf-shed", 10_000)
    queue.reserve({FLOW: ONE})
    queue.push(item("reserved", 100, FLOW), 0)
    queue.reserve({})
    assert pulled(queue) == ["reserved"]
    queue.reserve({})
    assert queue.reserved is None
    queue.push(item("bulk", 100), 0)
    queue.push(item("no more", 100, FLOW), 0)
    assert pulled(queue) == ["bulk", "no more"]


def test_a_link_that_is_gone_gives_everything_back() -> None:
    queue = LinkQueue("edf-shed", 10_000)
    queue.reserve({FLOW: ONE})
    queue.push(item("bulk", 100), 0)
    queue.push(item("reserved", 100, FLOW), 0)
    assert [one.chunk for one in queue.drain()] == ["reserved", "bulk"]
    assert queue.is_empty
