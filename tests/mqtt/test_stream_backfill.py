"""Streams that begin with what is retained: a part at a time, and yet as if it were all at once."""

from collections import Counter
from random import Random

import pytest
from clients import NEVER_S, Bench, Client

from overlane.pubsub.retained.round_robin import SOON
from overlane.pubsub.streams import backfill
from overlane.pubsub.streams.streams import Scope, StreamLog

ALL = 10**9
SEEDS = 40


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill, "MESSAGES_AT_ONCE", 10)


def furnished(topics: int) -> Bench:
    """A bench with so many topics of a retained message each, `t/000/a` and so on; and others."""
    bench = Bench()
    bob = bench.client("bob", expiry=NEVER_S)
    for number in range(topics):
        bob.publish(f"t/{number:03}/a", b"old %d" % number, qos=1, retain=True)
    bob.publish("elsewhere", b"x", qos=1, retain=True)
    return bench


def make(bench: Bench, topic_filter: str = "t/#") -> StreamLog:
    log = bench.server.streams.create("s", topic_filter, Scope.EVERYWHERE, None, True, bench.now)
    bench.end_turn()
    return log


def logged(bench: Bench) -> list[tuple[str, bytes]]:
    log = bench.server.streams.get("s")
    assert log is not None
    found, _ = bench.server.streams.read(log, 0, ALL, ALL, ALL, bench.now)
    return [(one.topic, one.payload) for _, one in found]


def go_on(bench: Bench, parts: int = 1) -> None:
    bench.wait(parts * SOON / 1e9)


def old(numbers: range) -> list[tuple[str, bytes]]:
    return [(f"t/{number:03}/a", b"old %d" % number) for number in numbers]


def test_others_are_served_between_two_parts() -> None:
    bench = furnished(200)
    carol = bench.client("carol")
    carol.subscribe("news")
    bob = bench.client("bob2")
    log = make(bench)
    begun: list[int] = []
    bench.server.streams.when_begun(log, lambda: begun.append(len(log)))
    parts = [len(log)]
    while not begun:
        before = len(carol.inbox)
        bob.publish("news", b"x")
        assert len(carol.inbox) == before + 1
        go_on(bench)
        parts.append(len(log) - sum(parts))
    assert max(parts) == 10
    assert begun == [200]
    assert logged(bench) == old(range(200))
    assert "mqtt.beginning" not in bench.tables()


@pytest.mark.parametrize("topic_filter", ["t/#", "t/+/a", "#", "t/005/a"])
def test_every_retained_message_that_matches_is_in_the_log_once(topic_filter: str) -> None:
    bench = furnished(35)
    make(bench, topic_filter)
    bench.wait(1)
    expected = old(range(5, 6)) if "5" in topic_filter else old(range(35))
    assert logged(bench) == ([("elsewhere", b"x")] if topic_filter == "#" else []) + expected


def test_what_a_topic_had_is_logged_before_what_it_has_since() -> None:
    bench = furnished(30)
    make(bench)
    bob = bench.client("bob2")
    bob.publish("t/005/a", b"behind", qos=1, retain=True)
    bob.publish("t/025/a", b"ahead", qos=1, retain=True)
    bob.publish("t/025/a", b"ahead again", qos=1, retain=True)
    bob.publish("t/025/b", b"new", qos=1, retain=True)
    bob.publish("t/026/a", b"", qos=1, retain=True)
    bob.publish("t/027/a", b"not kept", qos=1)
    bench.wait(1)
    changed = [
        ("t/005/a", b"behind"),
        ("t/025/a", b"old 25"),
        ("t/025/a", b"ahead"),
        ("t/025/a", b"ahead again"),
        ("t/025/b", b"new"),
        ("t/026/a", b"old 26"),
        ("t/026/a", b""),
        ("t/027/a", b"not kept"),
    ]
    rest = [one for one in old(range(10, 30)) if one[0] not in ("t/025/a", "t/026/a")]
    assert logged(bench) == old(range(10)) + changed + rest
    assert "mqtt.beginning" not in bench.tables()


def test_a_stream_that_is_removed_while_it_begins_leaves_nothing_behind() -> None:
    bench = furnished(30)
    before = dict(bench.store)
    log = make(bench)
    begun: list[StreamLog] = []
    bench.server.streams.when_begun(log, lambda: begun.append(log))
    assert bench.server.streams.remove("s", bench.now)
    bench.wait(1)
    assert begun == [log]
    assert bench.store == before
    make(bench)
    bench.wait(1)
    assert logged(bench) == old(range(30))


def test_while_the_store_fails_a_stream_waits_for_the_rest() -> None:
    bench = furnished(30)
    make(bench)
    bench.server.store_is_failing(True)
    bench.wait(1)
    assert len(logged(bench)) == 10
    bench.server.store_is_failing(False)
    bench.wait(1)
    assert logged(bench) == old(range(30))


def test_two_streams_begin_by_turns() -> None:
    bench = furnished(30)
    first = make(bench)
    second = bench.server.streams.create("s2", "t/#", Scope.EVERYWHERE, None, True, bench.now)
    go_on(bench, 2)
    assert (len(first), len(second)) == (20, 20)
    bench.wait(1)
    assert (len(first), len(second)) == (30, 30)


def unanswered(publisher: Client) -> set[bytes]:
    return {one.payload for one in publisher.owed.values() if one is not None}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_or_doubled_whatever_falls_between_two_parts(seed: int) -> None:
    random = Random(seed)
    bench = furnished(60)
    make(bench)
    bench.is_store_slow = True
    bob = bench.client("publisher", expiry=NEVER_S)
    published: dict[bytes, tuple[str, bool]] = {}
    published_again: set[bytes] = set()
    for number in range(80):
        match random.randrange(8):
            case 0 | 1:
                go_on(bench)
            case 2 | 3:
                bench.commit(random.choice([1, 2, 100]))
                bench.settle()
            case 4 if random.random() < 0.3:
                published_again |= unanswered(bob)
                bench.crash()
                bob.connect()
            case _ if bob.is_open and bob.connack is not None and len(bob.owed) < 20:
                topic = f"t/{random.randrange(70):03}/{random.choice('ab')}"
                payload = b"" if random.random() < 0.2 else b"new %d" % number
                is_kept = not payload or random.random() < 0.8
                if payload:
                    published[payload] = topic, is_kept
                bob.publish(topic, payload, qos=1, retain=is_kept)
            case _:
                pass
    bench.is_store_slow = False
    bench.commit()
    published_again |= unanswered(bob)
    bob.connect()
    bench.wait(1)
    found = logged(bench)
    times = Counter(payload for _, payload in found)
    told = f"seed {seed}: {found}"
    assert not bob.owed, told
    for topic, payload in old(range(60)):
        assert times[payload] == 1, told
        kept = [one for where, one in found if where == topic and published.get(one, (topic, True))[1]]
        assert kept[0] == payload, told
    for payload, (topic, _) in published.items():
        assert times[payload] == 1 or (payload in published_again and times[payload]), told
        assert (topic, payload) in found, told
    assert "mqtt.beginning" not in bench.tables()
