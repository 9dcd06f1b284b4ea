"""Deliveries judged without Spark: exact counts and percentiles of what a lake's files say."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from overlane.pipeline.units import HOUR_S, SECOND_NS

Series = tuple[str, str | None, str | None, str | None, str | None]
"""Scope, topic, origin, broker, path: empty where the scope does not tell it apart."""


@dataclass
class Ages:
    rows: list[tuple[int, int, bool | None]] = field(default_factory=list)
    """How old, how many, and whether in time."""

    @property
    def deliveries(self) -> int:
        return sum(weight for _, weight, _ in self.rows)

    @property
    def judged(self) -> int:
        return sum(weight for _, weight, in_time in self.rows if in_time is not None)

    @property
    def in_time(self) -> int:
        return sum(weight for _, weight, in_time in self.rows if in_time)

    def percentile_ms(self, share: float) -> float:
        """The least age that so large a share is not older than."""
        ages, weights = np.array([(age, weight) for age, weight, _ in sorted(self.rows)]).T
        up_to = np.cumsum(weights)
        return float(ages[np.searchsorted(up_to, share * up_to[-1])]) / 1e6


@dataclass
class Judged:
    by_hour: dict[tuple[Any, ...], Ages]
    ways: dict[tuple[str, str], list[str]]

    def missed(self, scope: str) -> dict[tuple[str | None, str | None, str | None], int]:
        """Of all hours, by topic, origin and broker, where there are any."""
        found: dict[tuple[str | None, str | None, str | None], int] = {}
        for (of, topic, origin, broker, _, _), ages in self.by_hour.items():
            if of == scope and ages.judged > ages.in_time:
                key = topic, origin, broker
                found[key] = found.get(key, 0) + ages.judged - ages.in_time
        return found


def judged(lake: Path) -> Judged:
    by_hour: dict[tuple[Any, ...], Ages] = {}
    ways: dict[tuple[str, str], list[str]] = {}
    for file in sorted((lake / "deliveries").rglob("*.parquet")):
        wanted = ["at_ns", "broker", "origin", "topic", "age_ns", "in_time", "path", "weight"]
        for row in pq.read_table(file, columns=wanted).to_pylist():
            hour_s = row["at_ns"] // (HOUR_S * SECOND_NS) * HOUR_S
            ways[row["origin"], row["broker"]] = row["path"]
            for series in _of(row):
                by_hour.setdefault((*series, hour_s), Ages()).rows.append(
                    (row["age_ns"], row["weight"], row["in_time"])
                )
    return Judged(by_hour, ways)


def _of(row: dict[str, Any]) -> Iterator[Series]:
    yield "all", None, None, None, None
    yield "topic", row["topic"], None, None, None
    yield "route", None, row["origin"], row["broker"], ">".join(row["path"])
    for one, other in pairwise(row["path"]):
        yield "hop", None, one, other, None
