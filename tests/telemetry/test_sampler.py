"""The sampler: what a broker counts and holds, as rows of one second."""

from station import START, Line, Station

from overlane.core.events import LinkUp
from overlane.core.units import SECOND
from overlane.telemetry.file_rotation import DAY
from overlane.telemetry.rows import Event, Interest, LinkSample, QueueDepth, Row, TopicRate


def rate(
    topic: str, *, messages_in: int = 0, overlay: int = 0, out: int = 0, size: int = 1, at_s: int = 1
) -> TopicRate:
    return TopicRate(
        START + at_s * SECOND,
        SECOND,
        topic,
        messages_in,
        size * messages_in,
        overlay,
        size * overlay,
        out,
        size * out,
    )


# Topics


def test_a_topic_has_a_row_for_each_second_in_which_something_came() -> None:
    station = Station()
    alice = station.connect("alice")
    station.publish(alice, "a", b"x", times=3, qos=1)
    station.publish(alice, "b", b"x", qos=1)
    assert station.sampled(TopicRate) == [rate("a", messages_in=3), rate("b", messages_in=1)]
    station.publish(alice, "b", b"x", times=2, qos=1)
    assert station.sampled(TopicRate) == [rate("b", messages_in=2, at_s=2)]
    assert station.sampled(TopicRate) == []


def test_messages_on_the_fast_lane_are_counted_too() -> None:
    station = Station()
    alice = station.connect("alice")
    station.publish(alice, "a", b"x", times=1_000)
    assert [row.messages_in for row in station.sampled(TopicRate)] == [1_000]


def test_what_goes_out_is_what_came_times_those_who_get_it() -> None:
    station = Station()
    alice, bob = station.connect("alice"), station.connect("bob")
    station.subscribe(alice, "a")
    station.subscribe(bob, "#")
    station.publish(alice, "a", b"x", times=3, qos=1)
    station.publish(alice, "b", b"x", qos=1)
    station.rates.tally("a", 10, 10)
    station.rates.tally("far", 5, 5)
    assert station.sampled(TopicRate) == [
        rate("a", messages_in=3, overlay=10, out=26),
        rate("b", messages_in=1, out=1),
        rate("far", overlay=5, out=5),
    ]


def test_a_client_that_is_away_gets_nothing() -> None:
    station = Station()
    alice, bob = station.connect("alice"), station.connect("bob", expiry_s=60)
    station.subscribe(bob, "#")
    station.server.lost(bob, station.now)
    station.publish(alice, "a", b"x", qos=1)
    assert station.sampled(TopicRate) == [rate("a", messages_in=1)]


def test_a_topic_that_was_forgotten_and_comes_again_is_counted_from_nothing() -> None:
    station = Station()
    alice = station.connect("alice")
    station.publish(alice, "a", b"x", times=5, qos=1)
    station.sample()
    station.server.state.topics.pop("a").is_forgotten = True
    station.publish(alice, "a", b"x", times=2, qos=1)
    assert [row.messages_in for row in station.sampled(TopicRate)] == [2]


def test_a_late_look_says_how_long_its_second_was() -> None:
    station = Station()
    station.publish(station.connect("alice"), "a", b"x", qos=1)
    assert [row.interval_ns for row in station.sampled(TopicRate, after_s=2.5)] == [2.5 * SECOND]


def test_more_topics_from_elsewhere_than_are_told_apart_are_counted() -> None:
    station = Station()
    for number in range(10_003):
        station.rates.tally(str(number), 2, 2)
    assert len(station.sampled(TopicRate)) == 10_000
    assert station.rates.untold == 6


# Links


def test_a_link_is_down_until_its_neighbour_has_greeted_and_is_not_measured_before() -> None:
    station = Station()
    station.lines.neighbours = ["denver"]
    at_ns = START + SECOND
    assert station.sampled(LinkSample) == [
        LinkSample(at_ns, SECOND, "denver", "down", None, None, None, 0, 0, 0, 0, 0),
    ]
    station.core.handle(LinkUp("denver"), station.now)
    (row,) = station.sampled(LinkSample)
    assert (row.state, row.latency_ns, row.queue_bytes_max) == ("down", None, 256 * 1024)


def test_bytes_of_a_link_are_those_of_the_interval_even_over_a_new_connection() -> None:
    station = Station()
    station.lines.neighbours = ["denver"]
    station.lines.links["denver"] = line = Line(100, 10)
    seen = [station.sampled(LinkSample)]
    line.bytes_in, line.bytes_out = 150, 10
    seen.append(station.sampled(LinkSample))
    station.lines.links["denver"] = Line(7, 3)
    seen.append(station.sampled(LinkSample))
    del station.lines.links["denver"]
    seen.append(station.sampled(LinkSample))
    assert [(row.bytes_in, row.bytes_out) for (row,) in seen] == [(100, 10), (50, 0), (7, 3), (0, 0)]


# Queues


def queues(rows: list[Row]) -> dict[tuple[str, str | None], tuple[int | None, int]]:
    return {(row.queue, row.name): (row.messages, row.bytes) for row in rows if isinstance(row, QueueDepth)}


def test_a_broker_that_does_nothing_tells_every_second_that_it_lives() -> None:
    station = Station()
    for second in range(1, 4):
        assert {row.at_ns for row in station.sampled(QueueDepth)} == {START + second * SECOND}


def test_queues_of_clients_are_told_in_all_and_the_deepest_by_name() -> None:
    station = Station()
    publisher = station.connect("publisher")
    for number in range(30):
        client = station.connect(f"client-{number}", expiry_s=60)
        station.subscribe(client, f"to/{number}", qos=1)
        station.server.lost(client, station.now)
        station.publish(publisher, f"to/{number}", b"x" * 100, times=number, qos=1)
    found = queues(station.sample())
    messages = sum(range(30))
    assert found["clients", None][0] == messages
    deepest = {name: depth[0] for (kind, name), depth in found.items() if kind == "client"}
    assert deepest == {f"client-{number}": number for number in range(10, 30)}


def test_retained_messages_are_told() -> None:
    station = Station()
    before = queues(station.sample())["retained", None]
    assert before[0] == len(station.server.state.retained)
    assert before[1] == station.server.state.retained.bytes


# Events


def test_what_was_dropped_or_refused_is_an_event_with_its_reason_and_number() -> None:
    station = Station()
    away = station.connect("away", expiry_s=60)
    station.subscribe(away, "a", qos=1)
    station.server.lost(away, station.now)
    alice = station.connect("alice")
    station.publish(alice, "a", b"x", times=10_007, qos=1)
    station.server.receive(station.connect("bad"), b"\xff\xff", station.now)
    rows = [row for row in station.sampled(Event) if row.kind == "client-dropped"]
    assert rows == [Event(START + SECOND, "client-dropped", reason="queue full", times=7)]
    assert station.sampled(Event) == []
    station.publish(alice, "a", b"x", times=2, qos=1)
    assert station.sampled(Event) == [Event(START + 3 * SECOND, "client-dropped", reason="queue full", times=2)]


# Interests


def test_interests_are_told_when_they_change_and_all_of_them_every_day() -> None:
    station = Station()
    alice, bob = station.connect("alice"), station.connect("bob")
    station.subscribe(alice, "a/#")
    station.subscribe(bob, "a/#")
    station.subscribe(bob, "$share/g/b")
    first = {(row.filter, row.group, row.subscribers) for row in station.sampled(Interest)}
    assert first == {("a/#", "", 2), ("b", "g", 1)}
    assert station.sampled(Interest) == []
    station.unsubscribe(bob, "a/#")
    station.unsubscribe(bob, "$share/g/b")
    changed = {(row.filter, row.group, row.subscribers) for row in station.sampled(Interest)}
    assert changed == {("a/#", "", 1), ("b", "g", 0)}
    assert station.sampled(Interest) == []
    anew = station.sampled(Interest, after_s=DAY / SECOND)
    assert [(row.filter, row.subscribers) for row in anew] == [("a/#", 1)]
