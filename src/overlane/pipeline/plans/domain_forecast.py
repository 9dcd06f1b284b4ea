"""The plan of a domain for its management agents: allocation, mirrors and case base, from the tables of a run."""

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from overlane.network.plan import CapacityForecast, DomainForecast, ItemForecast, StateForecast

BYTES_MAX = 8 << 20
"""Brokers accept plans of 16 MiB."""


def domain_forecast(
    problem: str, places: Iterable[dict[str, Any]], states: Iterable[dict[str, Any]]
) -> DomainForecast | None:
    """None if the problem has no solution. States with the most failures are left out if the case base is too large:
    agents solve them when they occur."""
    normal = {row["item"]: row for row in places}
    if not normal:
        return None
    given = json.loads(problem)
    forecast = DomainForecast(
        items=tuple(ItemForecast(one["name"], one["mean"]) for one in given["items"]),
        covariance=tuple(tuple(row[: number + 1]) for number, row in enumerate(given["covariance"])),
        brokers=tuple(CapacityForecast(one["name"], one["capacity"]) for one in given["brokers"]),
        primary={item: row["primary"] for item, row in normal.items()},
        mirror={item: row["mirror"] for item, row in normal.items() if row["mirror"]},
        states=tuple(_state(row) for row in sorted(states, key=lambda row: row["state"])),
        risk_max=given["risk_max"],
    )
    while len(msgspec.json.encode(forecast)) > BYTES_MAX and forecast.states:
        most = max(len(state.failed) for state in forecast.states)
        fewer = tuple(state for state in forecast.states if len(state.failed) < most)
        forecast = msgspec.structs.replace(forecast, states=fewer)
    return forecast


def _state(row: dict[str, Any]) -> StateForecast:
    return StateForecast(
        failed=tuple(row["failed"]),
        primary=dict(row["primary"]),
        mirror={item: broker for item, broker in dict(row["mirror"]).items() if broker},
        status=row["status"],
        risk={broker: round(risk, 9) for broker, risk in dict(row["risk"]).items()},
    )
