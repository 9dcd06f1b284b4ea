"""Descriptions of routes as rows of numbers."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from overlane.core.wire import varint
from overlane.core.wire.control_messages import Establish, EstablishReserved
from overlane.core.wire.route_packing import pack, unpack
from overlane.errors import ProtocolViolation

NAMES = "abcdefghijkl"
PATH = Establish("a", 3, 1, 2, [*"abcd"], [], [0, 1, 1, 2, 2, 3], [], [3], [0, 9_000, 5_000, 0], 60_000, 9_000, 3)


def passed(message: Establish) -> Establish:
    """As its receiver has it, with the numbers of brokers as names."""
    numbers = [NAMES.index(name) + 1 if name else 0 for name in message.brokers]
    body = pack(message, numbers)
    assert body is not None
    found = unpack(body)
    brokers = [NAMES[number - 1] if number else "" for number in found.numbers]
    return structs.replace(found.message, brokers=brokers, origin=brokers[found.origin])


@st.composite
def descriptions(draw: st.DrawFn) -> Establish:
    places = range(draw(st.integers(1, len(NAMES))))
    named = sorted(draw(st.sets(st.sampled_from(places), min_size=1)))
    chain = [*pairwise(named)]
    ends = st.tuples(st.sampled_from(named), st.sampled_from(named))
    links = draw(st.dictionaries(st.sampled_from(chain) | ends if chain else ends, st.sampled_from((0, 1, 1, 1, 2))))
    kept, added, obsolete = (
        [place for link in sorted(links) if links[link] == kind for place in link] for kind in range(3)
    )
    times = st.integers(0, (1 << 62) - 1) | st.integers(0, 50_000)
    message = Establish(
        NAMES[draw(st.sampled_from(named))],
        draw(st.integers(0, (1 << 32) - 1)),
        draw(st.integers(0, (1 << 32) - 1)),
        draw(st.integers(0, 0xFFFF)),
        [NAMES[place] if place in named else "" for place in places],
        kept,
        added,
        obsolete,
        sorted(draw(st.sets(st.sampled_from(named)))),
        [draw(times) if place in named else 0 for place in places],
        draw(st.integers(0, (1 << 32) - 1)),
        draw(times),
        draw(st.integers(0, 20)),
        draw(st.integers(0, 3)),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.booleans()),
    )
    if draw(st.booleans()):
        return message
    return EstablishReserved(**structs.asdict(message), reservation=draw(st.integers(0, 9)))


@given(descriptions())
def test_every_description_is_read_as_it_was_written(message: Establish) -> None:
    assert passed(message) == message


def test_a_broker_of_a_path_takes_a_byte_and_its_latency_two() -> None:
    longer = structs.replace(
        PATH,
        brokers=[*"abcdefgh"],
        added=[place for link in pairwise(range(8)) for place in link],
        destinations=[7],
        ahead_us=[0, 23_000, 19_000, 15_000, 11_000, 9_000, 5_000, 0],
    )
    sizes = [len(pack(one, [*range(1, len(one.brokers) + 1)]) or b"") for one in (PATH, longer)]
    assert sizes[1] - sizes[0] == 4 * 3


@pytest.mark.parametrize(
    "fields",
    [
        {"added": [1, 2, 0, 1]},
        {"added": [0, 1, 0, 1]},
        {"kept": [0, 1]},
        {"added": [0, 1, 2]},
        {"added": [0, 9]},
        {"destinations": [3, 1]},
        {"destinations": [9]},
        {"ahead_us": [0]},
        {"ahead_us": [0, 0, 0, 1 << 63]},
        {"ahead_us": [0, 0, 0, -1]},
        {"version": 1 << 16},
        {"route": 1 << 32},
        {"hops": -1},
    ],
    ids=str,
)
def test_what_no_receiver_would_read_as_it_was_written_is_not_packed(fields: dict[str, object]) -> None:
    assert pack(structs.replace(PATH, **fields), [1, 2, 3, 4]) is None


def test_what_is_told_of_a_place_without_a_name_is_not_packed() -> None:
    blank = structs.replace(PATH, brokers=["a", "", "c", "d"], ahead_us=[0] * 4)
    for fields in ({"added": [1, 2]}, {"destinations": [1]}, {"ahead_us": [0, 1, 0, 0]}):
        assert pack(structs.replace(blank, **{"added": [], **fields}), [1, 0, 3, 4]) is None


HEAD = [1, 1, 1, 0, 0, 1]
"""Incarnation, route, version, deadline, latency, hops."""


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ([], "truncated"),
        ([96, *HEAD, 2, 1, 2, 1, 1], "truncated"),
        ([96, *HEAD, 2, 1, 2, 1, 1, 2, 0], "longer"),
        ([256, *HEAD], "at most 255"),
        ([96, 1 << 32], "at most"),
        ([96, 1, 1, 1 << 16], "at most 65535"),
        ([96, *HEAD, 4_097], "at most 4096"),
        ([64, *HEAD, 0, 5_000], "at most 4096"),
        ([64, *HEAD, 0, 1, 4_000, 97], "at most 4096"),
        ([32, *HEAD, 1, 1, 5_000], "at most 4096"),
        ([32, *HEAD, 1, 1, 0, 1 << 20], "at most 65536"),
        ([112, *HEAD, 2, 1, 2, 0], "of no kind"),
        ([112, *HEAD, 2, 1, 2, 7], "at most 2"),
        ([112, *HEAD, 2, 1, 2, 8], "at most 1"),
        ([96, *HEAD, 2, 1, 2, 0, 3], "at most 2"),
        ([96, *HEAD, 2, 1, 2, 0, 0, 2], "latency below zero"),
    ],
    ids=str,
)
def test_a_row_that_is_no_description_is_a_violation(numbers: list[int], reason: str) -> None:
    with pytest.raises(ProtocolViolation, match=reason):
        unpack(varint.packed(tuple(numbers)))


@given(st.binary(max_size=60))
def test_any_bytes_are_a_description_or_a_violation(data: bytes) -> None:
    try:
        found = unpack(data)
    except ProtocolViolation:
        return
    assert len(found.numbers) == len(found.message.brokers) == len(found.message.ahead_us)
