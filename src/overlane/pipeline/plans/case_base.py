"""The case base: a policy for every failure state, solved in parallel.

Items, their covariance and the observed brokers form an allocation problem. One task plans the normal state. Failure
states depend only on that plan, so they are solved in parallel tasks. The solver is deterministic: the same telemetry
gives the same case base on any cluster.

The capacity of a broker is given, as an option or in the network file. Otherwise it is assumed to carry twice its share
of the peak load (mean plus three standard deviations), and at least twice the largest item, or what the network file
has as the default of all brokers. Measurement corrects the assumption (`analysis.capacity`): down to the highest rate
within the budget if a higher one exceeded it, and up to this rate in any case. Where the network file has items, these
alone are placed, on the brokers of their domain.
"""

import json
import math
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from overlane.pipeline.analysis.grouping import map_all
from overlane.pipeline.columns import columns, declare
from overlane.pipeline.schemas import TABLES
from overlane.pipeline.settings import DomainPlacement
from overlane.planning.allocation import BrokerCapacity, Item, Problem
from overlane.planning.case_base import Case, NormalPlan, failure_cases, normal_plan, solve_case
from overlane.planning.problem import BadProblem, NoSolution

ITEMS_MAX = 400
"""More than so many items are not planned for by the pipeline: `overlane plan` can be given more time."""
SPARE = 2.0
DEVIATIONS = 3.0

_ITEMS = columns(
    "number int, item string, topics bigint, mean double, covariances array<double>, brokers array<string>, "
    "within map<string,double>, exceeded array<string>"
)
_PLANNED = columns("problem string, primary map<string,string>, mirror map<string,string>")
_STATES = columns("state int, failed array<string>, plan binary")


def planning_problem(
    items: DataFrame,
    covariance: DataFrame,
    lives: DataFrame,
    measured: DataFrame,
    capacity: float | None,
    placement: DomainPlacement,
) -> DataFrame:
    """The problem as `overlane plan allocate` and `casebase` read it, in one row; none where nothing was published."""
    brokers = lives.agg(sf.array_sort(sf.collect_set("broker")).alias("brokers"))
    rates = measured.agg(
        sf.map_from_entries(sf.collect_list(sf.struct("broker", "messages_per_second"))).alias("within"),
        sf.collect_list(sf.when(sf.col("exceeded_at").isNotNull(), sf.col("broker"))).alias("exceeded"),
    )
    rows = (
        items.join(covariance.select("number", "covariances"), "number")
        .crossJoin(sf.broadcast(brokers))
        .crossJoin(sf.broadcast(rates))
    )
    return map_all(rows, _ITEMS, _problem(capacity, placement), TABLES["planning_problem"])


def _problem(capacity: float | None, placement: DomainPlacement) -> Callable[[Any], Any]:
    own, critical = dict(placement.capacities), frozenset(placement.critical)
    placed = frozenset(item for _, item in placement.filters)

    def state(rows: Any) -> Any:
        every = sorted(rows.to_pylist(), key=lambda row: row["number"])
        items = [row for row in every if row["item"] in placed] if placed else every
        if not items:
            return pa.table({"problem": pa.array([], pa.string())})
        numbers = [row["number"] for row in items]
        covariance = [[row["covariances"][number] for number in numbers] for row in items]
        brokers = sorted(own) or items[0]["brokers"]
        default = _guessed(items, covariance, len(brokers)) if capacity is None else capacity
        assumed = {name: own.get(name, default) for name in brokers}
        open_to_measurement = [name for name in brokers if name not in own or name in placement.unstated]
        if capacity is None:
            measured = (dict(items[0].get("within") or ()), items[0].get("exceeded") or [])
            assumed |= {name: _corrected(name, assumed[name], *measured) for name in open_to_measurement}
        else:
            assumed = dict.fromkeys(brokers, capacity)
        problem = {
            "items": [
                {
                    "name": row["item"],
                    "mean": row["mean"],
                    "topics": row["topics"],
                    **({"critical": True} if row["item"] in critical else {}),
                }
                for row in items
            ],
            "covariance": covariance,
            "brokers": [{"name": name, "capacity": assumed[name]} for name in brokers],
            "risk_max": placement.risk_max,
        }
        return pa.table({"problem": [json.dumps(problem)]})

    return state


def _corrected(name: str, assumed: float, within: dict[str, float], exceeded: list[str]) -> float:
    """By the highest rate within the budget, and whether a higher one was not."""
    rate = within.get(name)
    if rate is None:
        return assumed
    return rate if name in exceeded else max(assumed, rate)


def _guessed(items: list[dict[str, Any]], covariance: list[list[float]], brokers: int) -> float:
    def high(mean: float, variance: float) -> float:
        return mean + DEVIATIONS * math.sqrt(max(0.0, variance))

    together = high(sum(row["mean"] for row in items), sum(map(sum, covariance)))
    largest = max(high(row["mean"], covariance[number][number]) for number, row in enumerate(items))
    return max(SPARE * together / brokers, SPARE * largest)


def normal(problem: DataFrame) -> DataFrame:
    """Where each item runs and is mirrored while nothing has failed; empty where there is no such plan."""
    return declare(problem, TABLES["planning_problem"]).mapInArrow(_normal, TABLES["normal_plan"])


def case_base(problem: DataFrame, plan: DataFrame, tasks: int) -> DataFrame:
    """The policy of every failure state, from the plan of the normal one."""
    places = plan.agg(
        sf.map_from_entries(sf.collect_list(sf.struct("item", "primary"))).alias("primary"),
        sf.map_from_entries(sf.collect_list(sf.struct("item", "mirror"))).alias("mirror"),
    ).where("size(primary) > 0")
    states = declare(problem.crossJoin(places), _PLANNED).mapInArrow(_states, _STATES)
    spread = states.repartitionById(tasks, sf.pmod(sf.col("state"), sf.lit(tasks)).cast("int"))
    return declare(spread, _STATES).mapInArrow(_solved, TABLES["case_base"])


def _stated(problem: str) -> Problem:
    given = json.loads(problem)
    items = [
        Item(each["name"], each["mean"], each["topics"], critical=each.get("critical", False))
        for each in given["items"]
    ]
    brokers = [BrokerCapacity(each["name"], each["capacity"]) for each in given["brokers"]]
    return Problem.of(items, given["covariance"], brokers, given["risk_max"])


def _plan(problem: str) -> NormalPlan | None:
    try:
        stated = _stated(problem)
        if len(stated.items) > ITEMS_MAX or len(stated.brokers) < 2:
            return None
        return normal_plan(stated, None)
    except (NoSolution, BadProblem):
        return None


def _normal(batches: Iterator[Any]) -> Iterator[Any]:
    for problem in _texts(batches):
        plan = _plan(problem)
        if plan is not None:
            names = [item.name for item in plan.problem.items]
            brokers = [broker.name for broker in plan.problem.brokers]
            yield pa.RecordBatch.from_pydict(
                {
                    "item": names,
                    "primary": [brokers[place] for place in plan.primary.tolist()],
                    "mirror": [brokers[place] for place in plan.mirror.tolist()],
                }
            )


def _states(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        for row in batch.to_pylist():
            stated = _stated(row["problem"])
            primary = stated.places(dict(row["primary"]), "primary")
            plan = NormalPlan(stated, primary, stated.places(dict(row["mirror"]), "mirror"))
            packed = pickle.dumps(plan)
            for number, case in enumerate(failure_cases(plan)):
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array([number], pa.int32()),
                        pa.array([list(case.failed)], pa.list_(pa.string())),
                        pa.array([packed], pa.binary()),
                    ],
                    names=_STATES.fieldNames(),
                )


def _solved(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        for row in batch.to_pylist():
            found = solve_case(pickle.loads(row["plan"]), Case(failed=tuple(row["failed"])))
            told = {
                "state": row["state"],
                "failed": found.failed,
                "status": found.status,
                "utility": found.utility,
                "next_loss": found.next_loss,
                "promoted": found.promoted,
                "moved": found.moved,
                "primary": list(found.primary.items()),
                "mirror": list(found.mirror.items()),
                "risk": list(found.risk.items()),
            }
            yield pa.RecordBatch.from_pylist([told], schema=_CASES)


_TEXTS = pa.list_(pa.string())
_CASES = pa.schema(
    {
        "state": pa.int32(),
        "failed": _TEXTS,
        "status": pa.string(),
        "utility": pa.float64(),
        "next_loss": pa.float64(),
        "promoted": _TEXTS,
        "moved": _TEXTS,
        "primary": pa.map_(pa.string(), pa.string()),
        "mirror": pa.map_(pa.string(), pa.string()),
        "risk": pa.map_(pa.string(), pa.float64()),
    }
)


def _texts(batches: Iterator[Any]) -> Iterator[str]:
    for batch in batches:
        yield from batch.column("problem").to_pylist()
