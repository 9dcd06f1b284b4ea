"""Plan export: the tables of a run as problem files for `overlane plan`, and as the plan for brokers."""

from typing import Any

import msgspec
import pyarrow.parquet as pq

from overlane.network.plan import DomainForecast
from overlane.pipeline.output_directory import Run
from overlane.pipeline.plans.broker_plan import brokers_plan
from overlane.pipeline.plans.channels import channels_problem
from overlane.pipeline.plans.domain_forecast import domain_forecast
from overlane.pipeline.plans.load_forecast import load_forecast
from overlane.pipeline.settings import PipelineSettings

DEADLINE_MS = 200.0
BROKER_FAILURE, LINK_FAILURE = 0.001, 0.002
"""The defaults of the network file, where telemetry is no evidence yet."""


def rows_of(run: Run, table: str) -> list[dict[str, Any]]:
    """All rows of a small table."""
    found: list[dict[str, Any]] = pq.read_table(run.tables / table).to_pylist()
    return found


def write_plans(run: Run, settings: PipelineSettings) -> None:
    """allocate, casebase, paths, channels and brokers.json, each where there is something to plan."""
    for row in rows_of(run, "planning_problem"):
        problem = msgspec.json.format(row["problem"].encode(), indent=1)
        (run.plans / "allocate.json").write_bytes(problem)
        (run.plans / "casebase.json").write_bytes(problem)
    paths = paths_problem(rows_of(run, "reliability"))
    if paths is not None:
        (run.plans / "paths.json").write_bytes(msgspec.json.format(msgspec.json.encode(paths), indent=1))
    tables = ("reliability", "topic_load", "lake_files", "failure_pairs")
    plan = brokers_plan(*(rows_of(run, table) for table in tables))
    if plan is not None:
        plan = msgspec.structs.replace(plan, load=load_forecast(run))
        if settings.placement.filters:
            plan = msgspec.structs.replace(plan, domains=_domains(run, settings))
        (run.plans / "brokers.json").write_bytes(msgspec.json.format(msgspec.json.encode(plan), indent=1))
    interest = rows_of(run, "interest")
    if interest:
        (run.plans / "channels.json").write_bytes(channels_problem(interest, settings.channels))


def _domains(run: Run, settings: PipelineSettings) -> dict[str, DomainForecast]:
    """Where the items of the network file are placed, for the agents of their domain."""
    found: dict[str, DomainForecast] = {}
    for row in rows_of(run, "planning_problem"):
        forecast = domain_forecast(row["problem"], rows_of(run, "normal_plan"), rows_of(run, "case_base"))
        if forecast is not None:
            found[settings.domain] = forecast
    return found


def paths_problem(reliability: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The network with its failure probabilities. From where to where, and how fast, is for the reader to change."""
    links = sorted(
        (row for row in reliability if row["kind"] == "link" and row["latency_ms"] is not None),
        key=lambda row: (row["broker"], row["peer"]),
    )
    if not links:
        return None
    failures = {row["broker"]: _planned(row, BROKER_FAILURE) for row in reliability if row["kind"] == "broker"}
    names = sorted({row[end] for row in links for end in ("broker", "peer")} | set(failures))
    return {
        "brokers": {name: {"failure": failures.get(name, BROKER_FAILURE)} for name in names},
        "links": [
            {
                "ends": [row["broker"], row["peer"]],
                "latency_ms": row["latency_ms"],
                "failure": _planned(row, LINK_FAILURE),
            }
            for row in links
        ],
        "source": names[0],
        "destination": names[-1],
        "deadline_ms": DEADLINE_MS,
    }


def _planned(row: dict[str, Any], default: float) -> float:
    return default if row["failure_planned"] is None else float(row["failure_planned"])
