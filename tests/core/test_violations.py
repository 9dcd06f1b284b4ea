"""Whatever a neighbour does wrong closes its own link, with a reason, and changes nothing else."""

import struct
import tracemalloc

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from examples import examples
from overlane.core.broker import OverlayBroker
from overlane.core.config import BrokerConfig, SourceRoute
from overlane.core.events import Close, Deliver, Effect, Lane, LinkChanged, LinkUp, Subscribe
from overlane.core.qos import QosClass, QosTable
from overlane.core.units import MS, SECOND
from overlane.core.wire import frame_codec
from overlane.core.wire.control_messages import (
    Advert,
    ControlMessage,
    Establish,
    Farewell,
    GossipSummary,
    InterestUpdate,
    LinkClaim,
    Receipt,
    RouteRefresh,
    Teardown,
    encode,
)
from overlane.core.wire.fragments import fragment
from overlane.core.wire.frame_codec import FrameType, Header, ParcelFlag, broker_id
from overlane.core.wire.parcel import FlowPart, pack_flow, pack_messages, pack_single

GOOD, BAD = "good", "bad"
NOW = 5 * SECOND


class Victim:
    """A broker `me` between a good neighbour, which needs t, and a bad one."""

    def __init__(self) -> None:
        self.broker = OverlayBroker(BrokerConfig("me", QosTable({"t": QosClass(reliable=True)})), 3, now=NOW)
        self.broker.start(NOW)
        self.sent = dict.fromkeys((GOOD, BAD), 0)
        self.broker.handle(Subscribe("s", "u"), NOW)
        for peer in (GOOD, BAD):
            self.broker.handle(LinkUp(peer), NOW)
            self.broker.receive(peer, frame_codec.hello(peer, 1), NOW)
            self.tell(peer, Advert(peer, 1, 1, [LinkClaim("me", 10_000, 100, 0, 0, 0)], {}, 0))
        self.tell(GOOD, InterestUpdate(GOOD, 1, 1, 0, ["t"], []))
        self.broker.flush(NOW + 100 * MS)
        self.broker.publish("t", b"waits", NOW + 100 * MS)
        self.broker.flush(NOW + 100 * MS)
        self.broker.durable(0, NOW + 100 * MS)

    def tell(self, peer: str, message: ControlMessage) -> list[Effect]:
        frame = frame_codec.control(self.sent[peer], encode(message))
        self.sent[peer] += 1
        effects = self.broker.receive(peer, frame, NOW) + self.broker.flush(NOW)
        return effects + self.broker.durable(0, NOW)

    def state(self) -> tuple[str, list[SourceRoute], int, bytes]:
        """What no violation may change: the map, the routes, and what waits for the good neighbour."""
        waiting = b"".join(data for _, data in self.broker.pull(GOOD, 1 << 30, NOW + 200 * MS))
        return self.broker.map_digest(), self.broker.routes(), self.broker.counters["retained_bytes"], waiting

    def closed_by(self, data: bytes, lane: Lane = Lane.CONTROL) -> list[Close]:
        effects = self.broker.receive(BAD, data, NOW + 200 * MS, lane)
        return [effect for effect in effects if isinstance(effect, Close)]


def control(sequence: int, message: ControlMessage) -> bytes:
    return frame_codec.control(sequence, encode(message))


def header(**fields: int) -> Header:
    return Header(0, 1, broker_id("far"), 1, 1, 1, 0, 0, 1, 0)._replace(**fields)


ROUTE = Establish("far", 1, 1, 1, ["bad", "far", "me"], [], [1, 0, 0, 2], [], [2], [0, 0, 0], 0, 0, 2)
OURS = msgspec.structs.replace(ROUTE, origin="me", added=[2, 0], destinations=[0])
HELLO = frame_codec.hello(BAD, 1)
REST = pack_flow(FlowPart(1, 1, 1, 1, 0), 1) + pack_messages((("u",), (0,), (b"x",)))
WRONG: dict[str, tuple[bytes, str]] = {
    "an unknown frame": (struct.pack("!IB", 1, 99), "a frame of unknown type 99"),
    "an oversized frame": (struct.pack("!IB", 1 << 24, FrameType.CONTROL), "a frame of 16777216 bytes"),
    "an empty frame": (bytes(5), "a frame of 0 bytes"),
    "a second greeting": (HELLO, "a second greeting"),
    "a control frame replayed": (control(0, GossipSummary([])), "control frame 0 where 1 was due"),
    "a control frame skipped": (control(2, GossipSummary([])), "control frame 2 where 1 was due"),
    "a message that is none": (frame_codec.control(1, b"\xc1"), "a control message that is not one"),
    "a route of our own": (control(1, OURS), "a route of our own"),
    "a route of our own ahead of a parcel": (frame_codec.route(encode(OURS)), "a route of our own"),
    "a route frame without a route": (
        frame_codec.route(encode(Teardown("far", 1, 1))),
        "a route frame that describes no",
    ),
    "the end of a route of our own": (control(1, Teardown("me", 3, 1)), "a route of our own"),
    "a refresh of a route of our own": (control(1, RouteRefresh("me", 3, 1, {1: 1})), "a route of our own"),
    "a detour past us": (frame_codec.detour((broker_id(GOOD),), 0, header(), REST), "a detour that does not pass here"),
    "a detour in a circle": (frame_codec.detour((5, 5), 0, header(), REST), "a detour that passes a broker twice"),
    "a parcel without messages": (frame_codec.parcel(header(messages=0), REST), "a parcel without messages"),
    "a parcel without its deadline": (
        struct.pack("!IBB6sHIIHH", 22, FrameType.PARCEL, 0x40, b"", 0, 1, 0, 1, 0),
        "a truncated parcel",
    ),
    "a truncated parcel": (struct.pack("!IB", 3, FrameType.PARCEL) + b"ab", "a truncated parcel"),
    "a long ping": (struct.pack("!IB", 6, FrameType.PING) + bytes(5), "a ping or pong of the wrong size"),
    "a fragment without a part": (fragment(1, 0, True, 0, b""), "a truncated fragment"),
    "a greeting in fragments": (
        fragment(1, 0, False, 0, HELLO[:9]) + fragment(1, 1, True, 0, HELLO[9:]),
        "fragments that make no frame",
    ),
    "a control frame in fragments": (
        fragment(1, 0, True, 0, control(1, GossipSummary([]))),
        "fragments that make no frame",
    ),
    "a fragment in a fragment": (
        fragment(1, 0, True, 0, fragment(2, 0, True, 0, frame_codec.ping(1))),
        "fragments that make no frame",
    ),
    "half a frame in a fragment": (
        fragment(1, 0, True, 0, struct.pack("!IB", 90, FrameType.PARCEL) + bytes(60)),
        "fragments that make no frame",
    ),
    "a map of itself": (
        control(1, Advert(BAD, 1, 2, [LinkClaim(BAD, 1, 1, 0, 0, 0)], {}, 0)),
        "an advert of bad with a link to itself",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_violation_closes_its_link_with_a_reason_and_changes_nothing_else(wrong: str) -> None:
    data, reason = WRONG[wrong]
    untouched, victim = Victim().state(), Victim()
    (closed,) = victim.closed_by(data)
    assert closed.peer == BAD
    assert closed.reason.startswith(reason)
    assert victim.state() == untouched
    assert victim.broker.counters["violations"] == 1
    assert victim.broker.receive(BAD, HELLO, NOW) == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (frame_codec.ping(1), "the first frame of a connection must be a greeting"),
        (control(0, GossipSummary([])), "the first frame of a connection must be a greeting"),
        (frame_codec.hello("else", 1), "calls itself else, expected bad"),
        (HELLO.replace(b"OVLN", b"HTTP"), "not an Overlane broker: wrong magic number"),
        (HELLO.replace(b"OVLN\x06", b"OVLN\x09"), "speaks version 9 of the overlay protocol; this broker speaks 6"),
    ],
)
def test_who_does_not_greet_as_itself_is_not_let_in(data: bytes, reason: str) -> None:
    broker = OverlayBroker(BrokerConfig("me", QosTable({})), 3, now=NOW)
    broker.handle(LinkUp(BAD), NOW)
    (close,) = broker.receive(BAD, data, NOW)
    assert isinstance(close, Close)
    assert (close.peer, close.reason) == (BAD, reason)
    assert reason.encode() in close.last_words


def test_a_neighbour_may_come_back_after_its_violation() -> None:
    victim = Victim()
    assert len(victim.closed_by(HELLO)) == 1
    victim.broker.handle(LinkUp(BAD), NOW + SECOND)
    assert victim.broker.receive(BAD, HELLO, NOW + SECOND) == []
    changes = [effect for effect in victim.broker.flush(NOW + SECOND) if isinstance(effect, LinkChanged)]
    assert changes == [LinkChanged(BAD, "suspect")]


def test_a_farewell_closes_the_link_once_whatever_follows_in_the_same_bytes() -> None:
    victim = Victim()
    closed = victim.closed_by(control(1, Farewell("maintenance")) + frame_codec.ping(1))
    assert [(close.peer, close.reason) for close in closed] == [(BAD, "closed by the neighbour: maintenance")]


def test_bad_content_is_its_origins_fault_and_not_that_of_the_link_it_came_by() -> None:
    victim = Victim()
    ends = [LinkClaim(peer, 10_000, 100, 0, 0, 0) for peer in ("me", "far")]
    victim.tell(BAD, Advert(BAD, 1, 2, ends, {}, 0))
    victim.tell(BAD, Advert("far", 1, 1, [LinkClaim(BAD, 10_000, 100, 0, 0, 0)], {}, 0))
    victim.tell(BAD, ROUTE)
    assert victim.closed_by(frame_codec.parcel(header(), b"nonsense"), Lane.DATA) == []
    assert victim.broker.counters["violations"] == 1
    effects = victim.broker.receive(BAD, frame_codec.parcel(header(sequence=2), REST), NOW, Lane.DATA)
    assert [next(one.deliveries).body for one in effects if isinstance(one, Deliver)] == [b"x"]


def test_a_leap_in_the_numbers_of_parcels_takes_no_memory() -> None:
    victim = Victim()
    watched = int(ParcelFlag.ACK_REQUESTED)

    def hop(number: int) -> bytes:
        marked = header(flags=watched, sequence=number, hop_sequence=number)
        return frame_codec.detour((broker_id("me"),), 0, marked, REST)

    victim.closed_by(hop(1), Lane.DATA)
    tracemalloc.start()
    victim.closed_by(hop(1 << 28), Lane.DATA)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


# Any bytes


def damaged(frames: list[bytes], places: list[tuple[int, int]]) -> bytes:
    data = bytearray(b"".join(frames))
    for at, value in places:
        if data:
            data[at % len(data)] = value
    return bytes(data)


GENUINE = [
    frame_codec.ping(1),
    frame_codec.pong(1),
    frame_codec.hop_ack(1, 5, 3),
    frame_codec.route(encode(ROUTE)),
    frame_codec.parcel(header(flags=3, hop_sequence=4), REST),
    frame_codec.parcel(header(origin=broker_id("me")), REST),
    frame_codec.parcel(header(flags=0x42, sequence=7, hop_sequence=5, deadline_us=9), REST),
    frame_codec.parcel(header(sequence=8), pack_single((1, 1), 2, 1, ("u", 0, b"alone"))),
    frame_codec.detour((broker_id("me"),), 0, header(flags=int(ParcelFlag.DIRECT), sequence=2), REST),
    frame_codec.detour((broker_id("me"), broker_id(GOOD)), 0, header(sequence=3, deadline_us=9), REST),
    control(1, ROUTE),
    control(1, Advert("far", 1, 1, [LinkClaim(BAD, 5, 1, 0, 0, 0)], {"60000": 1}, 0)),
    control(1, InterestUpdate("far", 1, 1, 0, ["t", "v/#"], [])),
    control(1, Receipt("me", GOOD, 3, 3, 1, 2, b"\x01")),
    control(1, Teardown("far", 1, 1)),
]


@examples(300)
@example([], [], b"\xff" * 5)
@given(
    st.lists(st.sampled_from(GENUINE), max_size=3),
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=4),
    st.binary(max_size=30),
)
def test_no_bytes_make_an_exception_escape_nor_close_another_link(
    frames: list[bytes], places: list[tuple[int, int]], tail: bytes
) -> None:
    victim = Victim()
    closed = victim.closed_by(damaged(frames, places) + tail)
    assert len(closed) <= 1
    for when in (NOW + 200 * MS, NOW + 10 * SECOND):
        victim.broker.publish("t", b"more", when)
        effects = victim.broker.flush(when)
        assert all(effect.peer == BAD or "pings" in effect.reason for effect in effects if isinstance(effect, Close))
        victim.broker.pull(GOOD, 1 << 30, when)
    assert victim.broker.receive(GOOD, frame_codec.ping(7), NOW + 200 * MS) == []


@examples(200)
@given(st.binary(min_size=1, max_size=60))
def test_garbage_of_unknown_type_changes_nothing_but_its_link(garbage: bytes) -> None:
    untouched, victim = Victim().state(), Victim()
    closed = victim.closed_by(struct.pack("!IB", 1 + len(garbage), 100 + garbage[0] % 100) + garbage)
    assert [close.peer for close in closed] == [BAD]
    assert victim.state() == untouched


def test_a_connection_that_takes_the_place_of_another_is_no_trouble_with_the_link() -> None:
    victim = Victim()
    effects = victim.broker.handle(LinkUp(GOOD), NOW + SECOND)
    effects += victim.broker.receive(GOOD, frame_codec.hello(GOOD, 1), NOW + SECOND)
    effects += victim.broker.flush(NOW + SECOND)
    assert not [effect for effect in effects if isinstance(effect, LinkChanged)]
    assert {view.peer: view.state.name for view in victim.broker.link_views()}[GOOD] == "UP"
