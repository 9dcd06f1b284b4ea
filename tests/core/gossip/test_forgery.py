"""A neighbour that speaks in the name of others: what they say themselves prevails."""

import pytest
from handwired import Overlay
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from overlane.core.events import Close
from overlane.core.gossip.gossip import LEAP_MAX
from overlane.core.limits import TOPIC_BYTES_MAX
from overlane.core.qos import QosClass
from overlane.core.routing.forwarding.duplicate_window import DuplicateFilter
from overlane.core.topics import BadTopic, check_filter
from overlane.core.wire import frame_codec
from overlane.core.wire.control_messages import (
    Advert,
    ControlMessage,
    Establish,
    GossipSummary,
    IncarnationProof,
    InterestRequest,
    InterestUpdate,
    KnownVersions,
    LinkClaim,
    Receipt,
    encode,
)
from overlane.core.wire.frame_codec import Header, ParcelFlag, broker_id
from overlane.core.wire.parcel import FlowPart, pack_flow, pack_messages

LINE = {"a-b": 10, "b-c": 10, "c-d": 10, "a-liar": 10}
FAR = (1 << 63) - 1


def settled() -> Overlay:
    net = Overlay(LINE, {"t": QosClass(reliable=True)})
    net.subscribe("d", "t")
    net.run(3_000)
    assert len(net.digests()) == 1
    return net


def incarnation(net: Overlay, name: str) -> int:
    return net.brokers[name]._table.version_of(name)[0]


def lie(net: Overlay, message: ControlMessage) -> None:
    """The liar tells it to a."""
    net.brokers["liar"]._neighbours["a"].send(message)
    net.turn("liar", [])
    net.run(3_000)


def arrives(net: Overlay) -> bool:
    net.publish("a", "t", b"x")
    net.run(1_000)
    return net.bodies("d") == [b"x"]


@pytest.mark.parametrize("sequence", [1_000, LEAP_MAX - 1, LEAP_MAX + 1_000, FAR])
@pytest.mark.parametrize("victim", ["b", "d"])
def test_a_map_from_the_future_in_the_name_of_another_is_soon_set_right(victim: str, sequence: int) -> None:
    net = settled()
    lie(net, Advert(victim, incarnation(net, victim), sequence, [], {}, 0))
    assert {name: broker._table.map for name, broker in net.brokers.items() if name != "liar"}.keys() == set("abcd")
    honest = {net.brokers[name].map_digest() for name in "abcd"}
    assert len(honest) == 1
    assert arrives(net)
    assert not any(net.of(name, Close) for name in "abcd")


@pytest.mark.parametrize("sequence", [1_000, LEAP_MAX + 1_000, FAR])
def test_needs_from_the_future_in_the_name_of_another_are_soon_set_right(sequence: int) -> None:
    net = settled()
    lie(net, InterestUpdate("d", incarnation(net, "d"), sequence, -1, [], []))
    assert arrives(net)
    net.subscribe("d", "t", "another")
    net.unsubscribe("d", "t")
    net.run(1_000)
    net.publish("a", "t", b"y")
    net.run(1_000)
    assert net.bodies("d") == [b"x", b"y"]


@pytest.mark.parametrize("victim", ["b", "d"])
def test_a_broker_that_is_said_to_have_left_is_soon_there_again_with_all_that_it_needs(victim: str) -> None:
    net = settled()
    net.subscribe("b", "u")
    net.run(1_000)
    lie(net, Advert(victim, incarnation(net, victim), 1_000, [], {}, 0, True))
    assert len({net.brokers[name].map_digest() for name in "abcd"}) == 1
    assert arrives(net)
    net.publish("a", "u", b"u")
    net.run(1_000)
    assert net.bodies("b") == [b"u"]


def test_a_later_life_of_a_neighbour_is_not_believed_while_it_is_here() -> None:
    net = settled()
    before = net.brokers["a"].map_digest()
    lie(net, Advert("b", incarnation(net, "b") + 1, 1, [], {}, 0))
    lie(net, Advert("b", incarnation(net, "b") + 1, 2, [], {}, 0, True))
    assert net.brokers["a"].map_digest() == before
    assert arrives(net)


def test_a_neighbour_that_was_restarted_is_believed() -> None:
    net = settled()
    net.crash("b")
    net.run(1_000)
    net.restart("b")
    net.run(5_000)
    assert len({net.brokers[name].map_digest() for name in "abcd"}) == 1
    assert arrives(net)


LIVES_TO_COME = ((1 << 32) - 2, (1 << 32) - 1)


@pytest.mark.parametrize("victim", ["b", "d"])
def test_parcels_of_lives_to_come_do_not_take_the_place_of_those_of_the_life_that_is(victim: str) -> None:
    """As many lives are remembered as there are lies."""
    net = settled()
    net.subscribe("a", "t")
    net.run(1_000)
    for incarnation in LIVES_TO_COME:
        header = Header(ParcelFlag.RELIABLE | ParcelFlag.DIRECT, 1, broker_id(victim), incarnation, 5, 1, 0, 0, 1, 0)
        rest = pack_flow(FlowPart(incarnation, 1, 1, 1, 0), incarnation) + pack_messages((("t",), (0,), (b"forged",)))
        net.brokers["liar"]._neighbours["a"].send_urgent(frame_codec.detour((broker_id("a"),), 0, header, rest))
        net.turn("liar", [])
        net.run(100)
    net.publish(victim, "t", b"genuine")
    net.run(3_000)
    assert net.bodies("a") == [b"genuine"]


@pytest.mark.parametrize("victim", ["b", "d"])
def test_routes_of_a_life_to_come_do_not_take_the_place_of_those_of_the_life_that_is(victim: str) -> None:
    net = settled()
    net.subscribe("a", "u")
    net.run(1_000)
    names = [victim, "liar", "a"]
    for route in range(10):
        lie(net, Establish(victim, LIVES_TO_COME[1], route, 1, names, [], [0, 1, 1, 2], [], [2], [0] * 3, 0, 0, 0))
    net.publish(victim, "u", b"genuine, and sent only once")
    net.run(3_000)
    assert net.bodies("a") == [b"genuine, and sent only once"]


# Names and filters that are none

odd_texts = st.text(st.sampled_from("\0\n/+#$ \N{SNOWMAN}ab"), max_size=6)
bad_names = st.sampled_from(("a\0b", "a/b", "+", "#", "a b", "\N{SNOWMAN}", "-a", ".", "a\n", "x" * 65))


def is_filter(text: str) -> bool:
    try:
        check_filter(text)
    except BadTopic:
        return False
    return True


bad_filters = st.one_of(
    odd_texts.filter(lambda text: not is_filter(text)),
    st.sampled_from(("x" * (TOPIC_BYTES_MAX + 1), "\N{SNOWMAN}" * 30_000, "a\0b")),
)


@st.composite
def malformed(draw: st.DrawFn) -> ControlMessage:
    """A message that is as it should be but for one name or filter."""
    name, topic_filter = draw(bad_names), draw(bad_filters)
    incarnation = draw(st.sampled_from((1, 1_000_000)))
    good = draw(st.lists(st.sampled_from(("t", "u/#")), unique=True))
    messages: tuple[ControlMessage, ...] = (
        InterestUpdate(name, incarnation, 1, -1, good, []),
        InterestUpdate("liar", incarnation, 9, -1, [*good, topic_filter], []),
        InterestUpdate("liar", incarnation, 9, 8, good, [topic_filter]),
        InterestUpdate("d", incarnation, 9, -1, [topic_filter], [], 0, True),
        InterestRequest(name),
        Advert(name, incarnation, 1, [LinkClaim("liar", 1, 1, 0, 0, 1)], {}, 0),
        Advert("liar", incarnation, 99, [LinkClaim(name, 1, 1, 0, 0, 1)], {}, 0),
        GossipSummary([KnownVersions(name, (incarnation, 1), (incarnation, 1))]),
        Establish(name, incarnation, 1, 1, [name, "a"], [], [0, 1], [], [1], [1, 0], 0, 1, 1),
        Receipt("d", "liar", 9, incarnation, 1, 1, b"", path=[name]),
        Receipt("d", name, 9, incarnation, 1, 1, b""),
        IncarnationProof(name, incarnation, b"x"),
    )
    return draw(st.sampled_from(messages))


@examples(60)
@given(malformed())
def test_of_a_message_with_a_name_or_filter_that_is_none_nothing_is_kept_or_passed_on(message: ControlMessage) -> None:
    net = Overlay({"a-b": 1, "a-liar": 1}, {"t": QosClass(reliable=True)})
    net.subscribe("b", "t")
    net.run(1_000)
    violations = net.brokers["a"].counters["violations"]
    before, frames = dict(net.store["a"]), len(net.frames)
    liar = net.brokers["liar"]._neighbours["a"]
    liar._push_control(frame_codec.control(liar._control_sent, encode(message)))
    net.turn("liar", [])
    net.run(1_000)
    assert net.brokers["a"].counters["violations"] == violations + 1
    assert net.of("a", Close)
    assert net.store["a"] == before
    assert not any(encode(message) in data for sender, _, _, data in net.frames[frames:] if sender == "a")
    net.publish("a", "t", b"x")
    net.run(1_000)
    assert net.bodies("b") == [b"x"]


def test_origins_that_nobody_knows_leave_no_trace() -> None:
    net = settled()
    before = len(net.brokers["a"]._forwarding.duplicates)
    for number in range(50):
        header = Header(ParcelFlag.DIRECT, 1, 1_000 + number, 0, 5, 1, 0, 0, 1, 0)
        rest = pack_flow(FlowPart(0, 1, 1, 1, 0), 0) + pack_messages((("t",), (0,), (b"forged",)))
        net.brokers["liar"]._neighbours["a"].send_urgent(frame_codec.detour((broker_id("a"),), 0, header, rest))
        net.turn("liar", [])
        net.run(10)
        lie(net, Establish(f"ghost-{number}", 0, 1, 1, [f"ghost-{number}", "a"], [], [0, 1], [], [1], [1, 0], 0, 1, 1))
    assert len(net.brokers["a"]._forwarding.duplicates) == before
    assert not [one for one in net.brokers["a"]._routes._routes if one[0] == broker_id("ghost-0")]
    assert arrives(net)


def test_who_is_forgotten_is_forgotten_by_the_windows_of_duplicates_too() -> None:
    duplicates = DuplicateFilter()
    assert duplicates.record(7, 1, 1)
    duplicates.forget(7)
    assert not len(duplicates)
