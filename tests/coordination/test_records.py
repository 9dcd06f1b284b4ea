"""What is read from znodes is checked: what a broker would not write is refused by name, and changes nothing."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlane.coordination.records import (
    Assigned,
    BrokerRecord,
    ConfigRecord,
    LeaderRecord,
    MalformedRecord,
    NameRecord,
    ReportRecord,
    ShardRecord,
    WantedRecord,
    decode,
    encode,
    pack,
    unpack,
)
from overlane.core.bundles import BUNDLES

KINDS = (BrokerRecord, NameRecord, ReportRecord, LeaderRecord, ShardRecord, WantedRecord, ConfigRecord)


@pytest.mark.parametrize(
    "record",
    [
        BrokerRecord("west", "edge", 7, ("10.0.0.1:7000", "[::1]:7000"), {"mqtt": "10.0.0.1:1883"}, "", "0.1.0"),
        ReportRecord(0.4, pack(frozenset({1, 200})), "", {"r1": 1_500}),
        LeaderRecord("r1"),
        ShardRecord(9, {3: Assigned("r1", 1_700_000_000, "least loaded")}),
        ConfigRecord(1, "[brokers.a]\n", 0, "operator"),
    ],
)
def test_what_is_written_is_read(record: BrokerRecord) -> None:
    assert decode("/x", encode(record), type(record)) == record


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (BrokerRecord("", "edge", 7), "domain"),
        (BrokerRecord("a/b", "edge", 7), "domain"),
        (BrokerRecord("west", "edge", 7, ("nowhere",)), "HOST:PORT"),
        (BrokerRecord("west", "edge", 7, ("host:99999",)), "HOST:PORT"),
        (BrokerRecord("west", "edge", 7, clients={"mqtt": ":1883"}), "HOST:PORT"),
        (BrokerRecord("west", "edge", 7, 17 * ("host:1",)), "addresses"),
        (ReportRecord(-1.0), "load"),
        (ReportRecord(latency_us={"r1": -5}), "latency"),
        (ReportRecord(wants=3_000 * "A"), "bytes"),
        (LeaderRecord(""), "name"),
        (ShardRecord(1, {BUNDLES: Assigned("r1", 0, "")}), "bundle"),
        (ShardRecord(1, {0: Assigned("", 0, "")}), "name"),
        (ConfigRecord(0, ""), "version"),
    ],
)
def test_a_record_that_no_broker_would_write_is_refused_with_its_path(record: BrokerRecord, reason: str) -> None:
    with pytest.raises(MalformedRecord, match=f"^/x: .*{reason}"):
        decode("/x", encode(record), type(record))


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.one_of(st.binary(max_size=200), st.text(max_size=80).map(str.encode), st.just(b"[" * 5_000)))
def test_garbage_is_refused_and_raises_nothing_else(kind: type[BrokerRecord], data: bytes) -> None:
    try:
        decode("/x", data, kind)
    except MalformedRecord:
        return
    # No garbage: fields of a later version are ignored, and those of some kinds all have defaults.
    assert isinstance(msgspec.json.decode(data), dict)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e999"])
def test_a_load_that_is_no_number_is_refused(value: str) -> None:
    with pytest.raises(MalformedRecord):
        decode("/x", f'{{"load": {value}}}'.encode(), ReportRecord)


def test_fields_of_a_later_version_are_ignored() -> None:
    later = {"name": "r1", "colour": "blue"}
    assert decode("/x", msgspec.json.encode(later), LeaderRecord) == LeaderRecord("r1")


@given(st.frozensets(st.integers(0, BUNDLES - 1)))
def test_sets_of_bundles_are_packed_and_unpacked(bundles: frozenset[int]) -> None:
    assert unpack(pack(bundles)) == bundles
    assert len(pack(bundles)) <= 44


@given(st.text(max_size=60))
def test_a_digest_that_is_damaged_is_some_set_of_bundles(text: str) -> None:
    assert unpack(text) <= frozenset(range(BUNDLES))
