"""Intervals: from when to when a broker or a link was up or down.

For every minute a mask says in which seconds something was observed, and another in which of these a link was down. A
minute without a change is one interval; other minutes are examined second by second. Consecutive intervals of the same
state are merged.

- A broker that writes nothing is down from its last second to its next one; `stopped` if it announced its shutdown.
- A link is down while one of its ends reports it, and unknown while neither reports anything. While the broker at an
  end is away, the state is `broker`: not a failure of the link (`outage_attribution`).
- At the end of the lake, files may be missing that brokers have not written yet: a gap counts only if it is long.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from overlane.pipeline.analysis.outage_attribution import attribute
from overlane.pipeline.analysis.second_masks import (
    first_second,
    last_second,
    second_bit,
    second_s,
    seconds_in,
    window_start,
)
from overlane.pipeline.columns import declare
from overlane.pipeline.schemas import TABLES
from overlane.pipeline.units import MINUTE_S, SECOND_NS

GAP_S = 3
"""A broker that is busy may skip a second or two."""
NEAR_S = 10
"""A broker says that it stops about when it writes its last row."""
UNWRITTEN_S = 900
DOWN = ("failed", "down")


def link_minutes(links: DataFrame) -> DataFrame:
    """Each end of each link, minute by minute."""
    seen = links.select("*", second_s().alias("second_s"), sf.col("state").isin(*DOWN).alias("is_down"))
    found = seen.groupBy("broker", "peer", window_start(MINUTE_S).alias("minute_s")).agg(
        sf.bit_or(second_bit()).alias("seen"),
        sf.coalesce(sf.bit_or(sf.when(sf.col("is_down"), second_bit())), sf.lit(0).cast("long")).alias("down"),
        sf.greatest(sf.lit(1), sf.round(sf.max("interval_ns") / SECOND_NS)).cast("long").alias("every_s"),
        sf.count("latency_ns").alias("samples"),
        sf.avg("latency_ns").alias("latency_ns"),
        sf.max("latency_ns").alias("latency_ns_max"),
        sf.avg("jitter_ns").alias("jitter_ns"),
        sf.avg("loss").alias("loss"),
        sf.avg("queue_bytes").alias("queue_bytes"),
        sf.max("queue_bytes_max").alias("queue_bytes_max"),
    )
    return declare(found, TABLES["link_minutes"])


def intervals(lives: DataFrame, minutes: DataFrame, events: DataFrame) -> DataFrame:
    """All intervals of brokers and links."""
    brokers = _broker_intervals(lives, events)
    return brokers.unionByName(_link_intervals(minutes, brokers))


def _broker_intervals(lives: DataFrame, events: DataFrame) -> DataFrame:
    minutes = lives.select(
        sf.lit("broker").alias("kind"),
        "broker",
        sf.lit(None).cast("string").alias("peer"),
        "minute_s",
        "seen",
        sf.lit(0).cast("long").alias("down"),
        sf.lit(1).cast("long").alias("every_s"),
    )
    ups = _stretches(minutes)
    next_up = sf.lead("start_s").over(Window.partitionBy("broker").orderBy("start_s"))
    until = ups.agg(sf.max("end_s").alias("until_s"))
    downs = (
        ups.select("*", next_up.alias("next_s"))
        .crossJoin(sf.broadcast(until))
        .select(
            *("kind", "broker", "peer", sf.col("end_s").alias("start_s")),
            sf.expr(f"coalesce(next_s, if(until_s - end_s > {UNWRITTEN_S}, until_s, null))").alias("end_s"),
        )
        .where("end_s is not null")
    )
    stops = events.where("kind = 'broker-stopped'").select(
        sf.col("broker").alias("of"), second_s().alias("at_s"), second_s().alias("mark_s")
    )
    asked = downs.select("*", sf.col("broker").alias("of"), sf.expr(f"start_s + {NEAR_S}").alias("at_s"))
    said_so = sf.expr(f"if(marked_s >= start_s - {NEAR_S}, 'stopped', 'down')")
    judged = _latest_mark(asked, stops).select("*", said_so.alias("state"))
    return _told(ups).unionByName(_told(judged))


def _link_intervals(minutes: DataFrame, brokers: DataFrame) -> DataFrame:
    both = (
        minutes.select(
            sf.lit("link").alias("kind"),
            sf.least("broker", "peer").alias("one"),
            sf.greatest("broker", "peer").alias("other"),
            "minute_s",
            "seen",
            "down",
            "every_s",
        )
        .groupBy("kind", "one", "other", "minute_s")
        .agg(sf.bit_or("seen").alias("seen"), sf.bit_or("down").alias("down"), sf.max("every_s").alias("every_s"))
        .selectExpr("kind", "one as broker", "other as peer", "minute_s", "seen", "down", "every_s")
    )
    away = brokers.where("state <> 'up'").selectExpr(
        "broker", f"start_ns div {SECOND_NS} as start_s", f"end_ns div {SECOND_NS} as end_s"
    )
    stretches = _stretches(both)
    judged = attribute(stretches.where("state = 'down'"), away)
    return _told(stretches.where("state <> 'down'").unionByName(judged))


def _latest_mark(asked: DataFrame, marks: DataFrame) -> DataFrame:
    """What is asked, with `marked_s`: the latest `mark_s` of the marks of the same broker that are not after `at_s`.

    Of spans that have begun, one holds a second if the one that ends last does. So one pass over both in their order
    tells it, where a join would compare each with each: over a long time they all become many.
    """
    until_then = Window.partitionBy("of").orderBy("at_s")
    return (
        asked.unionByName(marks, allowMissingColumns=True)
        .select("*", sf.max("mark_s").over(until_then).alias("marked_s"))
        .where("mark_s is null")
    )


def _stretches(minutes: DataFrame) -> DataFrame:
    """Minutes of masks as stretches of one state: kind, broker, peer, state, start_s, end_s."""
    spans = minutes.select("*", first_second("seen").alias("first"), last_second("seen").alias("last"))
    is_calm = sf.expr(f"down = 0 and bit_count(seen) >= last - first + 1 - {GAP_S}")
    calm = spans.where(is_calm).selectExpr(
        "kind",
        "broker",
        "peer",
        "'up' as state",
        "minute_s + first + 1 - every_s as start_s",
        "minute_s + last + 1 as end_s",
    )
    restless = (
        spans.where(~is_calm)
        .select("*", sf.explode(seconds_in("seen")).alias("second"))
        .selectExpr(
            "kind",
            "broker",
            "peer",
            "if(shiftright(down, second) & 1L = 1L, 'down', 'up') as state",
            "minute_s + second + 1 - every_s as start_s",
            "minute_s + second + 1 as end_s",
        )
    )
    in_order = Window.partitionBy("kind", "broker", "peer").orderBy("start_s", "end_s")
    begins = sf.expr(f"state <> before or start_s > before_s + {GAP_S}")
    return (
        calm.unionByName(restless)
        .select("*", sf.lag("state").over(in_order).alias("before"), sf.lag("end_s").over(in_order).alias("before_s"))
        .select("*", sf.coalesce(begins, sf.lit(True)).cast("int").alias("begins"))
        .select("*", sf.sum("begins").over(in_order).alias("stretch"))
        .groupBy("kind", "broker", "peer", "stretch", "state")
        .agg(sf.min("start_s").alias("start_s"), sf.max("end_s").alias("end_s"))
        .select("kind", "broker", "peer", "state", "start_s", "end_s")
    )


def _told(stretches: DataFrame) -> DataFrame:
    found = stretches.select(
        "*", (sf.col("start_s") * SECOND_NS).alias("start_ns"), (sf.col("end_s") * SECOND_NS).alias("end_ns")
    )
    return declare(found, TABLES["intervals"])
