"""Succession: the best-scored mirror in sync continues the broker, and another one where that has failed too."""

from collections import Counter

import pytest
from replica_world import BROKER, World

from overlane.core.units import MS
from overlane.recovery.hosts.host_records import HostRecord
from overlane.recovery.hosts.succession import TURN, claim_delay, successors
from overlane.recovery.replica_set import Copy, ReplicaSet

SET = ReplicaSet(3, 1, tuple(Copy(number, name) for number, name in enumerate("abcd", 1)))


def hosts(**scores: float) -> dict[str, HostRecord]:
    return {name: HostRecord("edge", score) for name, score in scores.items()}


def test_mirrors_in_sync_claim_by_their_score_and_a_host_that_is_not_there_last() -> None:
    there = hosts(a=1.0, b=0.3, d=0.9, e=1.0)
    assert successors(BROKER, SET, there) == ["d", "b", "c"]
    assert [claim_delay(BROKER, host, SET, there) for host in "dbc"] == [0, TURN, 2 * TURN]
    assert claim_delay(BROKER, "e", SET, there) == 0  # not in sync: its claim is refused in any case


def test_brokers_that_are_lost_together_are_continued_at_different_hosts_where_scores_are_equal() -> None:
    there = hosts(b=0.5, c=0.5, d=0.5)
    first = Counter(successors(f"broker-{number}", SET, there)[0] for number in range(300))
    assert set(first) == set("bcd")
    assert min(first.values()) > 60


@pytest.mark.parametrize("is_dead", [True, False])
@pytest.mark.parametrize("best", "bcd")
def test_the_best_of_several_in_sync_continues_the_broker(best: str, is_dead: bool) -> None:
    world = in_sync_world(best)
    fail(world, "a", is_dead=is_dead)
    world_watches(world)
    assert world.arbiter.value is not None
    assert (world.arbiter.value.primary_host, world.hosts[best].epoch) == (best, world.arbiter.value.epoch)
    assert {copy.host for copy in world.arbiter.value.in_sync} == set("bcd")


@pytest.mark.parametrize("is_dead", [True, False])
def test_where_the_best_has_failed_too_the_next_one_continues_it(is_dead: bool) -> None:
    world = in_sync_world("d", "b")
    fail(world, "a", is_dead=is_dead)
    fail(world, "d", is_dead=is_dead)
    world_watches(world)
    assert world.arbiter.value is not None
    assert world.arbiter.value.primary_host == "b"


def in_sync_world(*best: str) -> World:
    """Four hosts in sync, the first of them the primary; scores fall in this order."""
    world = World(7, hosts=4)
    world.arbiter.is_faulty = False
    order = [*best, *(name for name in "bcd" if name not in best)]
    world.scores = {name: HostRecord("edge", 1 - place / 10) for place, name in enumerate(order)}
    for _ in range(40):
        world.run(25 * MS)
    assert world.arbiter.value is not None
    assert (world.arbiter.value.primary_host, len(world.arbiter.value.in_sync)) == ("a", 4)
    return world


def fail(world: World, name: str, *, is_dead: bool) -> None:
    if is_dead:
        world.crash(world.hosts[name])
    else:
        world.hosts[name].paused_until = world.now + 60_000 * MS


def world_watches(world: World) -> None:
    for _ in range(60):
        world.run(25 * MS)
        for host in world.hosts.values():
            world.watch(host)
