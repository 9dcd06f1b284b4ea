"""Five brokers under faults lose, repeat and reorder nothing; and brokers that do are found out.

`python bench/torture.py --only overlay --seeds 20 --seconds 60` does the same for longer.
"""

import json
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from cluster import CITIES
from nemesis import plan

SCRIPT = Path(__file__).parents[2] / "bench" / "torture.py"
SEED = 20_261
SECONDS = 20


def torture(*options: str) -> tuple[int, Any, str]:
    """The status, the outcome of the only seed, and what was said."""
    command = [sys.executable, str(SCRIPT), "--only", "overlay", "--json", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ended.stdout, ended.stderr
    (outcome,) = json.loads(ended.stdout)["results"]
    assert "violations" in outcome, outcome
    return ended.returncode, outcome, ended.stderr


@pytest.mark.slow
def test_nothing_is_lost_repeated_or_reordered_under_faults() -> None:
    print("seed", SEED)
    status, outcome, said = torture("--seconds", str(SECONDS), "--seed", str(SEED), "--verbose")
    assert outcome["violations"] == {}, said
    assert status == 0
    assert outcome["verdict"]["acknowledged"] > 200, said
    assert sum(outcome["faults"].values()) >= 4, said


def seed_that_kills(broker: str, seconds: float) -> int:
    """In the middle of the run, and no other broker."""
    for seed in count():
        faults = plan(seed, seconds, list(CITIES), [], [], ("kill",))
        if [(one.target, seconds / 3 < one.at_s < seconds * 2 / 3) for one in faults] == [(broker, True)]:
            return seed
    raise AssertionError


@pytest.mark.slow
def test_broken_brokers_are_found_out() -> None:
    """Each has a defect of its own. The one that acknowledges early is killed while messages come."""
    defects = {"seattle": "drop", "losangeles": "twice", "denver": "swap", "washington": "noisy", "orlando": "early"}
    told = ",".join(f"{name}={defect}" for name, defect in defects.items())
    when = ("--seconds", "15", "--seed", str(seed_that_kills("orlando", 15.0)), "--faults", "kill", "--settle", "3")
    status, outcome, said = torture(*when, "--rate", "8", "--sabotage", told, "--verbose")
    assert status == 1
    violations = outcome["violations"]

    def are_at(kind: str, place: str) -> bool:
        return any(f"main-{place} " in one for one in violations.get(kind, ()))

    assert are_at("lost", "seattle"), said
    assert are_at("duplicated", "losangeles"), said
    assert are_at("reordered", "denver"), said
    assert any(one.startswith("washington: RuntimeError") for one in violations["tracebacks"]), said
    assert any(are_at(kind, "orlando") for kind in ("lost", "duplicated", "reordered")), said


@pytest.mark.slow
def test_a_broker_that_serves_nobody_and_says_that_it_is_ready_is_found_out() -> None:
    status, outcome, said = torture("--seconds", "18", "--faults", "none", "--settle", "3", "--sabotage", "denver=deaf")
    assert status == 1
    assert any(one.startswith("denver") for one in outcome["violations"]["dishonest"]), said
