"""Histories of round trips: what was measured elsewhere as telemetry of links."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from sparks import GROUP, the_spark

from overlane.errors import ConfigError
from overlane.pipeline.intervals import intervals, link_minutes
from overlane.pipeline.rtt import import_rtt
from overlane.pipeline.schemas import LANDED, TABLES
from overlane.telemetry.schema import SCHEMAS

START_S = 1_767_571_200
SLICE_S = 900


def history(path: Path, rtt: Any) -> Path:
    np.savez(path / "rtt.npz", rtt=rtt)
    return path / "rtt.npz"


def three_nodes() -> Any:
    """Six slices of three nodes: 0 and 1 lose each other in the third and fourth; nobody was there in the last."""
    rtt = np.zeros((6, 3, 3), dtype=np.float32)
    rtt[:5, 0, 1] = rtt[:5, 1, 0] = 0.02
    rtt[2:4, 0, 1] = rtt[2:4, 1, 0] = 0
    rtt[:5, 1, 2] = 0.1
    return rtt


def test_every_pair_that_ever_answered_is_a_link(tmp_path: Path) -> None:
    assert import_rtt(history(tmp_path, three_nodes()), tmp_path / "lake", SLICE_S, START_S) == 15
    files = sorted((tmp_path / "lake" / "links").rglob("*.parquet"))
    assert [str(file.relative_to(tmp_path / "lake")) for file in files] == [
        "links/date=2026-01-05/node-00-1-1.parquet",
        "links/date=2026-01-05/node-01-1-1.parquet",
    ]
    rows = pq.read_table(files[0]).to_pylist()
    assert [(row["at_ns"] // 10**9 - START_S, row["peer"], row["state"], row["latency_ns"]) for row in rows] == [
        (900, "node-01", "up", 9_999_999),
        (1800, "node-01", "up", 9_999_999),
        (2700, "node-01", "failed", None),
        (3600, "node-01", "failed", None),
        (4500, "node-01", "up", 9_999_999),
    ]
    assert pq.read_schema(files[0]).equals(SCHEMAS["links"])


@GROUP
def test_a_slice_without_an_answer_is_down_for_as_long_as_a_slice(tmp_path: Path) -> None:
    spark = the_spark()
    import_rtt(history(tmp_path, three_nodes()), tmp_path / "lake", SLICE_S, START_S)
    minutes = link_minutes(spark.read.parquet(str(tmp_path / "lake" / "links")))
    nothing = spark.createDataFrame([], TABLES["alive"]), spark.createDataFrame([], LANDED["events"])
    found = intervals(nothing[0], minutes, nothing[1]).where("broker = 'node-00'").collect()
    spans = [(row.state, row.start_ns // 10**9 - START_S, row.end_ns // 10**9 - START_S) for row in found]
    assert sorted(spans, key=lambda span: span[1]) == [("up", 0, 1800), ("down", 1800, 3600), ("up", 3600, 4500)]


@pytest.mark.parametrize(
    "rtt", [np.zeros((3, 3)), np.zeros((2, 3, 4)), -np.ones((1, 2, 2)), np.full((1, 2, 2), np.nan)]
)
def test_what_is_no_history_is_refused_with_the_file_and_what_is_allowed(tmp_path: Path, rtt: Any) -> None:
    with pytest.raises(ConfigError, match=r"rtt\.npz: rtt: found an array of shape"):
        import_rtt(history(tmp_path, rtt), tmp_path / "lake")


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"no")
    for name in ("x.npz", "missing.npz"):
        with pytest.raises(ConfigError, match="slices x nodes x nodes"):
            import_rtt(tmp_path / name, tmp_path / "lake")
