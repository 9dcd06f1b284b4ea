"""Liveliness, ownership, periods and requests, as MQTT clients see them."""

import json
from typing import Any

import mqtt5
import pytest
from clients import Bench, Client

from overlane.core.units import NEVER, SECOND
from overlane.pubsub.access import Rule
from overlane.pubsub.policies.policy import Policies, Policy

POLICIES = Policies({"pump/#": Policy(2 * SECOND, SECOND, is_exclusive=True), "lamp/#": Policy(2 * SECOND)})


def strength(number: int) -> list[tuple[str, str]]:
    return [("overlane-strength", str(number))]


def payloads(client: Client) -> list[bytes]:
    return [one.payload for one in client.got()]


def told(client: Client) -> list[dict[str, Any]]:
    return [json.loads(one.payload) for one in client.got()]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_only_the_strongest_publisher_that_is_alive_is_delivered_and_nothing_is_missing(qos: int) -> None:
    bench = Bench(policies=POLICIES)
    reader = bench.client("reader")
    reader.subscribe("pump/#", qos=qos)
    main, spare = bench.client("main"), bench.client("spare")
    for number in range(3):
        main.publish("pump/1", b"m%d" % number, qos=qos, user_properties=strength(10))
        spare.publish("pump/1", b"s%d" % number, qos=qos, user_properties=strength(1))
        bench.wait(0.5)
    main.drop()
    for number in range(3, 8):
        spare.publish("pump/1", b"s%d" % number, qos=qos, user_properties=strength(1))
        bench.wait(0.5)
    got = payloads(reader)
    assert got[:3] == [b"m0", b"m1", b"m2"]
    assert got[3:] == [b"s2", b"s3", b"s4", b"s5", b"s6", b"s7"]
    main.connect()
    main.publish("pump/1", b"back", qos=qos, user_properties=strength(10))
    spare.publish("pump/1", b"late", qos=qos, user_properties=strength(1))
    assert payloads(reader) == [b"back"]


def test_subscribers_are_told_who_is_alive_and_late_ones_too() -> None:
    bench = Bench(policies=POLICIES)
    reader, watcher = bench.client("reader"), bench.client("watcher")
    reader.subscribe("lamp/#")
    watcher.subscribe("$overlane/liveliness/#")
    pub = bench.client("pub")
    pub.publish("lamp/1", b"on")
    alive = {"publisher": "pub@seattle", "state": "alive", "alive": ["pub@seattle"], "owner": None}
    assert told(watcher) == [alive]
    bench.wait(1.9)
    pub.publish("lamp/1", b"on")
    bench.wait(1.9)
    assert told(watcher) == []
    bench.wait(0.2)
    lost: dict[str, Any] = {"publisher": "pub@seattle", "state": "lost", "alive": [], "owner": None}
    assert told(watcher) == [lost]
    late = bench.client("late")
    late.subscribe("$overlane/liveliness/lamp/1")
    assert told(late) == [lost]
    pub.publish("lamp/1", b"on")
    assert told(watcher) == [alive]


def test_a_missed_period_is_told() -> None:
    bench = Bench(policies=POLICIES)
    reader = bench.client("reader")
    reader.subscribe("pump/1")
    reader.subscribe("$overlane/period/pump/1")
    pub = bench.client("pub")
    pub.publish("pump/1", b"x")
    bench.wait(1.5)
    (message, *reports) = reader.got()
    assert message.payload == b"x"
    assert [json.loads(one.payload) for one in reports] == [
        {"publisher": "pub@seattle", "missed": 1, "period_ms": 1000}
    ]


def test_readers_see_who_has_published_and_nobody_can_pose_as_another() -> None:
    bench = Bench(policies=POLICIES)
    reader = bench.client("reader")
    reader.subscribe("lamp/#")
    pub = bench.client("pub")
    posing = [("overlane-publisher", "king@seattle"), ("overlane-lease", "1s"), ("colour", "red")]
    pub.publish("lamp/1", b"on", user_properties=posing)
    (packet,) = [one for one in reader.saw() if isinstance(one, mqtt5.PublishPacket)]
    assert packet.user_properties == [
        ("colour", "red"),
        ("overlane-publisher", "pub@seattle"),
        ("overlane-lease", "1s"),
    ]


def test_an_offer_that_makes_no_sense_is_refused() -> None:
    bench = Bench(policies=POLICIES)
    pub = bench.client("pub")
    assert pub.publish("pump/1", b"x", qos=1, user_properties=[("overlane-strength", "much")]) == 0x83


def suback(client: Client, topic_filter: str, asked: list[tuple[str, str]]) -> list[tuple[str, str]]:
    client.saw()
    client.send(
        mqtt5.SubscribePacket(client.next_id(), [mqtt5.TopicFilter(topic_filter)], user_properties=asked),
    )
    (packet,) = [one for one in client.saw() if isinstance(one, mqtt5.SubAckPacket)]
    return list(packet.user_properties)


def test_a_request_that_no_offer_satisfies_is_told_in_the_suback() -> None:
    bench = Bench(policies=POLICIES)
    reader = bench.client("reader")
    assert suback(reader, "pump/1", [("overlane-liveliness", "5s"), ("overlane-ownership", "exclusive")]) == []
    assert suback(reader, "lamp/1", [("overlane-liveliness", "500ms")]) == [
        ("overlane-incompatible", "lamp/1: liveliness: offered 2s, requested 500ms")
    ]
    assert suback(reader, "other", [("overlane-ownership", "exclusive")]) == [
        ("overlane-incompatible", "other: ownership: offered shared, requested exclusive")
    ]


def test_a_publisher_whose_offer_is_not_enough_and_the_subscriber_are_both_told() -> None:
    bench = Bench(policies=POLICIES)
    reader, pub = bench.client("reader", expiry=100), bench.client("pub")
    reader.subscribe("$overlane/incompatible/#")
    pub.subscribe("$overlane/incompatible/lamp/#")
    reader.subscribe("lamp/#", user_properties=[("overlane-liveliness", "1s")])
    pub.publish("lamp/1", b"on", user_properties=[("overlane-lease", "1s")])
    assert told(pub) == []
    other = bench.client("other")
    other.publish("lamp/1", b"on")
    report = {
        "publisher": "other@seattle",
        "subscriber": "reader@seattle",
        "policy": "liveliness",
        "offered": "2s",
        "requested": "1s",
    }
    assert told(pub) == [report]
    reader.got()
    bench.crash()
    reader.connect(clean=False)
    bench.client("other").publish("lamp/1", b"on")
    assert report in [json.loads(one.payload) for one in reader.got() if one.topic.startswith("$overlane")]


def test_who_may_not_receive_a_topic_is_told_nothing_of_its_publishers() -> None:
    rules = [Rule(user="anonymous", publish=("#",), subscribe=("open/#", "$overlane/#"))]
    policies = Policies({"#": Policy(SECOND)})
    bench = Bench(rules=rules, policies=policies)
    spy = bench.client("spy")
    spy.subscribe("$overlane/liveliness/#")
    pub = bench.client("pub")
    pub.publish("hidden/1", b"x")
    pub.publish("open/1", b"x")
    assert [one.topic for one in spy.got()] == ["$overlane/liveliness/open/1"]


def test_a_topic_without_policy_keeps_the_fast_path_and_its_bytes() -> None:
    bench = Bench(policies=Policies({"pump/#": Policy(SECOND, NEVER)}))
    reader, pub = bench.client("reader"), bench.client("pub")
    reader.subscribe("#")
    for _ in range(3):
        pub.publish("plain", b"x")
        pub.publish("pump/1", b"y")
    assert [one.payload for one in reader.got()] == [b"x", b"y"] * 3
    assert [entry.topic for entry in pub.connection.entries.values()] == ["plain"]
