"""The first best-effort messages of topics in two tiers, where the map is drawn so seldom that it lags behind."""

from dataclasses import replace

import pytest

from overlane.core.bundles import BUNDLES
from overlane.core.config import BrokerConfig
from overlane.core.events import Deliver
from overlane.core.gossip import link_state
from overlane.core.units import MS, NEVER, SECOND
from overlane.sim.setup import SimulationSetup
from overlane.sim.story import network_of
from overlane.sim.world import World

EDGES = ("e1", "e2", "e3", "e4")
TOPICS = {"e2": "plant/line/a", "e3": "plant/line/b", "e4": "plant/hall/c"}


class NeighboursOnly(SimulationSetup):
    """Brokers that know nobody by name but their neighbours."""

    def config_of(self, name: str, failure: float) -> BrokerConfig:
        config = super().config_of(name, failure)
        return replace(config, named=frozenset(config.link_failure))


@pytest.fixture
def slow_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps as far apart as those of thousands of links."""
    monkeypatch.setattr(link_state, "DRAWN_AT_ONCE", 0)
    monkeypatch.setattr(link_state, "DRAW_PER_LINK", 20 * MS)


def world_of(deadline_ns: int) -> World:
    """Four edges and a routing broker between them; each edge but the first has a subscriber."""
    network = network_of(
        {(edge, "r"): 10 * MS for edge in EDGES},
        {"#": deadline_ns},
        subscribers=[*((edge, topic) for edge, topic in TOPICS.items())],
    )
    return World(
        network,
        duration_ns=NEVER,
        roles={**dict.fromkeys(EDGES, "edge"), "r": "routing"},
        assignment=dict.fromkeys(range(BUNDLES), "r"),
        plan=NeighboursOnly(network, None, None),
    )


@pytest.mark.usefixtures("slow_maps")
@pytest.mark.parametrize("gap_ns", [0, 20 * MS, 70 * MS, 150 * MS])
def test_nothing_is_lost_while_the_map_lags_behind_and_later_messages_do_not_wait(gap_ns: int) -> None:
    world = world_of(NEVER)
    world.engine.run_until(0)
    publishers = [world.add_hand_publisher("e1", topic) for topic in TOPICS.values()]
    for number in range(3):
        for at, publisher in enumerate(publishers):
            when = at * gap_ns + number * 5 * MS
            world.engine.at(when, lambda one: one.publish(1), publisher)
    world.engine.run_until(5 * SECOND)
    row = world.judge.rows["#"]
    assert len(row.latencies_ns) == 9
    assert world.hosts["e1"].core.counters["held_messages"] == 0
    for publisher in publishers:
        world.engine.at(world.engine.now, lambda one: one.publish(1), publisher)
    world.engine.run_until(6 * SECOND)
    assert list(row.latencies_ns[9:]) == 3 * [20 * MS]


@pytest.mark.usefixtures("slow_maps")
def test_a_message_with_a_deadline_that_is_held_is_delivered_and_its_age_tells_that_it_is_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_of(30 * MS)
    ages: list[int] = []
    delivered = world.watch.delivered

    def note(broker: str, effect: Deliver) -> None:
        ages.append(effect.age_ns)
        delivered(broker, effect)

    monkeypatch.setattr(world.watch, "delivered", note)
    world.engine.run_until(0)
    publisher = world.add_hand_publisher("e1", TOPICS["e2"])
    for number in range(3):
        world.engine.at(number * 5 * MS, lambda one: one.publish(1), publisher)
    world.engine.run_until(5 * SECOND)
    latencies = list(world.judge.rows["#"].latencies_ns)
    assert len(latencies) == 3
    assert latencies[0] > 30 * MS
    assert ages == pytest.approx(latencies, abs=2 * MS)
    assert world.hosts["e1"].core.counters["expired_dropped"] == 0
