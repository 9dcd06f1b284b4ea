"""Whole brokers whose links, QoS classes and limits change under traffic and faults: what must hold still holds."""

import pytest

from overlane.core.links.link_health import LinkState
from overlane.core.units import MS, SECOND
from overlane.network import Broker, Link, Network, Simulation
from overlane.network.schema import Topic
from overlane.pubsub.limits import Limits
from overlane.sim.whole.broker import Pace
from overlane.sim.whole.drawing import CHAOS_NS, Drawn, DrawnSubscription, Person, Publication, draw
from overlane.sim.whole.reconfiguring import DrawnChange, draw_changes, reconfigure, schedule
from overlane.sim.whole.running import WholeWorld, examine

SEEDS = 40
SEEDS_PER_TEST = 10
PACE = Pace(200_000, (MS, 5 * MS))


def line() -> Network:
    return Network(
        brokers=tuple(Broker(name=name) for name in "abc"),
        links=(Link(ends=("a", "b"), latency_ns=5 * MS), Link(ends=("b", "c"), latency_ns=5 * MS)),
        simulation=Simulation(duration_ns=CHAOS_NS, seed=1),
    )


def changed(network: Network) -> DrawnChange:
    """a and c are linked directly, and no longer through b; t is reliable; fewer messages are under way."""
    return DrawnChange(
        0,
        Network(
            brokers=network.brokers,
            links=(network.links[0], Link(ends=("a", "c"), latency_ns=5 * MS)),
            topics=(Topic(filter="t0/#", reliability="reliable", routing="single"),),
            simulation=network.simulation,
        ),
        Limits(queue_messages=1_000, tries=1_000, in_flight=7, subscriptions_per_client=1, brokers=16),
    )


def story() -> WholeWorld:
    writer = Person("writer", "a", MS, (), (Publication("t0/x", 2, 200), Publication("t1/x", 1, 200)))
    reader = Person("reader", "c", MS, (DrawnSubscription("t0/#", 2), DrawnSubscription("t1/#", 1)), ())
    network = line()
    return WholeWorld(Drawn(1, network, dict.fromkeys("abc", PACE), (writer, reader), (), is_tight=False))


def up(world: WholeWorld, name: str) -> list[str]:
    return [view.peer for view in world.brokers[name].turn.core.link_views() if view.state is LinkState.UP]


def test_links_qos_and_limits_change_under_traffic_and_nothing_acknowledged_is_lost() -> None:
    world = story()
    change = changed(world.drawn.network)
    for number, name in enumerate("abc"):
        world.engine.at(2 * SECOND + number * 30 * MS, lambda name: reconfigure(world, name, change), name)
    assert examine(world) is None
    core = world.brokers["a"].turn.core
    assert up(world, "a") == ["b", "c"]
    assert up(world, "b") == ["a"]
    routes = [route.links for route in core.routes() if route.destinations == ("c",)]
    assert routes
    assert set(routes) == {(("a", "c"),)}
    assert core.config.qos.of("t0/x").reliable
    assert core.config.brokers_max == 16
    assert world.brokers["a"].turn.server.state.limits.in_flight == 7
    assert world.judge.deliveries >= 400


def test_a_broker_that_is_down_starts_with_the_configuration_that_came_meanwhile() -> None:
    world = story()
    change = changed(world.drawn.network)
    world.engine.at(SECOND, lambda _: world.brokers["c"].crash(loses_power=False), None)
    for name in "abc":
        world.engine.at(2 * SECOND, lambda name: reconfigure(world, name, change), name)
    assert examine(world) is None
    assert world.brokers["c"].turn.core.config.link_failure.keys() == {"a"}
    assert world.brokers["c"].turn.server.state.limits.subscriptions_per_client == 1


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_the_invariants_hold_on_every_seed(first: int) -> None:
    broken = []
    for seed in range(first, first + SEEDS_PER_TEST):
        world = reconfigured_world(seed)
        if (found := examine(world)) is not None:
            broken.append(f"seed {seed}: {found}")
    assert not broken, "\n".join(broken)


def test_a_seed_gives_the_same_run_again() -> None:
    worlds = [reconfigured_world(3) for _ in range(2)]
    assert [examine(world) for world in worlds] == [None, None]
    assert len({world.judge.digest_of() for world in worlds}) == 1


def reconfigured_world(seed: int) -> WholeWorld:
    drawn = draw(seed)
    world = WholeWorld(drawn)
    changes = draw_changes(drawn, world.limits)
    world.limits = Limits(queue_messages=max(change.limits.queue_messages for change in changes))
    schedule(world, changes)
    return world
