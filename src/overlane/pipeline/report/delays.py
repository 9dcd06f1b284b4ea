"""Delays: where late deliveries lost their time, over all hours, and hours as short text.

`bottlenecks` has a row per hour. Here the hours of a link or broker are added up, and what lost the most time is first:
many deliveries that passed a good link say nothing about it. Hours are left out in which it took less than a twentieth
of the age of the late deliveries that passed it.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from overlane.pipeline.units import HOUR_S

SHARE_MIN = 0.05
HOURS_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Delay:
    """Late deliveries spent `lost_s` here altogether; that is `share` of their age."""

    where: str
    late: int
    lost_s: float
    share: float
    hours: tuple[int, ...]


def delays(bottlenecks: Iterable[dict[str, Any]]) -> list[Delay]:
    """The links and brokers, worst first. A link has one delay, whichever way messages passed it."""
    by_place: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in bottlenecks:
        if (row["share"] or 0.0) >= SHARE_MIN:
            by_place[_place(row)].append(row)
    found = [_added_up(where, rows) for where, rows in by_place.items()]
    return sorted(found, key=lambda delay: (-delay.lost_s, delay.where))


def _added_up(where: str, rows: list[dict[str, Any]]) -> Delay:
    lost_ms = [row["spent_ms"] * row["late_deliveries"] for row in rows]
    age_ms = sum(lost / row["share"] for lost, row in zip(lost_ms, rows, strict=True))
    late = sum(row["late_deliveries"] for row in rows)
    hours = sorted({row["hour_s"] for row in rows})
    return Delay(where, late, sum(lost_ms) / 1e3, sum(lost_ms) / age_ms if age_ms else 0.0, tuple(hours))


def _place(row: dict[str, Any]) -> str:
    if row["kind"] == "broker":
        return name_of(row)
    broker, peer = sorted((row["broker"], row["peer"]))
    return name_of({**row, "broker": broker, "peer": peer})


def name_of(row: dict[str, Any]) -> str:
    return str(row["broker"]) if row["kind"] == "broker" else f"{row['broker']} - {row['peer']}"


def hours_text(hours: Iterable[int]) -> str:
    """Hours that follow each other as one span: `5 Jan 10:00-12:00`; the first few of many spans."""
    spans: list[list[int]] = []
    for hour_s in sorted(set(hours)):
        if spans and spans[-1][1] == hour_s:
            spans[-1][1] = hour_s + HOUR_S
        else:
            spans.append([hour_s, hour_s + HOUR_S])
    shown = [f"{_day(start)} {_clock(start)}-{_clock(end)}" for start, end in spans[:HOURS_SHOWN]]
    more = len(spans) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _day(at_s: int) -> str:
    at = datetime.fromtimestamp(at_s, UTC)
    return f"{at.day} {at:%b}"


def _clock(at_s: int) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%H:%M}"
