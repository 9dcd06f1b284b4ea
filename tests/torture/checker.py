"""The checker: holds what publishers had acknowledged against what readers got, and readiness against service.

It knows nothing of the broker: a history goes in, violations come out.

    lost         acknowledged at QoS 1 or 2, and a persistent reader has not got it
    duplicated   got twice where the lesser QoS of publisher and reader is 2 or 0; or where it is 1, and neither the
                 publisher sent it again nor the reader had connected anew in between
    reordered    of one publisher, topic and QoS: the first delivery of a number comes after that of a greater one.
                 Judged where order is promised: at QoS 1 and 2, unless the topic prefers its deadline
    corrupted    a number that was never published, or a payload that is not the one published

QoS 0 may be lost: what is missing is counted, and told apart by what may have been the reason. A reader that is not
there misses it, as MQTT says; where a topic has a deadline, it is dropped when it cannot be in time; the rest was lost
on its way.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass
class Lane:
    """What one publisher has sent on one topic at one QoS, numbered from 0."""

    publisher: str
    topic: str
    qos: int
    is_ordered: bool = True
    """Whether the topic promises order."""
    has_deadline: bool = False
    published: int = 0
    acknowledged: set[int] = field(default_factory=set)
    """What the broker has taken responsibility for."""
    refused: set[int] = field(default_factory=set)
    resent: set[int] = field(default_factory=set)
    """What the broker may have got more than once."""
    sent_s: dict[int, float] = field(default_factory=dict)
    """When messages of QoS 0 were sent, by number."""


class Delivery(NamedTuple):
    number: int
    connection: int
    """Of the reader; they are counted from 1."""
    at_s: float


@dataclass
class Reader:
    """A persistent session that has subscribed to every lane before the first message."""

    name: str
    qos: int
    deliveries: defaultdict[str, list[Delivery]] = field(default_factory=lambda: defaultdict(list))
    """By topic."""
    corrupted: list[str] = field(default_factory=list)
    absences: list[tuple[float, float]] = field(default_factory=list)
    """From when to when it had no connection."""

    def is_away(self, sent_s: float) -> bool:
        """Whether it was, when something came that was sent then."""
        return any(begun_s <= sent_s + ARRIVED_WITHIN_S and sent_s <= ended_s for begun_s, ended_s in self.absences)


ARRIVED_WITHIN_S = 2.0
"""What comes at all has mostly come by then. A connection that ends meanwhile takes it along."""
KINDS = ("lost", "duplicated", "reordered", "corrupted")


@dataclass
class Verdict:
    published: int = 0
    acknowledged: int = 0
    refused: int = 0
    delivered: int = 0
    repeated: int = 0
    """At QoS 1, where that is allowed."""
    qos0_published: int = 0
    qos0_expected: int = 0
    """Deliveries."""
    qos0_missing: int = 0
    qos0_away: int = 0
    """Of those that are missing: the reader had no connection."""
    qos0_late: int = 0
    """Of those that are missing, and the reader had a connection: the topic has a deadline."""
    unordered: int = 0
    """Deliveries out of order where order is not promised."""
    lost: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    corrupted: list[str] = field(default_factory=list)

    @property
    def violations(self) -> dict[str, list[str]]:
        return {kind: found for kind in KINDS if (found := getattr(self, kind))}


def judge(lanes: Iterable[Lane], readers: Sequence[Reader]) -> Verdict:
    verdict = Verdict()
    topics: set[str] = set()
    for lane in lanes:
        topics.add(lane.topic)
        if lane.qos:
            verdict.published += lane.published
            verdict.acknowledged += len(lane.acknowledged)
            verdict.refused += len(lane.refused)
        else:
            verdict.qos0_published += lane.published
        for reader in readers:
            _compare(verdict, lane, reader)
    for reader in readers:
        verdict.corrupted += reader.corrupted
        verdict.corrupted += [f"{reader.name}: unknown topic {one[:80]}" for one in reader.deliveries.keys() - topics]
    return verdict


def missing(lanes: Iterable[Lane], readers: Sequence[Reader]) -> int:
    """How many deliveries of acknowledged messages have not happened yet."""
    return sum(
        len(lane.acknowledged - {one.number for one in reader.deliveries[lane.topic]})
        for lane in lanes
        for reader in readers
    )


def _compare(verdict: Verdict, lane: Lane, reader: Reader) -> None:
    """Each topic has one publisher and one QoS."""
    way = f"{lane.publisher} {lane.topic} QoS {lane.qos} -> {reader.name} QoS {reader.qos}"
    effective_qos = min(lane.qos, reader.qos)
    highest, seen = -1, dict[int, Delivery]()
    for delivery in reader.deliveries[lane.topic]:
        number, before = delivery.number, seen.get(delivery.number)
        verdict.delivered += 1
        if not 0 <= number < lane.published:
            verdict.corrupted.append(f"{way}: number {number} of {lane.published}")
        elif before is not None:
            is_resent = lane.qos == 1 and number in lane.resent
            is_unanswered = delivery.connection > before.connection
            if effective_qos == 1 and (is_resent or is_unanswered):
                verdict.repeated += 1
            else:
                told = f"at {before.at_s:.2f} and {delivery.at_s:.2f} s"
                told += f" by connections {before.connection} and {delivery.connection}"
                verdict.duplicated.append(f"{way}: {number} {told}")
        elif number < highest and effective_qos:
            if lane.is_ordered:
                verdict.reordered.append(f"{way}: {number} after {highest} at {delivery.at_s:.2f} s")
            else:
                verdict.unordered += 1
        highest = max(highest, number)
        seen[number] = delivery
    if lane.qos:
        verdict.lost += [f"{way}: {number}" for number in sorted(lane.acknowledged - seen.keys())]
    else:
        absent = set(range(lane.published)) - seen.keys()
        verdict.qos0_expected += lane.published
        verdict.qos0_missing += len(absent)
        away = sum(number in lane.sent_s and reader.is_away(lane.sent_s[number]) for number in absent)
        verdict.qos0_away += away
        verdict.qos0_late += (len(absent) - away) * lane.has_deadline


# Readiness


class Sample(NamedTuple):
    """Of one broker: /ready, a QoS 1 round trip of a client of its own, and /ready again."""

    broker: str
    begun_s: float
    ended_s: float
    was_ready: bool
    is_served: bool
    is_ready: bool
    detail: str = ""


class Disturbance(NamedTuple):
    """What was done to a broker's process or disk, from when to when."""

    broker: str
    begun_s: float
    ended_s: float
    what: str


MARGIN_S = 1.0
RECOVERED_WITHIN_S = 20.0
"""After a disturbance a broker that serves says so within this time."""


def dishonest(samples: Iterable[Sample], disturbances: Sequence[Disturbance]) -> list[str]:
    """Where a broker said that it was ready and did not serve, or the other way round for long, undisturbed."""
    found = []
    for sample in samples:
        if sample.was_ready and sample.is_ready and not sample.is_served:
            if not _is_disturbed(sample, disturbances, MARGIN_S):
                found.append(f"{sample.broker} at {sample.begun_s:.1f} s: ready, but does not serve: {sample.detail}")
        elif sample.is_served and not (sample.was_ready or sample.is_ready):  # noqa: SIM102
            if not _is_disturbed(sample, disturbances, RECOVERED_WITHIN_S):
                found.append(f"{sample.broker} at {sample.begun_s:.1f} s: serves, but is not ready: {sample.detail}")
    return found


def _is_disturbed(sample: Sample, disturbances: Sequence[Disturbance], after_s: float) -> bool:
    return any(
        one.broker == sample.broker and one.begun_s <= sample.ended_s and sample.begun_s <= one.ended_s + after_s
        for one in disturbances
    )
