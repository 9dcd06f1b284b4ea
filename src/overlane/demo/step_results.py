"""Delivery figures of one step of the demo, from the observations of its clients."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from overlane.core.topics import matches
from overlane.core.units import MS, Nanos
from overlane.sim.setup import SimulationSetup
from overlane.testbed.trial_clients import Observations


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one topic, published within a period. `missing`: not delivered, or not yet."""

    topic: str
    deadline_ms: float
    expected: int
    in_time: int
    late: int
    missing: int
    duplicates: int
    p50_ms: float
    p99_ms: float

    @property
    def in_time_rate(self) -> float:
        return self.in_time / self.expected if self.expected else 1.0


def is_lossless(figures: Iterable[Figures]) -> bool:
    """Whether every message was delivered exactly once."""
    return not any(one.missing or one.duplicates for one in figures)


IN_TIME_NORMAL = 0.99


def busy_note(normal: Iterable[Figures], load: float, processors: int) -> str | None:
    """Why messages were late in the step without faults, if they were and other processes keep the machine busy."""
    if load <= processors or all(one.in_time_rate >= IN_TIME_NORMAL for one in normal):
        return None
    return (
        f"Messages were late without a fault: this machine is busy (load average {load:.0f}, {processors} processors)."
        " Run the demo again on an idle machine to see real latencies."
    )


def step_figures(plan: SimulationSetup, seen: Sequence[Observations], from_ns: Nanos, until_ns: Nanos) -> list[Figures]:
    """Per topic: deliveries and latencies of the messages published within the period."""
    read = {(one.subscriber, one.publisher): one for everything in seen for one in everything.read}
    written = sorted((one for everything in seen for one in everything.written), key=lambda one: one.publisher)
    found = []
    for one in written:
        topic = plan.network.publishers[one.publisher].topic
        deadline_ns = plan.qos_of(topic).deadline_ns
        wanted = {number for number, at_ns in enumerate(one.times_ns) if from_ns <= at_ns < until_ns}
        expected = duplicates = 0
        latencies: list[Nanos] = []
        for number, subscriber in enumerate(plan.network.subscribers):
            if matches(subscriber.topic, topic):
                expected += len(wanted)
                got = read.get((number, one.publisher))
                if got is not None:
                    came = dict(zip(got.numbers, got.latencies_ns, strict=True))
                    latencies += [came[message] for message in wanted if message in came]
                    duplicates += sum(message in wanted for message in got.again)
        in_time = sum(latency_ns <= deadline_ns for latency_ns in latencies)
        latencies.sort()
        found.append(
            Figures(
                topic,
                deadline_ns / MS,
                expected,
                in_time,
                len(latencies) - in_time,
                expected - len(latencies),
                duplicates,
                _percentile_ms(latencies, 0.5),
                _percentile_ms(latencies, 0.99),
            )
        )
    return found


def _percentile_ms(ordered: list[Nanos], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / MS if ordered else 0.0
