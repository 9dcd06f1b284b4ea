"""The timeline: what is told of what happens, once, in words."""

from overlane.monitor.overlay_state import Link, LinkDirection
from overlane.monitor.timeline import SAMPLES_MIN, Timeline


def told(timeline: Timeline) -> list[tuple[str, str, float | None]]:
    return [(one.weight, one.text, one.after_ms) for one in timeline.take()]


def test_what_both_ends_of_a_link_tell_is_told_once() -> None:
    timeline = Timeline()
    timeline.link(1.0, "a", "b", "suspect")
    timeline.link(1.1, "b", "a", "suspect")
    timeline.link(9.0, "b", "a", "suspect")
    assert told(timeline) == [("warning", "a - b is suspected", None), ("warning", "a - b is suspected", None)]


def test_that_a_link_came_up_for_the_first_time_is_no_news() -> None:
    timeline = Timeline()
    timeline.link(1.0, "a", "b", "up")
    timeline.link(2.0, "a", "b", "failed")
    timeline.link(3.0, "a", "b", "up")
    assert told(timeline) == [("bad", "a - b has failed", None), ("good", "a - b is up", None)]


def test_what_happens_soon_after_a_deed_is_set_against_it() -> None:
    timeline = Timeline()
    timeline.action(10.0, "a - b is cut", ("a", "b"), "a|b")
    timeline.route(10.057, "a", ["alarms/#"], ["c"], {"c": [["a", "d", "c"]]}, "no answer in time over link a-b")
    timeline.broker(30.0, "bad", "d", "is lost", "connection refused")
    assert told(timeline) == [
        ("note", "a - b is cut", None),
        ("note", "alarms/# now over a → d → c", 57),
        ("bad", "d is lost", None),
    ]


def test_a_route_without_a_way_is_bad_news() -> None:
    timeline = Timeline()
    timeline.route(1.0, "a", ["alarms/#"], ["b", "c"], {"b": [], "c": []}, "link a-b failed")
    assert told(timeline) == [("bad", "alarms/# from a cannot reach b, c", None)]


def test_happenings_are_told_in_the_order_of_time_and_only_once() -> None:
    timeline = Timeline()
    timeline.broker(2.0, "good", "b", "answers again")
    timeline.broker(1.0, "bad", "a", "is lost")
    assert [one.at_s for one in timeline.take()] == [1.0, 2.0]
    assert timeline.take() == ()


def link_of(latency_ms: float) -> dict[str, Link]:
    way = LinkDirection(state="up", latency_ms=latency_ms)
    return {"a|b": Link(ends=("a", "b"), state="up", ways=(way, way))}


def test_a_link_is_slow_when_it_stays_slow_and_quick_when_it_stays_quick() -> None:
    timeline = Timeline()
    for latency_ms in (14.0, 14.0, 80.0, 14.0, 14.0):
        timeline.measured(0.0, link_of(latency_ms))
    assert told(timeline) == []
    for _ in range(SAMPLES_MIN + 2):
        timeline.measured(1.0, link_of(80.0))
    for _ in range(SAMPLES_MIN + 2):
        timeline.measured(2.0, link_of(14.0))
    assert [text for _, text, _ in told(timeline)] == [
        "a - b is slow: 80 ms instead of 14 ms",
        "a - b is back to normal: 14 ms",
    ]
