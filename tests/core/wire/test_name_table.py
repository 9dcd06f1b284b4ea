"""Descriptions of routes on one connection: a broker is named once, and has a number from then on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from overlane.core.wire.control_messages import Establish, EstablishReserved, NumberedEstablish, decode, encode
from overlane.core.wire.message_fields import NUMBERED_NAMES_MAX
from overlane.core.wire.name_table import ReceivedNames, SentNames
from overlane.core.wire.route_packing import pack, unpack
from overlane.errors import ProtocolViolation


def along(*brokers: str, origin: str = "") -> Establish:
    """A route from broker to broker; those without a name are none of the receiver's concern."""
    links = [
        place for start in range(len(brokers) - 1) for place in (start, start + 1) if all(brokers[start : start + 2])
    ]
    ahead_us = [1_000 * at if name else 0 for at, name in enumerate(brokers)]
    origin = origin or brokers[0]
    return Establish(
        origin, 3, 1, 2, [*brokers], [], links, [], [len(brokers) - 1], ahead_us, 60_000, 9_000, 2, 1, True
    )


def passed(sent: SentNames, received: ReceivedNames, message: Establish) -> tuple[NumberedEstablish, Establish]:
    short = sent.shorten(message)
    assert short is not None
    sent.sent(short)
    read = decode(memoryview(encode(short)))
    assert isinstance(read, NumberedEstablish)
    return short, received.expand(read)


def test_a_broker_is_named_once_and_numbered_from_then_on() -> None:
    sent, received = SentNames(), ReceivedNames()
    first, second = along("denver", "omaha", "boston"), along("boston", "", "denver", "miami", origin="denver")
    assert passed(sent, received, first) == (
        structs.replace(as_short(first), names=["denver", "omaha", "boston"]),
        first,
    )
    short, expanded = passed(sent, received, second)
    assert (short.names, unpack(short.body).numbers, unpack(short.body).origin) == (["miami"], [3, 0, 1, 4], 2)
    assert expanded == second


def as_short(message: Establish) -> NumberedEstablish:
    short = SentNames().shorten(message)
    assert short is not None
    return short


def test_a_reserved_route_stays_one() -> None:
    message = EstablishReserved(**structs.asdict(along("a", "b")), reservation=7)
    assert passed(SentNames(), ReceivedNames(), message)[1] == message


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=5, unique=True), max_size=20))
def test_whatever_was_described_before_the_receiver_reads_what_was_sent(paths: list[list[str]]) -> None:
    sent, received = SentNames(), ReceivedNames()
    for path in paths:
        assert passed(sent, received, along(*path))[1] == along(*path)


def test_what_was_not_sent_is_not_numbered() -> None:
    sent, received = SentNames(), ReceivedNames()
    assert sent.shorten(along("a", "never-sent")) is not None
    assert passed(sent, received, along("a", "b"))[1] == along("a", "b")


def test_where_the_table_is_full_names_are_told_as_they_are() -> None:
    sent = SentNames()
    for at in range(0, NUMBERED_NAMES_MAX, 64):
        short = sent.shorten(along(*(f"b{number}" for number in range(at, at + 64))))
        assert short is not None
        sent.sent(short)
    assert sent.shorten(along("b1", "b4095")) is not None
    assert sent.shorten(along("b1", "one-more")) is None


def numbered(message: Establish, numbers: list[int]) -> NumberedEstablish:
    """A description by numbers, of brokers that have the names a and b."""
    body = pack(message, numbers)
    assert body is not None
    return NumberedEstablish(["a", "b"], body)


@pytest.mark.parametrize(
    ("origin", "numbers", "reason"),
    [("a", [1, 3], "brokers it does not name"), ("a", [1, 1], "names a broker twice")],
)
def test_a_description_that_makes_no_sense_is_a_violation(origin: str, numbers: list[int], reason: str) -> None:
    with pytest.raises(ProtocolViolation, match=reason):
        ReceivedNames().expand(numbered(along("a", "b", origin=origin), numbers))


def test_a_description_whose_source_has_no_name_is_a_violation() -> None:
    blank = structs.replace(along("a", "b"), added=[], destinations=[1], ahead_us=[0, 1])
    with pytest.raises(ProtocolViolation, match="brokers it does not name"):
        ReceivedNames().expand(numbered(blank, [0, 2]))


def test_more_names_than_a_table_holds_are_a_violation() -> None:
    received = ReceivedNames()
    names = [f"b{number}" for number in range(NUMBERED_NAMES_MAX)]
    received.expand(structs.replace(as_short(along("a", "b")), names=names))
    with pytest.raises(ProtocolViolation, match="4096 names"):
        received.expand(structs.replace(as_short(along("a", "b")), names=["c"]))
