"""The commands around a run: a lake of known truth, measured histories, and whether all tables could be made."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from overlane.pipeline.schemas import TABLES
from sparks import PARTS, need_java, pipeline, unmarked

pytestmark = [PARTS, pytest.mark.slow]


def told(*words: str) -> str:
    done = subprocess.run(pipeline(*words), check=False, capture_output=True, text=True, env=unmarked(), timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def sampled(lake: Path, seed: int) -> None:
    told("sample", "--lake", str(lake), "--brokers", "3", "--topics", "5", "--days", "0.05", "--seed", str(seed))


def rates(lake: Path) -> list[object]:
    files = sorted((lake / "topic_rates").rglob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def test_a_sample_is_the_same_for_the_same_seed_and_tells_its_truth(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("same", 1), ("other", 2)):
        sampled(tmp_path / name, seed)
    assert rates(tmp_path / "one") == rates(tmp_path / "same") != rates(tmp_path / "other")
    assert json.loads((tmp_path / "one" / "truth.json").read_text())


def test_a_measured_history_becomes_telemetry_of_links(tmp_path: Path) -> None:
    np.savez(tmp_path / "rtt.npz", rtt=np.full((4, 3, 3), 0.02))
    told("import-rtt", str(tmp_path / "rtt.npz"), "--lake", str(tmp_path / "lake"))
    files = (tmp_path / "lake" / "links").rglob("*.parquet")
    pairs = {(row["broker"], row["peer"]) for file in files for row in pq.read_table(file).to_pylist()}
    nodes = ("node-00", "node-01", "node-02")
    assert pairs == {(one, other) for one in nodes for other in nodes if one != other}


def test_a_dry_run_names_all_tables_and_writes_nothing(tmp_path: Path) -> None:
    need_java()
    sampled(tmp_path / "lake", 1)
    before = sorted(tmp_path.rglob("*"))
    named = json.loads(told("dry-run", "--lake", str(tmp_path / "lake"), "--master", "local[2]", "--json"))
    assert set(TABLES) <= set(named)
    assert sorted(tmp_path.rglob("*")) == before
