"""Link queue: items that wait for the link to one neighbour, their order, and the items dropped when it is full.

Items with a deadline are served first, in the order of the queue's policy (scheduling.py). A droppable item that can no
longer be in time is not sent: `pull` returns it together with the next one. Reliable items that are late (`edf-shed`
only; the other policies keep them in their order) and items without a deadline wait in two lanes behind, first in,
first out. Each lane gets a fixed share of the bytes while items wait in it, so that its delay depends on the items
ahead in the lane, not on arriving items with a deadline.

The bytes that wait are bounded. To make room, items are dropped in this order: droppable ones that have expired, those
that the policy does not expect to be in time, those without a deadline, and those with the latest due time, newest
first. A new droppable item displaces only items with a later due time, and is returned if that is not sufficient.
Reliable items are never displaced: without space a new one is returned, and its sender must wait. Together they use at
most three quarters of the queue; otherwise their backlog would block urgent items.

Parcels of flows with a reservation are sent before all others, within the reserved rate (reserved_lane.py), and use no
space of the others.

An item that is larger than the whole queue counts as a quarter of it: it could never be sent otherwise. A droppable one
displaces nothing. So the waiting bytes are bounded by the queue and a few of the largest messages.

Nothing here reads a clock: the time is an argument. Equal items are sent in order of arrival.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush

from overlane.core.events import FlowKey, LinkReservation
from overlane.core.links.reserved_lane import ReservedLane
from overlane.core.links.scheduling import KeyOrder, LinkRate, QueuedItem, QueueOrder, SchedulingPolicy, SheddingOrder
from overlane.core.units import NEVER, Nanos
from overlane.core.wire.frame_codec import FRAME_BYTES_MAX

__all__ = ["LinkQueue", "QueuedItem", "SchedulingPolicy"]

LATE_SHARE = 8
"""Late reliable items get at least one in so many bytes."""
OPEN_SHARE = 16
"""Items without a deadline get at least one in so many bytes."""


class LinkQueue:
    def __init__(self, policy: str, bytes_max: int) -> None:
        self.policy = SchedulingPolicy(policy)
        self.bytes_max = bytes_max
        self.single: QueuedItem | None = None
        """A single waiting item needs no order; it is only sorted in when another one comes."""
        self._waiting: dict[int, QueuedItem] = {}
        self._wire = LinkRate()
        self._order: QueueOrder
        if self.policy is SchedulingPolicy.EDF_SHED:
            self._order = SheddingOrder(self._waiting, self._wire)
        else:
            self._order = KeyOrder(self.policy, self._waiting)
        self.leaves_at: Nanos = 0
        """When what was pulled last will have left, by the estimated rate."""
        self.left_bytes = 0
        """Bytes pulled since the start."""
        self._late = _Lane(LATE_SHARE)
        self._open = _Lane(OPEN_SHARE)
        self._droppable_by_due: _DroppableByDue | None = None
        self._bytes = 0
        self._reliable_bytes = 0
        self._next = 0
        self.reserved: ReservedLane | None = None
        """None as long as nothing is reserved."""

    def __len__(self) -> int:
        reserved = 0 if self.reserved is None else len(self.reserved)
        return reserved + (len(self._waiting) if self.single is None else 1)

    @property
    def bytes(self) -> int:
        """Without what is reserved: that has room of its own."""
        return self._bytes if self.single is None else self.charge(self.single.size)

    def reserve(self, flows: Mapping[FlowKey, LinkReservation], fragment_bytes: int = FRAME_BYTES_MAX) -> None:
        """The flows that have a reservation on this link from now on, and the largest part of a frame beside them."""
        if self.reserved is None:
            if not flows:
                return
            self.reserved = ReservedLane(fragment_bytes)
        self.reserved.set(flows)
        self.reserved.fragments.fragment_bytes = fragment_bytes if flows else FRAME_BYTES_MAX
        if self.reserved.is_unused:
            self.reserved = None

    def charge(self, size: int) -> int:
        """The bytes that an item of this size counts as."""
        return size if size <= self.bytes_max else max(1, self.bytes_max // 4)

    def resize(self, bytes_max: int) -> None:
        """Another limit. What waits stays, and counts as it does under this one."""
        if bytes_max != self.bytes_max:
            self.bytes_max = bytes_max
            self._bytes = sum(self.charge(item.size) for item in self._waiting.values())
            self._reliable_bytes = sum(self.charge(item.size) for item in self._waiting.values() if not item.droppable)

    @property
    def is_empty(self) -> bool:
        return self.single is None and not self._waiting and (self.reserved is None or self.reserved.is_idle)

    @property
    def is_passable(self) -> bool:
        """Whether a parcel may be sent without being put into the queue."""
        return self.single is None and not self._waiting and self.reserved is None

    @property
    def is_last(self) -> bool:
        """Whether what is pulled next is surely the last that waits."""
        return self.single is not None and self.reserved is None

    def passed_by(self, size: int, now: Nanos, in_buffer: int) -> None:
        """So many bytes were sent without waiting here, because nothing else waited."""
        self.left_bytes += size
        self.leaves_at = self._wire.passed(size, now, in_buffer)

    def observe_rate(self, bytes_sent: int, duration_ns: Nanos) -> None:
        """A first guess: so many bytes take so long on the wire. The queue measures by itself whenever something waits.

        As long as nothing is known of the rate, nothing gives way.
        """
        if bytes_sent > 0 and duration_ns > 0:
            self._wire.observe(bytes_sent, duration_ns)

    def takes(self, size: int) -> bool:
        """Whether a reliable item of this size gets in."""
        reliable_bytes = self._reliable_bytes
        if self.single is not None and not self.single.droppable:
            reliable_bytes = self.charge(self.single.size)
        return not reliable_bytes or reliable_bytes + self.charge(size) <= self.bytes_max * 3 // 4

    def push(self, item: QueuedItem, now: Nanos) -> list[QueuedItem]:
        """Enqueue the item. Returns what was dropped for lack of room, the item itself included if it found none."""
        if self.reserved is not None and self.reserved.push(item, now):
            return []
        if self.single is not None:
            single, self.single = self.single, None
            self._admit(single)
        elif not self._waiting:
            self.single = item
            return []
        if not item.droppable and not self.takes(item.size):
            return [item]
        if self._bytes + self.charge(item.size) <= self.bytes_max:
            self._admit(item)
            return []
        gone, has_room = self._make_room(item, now)
        if has_room:
            self._admit(item)
        else:
            gone.append(item)
        return gone

    def pull(self, now: Nanos, in_buffer: int = 0) -> tuple[QueuedItem | None, list[QueuedItem]]:
        """The next item to send, and those that are not worth sending any more.

        `in_buffer`: how many bytes, pulled before this moment, lie in the driver's send buffer and have still to leave.
        """
        if self.reserved:
            return self._pull_reserved(self.reserved, now, in_buffer), []
        if self.single is not None:
            return self._pull_single(now, in_buffer)
        if not self._waiting:
            return None, []
        start = self._wire.free_at(now, in_buffer)
        for lane in (self._late, self._open):
            if lane.is_owed():
                return self._leave(lane.pop(), lane, start), []
        number, dropped = self._choose(now, start)
        if number is not None:
            return self._leave(number, None, start), dropped
        for lane in (self._late, self._open):
            if lane:
                return self._leave(lane.pop(), lane, start), dropped
        return None, dropped

    def pull_urgent(self, now: Nanos, in_buffer: int = 0) -> tuple[QueuedItem | None, list[QueuedItem]]:
        """As `pull`, of those with a deadline or a reservation alone: for a driver that has no room for others."""
        if self.reserved:
            return self._pull_reserved(self.reserved, now, in_buffer), []
        if self.single is not None:
            return (None, []) if self.single.due_ns >= NEVER else self._pull_single(now, in_buffer)
        if not self._waiting:
            return None, []
        start = self._wire.free_at(now, in_buffer)
        number, dropped = self._choose(now, start)
        return None if number is None else self._leave(number, None, start), dropped

    def _pull_reserved(self, lane: ReservedLane, now: Nanos, in_buffer: int) -> QueuedItem:
        item = lane.pull()
        start = self._wire.free_at(now, in_buffer)
        self.left_bytes += item.size
        some_wait = bool(lane) or self.single is not None or bool(self._waiting)
        self.leaves_at = start + self._wire.pulled(item.size, some_wait=some_wait)
        return item

    def _choose(self, now: Nanos, start: Nanos) -> tuple[int | None, list[QueuedItem]]:
        """The next of those with a deadline, and those that are not worth sending any more."""
        choice = self._order.choose(now, start)
        dropped = [self._forget(number) for number in choice.hopeless]
        for number in choice.late:
            self._late.add(number, self._waiting[number].size)
        return choice.number, dropped

    def _pull_single(self, now: Nanos, in_buffer: int = 0) -> tuple[QueuedItem | None, list[QueuedItem]]:
        """As `pull`, where only `single` waits."""
        item, self.single = self.single, None
        start = self._wire.free_at(now, in_buffer)
        if item is None or (item.droppable and item.due_ns < now):
            return None, [] if item is None else [item]
        self.left_bytes += item.size
        self.leaves_at = start + self._wire.pulled(item.size, some_wait=False)
        return item, []

    def drain(self) -> list[QueuedItem]:
        """Everything that waits, in the order of arrival: the link is gone. The queue is as new but for its rate."""
        reserved = [] if self.reserved is None else self.reserved.drain()
        if self.single is not None:
            single, self.single = self.single, None
            return [*reserved, single]
        items = [*reserved, *self._waiting.values()]
        for number in list(self._waiting):
            self._displace(number)
        return items

    def _admit(self, item: QueuedItem) -> None:
        number = self._next
        self._next += 1
        self._waiting[number] = item
        charge = self.charge(item.size)
        self._bytes += charge
        if not item.droppable:
            self._reliable_bytes += charge
        if item.due_ns >= NEVER:
            self._open.add(number, item.size)
        else:
            self._order.add(number, item)
        if self._droppable_by_due is not None and item.droppable:
            self._droppable_by_due.add(number, item)
            if self._droppable_by_due.is_stale():
                self._droppable_by_due = None

    def _forget(self, number: int) -> QueuedItem:
        item = self._waiting.pop(number)
        charge = self.charge(item.size)
        self._bytes -= charge
        if not item.droppable:
            self._reliable_bytes -= charge
        return item

    def _leave(self, number: int, own: "_Lane | None", start: Nanos) -> QueuedItem:
        item = self._forget(number)
        self.left_bytes += item.size
        self.leaves_at = start + self._wire.pulled(item.size, some_wait=bool(self._waiting))
        for lane in (self._late, self._open):
            if lane is not own:
                lane.others_sent(item.size)
        return item

    def _displace(self, number: int) -> QueuedItem:
        """Removed otherwise than by `pull`."""
        item = self._forget(number)
        self._late.remove(number)
        self._open.remove(number)
        self._order.remove(number)
        return item

    def _make_room(self, newcomer: QueuedItem, now: Nanos) -> tuple[list[QueuedItem], bool]:
        if self._droppable_by_due is None:
            self._droppable_by_due = _DroppableByDue(self._waiting, self.charge)
        charge = self.charge(newcomer.size)
        needed = self._bytes + charge - self.bytes_max
        gone: list[QueuedItem] = []
        if newcomer.droppable and (newcomer.due_ns < now or newcomer.size > self.bytes_max):
            return gone, False
        while needed > 0:
            number = self._droppable_by_due.expired(now)
            if number is None:
                number = self._order.spare()
            if number is None:
                break
            gone.append(self._displace(number))
            needed -= self.charge(gone[-1].size)
        if needed > 0:
            later_than = newcomer.due_ns if newcomer.droppable else -NEVER
            gone += [self._displace(number) for number in self._droppable_by_due.latest(needed, later_than)]
        return gone, self._bytes + charge <= self.bytes_max


class _Lane:
    """Numbers of items, first in, first out, with a share of one in `share` of the bytes sent."""

    __slots__ = ("_others", "_share", "_sizes")

    def __init__(self, share: int) -> None:
        self._share = share
        self._sizes: OrderedDict[int, int] = OrderedDict()
        self._others = 0

    def __bool__(self) -> bool:
        return bool(self._sizes)

    def add(self, number: int, size: int) -> None:
        self._sizes[number] = size

    def remove(self, number: int) -> None:
        if self._sizes.pop(number, None) is not None and not self._sizes:
            self._others = 0

    def others_sent(self, size: int) -> None:
        if self._sizes:
            self._others += size

    def is_owed(self) -> bool:
        if not self._others or not self._sizes:
            return False
        first = next(iter(self._sizes.values()))
        return self._others >= first * (self._share - 1)

    def pop(self) -> int:
        number, size = self._sizes.popitem(last=False)
        self._others = max(0, self._others - size * (self._share - 1)) if self._sizes else 0
        return number


class _DroppableByDue:
    """The droppable items by due time, from both ends. Made when the queue first runs full, kept while it is of use."""

    def __init__(self, waiting: dict[int, QueuedItem], charge: Callable[[int], int]) -> None:
        self._waiting = waiting
        self._charge = charge
        self._first = [(item.due_ns, number) for number, item in waiting.items() if item.droppable]
        self._last = [(-due, -number) for due, number in self._first]
        heapify(self._first)
        heapify(self._last)

    def is_stale(self) -> bool:
        return len(self._first) + len(self._last) > 4 * len(self._waiting) + 64

    def add(self, number: int, item: QueuedItem) -> None:
        heappush(self._first, (item.due_ns, number))
        heappush(self._last, (-item.due_ns, -number))

    def expired(self, now: Nanos) -> int | None:
        while self._first and self._first[0][0] < now:
            _, number = heappop(self._first)
            if number in self._waiting:
                return number
        return None

    def latest(self, needed_bytes: int, later_than: Nanos) -> list[int]:
        """Those due latest, as many as are needed, if there are enough of them; otherwise none."""
        taken: list[tuple[Nanos, int]] = []
        while needed_bytes > 0 and self._last and -self._last[0][0] > later_than:
            entry = heappop(self._last)
            item = self._waiting.get(-entry[1])
            if item is not None:
                taken.append(entry)
                needed_bytes -= self._charge(item.size)
        if needed_bytes <= 0:
            return [-number for _, number in taken]
        for entry in taken:
            heappush(self._last, entry)
        return []
