"""Delivery figures of a trial per topic, from the observations of its clients, by the simulator's rules.

A delivery is expected for every message published while a matching subscriber was subscribed. A subscription takes time
to propagate: messages within the grace period after its start or before its end count if they arrive, and are no loss
if they do not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from overlane.core.units import Nanos
from overlane.sim.judge import GRACE_NS
from overlane.sim.report import TopicReport, latency
from overlane.sim.setup import SimulationSetup
from overlane.testbed.presence import Presence, Span, is_for
from overlane.testbed.trial_clients import Observations, Received


@dataclass(slots=True)
class _Row:
    deadline_ns: Nanos
    published: int = 0
    expected: int = 0
    duplicates: int = 0
    latencies_ns: list[Nanos] = field(default_factory=list)

    def report(self) -> TopicReport:
        delivered = len(self.latencies_ns)
        in_time = sum(latency_ns <= self.deadline_ns for latency_ns in self.latencies_ns)
        return TopicReport(
            published=self.published,
            expected=self.expected,
            delivered=delivered,
            in_time=in_time,
            late=delivered - in_time,
            lost=self.expected - delivered,
            duplicates=self.duplicates,
            latency_ms=latency(self.latencies_ns),
        )


def topic_reports(plan: SimulationSetup, seen: Sequence[Observations], presence: Presence) -> dict[str, TopicReport]:
    rows = {name: _Row(qos.deadline_ns) for name, qos in plan.classes.items()}
    read = {(one.subscriber, one.publisher): one for everything in seen for one in everything.read}
    for written in (one for everything in seen for one in everything.written):
        publisher = plan.network.publishers[written.publisher]
        topic = publisher.topic
        row = rows.setdefault(plan.row_of(topic), _Row(plan.qos_of(topic).deadline_ns))
        published = {
            number: at_ns for number, at_ns in enumerate(written.times_ns) if presence.has(publisher.broker, at_ns)
        }
        row.published += len(published)
        for number, subscriber in enumerate(plan.network.subscribers):
            if is_for(plan.network, publisher, subscriber):
                spans = list(presence.of_subscriber(subscriber))
                _judge(row, spans, published, read.get((number, written.publisher)))
    return {name: row.report() for name, row in rows.items()}


def _judge(row: _Row, spans: Sequence[Span], published: Mapping[int, Nanos], read: Received | None) -> None:
    came = dict(zip(read.numbers, read.latencies_ns, strict=True)) if read is not None else {}
    row.duplicates += len(read.again) if read is not None else 0
    for number, at_ns in published.items():
        for start_ns, stop_ns in spans:
            if start_ns <= at_ns < stop_ns:
                if number in came:
                    row.latencies_ns.append(came[number])
                elif not start_ns + GRACE_NS <= at_ns < stop_ns - GRACE_NS:
                    continue
                row.expected += 1
