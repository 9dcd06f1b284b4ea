"""Expectations: what telemetry must be like for its tables to be trusted. Thresholds are in a TOML file:

    freshness = "15m"        # the newest row is not older
    brokers_min = 5          # brokers with rows
    rows_per_broker = 1000   # of each of these, at least
    quarantined = 0.01       # share of rows and files that were rejected, at most
    skew = "2s"              # clocks differ by at most this
    newer_schema = false     # whether files of a newer schema version may be there

What is left out is not checked. Only small tables of the run are read, without Spark.
"""

import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from overlane.errors import ConfigError, Fault
from overlane.pipeline.output_directory import Run
from overlane.pipeline.units import HOUR_S, MINUTE_S

NEWER_SCHEMA = "schema version "
_UNITS_S = {"s": 1, "m": MINUTE_S, "h": HOUR_S, "d": 24 * HOUR_S}


class Expectations(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    freshness: str | None = None
    brokers_min: int | None = None
    rows_per_broker: int | None = None
    quarantined: float | None = None
    skew: str | None = None
    newer_schema: bool = True


def read_expectations(file: Path) -> Expectations:
    """From a TOML file; ConfigError."""
    try:
        found = msgspec.convert(tomllib.loads(file.read_text()), Expectations)
        for text in (found.freshness, found.skew):
            if text is not None:
                seconds(text)
    except OSError as refused:
        raise ConfigError([Fault(str(file), 0, "", "nothing", refused.strerror or "a file")]) from None
    except (ValueError, msgspec.ValidationError) as wrong:
        raise ConfigError([Fault(str(file), 0, "expectations", str(wrong), "numbers, and times such as 15m")]) from None
    return found


def seconds(text: str) -> float:
    """`90s`, `15m`, `2h`, `1d`; ValueError."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS_S:
        raise ValueError(f"{text!r} is not a time")
    return float(number) * _UNITS_S[unit]


def unmet(given: Expectations, run: Run, now_ns: int) -> list[str]:
    """What is not as expected, a sentence each."""
    files = _rows(run, "lake_files")
    found = _of_files(given, files, now_ns)
    rejected = _rows(run, "quarantine", ["reason"])
    if given.quarantined is not None:
        rows = sum(row["rows"] or 1 for row in files)
        share = len(rejected) / max(1, rows)
        if share > given.quarantined:
            found.append(f"{share:.2%} of the rows were rejected; expected at most {given.quarantined:.2%}")
    if not given.newer_schema:
        newer = sorted({row["reason"] for row in rejected if row["reason"].startswith(NEWER_SCHEMA)})
        found += [f"files of {reason}" for reason in newer]
    if given.skew is not None:
        worst: dict[str, int] = defaultdict(int)
        for row in _rows(run, "clock_offsets"):
            worst[row["broker"]] = max(worst[row["broker"]], abs(row["offset_s"]))
        wrong = sorted(broker for broker, offset_s in worst.items() if offset_s > seconds(given.skew))
        found += [f"the clock of {name} is off by {worst[name]} s; expected at most {given.skew}" for name in wrong]
    return found


def _of_files(given: Expectations, files: list[dict[str, Any]], now_ns: int) -> list[str]:
    found = []
    last_ns = max((row["last_ns"] for row in files if row["last_ns"] is not None), default=0)
    age_s = (now_ns - last_ns) / 1e9
    if given.freshness is not None and age_s > seconds(given.freshness):
        found.append(f"the newest row is {age_s:,.0f} s old; expected at most {given.freshness}")
    rows: dict[str, int] = defaultdict(int)
    for row in files:
        if row["broker"] is not None:
            rows[row["broker"]] += row["rows"] - row["faults"]
    if given.brokers_min is not None and len(rows) < given.brokers_min:
        found.append(f"{len(rows)} brokers have written; expected at least {given.brokers_min}")
    if given.rows_per_broker is not None:
        few = sorted(broker for broker, count in rows.items() if count < given.rows_per_broker)
        found += [f"{broker} has {rows[broker]:,} rows; expected at least {given.rows_per_broker:,}" for broker in few]
    return found


def _rows(run: Run, table: str, columns: list[str] | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(run.tables / table, columns=columns).to_pylist()
    return found
