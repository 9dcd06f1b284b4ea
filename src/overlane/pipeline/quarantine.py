"""Quarantine: rows that are excluded, each with the reason, and the rows that remain.

Repeated rows come from a write that was retried: the same rows in two files. A broker writes its files one after the
other, so only files of a broker that overlap in time can repeat rows; only rows within the overlap are compared. A lake
without repetitions compares nothing.
"""

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from overlane.pipeline.columns import declare
from overlane.pipeline.ingest import REPEATED
from overlane.pipeline.schemas import INGESTED, KEYS, TABLES
from overlane.telemetry.schema import SCHEMAS

_OWN = ("file", "fault", "hour_s")


def lake_files(landed: Mapping[str, DataFrame]) -> DataFrame:
    """Every file that landed, with how much of it is faulty and when it begins and ends."""
    return _together(
        [
            declare(
                rows.groupBy("file")
                .agg(
                    sf.first("broker", ignorenulls=True).alias("broker"),
                    sf.first("incarnation", ignorenulls=True).alias("incarnation"),
                    sf.count("row").alias("rows"),
                    sf.count("fault").alias("faults"),
                    sf.min(sf.when(sf.col("fault").isNull(), sf.col("at_ns"))).alias("first_ns"),
                    sf.max(sf.when(sf.col("fault").isNull(), sf.col("at_ns"))).alias("last_ns"),
                )
                .select("*", sf.lit(table).alias("table")),
                TABLES["lake_files"],
            )
            for table, rows in landed.items()
        ]
    )


def repeats(landed: Mapping[str, DataFrame], files: DataFrame) -> DataFrame:
    """Rows that another file told before, by their place."""
    overlaps = _overlaps(files)
    return _together([_repeats_of(table, rows, overlaps) for table, rows in landed.items()])


def _overlaps(files: DataFrame) -> DataFrame:
    """Each file that others of the same broker's life overlap with, and a span that holds all that it shares.

    By the order in which files begin: of those before it the one that ends last tells, of those after it the next.
    """
    in_order = Window.partitionBy("table", "broker", "incarnation").orderBy("first_ns", "file")
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    beside = files.where("first_ns is not null").select(
        "*",
        sf.max("last_ns").over(before).alias("before_ns"),
        sf.lead("first_ns").over(in_order).alias("after_ns"),
    )
    return beside.where("before_ns >= first_ns or after_ns <= last_ns").selectExpr(
        "table",
        "file",
        "if(before_ns >= first_ns, first_ns, after_ns) as from_ns",
        "if(after_ns <= last_ns, last_ns, least(last_ns, before_ns)) as to_ns",
    )


def _repeats_of(table: str, rows: DataFrame, overlaps: DataFrame) -> DataFrame:
    suspicious = rows.where("fault is null").join(
        sf.broadcast(overlaps.where(sf.col("table") == table).select("file", "from_ns", "to_ns")), "file"
    )
    same = Window.partitionBy("broker", "incarnation", "at_ns", *KEYS[table]).orderBy("file", "row")
    found = suspicious.where("at_ns between from_ns and to_ns").select("*", sf.row_number().over(same).alias("copy"))
    return declare(found.where("copy > 1").select("*", sf.lit(table).alias("table")), TABLES["repeats"])


def good(rows: DataFrame, table: str, repeated: DataFrame) -> DataFrame:
    """The rows of one table that count."""
    gone = repeated.where(sf.col("table") == table).select("file", "row")
    return rows.where("fault is null").join(gone, ["file", "row"], "left_anti").select(*SCHEMAS[table].names)


def faultless(rows: DataFrame, table: str) -> DataFrame:
    """The same where nothing is repeated."""
    return rows.where("fault is null").select(*SCHEMAS[table].names)


def quarantine(landed: Mapping[str, DataFrame], repeated: DataFrame) -> DataFrame:
    """Every row that does not count, and why; whole files where none of their rows could be read."""
    parts = []
    for table, rows in landed.items():
        parts.append(_quarantined(table, rows.where("fault is not null"), sf.col("fault")))
        gone = repeated.where(sf.col("table") == table).select("file", "row")
        parts.append(_quarantined(table, rows.join(gone, ["file", "row"], "left_semi"), sf.lit(REPEATED)))
    return _together(parts)


def _quarantined(table: str, rows: DataFrame, reason: Column) -> DataFrame:
    content = sf.to_json(sf.struct(*[name for name in INGESTED[table].fieldNames() if name not in _OWN]))
    told = rows.select("file", "row", "broker", "at_ns", "hour_s", reason.alias("reason"), content.alias("content"))
    return declare(told.select("*", sf.lit(table).alias("table")), TABLES["quarantine"])


def _together(parts: list[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), parts)
