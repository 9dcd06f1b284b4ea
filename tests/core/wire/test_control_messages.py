"""Control messages: every one is read as written, and none exceeds its limits."""

from collections.abc import Callable
from contextlib import suppress
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlane.core.wire.control_messages import (
    REMEMBERED,
    REMEMBERED_BYTES_MAX,
    Advert,
    ControlMessage,
    Establish,
    EstablishReserved,
    Farewell,
    ForNeighbour,
    GossipSummary,
    IncarnationProof,
    InterestRequest,
    InterestUpdate,
    KnownVersions,
    LinkClaim,
    Namesake,
    NumberedEstablish,
    ProvenIncarnations,
    PublishScope,
    Receipt,
    RouteRefresh,
    RouteRequest,
    ScopeComplete,
    ScopedInterest,
    Teardown,
    decode,
    encode,
    encode_checked,
)
from overlane.core.wire.message_fields import BROKERS_MAX
from overlane.errors import ProtocolViolation

CLAIM = LinkClaim("b", 1_000, 100, 20_000, 500, 1)
ESTABLISH = Establish("a", 3, 1, 2, ["a", "b", "c"], [0, 1], [1, 2], [0, 2], [2], [9, 5, 0], 60_000, 9, 2, 4)
EXAMPLES: list[ControlMessage] = [
    Advert("a", 3, 8, [CLAIM], {"60000": 40}, 1_000, left=True),
    InterestUpdate("a", 3, 2, 1, ["t/#"], ["u/+"]),
    InterestRequest("a"),
    GossipSummary([KnownVersions("a", (3, 8), (3, 2))]),
    ESTABLISH,
    Teardown("a", 3, 1),
    NumberedEstablish(["c"], b"\x00\x03"),
    Receipt("a", "c", 32, 3, 1, 7, b"\x05"),
    Farewell("maintenance"),
    IncarnationProof("a", 3, b"signed"),
    ProvenIncarnations({"a": 3, "b": 7}),
    Namesake("one at 192.0.2.7:4000 was refused by b"),
    ScopedInterest("e1", b"\x01\xff", ["plant/line1/#"], ["#"]),
    PublishScope(3, [0, (1 << 64) - 1], [7], ["e2"]),
    ScopeComplete(3, bytes(31) + b"\x80"),
    ForNeighbour(b"\0of another part"),
    RouteRefresh("a", 3, 9, {1: 2, 7: 0xFFFF}),
    RouteRequest("a", 3, {1: 2}),
    EstablishReserved(**msgspec.structs.asdict(ESTABLISH), reservation=7),
]


def test_there_is_an_example_of_every_message() -> None:
    assert {type(message) for message in EXAMPLES} == set(get_args(ControlMessage))


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_is_read_as_written(message: ControlMessage) -> None:
    assert decode(memoryview(encode(message))) == message


def test_equal_bytes_are_decoded_once_and_a_message_is_encoded_once() -> None:
    data = encode(Advert("somebody", 3, 8, [CLAIM], {}, 0))
    first = decode(memoryview(data))
    assert decode(memoryview(bytearray(data))) is first
    assert encode_checked(first) is encode_checked(first)
    assert encode_checked(first) == data


def test_what_is_remembered_of_messages_is_bounded() -> None:
    large = InterestUpdate("a", 3, 2, 1, ["t" * REMEMBERED_BYTES_MAX], [])
    assert decode(memoryview(encode(large))) is not decode(memoryview(encode(large)))
    assert encode_checked(large) is not encode_checked(large)
    first = Teardown("a", 3, 0)
    data = encode_checked(first)
    for number in range(REMEMBERED):
        encode_checked(Teardown("a", 3, number))
    assert encode_checked(first) is not data


@given(st.binary(max_size=100))
def test_any_bytes_are_a_message_or_a_violation(garbage: bytes) -> None:
    with suppress(ProtocolViolation):
        decode(memoryview(garbage))


@given(st.sampled_from(EXAMPLES), st.data())
def test_a_damaged_message_is_another_message_or_a_violation(message: ControlMessage, data: st.DataObject) -> None:
    damaged = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ProtocolViolation):
        decode(memoryview(damaged))


def test_a_name_that_is_not_utf_8_is_a_violation() -> None:
    with pytest.raises(ProtocolViolation, match="not one"):
        decode(memoryview(encode(InterestRequest("ab"))[:-2] + b"\xff\xfe"))


NEVER_SO_DEEP = b"\x91" * 100_000


@pytest.mark.parametrize("data", [b"", b"\xc0", b"\x92\x0a\xa1a", NEVER_SO_DEEP, encode(EXAMPLES[0]) + b"\x00"])
def test_what_is_no_message_at_all_is_a_violation(data: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="not one"):
        decode(memoryview(data))


def changed(message: ControlMessage, **fields: object) -> Callable[[], bytes]:
    return lambda: encode(msgspec.structs.replace(message, **fields))


def claim(**fields: object) -> Callable[[], bytes]:
    return changed(EXAMPLES[0], links=[msgspec.structs.replace(CLAIM, **fields)])


SCOPED, PUBLISHED, COMPLETE, NUMBERED = (
    next(one for one in EXAMPLES if isinstance(one, kind))
    for kind in (ScopedInterest, PublishScope, ScopeComplete, NumberedEstablish)
)
LIMITS: dict[str, Callable[[], bytes]] = {
    "a message for a neighbour of 2049 bytes": lambda: encode(ForNeighbour(bytes(2049))),
    "an empty name": changed(EXAMPLES[2], broker=""),
    "a name of 65": changed(EXAMPLES[2], broker="x" * 65),
    "a negative count": changed(EXAMPLES[5], route=-1),
    "a count of 64 bits": changed(EXAMPLES[5], route=1 << 63),
    "a fraction": changed(EXAMPLES[5], route=1.5),
    "a state that is none": claim(state=4),
    "more loss than all": claim(loss_millionths=1_000_001),
    "more risk than certain": claim(risk_millionths=-1),
    "too many links": changed(EXAMPLES[0], links=[CLAIM] * (BROKERS_MAX + 1)),
    "too many classes": changed(EXAMPLES[0], processing_us={str(at): at for at in range(257)}),
    "an empty filter": changed(EXAMPLES[1], added=[""]),
    "a filter of 65536": changed(EXAMPLES[1], removed=["x" * 65536]),
    "a base before all": changed(EXAMPLES[1], base=-2),
    "too many brokers known": changed(EXAMPLES[3], known=[KnownVersions("a", (1, 1), (1, 1))] * (BROKERS_MAX + 1)),
    "too many brokers on a route": changed(ESTABLISH, brokers=["a"] * (BROKERS_MAX + 1)),
    "a destination it does not name": changed(ESTABLISH, destinations=[3]),
    "a destination before all": changed(ESTABLISH, destinations=[-1]),
    "a link to a broker it does not name": changed(ESTABLISH, added=[0, 3]),
    "a link to a broker before all": changed(ESTABLISH, added=[0, -9]),
    "half a link": changed(ESTABLISH, obsolete=[0]),
    "a broker twice": changed(ESTABLISH, brokers=["a", "b", "b"]),
    "a route without its source": changed(ESTABLISH, origin="z"),
    "too many new names": changed(NUMBERED, names=["a"] * (BROKERS_MAX + 1)),
    "a new name that is none": changed(NUMBERED, names=["?"]),
    "a description of nothing": changed(NUMBERED, body=b""),
    "a link of a broker to itself": claim(peer="a"),
    "a link twice": changed(EXAMPLES[0], links=[CLAIM, CLAIM]),
    "a latency of centuries": claim(latency_us=1 << 60),
    "too many links on a route": changed(ESTABLISH, kept=[0] * (2 * 65536 + 1)),
    "a version of 17 bits": changed(ESTABLISH, version=0x10000),
    "a life of 33 bits": changed(ESTABLISH, incarnation=1 << 32),
    "a route of 33 bits": changed(ESTABLISH, route=1 << 32),
    "a deadline that fits no parcel": changed(ESTABLISH, deadline_us=1 << 32),
    "too many hops left": changed(EXAMPLES[7], hops_left=256),
    "too much beyond": changed(EXAMPLES[7], beyond=bytes(1025)),
    "an empty proof": changed(EXAMPLES[9], proof=b""),
    "too long a proof": changed(EXAMPLES[9], proof=bytes(16385)),
    "a proof of 33 bits": changed(EXAMPLES[9], incarnation=1 << 32),
    "too many incarnations": changed(EXAMPLES[10], incarnations={str(number): 1 for number in range(BROKERS_MAX + 1)}),
    "too many bundles": changed(SCOPED, covers=bytes(33)),
    "a filter of 65536 between tiers": changed(SCOPED, added=["x" * 65536]),
    "an ill-formed filter between tiers": changed(SCOPED, removed=["a#"]),
    "too many filters between tiers": changed(SCOPED, added=["x"] * 1025),
    "too many groups": changed(PUBLISHED, added=[1] * 1025),
    "too many groups that end": changed(PUBLISHED, removed=[1] * 1025),
    "a group before all": changed(PUBLISHED, added=[-1]),
    "too many brokers asked for": changed(PUBLISHED, asked=["a"] * 513),
    "a broker asked for without a name": changed(PUBLISHED, asked=["?"]),
    "too many complete bundles": changed(COMPLETE, bundles=bytes(33)),
    "too long a reason": changed(EXAMPLES[8], reason="x" * 257),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_message_beyond_its_limits_is_a_violation(limit: str) -> None:
    with pytest.raises(ProtocolViolation):
        decode(memoryview(LIMITS[limit]()))
