"""The reserved lane of a link queue: flows with a reservation on the link are served first, each with its rate.

A flow has a token bucket: a parcel with enough tokens joins the lane, any other is treated like parcels without a
reservation. The order in the lane is that of a virtual clock: each parcel has the time at which it would leave a
separate link with the reserved rate, and the earliest is sent next. The rates of all flows together are less than that
of the link, and the lane has precedence; so a parcel of a flow within its profile leaves at most one foreign fragment
later than that (RFC 2212: C is its size, D the time of a fragment being sent).

Flows that share a reservation share a bucket. Nothing here reads a clock.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

from overlane.core.events import FlowKey, LinkReservation
from overlane.core.links.fragmentation import Fragmenter
from overlane.core.links.scheduling import QueuedItem
from overlane.core.units import NEVER, SECOND, Nanos


@dataclass(slots=True)
class FlowCounters:
    """What became of the parcels of flows that share a reservation."""

    reserved_bytes: int = 0
    """Of those that conformed."""
    excess_bytes: int = 0


class _Bucket:
    __slots__ = ("_at_ns", "_finish_ns", "_tokens", "counters", "terms")

    def __init__(self, terms: LinkReservation) -> None:
        self.terms = terms
        self.counters = FlowCounters()
        self._tokens = float(terms.bucket_bytes)
        self._at_ns: Nanos = 0
        self._finish_ns: Nanos = 0

    def change(self, terms: LinkReservation) -> None:
        self.terms = terms
        self._tokens = min(self._tokens, float(terms.bucket_bytes))

    def finish(self, size: int, now: Nanos) -> Nanos | None:
        """When a parcel of this size should have left; None if it is beyond the profile."""
        rate, depth = self.terms.rate, self.terms.bucket_bytes
        self._tokens = min(depth, self._tokens + (now - self._at_ns) * rate / SECOND)
        self._at_ns = now
        if size > self._tokens:
            self.counters.excess_bytes += size
            return None
        self._tokens -= size
        self.counters.reserved_bytes += size
        self._finish_ns = max(now, self._finish_ns) + size * SECOND // rate
        return self._finish_ns


class ReservedLane:
    def __init__(self, fragment_bytes: int) -> None:
        self.fragments = Fragmenter(fragment_bytes)
        """What the link has begun to send, of this lane and beside it."""
        self._buckets: dict[Hashable, _Bucket] = {}
        self._flows: dict[FlowKey, _Bucket] = {}
        self._waiting: list[tuple[Nanos, int, QueuedItem]] = []
        self._next = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def set(self, flows: Mapping[FlowKey, LinkReservation]) -> None:
        """All flows that have a reservation from now on. What waits stays."""
        before, self._buckets, self._flows = self._buckets, {}, {}
        for key, terms in flows.items():
            bucket = self._buckets.get(terms.group)
            if bucket is None:
                bucket = before.get(terms.group) or _Bucket(terms)
                if bucket.terms != terms:
                    bucket.change(terms)
                self._buckets[terms.group] = bucket
            self._flows[key] = bucket

    @property
    def is_unused(self) -> bool:
        return not self._flows and not self._waiting and not self.fragments

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self.fragments

    @property
    def goes_on(self) -> bool:
        """Whether the next to send is a part of a frame that has begun."""
        return bool(self.fragments) and self.fragments.finish_ns <= self.first_finish_ns

    @property
    def has_reserved(self) -> bool:
        """Whether a reserved frame waits, or has left in part."""
        return bool(self._waiting) or self.fragments.finish_ns < NEVER

    @property
    def first_finish_ns(self) -> Nanos:
        """When the next of those that wait should have left; NEVER if none waits."""
        return self._waiting[0][0] if self._waiting else NEVER

    def counters(self) -> dict[Hashable, FlowCounters]:
        return {group: bucket.counters for group, bucket in self._buckets.items()}

    def push(self, item: QueuedItem, now: Nanos) -> bool:
        """False if its flow has no reservation here, or the item is beyond it."""
        bucket = self._flows.get(item.flow) if item.flow is not None else None
        finish_ns = None if bucket is None else bucket.finish(item.size, now)
        if finish_ns is None:
            return False
        self._next += 1
        heappush(self._waiting, (finish_ns, self._next, item))
        self.bytes += item.size
        return True

    def pull(self) -> QueuedItem:
        """The next one; there has to be one."""
        item = heappop(self._waiting)[2]
        self.bytes -= item.size
        return item

    def drain(self) -> list[QueuedItem]:
        items = [entry[2] for entry in sorted(self._waiting, key=lambda entry: entry[1])]
        self._waiting.clear()
        self.fragments = Fragmenter(self.fragments.fragment_bytes)
        self.bytes = 0
        return items
