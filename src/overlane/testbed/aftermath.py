"""What the brokers of a trial recorded of themselves: how routes moved, and which deadlines nobody could meet.

It is read from their telemetry once they have ended, and told in the simulator's form. Brokers record by the machine's
clock, so `zero_ns` is time zero by that clock. When a route was established everywhere is not recorded, hence never
told.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet

from overlane.core.qos import QosClass
from overlane.core.units import NEVER, Nanos
from overlane.sim.chronicle import Deed, milliseconds, seconds
from overlane.sim.report import RouteChange, UnmeetableDeadline
from overlane.telemetry.rows import EventKind

Topics = Mapping[QosClass, tuple[str, ...]]


def route_changes(
    records: Iterable[Path], zero_ns: Nanos, topics: Topics, deeds: Sequence[Deed]
) -> tuple[RouteChange, ...]:
    found = []
    for row in _events(records, zero_ns, EventKind.ROUTE):
        at_ns = row["at_ns"] - zero_ns
        deed = max((one for one in deeds if one.at <= at_ns), key=lambda one: one.at, default=None)
        found.append(
            RouteChange(
                time_s=seconds(at_ns),
                source=row["broker"],
                topics=_topics(topics, row),
                destinations=tuple(row["destinations"] or ()),
                links=tuple((one, other) for one, other in row["links"] or ()),
                cause=row["reason"],
                latency_ms=_milliseconds(row["latency_ns"]),
                fault=deed.what if deed else None,
                since_fault_ms=milliseconds(at_ns - deed.at) if deed else None,
                established_after_ms=None,
            )
        )
    return tuple(sorted(found, key=lambda change: change.time_s))


def unmeetable(records: Iterable[Path], zero_ns: Nanos, topics: Topics) -> tuple[UnmeetableDeadline, ...]:
    found = [
        UnmeetableDeadline(
            time_s=seconds(row["at_ns"] - zero_ns),
            source=row["broker"],
            destination=row["peer"],
            topics=_topics(topics, row),
            deadline_ms=milliseconds(row["deadline_ns"]),
            latency_ms=_milliseconds(row["latency_ns"]),
        )
        for row in _events(records, zero_ns, EventKind.DEADLINE_UNMEETABLE)
    ]
    return tuple(sorted(found, key=lambda one: one.time_s))


def _events(records: Iterable[Path], zero_ns: Nanos, kind: EventKind) -> Iterator[dict[str, Any]]:
    """Of this kind since time zero, from the data directories of all brokers."""
    for directory in records:
        for file in sorted((directory / "telemetry" / "events").rglob("*.parquet")):
            for row in pyarrow.parquet.ParquetFile(file).read().to_pylist():
                if row["kind"] == kind and row["at_ns"] >= zero_ns:
                    yield row


def _topics(topics: Topics, row: Mapping[str, Any]) -> tuple[str, ...]:
    """A record tells a class by its deadline and reliability alone: all filters it may be."""
    deadline_ns = NEVER if row["deadline_ns"] is None else row["deadline_ns"]
    return tuple(
        one
        for qos, filters in topics.items()
        if (qos.deadline_ns, qos.reliable) == (deadline_ns, row["reliable"])
        for one in filters
    )


def _milliseconds(duration_ns: Nanos | None) -> float | None:
    return None if duration_ns is None or duration_ns >= NEVER else milliseconds(duration_ns)
