"""Co-failures: pairs of brokers and links whose failures start together more often than by chance.

Two failures are joint if they start within d seconds of each other. With k and l failures in time T, chance alone
produces about k l (2 d + 1) / T joint failures. The correlation of a pair is its joint failures divided by the
geometric mean of k and l. Strongly correlated pairs form groups: the connected components.
"""

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from overlane.pipeline.analysis.grouping import map_all
from overlane.pipeline.columns import columns, declare
from overlane.pipeline.schemas import TABLES
from overlane.pipeline.units import SECOND_NS

NEAR_S = 5
JOINT_MIN = 2
OVER_CHANCE = 5.0
CORRELATED = 0.5


def failure_pairs(intervals: DataFrame) -> DataFrame:
    """Pairs with joint failures that chance does not explain."""
    span = intervals.agg(((sf.max("end_ns") - sf.min("start_ns")) / SECOND_NS).alias("span_s"))
    failed = intervals.where("state = 'down'").select(
        _key().alias("name"), "kind", "broker", "peer", (sf.col("start_ns") / SECOND_NS).cast("long").alias("at_s")
    )
    counts = failed.groupBy("name").agg(sf.count(sf.lit(1)).alias("failures"))
    near = failed.select(
        "*",
        sf.explode(sf.expr(f"array(at_s div {NEAR_S} - 1, at_s div {NEAR_S}, at_s div {NEAR_S} + 1)")).alias("slot"),
    )
    others = failed.select(
        sf.col("name").alias("other"),
        sf.col("kind").alias("other_kind"),
        sf.col("broker").alias("other_broker"),
        sf.col("peer").alias("other_peer"),
        sf.col("at_s").alias("other_at_s"),
        sf.expr(f"at_s div {NEAR_S}").alias("slot"),
    )
    joint = (
        near.join(others, "slot")
        .where(sf.expr(f"name < other and abs(at_s - other_at_s) <= {NEAR_S}"))
        .groupBy("name", "kind", "broker", "peer", "other", "other_kind", "other_broker", "other_peer")
        .agg(sf.countDistinct("at_s").alias("joint"))
    )
    found = (
        joint.join(counts.selectExpr("name", "failures as one_failures"), "name")
        .join(counts.selectExpr("name as other", "failures as other_failures"), "other")
        .crossJoin(sf.broadcast(span))
        .selectExpr(
            "*",
            f"one_failures * other_failures * {2 * NEAR_S + 1} / span_s as expected",
            "least(1.0, joint / sqrt(one_failures * other_failures)) as correlation",
        )
        .where(f"joint >= {JOINT_MIN} and joint >= {OVER_CHANCE} * expected")
    )
    return declare(found, TABLES["failure_pairs"])


def failure_groups(pairs: DataFrame, intervals: DataFrame) -> DataFrame:
    """Groups of what fails together, and how often each of them failed."""
    edges = pairs.where(f"correlation >= {CORRELATED}").select(_key().alias("one"), _key("other_").alias("other"))
    grouped = map_all(edges, columns("one string, other string"), _grouped, columns("group bigint, name string"))
    failures = (
        intervals.where("state = 'down'")
        .select("*", _key().alias("name"))
        .groupBy("name", "kind", "broker", "peer")
        .agg(sf.count(sf.lit(1)).alias("failures"))
    )
    return declare(grouped.join(failures, "name"), TABLES["failure_groups"])


def _key(before: str = "") -> Any:
    return sf.concat_ws("\t", f"{before}kind", f"{before}broker", f"{before}peer")


def _grouped(edges: Any) -> Any:
    """What chains of pairs link, by the smallest name in each group."""
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        while leader.setdefault(name, name) != name:
            name = leader[name]
        return name

    for one, other in zip(edges.column("one").to_pylist(), edges.column("other").to_pylist(), strict=True):
        first, last = sorted((find(one), find(other)))
        leader[last] = first
    names = sorted(leader)
    numbers = {name: number for number, name in enumerate(sorted({find(name) for name in names}))}
    groups = [numbers[find(name)] for name in names]
    return pa.table({"group": pa.array(groups, pa.int64()), "name": pa.array(names, pa.string())})
