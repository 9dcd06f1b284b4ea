"""Minutes as they pass, and alerts where a topic falls below its target."""

import json
from typing import Any

import pytest

from overlane.pipeline.analysis.live_compliance import JUDGED_MIN, alerts, minutes
from sparks import PARTS, the_spark

pytestmark = [PARTS, pytest.mark.slow]

SECOND_NS = 10**9
START_S = 1_790_000_040
"""The start of a minute."""

COLUMNS = "at_ns bigint, topic string, age_ns bigint, in_time boolean, weight bigint, fault string"


def delivery(at_s: float, in_time: bool | None, topic: str = "alarms", weight: int = 1) -> tuple[Any, ...]:
    return int((START_S + at_s) * SECOND_NS), topic, 30_000_000 if in_time else 90_000_000, in_time, weight, None


def told(rows: list[tuple[Any, ...]]) -> dict[tuple[int, str], tuple[int, int]]:
    found = minutes(the_spark().createDataFrame(rows, COLUMNS)).collect()
    return {((row.minute_s - START_S) // 60, row.topic): (row.judged, row.in_time) for row in found}


def test_deliveries_count_in_the_minute_of_their_own_time_and_for_all_they_stand_for() -> None:
    rows = [delivery(1, True, weight=5), delivery(59.9, False), delivery(60, True), delivery(61, True, "reports")]
    assert told(rows) == {(0, "alarms"): (6, 5), (1, "alarms"): (1, 1), (1, "reports"): (1, 1)}


def test_what_has_no_deadline_or_is_faulty_is_not_judged() -> None:
    faulty = (*delivery(3, True)[:5], "a negative age")
    assert told([delivery(1, None), faulty, delivery(2, True)]) == {(0, "alarms"): (1, 1)}


def test_an_alert_tells_the_topic_the_minute_and_by_how_much() -> None:
    rows = [delivery(second / 10, second % 10 != 0) for second in range(100)]
    rows += [delivery(second / 10, True, "reports") for second in range(100)]
    rows += [delivery(1, False, "rare")] * (JUDGED_MIN - 1)
    (alert,) = alerts(minutes(the_spark().createDataFrame(rows, COLUMNS)), 0.95, "ops/alerts").collect()
    assert alert.topic == "ops/alerts"
    body = json.loads(alert.payload)
    assert (body["topic"], body["minute_s"], body["judged"], body["target"]) == ("alarms", START_S, 100, 0.95)
    assert body["in_time_rate"] == pytest.approx(0.9)
