"""Histories of round trips: what was measured elsewhere as telemetry of links."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from overlane.errors import ConfigError
from overlane.pipeline.analysis.intervals import intervals, link_minutes
from overlane.pipeline.analysis.reliability import reliability
from overlane.pipeline.samples.rtt import import_rtt
from overlane.pipeline.schemas import INGESTED, TABLES
from overlane.telemetry.schema import SCHEMAS
from sparks import PARTS, the_spark

START_S = 1_767_571_200
SLICE_S = 900
SLICE_HOUR_S = 3_600
SEATTLE = Path(__file__).parents[2] / "examples" / "data" / "seattle-rtt-12.npz"


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


@PARTS
@pytest.mark.slow
def test_a_slice_without_an_answer_is_down_for_as_long_as_a_slice(tmp_path: Path) -> None:
    spark = the_spark()
    import_rtt(history(tmp_path, three_nodes()), tmp_path / "lake", SLICE_S, START_S)
    minutes = link_minutes(spark.read.parquet(str(tmp_path / "lake" / "links")))
    nothing = spark.createDataFrame([], TABLES["alive"]), spark.createDataFrame([], INGESTED["events"])
    found = intervals(nothing[0], minutes, nothing[1]).where("broker = 'node-00'").collect()
    spans = [(row.state, row.start_ns // 10**9 - START_S, row.end_ns // 10**9 - START_S) for row in found]
    assert sorted(spans, key=lambda span: span[1]) == [("up", 0, 1800), ("down", 1800, 3600), ("up", 3600, 4500)]


@PARTS
@pytest.mark.slow
def test_what_a_real_testbed_measured_becomes_the_reliability_of_its_links(tmp_path: Path) -> None:
    """Of twelve nodes of Seattle all pairs answered in every hour; here two of them are silent in every twentieth."""
    spark = the_spark()
    with np.load(SEATTLE) as arrays:
        rtt = arrays["rtt"].copy()
    slices, nodes, _ = rtt.shape
    assert (slices, nodes) == (688, 12)
    rtt[::20, 0, 1] = rtt[::20, 1, 0] = 0
    silent = len(range(0, slices, 20))
    assert import_rtt(history(tmp_path, rtt), tmp_path / "lake") == slices * nodes * (nodes - 1)
    minutes = link_minutes(spark.read.parquet(str(tmp_path / "lake" / "links"))).persist()
    nothing = spark.createDataFrame([], TABLES["alive"]), spark.createDataFrame([], INGESTED["events"])
    links = {
        (row.broker, row.peer): row
        for row in reliability(intervals(nothing[0], minutes, nothing[1]), minutes).collect()
    }
    minutes.unpersist()
    assert len(links) == nodes * (nodes - 1) // 2
    for (broker, peer), row in links.items():
        one, other = int(broker[-2:]), int(peer[-2:])
        both = np.concatenate([rtt[:, one, other], rtt[:, other, one]]).astype(np.float64)
        latency_ms = both[both > 0] / 2 * 1e3
        assert row.latency_ms == pytest.approx(latency_ms.mean(), rel=1e-6)
        # Of one in a thousand, which side of a step the percentile is on is not told.
        assert np.quantile(latency_ms, 0.988) * 0.999 <= row.latency_p99_ms <= np.quantile(latency_ms, 0.992) * 1.001
        assert row.observed_s == slices * SLICE_HOUR_S
        if (one, other) == (0, 1):
            assert (row.failures, row.down_s, row.mttr_s) == (silent, silent * SLICE_HOUR_S, SLICE_HOUR_S)
            assert row.failure_low < silent / slices < row.failure_high
        else:
            assert (row.failures, row.down_s, row.failure_low) == (0, 0, 0)
            assert 0 < row.failure < row.failure_high < 0.01


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
