"""Quarantine: rows that count for nothing, each with its reason, and what is left without them.

Repetitions come from a write that was tried again: the same rows in two files. A broker writes its files one after the
other, so two of its files that overlap in time are suspicious; only their rows within the overlap are compared. In a
lake without repetitions that is none at all.
"""

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from overlane.pipeline.columns import declare
from overlane.pipeline.schemas import KEYS, LANDED, TABLES
from overlane.telemetry.schema import SCHEMAS

REPEATED = "repeated"


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
    """Each file with the span that it shares with others of the same broker's life."""
    same = ["table", "broker", "incarnation"]
    span = ["file", "first_ns", "last_ns"]
    others = files.select(*same, *[sf.col(name).alias(f"other_{name}") for name in span])
    return (
        files.join(others, same)
        .where("file <> other_file and first_ns <= other_last_ns and other_first_ns <= last_ns")
        .groupBy("table", "file")
        .agg(
            sf.min(sf.greatest("first_ns", "other_first_ns")).alias("from_ns"),
            sf.max(sf.least("last_ns", "other_last_ns")).alias("to_ns"),
        )
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


def quarantine(landed: Mapping[str, DataFrame], repeated: DataFrame) -> DataFrame:
    """Every row that does not count, and why; whole files where none of their rows could be read."""
    parts = []
    for table, rows in landed.items():
        parts.append(_quarantined(table, rows.where("fault is not null"), sf.col("fault")))
        gone = repeated.where(sf.col("table") == table).select("file", "row")
        parts.append(_quarantined(table, rows.join(gone, ["file", "row"], "left_semi"), sf.lit(REPEATED)))
    return _together(parts)


def _quarantined(table: str, rows: DataFrame, reason: Column) -> DataFrame:
    content = sf.to_json(sf.struct(*[name for name in LANDED[table].fieldNames() if name not in ("file", "fault")]))
    told = rows.select("file", "row", "broker", "at_ns", reason.alias("reason"), content.alias("content"))
    return declare(told.select("*", sf.lit(table).alias("table")), TABLES["quarantine"])


def _together(parts: list[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), parts)
