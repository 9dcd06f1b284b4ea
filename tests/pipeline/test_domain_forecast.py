"""From the network file and the tables of a run to the plan of a domain, and to agents that follow it."""

import json
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import msgspec
import pyarrow as pa
import pytest

from overlane.cli.pipeline.placement import placement_of, read_placement
from overlane.core.units import SECOND
from overlane.errors import ConfigError
from overlane.items.plans import domain_plan
from overlane.items.policy import Place
from overlane.network.plan import Plan, read_plan
from overlane.network.reading import read_network
from overlane.network.schema import Item, Placement
from overlane.pipeline.plans import case_base, domain_forecast
from overlane.pipeline.settings import DomainPlacement
from overlane.planning.case_base import failure_cases, solve_case
from overlane.sim.items.domain import SimulatedDomain

HIGHWAY = Path(__file__).parents[2] / "examples" / "highway.toml"
BROKERS = ["a", "b", "c", "d"]
ITEMS = [Item(name=f"i{number}", topics=(f"i{number}/#",), critical=number == 0) for number in range(6)]
MEANS = [100.0, 110.0, 120.0, 130.0, 140.0, 150.0]
PLACEMENT = DomainPlacement(
    filters=tuple((item.topics[0], item.name) for item in ITEMS),
    critical=("i0",),
    capacities=tuple((name, 500.0) for name in BROKERS),
    risk_max=0.03,
)


def problem(placement: DomainPlacement = PLACEMENT, capacity: float | None = None) -> dict[str, Any]:
    """Of rates of six items of the file, and of topics that belong to none, between them in the order of numbers."""
    names = ["i0", "i1", "i2", "i2x/#", "i3", "i4", "i5"]
    means = [*MEANS[:3], 9_000.0, *MEANS[3:]]
    rows = [
        {
            "number": number,
            "item": name,
            "topics": 2,
            "mean": means[number],
            "covariances": [900.0 if number == other else 10.0 * (number + other) for other in range(len(names))],
            "brokers": ["a", "b", "elsewhere"],
        }
        for number, name in enumerate(names)
    ]
    made = case_base._problem(capacity, placement)(pa.Table.from_pylist(rows)).to_pylist()
    assert len(made) == 1
    found: dict[str, Any] = json.loads(made[0]["problem"])
    return found


def tables(text: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of normal_plan and case_base, as they are read from Parquet."""
    plan = case_base._plan(text)
    assert plan is not None
    names = [broker.name for broker in plan.problem.brokers]
    places = [
        {"item": item.name, "primary": names[primary], "mirror": names[mirror]}
        for item, primary, mirror in zip(plan.problem.items, plan.primary.tolist(), plan.mirror.tolist(), strict=True)
    ]
    states = []
    for number, case in enumerate(failure_cases(plan)):
        found = solve_case(plan, case)
        maps = {name: list(getattr(found, name).items()) for name in ("primary", "mirror", "risk")}
        states.append({"state": number, "failed": list(found.failed), "status": found.status, **maps})
    return places, states


def test_the_network_file_says_what_is_placed_where() -> None:
    domain, placement = read_placement(HIGHWAY, None)
    assert domain == "west"
    assert placement == placement_of(read_network(HIGHWAY), "west")
    assert set(placement.filters) == {
        ("tolls/#", "tolls"),
        ("sensors/north/#", "sensors-north"),
        ("sensors/south/#", "sensors-south"),
        ("signs/#", "signs"),
    }
    assert placement.critical == ("tolls",)
    assert placement.capacities == tuple((f"west-{number}", 5000.0) for number in (1, 2, 3, 4))
    assert placement.risk_max == 0.02


def test_a_domain_that_the_file_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"east.*west"):
        read_placement(HIGHWAY, "east")


def test_a_file_without_items_is_refused(tmp_path: Path) -> None:
    lines = HIGHWAY.read_text().split("[items.tolls]")[0], HIGHWAY.read_text().split("[brokers.west-1]")[1]
    file = tmp_path / "network.toml"
    file.write_text("[brokers.west-1]".join(lines))
    with pytest.raises(ConfigError, match="items"):
        read_placement(file, None)


def test_only_items_of_the_file_are_placed_and_on_brokers_of_their_domain_alone() -> None:
    found = problem()
    assert [(one["name"], one["mean"]) for one in found["items"]] == list(
        zip([i.name for i in ITEMS], MEANS, strict=True)
    )
    assert [one["name"] for one in found["items"] if one.get("critical")] == ["i0"]
    assert found["covariance"][2] == [20.0, 30.0, 900.0, 60.0, 70.0, 80.0], "the row and column of i2x are left out"
    assert found["brokers"] == [{"name": name, "capacity": 500.0} for name in BROKERS]
    assert found["risk_max"] == 0.03
    assert {one["capacity"] for one in problem(capacity=700.0)["brokers"]} == {700.0}


def test_without_a_network_file_everything_is_placed_on_the_brokers_of_the_lake() -> None:
    found = problem(DomainPlacement())
    assert len(found["items"]) == len(found["covariance"]) == 7
    assert [one["name"] for one in found["brokers"]] == ["a", "b", "elsewhere"]


def test_agents_follow_the_plan_and_its_case_base_state_by_state() -> None:
    text = json.dumps(problem())
    places, states = tables(text)
    forecast = domain_forecast.domain_forecast(text, places, states)
    assert forecast is not None
    plan = read_plan(msgspec.json.encode(Plan(made_ns=1, version=5, domains={"west": forecast})))
    followed = domain_plan(plan.domains["west"], plan.version, {item.name: item.critical for item in ITEMS})
    normal = {row["item"]: Place(row["primary"], row["mirror"]) for row in places}
    assert followed.places == normal
    assert followed.risk_max == 0.03

    domain = SimulatedDomain(Random(3), BROKERS, ITEMS, Placement(capacity=500.0, risk_max=0.03))
    domain.run(8 * SECOND)
    for broker in domain.brokers.values():
        broker.agent.offer(followed, domain.engine.now)
    domain.run(10 * SECOND)
    assert domain.policy is not None
    assert domain.policy.places == normal
    victim = next(name for name in BROKERS if name not in domain.masters())
    domain.brokers[victim].kill()
    domain.run(10 * SECOND)
    planned = next(dict(row["primary"]) for row in states if row["failed"] == [victim])
    assert {item: place.primary for item, place in domain.policy.places.items()} == planned


def test_a_case_base_that_is_too_large_loses_the_states_with_the_most_failures() -> None:
    text = json.dumps(problem())
    places, states = tables(text)
    whole = domain_forecast.domain_forecast(text, places, states)
    assert whole is not None
    assert max(len(state.failed) for state in whole.states) == 2
    with mock.patch.object(domain_forecast, "BYTES_MAX", len(msgspec.json.encode(whole)) - 1):
        less = domain_forecast.domain_forecast(text, places, states)
    assert less == msgspec.structs.replace(whole, states=tuple(one for one in whole.states if len(one.failed) < 2))


def test_a_problem_without_a_solution_is_left_to_the_agents() -> None:
    assert domain_forecast.domain_forecast(json.dumps(problem()), [], []) is None
