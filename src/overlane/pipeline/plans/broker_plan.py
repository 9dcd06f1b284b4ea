"""The plan for brokers, made from the tables of a run; `overlane plan apply` applies it."""

from collections.abc import Iterable
from typing import Any

from overlane.network.plan import BrokerForecast, LinkForecast, PairForecast, Plan, TopicForecast

FAILURE_MAX = 0.999_999
TOPICS_MAX = 10_000
"""Only the topics with the highest rates, to bound the size of a plan."""


def brokers_plan(
    reliability: list[dict[str, Any]],
    topic_load: list[dict[str, Any]],
    files: list[dict[str, Any]],
    pairs: Iterable[dict[str, Any]] = (),
) -> Plan | None:
    """Failure probabilities and rates from telemetry; None if there is no telemetry.

    A broker or link is named only if there is evidence (`analysis.reliability`), a pair of brokers only if chance does
    not explain how often they fail together (`analysis.co_failures`).
    """
    times = [row[end] for row in files for end in ("first_ns", "last_ns") if row[end] is not None]
    if not times or not reliability:
        return None
    hours = (max(times) - min(times)) / 3.6e12
    evident = [row for row in reliability if row["failure_planned"] is not None]
    busiest = sorted(topic_load, key=lambda row: (-row["mean"], row["topic"]))[:TOPICS_MAX]
    return Plan(
        made_ns=max(times),
        source=f"telemetry of {hours / 24:.1f} days" if hours >= 48 else f"telemetry of {hours:.1f} hours",
        brokers={row["broker"]: BrokerForecast(_share(row)) for row in evident if row["kind"] == "broker"},
        links=tuple(
            LinkForecast((row["broker"], row["peer"]), _share(row)) for row in evident if row["kind"] == "link"
        ),
        topics={row["topic"]: TopicForecast(row["mean"], row["bytes_mean"]) for row in busiest},
        together=tuple(
            PairForecast((row["broker"], row["other_broker"]), round(min(1.0, float(row["correlation"])), 6))
            for row in pairs
            if row["kind"] == row["other_kind"] == "broker"
        ),
    )


def _share(row: dict[str, Any]) -> float:
    return round(min(max(float(row["failure_planned"]), 0.0), FAILURE_MAX), 6)
