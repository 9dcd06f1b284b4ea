"""Incarnation proofs: where brokers prove their incarnations, nobody can invent a later one of another."""

import hmac
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from handwired import Overlay
from msgspec.structs import replace

from overlane.core.events import Close, Lane, Leave
from overlane.core.gossip.incarnation_proofs import FALSE_AT_ONCE, FALSE_EVERY
from overlane.core.gossip.link_state import FORGET_AFTER
from overlane.core.qos import QosClass
from overlane.core.units import MS
from overlane.core.wire import frame_codec
from overlane.core.wire.control_messages import (
    Advert,
    ControlMessage,
    Establish,
    GossipSummary,
    IncarnationProof,
    InterestUpdate,
    LinkClaim,
    ProvenIncarnations,
    Teardown,
    decode,
)
from overlane.core.wire.frame_codec import Header, ParcelFlag

LINE = {"a-b": 10, "b-c": 10, "c-d": 10, "a-liar": 10}
KEYS = {name: b"the key of " + name.encode() for name in ("a", "b", "c", "d", "liar")}
LATER = 1_000


def sign(name: str, incarnation: int, key_of: str | None = None) -> bytes:
    return hmac.digest(KEYS[key_of or name], b"%s lives as %d" % (name.encode(), incarnation), "sha256")


class Sealed:
    """Proves by a key that only its owner uses; the brokers check with what an authority would tell them."""

    def __init__(self, name: str, incarnation: int) -> None:
        self.proof: bytes | None = sign(name, incarnation)
        self.checks = 0

    def is_valid_proof(self, broker: str, incarnation: int, proof: bytes) -> bool:
        self.checks += 1
        return broker in KEYS and hmac.compare_digest(sign(broker, incarnation), proof)


def overlay(links: dict[str, int] = LINE) -> Overlay:
    return Overlay(links, {"t": QosClass(reliable=True), "u": QosClass()}, identity=Sealed)


def settled() -> Overlay:
    net = overlay()
    net.subscribe("d", "t")
    net.subscribe("a", "u")
    net.run(3_000)
    assert len(net.digests()) == 1
    return net


def incarnation(net: Overlay, name: str) -> int:
    return net.brokers[name].incarnation


def say(net: Overlay, *messages: ControlMessage) -> None:
    """The liar tells it to a."""
    for message in messages:
        net.brokers["liar"]._neighbours["a"].send(message)
    net.turn("liar", [])
    net.run(3_000)


def slip(net: Overlay, *frames: bytes) -> None:
    """The same beside the control messages."""
    for frame in frames:
        net.brokers["liar"]._neighbours["a"].send_urgent(frame)
    net.turn("liar", [])
    net.run(1_000)


def told(net: Overlay, *kinds: type[ControlMessage], since: int = 0) -> list[tuple[str, str, ControlMessage]]:
    """The control messages of these kinds that were sent: from, to, what."""
    found = []
    for sender, receiver, lane, data in net.frames[since:]:
        if lane is Lane.CONTROL:
            for kind, body in frame_codec.split(data)[0]:
                if kind == frame_codec.FrameType.CONTROL:
                    message = decode(frame_codec.read_control(body)[1])
                    if isinstance(message, kinds):
                        found.append((sender, receiver, message))
    return found


def carries(net: Overlay, number: int = 1) -> None:
    """Messages arrive, from a to d and from d to a."""
    for topic, here, there in (("t", "a", "d"), ("u", "d", "a")):
        before = net.bodies(there)
        net.publish(here, topic, b"%s %d" % (topic.encode(), number))
        net.run(1_000)
        assert net.bodies(there) == [*before, b"%s %d" % (topic.encode(), number)]


def is_sound(net: Overlay) -> None:
    assert len({net.brokers[name].map_digest() for name in "abcd"}) == 1
    carries(net)
    net.subscribe("d", "t", "another")
    net.unsubscribe("d", "t")
    carries(net, 2)
    assert not any(net.of(name, Close) for name in "abcd")


def of_a_later_life(net: Overlay) -> dict[str, Callable[[], None]]:
    """What a liar can tell of a life of d that has not been."""
    later = incarnation(net, "d") + LATER
    links = [LinkClaim("liar", 1, 1, 0, 0, 0)]
    route = Establish("d", later, 1, 1, ["d", "a", "liar"], [], [1, 2], [], [2], [2, 1, 0], 0, 2, 2)
    flags = int(ParcelFlag.DIRECT)
    parcels = [Header(flags, 1, frame_codec.broker_id("d"), later + number, 1, 1, 0, 0, 1, 0) for number in range(3)]
    here = (frame_codec.broker_id("a"),)
    return {
        "its links": lambda: say(net, Advert("d", later, 1, links, {}, 0)),
        "that it has none": lambda: say(net, Advert("d", later, 1, [], {}, 0)),
        "that it left": lambda: say(net, Advert("d", later, 1, [], {}, 0, True)),
        "that it needs nothing": lambda: say(net, InterestUpdate("d", later, 1, -1, [], [])),
        "that it needs nothing more": lambda: say(net, InterestUpdate("d", later, 1, 0, [], ["t"])),
        "a route": lambda: say(net, *(replace(route, route=number) for number in range(1, 9))),
        "that its routes are gone": lambda: say(net, *(Teardown("d", later, number) for number in range(1, 9))),
        "messages": lambda: slip(net, *(frame_codec.detour(here, 0, one, b"") for one in parcels)),
    }


LIES = tuple(of_a_later_life(overlay()))


@pytest.mark.parametrize("lie", LIES)
def test_what_is_told_of_a_later_life_of_a_broker_far_away_is_not_believed(lie: str) -> None:
    net = settled()
    carries(net, 0)
    before = net.brokers["a"].map_digest()
    of_a_later_life(net)[lie]()
    assert net.brokers["a"].map_digest() == before
    is_sound(net)


@pytest.mark.parametrize("lie", LIES)
def test_what_was_told_before_the_proof_came_is_set_right_by_it(lie: str) -> None:
    net = settled()
    net.crash("a")
    net.run(1_000)
    net.start("a")
    net.subscribe("a", "u")
    net.brokers["liar"]._proofs.forget("d")  # of which it does not tell
    net.join("a", "liar")
    net.run(1_000)
    of_a_later_life(net)[lie]()
    assert net.brokers["a"]._proofs.incarnation_of("d") is None
    net.join("a", "b")
    net.run(5_000)
    is_sound(net)


def behind_the_liar(net: Overlay, later: int) -> list[ControlMessage]:
    """A later life of d that is connected, as far as those can see who hear it from the liar."""
    ends = [LinkClaim("a", 10_000, 1, 0, 0, 0), LinkClaim("d", 10_000, 1, 0, 0, 0)]
    return [
        Advert("liar", incarnation(net, "liar"), 1_000, ends, {}, 0),
        Advert("d", later, 1, [LinkClaim("liar", 10_000, 1, 0, 0, 0)], {}, 0),
    ]


def test_the_lies_of_before_a_proof_were_believed() -> None:
    net = overlay({"a-b": 10, "c-d": 10, "a-liar": 10})
    net.run(1_000)
    later = incarnation(net, "d") + LATER
    say(net, *behind_the_liar(net, later), InterestUpdate("d", later, 1, -1, ["x"], []))
    assert net.brokers["b"]._table.version_of("d") == net.brokers["b"]._remote.version_of("d") == (later, 1)
    proof = IncarnationProof("d", incarnation(net, "d"), sign("d", incarnation(net, "d")))
    say(net, proof)
    assert net.brokers["b"]._table.version_of("d") == net.brokers["b"]._remote.version_of("d") == (0, 0)
    assert net.brokers["b"]._remote.needing("x") == ()


def test_what_is_so_is_asked_of_others_than_the_liar_that_has_shown_the_proof_itself() -> None:
    net = settled()
    proof = IncarnationProof("d", incarnation(net, "d"), sign("d", incarnation(net, "d")))
    net.brokers["b"]._proofs.forget("d")
    net.crash("a")
    net.start("a")
    net.subscribe("a", "u")
    net.brokers["liar"]._proofs.forget("d")
    net.join("a", "liar")
    net.run(1_000)
    later = incarnation(net, "d") + LATER
    say(net, *behind_the_liar(net, later), InterestUpdate("d", later, 5, -1, [], []))
    net.join("a", "b")
    net.run(1_000)
    assert net.brokers["a"]._remote.needing("t") == net.brokers["b"]._remote.needing("t") == ()
    net.brokers["liar"]._neighbours["a"].send(proof)
    net.turn("liar", [])
    net.loses = lambda frame: frame[0] == "liar"
    net.run(1_000)
    assert net.brokers["a"]._remote.needing("t") == ("d",)


def test_a_broker_that_was_restarted_is_believed() -> None:
    net = settled()
    for number in range(3):
        net.crash("d")
        net.run(1_000)
        net.restart("d")
        net.subscribe("d", "t")
        net.run(3_000)
        assert {net.brokers[name]._table.version_of("d")[0] for name in "abcd"} == {incarnation(net, "d")}
        assert len(net.digests()) == 1
        carries(net, number)
    assert [net.brokers[name].counters["unproven_dropped"] for name in "abcd"] == [0, 0, 0, 0]


def restarted_behind_a_cut() -> Overlay:
    """Of the new life of d nobody has heard at a and b."""
    net = settled()
    net.cut("b", "c")
    net.crash("d")
    net.run(1_000)
    net.restart("d")
    net.subscribe("d", "t")
    net.run(2_000)
    return net


def test_a_broker_that_was_restarted_while_others_were_cut_off_is_believed_when_they_are_back() -> None:
    net = restarted_behind_a_cut()
    net.join("b", "c")
    net.run(3_000)
    is_sound(net)


def test_what_was_refused_for_want_of_a_proof_is_asked_for_when_that_comes() -> None:
    net = restarted_behind_a_cut()
    news = net.brokers["d"]._table.adverts["d"]
    say(net, news)
    assert net.brokers["a"]._table.version_of("d")[0] < incarnation(net, "d")
    since = len(net.frames)
    say(net, IncarnationProof("d", incarnation(net, "d"), sign("d", incarnation(net, "d"))))
    asked = {(sender, to) for sender, to, _ in told(net, GossipSummary, since=since)}
    assert asked == {("a", "b"), ("a", "liar")}
    say(net, news)
    assert net.brokers["a"]._table.adverts["d"] == net.brokers["b"]._table.adverts["d"] == news


def test_a_newcomer_learns_the_proofs_of_all_from_its_only_neighbour() -> None:
    net = settled()
    net.crash("a")
    net.run(1_000)
    net.start("a")
    net.subscribe("a", "u")
    net.join("a", "b")
    net.run(3_000)
    assert {name: net.brokers["a"]._proofs.incarnation_of(name) for name in KEYS} == {
        name: net.brokers[name].incarnation for name in KEYS
    }
    net.join("a", "liar")
    net.run(1_000)
    of_a_later_life(net)["that it needs nothing"]()
    is_sound(net)


def test_a_proof_goes_over_each_link_once_each_way_at_most_and_a_link_that_comes_back_brings_no_more_of_them() -> None:
    net = overlay({"a-b": 10, "b-c": 10, "a-c": 10, "c-d": 10})
    net.run(3_000)
    net.crash("d")
    net.run(1_000)
    since = len(net.frames)
    net.restart("d")
    net.run(3_000)
    proofs = Counter((sender, to) for sender, to, one in told(net, IncarnationProof, since=since) if one.broker == "d")  # type: ignore[union-attr]
    assert proofs.keys() >= {("d", "c"), ("c", "a"), ("c", "b")}
    assert max(proofs.values()) == 1
    since = len(net.frames)
    net.cut("a", "b")
    net.join("a", "b")
    net.run(3_000)
    again = [
        (sender, one.broker)
        for sender, _, one in told(net, IncarnationProof, since=since)
        if isinstance(one, IncarnationProof)
    ]
    assert sorted(again) == [("a", "a"), ("b", "b")]


def test_a_proof_goes_ahead_of_all_that_is_said_in_that_life() -> None:
    net = settled()
    net.crash("d")
    net.run(1_000)
    since = len(net.frames)
    net.restart("d")
    net.subscribe("d", "t")
    net.run(3_000)
    for name in "abc":
        heard = [one for _, to, one in told(net, Advert, InterestUpdate, IncarnationProof, since=since) if to == name]
        of_it = [one for one in heard if one.broker == "d" and one.incarnation == incarnation(net, "d")]  # type: ignore[union-attr]
        assert isinstance(of_it[0], IncarnationProof)


def test_false_proofs_are_neither_believed_nor_passed_on_nor_looked_at_without_end() -> None:
    net = settled()
    since, later = len(net.frames), incarnation(net, "d") + LATER
    identity = net.brokers["a"]._proofs._identity
    assert isinstance(identity, Sealed)
    before = identity.checks
    false = [
        IncarnationProof("d", later + number, sign("d", later + number, "liar")) for number in range(10 * FALSE_AT_ONCE)
    ]
    say(net, *false)
    assert FALSE_AT_ONCE <= identity.checks - before <= FALSE_AT_ONCE + 3_000 * MS // FALSE_EVERY
    assert net.brokers["a"].counters["unproven_dropped"] == len(false)
    assert [one for one in told(net, IncarnationProof, since=since) if one[0] != "liar"] == []
    net.run(2 * FALSE_EVERY // MS)
    say(
        net,
        IncarnationProof("nobody", 1, b"signed"),
        IncarnationProof("d", incarnation(net, "d"), b"the life that is known"),
    )
    is_sound(net)
    net.crash("d")
    net.run(1_000)
    net.restart("d")
    net.subscribe("d", "t")
    net.run(3_000)
    is_sound(net)


def test_a_proof_of_the_past_changes_nothing() -> None:
    net = settled()
    past = IncarnationProof("d", incarnation(net, "d"), sign("d", incarnation(net, "d")))
    net.crash("d")
    net.run(1_000)
    net.restart("d")
    net.subscribe("d", "t")
    net.run(3_000)
    say(net, past, InterestUpdate("d", past.incarnation, 99, -1, [], []))
    is_sound(net)


def test_of_a_broker_that_has_no_proof_any_more_its_neighbours_believe_what_it_says_itself() -> None:
    net = overlay({"a-b": 10})
    net.subscribe("b", "t")
    net.run(3_000)
    net.crash("b")
    net.run(1_000)
    net._identity = lambda _name, _incarnation: None
    net.restart("b")
    net.subscribe("b", "t")
    net.run(3_000)
    assert len(net.digests()) == 1
    net.publish("a", "t", b"x")
    net.run(1_000)
    assert net.bodies("b") == [b"x"]


def test_proofs_are_forgotten_with_their_brokers_unless_something_is_kept_for_them() -> None:
    net = settled()
    net.crash("d")
    net.crash("liar")
    net.run(FORGET_AFTER // MS + 100_000)
    proofs = net.brokers["a"]._proofs
    assert proofs.incarnation_of("liar") is None
    assert proofs.incarnation_of("d") is not None
    net.restart("liar")
    net.run(1_000)
    of_a_later_life_of_d = InterestUpdate("d", LATER, 1, -1, [], [])
    say(net, of_a_later_life_of_d)
    net.publish("a", "t", b"kept")
    net.restart("d")
    net.run(5_000)
    assert net.bodies("d") == [b"kept"]


def test_that_a_broker_leaves_is_believed_if_it_says_so_itself() -> None:
    net = settled()
    net.handle("d", Leave())
    net.run(1_000)
    assert [net.brokers[name]._table.adverts["d"].left for name in "abc"] == [True, True, True]


def test_where_nobody_proves_anything_nothing_is_said_of_proofs() -> None:
    net = Overlay(LINE, {"t": QosClass(reliable=True)})
    net.run(3_000)
    net.crash("d")
    net.restart("d")
    net.run(3_000)
    assert told(net, IncarnationProof, ProvenIncarnations) == []
    say(net, IncarnationProof("d", LATER, sign("d", LATER)), ProvenIncarnations({}))
    assert [(sender, type(one)) for sender, _, one in told(net, IncarnationProof, ProvenIncarnations)] == [
        ("liar", IncarnationProof),
        ("liar", ProvenIncarnations),
    ]
    assert len(net.digests()) == 1


@pytest.mark.parametrize("seed", range(8))
def test_brokers_that_come_and_go_beside_a_liar_agree_when_all_is_well_again(seed: int) -> None:
    print("seed", seed)
    luck = Random(seed)
    links = {"a-b": 10, "b-c": 15, "c-d": 20, "a-d": 25, "a-liar": 10}
    net = overlay(links)
    net.subscribe("d", "t")
    for _ in range(12):
        name, victim = luck.choice("bcd"), luck.choice("bcd")
        match luck.randrange(5):
            case 0 if name in net.brokers:
                net.crash(name)
            case 1 if name not in net.brokers:
                net.restart(name)
            case 2:
                ends = luck.choice([ends for ends in net.latency_ns if "liar" not in ends])
                if ends in net.up:
                    net.cut(*ends)
                elif all(end in net.brokers for end in ends):
                    net.join(*ends)
            case _:
                later = luck.randrange(1, LATER)
                net.brokers["liar"]._proofs.forget(victim)
                false = IncarnationProof(victim, later, sign(victim, later, "liar"))
                lie = Advert(victim, later, luck.randrange(9), [], {}, 0, luck.random() < 0.5)
                mute = InterestUpdate(victim, later, luck.randrange(9), -1, [], [])
                lies: list[ControlMessage] = [false, lie, mute]
                for message in luck.sample(lies, 2):
                    net.brokers["liar"]._neighbours["a"].send(message)
                net.turn("liar", [])
        net.run(luck.randrange(1, 400))
    for name in "bcd":
        if name not in net.brokers:
            net.restart(name)
    for ends in sorted(net.latency_ns):
        if ends not in net.up:
            net.join(*ends)
    net.subscribe("d", "t")
    net.run(10_000)
    assert len({net.brokers[name].map_digest() for name in "abcd"}) == 1
    net.publish("a", "t", b"after all")
    net.run(2_000)
    assert net.bodies("d")[-1:] == [b"after all"]
