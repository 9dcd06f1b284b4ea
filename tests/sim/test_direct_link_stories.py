"""Direct links between edges, on a simulated overlay of two tiers."""

from dataclasses import replace

import pytest

from overlane.core.bundles import BUNDLES
from overlane.core.config import BrokerConfig
from overlane.core.events import DirectLinksWanted
from overlane.core.routing.direct_links import NOT_UP, OPEN_WITHIN, SAFE_FOR
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.sim.setup import SimulationSetup
from overlane.sim.story import network_of
from overlane.sim.world import World

TOPIC = "alarms/hall/fire"
EDGES = frozenset({"e1", "e2"})


class DirectSetup(SimulationSetup):
    def config_of(self, name: str, failure: float) -> BrokerConfig:
        config = super().config_of(name, failure)
        return replace(config, direct=EDGES - {name}) if name in EDGES else config


class Net:
    """Two edges and a routing broker. The edges are linked while that is wanted, unless nobody can dial the other."""

    def __init__(self, deadline_ns: Nanos, *, can_dial: bool = True) -> None:
        network = network_of(
            {("e1", "r"): 30 * MS, ("e2", "r"): 30 * MS, ("e1", "e2"): 20 * MS},
            {TOPIC: deadline_ns},
            publishers=[("e1", TOPIC, 20)],
            subscribers=[("e2", TOPIC)],
        )
        self.wanted: list[DirectLinksWanted] = []
        self.world = World(
            network,
            duration_ns=NEVER,
            roles={**dict.fromkeys(EDGES, "edge"), "r": "routing"},
            assignment=dict.fromkeys(range(BUNDLES), "r"),
            plan=DirectSetup(network, None, None),
        )
        self._can_dial = can_dial
        self._direct = self.world.links["e1", "e2"]
        self._direct.cut()
        self.world.watch.direct_links_wanted = self._follow
        self.world.engine.run_until(0)

    def _follow(self, broker: str, effect: DirectLinksWanted) -> None:
        assert broker == "e1"
        self.wanted.append(effect)
        if self._can_dial:
            change = self._direct.heal if effect.peers else self._direct.cut
            self.world.engine.at(self.world.engine.now, lambda _: change(), None)

    def run(self, duration_ns: Nanos) -> None:
        self.world.engine.run_until(self.world.engine.now + duration_ns)

    def path(self) -> set[tuple[str, str]]:
        (route,) = (one for one in self.world.hosts["e1"].core.routes() if one.qos.deadline_ns < NEVER)
        return set(route.links)


def test_a_deadline_at_risk_opens_a_direct_link_which_is_closed_when_the_tier_is_quick_enough_for_a_while() -> None:
    net = Net(50 * MS)
    net.run(5 * SECOND)
    assert net.wanted == [DirectLinksWanted(("e2",))]
    assert net.path() == {("e1", "e2")}
    row = net.world.judge.rows[TOPIC]
    assert max(row.latencies_ns[-20:]) < 30 * MS
    for ends in (("e1", "r"), ("e2", "r")):
        net.world.links[ends].slow(5 * MS)
    net.run(SAFE_FOR - 2 * SECOND)
    assert len(net.wanted) == 1
    net.run(10 * SECOND)
    assert net.wanted[1:] == [DirectLinksWanted(())]
    assert net.path() == {("e1", "r"), ("r", "e2")}


def test_edges_tell_each_other_no_interest_over_a_direct_link() -> None:
    net = Net(50 * MS)
    net.run(5 * SECOND)
    e1, e2 = (net.world.hosts[name].core for name in ("e1", "e2"))
    assert e1.needing(TOPIC) == ("e2",)
    assert e1._remote.brokers() == []
    assert e2._remote.brokers() == []


def test_no_direct_link_is_wanted_while_the_tier_meets_the_deadline() -> None:
    net = Net(100 * MS)
    net.run(10 * SECOND)
    assert net.wanted == []


def test_an_edge_that_cannot_be_dialled_is_told() -> None:
    net = Net(50 * MS, can_dial=False)
    net.run(OPEN_WITHIN + 3 * SECOND)
    assert net.wanted == [DirectLinksWanted(("e2",)), DirectLinksWanted((), (("e2", NOT_UP),))]
    assert net.path() == {("e1", "r"), ("r", "e2")}


@pytest.mark.slow
@pytest.mark.usefixtures("bench_folder")
def test_in_eight_cases_a_direct_link_on_demand_is_in_time_where_a_link_that_is_always_there_is() -> None:
    from direct_links import run

    on_demand, flat = run("direct", 4), run("flat", 4)
    late = {case for case, (settled, _) in on_demand.items() if settled.percent < flat[case][0].percent}
    assert late == set()
    assert [case for case, (settled, _) in on_demand.items() if settled.percent == 100] == [1, 2, 3, 5, 7]
