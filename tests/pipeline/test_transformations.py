"""Each transformation by itself, on a few rows."""

import re
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

from overlane.pipeline import quarantine
from overlane.pipeline.analysis import (
    clock_skew,
    co_failures,
    compliance,
    interest,
    intervals,
    load,
    load_series,
    reliability,
    reserved_flows,
)
from overlane.pipeline.columns import columns
from overlane.pipeline.schemas import INGESTED, TABLES
from overlane.pipeline.units import SECOND_NS
from sparks import PARTS, the_spark

pytestmark = [PARTS, pytest.mark.slow]

SEED = 11
OLD_S, YOUNG_S = 1_000_000, 1_000


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return the_spark()


START_S = 1_767_571_200
"""The beginning of a day, and so of an hour, a window and a chunk."""


def frame(spark: SparkSession, table: str, *rows: dict[str, Any]) -> DataFrame:
    schema = INGESTED.get(table) or TABLES[table]
    return spark.createDataFrame([tuple(row.get(name) for name in schema.fieldNames()) for row in rows], schema)


def told(found: DataFrame, *names: str) -> list[Any]:
    return sorted((tuple(row[name] for name in names) for row in found.collect()), key=str)


def rate(second: int, topic: str, messages: int, broker: str = "a") -> dict[str, Any]:
    at_ns = (START_S + second + 1) * SECOND_NS + 300_000
    counts = dict.fromkeys(load.COUNTS, 0) | {"messages_in": messages, "bytes_in": 10 * messages}
    return {"at_ns": at_ns, "broker": broker, "incarnation": 1, "interval_ns": SECOND_NS, "topic": topic, **counts}


def mask(*seconds: int) -> int:
    return sum(1 << second for second in seconds)


def life(broker: str, minute: int, seen: int = (1 << 60) - 1) -> dict[str, Any]:
    return {"broker": broker, "minute_s": START_S + 60 * minute, "seen": seen}


def test_rows_that_two_files_tell_count_once_and_the_others_are_quarantined(spark: SparkSession) -> None:
    first = [rate(second, topic, 1) | {"file": "x-1", "row": second} for second, topic in enumerate(["t", "u", "v"])]
    again = [row | {"file": "x-2"} for row in first[1:]]
    other = rate(1, "w", 5) | {"file": "x-2", "row": 9}
    bad = rate(2, "x", -1) | {"file": "x-2", "row": 10, "fault": "negative messages_in"}
    raw = {"topic_rates": frame(spark, "topic_rates", *first, *again, other, bad)}
    files = quarantine.lake_files(raw)
    assert told(files, "file", "rows", "faults") == [("x-1", 3, 0), ("x-2", 4, 1)]
    repeated = quarantine.repeats(raw, files)
    assert told(repeated, "file", "row") == [("x-2", 1), ("x-2", 2)]
    good = quarantine.good(raw["topic_rates"], "topic_rates", repeated)
    assert told(good, "topic", "messages_in") == [("t", 1), ("u", 1), ("v", 1), ("w", 5)]
    refused = quarantine.quarantine(raw, repeated)
    assert told(refused, "row", "reason") == [(1, "repeated"), (10, "negative messages_in"), (2, "repeated")]


def test_rows_are_found_again_in_whichever_files_overlap(spark: SparkSession) -> None:
    """Files of any lengths, most of which overlap with none: a row is a repetition where another file has it too."""
    print(f"seed {SEED}")
    rng = np.random.default_rng(SEED)
    rows: list[dict[str, Any]] = []
    told: dict[int, list[tuple[str, int]]] = {}
    expected: set[tuple[str, int]] = set()
    for number in range(60):
        start = int(rng.integers(0, 3_000))
        for row, second in enumerate(range(start, start + int(rng.integers(1, 40)))):
            file = f"x-{number:02d}"
            rows.append(rate(second, "t", 1) | {"file": file, "row": row})
            told.setdefault(second, []).append((file, row))
    for places in told.values():
        expected |= set(sorted(places)[1:])
    raw = {"topic_rates": frame(spark, "topic_rates", *rows)}
    found = quarantine.repeats(raw, quarantine.lake_files(raw))
    assert {(row.file, row.row) for row in found.collect()} == expected
    assert 0 < len(expected) < len(rows) / 2


def test_hours_count_silent_seconds_as_zeros(spark: SparkSession) -> None:
    windows = load.load_windows(frame(spark, "topic_rates", rate(0, "t", 30), rate(59, "t", 30), rate(900, "t", 60)))
    assert told(windows, "window_s", "messages_in", "seconds") == [(START_S, 60, 2), (START_S + 900, 60, 1)]
    lives = frame(spark, "alive", life("a", 0), life("b", 0), life("a", 15))
    assert told(load.load_hours(windows, lives), "topic", "messages", "messages_per_second") == [("t", 120, 1.0)]


def test_the_busiest_windows_are_the_peak(spark: SparkSession) -> None:
    loads = [1, 1, 2, 9, 8, 1, 1, 2, 1, 1, 1, 9]
    windows = frame(
        spark,
        "load_windows",
        *(
            {"window_s": START_S + 900 * n, "broker": "a", "topic": "t", "messages_in": 60 * m}
            for n, m in enumerate(loads)
        ),
    )
    lives = frame(spark, "alive", *(life("a", 15 * n) for n in range(len(loads))))
    found = load.peaks(windows, lives, "west")
    assert told(found, "domain", "start_s", "end_s", "messages_per_second") == [
        ("west", START_S + 2_700, START_S + 4_500, 8.5),
        ("west", START_S + 9_900, START_S + 10_800, 9.0),
    ]


def test_where_no_window_stands_out_all_of_them_are_the_peak(spark: SparkSession) -> None:
    windows = frame(
        spark,
        "load_windows",
        *({"window_s": START_S + 900 * n, "broker": "a", "topic": "t", "messages_in": 6_000 + n % 2} for n in range(8)),
    )
    lives = frame(spark, "alive", *(life("a", 15 * n) for n in range(8)))
    assert told(load.peaks(windows, lives, "west"), "start_s", "end_s") == [(START_S, START_S + 7_200)]


def test_series_have_zeros_where_a_topic_was_silent_and_nothing_where_nobody_looked(spark: SparkSession) -> None:
    rates = frame(spark, "topic_rates", rate(0, "t", 3), rate(2, "t", 4), rate(2, "t", 5, "b"), rate(61, "u", 7))
    peaks = spark.createDataFrame([("west", START_S, START_S + 900, 1.0)], TABLES["peaks"])
    lives = frame(spark, "alive", life("a", 0, mask(0, 1, 2)), life("b", 0, mask(2, 4)), life("a", 1, mask(1)))
    chunks = load_series.load_chunks(lives, peaks)
    assert told(chunks, "chunk_s", "seconds") == [(START_S, [0, 1, 2, 4, 61])]
    found = load_series.load_series(rates, peaks, chunks)
    assert told(found, "topic", "total", "squares") == [("t", 12.0, 90.0), ("u", 7.0, 49.0)]
    rates_of = {row.topic: np.frombuffer(row.rates).tolist() for row in found.collect()}
    assert rates_of == {"t": [3.0, 0.0, 9.0, 0.0, 0.0], "u": [0.0, 0.0, 0.0, 0.0, 7.0]}


def link(second: int, broker: str, peer: str, state: str = "up") -> dict[str, Any]:
    at_ns = (START_S + second + 1) * SECOND_NS + 300_000
    latency = None if state == "failed" else 5_000_000
    counts = {"queue_bytes": 10, "queue_bytes_max": 10, "interval_ns": SECOND_NS}
    return {"at_ns": at_ns, "broker": broker, "peer": peer, "state": state, "latency_ns": latency, **counts}


def spans(found: DataFrame) -> list[Any]:
    return sorted(
        (
            row.kind,
            row.broker,
            row.peer,
            row.state,
            row.start_ns // SECOND_NS - START_S,
            row.end_ns // SECOND_NS - START_S,
        )
        for row in found.collect()
    )


def test_a_link_is_down_while_either_end_says_so(spark: SparkSession) -> None:
    rows = [link(second, "a", "b", "failed" if 20 <= second < 32 else "up") for second in range(120)]
    rows += [link(second, "b", "a", "failed" if 22 <= second < 35 else "up") for second in range(120)]
    minutes = intervals.link_minutes(frame(spark, "links", *rows))
    lives = frame(spark, "alive", *(life(broker, minute) for broker in "ab" for minute in (0, 1)))
    found = intervals.intervals(lives, minutes, frame(spark, "events"))
    assert [span for span in spans(found) if span[0] == "link"] == [
        ("link", "a", "b", "down", 20, 35),
        ("link", "a", "b", "up", 0, 20),
        ("link", "a", "b", "up", 35, 120),
    ]


def test_rows_of_a_clock_that_is_wrong_are_corrected_and_one_outage_is_one(spark: SparkSession) -> None:
    """The clock of b is three seconds ahead; nothing but an outage of two seconds tells it."""
    ends = [("a", "b", 0), ("b", "a", 3), ("a", "c", 0), ("c", "a", 0)]
    rows = [
        link(second, one, other, "failed" if ahead + 20 <= second < ahead + 22 else "up")
        for one, other, ahead in ends
        for second in range(60)
    ]
    links = frame(spark, "links", *[row | {"incarnation": 1} for row in rows])
    offsets = clock_skew.clock_offsets(links)
    assert told(offsets, "broker", "hour_s", "offset_s", "links") == [
        ("a", START_S, 0, 2),
        ("b", START_S, 3, 1),
        ("c", START_S, 0, 1),
    ]
    minutes = intervals.link_minutes(clock_skew.corrected(links, "links", offsets))
    lives = frame(spark, "alive", *(life(broker, 0) for broker in "abc"))
    found = intervals.intervals(lives, minutes, frame(spark, "events"))
    assert [span for span in spans(found) if span[3] == "down"] == [
        ("link", "a", "b", "down", 20, 22),
        ("link", "a", "c", "down", 20, 22),
    ]


def test_a_link_is_not_blamed_for_the_death_of_its_broker(spark: SparkSession) -> None:
    rows = [link(second, "a", "b", "failed" if 20 <= second < 42 else "up") for second in range(60)]
    minutes = intervals.link_minutes(frame(spark, "links", *rows))
    dead = frame(spark, "alive", life("a", 0), life("b", 0, ((1 << 60) - 1) & ~mask(*range(20, 40))))
    found = intervals.intervals(dead, minutes, frame(spark, "events"))
    assert [span[1:] for span in spans(found) if span[3] != "up"] == [
        ("b", None, "down", 20, 40),
        ("a", "b", "broker", 20, 42),
    ]


def test_a_link_is_blamed_for_what_its_brokers_death_does_not_explain(spark: SparkSession) -> None:
    rows = [link(second, "a", "b", "failed" if 10 <= second < 110 else "up") for second in range(180)]
    minutes = intervals.link_minutes(frame(spark, "links", *rows))
    dead = [life("b", 0), life("b", 1, ((1 << 60) - 1) & ~mask(*range(4, 30))), life("b", 2)]
    lives = frame(spark, "alive", *dead, *(life("a", minute) for minute in range(3)))
    found = intervals.intervals(lives, minutes, frame(spark, "events"))
    assert [span[1:] for span in spans(found) if span[3] != "up"] == [
        ("b", None, "down", 64, 90),
        ("a", "b", "broker", 64, 90),
        ("a", "b", "down", 10, 64),
        ("a", "b", "down", 90, 110),
    ]


def test_of_many_failures_of_a_link_those_are_excused_that_began_while_a_broker_was_away(spark: SparkSession) -> None:
    """And no failure is compared with every other one: what is put beside all is the one row of when the lake ends."""
    every, away = range(60), range(20, 40)
    lonely = [minute for minute in range(40) if minute % 4 == 1]
    of_broker = [minute for minute in range(40) if minute % 4 == 3]
    rows = [
        link(60 * minute + second, "a", "b", "failed" if minute in lonely + of_broker and second in away else "up")
        for minute in range(40)
        for second in every
    ]
    absent = ((1 << 60) - 1) & ~mask(*away)
    lives = [life("b", minute, absent) if minute in of_broker else life("b", minute) for minute in range(40)]
    lives += [life("a", minute) for minute in range(40)]
    stops = [
        {"at_ns": (START_S + 60 * minute + 20) * SECOND_NS, "broker": "b", "kind": "broker-stopped"}
        for minute in of_broker[::2]
    ]
    minutes = intervals.link_minutes(frame(spark, "links", *rows))
    found = intervals.intervals(frame(spark, "alive", *lives), minutes, frame(spark, "events", *stops))
    loops = re.findall(r"(?:NestedLoopJoin|CartesianProduct).*", found._explain_string(mode="simple"))  # type: ignore[operator]
    assert loops
    assert [line for line in loops if ", Cross" not in line] == []
    judged = {span[1:5] for span in spans(found) if span[3] != "up"}
    assert judged == {
        *(("a", "b", "broker", 60 * minute + 20) for minute in of_broker),
        *(("a", "b", "down", 60 * minute + 20) for minute in lonely),
        *(("b", None, "stopped", 60 * minute + 20) for minute in of_broker[::2]),
        *(("b", None, "down", 60 * minute + 20) for minute in of_broker[1::2]),
    }


def test_a_broker_that_says_that_it_stops_has_not_failed(spark: SparkSession) -> None:
    lives = frame(spark, "alive", life("a", 0, mask(*range(30))), life("a", 3), life("a", 20))
    stop = {"at_ns": (START_S + 30) * SECOND_NS, "broker": "a", "kind": "broker-stopped"}
    found = intervals.intervals(lives, frame(spark, "link_minutes"), frame(spark, "events", stop))
    assert [span[3:] for span in spans(found)] == [
        ("down", 240, 1200),
        ("stopped", 30, 180),
        ("up", 0, 30),
        ("up", 180, 240),
        ("up", 1200, 1260),
    ]


def test_what_never_failed_may_fail_the_less_the_longer_it_has_been_watched(spark: SparkSession) -> None:
    def interval(broker: str, state: str, start_s: int, end_s: int) -> dict[str, Any]:
        span = {"start_ns": start_s * SECOND_NS, "end_ns": end_s * SECOND_NS}
        return {"kind": "broker", "broker": broker, "state": state, **span}

    found = reliability.reliability(
        frame(
            spark,
            "intervals",
            interval("old", "up", 0, OLD_S),
            interval("young", "up", 0, YOUNG_S),
            interval("bad", "up", 0, 40_000),
            interval("bad", "down", 40_000, 40_050),
            interval("bad", "up", 40_050, 80_000),
            interval("bad", "down", 80_000, 80_150),
        ),
        frame(spark, "link_minutes"),
    )
    by_name = {row.broker: row for row in found.collect()}
    old, young, bad = by_name["old"], by_name["young"], by_name["bad"]
    assert old.failure_low == young.failure_low == 0
    assert 0 < old.failure < bad.failure < young.failure
    assert old.failure_high < 0.001 < bad.failure_high < young.failure_high
    assert bad.failure_low < 200 / 80_150 < bad.failure_high
    assert (bad.failures, bad.mtbf_s, bad.mttr_s, old.mtbf_s) == (2, 79_950 / 2, 100.0, None)
    assert young.failure_planned is None, "no evidence yet"
    assert old.failure_planned == pytest.approx(0.5 / (1 + (OLD_S + YOUNG_S) / 200))
    assert bad.failure_low < 0.002 < 0.01 < bad.failure_high
    assert bad.failure_planned == 0.002, "on neither side of what brokers avoid: no better than the default"


def test_links_whose_failures_begin_together_are_a_group(spark: SparkSession) -> None:
    def failed(peer: str, *starts: int) -> list[dict[str, Any]]:
        return [
            {
                "kind": "link",
                "broker": "a",
                "peer": peer,
                "state": "down",
                "start_ns": s * SECOND_NS,
                "end_ns": s * SECOND_NS,
            }
            for s in starts
        ]

    span = {"kind": "broker", "broker": "a", "state": "up", "start_ns": 0, "end_ns": 10**6 * SECOND_NS}
    rows = [*failed("b", 100, 5_000, 90_000), *failed("c", 103, 5_001, 90_000), *failed("d", 7, 5_002, 700_000), span]
    given = frame(spark, "intervals", *rows)
    pairs = co_failures.failure_pairs(given)
    assert told(pairs, "peer", "other_peer", "joint", "correlation") == [("b", "c", 3, 1.0)]
    assert told(co_failures.failure_groups(pairs, given), "group", "peer", "failures") == [(0, "b", 3), (0, "c", 3)]


def test_percentiles_are_right_to_a_percent_and_count_what_rows_stand_for(spark: SparkSession) -> None:
    rows = [
        {
            "at_ns": START_S * SECOND_NS,
            "broker": "c",
            "origin": "a",
            "topic": "t",
            "age_ns": n * 1_000_000,
            "in_time": n <= 90,
            "path": ["a", "b", "c"],
            "weight": 3,
        }
        for n in range(1, 101)
    ]
    found = compliance.compliance(compliance.latency_bins(frame(spark, "deliveries", *rows))).collect()
    assert sorted({(row.scope, row.origin, row.broker) for row in found}, key=str) == [
        ("all", None, None),
        ("hop", "a", "b"),
        ("hop", "b", "c"),
        ("route", "a", "c"),
        ("topic", None, None),
    ]
    for row in found:
        assert (row.deliveries, row.in_time, row.in_time_rate) == (300, 270, 0.9)
        assert row.p50_ms == pytest.approx(50, rel=0.0101)
        assert row.p99_ms == pytest.approx(99, rel=0.0101)


def test_an_hour_unlike_the_hours_before_it_is_odd(spark: SparkSession) -> None:
    def hour(number: int, p99_ms: float) -> dict[str, Any]:
        shared = {"scope": "topic", "topic": "t", "deliveries": 100, "in_time_rate": 0.99}
        return {**shared, "hour_s": START_S + 3_600 * number, "p99_ms": p99_ms}

    rows = [hour(n, 50 + n % 3) for n in range(24)] + [hour(24, 150.0)]
    found = compliance.anomalies(frame(spark, "compliance", *rows))
    assert told(found, "hour_s", "measure", "value", "usual") == [(START_S + 24 * 3_600, "p99_ms", 150.0, 51.0)]


def test_filters_match_the_topics_that_mqtt_says(spark: SparkSession) -> None:
    expected = {
        "site/a": ["site/a"],
        "site/+": ["site/a", "site/b"],
        "site/#": ["site", "site/a", "site/a/b", "site/b"],
        "+/a": ["site/a"],
        "#": ["a/two\nlines", "site", "site/a", "site/a/b", "site/b", "x.y", "x\\E.y/1", "xzy/c/d"],
        "$SYS/#": ["$SYS/up"],
        "x.y": ["x.y"],
        "x\\E.y/+": ["x\\E.y/1"],
        "+/two\nlines": ["a/two\nlines"],
        "a/#": ["a/two\nlines"],
        "+": ["site", "x.y"],
    }
    topics = ["site", "site/a", "site/b", "site/a/b", "$SYS/up", "x.y", "xzy/c/d", "x\\E.y/1", "a/two\nlines"]
    came = [{"topic": topic, "broker": "a", "messages_in": 60, "bytes_in": 600} for topic in topics]
    # Each filter is of a broker that is called like it.
    wanted = [{"at_ns": 5, "broker": each, "filter": each, "group": "", "subscribers": 2} for each in expected]
    given = frame(spark, "interests", *wanted), frame(spark, "load_windows", *came), frame(spark, "alive", life("a", 0))
    found = interest.interest(*given)
    assert told(found, "broker", "topic", "subscribers", "messages_per_second", "bps") == sorted(
        ((each, topic, 2, 1.0, 80.0) for each, topics in expected.items() for topic in topics), key=str
    )


def test_brokers_that_want_the_same_overlap(spark: SparkSession) -> None:
    rows = [
        {"broker": b, "topic": t, "subscribers": 1, "bps": 8.0} for b, ts in (("a", "tuv"), ("b", "uvw")) for t in ts
    ]
    found = interest.interest_overlap(frame(spark, "interest", *rows))
    assert told(found, "broker", "peer", "topics", "bps", "jaccard") == [("a", "b", 2, 16.0, 0.5)]


def flow_row(place: int, **fields: Any) -> dict[str, Any]:
    """Ten seconds of a flow that advertises 1,000 bytes a second and uses half of it."""
    usual = {
        "at_ns": (START_S + 10 * place) * SECOND_NS,
        "broker": "a",
        "filter": "video",
        "interval_ns": 10 * SECOND_NS,
        "advertised": 1_000,
        "reserved": 1_200,
        "messages": 50,
        "excess_messages": 0,
        "payload_bytes": 5_000,
        "link_bytes": 6_000,
        "size_max": 100,
        "rates": [250, 500, 1_000],
        "depths": [3_000, 150, 100],
    }
    return usual | fields


def test_reserved_flows_tell_what_was_used_and_a_bucket_that_covers_nearly_all(spark: SparkSession) -> None:
    usual = [flow_row(place) for place in range(2_000)]
    rare = flow_row(2_000, depths=[9_000, 8_000, 7_000])
    others = [flow_row(0, broker="b", messages=0, payload_bytes=0, link_bytes=0, reserved=0, depths=[0, 0, 0])]
    steep = [flow_row(place, filter="steep", depths=[9_000, 8_000, 700]) for place in range(3)]
    rows = frame(spark, "reservations", *usual, rare, *others, *steep)
    found = reserved_flows.reserved_flows(rows)
    assert told(found, "broker", "filter", "reserved", "used", "share", "rate", "bucket", "messages") == [
        ("a", "steep", 1200.0, 600.0, 0.5, 1_000, 700, 150),
        ("a", "video", 1200.0, 600.0, 0.5, 500, 150, 100_050),
        ("b", "video", 0.0, 0.0, None, None, None, 0),
    ]


def test_schemas_are_read_from_text() -> None:
    found = columns("a bigint, b array<string>, c map<string,double>, d array<array<int>>")
    assert found.simpleString() == "struct<a:bigint,b:array<string>,c:map<string,double>,d:array<array<int>>>"
