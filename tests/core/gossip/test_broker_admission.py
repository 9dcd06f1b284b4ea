"""Brokers that a neighbour makes up: they split nothing, take nobody's room, and are forgotten."""

from random import Random

import pytest
from handwired import Overlay

from overlane.core.events import BrokersRefused, Close
from overlane.core.gossip.broker_admission import NEEDS_KEPT_MIN, WAIT_MAX, BrokerAdmission
from overlane.core.gossip.interest import TABLE as INTEREST
from overlane.core.gossip.link_state import LinkStateTable
from overlane.core.qos import QosClass
from overlane.core.units import MS
from overlane.core.wire import frame_codec
from overlane.core.wire.control_messages import Advert, ControlMessage, InterestUpdate, LinkClaim, encode

LINE = {"a-b": 10, "b-c": 10, "c-d": 10, "a-liar": 10}
HONEST = "abcd"
ROOM = 64


def settled(brokers_max: int = ROOM, links: dict[str, int] = LINE, named: str = "") -> Overlay:
    config = {"brokers_max": brokers_max, "named": frozenset(named)}
    net = Overlay(links, {"t": QosClass(reliable=True)}, config=config)
    net.subscribe("d", "t")
    net.run(3_000)
    assert len(net.digests()) == 1
    return net


def claim(peer: str) -> LinkClaim:
    return LinkClaim(peer, 5_000, 10, 0, 0, 0)


def tell(net: Overlay, *messages: ControlMessage, for_ms: int = 2_000) -> None:
    """The liar tells it to a."""
    for message in messages:
        net.brokers["liar"]._neighbours["a"].send(message)
    net.turn("liar", [])
    net.run(for_ms)


def connected(net: Overlay, names: list[str], sequence: int = 1_000) -> list[ControlMessage]:
    """A network behind the liar that nobody but the liar has seen, and what it needs."""
    incarnation = net.brokers["liar"].incarnation
    around = [Advert(name, 1, sequence, [claim("liar")], {}, 0) for name in names]
    needs = [InterestUpdate(name, 1, sequence, -1, ["t"], []) for name in names]
    for told in needs:
        net.brokers["liar"]._remote.accept(told)  # it may be asked for it again
    return [Advert("liar", incarnation, sequence, [claim("a"), *map(claim, names)], {}, 0), *around, *needs]


def known(net: Overlay, name: str) -> set[str]:
    broker = net.brokers[name]
    return {*broker._table.adverts, *broker._remote.brokers()}


def digests(net: Overlay) -> set[str]:
    return {net.brokers[name].map_digest() for name in HONEST}


def arrives(net: Overlay, body: bytes = b"x") -> bool:
    net.publish("a", "t", body)
    net.run(1_000)
    return body in net.bodies("d")


def honest_part_is_sound(net: Overlay) -> None:
    """It has one mind, delivers, and has closed none of its own links, also after all were connected anew."""
    for one, other in ("ab", "bc", "cd"):
        net.cut(one, other)
        net.join(one, other)
    net.run(3_000)
    for name in HONEST:
        assert set(HONEST) <= known(net, name)
        assert not [close for close in net.of(name, Close) if close.peer in HONEST]
    assert arrives(net, b"%d" % net.now)


def test_more_names_than_any_message_holds_split_nothing() -> None:
    net = settled()
    names = [f"ghost-{number}" for number in range(4_097)]
    tell(net, *(Advert(name, 1, 1, [], {}, 0) for name in names))
    tell(net, *(InterestUpdate(name, 1, 1, 0, ["t"], []) for name in names))
    honest_part_is_sound(net)
    assert [known(net, name) - {*HONEST, "liar"} for name in HONEST] == [set()] * 4
    net.crash("b")
    net.restart("b")
    net.run(3_000)
    honest_part_is_sound(net)
    assert len(digests(net)) == 1


def test_who_is_not_connected_is_passed_on_when_it_is() -> None:
    net = settled()
    incarnation = net.brokers["liar"].incarnation
    tell(net, InterestUpdate("e", 1, 1, 0, ["t"], []), Advert("e", 1, 1, [claim("liar")], {}, 0))
    assert "e" not in known(net, "a") | known(net, "d")
    net.brokers["liar"]._remote.accept(InterestUpdate("e", 1, 1, 0, ["t"], []))  # of which it is asked again
    tell(net, Advert("liar", incarnation, 1_000, [claim("a"), claim("e")], {}, 0))
    assert all("e" in net.brokers[name]._table.adverts for name in HONEST)
    assert all(net.brokers[name]._remote.needing("t") == ("d", "e") for name in "abc")


def test_a_made_up_network_behind_the_liar_takes_no_more_than_the_room_that_is_left() -> None:
    net = settled()
    tell(net, *connected(net, [f"ghost-{number}" for number in range(1_000)]))
    for name in HONEST:
        assert len(known(net, name) - {*HONEST, "liar"}) <= ROOM
    assert net.brokers["a"].counters["brokers_refused"] > 900
    net.run(10_000)
    assert [(one.neighbour, one.brokers_max) for one in net.of("a", BrokersRefused)] == [("liar", ROOM)]
    honest_part_is_sound(net)


def test_the_room_of_others_is_theirs_whoever_came_first() -> None:
    net = settled(links={**LINE, "b-e": 10, "e-f": 10, "f-g": 10})
    net.cut("b", "e")
    net.run(40_000)
    assert "e" not in net.brokers["a"]._table.adverts
    tell(net, *connected(net, [f"ghost-{number}" for number in range(1_000)]))
    net.join("b", "e")
    net.run(3_000)
    for name in HONEST:
        assert {*HONEST, "e", "f", "g"} <= set(net.brokers[name]._table.adverts)
    honest_part_is_sound(net)


def test_a_broker_with_many_links_takes_the_room_of_many() -> None:
    net = settled()
    names = [f"ghost-{number}" for number in range(60)]
    incarnation = net.brokers["liar"].incarnation
    mesh = [Advert(one, 1, 1, [claim("liar"), *(claim(two) for two in names if two != one)], {}, 0) for one in names]
    tell(net, Advert("liar", incarnation, 1_000, [claim("a"), *map(claim, names)], {}, 0), *mesh)
    links = sum(len(advert.links) for name, advert in net.brokers["b"]._table.adverts.items() if name in names)
    assert 0 < links <= 16 * ROOM
    honest_part_is_sound(net)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_all_that_a_liar_told_is_forgotten_soon_after_it_has_gone_and_what_is_stored_too(is_restarted: bool) -> None:
    net = settled(named="abcd")
    ghosts = [f"ghost-{number}" for number in range(30)]
    tell(net, *connected(net, ghosts))
    assert set(ghosts) <= known(net, "d")
    net.crash("liar")
    if is_restarted:
        net.run(1_000)
        net.crash("a")
        net.restart("a")
    net.run(WAIT_MAX // MS + 6_000)
    for name in HONEST:
        assert not set(ghosts) & set(net.brokers[name]._table.adverts)
        assert len(net.brokers[name]._names) <= 5
    net.run(NEEDS_KEPT_MIN // MS + 6_000)
    for name in HONEST:
        assert known(net, name) <= {*HONEST, "liar"}
        stored = {key.split(b"\0")[0] for table, key in net.store[name] if table == INTEREST}
        assert stored <= {b"d", b"liar"}
        assert net.brokers[name].counters["retained_bytes"] == 0
    honest_part_is_sound(net)


def test_what_a_broker_of_the_file_needs_is_kept_however_long_it_is_away() -> None:
    net = settled(named="abcd")
    net.crash("d")
    net.run(NEEDS_KEPT_MIN // MS + 60_000)
    net.publish("a", "t", b"kept")
    net.run(1_000)
    net.restart("d")
    net.run(3_000)
    assert net.bodies("d") == [b"kept"]


def test_a_name_that_no_network_file_could_have_is_a_violation() -> None:
    net = settled()
    liar = net.brokers["liar"]._neighbours["a"]
    liar._push_control(frame_codec.control(liar._control_sent, encode(Advert("\N{SNOWMAN}" * 30, 1, 1, [], {}, 0))))
    net.turn("liar", [])
    net.run(1_000)
    assert "is not a broker's name" in net.of("a", Close)[0].reason
    assert arrives(net)


def test_who_was_away_for_nearly_as_long_as_it_is_remembered_is_told_anew() -> None:
    """Some may have forgotten it just now, and others not."""
    net = settled(links={**LINE, "d-e": 10})
    net.cut("b", "c")
    net.run(WAIT_MAX // MS - 2_000)
    net.brokers["a"]._table.forget("d", net.now)
    net.brokers["a"]._admission.lost("d")
    net.join("b", "c")
    net.run(3_000)
    assert len(digests(net)) == 1
    assert arrives(net)


def test_pages_bring_everything_to_a_newcomer() -> None:
    net = settled(brokers_max=2_000)
    names = [f"station-{number:04}" for number in range(600)]
    tell(net, *connected(net, names))
    assert set(names) <= set(net.brokers["d"]._table.adverts)
    net.crash("c")
    net.restart("c")
    net.run(5_000)
    for name in "cd":
        assert set(names) <= set(net.brokers[name]._table.adverts)
        assert set(names) <= set(net.brokers[name]._remote.brokers())


@pytest.mark.parametrize("seed", range(4))
def test_random_inventions_leave_the_honest_part_sound(seed: int) -> None:
    print("seed", seed)
    luck = Random(seed)
    net = settled(brokers_max=luck.choice([16, 40, ROOM]))
    names = [f"ghost-{number}" for number in range(luck.choice([10, 200]))] + ["a", "b", "c", "d"]
    for _ in range(20):
        told: list[ControlMessage] = []
        for _ in range(luck.randrange(1, 40)):
            name = luck.choice(names)
            incarnation = net.brokers[name].incarnation if name in HONEST else luck.randrange(1, 4)
            ends = {luck.choice([*names, "liar"]) for _ in range(luck.randrange(6))} - {name}
            sequence = luck.randrange(1, 1_000)
            match luck.randrange(4):
                case 0:
                    told.append(
                        InterestUpdate(name, incarnation, sequence, -1, luck.choices(["t", "u/#", "v"], k=2), [])
                    )
                case 1:
                    ends = set(luck.sample(names, min(len(names), 30)))
                    incarnation = net.brokers["liar"].incarnation
                    told.append(Advert("liar", incarnation, sequence, [claim("a"), *map(claim, ends - {"a"})], {}, 0))
                case _:
                    left = luck.random() < 0.1
                    told.append(Advert(name, incarnation, sequence, [claim(end) for end in sorted(ends)], {}, 0, left))
        tell(net, *told, for_ms=300)
        room = net.brokers["a"].config.brokers_max
        for name in HONEST:
            ghosts = set(net.brokers[name]._table.adverts) - {*HONEST, "liar"}
            present = {one for one in ghosts if not net.brokers[name]._table.adverts[one].left}
            assert len(present) <= 2 * room
    honest_part_is_sound(net)
    net.crash("liar")
    net.run((NEEDS_KEPT_MIN + WAIT_MAX) // MS + 90_000)
    assert len(digests(net)) == 1
    for name in HONEST:
        assert known(net, name) <= {*HONEST, "liar"}
    honest_part_is_sound(net)


def test_one_more_link_between_connected_brokers_is_no_reason_for_a_survey_and_one_less_is() -> None:
    table = LinkStateTable("a")
    admission = BrokerAdmission("a", table)

    def take(name: str, sequence: int, peers: str) -> bool:
        """Whether a survey is due behind it."""
        advert = Advert(name, 1, sequence, [claim(peer) for peer in peers], {}, 0)
        table.accept(advert, sequence)
        admission.took(advert, sequence)
        return admission.is_dirty

    for name, peers in (("a", "b"), ("b", "ac"), ("c", "b")):
        take(name, 1, peers)
    admission.survey(("b",), 1)
    assert [take("a", 2, "bc"), take("c", 2, "ab")] == [False, False]
    assert [take("b", 2, "acd"), take("d", 2, "b")] == [False, False]
    assert (admission.is_connected("d"), admission.nearest_first("dcba")) == (True, ["a", "b", "c", "d"])
    assert take("b", 3, "ac")
    admission.survey(("b",), 3)
    assert not admission.is_connected("d")
    assert take("d", 3, "c") or take("c", 3, "abd")
