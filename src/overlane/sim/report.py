"""The results of a run, in the terms and units of its JSON form.

Latencies and deadlines are judged by true virtual time. `lost + delivered == expected` and `in_time + late ==
delivered` in every row; a message counts once per subscriber.
"""

from collections.abc import Sequence

import msgspec

from overlane.core.units import NEVER, Nanos
from overlane.sim.judge import Judge
from overlane.sim.run_log import RouteMove, RunLog, Unmeetable, milliseconds, seconds


class Latency(msgspec.Struct, frozen=True):
    p50: float
    p99: float
    max: float


class TopicReport(msgspec.Struct, frozen=True):
    published: int
    expected: int
    delivered: int
    in_time: int
    late: int
    lost: int
    duplicates: int
    latency_ms: Latency | None


class RouteChange(msgspec.Struct, frozen=True):
    """`since_fault_ms` is counted from `fault`, the last thing done to the network, to the new route being in use."""

    time_s: float
    source: str
    topics: tuple[str, ...]
    destinations: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    cause: str
    latency_ms: float | None
    fault: str | None
    since_fault_ms: float | None
    established_after_ms: float | None


class UnmeetableDeadline(msgspec.Struct, frozen=True):
    time_s: float
    source: str
    destination: str
    topics: tuple[str, ...]
    deadline_ms: float
    latency_ms: float | None


class Report(msgspec.Struct, frozen=True):
    topics: dict[str, TopicReport]
    sent_per_message: float
    route_changes: tuple[RouteChange, ...]
    unmeetable: tuple[UnmeetableDeadline, ...]
    control_bytes_per_broker_s: float
    digest: str


def sum_up(judge: Judge, run_log: RunLog, messages_sent: int, control_bytes_per_broker_s: float) -> Report:
    topics = {name: _topic_report(judge, name) for name in judge.rows}
    published = sum(topic.published for topic in topics.values())
    changes = tuple(_route_change(move) for move in run_log.route_moves if move.at >= 0)
    unmeetable = tuple(_unmeetable(found) for found in run_log.unmeetable)
    sent_per_message = round(messages_sent / published, 4) if published else 0.0
    control = round(control_bytes_per_broker_s, 1)
    return Report(
        topics=topics,
        sent_per_message=sent_per_message,
        route_changes=changes,
        unmeetable=unmeetable,
        control_bytes_per_broker_s=control,
        digest=judge.digest_of(topics, changes, unmeetable, messages_sent, control),
    )


def _topic_report(judge: Judge, name: str) -> TopicReport:
    row = judge.rows[name]
    expected = row.expected - judge.excused(name)
    return TopicReport(
        published=row.published,
        expected=expected,
        delivered=row.delivered,
        in_time=row.in_time,
        late=row.delivered - row.in_time,
        lost=expected - row.delivered,
        duplicates=row.duplicates,
        latency_ms=latency(row.latencies_ns),
    )


def latency(latencies_ns: Sequence[Nanos]) -> Latency | None:
    """Percentiles by nearest rank: each is the latency of some message."""
    if not latencies_ns:
        return None
    ordered = sorted(latencies_ns)
    return Latency(
        p50=milliseconds(ordered[(len(ordered) * 50 + 99) // 100 - 1]),
        p99=milliseconds(ordered[(len(ordered) * 99 + 99) // 100 - 1]),
        max=milliseconds(ordered[-1]),
    )


def _route_change(move: RouteMove) -> RouteChange:
    effect, deed = move.effect, move.deed
    return RouteChange(
        time_s=seconds(move.at),
        source=move.source,
        topics=move.topics,
        destinations=effect.destinations,
        links=effect.links,
        cause=effect.cause,
        latency_ms=_if_ever(effect.latency_ns),
        fault=deed.what if deed else None,
        since_fault_ms=milliseconds(move.at - deed.at) if deed else None,
        established_after_ms=milliseconds(move.established_at - move.at) if move.established_at < NEVER else None,
    )


def _unmeetable(found: Unmeetable) -> UnmeetableDeadline:
    return UnmeetableDeadline(
        time_s=seconds(found.at),
        source=found.source,
        destination=found.effect.destination,
        topics=found.topics,
        deadline_ms=milliseconds(found.effect.qos.deadline_ns),
        latency_ms=_if_ever(found.effect.latency_ns),
    )


def _if_ever(duration: Nanos) -> float | None:
    """Milliseconds; None for an infinite duration, which JSON cannot say."""
    return milliseconds(duration) if duration < NEVER else None
