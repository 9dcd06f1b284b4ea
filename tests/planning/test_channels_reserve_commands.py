"""`overlane plan channels` and `overlane plan reserve`: what is read, what is printed, how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from overlane.cli.main import app

EXAMPLES = Path(__file__).parents[2] / "examples" / "plan"
PERIODIC = {"size": 1000, "period_s": 0.1}
PATH = {"c_tot_bytes": 3000, "d_tot_s": 0.02}
ONE = {"name": "a", "rate_bps": 10, "subscribers": ["A"]}


def plan(command: str, problem: object, *options: str) -> Result:
    return CliRunner().invoke(app, ["plan", command, "-", *options], input=json.dumps(problem))


def test_channels_prints_the_fields_of_its_answer() -> None:
    result = CliRunner().invoke(app, ["plan", "channels", str(EXAMPLES / "channels.json"), "--json"])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    first = ["channels", "unicast", "cost_bps", "waste_bps", "bound_bps", "status"]
    assert list(found)[:6] == first
    assert {name: found[name] for name in first[2:]} == {
        "cost_bps": 1040,
        "waste_bps": 0,
        "bound_bps": 1040,
        "status": "optimal",
    }
    assert found["channels"] == [
        {"members": ["A"], "advertisements": ["a", "c"]},
        {"members": ["D", "E"], "advertisements": ["a", "e", "g"]},
    ]
    assert ["c", "E"] in found["unicast"]


def test_reserve_prints_the_fields_of_its_answer() -> None:
    result = CliRunner().invoke(app, ["plan", "reserve", str(EXAMPLES / "reserve.json"), "--json"])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert list(found)[:3] == ["class", "tspec", "rspec"]
    assert found["class"] == "guaranteed"
    assert found["tspec"] == {"r": 50000, "b": 20000, "p": 200000, "m": 200, "M": 1000}
    assert found["rspec"] == {"R": pytest.approx(118918.9189), "S": 0.01}


@pytest.mark.parametrize("command", ["channels", "reserve"])
def test_without_json_a_table_is_printed(command: str) -> None:
    result = CliRunner().invoke(app, ["plan", command, str(EXAMPLES / f"{command}.json")])
    assert result.exit_code == 0
    assert "│" in result.stdout


def test_nothing_to_map_and_nothing_to_reserve_are_answers_too() -> None:
    assert json.loads(plan("channels", {"advertisements": [], "channels": 3}, "--json").stdout)["cost_bps"] == 0
    assert plan("channels", {"advertisements": [], "channels": 3}).exit_code == 0
    nothing = plan("reserve", {"publisher": None, "subscriber": None, "path": PATH}, "--json")
    assert json.loads(nothing.stdout)["class"] == "best-effort"
    assert plan("reserve", {"publisher": None, "subscriber": None}).exit_code == 0


@pytest.mark.parametrize(
    ("problem", "named"),
    [
        ({"advertisements": [{**ONE, "rate_bps": -1}], "channels": 1}, "advertisements[0].rate_bps"),
        ({"advertisements": [ONE, ONE], "channels": 1}, "advertisements[1].name"),
        ({"advertisements": [{**ONE, "colour": 1}], "channels": 1}, "colour"),
        ({"advertisements": [ONE], "channels": -1}, "channels"),
        ({"advertisements": [ONE], "channels": 1.5}, "channels"),
        ({"advertisements": [ONE]}, "channels"),
        ({"advertisements": [ONE], "channels": 1, "unicast_weight": -1}, "unicast_weight"),
        ({"advertisements": [ONE], "channels": 1, "time_limit_s": 0}, "time_limit_s"),
        ([], "object"),
    ],
)
def test_a_bad_channels_problem_is_refused_by_field(problem: object, named: str) -> None:
    result = plan("channels", problem)
    assert (result.exit_code, result.stdout) == (2, "")
    assert named in result.stderr


@pytest.mark.parametrize(
    ("problem", "named"),
    [
        ({"publisher": None, "subscriber": PERIODIC, "path": PATH}, "subscriber QoS without publisher QoS"),
        ({"publisher": PERIODIC, "subscriber": {"latency_s": 1}, "path": PATH}, "latency without size and rate"),
        ({"publisher": {**PERIODIC, "latency_s": 1}, "subscriber": None, "path": PATH}, "latency_s"),
        ({"publisher": {"size": -5, "period_s": 1}, "subscriber": None, "path": PATH}, "publisher.size"),
        ({"publisher": PERIODIC, "subscriber": {**PERIODIC, "latency_s": 1}}, "path"),
        ({"publisher": PERIODIC, "subscriber": None, "path": {"c_tot_bytes": 1}}, "d_tot_s"),
    ],
)
def test_a_bad_reserve_problem_is_refused_by_field(problem: dict[str, Any], named: str) -> None:
    result = plan("reserve", problem)
    assert (result.exit_code, result.stdout) == (2, "")
    assert named in result.stderr


def test_a_latency_out_of_reach_ends_with_the_nearest_answer() -> None:
    problem = {"publisher": PERIODIC, "subscriber": {**PERIODIC, "latency_s": 0.01}, "path": PATH, "slack_s": 0.01}
    result = plan("reserve", problem, "--json")
    assert result.exit_code == 3
    assert "the least latency that could be had is just over 0.03 s" in result.stderr
    assert json.loads(result.stdout)["nearest"]["latency_s"] == 0.03
