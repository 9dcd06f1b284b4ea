"""Clock skew: how far the clocks of brokers are apart, from what both ends of their links recorded.

A link is observed from both ends. What one end sent in a second the other end received in the same second, both measure
the same latency, and both see the same outages. If one clock is three seconds ahead, so is its series. For every link
and hour the shift is searched at which both series agree best (`shift_between`); the shifts of all links of an hour
then give the offset of each broker. Whole seconds are enough: telemetry has no finer resolution.

A wrong offset would do more harm than none, so a shift counts only if it is beyond doubt: far stronger than chance, and
stronger than any other shift, which periodic traffic does not satisfy. Two clocks that agree are evidence too. Without
evidence a clock is taken to be right. What most brokers of a connected group agree on is taken to be the time.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from overlane.pipeline.analysis.grouping import map_all, map_groups
from overlane.pipeline.analysis.second_masks import second_s
from overlane.pipeline.columns import columns
from overlane.pipeline.schemas import TABLES
from overlane.pipeline.units import HOUR_S, SECOND_NS
from overlane.telemetry.schema import SCHEMAS

SHIFT_MAX_S = 120
SAMPLE_S = 900
"""So many seconds of each hour are compared, and all outages."""
SECONDS_MIN = 120
SCORE_MIN = 8.0
"""In standard deviations of what chance gives at one shift."""
AHEAD_MIN = 1.3
"""So many times as strong as any other shift."""
OUTLIER = 5.0
OUTAGE_SHIFT_MIN_S = 2
"""The ends of a link may notice an outage a second apart."""
OUTAGE_WEIGHT = 4.0

_LINKS = columns(
    "one string, other string, hour_s bigint, is_one boolean, second int, bytes_in bigint, bytes_out bigint, "
    "latency_ns bigint, is_down boolean"
)
_SHIFTS = columns("one string, other string, hour_s bigint, shift_s int, weight double")

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class End:
    """An hour of one end of a link. Arrays have a value per second, nan where nothing was recorded."""

    received: Floats
    sent: Floats
    latency: Floats
    downs: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Shift:
    """The clock of `other` is `shift_s` ahead of that of `one`."""

    one: str
    other: str
    hour_s: int
    shift_s: int
    weight: float


def clock_offsets(links: DataFrame) -> DataFrame:
    """The offset of each broker's clock by hour, where links tell it."""
    timed = links.select("*", second_s().alias("second_s"))
    told = timed.select(
        sf.least("broker", "peer").alias("one"),
        sf.greatest("broker", "peer").alias("other"),
        sf.expr(f"second_s div {HOUR_S} * {HOUR_S}").alias("hour_s"),
        sf.expr("broker < peer").alias("is_one"),
        sf.expr(f"cast(pmod(second_s, {HOUR_S}) as int)").alias("second"),
        *("bytes_in", "bytes_out", "latency_ns"),
        sf.expr("state in ('failed', 'down')").alias("is_down"),
    ).where(f"second < {SAMPLE_S} or is_down")
    shifts = map_groups(told, _LINKS, ["one", "other", "hour_s"], _shift_of_rows, _SHIFTS)
    return map_all(shifts, _SHIFTS, _offsets_of_rows, TABLES["clock_offsets"])


def corrected(rows: DataFrame, table: str, offsets: DataFrame) -> DataFrame:
    """The rows of a table of the lake, with `at_ns` by the common time."""
    wrong = offsets.where("offset_s <> 0").selectExpr(
        "broker", "hour_s as clock_hour_s", f"offset_s * {SECOND_NS}L as ahead_ns"
    )
    hour = sf.expr(f"at_ns div {HOUR_S * SECOND_NS} * {HOUR_S}")
    joined = rows.select("*", hour.alias("clock_hour_s")).join(sf.broadcast(wrong), ["broker", "clock_hour_s"], "left")
    true_ns = sf.expr("at_ns - coalesce(ahead_ns, 0L)").alias("at_ns")
    return joined.select(*[true_ns if name == "at_ns" else name for name in SCHEMAS[table].names])


def _shift_of_rows(rows: Any) -> Any:
    found: dict[str, Any] = {name: [] for name in _SHIFTS.fieldNames()}
    is_one = rows.column("is_one").to_numpy(zero_copy_only=False)
    ends = [_end(rows.filter(pa.array(side))) for side in (is_one, ~is_one)]
    shift = shift_between(*ends)
    if shift is not None:
        for name in ("one", "other", "hour_s"):
            found[name] = [rows.column(name)[0].as_py()]
        found["shift_s"], found["weight"] = [shift[0]], [shift[1]]
    kinds = [pa.string(), pa.string(), pa.int64(), pa.int32(), pa.float64()]
    return pa.table({name: pa.array(found[name], kind) for name, kind in zip(found, kinds, strict=True)})


def _end(rows: Any) -> End:
    second = rows.column("second").to_numpy()
    is_sampled = second < SAMPLE_S
    series: dict[str, Floats] = {}
    for name in ("bytes_in", "bytes_out", "latency_ns"):
        values = np.full(SAMPLE_S, np.nan)
        values[second[is_sampled]] = rows.column(name).to_numpy().astype(np.float64)[is_sampled]
        series[name] = values
    is_down = rows.column("is_down").to_numpy(zero_copy_only=False).astype(np.bool_)
    return End(series["bytes_in"], series["bytes_out"], series["latency_ns"], runs(second[is_down]))


def runs(seconds: Any) -> list[tuple[int, int]]:
    """Seconds as spans without gaps, end exclusive."""
    ordered = np.unique(seconds)
    if not len(ordered):
        return []
    breaks = np.flatnonzero(np.diff(ordered) > 1)
    starts, ends = ordered[np.r_[0, breaks + 1]], ordered[np.r_[breaks, len(ordered) - 1]] + 1
    return [(int(start), int(end)) for start, end in zip(starts, ends, strict=True)]


def shift_between(one: End, other: End) -> tuple[int, float] | None:
    """By how many seconds the clock of `other` is ahead, and how certain that is; None if nothing tells it."""
    pairs = [(one.sent, other.received), (one.received, other.sent), (one.latency, other.latency)]
    scores = [score for a, b in pairs if (score := _scores(a, b)) is not None]
    if scores:
        total = np.sum(scores, axis=0) / np.sqrt(len(scores))
        best = int(np.argmax(total))
        if total[best] >= SCORE_MIN:
            beside = np.ones(len(total), dtype=np.bool_)
            beside[max(0, best - 1) : best + 2] = False
            if total[best] >= AHEAD_MIN * max(0.0, float(total[beside].max())):
                return best - SHIFT_MAX_S, float(total[best])
    return _shift_of_outages(one.downs, other.downs)


def _scores(one: Floats, other: Floats) -> Floats | None:
    """How far above chance both series agree at each shift; None if there is too little of them."""
    first, second = _whitened(one), _whitened(other)
    if min(np.count_nonzero(first), np.count_nonzero(second)) < SECONDS_MIN:
        return None
    size = 2 * len(first)
    products = np.fft.irfft(np.conj(np.fft.rfft(first, size)) * np.fft.rfft(second, size), size)
    counts = np.fft.irfft(np.conj(np.fft.rfft(first != 0, size)) * np.fft.rfft(second != 0, size), size)
    shifts = np.arange(-SHIFT_MAX_S, SHIFT_MAX_S + 1)
    scores: Floats = products[shifts] / np.sqrt(np.maximum(counts[shifts], 1.0))
    return np.where(counts[shifts] >= SECONDS_MIN, scores, 0.0)


def _whitened(values: Floats) -> Floats:
    """The changes from second to second in standard deviations, without trend; 0 where they are not known."""
    changes = np.diff(values, prepend=np.nan)
    spread = float(np.nanstd(changes)) if np.isfinite(changes).any() else 0.0
    if spread == 0.0:
        return np.zeros(len(values))
    return np.nan_to_num(np.clip(changes / spread, -OUTLIER, OUTLIER))


def _shift_of_outages(one: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]) -> tuple[int, float] | None:
    """By outages that both ends saw as equally long. All of them must tell the same shift."""
    shifts = []
    for start, end in one:
        similar = [far for far in other if abs((far[1] - far[0]) - (end - start)) <= 1]
        near = [far[0] - start for far in similar if abs(far[0] - start) <= SHIFT_MAX_S]
        if len(near) == 1:
            shifts += near
    if not shifts or max(shifts) - min(shifts) > 1:
        return None
    middle = int(np.median(shifts))
    return (middle if abs(middle) >= OUTAGE_SHIFT_MIN_S else 0), OUTAGE_WEIGHT * len(shifts)


def _offsets_of_rows(rows: Any) -> Any:
    shifts = [Shift(**row) for row in rows.to_pylist()]
    found = sorted(broker_offsets(shifts).items())
    return pa.table(
        {
            "broker": pa.array([broker for (broker, _), _ in found], pa.string()),
            "hour_s": pa.array([hour_s for (_, hour_s), _ in found], pa.int64()),
            "offset_s": pa.array([offset for _, (offset, _) in found], pa.int32()),
            "links": pa.array([links for _, (_, links) in found], pa.int32()),
        }
    )


def broker_offsets(shifts: Iterable[Shift]) -> dict[tuple[str, int], tuple[int, int]]:
    """Offset in seconds and number of links that tell it, by broker and hour. Each hour is judged by itself."""
    by_hour: dict[int, list[Shift]] = defaultdict(list)
    for shift in shifts:
        by_hour[shift.hour_s].append(shift)
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for hour_s, of_hour in by_hour.items():
        for broker, told in _offsets_of_hour(of_hour).items():
            found[broker, hour_s] = told
    return found


def _offsets_of_hour(shifts: Sequence[Shift]) -> dict[str, tuple[int, int]]:
    """Along the most certain links first, as a tree; then less the median of each connected group."""
    group: dict[str, dict[str, int]] = {}
    links: dict[str, int] = defaultdict(int)
    for shift in sorted(shifts, key=lambda shift: (-shift.weight, shift.one, shift.other)):
        links[shift.one] += 1
        links[shift.other] += 1
        ours = group.setdefault(shift.one, {shift.one: 0})
        theirs = group.setdefault(shift.other, {shift.other: 0})
        if ours is theirs:
            continue
        moved = ours[shift.one] + shift.shift_s - theirs[shift.other]
        for broker, offset in theirs.items():
            ours[broker] = offset + moved
            group[broker] = ours
    found = {}
    for broker, ours in group.items():
        common = int(np.median(sorted(ours.values())))
        found[broker] = (ours[broker] - common, links[broker])
    return found
