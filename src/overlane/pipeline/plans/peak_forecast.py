"""Peak forecast: the highest hourly rate of each item in the week to come, from daily and weekly cycles.

The rates of an item are taken as a level times a profile of the 168 hours of a week:

- The profile of an hour is the mean over past weeks, each week divided by its own mean. A few weeks tell little of a
  single hour, so it is drawn towards the mean of the same hour of all days (weight `SHRINK` weeks).
- The level is that of the last week, continued by the growth per week (the median of the past).

The maximum of noisy hours is higher than that of their means. How much higher, and how certain it is, is taken from the
past: every earlier week is forecast from the weeks before it (backtest), and the ratios of what came to what was
forecast, of all items together, correct the forecast and give its interval. The same backtest judges the usual
alternative, the naive seasonal forecast: next week will be as the last one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from overlane.pipeline.output_directory import Run
from overlane.pipeline.units import HOUR_S

DAY_H, WEEK_H = 24, 168
SHRINK = 1.0
GROWTH_MAX = 2.0
"""Factor per week; more is taken for an accident."""
WEEKS_MIN = 3
"""Two to forecast from, and one to judge by."""
HISTORY_WEEKS = 12
LOW, HIGH = 0.025, 0.975
RATIOS_MIN = 40
"""With fewer ratios than this, the extremes are the interval."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ItemPeak:
    """Rates are in messages per second."""

    item: str
    peak: float
    low: float
    high: float
    hour_s: int
    """When the peak is expected."""
    last_week: float
    """The highest rate of the last week: the naive seasonal forecast."""


@dataclass(frozen=True, slots=True)
class PeakForecast:
    items: tuple[ItemPeak, ...]
    """The largest peak first."""
    weeks: int
    """Of history."""
    judged: int
    """Peaks that the backtest has compared."""
    error: float
    """Median relative error of forecast peaks in the backtest."""
    naive_error: float
    """The same of the naive seasonal forecast."""


def hourly_rates(run: Run, item_levels: int) -> tuple[int, dict[str, Floats]]:
    """The first hour, and messages per second of each item by hour; nan where no broker was observed."""
    rows = pq.read_table(run.tables / "load_hours", columns=["hour_s", "topic", "messages", "seconds"])
    if rows.num_rows == 0:
        return 0, {}
    hours = rows.column("hour_s").to_numpy()
    first_s, count = int(hours.min()), int(hours.max() - hours.min()) // HOUR_S + 1
    place = (hours - first_s) // HOUR_S
    seconds = np.full(count, np.nan)
    seconds[place] = rows.column("seconds").to_numpy()
    items = np.array(["/".join(topic.split("/")[:item_levels]) for topic in rows.column("topic").to_pylist()])
    messages = rows.column("messages").to_numpy()
    names, number = np.unique(items, return_inverse=True)
    sums = np.bincount(number * count + place, messages, len(names) * count).reshape(len(names), count)
    return first_s, {str(name): sums[row] / seconds for row, name in enumerate(names)}


def forecast(first_s: int, rates: Mapping[str, Floats]) -> PeakForecast | None:
    """The peaks of the 168 hours after the last one; None if there are less than three whole weeks."""
    names = sorted(rates)
    hours = len(rates[names[0]]) if names else 0
    weeks = min(hours // WEEK_H, HISTORY_WEEKS)
    if weeks < WEEKS_MIN:
        return None
    # Weeks end with the last hour, so that the next one begins where history ends.
    history = {name: rates[name][hours - weeks * WEEK_H :].reshape(weeks, WEEK_H) for name in names}
    past = _backtest(history, weeks)
    ratios = np.array([ratio for week in past for ratio in week.ratios])
    usual = float(np.median(ratios)) if len(ratios) else 1.0
    low, high = _interval(ratios)
    found = []
    for name in names:
        expected = week_ahead(history[name])
        best = int(np.argmax(expected))
        raw, hour_s = float(expected[best]), first_s + (hours + best) * HOUR_S
        last = float(np.nanmax(np.append(history[name][-1], 0.0)))
        found.append(ItemPeak(name, raw * usual, raw * low, raw * high, hour_s, last))
    return PeakForecast(
        items=tuple(sorted(found, key=lambda one: (-one.peak, one.item))),
        weeks=weeks,
        judged=len(ratios),
        error=_median([error for week in past for error in week.errors]),
        naive_error=_median([error for week in past for error in week.naive_errors]),
    )


def week_ahead(weeks: Floats) -> Floats:
    """The expected rates of the next 168 hours; `weeks` has a row per week, the last one last."""
    means = _mean(weeks, axis=1)
    is_known = means > 0
    if not is_known.any():
        return np.zeros(WEEK_H)
    shares = weeks[is_known] / means[is_known, None]
    counts = np.isfinite(shares).sum(axis=0)
    of_hour = _mean(shares, axis=0)
    of_day = np.tile(_mean(of_hour.reshape(-1, DAY_H), axis=0), WEEK_H // DAY_H)
    profile: Floats = (counts * np.nan_to_num(of_hour) + SHRINK * np.nan_to_num(of_day)) / (counts + SHRINK)
    levels = means[is_known]
    steps = levels[1:] / levels[:-1]
    growth = float(np.clip(np.median(steps), 1 / GROWTH_MAX, GROWTH_MAX)) if len(steps) > 1 else 1.0
    return float(levels[-1]) * growth * profile


@dataclass(frozen=True, slots=True)
class _PastWeek:
    ratios: list[float]
    """Peaks that came, over those that the weeks before had given."""
    errors: list[float]
    """Relative errors of these peaks, corrected by the ratios of earlier weeks: no week judges itself."""
    naive_errors: list[float]


def _backtest(history: Mapping[str, Floats], weeks: int) -> list[_PastWeek]:
    """Every week from the third on, forecast from the weeks before it."""
    past: list[_PastWeek] = []
    for week in range(2, weeks):
        known = [ratio for before in past for ratio in before.ratios]
        usual = float(np.median(known)) if known else 1.0
        found = _PastWeek([], [], [])
        for of in history.values():
            if not (np.isfinite(of[week]).any() and np.isfinite(of[week - 1]).any()):
                continue
            peak, last = float(np.nanmax(of[week])), float(np.nanmax(of[week - 1]))
            expected = float(week_ahead(of[:week]).max())
            if peak > 0 and expected > 0:
                found.ratios.append(peak / expected)
                found.errors.append(abs(expected * usual - peak) / peak)
                found.naive_errors.append(abs(last - peak) / peak)
        past.append(found)
    return past


def _median(values: list[float]) -> float:
    return float(np.median(values)) if values else 0.0


def _interval(ratios: Floats) -> tuple[float, float]:
    if not len(ratios):
        return 0.0, GROWTH_MAX
    if len(ratios) < RATIOS_MIN:
        return float(ratios.min()), float(ratios.max())
    return float(np.quantile(ratios, LOW)), float(np.quantile(ratios, HIGH))


def _mean(values: Floats, axis: int) -> Any:
    """Without what is not known; nan where nothing is."""
    is_known = np.isfinite(values)
    count = is_known.sum(axis=axis)
    total = np.where(is_known, values, 0.0).sum(axis=axis)
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
