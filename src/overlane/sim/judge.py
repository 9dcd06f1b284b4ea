"""The judge: observes from outside what was published, and what arrived when, how often and in which order.

It identifies every message by the stamp in its body, uses true time, and ignores the ages that brokers report.

A delivery is expected for every message that a broker accepted while a matching subscriber was subscribed and the
borders let it pass, even if that subscriber's broker was down at that moment. A subscription takes time to propagate: a
message published up to `GRACE_NS` after a subscription began, or before it ended, counts if it arrives and is no loss
if it does not. History that a late subscriber gets was published before its subscription: it is counted separately, and
is never late.

Order is checked per subscriber and publisher (a publisher has one topic). On a reliable topic with strict order no
message may arrive for the first time after a later one. On other topics such a message must have missed its deadline by
then, and without a deadline it must not arrive at all. Brokers only estimate the age of a message, so there is a
tolerance: 10 ms and a twentieth of the deadline.
"""

import hashlib
import struct
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from overlane.core.events import Deliver
from overlane.core.topics import FilterTrie
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.sim.engine import Engine
from overlane.sim.traffic import STAMP

GRACE_NS: Nanos = 1 * SECOND
DOUBT_NS: Nanos = 10 * MS
COUNT_MAX = 255
KEPT_MAX = 100
"""How many examples are kept of each thing that must not happen."""

_DELIVERY = struct.Struct(">qIIQ")


@dataclass(slots=True)
class Row:
    """What happened to the messages of one topic filter, so far."""

    deadline_ns: Nanos = NEVER
    published: int = 0
    expected: int = 0
    delivered: int = 0
    in_time: int = 0
    duplicates: int = 0
    replayed: int = 0
    overtaken: int = 0
    """Deliveries after that of a younger message of the same publisher."""
    latencies_ns: "array[int]" = field(default_factory=lambda: array("q"))


@dataclass(slots=True)
class JudgedSubscription:
    index: int
    name: str
    broker: str
    topic_filter: str
    periods: list[tuple[Nanos, Nanos]] = field(default_factory=list)

    def is_in_grace(self, published_at: Nanos) -> bool:
        """Whether the subscription was too young, or too near its end, to insist on this message."""
        return not any(start + GRACE_NS <= published_at < stop - GRACE_NS for start, stop in self.periods)


@dataclass(frozen=True, slots=True)
class JudgedMessage:
    """A message as it is reported."""

    publisher: int
    number: int
    topic: str
    published_at: Nanos
    subscriber: str

    def __str__(self) -> str:
        return (
            f"message {self.number} of publisher {self.publisher} on {self.topic}, "
            f"published at {self.published_at / SECOND:.3f} s, for {self.subscriber}"
        )


@dataclass(frozen=True, slots=True)
class Disorder:
    """A message that came after a younger one and must not."""

    message: JudgedMessage
    younger: int
    arrived_at: Nanos
    is_strict: bool = False
    """Whether nothing excuses it; otherwise its deadline had not passed."""

    def __str__(self) -> str:
        return f"{self.message}: arrived at {self.arrived_at / SECOND:.3f} s, after message {self.younger}"


class _Inbox:
    """What one subscriber has got from one publisher: how often each number, and the greatest so far."""

    __slots__ = ("counts", "newest")

    def __init__(self) -> None:
        self.counts = bytearray()
        self.newest = -1

    def count(self, number: int) -> int:
        return self.counts[number] if number < len(self.counts) else 0

    def add(self, number: int) -> int:
        """How often this number has come before."""
        missing = number + 1 - len(self.counts)
        if missing > 0:
            self.counts.extend(bytes(missing))
        before = self.counts[number]
        if before < COUNT_MAX:
            self.counts[number] = before + 1
        return before


class _Flow:
    """One publisher's messages."""

    __slots__ = (
        "audience",
        "audience_version",
        "audiences",
        "inboxes",
        "is_strict",
        "may_reach",
        "missing",
        "row",
        "times",
        "topic",
    )

    def __init__(self, topic: str, row: Row, may_reach: Callable[[str], bool], is_strict: bool) -> None:
        self.topic = topic
        self.is_strict = is_strict
        self.may_reach = may_reach
        self.row = row
        self.times: array[int] = array("q")
        self.audience: frozenset[int] = frozenset()  # the subscriptions that match now
        self.audience_version = -1
        self.audiences: list[frozenset[int]] = []  # those of each message
        self.missing: array[int] = array("l")  # how many of them have not got it yet
        self.inboxes: dict[int, _Inbox] = {}


def _doubt_ns(deadline_ns: Nanos) -> Nanos:
    """How near to its deadline a message may rightly be taken for late."""
    return DOUBT_NS + deadline_ns // 20 if deadline_ns < NEVER else 0


class Judge:
    """`rows` are the topic filters of the report, with their deadlines."""

    def __init__(self, engine: Engine, rows: Mapping[str, Nanos]) -> None:
        self._engine = engine
        self.rows = {name: Row(deadline_ns) for name, deadline_ns in rows.items()}
        self._flows: list[_Flow] = []
        self._subscriptions: list[JudgedSubscription] = []
        self._by_name: dict[str, JudgedSubscription] = {}
        self._open: FilterTrie[int] = FilterTrie()  # the subscriptions that are open now
        self._version = 0  # of who is subscribed
        self._hash = hashlib.sha256()
        self.outstanding = 0
        self.disorders: list[Disorder] = []
        self.doubles: list[JudgedMessage] = []
        self._late: list[tuple[int, int, int]] = []

    # Who is there

    def add_publisher(
        self,
        topic: str,
        row: str,
        deadline_ns: Nanos,
        may_reach: Callable[[str], bool] = lambda _: True,
        is_strict: bool = False,
    ) -> int:
        """`may_reach` returns whether the borders let the messages pass to a broker."""
        self._flows.append(_Flow(topic, self.rows.setdefault(row, Row(deadline_ns)), may_reach, is_strict))
        return len(self._flows) - 1

    def add_subscriber(self, name: str, broker: str, topic_filter: str) -> None:
        subscription = JudgedSubscription(len(self._subscriptions), name, broker, topic_filter)
        self._subscriptions.append(subscription)
        self._by_name[name] = subscription

    def subscribed(self, name: str) -> None:
        subscription = self._by_name[name]
        subscription.periods.append((self._engine.now, NEVER))
        self._open.add(subscription.topic_filter, subscription.index)
        self._version += 1

    def unsubscribed(self, name: str) -> None:
        subscription = self._by_name[name]
        subscription.periods[-1] = subscription.periods[-1][0], self._engine.now
        self._open.remove(subscription.topic_filter, subscription.index)
        self._version += 1

    # What happens

    def published(self, publisher: int) -> None:
        flow = self._flows[publisher]
        if flow.audience_version != self._version:
            self._invite(flow)
        flow.times.append(self._engine.now)
        flow.audiences.append(flow.audience)
        flow.missing.append(len(flow.audience))
        flow.row.published += 1
        flow.row.expected += len(flow.audience)
        self.outstanding += len(flow.audience)

    def _invite(self, flow: _Flow) -> None:
        flow.audience_version = self._version
        flow.audience = frozenset(
            one for one in self._open.match(flow.topic) if flow.may_reach(self._subscriptions[one].broker)
        )

    def delivered(self, broker: str, effect: Deliver) -> None:
        for delivery in effect.deliveries:
            publisher, number = STAMP.unpack_from(delivery.body)
            for name in delivery.subscribers:
                subscription = self._by_name[name]
                if subscription.broker != broker:
                    raise AssertionError(f"{broker} delivers to {name}, who is at {subscription.broker}")
                self.arrived(publisher, number, subscription.index)

    def arrived(self, publisher: int, number: int, subscriber: int) -> None:
        """This subscriber got this message, now."""
        now = self._engine.now
        self._hash.update(_DELIVERY.pack(now, subscriber, publisher, number))
        flow = self._flows[publisher]
        row = flow.row
        inbox = flow.inboxes.get(subscriber)
        if inbox is None:
            inbox = flow.inboxes[subscriber] = _Inbox()
        if inbox.add(number):
            row.duplicates += 1
            if len(self.doubles) < KEPT_MAX:
                self.doubles.append(self._message(publisher, number, subscriber))
            return
        latency_ns = now - flow.times[number]
        if subscriber in flow.audiences[number]:
            flow.missing[number] -= 1
            self.outstanding -= 1
            row.delivered += 1
            row.latencies_ns.append(latency_ns)
            if latency_ns <= row.deadline_ns:
                row.in_time += 1
            else:
                self._late.append((publisher, number, subscriber))
        else:
            row.replayed += 1
        if number > inbox.newest:
            inbox.newest = number
            return
        row.overtaken += 1
        is_forbidden = flow.is_strict or latency_ns <= row.deadline_ns - _doubt_ns(row.deadline_ns)
        if is_forbidden and len(self.disorders) < KEPT_MAX:
            message = self._message(publisher, number, subscriber)
            self.disorders.append(Disorder(message, inbox.newest, now, flow.is_strict))

    # The verdict

    def has(self, subscriber: str, publisher: int, number: int) -> bool:
        """Whether this subscriber has got this message."""
        inbox = self._flows[publisher].inboxes.get(self._by_name[subscriber].index)
        return inbox is not None and inbox.count(number) > 0

    def record(self, publisher: int) -> "tuple[array[int], array[int]]":
        """When each message of a publisher was published, and how many of its subscribers have not got it yet."""
        flow = self._flows[publisher]
        return flow.times, flow.missing

    def lost(self, row: str | None = None) -> list[JudgedMessage]:
        """The messages that were expected and have not arrived, of one row or all."""
        return [
            self._message(publisher, number, subscriber)
            for publisher, flow in enumerate(self._flows)
            if row is None or flow.row is self.rows[row]
            for number, subscriber in self._missing(flow)
        ]

    def late(self) -> list[JudgedMessage]:
        """The messages that arrived after their deadline."""
        return [self._message(*one) for one in self._late]

    def _missing(self, flow: _Flow, in_grace: bool = False) -> list[tuple[int, int]]:
        """The numbers and subscriptions of what has not arrived, without those that are no loss, or only those."""
        return [
            (number, subscriber)
            for number, missing in enumerate(flow.missing)
            if missing
            for subscriber in sorted(flow.audiences[number])
            if subscriber not in flow.inboxes or not flow.inboxes[subscriber].count(number)
            if self._subscriptions[subscriber].is_in_grace(flow.times[number]) == in_grace
        ]

    def excused(self, row: str) -> int:
        """How many deliveries of this row have not happened and are no loss."""
        return sum(len(self._missing(flow, in_grace=True)) for flow in self._flows if flow.row is self.rows[row])

    def _message(self, publisher: int, number: int, subscriber: int) -> JudgedMessage:
        flow = self._flows[publisher]
        name = self._subscriptions[subscriber].name
        return JudgedMessage(publisher, number, flow.topic, flow.times[number], name)

    def digest_of(self, *more: object) -> str:
        """A fingerprint of every delivery with its time, and of whatever else is given."""
        whole = self._hash.copy()
        whole.update(repr(more).encode())
        return whole.hexdigest()
