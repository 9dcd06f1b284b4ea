"""`overlane plan paths` and `overlane plan graph`: what is read, what is printed, how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from overlane.cli.main import app

EXAMPLES = Path(__file__).parents[2] / "examples" / "plan"

DIAMOND: dict[str, Any] = {
    "brokers": {name: {"failure": 0.1, "processing_ms": 1} for name in "ABCDE"},
    "links": [
        {"ends": ["A", "B"], "latency_ms": 10, "failure": 0.1},
        {"ends": ["B", "D"], "latency_ms": 11.5, "failure": 0.1},
        {"ends": ["A", "C"], "latency_ms": 15, "failure": 0.1},
        {"ends": ["D", "C"], "latency_ms": 16, "failure": 0.1},
    ],
    "source": "A",
    "destination": "D",
    "deadline_ms": 40,
    "paths": 2,
    "search": 8,
}
FAN = {
    **{name: value for name, value in DIAMOND.items() if name != "destination"},
    "destinations": ["D", "B"],
    "deadline_ms": 50,
}


def plan(command: str, problem: object, *options: str) -> Result:
    return CliRunner().invoke(app, ["plan", command, "-", *options], input=json.dumps(problem))


def test_the_paths_answer_has_its_fields_in_milliseconds() -> None:
    done = plan("paths", DIAMOND, "--json")
    assert done.exit_code == 0
    answer = json.loads(done.stdout)
    assert list(answer)[:4] == ["paths", "latency_ms", "resiliency", "exact"]
    assert answer["paths"] == [["A", "B", "D"], ["A", "C", "D"]]
    assert answer["latency_ms"] == [24.5, 34.0]
    assert answer["resiliency"] == pytest.approx(0.9**2 * (1 - (1 - 0.9**3) ** 2), abs=1e-15)
    assert answer["exact"] is True
    assert answer["path_resiliency"] == pytest.approx([0.9**5, 0.9**5], abs=1e-15)


def test_the_graph_answer_has_the_links_and_what_every_destination_gets() -> None:
    done = plan("graph", FAN, "--json")
    assert done.exit_code == 0
    answer = json.loads(done.stdout)
    assert answer["links"] == [["A", "B"], ["A", "C"], ["B", "D"], ["C", "D"], ["D", "B"]]
    assert answer["latency_ms"] == {"B": 12.0, "D": 24.5}
    both = {"B": 0.9**2 * (1 - (1 - 0.9) * (1 - 0.9**5)), "D": 0.9**2 * (1 - (1 - 0.9**3) ** 2)}
    assert answer["resiliency"] == pytest.approx(both, abs=1e-15)
    assert answer["exact"] is True


@pytest.mark.parametrize(("command", "problem"), [("paths", DIAMOND), ("graph", FAN)])
def test_without_json_a_table_is_printed(command: str, problem: object) -> None:
    done = plan(command, problem)
    assert done.exit_code == 0
    assert "A - B - D" in done.stdout
    assert "24.5 ms" in done.stdout


@pytest.mark.parametrize("command", ["paths", "graph"])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_examples_run(command: str, options: list[str]) -> None:
    done = CliRunner().invoke(app, ["plan", command, str(EXAMPLES / f"{command}.json"), *options])
    assert done.exit_code == 0
    assert "washington" in done.stdout


def test_a_deadline_nothing_keeps_ends_with_3_and_the_least_that_could_be_had() -> None:
    done = plan("paths", {**DIAMOND, "deadline_ms": 24.4}, "--json")
    assert done.exit_code == 3
    assert "within 24.4 ms: the quickest, A - B - D, takes 24.5 ms" in done.stderr
    nearest = json.loads(done.stdout)["nearest"]
    assert (nearest["deadline_ms"], nearest["paths"], nearest["latency_ms"]) == (24.5, [["A", "B", "D"]], [24.5])
    again = plan("paths", {**DIAMOND, "deadline_ms": nearest["deadline_ms"]}, "--json")
    assert json.loads(again.stdout)["paths"] == nearest["paths"]


def test_a_destination_no_link_leads_to_ends_with_3_and_what_can_be_reached() -> None:
    done = plan("paths", {**DIAMOND, "destination": "E"}, "--json")
    assert done.exit_code == 3
    assert json.loads(done.stdout) == {
        "missing": "no links lead from A to E",
        "nearest": {"reachable": ["A", "B", "C", "D"]},
    }


def test_a_graph_that_misses_destinations_names_them_and_gives_what_could_be_had() -> None:
    done = plan("graph", {**FAN, "destinations": ["E", "D", "B"], "deadline_ms": 20}, "--json")
    assert done.exit_code == 3
    answer = json.loads(done.stdout)
    missing = "no path from A within 20 ms to D (the quickest takes 24.5 ms), E (no links lead there)"
    assert answer["missing"] == missing
    assert missing in done.stderr
    assert (answer["nearest"]["deadline_ms"], answer["nearest"]["destinations"]) == (24.5, ["B", "D"])
    assert answer["nearest"]["links"] == [["A", "B"], ["B", "D"]]


def link(**changes: object) -> dict[str, object]:
    return {"links": [DIAMOND["links"][0], {**DIAMOND["links"][1], **changes}]}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"source": "Z"}, "source: got 'Z'"),
        ({"destination": "Z"}, "destination: got 'Z'"),
        ({"destination": "A"}, "destination: got 'A'"),
        ({"deadline_ms": -1}, "deadline_ms: got -1"),
        ({"deadline_ms": "soon"}, "$.deadline_ms"),
        ({"paths": 0}, "paths: got 0"),
        ({"paths": 3, "search": 2}, "search: got 2"),
        ({"search": 10**9}, "search: got 1000000000"),
        ({"paths": 1.5}, "$.paths"),
        ({"hops": 3}, "unknown field `hops`"),
        ({"brokers": {"A": {"failure": 1.1}}}, "brokers.A.failure: got 1.1"),
        ({"brokers": {"A": {"processing_ms": -2}}}, "brokers.A.processing_ms: got -2"),
        ({"brokers": {"A": {"speed": 1}}}, "unknown field `speed`"),
        (link(ends=["B", "Z"]), "links[1].ends: got 'Z'"),
        (link(ends=["B", "B"]), "links[1].ends: got 'B' twice"),
        (link(ends=["B", "A"]), "links[1].ends: got a second link"),
        (link(ends=["B"]), "ends"),
        (link(latency_ms=-0.5), "links[1].latency_ms: got -0.5"),
        (link(latency_ms=1e300), "links[1].latency_ms: got 1e+300"),
        (link(failure=-0.1), "links[1].failure: got -0.1"),
        (link(latency="1ms"), "unknown field `latency`"),
    ],
)
def test_a_bad_problem_ends_with_2_and_names_the_field(change: dict[str, object], named: str) -> None:
    done = plan("paths", {**DIAMOND, **change}, "--json")
    assert done.exit_code == 2
    assert named in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("destinations", [[], ["D", "D"], ["A"], ["Z"]])
def test_bad_destinations_end_with_2_and_are_named(destinations: list[str]) -> None:
    done = plan("graph", {**FAN, "destinations": destinations}, "--json")
    assert done.exit_code == 2
    assert "destinations: got" in done.stderr


def test_names_that_look_like_markup_are_printed_as_they_are() -> None:
    problem = {
        "brokers": {"[red]a": {}, "[/b]": {}},
        "links": [{"ends": ["[red]a", "[/b]"], "latency_ms": 1}],
        "source": "[red]a",
        "destination": "[/b]",
        "deadline_ms": 5,
    }
    assert "[red]a - [/b]" in plan("paths", problem).stdout
