"""The flows of the pipeline: for each table, the tables it reads and the function that computes it.

Tables that are divided by hours (`hour`) are computed for the hours that new rows touch; all others from everything.
A flow reads through a `Source`, which decides what that is: `touched` gives those hours, `table` everything. The
runner and Spark Declarative Pipelines (`definitions`) each have a source of their own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame

from overlane.pipeline import quarantine
from overlane.pipeline.analysis import (
    bottlenecks,
    capacity,
    clock_skew,
    co_failures,
    compliance,
    covariance,
    interest,
    intervals,
    load,
    load_series,
    reliability,
    reserved_flows,
)
from overlane.pipeline.plans import case_base, channels
from overlane.pipeline.settings import PipelineSettings
from overlane.telemetry.schema import SCHEMAS

RAW = {table: f"raw_{table}" for table in SCHEMAS}
"""The ingested rows of each table of the lake."""


class Source(Protocol):
    """Where a flow reads."""

    def table(self, name: str) -> DataFrame:
        """All rows."""

    def touched(self, name: str) -> DataFrame:
        """The rows of the hours that are to be computed."""

    def new(self, name: str) -> DataFrame:
        """The rows of an ingested table that this run has added."""

    def is_empty(self, name: str) -> bool:
        """Whether it is known that a table has no rows that matter: then it need not be joined."""


@dataclass(frozen=True, slots=True)
class Flow:
    name: str
    reads: tuple[str, ...]
    make: Callable[[Source, PipelineSettings], DataFrame]
    hour: str | None = None
    """The column by whose hour the table is divided."""
    is_peak: bool = False
    """Also computed for hours that have become peaks, or are no peaks any more."""
    is_appended: bool = False
    """Computed from new rows alone, and added to what there is."""
    is_row_aggregate: bool = False
    """Aggregates ingested rows without Python: compilation pays off sooner than for tables of few rows."""


def _raw(read: Callable[[str], DataFrame]) -> dict[str, DataFrame]:
    return {table: read(name) for table, name in RAW.items()}


def _counted(of: Source, table: str, rows: DataFrame) -> DataFrame:
    if of.is_empty("repeats"):
        return quarantine.faultless(rows, table)
    return quarantine.good(rows, table, of.table("repeats"))


def _good(of: Source, table: str, is_all: bool = False) -> DataFrame:
    """The rows that count, with corrected times."""
    rows = _counted(of, table, (of.table if is_all else of.touched)(RAW[table]))
    return rows if of.is_empty("clock_offsets") else clock_skew.corrected(rows, table, of.table("clock_offsets"))


_GOOD = ("repeats", "clock_offsets")
_RAWS = tuple(RAW.values())

_INPUT = [
    Flow(
        "lake_files",
        _RAWS,
        lambda of, _: quarantine.lake_files(_raw(of.new)),
        is_appended=True,
    ),
    Flow(
        "repeats",
        (*_RAWS, "lake_files"),
        lambda of, _: quarantine.repeats(_raw(of.touched), of.table("lake_files")),
        hour="hour_s",
    ),
    Flow(
        "quarantine",
        (*_RAWS, "repeats"),
        lambda of, _: quarantine.quarantine(_raw(of.touched), of.touched("repeats")),
        hour="hour_s",
    ),
    Flow(
        "clock_offsets",
        (RAW["links"], "repeats"),
        lambda of, _: clock_skew.clock_offsets(_counted(of, "links", of.touched(RAW["links"]))),
        hour="hour_s",
    ),
    Flow(
        "alive",
        (RAW["queues"], RAW["topic_rates"], *_GOOD),
        lambda of, _: load.alive(_good(of, "queues"), _good(of, "topic_rates")),
        hour="minute_s",
        is_row_aggregate=True,
    ),
]

_LOAD = [
    Flow(
        "load_windows",
        (RAW["topic_rates"], *_GOOD),
        lambda of, _: load.load_windows(_good(of, "topic_rates")),
        hour="window_s",
        is_row_aggregate=True,
    ),
    Flow(
        "load_hours",
        ("load_windows", "alive"),
        lambda of, _: load.load_hours(of.touched("load_windows"), of.touched("alive")),
        hour="hour_s",
    ),
    Flow(
        "peaks",
        ("load_windows", "alive"),
        lambda of, given: load.peaks(of.table("load_windows"), of.table("alive"), given.domain),
    ),
    Flow(
        "load_chunks",
        ("alive", "peaks"),
        lambda of, _: load_series.load_chunks(of.touched("alive"), of.table("peaks")),
        hour="chunk_s",
        is_peak=True,
    ),
    Flow(
        "load_series",
        (RAW["topic_rates"], *_GOOD, "peaks", "load_chunks"),
        lambda of, _: load_series.load_series(_good(of, "topic_rates"), of.table("peaks"), of.touched("load_chunks")),
        hour="chunk_s",
        is_peak=True,
    ),
    Flow(
        "topic_load",
        ("load_series", "load_chunks", "load_windows"),
        lambda of, given: load_series.topic_load(
            of.table("load_series"),
            of.table("load_chunks"),
            of.table("load_windows"),
            given.item_levels,
            given.placement.filters,
        ),
    ),
    Flow(
        "topic_covariance",
        ("load_series", "topic_load", "load_chunks"),
        lambda of, given: covariance.topic_covariance(
            of.table("load_series"),
            of.table("topic_load"),
            of.table("load_chunks"),
            given.covariance_block,
            given.covariance_tasks,
        ),
    ),
    Flow(
        "item_covariance",
        ("topic_covariance", "topic_load"),
        lambda of, _: covariance.item_covariance(of.table("topic_covariance"), of.table("topic_load")),
    ),
    Flow(
        "item_load",
        ("topic_load", "item_covariance"),
        lambda of, _: load_series.item_load(of.table("topic_load"), of.table("item_covariance")),
    ),
]

_RELIABILITY = [
    Flow(
        "link_minutes",
        (RAW["links"], *_GOOD),
        lambda of, _: intervals.link_minutes(_good(of, "links")),
        hour="minute_s",
        is_row_aggregate=True,
    ),
    Flow(
        "intervals",
        ("alive", "link_minutes", RAW["events"], *_GOOD),
        lambda of, _: intervals.intervals(
            of.table("alive"), of.table("link_minutes"), _good(of, "events", is_all=True)
        ),
    ),
    Flow(
        "reliability",
        ("intervals", "link_minutes"),
        lambda of, _: reliability.reliability(of.table("intervals"), of.table("link_minutes")),
    ),
    Flow("failure_pairs", ("intervals",), lambda of, _: co_failures.failure_pairs(of.table("intervals"))),
    Flow(
        "failure_groups",
        ("failure_pairs", "intervals"),
        lambda of, _: co_failures.failure_groups(of.table("failure_pairs"), of.table("intervals")),
    ),
]

_COMPLIANCE = [
    Flow(
        "latency_bins",
        (RAW["deliveries"], *_GOOD),
        lambda of, _: compliance.latency_bins(_good(of, "deliveries")),
        hour="hour_s",
        is_row_aggregate=True,
    ),
    Flow(
        "compliance",
        ("latency_bins",),
        lambda of, _: compliance.compliance(of.touched("latency_bins")),
        hour="hour_s",
    ),
    Flow("offenders", ("latency_bins",), lambda of, _: compliance.offenders(of.table("latency_bins"))),
    Flow("anomalies", ("compliance",), lambda of, _: compliance.anomalies(of.table("compliance"))),
    Flow(
        "bottlenecks",
        (RAW["deliveries"], *_GOOD, "link_minutes"),
        lambda of, _: bottlenecks.bottlenecks(_good(of, "deliveries"), of.touched("link_minutes")),
        hour="hour_s",
        is_row_aggregate=True,
    ),
    Flow(
        "residence_bins",
        (RAW["deliveries"], *_GOOD, "link_minutes", "load_windows"),
        lambda of, _: capacity.residence_bins(
            _good(of, "deliveries"), of.touched("link_minutes"), of.touched("load_windows")
        ),
        hour="hour_s",
        is_row_aggregate=True,
    ),
    Flow(
        "capacity",
        ("residence_bins",),
        lambda of, given: capacity.capacity(of.table("residence_bins"), given.residence_ms),
    ),
]

_PLANS = [
    Flow(
        "reserved_flows",
        (RAW["reservations"], *_GOOD),
        lambda of, _: reserved_flows.reserved_flows(_good(of, "reservations", is_all=True)),
    ),
    Flow(
        "interest",
        (RAW["interests"], *_GOOD, "load_windows", "alive"),
        lambda of, _: interest.interest(
            _good(of, "interests", is_all=True), of.table("load_windows"), of.table("alive")
        ),
    ),
    Flow("interest_overlap", ("interest",), lambda of, _: interest.interest_overlap(of.table("interest"))),
    Flow("channel_plan", ("interest",), lambda of, given: channels.channel_plan(of.table("interest"), given.channels)),
    Flow("channels", ("channel_plan",), lambda of, _: channels.channels(of.table("channel_plan"))),
    Flow("channel_costs", ("channel_plan",), lambda of, _: channels.channel_costs(of.table("channel_plan"))),
    Flow(
        "planning_problem",
        ("item_load", "item_covariance", "alive", "capacity"),
        lambda of, given: case_base.planning_problem(
            of.table("item_load"),
            of.table("item_covariance"),
            of.table("alive"),
            of.table("capacity"),
            given.capacity,
            given.placement,
        ),
    ),
    Flow("normal_plan", ("planning_problem",), lambda of, _: case_base.normal(of.table("planning_problem"))),
    Flow(
        "case_base",
        ("planning_problem", "normal_plan"),
        lambda of, given: case_base.case_base(of.table("planning_problem"), of.table("normal_plan"), given.case_tasks),
    ),
]

FLOWS: tuple[Flow, ...] = (*_INPUT, *_LOAD, *_RELIABILITY, *_COMPLIANCE, *_PLANS)
"""In an order in which each comes after what it reads."""
