"""Whole brokers with MQTT clients, disks and random faults: what must hold on every seed.

`overlane simulate --soak N --soak-of brokers` runs more of them.
"""

import pytest

from overlane.sim.whole.drawing import draw
from overlane.sim.whole.running import WholeWorld, examine, run_seed

SEEDS = 200
SEEDS_PER_TEST = 10


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_the_invariants_hold_on_every_seed(first: int) -> None:
    broken = [verdict.told() for verdict in map(run_seed, range(first, first + SEEDS_PER_TEST)) if verdict.broken]
    assert not broken, "\n".join(broken)


def test_a_seed_gives_the_same_run_again() -> None:
    assert draw(5) == draw(5)
    first = run_seed(5)
    assert first.deliveries > 100
    assert run_seed(5) == first


@pytest.mark.slow
def test_the_soak_meets_what_it_is_for() -> None:
    """Torn writes, refusals, resends and resumed sessions happen within a few seeds; so do wills, replays of retained
    messages, and connections that end by silence."""
    worlds = [WholeWorld(draw(seed)) for seed in range(20)]
    for world in worlds:
        assert examine(world) is None, world.drawn.seed
    brokers = [broker for world in worlds for broker in world.brokers.values()]
    clients = [client for world in worlds for client in world.clients.values()]
    assert sum(broker.disk.torn for broker in brokers) >= 1
    assert sum(broker.disk.incarnation - 1 for broker in brokers) >= 10
    assert sum(client.resumed for client in clients) >= 20
    assert sum(client.resent for client in clients) >= 20
    assert sum(world.judge.refusals for world in worlds) >= 10
    assert sum(world.judge.again for world in worlds) >= 1
    assert sum(world.judge.wills.said for world in worlds) >= 20
    assert sum(world.judge.retained.replayed for world in worlds) >= 20
    assert sum(world.judge.keep_alive.timed_out for world in worlds) >= 2
