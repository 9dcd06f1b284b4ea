"""Management agents of a domain in virtual time, with an ensemble that lags, loses answers and expires sessions."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from random import Random
from unittest import mock

import pytest

from overlane.coordination.contract import Create, Delete, Operation, Transaction
from overlane.core.units import NEVER, SECOND
from overlane.errors import ConfigError
from overlane.items import master, votes
from overlane.items.mastership import most_power_first, strategy_named
from overlane.items.plans import PlannedBroker, PlannedItem, make_plan, solve
from overlane.items.policy import Place, is_sound
from overlane.items.records import AgentReport
from overlane.network.schema import Item, Placement
from overlane.sim.items.domain import SimulatedDomain
from overlane.sim.items.running import run_items_seed

ITEMS = [Item(name=f"i{number}", topics=(f"i{number}/#",), critical=number == 0) for number in range(6)]
NAMES = ["a", "b", "c", "d"]


def domain(seed: int = 1, settings: Placement | None = None) -> SimulatedDomain:
    found = SimulatedDomain(Random(seed), NAMES, ITEMS, settings or Placement(capacity=1_000.0))
    found.run(8 * SECOND)
    return found


def places(found: SimulatedDomain) -> dict[str, Place]:
    assert found.policy is not None
    return dict(found.policy.places)


def primaries(found: SimulatedDomain) -> set[str]:
    return {place.primary for place in places(found).values()}


def test_the_agent_with_the_most_computing_power_is_master_and_all_know_the_policy() -> None:
    found = domain()
    assert found.masters() == [max(found.brokers.values(), key=lambda one: one.power).name]
    assert all(one.agent.policy == found.policy for one in found.brokers.values())
    assert is_sound(places(found), [item.name for item in ITEMS], NAMES)
    assert primaries(found) == set(NAMES)


def test_a_lost_broker_s_items_run_on_their_mirrors_and_return_with_it() -> None:
    found = domain()
    before = places(found)
    victim = next(name for name in NAMES if name not in found.masters())
    found.brokers[victim].kill()
    found.run(3 * SECOND)
    after = places(found)
    for item, place in before.items():
        assert after[item].primary == (place.mirror if place.primary == victim else place.primary)
        assert victim not in (after[item].primary, after[item].mirror)
    found.brokers[victim].start()
    found.run(30 * SECOND)
    assert places(found) == before


def test_the_second_failure_is_handled_while_the_first_lasts_and_the_third_too() -> None:
    found = domain()
    for count, victim in enumerate(sorted(NAMES, key=lambda name: name in found.masters())[:3], start=1):
        found.brokers[victim].kill()
        found.run(20 * SECOND)
        alive = [one.name for one in found.running]
        assert len(alive) == 4 - count
        assert is_sound(places(found), [item.name for item in ITEMS], alive)


def test_the_loss_of_the_master_changes_nothing_but_its_items() -> None:
    found = domain()
    before, (master,) = places(found), found.masters()
    found.brokers[master].kill()
    found.run(5 * SECOND)
    ((fresh),) = found.masters()
    assert fresh != master
    after = places(found)
    untouched = [item for item, place in before.items() if master not in (place.primary, place.mirror)]
    assert untouched
    assert all(after[item] == before[item] for item in untouched)
    assert found.brokers[fresh].agent.plan is not None


def test_a_link_between_two_brokers_is_not_the_failure_of_either() -> None:
    found = domain()
    before = found.policy
    found.cuts.add(frozenset(NAMES[:2]))
    found.run(20 * SECOND)
    assert found.policy == before


def test_a_drained_broker_carries_nothing_until_it_is_undrained() -> None:
    found = domain()
    before, path = places(found), f"{found.brokers['a'].agent.paths.drained}/c"
    session = found.ensemble.open_session()
    _do(found, session, Create(path))
    found.run(3 * SECOND)
    assert "c" not in {one for place in places(found).values() for one in (place.primary, place.mirror)}
    assert found.policy is not None
    assert (found.policy.failed, found.policy.off) == ((), ("c",))
    _do(found, session, Delete(path))
    found.run(3 * SECOND)
    assert places(found) == before


def _do(found: SimulatedDomain, session: int, operation: Operation) -> None:
    found.ensemble.carry_out(session, Transaction((operation,)))


def test_an_applied_plan_is_followed_with_its_case_base_and_survives_the_master() -> None:
    found = domain()
    items = [PlannedItem(item.name, 100.0, item.critical) for item in ITEMS]
    rows = [[25.0 if row == column else 0.0 for column in range(6)] for row in range(6)]
    plan = make_plan(items, rows, [PlannedBroker(name, 1_000.0) for name in NAMES], 0.02, version=7)
    odd = solve(plan, frozenset("a"))
    plan = plan.with_state(odd)
    found.brokers["b"].agent.offer(plan, found.engine.now)
    found.run(3 * SECOND)
    assert places(found) == plan.places
    assert found.policy is not None
    assert found.policy.plan == 7
    found.brokers["a"].kill()
    found.run(5 * SECOND)
    assert places(found) == odd.places
    for one in found.running:
        assert one.agent.plan is not None
        assert one.agent.plan.version == 7
    found.brokers["b"].agent.offer(make_plan(items, rows, plan.brokers, 0.02, version=6), found.engine.now)
    found.run(3 * SECOND)
    assert places(found) == odd.places


def test_a_bottleneck_moves_few_items_by_the_rates_of_now() -> None:
    found = domain()
    before = places(found)
    busy = before["i0"].primary
    luck = Random(2)
    for _ in range(60):
        for broker in found.brokers.values():
            broker.rates = {
                item: luck.gauss(550, 10)
                for item, place in places(found).items()
                if broker.name in ((place.primary, place.mirror) if item == "i0" else (place.primary,))
                and before[item].primary == busy
            }
        found.run(SECOND)
    carried = [item for item, place in before.items() if place.primary == busy]
    assert len(carried) == 2, "two items of 550 on a broker of 1,000"
    assert found.policy is not None
    moved = [item for item in before if places(found)[item].primary != before[item].primary]
    assert len(moved) == 1
    assert set(moved) <= set(carried)
    assert found.policy.epoch <= 4


def test_brokers_are_switched_off_at_a_low_load_within_the_bounds_and_on_again() -> None:
    found = domain(settings=Placement(capacity=1_000.0, off_below=0.2, off_after_ns=10 * SECOND, brokers_min=3))
    for broker in found.brokers.values():
        broker.rates = {item.name: 5.0 for item in ITEMS if places(found)[item.name].primary == broker.name}
    found.run(60 * SECOND)
    assert found.policy is not None
    assert len(found.policy.off) == 1
    (off,) = found.policy.off
    assert off not in primaries(found)
    for broker in found.brokers.values():
        broker.rates = {item.name: 150.0 for item in ITEMS if places(found)[item.name].primary == broker.name}
    found.run(10 * SECOND)
    after = found.policy
    assert after is not None
    assert after.off == ()


def test_the_election_is_pluggable() -> None:
    reports = {"a": AgentReport(1.0, 2.0), "b": AgentReport(1.0, 8.0), "c": AgentReport(1.0, 8.0)}
    assert most_power_first(reports) == ["b", "c", "a"]
    assert strategy_named("name")(reports) == ["a", "b", "c"]
    assert strategy_named("overlane.items.mastership:most_power_first") is most_power_first
    with pytest.raises(ConfigError, match="no_such"):
        strategy_named("overlane.items.mastership:no_such")


@pytest.mark.parametrize("seed", [*range(4), 29])
def test_agents_keep_their_promises_through_random_faults(seed: int) -> None:
    verdict = run_items_seed(seed)
    assert verdict.broken is None, verdict.told()


SABOTAGE: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "one vote is enough": lambda: mock.patch.object(votes, "VOTES", 1),
    "lost brokers are kept": lambda: mock.patch.object(master.Master, "_place", return_value=None),
    "the case base stays empty": lambda: mock.patch.object(master, "failure_states", return_value=[]),
    "whoever was once failed stays so": lambda: mock.patch.multiple(votes, RETURN=300 * SECOND, RETURN_MAX=NEVER),
}


@pytest.mark.parametrize("which", SABOTAGE)
def test_the_soak_notices_a_broken_rule(which: str) -> None:
    with SABOTAGE[which]():
        assert any(run_items_seed(seed).broken is not None for seed in range(12))
