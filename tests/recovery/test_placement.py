"""Which hosts get copies: few change when hosts come and go, and brokers of one host are spread."""

from collections import Counter

import pytest

from overlane.coordination.records import MalformedRecord
from overlane.recovery.host_records import (
    EndpointRecord,
    HostRecord,
    MirrorsRecord,
    MoveRecord,
    decode_record,
    encode_record,
)
from overlane.recovery.placement import choose_mirrors
from overlane.recovery.questions import Heard, HeardAgo, decode_message, encode_message

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
    for message in (Heard("seattle"), HeardAgo("seattle", -1)):
        assert decode_message(encode_message(message)) == message
