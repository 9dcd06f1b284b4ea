"""`overlane plan allocate`, `mirror` and `casebase`: what is read, what is printed, how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from overlane.cli.main import app

EXAMPLES = Path(__file__).parents[2] / "examples" / "plan"
SMALL: dict[str, Any] = {
    "items": [{"name": "i", "mean": 10}, {"name": "j", "mean": 20}],
    "covariance": [[4, 1], [1, 9]],
    "brokers": [{"name": "a", "capacity": 50}, {"name": "b", "capacity": 60}],
}


def plan(command: str, problem: object, *options: str) -> Result:
    return CliRunner().invoke(app, ["plan", command, "-", *options], input=json.dumps(problem))


def example(command: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["plan", command, str(EXAMPLES / f"{command}.json"), "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_allocate_prints_the_fields_of_its_answer() -> None:
    found = example("allocate")
    first = ["status", "primary", "utility", "risk", "bound", "gap", "round_robin", "gain"]
    assert list(found)[:8] == first
    assert list(found["round_robin"]) == ["primary", "utility", "risk"]
    assert (found["status"], found["gap"], found["bound"]) == ("optimal", 0, found["utility"])
    assert found["utility"] > found["round_robin"]["utility"]
    assert set(found["gain"]) == set(found["risk"]) == {"lisbon", "porto", "faro", "braga"}


def test_mirror_prints_the_risk_of_every_broker_in_every_failure() -> None:
    found = example("mirror")
    brokers = {"lisbon", "porto", "faro", "braga"}
    assert {failed: set(risk) for failed, risk in found["risk"].items()} == {name: brokers - {name} for name in brokers}
    assert all(found["mirror"][item] != broker for item, broker in found["primary"].items())
    assert found["worst_loss"] == max(found["loss"].values())


def test_mirror_takes_a_primary_that_is_given() -> None:
    result = plan("mirror", SMALL | {"primary": {"i": "b", "j": "b"}}, "--json")
    assert json.loads(result.stdout)["mirror"] == {"i": "a", "j": "a"}


def test_casebase_prints_a_policy_for_every_state() -> None:
    found = example("casebase")
    assert [len(state["failed"]) for state in found["states"] if not state["off"]] == [0] + [1] * 4 + [2] * 6
    assert [len(state["off"]) for state in found["states"][11:]] == list(range(1, found["off_max"] + 1))


@pytest.mark.parametrize("command", ["allocate", "mirror", "casebase"])
def test_without_json_a_table_is_shown(command: str) -> None:
    result = CliRunner().invoke(app, ["plan", command, str(EXAMPLES / f"{command}.json")])
    assert result.exit_code == 0, result.output
    assert "lisbon" in result.stdout


@pytest.mark.parametrize(
    ("command", "change", "named"),
    [
        ("allocate", {"covariance": [[4, 1], [2, 9]]}, "covariance[0][1]"),
        ("allocate", {"covariance": [[1, 2], [2, 1]]}, "positive semidefinite"),
        ("allocate", {"covariance": [[4, 1]]}, "covariance"),
        ("allocate", {"brokers": [{"name": "a", "capacity": -1}]}, "brokers[0].capacity"),
        ("allocate", {"colour": "red"}, "colour"),
        ("allocate", {"time_limit_s": 0}, "time_limit_s"),
        ("allocate", {"primary": {}}, "primary"),
        ("mirror", {"primary": {"i": "a"}}, "primary.j"),
        ("mirror", {"low_load": 0.5}, "low_load"),
        ("casebase", {"low_load": 2}, "low_load"),
    ],
)
def test_bad_input_ends_with_2_and_names_the_field(command: str, change: dict[str, Any], named: str) -> None:
    result = plan(command, SMALL | change)
    assert result.exit_code == 2
    assert named in result.stderr


@pytest.mark.parametrize("command", ["allocate", "mirror", "casebase"])
def test_no_feasible_answer_ends_with_3_and_tells_the_nearest(command: str) -> None:
    result = plan(
        command, SMALL | {"brokers": [{"name": "a", "capacity": 11}, {"name": "b", "capacity": 21}]}, "--json"
    )
    assert result.exit_code == 3
    told = json.loads(result.stdout)
    assert "no allocation has every risk below 0.02" in told["missing"]
    assert told["nearest"]["primary"] == {"i": "a", "j": "b"}
    assert told["nearest"]["highest_risk"] == pytest.approx(0.3694, abs=1e-4)


def test_a_person_is_shown_the_nearest_allocation_too() -> None:
    result = plan("allocate", SMALL | {"brokers": [{"name": "a", "capacity": 11}, {"name": "b", "capacity": 21}]})
    assert result.exit_code == 3
    assert "Nearest allocation" in result.stderr
