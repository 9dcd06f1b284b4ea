"""Forecasts of next week's peaks: compared with what comes, and with the forecast that next week is as the last."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from overlane.pipeline.output_directory import OutputDirectory
from overlane.pipeline.plans.peak_forecast import WEEK_H, ItemPeak, forecast, hourly_rates, week_ahead
from overlane.pipeline.samples.ground_truth import daily
from overlane.pipeline.units import HOUR_S
from sparks import pipeline

MONDAY_S = 1_767_571_200
NOISE = 0.1
WEEKEND = 0.5

Floats = NDArray[np.float64]


def true_rates(weeks: int, mean: float, growth: float = 1.0) -> Floats:
    """The daily cycle of samples, weekends with half the load, and steady growth."""
    second_s = MONDAY_S + np.arange(weeks * WEEK_H) * HOUR_S
    is_weekend = np.arange(weeks * WEEK_H) % WEEK_H >= 5 * 24
    trend = growth ** (np.arange(weeks * WEEK_H) / WEEK_H)
    found: Floats = mean * daily(second_s) * np.where(is_weekend, WEEKEND, 1.0) * trend
    return found


def noisy(rates: Floats, rng: np.random.Generator) -> Floats:
    found: Floats = rates * rng.lognormal(-(NOISE**2) / 2, NOISE, len(rates))
    return found


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_forecast_peaks_are_nearer_to_what_comes_than_those_of_last_week(seed: int) -> None:
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    weeks, items = 8, 30
    growths = rng.uniform(1.0, 1.08, items)
    whole = {
        f"item-{number:02d}": noisy(true_rates(weeks + 1, rng.uniform(50, 500), growths[number]), rng)
        for number in range(items)
    }
    found = forecast(MONDAY_S, {name: of[: weeks * WEEK_H] for name, of in whole.items()})
    assert found is not None
    peaks = {name: float(of[weeks * WEEK_H :].max()) for name, of in whole.items()}
    errors = {one.item: abs(one.peak - peaks[one.item]) / peaks[one.item] for one in found.items}
    naive = {one.item: abs(one.last_week - peaks[one.item]) / peaks[one.item] for one in found.items}
    assert np.median(list(errors.values())) < np.median(list(naive.values()))
    assert found.error < found.naive_error, "the backtest says so before"
    within = sum(one.low <= peaks[one.item] <= one.high for one in found.items)
    assert within >= 24, "fewer than 24 of 30 would come once in 20,000 with an interval of 95 %"
    assert (found.weeks, found.judged) == (weeks, items * (weeks - 2))
    is_busy = [daily(np.array([one.hour_s]))[0] == 1.0 for one in found.items]
    assert all(is_busy), "at peak hours"
    assert all((one.hour_s - MONDAY_S) // HOUR_S % WEEK_H < 5 * 24 for one in found.items), "on working days"
    assert all(weeks * WEEK_H <= (one.hour_s - MONDAY_S) // HOUR_S < (weeks + 1) * WEEK_H for one in found.items)


def test_what_repeats_itself_exactly_is_forecast_exactly_and_gaps_do_not_matter() -> None:
    rates = true_rates(4, 100.0)
    rates[30:40] = np.nan  # nobody was observed
    found = week_ahead(rates.reshape(4, WEEK_H))
    # Hours are drawn towards the mean of their hour of the day: two working days in three agree to a tenth.
    np.testing.assert_allclose(found[:24], true_rates(1, 100.0)[:24], rtol=0.1)
    assert week_ahead(np.zeros((3, WEEK_H))).tolist() == [0.0] * WEEK_H
    assert week_ahead(np.full((3, WEEK_H), np.nan)).tolist() == [0.0] * WEEK_H


def test_less_than_three_weeks_are_too_few() -> None:
    assert forecast(MONDAY_S, {"alarms": true_rates(3, 5.0)[1:]}) is None
    assert forecast(MONDAY_S, {}) is None
    assert forecast(MONDAY_S, {"alarms": true_rates(3, 5.0)}) is not None


def test_the_command_forecasts_from_the_tables_of_the_last_run(tmp_path: Path) -> None:
    output = OutputDirectory(tmp_path)
    run = output.begin()
    rows = [
        {"hour_s": MONDAY_S + hour * HOUR_S, "topic": topic, "messages": int(3_600 * rate), "seconds": 3_600}
        for topic, mean in (("tolls/1", 300.0), ("tolls/2", 100.0), ("alarms/1", 40.0))
        for hour, rate in enumerate(true_rates(3, mean))
    ]
    (run.tables / "load_hours").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), run.tables / "load_hours" / f"{MONDAY_S}-0001-0.parquet")
    output.complete(run)
    assert hourly_rates(run, 2)[1].keys() == {"tolls/1", "tolls/2", "alarms/1"}
    done = subprocess.run(pipeline("forecast", "--out", str(tmp_path), "--json"), capture_output=True, check=True)
    told = json.loads(done.stdout)
    assert [item["item"] for item in told["items"]] == ["tolls", "alarms"]
    tolls = ItemPeak(**told["items"][0])
    assert tolls.peak == pytest.approx(400.0, rel=0.02)
    assert tolls.last_week == pytest.approx(400.0)
    assert daily(np.array([tolls.hour_s]))[0] == 1.0
    none = subprocess.run(
        pipeline("forecast", "--out", str(tmp_path / "none")), capture_output=True, text=True, check=False
    )
    assert (none.returncode, "no completed run" in none.stderr) == (1, True)
    shown = subprocess.run(pipeline("forecast", "--out", str(tmp_path)), capture_output=True, check=True, text=True)
    assert "backtest of 2 peaks in 3 weeks" in shown.stdout
