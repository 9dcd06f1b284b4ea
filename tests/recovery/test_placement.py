"""Which hosts get copies: few change when hosts come and go, and brokers of one host are spread."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlane.coordination.records import MalformedRecord
from overlane.core.units import MS, NEVER, SECOND
from overlane.recovery.hosts.host_knowledge import Presence, load_of, together_of
from overlane.recovery.hosts.host_records import (
    EndpointRecord,
    HostRecord,
    MirrorsRecord,
    MoveRecord,
    decode_record,
    encode_record,
)
from overlane.recovery.hosts.placement import HostStatistics, choose_mirrors
from overlane.recovery.hosts.questions import HeardAgo, HeardQuestion, decode_message, encode_message

EDGE, BACKUP = HostRecord("edge"), HostRecord("backup")
HOSTS = {f"h{number}": EDGE for number in range(10)}


def test_the_host_of_the_broker_comes_first_then_backups_then_others() -> None:
    hosts = {"seattle": EDGE, "spare": BACKUP, "denver": EDGE}
    assert choose_mirrors("seattle", 1, hosts, (), "elsewhere") == ("seattle",)
    assert choose_mirrors("seattle", 1, hosts, (), "seattle") == ("spare",)
    assert choose_mirrors("seattle", 9, hosts, (), "seattle") == ("denver", "spare")
    assert choose_mirrors("seattle", 1, {}, (), "seattle") == ()


def test_a_copy_stays_where_it_is_and_a_move_goes_before_all() -> None:
    hosts = {"seattle": EDGE, "spare": BACKUP, "denver": EDGE}
    assert choose_mirrors("seattle", 1, hosts, {"denver"}, "elsewhere") == ("denver",)
    assert choose_mirrors("seattle", 1, hosts, {"gone"}, "seattle") == ("spare",)
    assert choose_mirrors("seattle", 1, hosts, {"spare"}, "seattle", "denver") == ("denver",)


def test_a_host_whose_certificate_does_not_name_the_broker_gets_no_copy() -> None:
    hosts = {
        "denver": HostRecord("backup", brokers=("denver",)),
        "boise": HostRecord("edge", brokers=("boise", "seattle")),
    }
    assert choose_mirrors("seattle", 2, hosts, {"denver"}, "seattle") == ("boise",)


def test_brokers_are_spread_and_only_those_of_a_lost_host_change() -> None:
    brokers = [f"b{number}" for number in range(1_000)]
    before = {one: choose_mirrors(one, 1, HOSTS, (), "") for one in brokers}
    counts = Counter(before.values())
    assert set(counts) == {(host,) for host in HOSTS}
    assert max(counts.values()) < 160
    left = {name: record for name, record in HOSTS.items() if name != "h3"}
    after = {one: choose_mirrors(one, 1, left, (), "") for one in brokers}
    assert {one for one in brokers if before[one] != after[one]} == {one for one in brokers if before[one] == ("h3",)}


def test_a_host_with_a_lesser_score_gets_fewer() -> None:
    hosts = {**HOSTS, "h0": HostRecord("edge", 0.25)}
    counts = Counter(choose_mirrors(f"b{number}", 1, hosts, (), "")[0] for number in range(4_000))
    assert 50 < counts["h0"] < 180
    assert all(counts[host] > 300 for host in HOSTS if host != "h0")


@pytest.mark.parametrize(
    "record",
    [
        HostRecord("backup", 0.5),
        EndpointRecord("10.0.0.1:7001"),
        MirrorsRecord(7, "a", ("b", "c"), "edge", ("mqtt",)),
        MoveRecord("b"),
    ],
)
def test_records_of_hosts_survive_their_bytes(record: HostRecord) -> None:
    assert decode_record("/path", encode_record(record), type(record)) == record


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\xff", HostRecord),
        (b'{"role":"edge","score":2}', HostRecord),
        (b'{"role":"king"}', HostRecord),
        (b'{"address":"nowhere"}', EndpointRecord),
        (b'{"epoch":1,"primary":"a/b","hosts":[]}', MirrorsRecord),
        (b'{"epoch":1,"primary":"a","hosts":[' + b",".join([b'"h"'] * 17) + b"]}", MirrorsRecord),
        (b'{"host":""}', MoveRecord),
        (b"[" * 20_000, MoveRecord),
    ],
)
def test_a_znode_that_no_host_would_write_is_malformed(data: bytes, kind: type[HostRecord]) -> None:
    with pytest.raises(MalformedRecord):
        decode_record("/path", data, kind)


def test_questions_survive_their_bytes() -> None:
    for message in (HeardQuestion("seattle"), HeardAgo("seattle", -1)):
        assert decode_message(encode_message(message)) == message


# Risk, distance, load and the file

FIVE = dict.fromkeys(("boise", "denver", "provo", "reno", "tulsa"), EDGE)
PAIR = frozenset(("seattle", "denver"))


def test_a_copy_is_not_where_it_would_be_lost_with_the_broker_and_moves_away_from_there() -> None:
    two = {"denver": EDGE, "boise": EDGE}
    for known in (HostStatistics(together={PAIR: 0.6}), HostStatistics(down={"denver": 0.6})):
        assert choose_mirrors("seattle", 1, two, (), "seattle", known=known) == ("boise",)
        assert choose_mirrors("seattle", 1, two, {"denver"}, "seattle", known=known) == ("boise",)
    # Better there than nowhere.
    assert choose_mirrors(
        "seattle", 1, {"denver": EDGE}, (), "seattle", known=HostStatistics(together={PAIR: 1.0})
    ) == ("denver",)


def test_two_copies_are_not_where_they_would_be_lost_together() -> None:
    known = HostStatistics(together={frozenset(("boise", "denver")): 0.8})
    assert choose_mirrors("seattle", 2, {"boise": EDGE, "denver": EDGE, "reno": EDGE}, (), "seattle", known=known) in (
        ("boise", "reno"),
        ("denver", "reno"),
    )


def test_copies_that_were_chosen_one_after_the_other_do_not_move_when_they_are_looked_at_together() -> None:
    """The second copy was chosen for want of a better one, and left again when the first was looked at after it."""
    known = HostStatistics(together={frozenset(("h0", "h2")): 0.6, frozenset(("h2", "h3")): 0.9})
    hosts = dict.fromkeys(("h0", "h1", "h2", "h3"), EDGE)
    chosen = choose_mirrors("h0", 2, hosts, {"h2"}, "h1", known=known)
    assert choose_mirrors("h0", 2, hosts, chosen, "h1", known=known) == chosen


def test_a_copy_goes_to_a_host_nearby_and_does_not_move_for_that() -> None:
    known = HostStatistics(
        round_trip={"boise": 300 * MS, "denver": 1 * MS, "provo": NEVER, "reno": 200 * MS, "tulsa": 90 * MS}
    )
    assert choose_mirrors("seattle", 1, FIVE, (), "seattle", known=known) == ("denver",)
    assert choose_mirrors("seattle", 1, FIVE, {"provo"}, "seattle", known=known) == ("provo",)


def test_brokers_that_choose_one_after_the_other_spread_their_copies_evenly_and_backups_still_come_first() -> None:
    mirrors: dict[str, MirrorsRecord] = {}
    for name in HOSTS:
        known = HostStatistics(load=load_of(name, mirrors))
        mirrors[name] = MirrorsRecord(1, name, choose_mirrors(name, 2, HOSTS, (), name, known=known))
    counts = Counter(host for record in mirrors.values() for host in record.hosts)
    assert set(counts) == set(HOSTS)
    assert max(counts.values()) - min(counts.values()) <= 2
    with_backup = {**HOSTS, "spare": BACKUP}
    assert choose_mirrors("h0", 1, with_backup, (), "h0", known=HostStatistics(load={"spare": 9})) == ("spare",)
    busy = HostStatistics(load={"spare": 9}, round_trip={**dict.fromkeys(HOSTS, 0), "spare": 40 * MS})
    assert choose_mirrors("h0", 1, with_backup, (), "h0", known=busy) == ("spare",)


def test_the_file_names_the_hosts_and_their_order() -> None:
    for present, expected in (((), ("tulsa",)), (("reno",), ("reno",)), (("denver",), ("tulsa",))):
        assert choose_mirrors("seattle", 1, FIVE, present, "seattle", named=("tulsa", "gone", "reno")) == expected
    assert choose_mirrors("seattle", 3, FIVE, (), "seattle", named=("tulsa", "gone", "reno")) == ("reno", "tulsa")
    assert choose_mirrors("seattle", 1, FIVE, {"tulsa"}, "seattle", "boise", named=("tulsa",)) == ("boise",)
    assert choose_mirrors("boise", 1, FIVE, (), "tulsa", named=("tulsa", "reno")) == ("boise",), "it is back"
    gone = HostStatistics(round_trip={"boise": NEVER, "reno": MS})
    assert choose_mirrors("boise", 1, FIVE, (), "tulsa", known=gone, named=("tulsa", "reno")) == ("reno",)


shares = st.floats(0, 1)
some_hosts = st.dictionaries(st.sampled_from([f"h{number}" for number in range(8)]), st.sampled_from([EDGE, BACKUP]))
pairs = st.sets(st.sampled_from([f"h{number}" for number in range(8)]), min_size=2, max_size=2).map(frozenset)
knowledge = st.builds(
    HostStatistics,
    down=st.dictionaries(st.sampled_from(sorted(HOSTS)), shares),
    together=st.dictionaries(pairs, shares),
    round_trip=st.dictionaries(st.sampled_from(sorted(HOSTS)), st.integers(0, 10**9) | st.just(NEVER)),
    load=st.dictionaries(st.sampled_from(sorted(HOSTS)), st.integers(0, 9)),
)


@given(some_hosts, knowledge, st.integers(0, 4), st.sets(st.sampled_from(sorted(HOSTS)), max_size=3))
def test_a_choice_is_complete_stays_as_it_is_and_survives_the_loss_of_others(
    hosts: dict[str, HostRecord], known: HostStatistics, count: int, present: set[str]
) -> None:
    chosen = choose_mirrors("h0", count, hosts, present, "h1", known=known)
    assert len(chosen) == min(count, len(hosts.keys() - {"h1"}))
    assert set(chosen) <= hosts.keys() - {"h1"}
    assert choose_mirrors("h0", count, hosts, chosen, "h1", known=known) == chosen
    for lost in hosts.keys() - set(chosen):
        left = {name: record for name, record in hosts.items() if name != lost}
        assert choose_mirrors("h0", count, left, chosen, "h1", known=known) == chosen


@given(some_hosts, knowledge, st.sampled_from(sorted(HOSTS)), st.integers(0, 10**9), st.integers(0, 9))
def test_no_distance_and_no_load_moves_a_copy(
    hosts: dict[str, HostRecord], known: HostStatistics, at: str, round_trip: int, load: int
) -> None:
    riskless = replace(known, down={}, together={})
    changed = replace(riskless, round_trip={**known.round_trip, at: round_trip}, load={**known.load, at: load})
    chosen = choose_mirrors("b", 2, hosts, (), "h1", known=riskless)
    again = choose_mirrors("b", 2, {**hosts, "spare": BACKUP}, chosen, "h1", known=changed)
    assert set(chosen) <= set(again), "a backup that comes gets only a place that is free"


def test_a_host_that_was_often_gone_is_a_risk_and_one_that_was_watched_briefly_is_none() -> None:
    presence, hour = Presence(), 3_600 * SECOND
    presence.noted({"boise", "denver"}, 0)
    presence.noted({"boise"}, hour)
    assert presence.down(2 * hour) == {"boise": 0.0, "denver": 0.04}
    presence.noted({"boise", "denver"}, 25 * hour)
    assert presence.down(24 * hour + 2 * hour) == {"boise": 0.0, "denver": 0.48}


def test_what_file_and_plan_say_of_hosts_that_fail_together() -> None:
    group, planned = ("a", "b", "c"), {frozenset(("a", "b")): 0.95, frozenset(("c", "d")): 0.3}
    assert together_of([group], planned) == {
        frozenset(("a", "b")): 0.95,
        frozenset(("a", "c")): 0.9,
        frozenset(("b", "c")): 0.9,
        frozenset(("c", "d")): 0.3,
    }
