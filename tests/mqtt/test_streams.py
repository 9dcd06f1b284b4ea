"""Streams: logs of subscriptions that are read by offset, and batches that are written once."""

import mqtt5
import pytest
from clients import Bench

from overlane.core.events import Deliver
from overlane.core.units import NEVER
from overlane.mqtt import runs
from overlane.pubsub.access import Rule
from overlane.pubsub.cluster import envelope
from overlane.pubsub.cluster.cluster import LOCAL_SUBSCRIBERS
from overlane.pubsub.message import Message
from overlane.pubsub.streams.streams import Gone, Scope, StreamLog, Unwelcome
from overlane.pubsub.streams.writers import BatchOutcome, Gap, Note, Unpublishable

ALL = 10**9


def make(
    bench: Bench,
    topic_filter: str = "in/#",
    scope: Scope = Scope.EVERYWHERE,
    user: str | None = None,
    with_retained: bool = False,
) -> StreamLog:
    log = bench.server.streams.create("s", topic_filter, scope, user, with_retained, bench.now)
    bench.end_turn()
    return log


def the(bench: Bench) -> StreamLog:
    log = bench.server.streams.get("s")
    assert log is not None
    return log


def read(bench: Bench, start: int = 0, end: int = ALL, at_most: int = ALL) -> list[tuple[int, bytes]]:
    found, _ = bench.server.streams.read(the(bench), start, end, at_most, ALL, bench.now)
    return [(offset, one.payload) for offset, one in found]


def commit(bench: Bench, to: int) -> None:
    bench.server.streams.commit(the(bench), to, bench.now)
    bench.end_turn()


def arrive(bench: Bench, topic: str, payload: bytes, qos: int = 1) -> None:
    """From another broker."""
    flags, body = envelope.pack(Message(topic, payload, qos), bench.now)
    bench.deliver(Deliver([(topic, flags, body)], {topic: (LOCAL_SUBSCRIBERS,)}, "there", 0, NEVER))


# The log


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_matches_is_logged_in_order_under_growing_offsets(qos: int) -> None:
    bench = Bench()
    make(bench)
    bob = bench.client("bob")
    for number in range(30):
        bob.publish("in/a", b"%d" % number, qos=qos)
        bob.publish("other", b"x", qos=qos)
    assert read(bench) == [(number, b"%d" % number) for number in range(30)]


def test_a_range_can_be_read_again_until_it_is_committed() -> None:
    bench = Bench()
    make(bench)
    bob = bench.client("bob")
    for number in range(5):
        bob.publish("in/a", b"%d" % number, qos=1)
    assert read(bench, 1, 3) == read(bench, 1, 3) == [(1, b"1"), (2, b"2")]
    assert read(bench, 0, at_most=2) == [(0, b"0"), (1, b"1")]
    commit(bench, 3)
    assert read(bench, 3) == [(3, b"3"), (4, b"4")]
    with pytest.raises(Gone, match="begins at 3"):
        read(bench, 2)
    commit(bench, 1)
    assert the(bench).first == 3


def test_a_message_can_be_read_when_it_is_on_disk_and_not_before() -> None:
    bench = Bench()
    make(bench)
    bench.is_store_slow = True
    bob = bench.client("bob")
    bob.publish("in/a", b"x", qos=1)
    assert read(bench) == []
    with pytest.raises(Gone, match="ends at 0"):
        bench.server.streams.commit(the(bench), 1, bench.now)
    bench.commit()
    assert read(bench) == [(0, b"x")]


def test_after_a_crash_offsets_that_were_seen_mean_what_they_meant() -> None:
    bench = Bench()
    since_ns = make(bench).since_ns
    bob = bench.client("bob")
    for payload in (b"0", b"1", b"2"):
        bob.publish("in/a", payload, qos=1)
    commit(bench, 1)
    bench.is_store_slow = True
    bob.publish("in/a", b"lost with the crash", qos=0)
    bench.crash()
    bench.is_store_slow = False
    assert (the(bench).since_ns, the(bench).first) == (since_ns, 1)
    assert read(bench, 1) == [(1, b"1"), (2, b"2")]
    bench.client("carol").publish("in/b", b"3", qos=1)
    assert read(bench, 3) == [(3, b"3")]


def test_offsets_go_on_after_a_crash_though_everything_was_committed() -> None:
    bench = Bench()
    make(bench)
    bench.client("bob").publish("in/a", b"0", qos=1)
    commit(bench, 1)
    bench.crash()
    bench.client("carol").publish("in/a", b"1", qos=1)
    assert read(bench, 1) == [(1, b"1")]


@pytest.mark.parametrize(("messages", "size_bytes"), [(3, 1_000_000), (1_000, 1_000)])
def test_a_full_log_gives_up_its_oldest_and_says_so(messages: int, size_bytes: int) -> None:
    bench = Bench(stream_messages=messages, stream_bytes=size_bytes)
    make(bench)
    bob = bench.client("bob")
    for number in range(8):
        bob.publish("in/a", b"%d" % number + bytes(250), qos=1)
    log = the(bench)
    assert (log.first, log.next, log.lost, len(log)) == (5, 8, 5, 3)
    bench.crash()
    log = the(bench)
    assert (log.first, log.next, log.lost, len(log)) == (5, 8, 5, 3)
    with pytest.raises(Gone):
        read(bench, 4)


def test_a_stream_leaves_nothing_behind() -> None:
    bench = Bench()
    before = dict(bench.store)
    make(bench)
    bench.client("bob").publish("in/a", b"0", qos=1)
    assert bench.server.streams.remove("s", bench.now)
    bench.end_turn()
    assert bench.store == before
    bench.client("carol").publish("in/a", b"1", qos=1)
    assert bench.store == before


def test_a_stream_that_nobody_reads_ends() -> None:
    bench = Bench(stream_expiry_s=60)
    make(bench)
    bench.wait(50)
    read(bench)
    bench.wait(50)
    assert bench.server.streams.names() == ["s"]
    bench.wait(70)
    assert bench.server.streams.names() == []


def test_a_publisher_is_acknowledged_when_its_message_is_in_the_log() -> None:
    bench = Bench()
    make(bench)
    bench.is_store_slow = True
    bob = bench.client("bob")
    bob.saw()
    bob.publish("in/a", b"x", qos=1)
    assert bob.saw() == []
    bench.commit()
    bench.settle()
    assert [type(packet) for packet in bob.saw()] == [mqtt5.PubAckPacket]


def test_retained_messages_are_the_first_where_that_is_asked_for() -> None:
    bench = Bench()
    bench.client("bob").publish("in/a", b"kept", qos=1, retain=True)
    make(bench, with_retained=True)
    bench.client("carol").publish("in/a", b"new", qos=1)
    assert read(bench) == [(0, b"kept"), (1, b"new")]


# Who may


RULES = (Rule(user="*", publish=("#",)), Rule(user="alice", subscribe=("in/a/#",)))


def test_a_stream_has_the_rights_of_its_user() -> None:
    bench = Bench(rules=RULES, users={"bob": b"b"})
    with pytest.raises(Unwelcome, match="not allowed") as refused:
        make(bench, "in/#", user="alice")
    assert refused.value.is_denied
    make(bench, "in/a/#", user="alice")
    bench.client("b", username="bob", password=b"b").publish("in/a/1", b"x", qos=1)
    assert read(bench) == [(0, b"x")]


def test_a_right_that_was_revoked_counts_for_what_is_in_the_log_too() -> None:
    bench = Bench(rules=RULES, users={"bob": b"b"})
    make(bench, "in/a/#", user="alice")
    bench.client("b", username="bob", password=b"b").publish("in/a/1", b"x", qos=1)
    bench.reconfigure(rules=RULES[:1])
    assert read(bench) == []


def test_an_operators_stream_gets_everything() -> None:
    bench = Bench(rules=RULES, users={"bob": b"b"})
    make(bench, "#")
    bench.client("b", username="bob", password=b"b").publish("in/z", b"x", qos=1)
    assert read(bench) == [(0, b"x")]


@pytest.mark.parametrize("topic_filter", ["$SYS/#", "$share/g/in"])
def test_topics_of_the_server_have_no_streams(topic_filter: str) -> None:
    with pytest.raises(Unwelcome):
        make(Bench(), topic_filter)


def test_there_are_no_more_streams_than_the_limit_allows() -> None:
    with pytest.raises(Unwelcome, match="more than 0"):
        make(Bench(streams=0))


# Several brokers


def test_a_stream_of_what_is_published_here_leaves_the_rest_to_other_brokers() -> None:
    bench = Bench()
    make(bench, scope=Scope.HERE)
    bench.client("bob").publish("in/a", b"here", qos=1)
    arrive(bench, "in/a", b"there")
    assert read(bench) == [(0, b"here")]


def test_a_stream_of_everything_has_what_comes_from_elsewhere() -> None:
    bench = Bench()
    make(bench)
    arrive(bench, "in/a", b"there")
    run = b"\x30\x07\x00\x04in/a1" + b"\x30\x07\x00\x04in/a2"
    flags, body = runs.pack_run(run, 2, is_v5=False)
    bench.deliver(Deliver([("in/a", flags, body)], {"in/a": (LOCAL_SUBSCRIBERS,)}, "there", 0, NEVER))
    assert read(bench) == [(0, b"there"), (1, b"1"), (2, b"2")]


# Writers


def write(bench: Bench, batch: int, start: int, *payloads: bytes, user: str | None = None) -> BatchOutcome:
    notes = [Note("in/w", payload, 1, False) for payload in payloads]
    outcome = bench.server.writers.write("w", user, batch, start, notes, bench.now)
    bench.end_turn()
    return outcome


def test_what_a_writer_sends_again_is_left_out() -> None:
    bench = Bench()
    make(bench)
    assert write(bench, 0, 0, b"a", b"b") == BatchOutcome(2)
    assert write(bench, 0, 0, b"a", b"b", b"c") == BatchOutcome(3)
    assert write(bench, 0, 1, b"b") == BatchOutcome(3)
    assert write(bench, 1, 0, b"d") == BatchOutcome(1)
    assert write(bench, 0, 0, b"a", b"b", b"c") == BatchOutcome(3)
    assert [payload for _, payload in read(bench)] == [b"a", b"b", b"c", b"d"]


def test_a_crash_forgets_a_writers_place_together_with_its_messages() -> None:
    bench = Bench()
    make(bench)
    write(bench, 3, 0, b"a")
    bench.is_store_slow = True
    write(bench, 3, 1, b"b")
    bench.crash()
    bench.is_store_slow = False
    assert read(bench) == [(0, b"a")]
    assert write(bench, 3, 0, b"a", b"b") == BatchOutcome(2)
    assert read(bench) == [(0, b"a"), (1, b"b")]


def test_a_part_that_does_not_follow_is_refused() -> None:
    bench = Bench()
    with pytest.raises(Gap):
        write(bench, 0, 1, b"a")


def test_a_writer_has_the_rights_of_its_user_and_publishes_all_of_a_part_or_nothing() -> None:
    bench = Bench(rules=(Rule(user="alice", publish=("in/#",)),))
    make(bench, "#")
    notes = [Note("in/w", b"a", 1, False), Note("out", b"b", 1, False)]
    with pytest.raises(Unpublishable) as refused:
        bench.server.writers.write("w", "alice", 0, 0, notes, bench.now)
    assert refused.value.is_denied
    assert read(bench) == []
    assert write(bench, 0, 0, b"a", user="alice") == BatchOutcome(1)


def test_writers_of_two_users_are_two() -> None:
    bench = Bench(rules=(Rule(user="*", publish=("in/#",)),))
    make(bench, "#")
    assert write(bench, 0, 0, b"a", user="alice") == write(bench, 0, 0, b"b", user="bob") == BatchOutcome(1)
    assert [payload for _, payload in read(bench)] == [b"a", b"b"]


def test_the_writers_that_were_silent_for_longest_are_forgotten() -> None:
    bench = Bench(streams=1)
    for number in range(101):
        bench.server.writers.write(f"w{number}", None, 0, 0, [Note("t", b"", 1, False)], bench.now)
        bench.end_turn()
    names = {key.decode() for table, key in bench.store if table == "mqtt.writer"}
    assert names == {f"/w{number}" for number in range(1, 101)}
