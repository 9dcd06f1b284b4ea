"""Route changes and unmeetable deadlines of a trial, from the telemetry of its brokers.

The telemetry is read after the brokers have ended, and reported as by the simulator. Brokers use the system clock;
`zero_ns` is time zero on that clock. The time when a route was established everywhere is not recorded, so it is not
reported.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from overlane.core.qos import QosClass
from overlane.core.units import NEVER, Nanos
from overlane.sim.report import RouteChange, UnmeetableDeadline
from overlane.sim.run_log import RunEvent, milliseconds, seconds
from overlane.telemetry.rows import EventKind

Topics = Mapping[QosClass, tuple[str, ...]]


def route_changes(
    records: Iterable[Path], zero_ns: Nanos, topics: Topics, deeds: Sequence[RunEvent]
) -> tuple[RouteChange, ...]:
    """Routes that were chosen before time zero, while the trial was set up, are reported at time zero."""
    found = []
    for row in _since_zero(_events(records, EventKind.ROUTE), zero_ns):
        at_ns = max(0, row["at_ns"] - zero_ns)
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
        for row in _events(records, EventKind.DEADLINE_UNMEETABLE)
        if row["at_ns"] >= zero_ns
    ]
    return tuple(sorted(found, key=lambda one: one.time_s))


def _since_zero(rows: Iterable[dict[str, Any]], zero_ns: Nanos) -> Iterator[dict[str, Any]]:
    """All changes from time zero on, and of those before the last of each route."""
    present: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: row["at_ns"]):
        if row["at_ns"] >= zero_ns:
            yield row
        else:
            route = row["broker"], row["deadline_ns"], row["reliable"], tuple(row["destinations"] or ())
            present[route] = row
    yield from present.values()


def _events(records: Iterable[Path], kind: EventKind) -> Iterator[dict[str, Any]]:
    """Of this kind, from the data directories of all brokers."""
    import pyarrow.parquet  # comes with an extra, and commands that make no report do without

    for directory in records:
        for file in sorted((directory / "telemetry" / "events").rglob("*.parquet")):
            for row in pyarrow.parquet.ParquetFile(file).read().to_pylist():
                if row["kind"] == kind:
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
