"""The sections of the report: a heading, a sentence with the finding, and a plot or table."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from overlane.network.plan import Plan
from overlane.pipeline.output_directory import Run
from overlane.pipeline.report import svg
from overlane.pipeline.report.delays import delays, hours_text, name_of
from overlane.pipeline.report.flow_profiles import FLOW_COLUMNS, IDLE_SHARE, RAISE, proposals

TOPICS_SHOWN = 12
CORRELATED_SHOWN = 30
RELIABILITY_SHOWN = 30
ROWS_SHOWN = 10
BIN_BASE = 1.02

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Section:
    heading: str
    finding: str
    plot: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


class Tables:
    """The tables of a run, read on demand."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def rows(self, table: str, columns: Sequence[str] | None = None) -> list[Row]:
        path = self._run.tables / table
        found: list[Row] = pq.read_table(path, columns=columns).to_pylist() if path.is_dir() else []
        return found


def sections(tables: Tables, plan: Plan | None, before: Plan | None) -> list[Section]:
    made = [
        load(tables),
        busiest(tables),
        co_failures(tables),
        reliability(tables),
        in_time(tables),
        latencies(tables),
        problems(tables),
        reservations(tables),
        plan_changes(plan, before),
        landed(tables),
        clocks(tables),
    ]
    return [section for section in made if section is not None]


def key_figures(tables: Tables) -> list[tuple[str, str]]:
    """(figure, label), for the header of the page."""
    reliability_rows = tables.rows("reliability", ["kind"])
    kinds = [row["kind"] for row in reliability_rows]
    whole = [row for row in tables.rows("compliance") if row["scope"] == "all"]
    judged, good = sum(row["judged"] or 0 for row in whole), sum(row["in_time"] or 0 for row in whole)
    times = [row[end] for row in tables.rows("lake_files") for end in ("first_ns", "last_ns") if row[end] is not None]
    hours = (max(times) - min(times)) / 3.6e12 if times else 0.0
    return [
        (f"{hours / 24:.1f} days" if hours >= 48 else f"{hours:.1f} h", "of telemetry"),
        (str(kinds.count("broker")), "brokers"),
        (str(kinds.count("link")), "links"),
        (f"{len(tables.rows('topic_load', ['topic'])):,}", "topics"),
        (f"{good / judged:.3%}" if judged else "-", "in time"),
        (f"{judged:,}", "deliveries with a deadline"),
    ]


def load(tables: Tables) -> Section | None:
    by_hour: dict[int, float] = defaultdict(float)
    for row in tables.rows("load_hours", ["hour_s", "messages_per_second"]):
        by_hour[row["hour_s"]] += row["messages_per_second"]
    if not by_hour:
        return None
    points = sorted(by_hour.items())
    most_s, most = max(points, key=lambda point: point[1])
    least = min(rate for _, rate in points)
    peaks = [(row["start_s"], row["end_s"]) for row in tables.rows("peaks")]
    finding = (
        f"In the busiest hour, {svg.clock(most_s, 0)} UTC, the overlay received {most:,.4g} messages per second,"
        f" in the quietest {least:,.4g}. Peak periods, on which plans are based, are grey."
    )
    plot = svg.lines([svg.Line("messages per second", points)], finding, 0, most * 1.08, "{:,.6g}", bands=peaks)
    return Section("Load by hour", finding, plot)


def busiest(tables: Tables) -> Section | None:
    found = sorted(tables.rows("topic_load", ["topic", "mean"]), key=lambda row: -row["mean"])
    if not found:
        return None
    shown, whole = found[:TOPICS_SHOWN], sum(row["mean"] for row in found) or 1.0
    part = sum(row["mean"] for row in shown) / whole
    finding = f"The {len(shown)} busiest of {len(found):,} topics have {part:.0%} of the messages in peak periods."
    plot = svg.bars([(row["topic"], row["mean"]) for row in shown], finding, "/s")
    return Section("Busiest topics", finding, plot)


def co_failures(tables: Tables) -> Section | None:
    rates = {row["number"]: row for row in tables.rows("topic_load")}
    chosen = sorted(rates, key=lambda number: -rates[number]["variance"])[:CORRELATED_SHOWN]
    chosen = sorted(number for number in chosen if rates[number]["variance"] > 0)
    if len(chosen) < 2:
        return None
    size = max(rates) + 1
    wanted = set(chosen)
    covariance = {number: np.zeros(size) for number in chosen}
    for row in tables.rows("topic_covariance"):
        if row["number"] in wanted:
            first = row["first"]
            covariance[row["number"]][first : first + len(row["covariances"])] = row["covariances"]
    spread = {number: float(np.sqrt(rates[number]["variance"])) for number in chosen}
    rows = [[float(covariance[a][b]) / (spread[a] * spread[b]) for b in chosen] for a in chosen]
    names = [rates[number]["topic"] for number in chosen]
    pairs = [(rows[a][b], names[a], names[b]) for a in range(len(names)) for b in range(a)]
    value, one, other = max(pairs)
    finding = (
        f"Correlation of the topics that vary most. The strongest is between {other} and {one} ({value:+.2f}). "
        "A larger square is a stronger correlation; the colours show positive and negative correlation."
    )
    return Section("Correlated topics", finding, svg.heat_map(names, rows, finding))


def reliability(tables: Tables) -> Section | None:
    found = sorted(tables.rows("reliability"), key=lambda row: -row["failure"])
    if not found:
        return None
    drawn = [
        svg.Interval(
            name_of(row),
            row["failure"],
            row["failure_low"],
            row["failure_high"],
            f"{name_of(row)}: down {row['failure']:.4%} of the time, {row['failure_low']:.4%} to "
            f"{row['failure_high']:.4%}; {row['failures']} failures in {row['observed_s'] / 3600:.1f} h",
        )
        for row in found[:RELIABILITY_SHOWN]
    ]
    worst = found[0]
    finding = (
        f"{name_of(worst)} is down the most: {worst['failure']:.3%} of the time. The dot is the estimate, the line "
        "the 95 % confidence interval: the shorter the observation, the longer the line."
    )
    return Section("Downtime of brokers and links", finding, svg.intervals(drawn, finding))


def in_time(tables: Tables) -> Section | None:
    hours: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for row in tables.rows("latency_bins", ["hour_s", "judged", "in_time"]):
        hours[row["hour_s"]][0] += row["in_time"]
        hours[row["hour_s"]][1] += row["judged"]
    points = sorted((hour, good / judged) for hour, (good, judged) in hours.items() if judged)
    if not points:
        return None
    least_s, least = min(points, key=lambda point: point[1])
    floor = min(0.99, least - (1 - least) * 0.2)
    finding = (
        f"The worst hour was {svg.clock(least_s, 0)} UTC, with {least:.3%} of all deliveries within their deadline."
        if least < 1
        else "In every hour, all deliveries were within their deadline."
    )
    plot = svg.lines([svg.Line("share in time", points)], finding, max(0.0, floor), 1.0, "{:.2%}")
    return Section("Deliveries in time", finding, plot)


def latencies(tables: Tables) -> Section | None:
    bins: dict[int, int] = defaultdict(int)
    for row in tables.rows("latency_bins", ["bin", "deliveries"]):
        bins[row["bin"]] += row["deliveries"]
    whole = sum(bins.values())
    if not whole:
        return None
    ordered = sorted(bins.items())
    marks = []
    for name, share in (("half", 0.5), ("99 %", 0.99)):
        so_far = 0
        for number, count in ordered:
            so_far += count
            if so_far >= share * whole:
                marks.append((name, BIN_BASE**number / 1e6))
                break
    finding = f"Half of all messages arrive within {marks[0][1]:.3g} ms, 99 % within {marks[1][1]:.3g} ms."
    plot = svg.histogram([(BIN_BASE**number / 1e6, count / whole) for number, count in ordered], finding, marks)
    slowest = sorted((row for row in tables.rows("compliance") if _is_whole_topic(row)), key=lambda row: -row["p99_ms"])
    rows = tuple(
        (
            row["topic"],
            f"{row['deliveries']:,}",
            "-" if row["in_time_rate"] is None else f"{row['in_time_rate']:.3%}",
            *(f"{row[column]:,.1f}" for column in ("p50_ms", "p90_ms", "p99_ms", "p999_ms")),
        )
        for row in slowest[:ROWS_SHOWN]
    )
    columns = ("topic, slowest first", "deliveries", "in time", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms")
    return Section("Latency", finding, plot, columns, rows)


def problems(tables: Tables) -> Section | None:
    offenders, odd = tables.rows("offenders"), tables.rows("anomalies")
    slow = tables.rows("bottlenecks")
    rows: list[tuple[str, ...]] = []
    for row in sorted(offenders, key=lambda row: row["rank"])[:ROWS_SHOWN]:
        what = f"{row['missed']:,} of {row['deliveries']:,} late"
        rows.append(("misses its deadline", _where(row), what, ""))
    for delay in delays(slow)[:ROWS_SHOWN]:
        what = f"{delay.lost_s:,.3g} s lost, {delay.share:.0%} of the age of {delay.late:,} late deliveries"
        rows.append(("delays messages", delay.where, what, hours_text(delay.hours)))
    for where, measure, same in _unusual(odd)[:ROWS_SHOWN]:
        worst = max(same, key=lambda row: abs(row["score"]))
        what = f"{measure} {worst['value']:.4g}, usually {worst['usual']:.4g}"
        rows.append(("unusual", where, what, hours_text([row["hour_s"] for row in same])))
    if not rows:
        return Section("Problems", "No topic missed its target, and no hour was anomalous.")
    finding = "Missed deadlines, where late messages spent most time, and anomalous hours. Hours are UTC."
    return Section("Problems", finding, "", ("problem", "where", "details", "hours"), tuple(rows))


def plan_changes(plan: Plan | None, before: Plan | None) -> Section | None:
    if plan is None:
        return None
    old, new = (_failures(one) for one in (before, plan))
    changes = sorted(
        ((name, old.get(name), value) for name, value in new.items() if old.get(name) != value),
        key=lambda change: -abs(change[2] - (change[1] or 0.0)),
    )
    finding = (
        "Failure probabilities in the plan of this run and of the previous run."
        if before is not None
        else "Failure probabilities in the plan of this run; there is no earlier plan to compare with."
    )
    rows = tuple(
        (name, "-" if was is None else f"{was:.4%}", f"{is_now:.4%}") for name, was, is_now in changes[:ROWS_SHOWN]
    )
    return Section("Plan", finding, "", ("broker or link", "before", "now"), rows)


def landed(tables: Tables) -> Section | None:
    files = tables.rows("lake_files", ["rows", "faults"])
    reasons: dict[str, int] = defaultdict(int)
    for row in tables.rows("quarantine", ["reason"]):
        reasons[row["reason"]] += 1
    rows = sum(row["rows"] or 0 for row in files)
    if not reasons:
        return Section("Input", f"{rows:,} rows in {len(files):,} files, no faults.")
    finding = f"{rows:,} rows in {len(files):,} files; {sum(reasons.values()):,} rows or files were rejected."
    worst = sorted(reasons.items(), key=lambda item: -item[1])[:ROWS_SHOWN]
    told = tuple((reason, f"{count:,}") for reason, count in worst)
    return Section("Input", finding, "", ("reason", "count"), told)


def reservations(tables: Tables) -> Section | None:
    """Left out if nothing was advertised."""
    found = proposals(tables.rows("reserved_flows"))
    if not found:
        return None
    idle = sum(one.share is not None and one.share < IDLE_SHARE for one in found)
    beyond = sum(one.advice == RAISE for one in found)
    finding = (
        f"Of {len(found):,} advertised flows, {idle:,} used less than {IDLE_SHARE:.0%} of what links had set aside, and"
        f" {beyond:,} need more than they advertise. Proposed buckets cover 99.9 % of the traffic."
    )
    rows = tuple(one.cells() for one in found[:RELIABILITY_SHOWN])
    return Section("Reservations", finding, "", FLOW_COLUMNS, rows)


def clocks(tables: Tables) -> Section | None:
    """Brokers whose clocks differ from the others; left out if there is no evidence of any clock."""
    hours: dict[tuple[str, int], list[int]] = defaultdict(list)
    found = tables.rows("clock_offsets")
    if not found:
        return None
    for row in found:
        if row["offset_s"]:
            hours[row["broker"], row["offset_s"]].append(row["hour_s"])
    brokers = len({row["broker"] for row in found})
    if not hours:
        return Section("Clocks", f"The clocks of {brokers:,} brokers agree to the second.")
    wrong = len({broker for broker, _ in hours})
    finding = f"The clocks of {wrong:,} of {brokers:,} brokers differ from the others. Their times were corrected."
    rows = tuple(
        (broker, f"{offset_s:+,} s", hours_text(at))
        for (broker, offset_s), at in sorted(hours.items(), key=lambda item: (-abs(item[0][1]), item[0]))[:ROWS_SHOWN]
    )
    return Section("Clocks", finding, "", ("broker", "offset", "hours"), rows)


def _unusual(odd: list[Row]) -> list[tuple[str, str, list[Row]]]:
    """What differs from its usual value, the most unusual first, with all its hours in one place."""
    same: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in odd:
        same[_where(row), row["measure"]].append(row)
    found = [(where, measure, rows) for (where, measure), rows in same.items()]
    return sorted(found, key=lambda one: (-max(abs(row["score"]) for row in one[2]), one[0], one[1]))


def _where(row: Row) -> str:
    ways = [part for part in (row["origin"], row["broker"]) if part]
    return " ".join(part for part in (row["topic"] or "", " > ".join(ways)) if part)


def _is_whole_topic(row: Row) -> bool:
    return bool(row["scope"] == "topic" and row["hour_s"] is None and row["p99_ms"] is not None)


def _failures(plan: Plan | None) -> dict[str, float]:
    if plan is None:
        return {}
    found = {name: outlook.failure for name, outlook in plan.brokers.items()}
    return found | {" - ".join(link.ends): link.failure for link in plan.links}
