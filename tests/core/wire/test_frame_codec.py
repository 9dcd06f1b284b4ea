"""Frames: what is written is read, and what was not written by this protocol is refused."""

import struct
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlane.core.wire import frame_codec
from overlane.core.wire.frame_codec import (
    NO_ROUTE,
    Detour,
    FrameType,
    Header,
    Hello,
    HopAck,
    ParcelFlag,
    RouteName,
)
from overlane.errors import ProtocolViolation

U8 = st.integers(0, 0xFF)
U16 = st.integers(0, 0xFFFF)
U32 = st.integers(0, 0xFFFFFFFF)
U64 = st.integers(0, (1 << 64) - 1)
NAMES = st.text(min_size=1, max_size=16).filter(lambda name: 0 < len(name.encode(errors="replace")) <= 64)
U48 = st.integers(0, (1 << 48) - 1)
HEADERS = st.builds(Header, U8, U16, U64, U32, U48, U32, U32, U32, st.integers(1, 0xFFFF), U32)


def read_parcel(body: memoryview) -> object:
    return frame_codec.read_parcel(body, NO_ROUTE)


READERS: list[Callable[[memoryview], object]] = [
    frame_codec.read_hello,
    frame_codec.read_token,
    frame_codec.read_hop_ack,
    frame_codec.read_control,
    read_parcel,
    frame_codec.read_long,
    frame_codec.read_detour,
]


def only_frame(data: bytes) -> tuple[int, memoryview]:
    frames, used = frame_codec.split(data)
    assert used == len(data)
    (frame,) = frames
    return frame


@given(NAMES, U32)
def test_a_greeting_is_read_as_written(name: str, incarnation: int) -> None:
    kind, body = only_frame(frame_codec.hello(name, incarnation))
    assert (kind, frame_codec.read_hello(body)) == (FrameType.HELLO, Hello(name, incarnation))


@given(U32)
def test_pings_and_pongs_are_read_as_written(token: int) -> None:
    for kind, data in ((FrameType.PING, frame_codec.ping(token)), (FrameType.PONG, frame_codec.pong(token))):
        got, body = only_frame(data)
        assert (got, frame_codec.read_token(body)) == (kind, token)


@given(U32, st.integers(0, 1 << 40), U64)
def test_a_notice_is_read_as_written_with_its_delay_in_steps_of_16_us(
    highest: int, delay_us: int, earlier: int
) -> None:
    kind, body = only_frame(frame_codec.hop_ack(highest, delay_us, earlier))
    delay_told = min(delay_us >> 4, 0xFFFF) << 4
    assert (kind, frame_codec.read_hop_ack(body)) == (FrameType.HOP_ACK, HopAck(highest, delay_told, earlier))


@given(U32, st.binary(max_size=64))
def test_a_control_frame_is_read_as_written(sequence: int, message: bytes) -> None:
    kind, body = only_frame(frame_codec.control(sequence, message))
    number, content = frame_codec.read_control(body)
    assert (kind, number, bytes(content)) == (FrameType.CONTROL, sequence, message)


@given(st.binary(max_size=64))
def test_a_route_frame_is_read_as_written(message: bytes) -> None:
    kind, body = only_frame(frame_codec.route(message))
    assert (kind, bytes(body)) == (FrameType.ROUTE, message)


@given(HEADERS, st.binary(max_size=64))
def test_a_parcel_is_read_as_written_and_as_long_as_foretold(header: Header, rest: bytes) -> None:
    if not header.flags & ParcelFlag.ACK_REQUESTED:
        header = header._replace(hop_sequence=0)
    data = frame_codec.parcel(header, rest)
    kind, body = only_frame(data)
    route = RouteName(header.version, header.origin, header.incarnation, header.route, header.deadline_us)
    if header.flags & ParcelFlag.OWN_DEADLINE:
        route = route._replace(deadline_us=77)
    assert frame_codec.key_of(body) == frame_codec.route_key(
        header.origin, header.incarnation, header.route, header.version
    )
    read, tail = frame_codec.read_parcel(body, route)
    assert (kind, read, bytes(tail)) == (FrameType.PARCEL, header, rest)
    assert len(data) == frame_codec.parcel_size(header.flags, rest)
    older, _ = frame_codec.read_parcel(body, route, 5)
    assert older.age_us == min(frame_codec.AGE_US_MAX, header.age_us + 5)
    assert frame_codec.read_parcel(only_frame(frame_codec.aged(data, 9))[1], route)[0] == header._replace(age_us=9)


@given(U64, U32, U32, U16)
def test_a_route_has_the_same_key_everywhere_and_each_version_its_own(
    origin: int, incarnation: int, route: int, version: int
) -> None:
    key = frame_codec.route_key.__wrapped__(origin, incarnation, route, version)
    assert key == frame_codec.route_key(origin, incarnation, route, version)
    others = {
        frame_codec.route_key(origin ^ 1, incarnation, route, version),
        frame_codec.route_key(origin, incarnation ^ 1, route, version),
        frame_codec.route_key(origin, incarnation, route ^ 1, version),
        frame_codec.route_key(origin, incarnation, route, version ^ 1),
    }
    assert len(key) == 6
    assert len(others | {key}) == 5


def test_a_notice_of_which_nothing_is_missing_is_short() -> None:
    assert [len(frame_codec.hop_ack(99, 0, earlier)) for earlier in ((1 << 64) - 1, (1 << 64) - 2, 0)] == [11, 12, 19]


@given(
    st.lists(U64, min_size=1, max_size=frame_codec.HOPS_MAX, unique=True), st.data(), HEADERS, st.binary(max_size=64)
)
def test_a_detour_is_read_as_written_with_the_parcel_inside(
    hops: list[int], data: st.DataObject, header: Header, rest: bytes
) -> None:
    position = data.draw(st.integers(0, len(hops) - 1))
    kind, body = only_frame(frame_codec.detour(tuple(hops), position, header, rest))
    detour = frame_codec.read_detour(body)
    assert kind == FrameType.DETOUR
    assert detour == Detour(tuple(hops), position, detour.parcel)
    read, tail = frame_codec.read_long(detour.parcel)
    assert (read, bytes(tail)) == (header, rest)


@given(st.lists(st.binary(max_size=40), max_size=6), st.data())
def test_frames_cut_anywhere_come_out_whole_and_in_order(bodies: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(frame_codec.route, bodies))
    cut = data.draw(st.integers(0, len(stream)))
    first, used = frame_codec.split(stream[:cut])
    then, used_then = frame_codec.split(stream[used:])
    assert [bytes(body) for _, body in first + then] == bodies
    assert used + used_then == len(stream)


@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_a_violation(garbage: bytes) -> None:
    try:
        frames, used = frame_codec.split(garbage)
    except ProtocolViolation:
        return
    assert used == sum(5 + len(body) for _, body in frames) <= len(garbage)


@pytest.mark.parametrize("read", READERS, ids=lambda read: str(getattr(read, "__name__", read)))
@given(body=st.binary(max_size=200))
def test_any_body_can_be_read_or_is_a_violation(read: Callable[[memoryview], object], body: bytes) -> None:
    with suppress(ProtocolViolation):
        read(memoryview(body))


@pytest.mark.parametrize("length", [0, frame_codec.FRAME_BYTES_MAX + 1, 0xFFFFFFFF])
def test_a_length_that_is_not_allowed_is_refused_before_the_body_comes(length: int) -> None:
    with pytest.raises(ProtocolViolation, match=f"a frame of {length} bytes"):
        frame_codec.split(struct.pack("!IB", length, FrameType.CONTROL))


def test_the_largest_frame_is_waited_for() -> None:
    assert frame_codec.split(struct.pack("!IB", frame_codec.FRAME_BYTES_MAX, FrameType.CONTROL)) == ([], 0)


HELLO = frame_codec.hello("b", 7)[5:]


def long(sequence: int = 0, messages: int = 1) -> bytes:
    return struct.pack("!BHQIQIIIII", 0, 0, 0, 0, sequence, 0, 0, 0, messages, 0)


@pytest.mark.parametrize(
    ("read", "body", "reason"),
    [
        (frame_codec.read_hello, HELLO[:9], "a truncated greeting"),
        (frame_codec.read_hello, b"HTTP" + HELLO[4:], "not an Overlane broker: wrong magic number"),
        (frame_codec.read_hello, HELLO[:4] + b"\x01" + HELLO[5:], "speaks version 1 of the overlay protocol"),
        (frame_codec.read_hello, HELLO + b"c", "a greeting whose name has not the length it says"),
        (frame_codec.read_hello, HELLO[:-1] + b"\xff", "a greeting whose name is not UTF-8"),
        (frame_codec.read_hello, HELLO[:18] + b"\x00", "a greeting whose name has not the length it says"),
        (frame_codec.read_hello, HELLO[:17] + b"\x03" + HELLO[18:], "a greeting of an unknown tier 3"),
        (frame_codec.read_hello, HELLO[:18] + b"\x41" + b"x" * 65, "a greeting whose name has not the length it says"),
        (frame_codec.read_token, b"123", "a ping or pong of the wrong size"),
        (frame_codec.read_hop_ack, bytes(5), "a hop acknowledgement of the wrong size"),
        (frame_codec.read_hop_ack, bytes(15), "a hop acknowledgement of the wrong size"),
        (frame_codec.read_control, b"123", "a truncated control frame"),
        (read_parcel, bytes(18), "a truncated parcel"),
        (read_parcel, bytes(60), "a parcel without messages"),
        (read_parcel, b"\x02" + bytes(17) + b"\x01" + bytes(3), "a truncated parcel"),
        (read_parcel, b"\x42" + bytes(17) + b"\x01" + bytes(7), "a truncated parcel"),
        (frame_codec.read_long, bytes(38), "a truncated parcel"),
        (frame_codec.read_long, bytes(60), "a parcel without messages"),
        (
            frame_codec.read_long,
            long(messages=1 << 16),
            "a parcel without messages, or with a number that nobody gives",
        ),
        (
            frame_codec.read_long,
            long(sequence=1 << 48),
            "a parcel without messages, or with a number that nobody gives",
        ),
        (frame_codec.read_detour, b"\x01", "a truncated detour"),
        (frame_codec.read_detour, b"\x00\x00", "a detour at hop 0 of 0"),
        (frame_codec.read_detour, b"\x01\x01" + bytes(8), "a detour at hop 1 of 1"),
        (frame_codec.read_detour, b"\x41\x00" + bytes(8 * 65), "a detour at hop 0 of 65"),
        (frame_codec.read_detour, b"\x02\x00" + bytes(15), "a detour at hop 0 of 2"),
        (frame_codec.read_detour, b"\x02\x00" + bytes(16), "a detour that passes a broker twice"),
    ],
)
def test_a_malformed_body_is_refused_with_its_reason(
    read: Callable[[memoryview], object], body: bytes, reason: str
) -> None:
    with pytest.raises(ProtocolViolation) as caught:
        read(memoryview(body))
    assert caught.value.reason.startswith(reason)


@pytest.mark.parametrize("name", ["", "x" * 65, "ü" * 33])
def test_a_broker_cannot_greet_under_a_name_that_others_would_refuse(name: str) -> None:
    with pytest.raises(ValueError, match="1 to 64 bytes"):
        frame_codec.hello(name, 1)


def test_a_control_message_that_fits_no_frame_is_not_made() -> None:
    frame_codec.split(frame_codec.control(0, bytes(frame_codec.FRAME_BYTES_MAX - 5)))
    with pytest.raises(ValueError, match="does not fit a frame"):
        frame_codec.control(0, bytes(frame_codec.FRAME_BYTES_MAX - 4))


def test_a_name_has_the_same_identity_everywhere() -> None:
    assert [frame_codec.broker_id(name) for name in ("seattle", "zürich")] == [0xEB83011CCC1B0C14, 0x3725B210CC67CF84]


def test_parcels_with_a_deadline_and_what_measures_the_link_are_urgent_and_the_rest_is_not() -> None:
    def header(flags: int) -> Header:
        return Header(flags, 1, 2, 3, 4, 5, 6, 60_000, 1, 0)

    watched = ParcelFlag.ACK_REQUESTED  # as all are that have a deadline, and no others
    for flags, is_urgent in ((0, False), (ParcelFlag.RELIABLE, False), (watched, True), (watched | 1, True)):
        parcel = frame_codec.parcel(header(flags), b"rest")
        assert frame_codec.is_urgent(parcel) is is_urgent
        assert frame_codec.is_urgent(parcel + frame_codec.hop_ack(1, 2, 3)) is is_urgent
        assert frame_codec.is_urgent(frame_codec.route(b"described") + parcel) is is_urgent
        assert frame_codec.is_urgent(frame_codec.detour((7, 8, 9), 1, header(flags), b"rest")) is is_urgent
    assert all(map(frame_codec.is_urgent, (frame_codec.ping(1), frame_codec.pong(1), frame_codec.hop_ack(1, 0, 0))))


def test_a_parcel_that_was_held_back_is_older_by_as_much_however_it_is_wrapped() -> None:
    def header(age_us: int) -> Header:
        return Header(0, 1, 2, 3, 4, 5, age_us, 60_000, 1, 9)

    ways: list[Callable[[int], bytes]] = [
        lambda age_us: frame_codec.parcel(header(age_us), b"rest"),
        lambda age_us: frame_codec.parcel(header(age_us), b"rest") + frame_codec.hop_ack(1, 2, 3),
        lambda age_us: frame_codec.route(b"described") + frame_codec.parcel(header(age_us), b"rest"),
        lambda age_us: frame_codec.detour((7, 8, 9), 1, header(age_us), b"rest"),
    ]
    for wrapped in ways:
        assert frame_codec.older(wrapped(6), 1_000) == wrapped(1_006)
        assert frame_codec.older(wrapped(frame_codec.AGE_US_MAX), 1_000) == wrapped(frame_codec.AGE_US_MAX)
    assert frame_codec.older(frame_codec.ping(1), 1_000) == frame_codec.ping(1)


def test_pongs_and_notices_only_answer() -> None:
    answers = [
        frame_codec.is_answer(one)
        for one in (frame_codec.pong(1), frame_codec.hop_ack(1, 0, 0), frame_codec.ping(1), frame_codec.route(b"x"))
    ]
    assert answers == [True, True, False, False]
