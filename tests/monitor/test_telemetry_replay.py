"""Days of an overlay are shown from its telemetry: brokers, links, topics and what happened, step by step."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from overlane.cli.main import app
from overlane.core.units import MS, SECOND
from overlane.errors import Unavailable
from overlane.monitor.history import Head
from overlane.monitor.overlay_state import OverlayDelta, OverlayState, apply_delta
from overlane.monitor.telemetry_replay import Period, period_of, replay, rows_of
from overlane.network import parse_network
from overlane.telemetry.lake_history import last_row_ns, read_history
from overlane.telemetry.rows import DeliveryRow, Event, LinkSample, QueueDepth, Row, TopicRate
from overlane.telemetry.schema import record_batch

NOON = 1_760_000_000 // 86_400 * 86_400 * SECOND + 86_400 * SECOND // 2
HOUR = 3_600 * SECOND
NETWORK = parse_network("""
[brokers.a]
domain = "here"
[brokers.b]
[brokers.c]
[[links]]
ends = ["a", "b"]
latency = "10ms"
[topics."alarms/#"]
deadline = "60ms"
reliability = "reliable"
""")


def write(lake: Path, table: str, broker: str, rows: Sequence[Row]) -> None:
    """A file for each day, as a broker makes them."""
    by_day: dict[str, list[Row]] = {}
    for row in rows:
        by_day.setdefault(f"date={datetime.fromtimestamp(row.at_ns / SECOND, UTC):%Y-%m-%d}", []).append(row)
    for day, some in by_day.items():
        directory = lake / table / day
        directory.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(record_batch(table, broker, 1, some)), directory / f"{broker}-1-1.parquet")


def link(at_s: float, peer: str, state: str, latency_ms: float | None) -> LinkSample:
    latency_ns = None if latency_ms is None else int(latency_ms * MS)
    return LinkSample(NOON + int(at_s * SECOND), SECOND, peer, state, latency_ns, latency_ns, 0.0, 0, 7, 9, 0, 1_250)


def delivery(at_s: float, age_ms: float, weight: int) -> DeliveryRow:
    age_ns, deadline_ns = int(age_ms * MS), 60 * MS
    in_time = age_ns <= deadline_ns
    at_ns = NOON + int(at_s * SECOND)
    return DeliveryRow(at_ns, "alarms/1", "a", age_ns, deadline_ns, in_time, True, "adaptive", 1, 1, ("a", "b"), weight)


def queue(at_s: float, messages: int = 0, kind: str = "clients") -> QueueDepth:
    return QueueDepth(NOON + int(at_s * SECOND), kind, None, messages, 0, None)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A minute of two brokers: the link is slow from 20 s on, b records nothing from 40 s on, and c never does."""
    seconds = range(60)
    write(tmp_path, "queues", "a", [queue(at, at) for at in seconds] + [queue(at, 999, "link") for at in seconds])
    write(tmp_path, "queues", "b", [queue(at) for at in seconds if at < 40])
    write(tmp_path, "links", "a", [link(at, "b", "up", 10 if at < 20 else 50) for at in seconds])
    write(tmp_path, "links", "b", [link(at, "a", "suspect" if at == 5 else "up", None) for at in seconds if at < 40])
    rates = [TopicRate(NOON + at * SECOND, SECOND, "alarms/1", 10, 10, 0, 0, 0, 0) for at in seconds]
    rates += [TopicRate(NOON + at * SECOND, SECOND, "other", 1, 1, 0, 0, 3, 3) for at in seconds if at < 10]
    write(tmp_path, "topic_rates", "a", rates)
    write(tmp_path, "deliveries", "b", [delivery(1, 10, 90), delivery(2, 100, 10), delivery(35, 20, 5)])
    route: dict[str, Any] = {"route": 4, "version": 2, "deadline_ns": 60 * MS, "reliable": True, "destinations": ("b",)}
    happened: list[Event] = [
        Event(
            NOON + 21 * SECOND, "route", reason="a quicker way", paths=(("a", "c", "b"),), links=(("a", "c"),), **route
        ),
        Event(NOON + 30 * SECOND, "link", peer="b", state="failed"),
        Event(NOON + 31 * SECOND, "client-dropped", reason="queue full", times=3),
    ]
    write(tmp_path, "events", "a", happened)
    return tmp_path


def played(lake: Path, period: Period) -> tuple[Head, list[OverlayState], list[OverlayDelta]]:
    found = read_history(str(lake), period.from_ns, period.until_ns, period.step_ns, rows_of(NETWORK))
    head, changes = replay(NETWORK, found, period, "test")
    states = [head.picture]
    for change in changes[1:]:
        states.append(apply_delta(states[-1], change))
    return head, states, changes


MINUTE = Period(NOON, NOON + 60 * SECOND, 10 * SECOND)


def test_each_step_has_the_brokers_links_and_topics_of_its_time(lake: Path) -> None:
    head, states, _ = played(lake, MINUTE)
    assert (head.began_ms, head.step_s, head.until_s, head.is_live) == (NOON // MS, 10.0, 60.0, False)
    assert [one.at_s for one in states] == [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
    assert [one.brokers["a"].state for one in states] == ["serving"] * 6
    assert [one.brokers["b"].state for one in states] == ["serving"] * 4 + ["lost"] * 2
    assert {one.brokers["c"].state for one in states} == {"unknown"}
    assert (states[0].brokers["a"].domain, states[0].brokers["a"].queue_messages) == ("here", 9)
    assert (states[0].brokers["a"].in_hz, states[0].brokers["a"].out_hz) == (11.0, 3.0)
    ways = [one.links["a|b"].ways for one in states]
    assert [there.latency_ms for there, _ in ways] == [10.0, 10.0, 50.0, 50.0, 50.0, 50.0]
    assert [back.state for _, back in ways] == ["suspect", "up", "up", "up", "unknown", "unknown"]
    assert (ways[0][0].rate_bps, ways[0][0].queue_bytes) == (10_000.0, 7)


def test_topics_are_counted_under_the_filters_of_the_file_with_percentiles_within_five_per_cent(lake: Path) -> None:
    _, states, _ = played(lake, MINUTE)
    first = states[0].topics["alarms/#"]
    assert (first.rate_hz, first.deadline_ms, first.reliable) == (10.0, 60.0, True)
    assert (first.lately.delivered, first.lately.in_time) == (100, 90)
    assert first.lately.p50_ms == pytest.approx(10.0, rel=0.06)
    assert first.lately.p99_ms == pytest.approx(100.0, rel=0.06)
    assert (states[-1].topics["alarms/#"].total.delivered, states[-1].topics["alarms/#"].lately.delivered) == (105, 0)
    assert states[-1].topics["(other topics)"].total.published == 10


def test_what_happened_is_on_the_timeline_with_routes_as_they_were(lake: Path) -> None:
    _, states, changes = played(lake, MINUTE)
    told = [(one.at_s, one.text) for change in changes for one in change.happenings]
    assert (21.0, "alarms/# now over a → c → b") in told
    assert (30.0, "a - b has failed") in told
    assert (50.0, "b is lost") in told
    assert [list(one.routes) for one in states] == [[], [], ["a/4"], ["a/4"], ["a/4"], ["a/4"]]
    assert states[-1].routes["a/4"].paths == {"b": (("a", "c", "b"),)}


def test_a_broker_that_stops_and_starts_is_not_called_lost(lake: Path) -> None:
    write(lake, "queues", "c", [queue(at) for at in (*range(15), *range(45, 60))])
    events = [Event(NOON, "broker-started"), Event(NOON + 15 * SECOND, "broker-stopped")]
    write(lake, "events", "c", [*events, Event(NOON + 44 * SECOND, "broker-started")])
    _, states, changes = played(lake, MINUTE)
    told = [(one.at_s, one.text) for change in changes for one in change.happenings if one.brokers == ("c",)]
    assert told == [(0.0, "c has started"), (15.0, "c has stopped"), (44.0, "c has started")]
    assert [one.brokers["c"].state for one in states] == ["serving", "serving", "lost", "lost", "serving", "serving"]
    assert states[2].brokers["c"].why == "it has stopped"


def test_a_period_over_midnight_reads_the_files_of_both_days(lake: Path) -> None:
    midnight = NOON + 12 * HOUR
    write(lake, "queues", "c", [queue(at) for at in (12 * 3_600 - 5, 12 * 3_600 + 5)])
    _, states, _ = played(lake, Period(midnight - 10 * SECOND, midnight + 10 * SECOND, 10 * SECOND))
    assert [one.brokers["c"].state for one in states] == ["serving", "serving"]
    assert {one.brokers["a"].state for one in states} == {"unknown"}
    assert last_row_ns(str(lake)) == midnight + 5 * SECOND


def test_days_have_steps_of_minutes_and_a_short_time_steps_of_ten_seconds() -> None:
    days = period_of(NETWORK, NOON, 72 * HOUR)
    assert (days.step_ns, days.steps) == (180 * SECOND, 1_440)
    assert period_of(NETWORK, NOON + 3 * SECOND, 60 * SECOND) == Period(
        NOON - 50 * SECOND, NOON + 10 * SECOND, 10 * SECOND
    )


def test_a_place_without_telemetry_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no broker has recorded anything there"):
        last_row_ns(str(tmp_path))


def test_the_command_refuses_a_place_without_telemetry_with_its_reason(tmp_path: Path) -> None:
    file = tmp_path / "net.toml"
    file.write_text("[brokers.a]\n")
    shown: Any = CliRunner().invoke(app, ["monitor", str(file), "--telemetry", str(tmp_path), "--last", "2d"])
    assert shown.exit_code == 1
    assert "no broker has recorded anything there" in shown.output
