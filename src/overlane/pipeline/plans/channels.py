"""Channels: the cost of unicast, and of the best mapping to a few multicast channels.

Every broker with subscribers is a node, every topic an advertisement. The solver of `overlane.planning` runs in one
task and gets only the topics with the most traffic: the others add little to the cost and much to the search.
"""

from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from overlane.pipeline.analysis.grouping import map_all
from overlane.pipeline.columns import columns, declare
from overlane.pipeline.schemas import TABLES
from overlane.planning.channels import Advertisement, plan_channels

ADVERTISEMENTS_MAX = 300
PRESENT = "present"
"""Every broker gets what it wants on its own: no channels."""

_WANTED = columns("topic string, bps double, brokers array<string>, channels int")


def channel_plan(interest: DataFrame, channels: int) -> DataFrame:
    """The mappings and what they cost, and the channels of the best one."""
    wanted = interest.groupBy("topic").agg(
        sf.first("bps").alias("bps"), sf.array_sort(sf.collect_set("broker")).alias("brokers")
    )
    heaviest = sf.row_number().over(Window.orderBy(sf.desc(sf.col("bps") * sf.size("brokers")), "topic"))
    given = (
        wanted.select("*", heaviest.alias("rank"))
        .where(f"rank <= {ADVERTISEMENTS_MAX}")
        .select("*", sf.lit(channels).alias("channels"))
    )
    return map_all(given, _WANTED, _planned, TABLES["channel_plan"])


def _planned(wanted: Any) -> Any:
    rows = sorted(wanted.to_pylist(), key=lambda row: row["topic"])
    given = [Advertisement(row["topic"], row["bps"], tuple(row["brokers"])) for row in rows]
    plan = plan_channels(given, rows[0]["channels"])
    rate_bps = {each.name: each.rate_bps for each in given}
    told: list[dict[str, Any]] = [
        {"mapping": PRESENT, "cost_bps": plan.all_unicast_bps, "waste_bps": 0.0},
        {"mapping": "heaviest first", "cost_bps": plan.greedy_bps},
        {"mapping": "clusters", "cost_bps": plan.clustering_bps},
        {"mapping": "best", "cost_bps": plan.cost.total_bps, "waste_bps": plan.cost.waste_bps},
        {"mapping": "bound", "cost_bps": plan.bound_bps},
    ]
    for number, channel in enumerate(plan.channels):
        told.append(
            {
                "channel": number,
                "members": list(channel.members),
                "topics": list(channel.advertisements),
                "sent_bps": sum(rate_bps[name] for name in channel.advertisements),
            }
        )
    texts = pa.list_(pa.string())
    return pa.Table.from_pylist(
        told,
        schema=pa.schema(
            {
                "mapping": pa.string(),
                "cost_bps": pa.float64(),
                "waste_bps": pa.float64(),
                "channel": pa.int32(),
                "members": texts,
                "topics": texts,
                "sent_bps": pa.float64(),
            }
        ),
    )


def channels(plan: DataFrame) -> DataFrame:
    return declare(plan.where("channel is not null"), TABLES["channels"])


def channel_costs(plan: DataFrame) -> DataFrame:
    return declare(plan.where("mapping is not null"), TABLES["channel_costs"])


def channels_problem(interest_rows: list[dict[str, Any]], channel_count: int) -> bytes:
    """What `overlane plan channels` reads, of all topics."""
    brokers: dict[str, list[str]] = {}
    rates: dict[str, float] = {}
    for row in interest_rows:
        brokers.setdefault(row["topic"], []).append(row["broker"])
        rates[row["topic"]] = row["bps"]
    advertisements = [
        {"name": topic, "rate_bps": rates[topic], "subscribers": sorted(brokers[topic])} for topic in sorted(brokers)
    ]
    return msgspec.json.encode({"advertisements": advertisements, "channels": channel_count})
