"""From the tables of a run to a plan by which the leader starts routing brokers before the peak."""

from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from overlane.coordination.assignment.load_outlook import AHEAD_S, LoadOutlook
from overlane.network.plan import BadPlan, LoadForecast, Plan, read_plan
from overlane.pipeline.output_directory import Run
from overlane.pipeline.plans.load_forecast import load_forecast
from overlane.pipeline.plans.plan_export import write_plans
from overlane.pipeline.schemas import TABLES
from overlane.pipeline.settings import PipelineSettings

HOUR_S = 3_600
MONDAY = 1_767_571_200
SEEDS = (3, 17, 58)
QUIET, BUSY = 40.0, 160.0
OPENS, CLOSES = 9, 17


def a_run(path: Path, hours: int, seed: int) -> Run:
    """Two topics that are busy from nine to five; of each, hours without messages have no row."""
    rng = np.random.default_rng(seed)
    rows = []
    for hour in range(hours):
        rate = BUSY if OPENS <= hour % 24 < CLOSES else QUIET
        for topic, share in (("a/1", 0.75), ("b/1", 0.25)):
            messages = int(rate * share * HOUR_S * rng.normal(1.0, 0.02))
            told = {"hour_s": MONDAY + hour * HOUR_S, "topic": topic, "messages": messages, "bytes": 0}
            rows.append({**told, "messages_per_second": messages / HOUR_S, "seconds": HOUR_S})
    run = Run(path)
    (run.tables / "load_hours").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), run.tables / "load_hours" / "x.parquet")
    return run


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("hours", [48, 9 * 24 + 5, 4 * 168])
def test_the_next_days_are_expected_as_those_before_and_tell_when_load_grows(
    tmp_path: Path, hours: int, seed: int
) -> None:
    forecast = load_forecast(a_run(tmp_path, hours, seed))
    assert forecast is not None
    assert forecast.start_s == MONDAY + hours * HOUR_S
    expected = [BUSY if OPENS <= (hours + ahead) % 24 < CLOSES else QUIET for ahead in range(168)]
    assert forecast.rates == pytest.approx(expected, rel=0.12)

    plan = read_plan(msgspec.json.encode(Plan(made_ns=forecast.start_s * 10**9, version=1, load=forecast)))
    assert plan.load == forecast
    outlook = LoadOutlook(plan.load.start_s, plan.load.rates)
    opens_s = forecast.start_s + (OPENS - hours) % 24 * HOUR_S + 24 * HOUR_S
    assert outlook.growth(opens_s - AHEAD_S) == pytest.approx(BUSY / QUIET, rel=0.15)
    assert outlook.growth(opens_s - AHEAD_S - 60) < 1.2
    assert outlook.growth(opens_s + HOUR_S) < 1.2


def test_of_less_than_two_days_nothing_is_expected(tmp_path: Path) -> None:
    assert load_forecast(a_run(tmp_path, 47, 1)) is None


@pytest.mark.parametrize(
    "load",
    [LoadForecast(0, (1.0,)), LoadForecast(MONDAY, (-1.0,)), LoadForecast(MONDAY, (1.0,) * 1_000)],
)
def test_a_load_that_cannot_be_is_refused(load: LoadForecast) -> None:
    with pytest.raises(BadPlan, match="load"):
        read_plan(msgspec.json.encode(Plan(made_ns=1, load=load)))


def test_the_plan_of_a_run_has_the_load(tmp_path: Path) -> None:
    run = a_run(tmp_path, 72, 1)
    run.plans.mkdir()
    link = {"kind": "link", "broker": "a", "peer": "b", "failure_planned": None, "latency_ms": 1.0}
    told = {"reliability": [link], "lake_files": [{"first_ns": MONDAY * 10**9, "last_ns": (MONDAY + 9) * 10**9}]}
    for name, schema in TABLES.items():
        if name != "load_hours":
            (run.tables / name).mkdir()
            rows = pa.Table.from_pylist(told.get(name, []), to_arrow_schema(schema))
            pq.write_table(rows, run.tables / name / "0.parquet")
    write_plans(run, PipelineSettings("lake"))
    plan = read_plan((run.plans / "brokers.json").read_bytes())
    assert plan.load == load_forecast(run)
    assert plan.load is not None
