"""What a run says of failures and rates, as a plan that brokers take."""

from typing import Any

import msgspec
import pytest

from overlane.network.plan import BadPlan, PairForecast, Plan, check_plan, read_plan
from overlane.pipeline.plans.broker_plan import brokers_plan

HOUR_NS = 3_600 * 10**9
FILES: list[dict[str, Any]] = [{"first_ns": 10 * HOUR_NS, "last_ns": 13 * HOUR_NS}, {"first_ns": None, "last_ns": None}]
RELIABILITY: list[dict[str, Any]] = [
    {"kind": "broker", "broker": "a", "peer": None, "failure": 0.02, "failure_planned": 0.01},
    {"kind": "link", "broker": "a", "peer": "b", "failure": 1.0, "failure_planned": 1.0},
    {"kind": "link", "broker": "a", "peer": "c", "failure": 0.04, "failure_planned": None},
]
LOAD: list[dict[str, Any]] = [
    {"topic": "quiet", "mean": 1.0, "bytes_mean": 64.0},
    {"topic": "busy", "mean": 9.0, "bytes_mean": 900.0},
]


def test_a_plan_has_what_there_is_evidence_of_and_is_of_the_end_of_its_history() -> None:
    plan = brokers_plan(RELIABILITY, LOAD, FILES)
    assert plan is not None
    check_plan(plan)
    assert read_plan(msgspec.json.encode(plan)) == plan
    assert (plan.made_ns, plan.source) == (13 * HOUR_NS, "telemetry of 3.0 hours")
    assert plan.failure_of("a") == 0.01
    assert [link.ends for link in plan.links] == [("a", "b")], "what there is no evidence of is not named"
    assert list(plan.topics) == ["busy", "quiet"]


def test_a_link_that_was_always_down_is_not_certain_to_be() -> None:
    plan = brokers_plan(RELIABILITY, [], FILES)
    assert plan is not None
    assert 0.99 < plan.failures_around("a")["b"] < 1


def test_brokers_that_fail_together_are_in_the_plan_and_links_are_not() -> None:
    pairs = [
        {"kind": "broker", "broker": "a", "other_kind": "broker", "other_broker": "b", "correlation": 0.6},
        {"kind": "broker", "broker": "a", "other_kind": "link", "other_broker": "b", "correlation": 0.9},
    ]
    plan = brokers_plan(RELIABILITY, LOAD, FILES, pairs)
    assert plan is not None
    assert plan.together == (PairForecast(("a", "b"), 0.6),)
    assert read_plan(msgspec.json.encode(plan)) == plan


def test_a_pair_that_fails_together_more_often_than_always_is_refused() -> None:
    for pair in (PairForecast(("a", "b"), 1.5), PairForecast(("a", "no name"), 0.5)):
        with pytest.raises(BadPlan, match="together"):
            check_plan(Plan(made_ns=1, together=(pair,)))


def test_no_history_is_no_plan() -> None:
    assert brokers_plan([], LOAD, FILES) is None
    assert brokers_plan(RELIABILITY, LOAD, []) is None
