"""Somebody else writes to ZooKeeper: what no broker would write changes nothing and is reported."""

import json
from functools import cache
from typing import Any

import msgspec
import pytest
from coordination_site import Site
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from overlane.coordination.contract import Create, Delete, Done, Replace
from overlane.coordination.participant import Ignored
from overlane.coordination.records import (
    Assigned,
    BrokerRecord,
    ConfigRecord,
    EpochRecord,
    LeaderRecord,
    MalformedRecord,
    NameRecord,
    ReportRecord,
    ShardRecord,
    SuspectsRecord,
    WantedRecord,
    decode,
    decode_registration,
    decode_shard,
    encode,
)
from overlane.core.units import MS, SECOND

VALID = {
    "/brokers/edges/west/e0": BrokerRecord("west", "edge", 4, ("127.0.0.1:7004",)),
    "/brokers/routing/r0": BrokerRecord("core", "routing", 1, ("127.0.0.1:7001",)),
    "/brokers/routing/mallory": BrokerRecord("core", "routing", 99, ("10.0.0.1:7001",), {"mqtt": "10.0.0.1:1883"}),
    "/brokers/others/mallory": BrokerRecord("core", "plain", 99),
    "/brokers/edges/west/mallory": BrokerRecord("west", "edge", 99),
    "/names/e0": NameRecord(4, "/brokers/edges/west/e0"),
    "/reports/e0": ReportRecord(0.1, "AQ==", "AQ==", {"r0": 500}),
    "/suspects/e0": SuspectsRecord(("r0",)),
    "/leader": LeaderRecord("r0"),
    "/epoch": EpochRecord("r0", 1),
    "/assignments/3": ShardRecord(1, {3: Assigned("r0", 0, "placed")}),
    "/assignments/mallory": ShardRecord(1, {3: Assigned("mallory", 0, "placed")}),
    "/wanted": WantedRecord(1),
    "/config": ConfigRecord(3, "text"),
}
KINDS: dict[str, Any] = {path: type(record) for path, record in VALID.items()}
READ_BY_NOBODY = ("/names/", "/epoch")
"""Checked only when they matter, and not reported."""

values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(),
        st.text(max_size=20),
        st.sampled_from(["", ".", "..", "a/b", "\0", "\ud800", 300 * "x", "h:" + 5_000 * "9", "h:0", "[::1]:99999"]),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def altered(draw: st.DrawFn) -> tuple[str, bytes]:
    """A record with one field that is something else."""
    path = draw(st.sampled_from(sorted(VALID)))
    record = msgspec.to_builtins(VALID[path])
    record[draw(st.sampled_from(sorted(record)))] = draw(values)
    return path, json.dumps(record).encode()


@st.composite
def garbage(draw: st.DrawFn) -> tuple[str, bytes]:
    path = draw(st.sampled_from(sorted(VALID)))
    others = st.sampled_from([encode(one) for one in VALID.values()])
    huge = st.integers(64 * 1024, 600_000).map(lambda size: b'{"name": "' + size * b"x" + b'"}')
    return path, draw(
        st.one_of(st.binary(max_size=100), values.map(lambda one: json.dumps(one).encode()), others, huge)
    )


def flaw(path: str, data: bytes) -> str | None:
    """Why a broker ignores it; None: it does not."""
    try:
        if path.startswith("/brokers/"):
            decode_registration(path, data)
        elif path.startswith("/assignments/"):
            decode_shard(path, data)
        else:
            decode(path, data, KINDS[path])
    except MalformedRecord as error:
        return error.reason
    return None


@cache
def settled() -> Site:
    site = Site(1, routing=1, edges=2)
    site.write(Create("/config", encode(ConfigRecord(3, "text"))))
    site.use("e0", frozenset(range(20)))
    site.settle()
    site.write(Create("/suspects"))
    site.write(Create("/suspects/e0", encode(SuspectsRecord())))
    site.settle()
    return site


def known(site: Site) -> list[object]:
    found: list[object] = []
    for member in site.members.values():
        one = member.participant
        reports = dict(one.leading.reports) if one.leading is not None else {}
        found += [
            dict(one.members),
            one.assigned,
            one.config,
            one.wanted,
            one.leader.name,
            dict(one._suspects),
            reports,
        ]
    return found


def run(site: Site, steps: int = 3) -> None:
    for _ in range(steps):
        while sum(member.wire.step() for member in site.members.values()):
            pass
        site.wait(25 * MS)


@examples(100)
@given(written=altered() | garbage())
def test_what_no_broker_would_write_changes_nothing_and_is_reported(written: tuple[str, bytes]) -> None:
    path, data = written
    site = settled()
    before, entry = known(site), site.tree._entries.get(path)
    original = entry.node.data if entry is not None else None
    for member in site.members.values():
        member.notices.clear()
    assert isinstance(site.write(Create(path, data) if original is None else Replace(path, data)), Done)
    run(site)
    reason = flaw(path, data)
    if reason is not None:
        assert known(site) == before
        if not path.startswith(READ_BY_NOBODY):
            told = {one for member in site.members.values() for one in member.notices if isinstance(one, Ignored)}
            assert Ignored(path, reason) in told
    site.write(Delete(path) if original is None else Replace(path, original))
    run(site)
    if known(site) != before:  # it was a record like any other, and has changed something
        settled.cache_clear()


@pytest.mark.parametrize("data", [b"\xff", encode(EpochRecord("mallory", 77))])
def test_a_leader_whose_epoch_was_overwritten_is_elected_anew_and_goes_on(data: bytes) -> None:
    site = Site(2, routing=2, edges=2)
    site.use("e0", frozenset(range(20)))
    site.settle()
    (leader,) = site.leaders()
    site.write(Replace("/epoch", data))
    site.settle(2)
    (lost,) = {"r0", "r1"} - set(site.leaders())
    site.kill(lost)
    site.settle(30)
    assert set(site.homes().values()) == set(site.leaders()) == {"r0", "r1"} - {lost}
    assert leader in ("r0", "r1")


def test_a_leader_node_without_a_session_is_replaced() -> None:
    site = Site(3, routing=2, edges=2)
    site.settle()
    for data in (encode(LeaderRecord("mallory")), b"\xff"):
        site.write(Delete("/leader"), Create("/leader", data))
        site.settle(2)
        assert len(site.leaders()) == 1
        assert site.now > SECOND


def test_the_registration_of_another_broker_cannot_be_made_in_another_folder() -> None:
    site = Site(4, routing=1, edges=2)
    site.settle()
    forged = BrokerRecord("core", "routing", 99, ("10.0.0.1:7001",))
    site.write(Create("/brokers/routing/e0", encode(forged)))
    site.settle(2)
    assert site.members["r0"].participant.members["e0"] == site.records["e0"]
