"""`overlane plan admit`: what is read, what is printed, how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from overlane.cli.main import app

EXAMPLE = Path(__file__).parents[2] / "examples" / "plan" / "admit.json"


def admit(problem: dict[str, Any], tmp_path: Path, *options: str) -> Any:
    file = tmp_path / "problem.json"
    file.write_text(json.dumps(problem))
    return CliRunner().invoke(app, ["plan", "admit", str(file), *options])


def test_the_example_takes_the_paths_that_the_document_tells() -> None:
    result = CliRunner().invoke(app, ["plan", "admit", str(EXAMPLE), "--json"])
    assert result.exit_code == 0
    video, alarms, denver, late = json.loads(result.stdout)["subscribers"]
    assert video["path"] == alarms["path"] == ["seattle", "denver", "washington"]
    assert denver["path"] == ["denver", "seattle", "los-angeles", "washington"]
    assert alarms["delay_bound_s"] <= 0.06
    assert round(alarms["rate"]) == 108_696
    assert not late["admitted"]
    assert round(late["nearest_latency_s"], 4) == 0.0267


def test_a_refusal_names_the_bottleneck_and_what_is_left(tmp_path: Path) -> None:
    profile = {"topic": "t", "size": 100, "rate_avg": 50, "rate_max": 50}
    problem = {
        "links": [{"ends": ["a", "b"], "rate": 5000, "latency_s": 0.01}],
        "publishers": [{"broker": "a", **profile}],
        "subscribers": [{"broker": "b", **profile}],
    }
    result = admit(problem, tmp_path)
    assert result.exit_code == 0
    words = " ".join(result.stdout.replace("│", " ").split())
    assert "a > b" in words
    decision = json.loads(admit(problem, tmp_path, "--json").stdout)["subscribers"][0]
    assert (decision["bottleneck"], decision["nearest_rate"]) == (["a", "b"], 4000.0)


def test_the_messages_are_written_for_wireshark(tmp_path: Path) -> None:
    file = tmp_path / "reservations.pcap"
    result = CliRunner().invoke(app, ["plan", "admit", str(EXAMPLE), "--pcap", str(file)])
    assert result.exit_code == 0
    assert file.read_bytes().startswith(bytes.fromhex("a1b23c4d"))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"links": []}, "links: got 0 brokers"),
        ({"share": 2}, "share: got 2"),
        ({"links": [{"ends": ["a", "a"], "rate": 1, "latency_s": 0}]}, "links[0].ends"),
        ({"links": [{"ends": ["a", "b"], "rate": -1, "latency_s": 0}]}, "links[0].rate"),
        ({"publishers": [{"broker": "x", "topic": "t", "size": 1, "rate_avg": 1}]}, "publishers[0].broker: got 'x'"),
        ({"subscribers": [{"broker": "seattle", "topic": "t", "size": 1}]}, "subscribers[0].rate_avg"),
        ({"subscribers": [{"broker": "seattle", "topic": "t", "style": "XX"}]}, "$.subscribers[0].style"),
    ],
)
def test_a_bad_problem_is_refused_by_field(change: dict[str, Any], named: str, tmp_path: Path) -> None:
    result = admit({**json.loads(EXAMPLE.read_text()), **change}, tmp_path)
    assert result.exit_code == 2
    assert named in result.output
