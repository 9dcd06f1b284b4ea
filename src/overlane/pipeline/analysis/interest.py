"""Interest: which brokers have subscribers of which topics, their traffic, and their overlap.

Brokers record the number of subscribers of each filter when it changes. A filter with wildcards stands for every
matching topic with messages. The members of a shared subscription count as one subscriber.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from overlane.pipeline.columns import declare
from overlane.pipeline.schemas import TABLES


def interest(interests: DataFrame, windows: DataFrame, lives: DataFrame) -> DataFrame:
    """Each broker's topics, with the rate of what is published on them."""
    now = (
        interests.groupBy("broker", "filter", "group")
        .agg(sf.max_by("subscribers", "at_ns").alias("subscribers"))
        .where("subscribers > 0")
        .select("broker", "filter", sf.expr("if(group <> '', 1, subscribers)").alias("subscribers"))
    )
    observed = lives.groupBy("minute_s").agg(sf.bit_or("seen").alias("seen"))
    seconds = observed.agg(sf.sum(sf.bit_count("seen")).alias("seconds"))
    topics = (
        windows.groupBy("topic")
        .agg(sf.sum("messages_in").alias("messages"), sf.sum("bytes_in").alias("bytes"))
        .crossJoin(sf.broadcast(seconds))
        .selectExpr("topic", "messages / seconds as messages_per_second", "8 * bytes / seconds as bps")
    )
    is_wild = sf.col("filter").contains("+") | sf.col("filter").contains("#")
    plain = now.where(~is_wild).select("*", sf.col("filter").alias("topic")).join(topics, "topic")
    wild = (
        now.where(is_wild)
        .select("*", sf.split("filter", "/").alias("levels"), sf.expr(_PREFIX).alias("prefix"))
        .join(sf.broadcast(topics.select("*", sf.split("topic", "/").alias("topic_levels"))), sf.expr(_MATCHES))
    )
    wanted = plain.select(*_WANTED).unionByName(wild.select(*_WANTED))
    found = wanted.groupBy("broker", "topic").agg(
        sf.sum("subscribers").alias("subscribers"),
        sf.first("messages_per_second").alias("messages_per_second"),
        sf.first("bps").alias("bps"),
    )
    return declare(found, TABLES["interest"])


_WANTED = ("broker", "topic", "subscribers", "messages_per_second", "bps")


_PREFIX = "trim(trailing '/' from substring_index(substring_index(filter, '+', 1), '#', 1))"
"""How every matching topic begins. Compared first, since that is cheap."""
_IS_OPEN = "element_at(levels, -1) = '#'"
_MATCHES = (
    "startswith(topic, prefix)"
    f" and if({_IS_OPEN}, size(topic_levels) >= size(levels) - 1, size(topic_levels) = size(levels))"
    " and not (startswith(topic, '$') and levels[0] in ('+', '#'))"
    " and forall(zip_with(levels, topic_levels, (wanted, level) ->"
    " wanted is null or wanted in ('+', '#') or wanted <=> level), matches -> matches)"
)
"""Level by level, as MQTT says: a regular expression made of a filter would depend on how its characters are quoted.
Topics that begin with $ are matched by no wildcard at the beginning. Behind # the filter has no level (null)."""


def interest_overlap(interest: DataFrame) -> DataFrame:
    """How many topics each two brokers want both, and what those bring."""
    others = interest.select(sf.col("broker").alias("peer"), "topic")
    sizes = interest.groupBy("broker").agg(sf.count(sf.lit(1)).alias("size"))
    found = (
        interest.join(others, "topic")
        .where("broker < peer")
        .groupBy("broker", "peer")
        .agg(sf.count(sf.lit(1)).alias("topics"), sf.sum("bps").alias("bps"))
        .join(sizes, "broker")
        .join(sizes.selectExpr("broker as peer", "size as peer_size"), "peer")
        .select("*", sf.expr("topics / (size + peer_size - topics)").alias("jaccard"))
    )
    return declare(found, TABLES["interest_overlap"])
