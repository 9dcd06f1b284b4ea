"""Messages with an identity exist once at a broker, and standby subscriptions get what is published there with one."""

from random import Random

import pytest
from clients import Bench

from overlane.core.events import Deliver
from overlane.core.units import NEVER
from overlane.pubsub.cluster import envelope
from overlane.pubsub.cluster.cluster import LOCAL_SUBSCRIBERS
from overlane.pubsub.message import Message
from overlane.pubsub.properties import Properties
from overlane.pubsub.publishing.message_ids import NUMBER_MAX, WINDOW, IdWindow, read_id
from overlane.pubsub.sessions.session_export import decode_session, encode_session

STANDBY = [("overlane-standby", "yes")]


def with_id(number: int, run: str = "r") -> list[tuple[str, str]]:
    return [("overlane-id", f"{run}:{number}")]


def arrive(bench: Bench, payload: bytes, pairs: list[tuple[str, str]], qos: int = 1) -> None:
    """A message from another broker."""
    encoded = Properties(user_properties=tuple(pairs)).encode()
    flags, body = envelope.pack(Message("t", payload, qos, encoded=encoded), bench.now)
    effect = Deliver([("t", flags, body)], {"t": (LOCAL_SUBSCRIBERS,)}, "denver", 0, NEVER)
    bench.deliver(effect)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_that_is_published_again_is_acknowledged_and_not_delivered(qos: int) -> None:
    bench = Bench()
    sub, one, two = bench.client("sub"), bench.client("one"), bench.client("two")
    sub.subscribe("t", qos=qos)
    one.publish("t", b"a", qos=qos, user_properties=with_id(1))
    two.publish("t", b"a", qos=qos, user_properties=with_id(1))
    one.publish("t", b"b", qos=qos, user_properties=with_id(2))
    two.publish("t", b"c", qos=qos, user_properties=with_id(2, "other"))
    assert [got.payload for got in sub.got()] == [b"a", b"b", b"c"]
    assert bench.server.pubsub.state.message_ids.duplicates == 1


def test_copies_from_other_brokers_and_from_clients_are_delivered_once_whichever_comes_first() -> None:
    bench = Bench()
    sub, pub = bench.client("sub"), bench.client("pub")
    sub.subscribe("t", qos=1)
    arrive(bench, b"1", with_id(1))
    pub.publish("t", b"1", qos=1, user_properties=with_id(1))
    pub.publish("t", b"2", qos=1, user_properties=with_id(2))
    arrive(bench, b"2", with_id(2))
    arrive(bench, b"3", with_id(3))
    arrive(bench, b"3", with_id(3))
    assert [got.payload for got in sub.got()] == [b"1", b"2", b"3"]


def test_messages_without_an_identity_or_with_a_wrong_one_are_all_different() -> None:
    bench = Bench()
    sub, pub = bench.client("sub"), bench.client("pub")
    sub.subscribe("t")
    for pairs in ([], [("overlane-id", "x")], [("overlane-id", "r:-1")], [("overlane-id", ":1")]):
        pub.publish("t", b"a", user_properties=pairs)
        pub.publish("t", b"a", user_properties=pairs)
    assert len(sub.got()) == 8


def test_a_standby_subscription_gets_what_is_published_here_with_an_identity_and_nothing_else() -> None:
    bench = Bench()
    standby, pub = bench.client("standby"), bench.client("pub")
    standby.subscribe("t", qos=1, user_properties=STANDBY)
    pub.publish("t", b"plain", qos=1)
    arrive(bench, b"from afar", with_id(1))
    pub.publish("t", b"here", qos=1, user_properties=with_id(2))
    assert [one.payload for one in standby.got()] == [b"here"]


def test_other_brokers_are_told_of_a_standby_subscription_only_when_it_becomes_an_ordinary_one() -> None:
    told: list[tuple[str, str]] = []
    bench = Bench()
    uplink = bench.server.pubsub.state.uplink
    uplink.subscribe = lambda _, topic_filter, *__: told.append(("+", topic_filter))  # type: ignore[method-assign]
    uplink.unsubscribe = lambda _, topic_filter, *__: told.append(("-", topic_filter))  # type: ignore[method-assign]
    sub, other, pub = bench.client("sub"), bench.client("other"), bench.client("pub")
    sub.subscribe("t", qos=1, user_properties=STANDBY)
    assert told == []
    other.subscribe("t", qos=1)
    other.unsubscribe("t")
    assert told == [("+", "t"), ("-", "t")]
    sub.subscribe("t", qos=1)
    assert told[2:] == [("+", "t")]
    pub.publish("t", b"plain", qos=1)
    assert [one.payload for one in sub.got()] == [b"plain"]
    sub.subscribe("t", qos=1, user_properties=STANDBY)
    sub.unsubscribe("t")
    assert told[3:] == [("-", "t")]


def test_a_standby_subscription_outlives_crash_and_transfer() -> None:
    bench = Bench()
    sub = bench.client("sub", expiry=60)
    sub.subscribe("t", qos=1, user_properties=STANDBY)
    exported = decode_session(encode_session(bench.server.pubsub.export_session("sub", bench.now)))
    assert [one.is_standby for one in exported.subscriptions] == [True]
    bench.crash()
    pub = bench.client("pub")
    pub.publish("t", b"plain", qos=1)
    pub.publish("t", b"with", qos=1, user_properties=with_id(1))
    sub.connect()
    assert [one.payload for one in sub.got()] == [b"with"]


def test_the_window_tells_numbers_apart_whatever_their_order() -> None:
    luck = Random(4)
    window, seen = IdWindow(), set()
    for base in range(0, 20 * WINDOW, WINDOW // 8):
        number = base + luck.randrange(WINDOW // 2)
        for one in (number, base + luck.randrange(WINDOW // 2), number):
            assert window.add(("r", one)) == (one not in seen)
            assert window.has(("r", one))
            seen.add(one)
    assert window.add(("r", 0)), "what lies too far back may be new"


def test_runs_are_forgotten_the_oldest_first() -> None:
    window = IdWindow(runs_max=2)
    assert [window.add((run, 1)) for run in ("a", "b", "a", "c", "a", "b")] == [True, True, False, True, False, True]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("r:1", ("r", 1)),
        ("a:b:7", ("a:b", 7)),
        ("r:", None),
        ("r:1x", None),
        (f"r:{NUMBER_MAX}", None),
        ("r:" + "9" * 99, None),
    ],
)
def test_identities_are_read_with_care(text: str, found: object) -> None:
    assert read_id([("x", "y"), ("overlane-id", text)]) == found
