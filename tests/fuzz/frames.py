"""Frames of a neighbour that has greeted and means harm: right in type and extreme in value, or wrong in every way."""

import os
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

from hypothesis import strategies as st
from target import HOSTILE, SECRET

from overlane.core.wire import control_messages, frame_codec, parcel, route_answers, varint
from overlane.core.wire.control_messages import (
    Advert,
    Establish,
    Farewell,
    ForNeighbour,
    GossipSummary,
    IncarnationProof,
    InterestRequest,
    InterestUpdate,
    KnownVersions,
    LinkClaim,
    NumberedEstablish,
    ProvenIncarnations,
    PublishScope,
    Receipt,
    RouteRefresh,
    RouteRequest,
    ScopeComplete,
    ScopedInterest,
    Teardown,
)
from overlane.core.wire.fragments import fragment
from overlane.core.wire.frame_codec import Header
from overlane.core.wire.parcel import FlowPart, Predecessor
from overlane.node.links.greeting import Credentials, Greeting
from overlane.secret import Secret
from unread import LOOK_EVERY_S, unread_bytes

U32_MAX = (1 << 32) - 1
U63_MAX = (1 << 63) - 1
LIFE = 1_800_000_000
"""An incarnation such as brokers have."""
ROUTE = 77

names = st.sampled_from((HOSTILE, HOSTILE, "a", "b", "c", "ghost", "g" * 64, "é" * 32, "é" * 64, "\U0001f600" * 64))
numbers = st.sampled_from((0, 1, 2, 1_000, LIFE, U32_MAX, U32_MAX + 1, U63_MAX - 1, U63_MAX))
u32 = st.sampled_from((0, 1, 2, LIFE, U32_MAX - 1, U32_MAX))
counts = st.sampled_from((0, 1, 2, 64, 255, 256, 257, 4_095, 4_096, 4_097))
FILTERS = (
    "a",
    "fuzz/#",
    "#",
    "+/+",
    "timed/x",
    "$retained/#",
    "$share/g/a/00/fuzz",
    "$want/1/1/#",
    "$want/x",
    "a/#/b",
    "\0",
)
filter_lists = st.one_of(
    st.lists(st.sampled_from(FILTERS), max_size=4),
    st.builds(lambda count, size: [f"{n}/" + "x" * size for n in range(count)], counts, st.sampled_from((0, 10, 200))),
    st.builds(lambda size: ["x" * size], st.sampled_from((65_500, 65_530, 65_535, 65_536))),
)


def many(count: int, size: int) -> list[str]:
    return [f"n{number}".ljust(size, "x") for number in range(count)]


def lives(found: list[str], life: int) -> dict[str, int]:
    return dict.fromkeys(found, life)


many_names = st.builds(many, counts, st.sampled_from((6, 64, 65)))
claims = st.builds(
    LinkClaim,
    names,
    st.sampled_from((0, 1_000, (1 << 40) - 1, 1 << 40)),
    st.sampled_from((0, (1 << 40) - 1)),
    st.sampled_from((0, 1_000_000, 1_000_001)),
    st.sampled_from((0, 1_000_000)),
    st.integers(0, 4),
    st.sampled_from((0, (1 << 40) - 1)),
)
labels = st.builds(
    lambda count, size, value: {f"{number}".ljust(size, "z"): value for number in range(count)},
    counts,
    st.sampled_from((1, 20, 5_000)),
    numbers,
)
adverts = st.builds(
    Advert,
    names,
    numbers,
    numbers,
    st.one_of(
        st.lists(claims, max_size=3),
        st.builds(lambda found: [LinkClaim(one, 1_000, 0, 0, 0, 0) for one in found], many_names),
    ),
    labels,
    st.sampled_from((0, 1_000_000)),
    st.booleans(),
)
interests = st.builds(
    InterestUpdate,
    names,
    numbers,
    numbers,
    st.sampled_from((-1, 0, 1, U63_MAX)),
    filter_lists,
    filter_lists,
    st.sampled_from((0, 1, 255, 256, U63_MAX)),
    st.booleans(),
)
summaries = st.one_of(
    st.builds(
        lambda name, one, two: GossipSummary([KnownVersions(name, (one, one), (two, two))]), names, numbers, numbers
    ),
    st.builds(
        lambda found, one: GossipSummary([KnownVersions(name, (one, 1), (one, 1)) for name in found]),
        many_names,
        numbers,
    ),
)
routes_of_many = st.builds(
    lambda found, life: Establish(
        HOSTILE, life, ROUTE, 1, [HOSTILE, "b", *found], [], [0, 1], [], [1], [0] * (2 + len(found)), 0, 0, 0
    ),
    many_names,
    u32,
)
places = st.lists(st.sampled_from((0, 1, 2, 3, 4_095)), max_size=4)
establishes = st.one_of(
    st.builds(
        Establish,
        names,
        u32,
        st.sampled_from((0, 1, ROUTE, U32_MAX)),
        st.sampled_from((0, 1, 0xFFFF)),
        st.sampled_from(([HOSTILE, "b"], [HOSTILE, "b", "a", "c"], ["b", HOSTILE], ["a", "b", "c"])),
        places,
        places,
        places,
        places,
        st.lists(numbers, min_size=2, max_size=4),
        u32,
        numbers,
        numbers,
        numbers,
    ),
    routes_of_many,
)
receipts = st.builds(
    Receipt,
    names,
    names,
    st.sampled_from((0, 1, 255)),
    numbers,
    numbers,
    numbers,
    st.binary(max_size=4) | st.just(b"\xff" * 1_024),
    st.binary(max_size=4) | st.just(b"\xff" * 1_024),
    st.builds(
        lambda count, size: {f"{n}".ljust(size, "x"): 1_000 for n in range(count)},
        st.sampled_from((0, 1, 64, 65)),
        st.sampled_from((1, 65_530)),
    ),
)
route_versions = st.dictionaries(st.sampled_from((0, 1, 2, 2**32 - 1)), st.sampled_from((0, 1, 2, 0xFFFF)))
row_numbers = st.sampled_from((0, 0, 1, 1, 2, 3, 5, 127, 4_096, 2**32 - 1, 2**63 - 1, 2**64))
route_rows = st.one_of(
    st.lists(row_numbers, max_size=40),
    # Well formed up to the places; then anything.
    st.tuples(st.sampled_from((0, 3, 16, 31)), st.lists(row_numbers, max_size=25)).map(
        lambda told: [told[0], 1, 1, 1, 60_000, 9_000, 2, 0, 1, 0, 3, 1, 2, 3, *told[1]]
    ),
)
bundle_sets = st.sampled_from((b"", b"\xff", b"\xff" * 32, b"\xff" * 33))
groups = st.sampled_from(([], [0], [2**64 - 1], list(range(1_024)), list(range(1_025))))
control = st.one_of(
    adverts,
    interests,
    summaries,
    establishes,
    receipts,
    st.builds(InterestRequest, names),
    st.builds(NumberedEstablish, many_names, route_rows.map(lambda row: varint.packed(tuple(row)))),
    st.builds(NumberedEstablish, many_names, st.binary(max_size=40)),
    st.builds(Teardown, names, numbers, numbers),
    st.builds(RouteRefresh, names, numbers, numbers, route_versions),
    st.builds(RouteRequest, names, numbers, route_versions),
    st.builds(IncarnationProof, names, u32, st.binary(min_size=1, max_size=8) | st.just(b"x" * 16_384)),
    st.builds(lambda found, life: ProvenIncarnations(lives(found, life)), many_names, u32),
    st.builds(ScopedInterest, names, bundle_sets, filter_lists, filter_lists, st.booleans()),
    st.builds(PublishScope, numbers, groups, groups, many_names),
    st.builds(ScopeComplete, numbers, bundle_sets),
    st.builds(ForNeighbour, st.binary(max_size=32)),
    st.builds(Farewell, st.sampled_from(("", "x" * 256, "\0"))),
)


@dataclass(frozen=True)
class Control:
    message: control_messages.ControlMessage
    skip: int = 0
    """How far its number is from the one that is due."""


@dataclass(frozen=True)
class Parcel:
    """On a route that this neighbour has established to b, and to a and c behind it."""

    flags: int
    sequence: int
    age_us: int
    messages: int
    content: bytes
    deadline_us: int = 0


@dataclass(frozen=True)
class Raw:
    data: bytes
    zeros: int = 0
    """That follow."""
    times: int = 1


@dataclass(frozen=True)
class Detour:
    hops: tuple[str, ...]
    position: int
    origin: str
    flags: int
    content: bytes


Frame = Control | Parcel | Raw | Detour
flow_parts = st.builds(
    FlowPart,
    u32,
    st.sampled_from((0, 1, 0xFFFF, U32_MAX)),
    u32,
    u32,
    u32,
    st.lists(
        st.builds(
            Predecessor,
            u32,
            u32,
            u32,
            st.sampled_from(((), (frame_codec.broker_id("b"),), (1,) * 1_000)),
            st.sampled_from((0, 1, 255)),
        ),
        max_size=2,
    ).map(tuple),
    st.lists(u32, max_size=3).map(tuple),
    st.booleans(),
)
TOPICS = (
    "fuzz/1",
    "timed/1",
    "$retained/fuzz",
    "$retained/",
    "$share/g/b/00/fuzz",
    "$share/g",
    "$want/1/1/#",
    "",
    "#",
    "x" * 65_000,
)
bodies = st.binary(max_size=12) | st.sampled_from((bytes(60_000), b"\0\0\0\5\x30\3\0\1a", b"\xff" * 20))
inner_messages = st.tuples(st.sampled_from(TOPICS), st.integers(0, 255), bodies)


def _content(part: FlowPart, inside: list[tuple[str, int, bytes]], spoilt: int) -> bytes:
    packed = parcel.pack_flow(part, LIFE) + parcel.pack_messages(tuple(zip(*inside, strict=True)))  # type: ignore[arg-type]
    return packed[:spoilt] if spoilt >= 0 else packed


contents = st.one_of(
    st.builds(
        _content,
        flow_parts,
        st.lists(inner_messages, min_size=1, max_size=3),
        st.sampled_from((-1, -1, -1, 0, 5, 20, 40)),
    ),
    st.binary(max_size=40),
)
flags = st.integers(0, 255)
parcels = st.builds(
    Parcel,
    flags,
    st.sampled_from((0, 1, 2, 3, 1 << 31, U32_MAX, frame_codec.SEQUENCE_MAX)),
    st.sampled_from((0, 1, U32_MAX)),
    st.sampled_from((1, 1, 2, 3, 0xFFFF)),
    contents,
    u32,
)
detours = st.builds(
    Detour,
    st.sampled_from(
        (
            ("b",),
            ("b", "a"),
            ("b", "c"),
            ("b", HOSTILE),
            ("b",) * 2,
            ("b", "ghost"),
            tuple("b" + "0" * n for n in range(64)),
        )
    ),
    st.sampled_from((0, 0, 0, 1, 63)),
    st.sampled_from((HOSTILE, "a", "b", "c", "ghost")),
    flags,
    contents,
)
raws = st.one_of(
    st.builds(
        lambda kind, body: Raw(struct.pack("!IB", 1 + len(body), kind) + body),
        st.integers(0, 12),
        st.binary(max_size=30),
    ),
    st.builds(
        lambda size, kind: Raw(struct.pack("!IB", size, kind), 100),
        st.sampled_from((0, 1 << 20, (1 << 20) + 1, U32_MAX)),
        st.integers(1, 11),
    ),
    st.builds(lambda kind: Raw(struct.pack("!IB", 1 << 20, kind), (1 << 20) - 1), st.integers(1, 11)),
    st.builds(Raw, st.binary(min_size=1, max_size=40)),
    st.builds(
        lambda *words: Raw(fragment(*words)),
        st.integers(0, 3),
        st.sampled_from((0, 1, 2, 0xFFFF)),
        st.booleans(),
        st.sampled_from((0, 1, U32_MAX)),
        st.one_of(st.binary(max_size=30), st.builds(frame_codec.ping, st.just(1))),
    ),
    st.builds(
        lambda frame, size: Raw(struct.pack("!IBIHBI", 12 + size, 11, frame, 0, 0, 0), size, 5),
        st.integers(0, 30),
        st.sampled_from((1, 1 << 20)),
    ),
    st.sampled_from(
        (
            Raw(frame_codec.ping(1), 0, 5_000),
            Raw(frame_codec.hop_ack(U32_MAX, 1, 0)),
            Raw(frame_codec.hello(HOSTILE, LIFE)),
            Raw(route_answers.established(bytes(frame_codec.KEY_BYTES))),
            Raw(route_answers.established(frame_codec.route_key(frame_codec.broker_id(HOSTILE), LIFE, ROUTE, 1))),
            *(
                Raw(route_answers.encode(answer, number))
                for number in (0, 1, 9)
                for key in (bytes(6), frame_codec.route_key(frame_codec.broker_id(HOSTILE), LIFE, ROUTE, 1))
                for ends in ((0, 0), (1, 0), (3, 2), (0xFFFF, 0))
                for answer in (
                    route_answers.Confirmation(key, *ends, 1, U32_MAX),
                    route_answers.RouteReceipt(key, *ends, 1, 1 << 40, b"\xff"),
                )
            ),
        )
    ),
)
frames: st.SearchStrategy[Frame] = st.one_of(st.builds(Control, control), parcels, detours)
"""Each for itself is a frame, whatever it says."""
wrong_frames: st.SearchStrategy[Frame] = st.one_of(st.builds(Control, control, st.sampled_from((1, -1, 1 << 31))), raws)


class Neighbour:
    """A connection to b in the name of the hostile broker. A thread reads, and answers pings, until it is closed."""

    def __init__(self, port: int, incarnation: int = LIFE) -> None:
        greeting = Greeting(Credentials(HOSTILE, Secret(SECRET), None, True), os.urandom(16), "b")
        self._incarnation = incarnation
        self._socket = socket.create_connection(("127.0.0.1", port), 10.0)
        self._socket.sendall(greeting.opening())
        while not greeting.is_done:
            data = self._socket.recv(4_096)
            if not data:
                raise ConnectionResetError("not taken for a neighbour")
            answer, _ = greeting.receive(data)
            self._socket.sendall(answer)
        self._sequence = 0
        self._sending = threading.Lock()
        self._send(frame_codec.hello(HOSTILE, incarnation))
        link = LinkClaim("b", 1_000, 0, 0, 0, 0)
        self.say(Control(Advert(HOSTILE, incarnation, 1, [link], {}, 0)))
        self.say(Control(InterestUpdate(HOSTILE, incarnation, 1, -1, ["fuzz/#", "$retained/#"], [])))
        self.say(
            Control(
                Establish(
                    HOSTILE,
                    incarnation,
                    ROUTE,
                    1,
                    [HOSTILE, "b", "a", "c"],
                    [],
                    [0, 1, 1, 2, 1, 3],
                    [],
                    [1, 2, 3],
                    [0] * 4,
                    0,
                    0,
                    0,
                )
            )
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def say(self, frame: Frame) -> None:
        """OSError if the broker has closed the connection."""
        match frame:
            case Control(message, skip):
                content = control_messages.encode(message)
                self._send(struct.pack("!IBI", 5 + len(content), 5, max(0, self._sequence + skip)) + content)
                self._sequence += 1
            case Parcel(flags_, sequence, age_us, count, content, deadline_us):
                header = Header(
                    flags_,
                    1,
                    frame_codec.broker_id(HOSTILE),
                    self._incarnation,
                    sequence,
                    ROUTE,
                    age_us,
                    deadline_us,
                    count,
                    1,
                )
                self._send(frame_codec.parcel(header, content))
            case Detour(hops, position, origin, flags_, content):
                header = Header(flags_, 1, frame_codec.broker_id(origin), self._incarnation, 5, ROUTE, 0, 0, 1, 1)
                self._send(frame_codec.detour(tuple(map(frame_codec.broker_id, hops)), position, header, content))
            case Raw(data, zeros, times):
                self._send((data + bytes(zeros)) * times)

    def wait_until_read(self, within_s: float) -> None:
        """Until the broker has read what was said, or has closed the connection. It may stop reading for longer."""
        until_s = time.monotonic() + within_s
        while self._reading.is_alive() and unread_bytes(self._socket) and time.monotonic() < until_s:
            time.sleep(LOOK_EVERY_S)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._reading.join(10.0)

    def _send(self, data: bytes) -> None:
        with self._sending:
            self._socket.sendall(data)

    def _read(self) -> None:
        unread = b""
        with suppress(OSError, ValueError):
            self._socket.settimeout(None)
            while data := self._socket.recv(1 << 16):
                unread += data
                found, taken = frame_codec.split(unread)
                for kind, body in found:
                    if kind == frame_codec.FrameType.PING:
                        self._send(frame_codec.pong(frame_codec.read_token(body)))
                unread = unread[taken:]
