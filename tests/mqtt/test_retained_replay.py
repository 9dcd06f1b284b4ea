"""Retained messages in any number: a new subscription gets them all, and nobody else has to wait for that."""

from typing import Any

import mqtt5
import pytest
from clients import Bench, Got
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from overlane.pubsub.limits import Limits
from overlane.pubsub.message import Message
from overlane.pubsub.retained.messages import RetainedMessages
from overlane.pubsub.retained.replay import MESSAGES_AT_ONCE
from overlane.pubsub.retained.round_robin import STEPS_AT_ONCE

MANY = 10 * MESSAGES_AT_ONCE


def bench_with(messages: int = MANY, qos: int = 0, **limits: Any) -> Bench:
    bench = Bench(**limits)
    writer = bench.client("writer")
    for number in range(messages):
        writer.publish(f"t/{number}", b"x", qos=qos, retain=True)
    return bench


def everything(qos: int = 0) -> list[Got]:
    return [Got(f"t/{number}", b"x", qos=qos, retain=True) for number in range(MANY)]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_many_retained_messages_come_a_part_at_a_time_each_once(qos: int) -> None:
    bench = bench_with(qos=qos, queue_messages=2 * MESSAGES_AT_ONCE)
    reader = bench.client("reader")
    reader.subscribe("t/#", qos=2)
    first = reader.got()
    assert len(first) == MESSAGES_AT_ONCE
    bench.wait(1)
    assert first + reader.got() == everything(qos)
    assert not bench.server.counters.dropped


def test_clients_that_subscribe_at_the_same_time_take_turns() -> None:
    bench = bench_with()
    readers = [bench.client(f"reader-{number}") for number in range(3)]
    for reader in readers:
        reader.subscribe("t/#")
    bench.wait(0.015)
    counts = [len(reader.inbox) for reader in readers]
    assert max(counts) - min(counts) <= 2 * MESSAGES_AT_ONCE
    assert max(counts) < MANY
    bench.wait(1)
    assert [reader.got() for reader in readers] == [everything()] * 3


def test_who_has_much_to_acknowledge_is_waited_for_and_nobody_waits_with_it() -> None:
    bench = bench_with(qos=1, queue_messages=2 * MESSAGES_AT_ONCE)
    slow, quick = bench.client("slow", receive_max=10), bench.client("quick")
    slow.polite = False
    slow.subscribe("t/#", qos=1)
    quick.subscribe("t/#", qos=1)
    bench.wait(1)
    assert quick.got() == everything(1)
    assert len(slow.got()) == 10
    slow.polite = True
    for sent in slow.saw(mqtt5.PublishPacket):
        slow.send(mqtt5.PubAckPacket(sent.packet_id))
    bench.wait(1)
    assert len(slow.got()) == MANY - 10
    assert not bench.server.counters.dropped


def test_what_changes_meanwhile_comes_as_it_is_then_and_what_is_removed_does_not_come() -> None:
    bench = bench_with()
    reader, writer = bench.client("reader"), bench.client("another")
    reader.subscribe("t/#")
    writer.publish(f"t/{MANY - 1}", b"new", retain=True)
    writer.publish(f"t/{MANY - 2}", b"", retain=True)
    bench.wait(1)
    heard = reader.got()
    assert heard.count(Got(f"t/{MANY - 1}", b"new")) == 1
    assert heard[-1] == Got(f"t/{MANY - 1}", b"new", retain=True)
    assert Got(f"t/{MANY - 2}", b"x", retain=True) not in heard


def test_it_ends_with_the_subscription_or_the_connection() -> None:
    bench = bench_with()
    leaving, lost = bench.client("leaving"), bench.client("lost")
    leaving.subscribe("t/#")
    lost.subscribe("t/#")
    leaving.unsubscribe("t/#")
    lost.reconnect()
    bench.wait(1)
    assert len(leaving.got()) <= 2 * MESSAGES_AT_ONCE
    assert len(lost.got()) <= 2 * MESSAGES_AT_ONCE


def test_who_subscribes_again_begins_anew() -> None:
    bench = bench_with()
    reader = bench.client("reader")
    reader.subscribe("t/#")
    reader.got()
    reader.subscribe("t/#")
    bench.wait(1)
    assert reader.got() == everything()


def test_a_session_that_is_kept_has_all_of_them_with_the_subscription() -> None:
    bench = bench_with(qos=1)
    reader = bench.client("reader", expiry=60, receive_max=5)
    reader.polite = False
    reader.subscribe("t/#", qos=1)
    bench.crash()
    reader.polite = True
    reader.reconnect()
    bench.wait(1)
    assert {got.topic for got in reader.got()} == {f"t/{number}" for number in range(MANY)}


@pytest.mark.parametrize("qos", [1, 2])
def test_a_session_that_is_kept_gets_more_of_them_than_its_queue_has_room_for(qos: int) -> None:
    bench = bench_with(qos=qos, queue_messages=MESSAGES_AT_ONCE // 4)
    reader = bench.client("reader", expiry=60)
    reader.subscribe("t/#", qos=2)
    bench.wait(2)
    assert sorted(got.topic for got in reader.got()) == sorted(f"t/{number}" for number in range(MANY))
    assert not bench.server.counters.dropped
    assert "mqtt.past" not in bench.tables()


@pytest.mark.parametrize("how", ["the connection", "the broker"])
def test_a_session_that_is_kept_gets_each_of_them_once_whatever_ends_meanwhile(how: str) -> None:
    bench = bench_with(qos=2)
    reader = bench.client("reader", expiry=60)
    reader.subscribe("t/#", qos=2)
    heard = reader.got()
    for _ in range(3):
        bench.wait(0.001)
        heard += reader.got()
        assert len(heard) < MANY
        if how == "the broker":
            bench.crash()
        reader.reconnect()
    bench.wait(2)
    heard += reader.got()
    assert sorted(got.topic for got in heard) == sorted(f"t/{number}" for number in range(MANY))
    assert "mqtt.past" not in bench.tables()


@pytest.mark.parametrize("end", ["unsubscribe", "subscribe anew", "end of session"])
def test_nothing_is_left_of_how_far_it_had_come(end: str) -> None:
    bench = bench_with(qos=1)
    reader = bench.client("reader", expiry=60, receive_max=5)
    reader.polite = False
    reader.subscribe("t/#", qos=1)
    assert bench.tables()["mqtt.past"] == 1
    match end:
        case "unsubscribe":
            reader.unsubscribe("t/#")
        case "subscribe anew":
            reader.subscribe("t/#", qos=1, handling=2)
        case "end of session":
            reader.disconnect(expiry=0)
    assert "mqtt.past" not in bench.tables()


def found_by(levels: list[str], topic: list[str]) -> bool:
    """Whether a filter finds a topic, both as levels, as the specification has it."""
    if topic[0].startswith("$") and levels[0] in ("#", "+"):
        return False
    if levels[-1] == "#":
        levels, topic = levels[:-1], topic[: len(levels) - 1]
    return len(levels) == len(topic) and all(level in ("+", name) for level, name in zip(levels, topic, strict=True))


@examples(200)
@given(
    st.lists(st.lists(st.sampled_from(["", "a", "b", "$c"]), min_size=1, max_size=4), max_size=20),
    st.lists(st.sampled_from(["a", "b", "+", ""]), max_size=3),
    st.booleans(),
)
def test_a_walk_goes_on_behind_any_place_where_another_has_ended(
    topics: list[list[str]], levels: list[str], is_wide: bool
) -> None:
    kept = RetainedMessages(Limits())
    for topic in topics:
        kept.keep(Message("/".join(topic), b"x"))
    topic_filter = "/".join([*levels, "#"] if is_wide or not levels else levels)
    whole = [one.topic for one in kept.walk(topic_filter, "") if one is not None]
    expected = sorted({"/".join(topic) for topic in topics if found_by(topic_filter.split("/"), topic)})
    assert sorted(whole) == expected
    assert sorted(one.topic for one in kept.walk(topic_filter) if one is not None) == expected
    for at, last in enumerate(whole):
        if last:
            rest = [one.topic for one in kept.walk(topic_filter, last) if one is not None]
            assert rest == whole[at + 1 :]


def test_a_search_that_finds_nothing_takes_turns_too() -> None:
    places = 4 * STEPS_AT_ONCE
    bench = bench_with(places)
    steps = list(bench.server.state.retained.walk("+/+/+/nothing"))
    assert len(steps) >= places
    assert not any(steps)
    reader = bench.client("reader")
    reader.subscribe("+/+/+/nothing")
    due = bench.server.next_deadline()
    assert due - bench.now <= 1_000_000
    bench.wait(1)
    assert bench.server.next_deadline() - bench.now > 1_000_000
