"""What a broker can carry is measured: the highest rate at which messages did not stay in it too long."""

import json
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from overlane.pipeline.analysis import capacity
from overlane.pipeline.plans import case_base
from overlane.pipeline.schemas import INGESTED, TABLES
from overlane.pipeline.settings import DomainPlacement
from overlane.pipeline.units import SECOND_NS, WINDOW_S
from sparks import PARTS, the_spark

START_S = 1_767_571_200
LINK_NS = 20_000_000
BUDGET_MS = 10.0
SEEDS = (7, 23, 91)
RATES = [20.0, 200.0, 1_000.0, 2_000.0, 4_000.0]


def frame(schema: Any, rows: list[dict[str, Any]]) -> Any:
    return the_spark().createDataFrame([tuple(row.get(name) for name in schema.fieldNames()) for row in rows], schema)


def telemetry(broker: str, stays_ms: list[float], luck: Random) -> tuple[list[Any], list[Any], list[Any]]:
    """A window for each rate, in which messages of the broker to `z` stay so long in it, half as much or up to this."""
    deliveries, minutes, windows = [], [], []
    for number, (rate, stay_ms) in enumerate(zip(RATES, stays_ms, strict=False)):
        window_s = START_S + number * WINDOW_S
        messages = int(rate * WINDOW_S)
        split = luck.randrange(messages)
        windows += [
            {"window_s": window_s, "broker": broker, "topic": topic, "messages_in": own, "messages_overlay": other}
            for topic, own, other in (("x", split, 0), ("y", 0, messages - split))
        ]
        minutes.append(
            {"broker": broker, "peer": "z", "minute_s": window_s, "latency_ns": float(LINK_NS), "queue_bytes": 100.0}
        )
        for _ in range(60):
            age_ns = LINK_NS + int(stay_ms * 1e6 * luck.uniform(0.5, 1.0))
            at_ns = (window_s + luck.randrange(WINDOW_S)) * SECOND_NS
            deliveries.append({"at_ns": at_ns, "age_ns": age_ns, "path": [broker, "z"], "weight": 5})
    return deliveries, minutes, windows


@pytest.mark.slow
@PARTS
@pytest.mark.parametrize("seed", SEEDS)
def test_capacity_is_the_highest_rate_within_the_budget(seed: int) -> None:
    luck = Random(seed)
    tables: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    for broker, stays_ms in (
        ("limited", [1.0, 2.0, 6.0, 30.0, 300.0]),
        ("idle", [1.0, 1.0]),
        ("was-slow-once", [80.0, 2.0, 3.0]),
        ("always-slow", [50.0, 60.0]),
    ):
        for table, some in zip(tables, telemetry(broker, stays_ms, luck), strict=True):
            table += some
    unknown = {"at_ns": START_S * SECOND_NS, "age_ns": 10**12, "path": ["limited", "nowhere", "z"], "weight": 10_000}
    schemas = (INGESTED["deliveries"], TABLES["link_minutes"], TABLES["load_windows"])
    rows = ([*tables[0], unknown], *tables[1:])
    bins = capacity.residence_bins(*(frame(*pair) for pair in zip(schemas, rows, strict=True)))
    assert bins.schema == TABLES["residence_bins"]
    found = {row["broker"]: row for row in capacity.capacity(bins, BUDGET_MS).collect()}
    assert set(found) == {"limited", "idle", "was-slow-once"}
    expected = {"limited": (1_000.0, 2_000.0, 6.0), "idle": (200.0, None, 1.0), "was-slow-once": (1_000.0, None, 3.0)}
    for broker, (rate, exceeded, p99_ms) in expected.items():
        row = found[broker]
        assert row["messages_per_second"] == pytest.approx(rate, rel=0.11), broker
        assert row["p99_ms"] == pytest.approx(p99_ms, rel=0.15), broker
        assert row["deliveries"] == 300
        assert (row["exceeded_at"] is None) == (exceeded is None), broker
        if exceeded is not None:
            assert row["exceeded_at"] == pytest.approx(exceeded, rel=0.11)


def planned(placement: DomainPlacement, within: dict[str, float], exceeded: list[str]) -> tuple[Any, Any]:
    """The capacities that are planned with, and the primary of each item."""
    means = {"i0/#": 300.0, "i1/#": 200.0, "i2/#": 100.0}
    rows = [
        {
            "number": number,
            "item": item,
            "topics": 1,
            "mean": mean,
            "covariances": [float(100 * (number == other)) for other in range(len(means))],
            "brokers": ["a", "b", "c"],
        }
        for number, (item, mean) in enumerate(means.items())
    ]
    given = pa.Table.from_pylist(rows)
    for name, value, kind in (
        ("within", list(within.items()), pa.map_(pa.string(), pa.float64())),
        ("exceeded", exceeded, pa.list_(pa.string())),
    ):
        given = given.append_column(name, pa.array([value] * len(rows), kind))
    text = case_base._problem(None, placement)(given).to_pylist()[0]["problem"]
    plan = case_base._plan(text)
    assert plan is not None
    names = [broker.name for broker in plan.problem.brokers]
    return (
        {one["name"]: one["capacity"] for one in json.loads(text)["brokers"]},
        {item.name: names[place] for item, place in zip(plan.problem.items, plan.primary.tolist(), strict=True)},
    )


def test_a_broker_that_exceeded_its_budget_is_planned_for_less_and_gets_less() -> None:
    guessed, before = planned(DomainPlacement(), {}, [])
    assert len(set(guessed.values())) == 1
    weak = before["i0/#"]
    idle, strong = sorted({"a", "b", "c"} - {weak})
    measured, after = planned(DomainPlacement(), {weak: 120.0, idle: 50.0, strong: 5_000.0}, [weak])
    assert measured == {weak: 120.0, idle: guessed[idle], strong: 5_000.0}, "it may carry more than it had to"
    load = {"i0/#": 300.0, "i1/#": 200.0, "i2/#": 100.0}
    assert sum(load[item] for item, broker in after.items() if broker == weak) <= 120.0


def test_a_capacity_that_the_network_file_states_stays() -> None:
    items = tuple((f"i{number}/#", f"i{number}/#") for number in range(3))
    stated = DomainPlacement(items, capacities=(("a", 800.0), ("b", 900.0), ("c", 900.0)), unstated=("b", "c"))
    found, _ = planned(stated, {"a": 100.0, "b": 400.0, "c": 950.0}, ["a", "b"])
    assert found == {"a": 800.0, "b": 400.0, "c": 950.0}
