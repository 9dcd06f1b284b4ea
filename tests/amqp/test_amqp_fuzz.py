"""Whatever a client sends, the server answers or closes the connection; nothing is raised and nothing grows without
bound."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from peers import AmqpPeer, Bench

from examples import examples
from overlane.amqp.codec import composites
from overlane.amqp.codec.encoding import binary, described, encode
from overlane.amqp.codec.framing import PROTOCOL, SASL_PROTOCOL, frame, frame_of
from overlane.amqp.codec.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Modified,
    Open,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
)
from overlane.amqp.codec.types import Described, Symbol, ULong
from overlane.pubsub.contract.connection import Phase

small = st.sampled_from([0, 1, 2, 3, 255, 256, 2**31, 2**32 - 1])
maybe = st.none() | small
flags = st.none() | st.booleans()
addresses = st.sampled_from([None, "t/1", "t/#", "queue://q", "", "$SYS/x", "topic://t/2", "a/#/b"])
capabilities = st.none() | st.lists(st.sampled_from(["queue", "topic", "shared", "global"]), max_size=2).map(
    lambda some: tuple(map(Symbol, some))
)
policies = st.sampled_from([None, Symbol("never"), Symbol("link-detach")])


def made(kind: Callable[..., object], *fields: st.SearchStrategy[Any]) -> st.SearchStrategy[object]:
    return st.tuples(*fields).map(lambda values: kind(*values))


none = st.none()
sources = none | made(
    Source, addresses, st.sampled_from([None, 0, 2]), policies, maybe, flags, none, none, none, none, none, capabilities
)
targets = none | made(Target, addresses, none, none, none, flags, none, capabilities)
modes = st.sampled_from([None, 0, 1, 2, 255])
outcomes = st.sampled_from([None, Accepted(), Rejected(), Released(), Modified(), Modified(True), Modified(True, True)])
bodies = st.sampled_from(
    [b"", described(0x75, binary(b"x" * 300)), described(0x77, encode("text")), described(0x77, encode(None)), b"\x40"]
)
names = st.sampled_from(["a", "b", ""])
frames = st.one_of(
    made(Begin, none, small, small, small),
    made(Attach, names, small, st.booleans(), modes, modes, sources, targets, none, none, maybe),
    made(Flow, maybe, small, small, small, maybe, maybe, maybe, maybe, flags, flags),
    made(Disposition, st.booleans(), small, maybe, flags, outcomes),
    made(Detach, small, flags),
    made(End),
)
tags = st.sampled_from([None, b"tag"])
transfers = st.tuples(
    made(Transfer, small, maybe, tags, st.sampled_from([None, 0, 1]), flags, flags, none, none, flags, flags), bodies
)
channels = st.sampled_from([0, 0, 0, 0, 1, 40])


def check(peer: AmqpPeer) -> None:
    connection = peer.connection
    assert connection.partial_bytes >= 0
    assert connection.held_bytes == sum(len(one.payload) for one in connection.held)
    if connection.phase is Phase.CLOSED:
        assert connection.channels == {}


@examples(80)
@given(st.lists(st.tuples(channels, frames | transfers), max_size=25))
def test_any_frames_in_any_order(said: list[tuple[int, object]]) -> None:
    bench = Bench()
    peer, other = bench.open("one"), bench.open("two")
    other.begin()
    other.attach_receiver("t/#")
    other.credit(5)
    other.attach_sender("t/1", 1)
    peer.begin()
    peer.say(Attach("r", 0, True, source=Source("t/#"), target=Target()))
    peer.say(Attach("s", 1, False, source=Source(), target=Target("t/1"), initial_delivery_count=0))
    peer.credit(5)
    for channel, one in said:
        if peer.connection.phase is Phase.CLOSED:
            break
        if isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], Transfer):
            peer.say(one[0], one[1], channel=channel)
        else:
            peer.say(one, channel=channel)
        check(peer)
    other.transfer(b"still here", 1)
    assert other.connection.is_open
    peer.lose()
    assert peer.connection.session is None
    assert not any(name.startswith("amqp/one#") for name in bench.pubsub.state.sessions)


@examples(80)
@given(
    st.lists(st.binary(max_size=60) | st.sampled_from([PROTOCOL, SASL_PROTOCOL, frame_of(0, Open("x"))]), max_size=6),
    st.booleans(),
)
def test_any_bytes(pieces: list[bytes], is_open: bool) -> None:
    bench = Bench(packet_bytes_before_connect=512)
    peer = bench.open("one") if is_open else bench.peer()
    if is_open:
        peer.begin()
    for piece in pieces:
        peer.send(piece)
    for piece in pieces:
        peer.send(frame(0, piece))
    check(peer)
    peer.lose()


@examples(80)
@given(st.sampled_from(range(0x10, 0x19)), st.binary(max_size=40))
def test_performatives_of_any_bytes(code: int, rest: bytes) -> None:
    bench = Bench()
    peer = bench.open("one")
    peer.begin()
    peer.send(frame(0, b"\x00\x53" + bytes((code,)) + rest))
    peer.send(frame_of(0, Close()))
    assert peer.connection.phase is Phase.CLOSED
    check(peer)


@examples(30)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_the_same_is_understood_wherever_bytes_are_cut(sizes: list[int]) -> None:
    bench = Bench()
    peer = bench.peer()
    said = [
        PROTOCOL,
        frame_of(0, Open("cut")),
        frame_of(0, Begin(None, 0, 100, 100)),
        frame_of(0, Attach("r", 0, True, source=Source("t/#"), target=Target())),
        frame_of(0, Flow(0, 100, 0, 100, 0, 0, 10)),
        frame_of(0, Attach("s", 1, False, source=Source(), target=Target("t/1"), initial_delivery_count=0)),
    ]
    messages = [
        *(
            frame(0, composites.write(Transfer(1, at, b"t", 0, False)) + described(0x75, binary(b"%d" % at)))
            for at in range(3)
        ),
    ]
    for data in (b"".join(said), b"".join(messages)):  # which need credit
        at = 0
        for size in sizes:
            peer.send(data[at : at + size])
            at += size
        peer.send(data[at:])
    assert peer.payloads() == [b"0", b"1", b"2"]


def test_a_frame_with_an_unknown_performative_closes_the_connection() -> None:
    bench = Bench()
    peer = bench.open("one")
    peer.say(Described(ULong(0x7F), []))
    assert peer.take(Close)
