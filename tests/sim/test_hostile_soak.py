"""Hostile brokers in the soak: they are drawn, they do harm, and honest brokers get along without them."""

import pytest
from msgspec import structs
from test_soak import SEEDS as SOAKED

from overlane.core.events import PathSuspected
from overlane.network import Network
from overlane.sim.soak import draw, drawing
from overlane.sim.soak.drawing import HOSTILE, HOSTILE_SHARE
from overlane.sim.soak.hostile import KINDS, corrupt, kind_of
from overlane.sim.soak.invariants import nothing_forbidden
from overlane.sim.soak.running import examine
from overlane.sim.world import World

SEEDS = 400
BLACKHOLE_SEED = 33
"""A source finds out that what it sends over the hostile broker does not arrive."""


def has_hostile(network: Network) -> bool:
    return any(broker.name == HOSTILE for broker in network.brokers)


def test_some_seeds_have_a_hostile_broker_of_each_kind_at_the_edge() -> None:
    kinds: list[str] = []
    soaked: list[str] = []
    for seed in range(SEEDS):
        network = draw(seed)
        if has_hostile(network):
            kinds.append(kind_of(World(network)))
            soaked += kinds[-1:] if seed in SOAKED else []
            assert sum(HOSTILE in link.ends for link in network.links) == 2
            assert HOSTILE not in {spec.broker for spec in network.publishers}
            assert HOSTILE not in {spec.broker for spec in network.subscribers}
    assert set(kinds) == set(KINDS)
    assert min(map(soaked.count, KINDS)) >= 3
    assert HOSTILE_SHARE / 2 < len(kinds) / SEEDS < 2 * HOSTILE_SHARE


def test_a_blackhole_is_found_out_and_nobody_else_is_suspected() -> None:
    world = World(draw(BLACKHOLE_SEED))
    assert kind_of(world) == "blackhole"
    corrupt(world)
    assert examine(world) is None
    suspected = [one.effect.hops for one in world.run_log.path_verdicts if isinstance(one.effect, PathSuspected)]
    assert suspected
    assert all(HOSTILE in hops for hops in suspected)


def test_a_false_accusation_would_be_noticed() -> None:
    world = World(draw(6))
    world.watch.path_judged("b00", PathSuspected("b02", ("b00", "b01", "b02"), ("b01",), (("b01", "b02"),)))
    broken = nothing_forbidden(world)
    assert broken is not None
    assert broken.detail == "b00 suspects b01 on b00 -> b01 -> b02"


def test_all_else_is_drawn_as_without_a_hostile_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [draw(seed) for seed in range(50)]
    monkeypatch.setattr(drawing, "HOSTILE_SHARE", 0.0)
    for network, without in zip(drawn, map(draw, range(50)), strict=True):
        links = tuple(link for link in network.links if HOSTILE not in link.ends)
        brokers = tuple(broker for broker in network.brokers if broker.name != HOSTILE)
        assert structs.replace(network, brokers=brokers, links=links) == without
