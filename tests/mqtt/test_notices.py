"""Notices: what operators read of clients, and that no client can make them many."""

from clients import Bench

from overlane.pubsub.access import Rule
from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.counters import Refusal
from overlane.pubsub.notices import NOTICES_MAX, Connected, Left, Notice, RefusalNotice

PEER = Peer("127.0.0.1")


def notices(bench: Bench) -> list[Notice]:
    return bench.server.take_notices()[0]


def test_a_client_that_is_let_in_and_leaves_is_told_of() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    assert notices(bench) == [Connected("alice", None, PEER, "MQTT 5.0", False)]
    alice.disconnect()
    assert notices(bench) == [Left("alice", PEER, "the client disconnected")]
    bench.client("alice", 4, expiry=60)
    assert notices(bench) == [Connected("alice", None, PEER, "MQTT 3.1.1", True)]


def test_a_connection_that_breaks_is_told_of_as_such() -> None:
    bench = Bench()
    alice = bench.client("alice")
    notices(bench)
    alice.drop()
    assert notices(bench) == [Left("alice", PEER, "the connection broke")]


def test_a_session_that_is_taken_over_is_told_of_with_the_reason() -> None:
    bench = Bench()
    bench.client("alice")
    notices(bench)
    bench.client("alice")
    left, connected = notices(bench)
    assert left == Left("alice", PEER, "another connection uses the identifier alice")
    assert isinstance(connected, Connected)


def test_a_client_that_is_not_let_in_is_told_of_with_its_identifier() -> None:
    bench = Bench(users={"alice": b"right"})
    bench.client("pump", username="alice", password=b"wrong")
    assert notices(bench) == [RefusalNotice(Refusal.CREDENTIALS, "user name or password are wrong", "pump", PEER)]


def test_what_a_client_is_refused_is_told_of_with_the_topic() -> None:
    bench = Bench(rules=[Rule(user="anonymous", publish=("open",), subscribe=("open",))])
    alice = bench.client("alice")
    notices(bench)
    alice.publish("closed", b"x", qos=1)
    alice.subscribe("closed/#")
    assert notices(bench) == [
        RefusalNotice(Refusal.DENIED, "not allowed to publish on closed", "alice", PEER),
        RefusalNotice(Refusal.DENIED, "not allowed to subscribe to closed/#", "alice", PEER),
    ]


def test_bytes_that_are_no_mqtt_are_told_of_before_anybody_is_known() -> None:
    bench = Bench()
    stranger = bench.stranger()
    stranger.open()
    stranger.send(b"GET / HTTP/1.1\r\n\r\n")
    (refused,) = notices(bench)
    assert isinstance(refused, RefusalNotice)
    assert (refused.client_id, refused.peer) == (None, PEER)


def test_every_refusal_is_counted_and_the_first_of_a_turn_are_told_of() -> None:
    bench = Bench(rules=[Rule(user="anonymous", publish=("open",))])
    alice = bench.client("alice")
    notices(bench)
    for _ in range(NOTICES_MAX + 50):
        alice.publish("closed", b"x")
    kept, left_out = bench.server.take_notices()
    assert (len(kept), left_out) == (NOTICES_MAX, 50)
    assert bench.server.counters.refused[Refusal.DENIED] == NOTICES_MAX + 50
    assert bench.server.take_notices() == ([], 0)
