"""Where late deliveries lost their time, as the report tells it."""

from typing import Any

from overlane.pipeline.report.delays import Delay, delays, hours_text

NINE = 1_767_603_600
"""9 o'clock UTC on 5 January 2026."""
HOUR_S = 3_600


def row(
    kind: str, broker: str, peer: str | None, hour: int, late: int, spent_ms: float, share: float
) -> dict[str, Any]:
    return {
        "kind": kind,
        "broker": broker,
        "peer": peer,
        "hour_s": NINE + hour * HOUR_S,
        "late_deliveries": late,
        "spent_ms": spent_ms,
        "share": share,
    }


def test_what_lost_most_time_is_first_however_many_late_deliveries_passed_the_others() -> None:
    passed = [row("link", "a", f"good-{number}", 0, 10_000, 0.5, 0.01) for number in range(12)]
    slow = [row("link", "b", "c", 0, 800, 60.0, 0.8), row("link", "c", "b", 1, 200, 60.0, 0.75)]
    queue = [row("broker", "d", None, 3, 500, 20.0, 0.4), row("broker", "d", None, 1, 500, 20.0, 0.01)]
    found = delays([*passed, *slow, *queue])
    assert [delay.where for delay in found] == ["b - c", "d"]
    link, broker = found
    assert (link.late, link.lost_s, link.hours) == (1_000, 60.0, (NINE, NINE + HOUR_S))
    assert abs(link.share - 60 / (48 / 0.8 + 12 / 0.75)) < 1e-12
    assert (broker.lost_s, broker.hours) == (10.0, (NINE + 3 * HOUR_S,))


def test_nothing_late_is_no_delay() -> None:
    none: list[Delay] = []
    assert delays([row("link", "a", "b", 0, 0, 0.0, 0.0)]) == none


def test_hours_that_follow_each_other_are_one_span() -> None:
    hours = [NINE + HOUR_S * hour for hour in (1, 0, 5, 24, 26, 28, 30, 32, 0)]
    assert hours_text(hours) == (
        "5 Jan 09:00-11:00, 5 Jan 14:00-15:00, 6 Jan 09:00-10:00, 6 Jan 11:00-12:00 and 3 more"
    )
    assert hours_text([]) == ""
