"""Outage attribution: which part of a link's outage is due to a broker at one of its ends.

While a broker is away, nobody can know whether its links work: that part of an outage is `broker`, not a failure of the
link. What remains of the outage before and behind it is a failure of the link, to the second, with two tolerances:

- A link may be found down up to three seconds before its broker: seconds are rounded.
- A link needs up to ten seconds to come up again after its broker. If it takes longer, it has failed by itself, from
  the moment at which the broker was back.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from overlane.pipeline.columns import columns, declare

BEFORE_S = 3
AFTER_S = 10

DOWN, BROKER = "down", "broker"

Span = tuple[int, int]

_OUTAGES = columns(
    "kind string, broker string, peer string, start_s bigint, end_s bigint, away_starts array<bigint>, "
    "away_ends array<bigint>"
)
_PARTS = columns("kind string, broker string, peer string, state string, start_s bigint, end_s bigint")


def attribute(outages: DataFrame, away: DataFrame) -> DataFrame:
    """Outages of links in parts, `down` or `broker`. `away`: broker, start_s, end_s of those who were away."""
    spans = away.groupBy("broker").agg(sf.array_sort(sf.collect_list(sf.struct("start_s", "end_s"))).alias("spans"))
    nearby = sf.expr(
        f"filter(concat(coalesce(spans, array()), coalesce(peer_spans, array())), span -> "
        f"span.start_s - {BEFORE_S} <= end_s and span.end_s + {AFTER_S} >= start_s)"
    )
    beside = (
        outages.join(sf.broadcast(spans), "broker", "left")
        .join(sf.broadcast(spans.selectExpr("broker as peer", "spans as peer_spans")), "peer", "left")
        .select("*", nearby.alias("near"))
        .selectExpr(
            *("kind", "broker", "peer", "start_s", "end_s"),
            "transform(near, span -> span.start_s) as away_starts",
            "transform(near, span -> span.end_s) as away_ends",
        )
    )
    return declare(beside, _OUTAGES).mapInArrow(_attributed, _PARTS)


def _attributed(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        found = [
            (row["kind"], row["broker"], row["peer"], state, start_s, end_s)
            for row in batch.to_pylist()
            for state, start_s, end_s in parts_of(
                (row["start_s"], row["end_s"]), list(zip(row["away_starts"], row["away_ends"], strict=True))
            )
        ]
        columns_of: list[tuple[Any, ...]] = list(zip(*found, strict=True)) or [()] * len(_PARTS.fieldNames())
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(column, pa.int64() if name.endswith("_s") else pa.string())
                for name, column in zip(_PARTS.fieldNames(), columns_of, strict=True)
            ],
            names=_PARTS.fieldNames(),
        )


def parts_of(outage: Span, away: Sequence[Span]) -> list[tuple[str, int, int]]:
    """An outage as parts that follow each other: (state, start_s, end_s)."""
    start_s, end_s = outage
    parts: list[tuple[str, int, int]] = []
    at_s, back_s = start_s, None
    for gone_s, returned_s in sorted(away):
        if gone_s >= end_s + BEFORE_S or returned_s + AFTER_S <= start_s:
            continue
        if gone_s - at_s > (AFTER_S if back_s == at_s else BEFORE_S):
            parts.append((DOWN, at_s, min(gone_s, end_s)))
            at_s = min(gone_s, end_s)
        until_s = min(end_s, returned_s)
        if until_s > at_s:
            parts.append((BROKER, at_s, until_s))
            at_s = until_s
        back_s = max(back_s or returned_s, returned_s)
    if at_s < end_s:
        is_returning = back_s is not None and end_s - back_s <= AFTER_S
        parts.append((BROKER if is_returning else DOWN, at_s, end_s))
    return _merged(parts)


def _merged(parts: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = []
    for state, start_s, end_s in parts:
        if found and found[-1][0] == state:
            start_s = found.pop()[1]
        found.append((state, start_s, end_s))
    return found
