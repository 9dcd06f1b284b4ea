"""One seed of a domain with items: faults for a minute, then everything is mended and must come to rest.

Always, at every agent:
- epochs grow, and every item has a primary and a mirror that are two brokers, none of which is missing in that policy;
- a broker counts as failed only if something was wrong with it: the loss of one link between two brokers is not that.

A broker that is gone for GONE_WITHIN, while ZooKeeper and the others are well, is no item's primary any more.

At the end: one master, one policy, the same at every agent; nobody is missing; the plan's normal placement; and the
case base has every single failure. Policies are not changed more often than faults explain.
"""

import traceback
from collections.abc import Iterable, Iterator

from overlane.core.units import SECOND, Nanos
from overlane.items.plans import failure_states
from overlane.items.policy import ItemPolicy, is_sound
from overlane.network.schema import Item, Placement
from overlane.sim.items.domain import SimBroker, SimulatedDomain
from overlane.sim.random_streams import between, chance, one_of, stream
from overlane.sim.soak.invariants import Broken
from overlane.sim.soak.running import SeedVerdict, run_each

CHAOS_NS: Nanos = 60 * SECOND
REST_NS: Nanos = 150 * SECOND
GONE_WITHIN: Nanos = 6 * SECOND
BLAME: Nanos = 90 * SECOND
"""How long after a trouble a broker may still count as failed: it returns after a while only."""
CHANGES_PER_FAULT = 10
"""Policies for one fault: the promotion, the solved one, the return and what is solved then; twice where the master
changes in between, and once more for what the votes of the moment made of it."""


class ItemsWorld:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.luck = luck = stream(seed, "items")
        names = [f"west-{number}" for number in range(1, between(luck, 2, 5) + 1)]
        items = [
            Item(name=f"item-{number}", topics=(f"t{number}/#",), critical=chance(luck, 0.3))
            for number in range(between(luck, 1, 8))
        ]
        self.domain = SimulatedDomain(luck, names, items, Placement(capacity=1_000.0))
        self.domain.on_policy = self._policy_changed
        self.broken: Broken | None = None
        self.policies: dict[int, ItemPolicy] = {}
        self.faults = 0
        self._troubled: dict[str, Nanos] = {}
        self._seen: dict[str, int] = {}

    def run(self) -> Broken | None:
        domain = self.domain
        domain.run(8 * SECOND)
        end = domain.engine.now + CHAOS_NS
        while domain.engine.now < end and self.broken is None:
            self._trouble()
            domain.run(between(self.luck, SECOND // 5, 6 * SECOND))
        self._note_trouble()
        domain.heal()
        domain.run(REST_NS)
        return self.broken or self._at_the_end()

    # Faults

    def _trouble(self) -> None:
        domain, luck = self.domain, self.luck
        broker = one_of(luck, list(domain.brokers.values()))
        running = len(domain.running)
        self.faults += 1
        match int(luck.random() * 8):
            case 0 if broker.is_up and running > 1:
                broker.kill()
                domain.engine.at(domain.engine.now + GONE_WITHIN, self._must_be_gone, (broker, broker._life))
            case 1 if broker.runs and running > 1:
                broker.stop()
            case 2 | 3 if not broker.runs:
                broker.start() if not broker.is_up else broker.go_on()
            case 4 if len(domain.brokers) > 2:
                other = one_of(luck, [one for one in domain.brokers.values() if one is not broker])
                domain.cuts.add(frozenset((broker.name, other.name)))
            case 5 if domain.cuts:
                domain.cuts.discard(one_of(luck, sorted(domain.cuts, key=sorted)))
            case 6:
                broker.cut_off(is_expired=chance(luck, 0.3))
            case 7:
                server = between(luck, 0, 2)
                if domain.ensemble.servers[server].is_up:
                    domain.ensemble.stop(server)
                else:
                    domain.ensemble.start(server)
            case _:
                pass
        self._note_trouble()

    def _note_trouble(self) -> None:
        """Which brokers have something that explains that they count as failed. Cut off from ZooKeeper is that too."""
        domain, now = self.domain, self.domain.engine.now
        for broker in domain.brokers.values():
            cuts = sum(broker.name in cut for cut in domain.cuts)
            others = len([one for one in domain.running if one is not broker])
            if not broker.runs or not broker.agent.is_connected or cuts >= min(2, others):
                self._troubled[broker.name] = now
        if not domain.ensemble.has_quorum:
            self._troubled |= dict.fromkeys(domain.brokers, now)

    def _must_be_gone(self, gone: tuple[SimBroker, int]) -> None:
        broker, life = gone
        domain = self.domain
        is_quiet = all(server.is_up for server in domain.ensemble.servers) and not domain.cuts
        others = [one for one in domain.brokers.values() if one is not broker]
        if broker._life != life or not is_quiet or not all(one.runs and one.agent.is_connected for one in others):
            return
        recently = domain.engine.now - GONE_WITHIN
        if any(self._troubled.get(one.name, -1) > recently for one in others):
            return
        policy = domain.policy
        still = [] if policy is None else [item for item, one in policy.places.items() if one.primary == broker.name]
        if still:
            self._break("a lost broker carries nothing", f"{broker.name} is primary of {', '.join(still)}")

    # What must hold

    def _break(self, invariant: str, detail: str) -> None:
        self.broken = self.broken or Broken(invariant, f"{detail} at {self.domain.engine.now / SECOND:.1f} s")

    def _policy_changed(self, broker: SimBroker, policy: ItemPolicy) -> None:
        self._note_trouble()
        if policy.epoch <= self._seen.get(f"{broker.name}/{id(broker.agent)}", 0):
            self._break("epochs grow", f"{broker.name} went to epoch {policy.epoch}")
        self._seen[f"{broker.name}/{id(broker.agent)}"] = policy.epoch
        known = self.policies.setdefault(policy.epoch, policy)
        if known != policy:
            self._break("one policy for an epoch", f"epoch {policy.epoch} is {known} and {policy}")
        alive = frozenset(self.domain.brokers) - policy.missing
        items = [item.name for item in self.domain.items]
        there = {one for place in policy.places.values() for one in (place.primary, place.mirror) if one}
        if there & policy.missing or not is_sound(policy.places, items, there if len(there) < 2 else alive):
            self._break("every item has its brokers", f"epoch {policy.epoch}: {policy}")
        now = self.domain.engine.now
        for one in policy.failed:
            if now - self._troubled.get(one, -BLAME) >= BLAME:
                self._break("nobody fails without a reason", f"{one} in epoch {policy.epoch}")

    def _at_the_end(self) -> Broken | None:
        domain = self.domain
        policies = {broker.name: broker.agent.policy for broker in domain.brokers.values()}
        first = policies[min(policies)]
        plan = domain.plan
        if len(domain.masters()) != 1 or plan is None:
            return Broken("one master", f"masters are {domain.masters()}")
        if first is None or any(policy != first for policy in policies.values()):
            return Broken("agents agree", f"{policies}")
        if first.missing or dict(first.places) != plan.places:
            return Broken("the normal state returns", f"{first}, plan {plan.places}")
        lacking = [state for state in failure_states(plan) if plan.state(state) is None]
        if lacking:
            return Broken("the case base is complete", f"without {lacking}")
        if first.epoch > CHANGES_PER_FAULT * (self.faults + 2):
            return Broken("policies do not swing", f"epoch {first.epoch} after {self.faults} faults")
        return None


def run_items_seed(seed: int) -> SeedVerdict:
    world = ItemsWorld(seed)
    try:
        broken = world.run()
    except Exception as failure:  # whatever it is, it is a finding about this seed, and the next one must still run
        last = traceback.extract_tb(failure.__traceback__)[-1]
        where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
        broken = Broken("no agent fails by itself", f"{type(failure).__name__} in {where}: {failure}")
    return SeedVerdict(seed, len(world.policies), "", broken, "items")


def run_items_seeds(seeds: Iterable[int], jobs: int = 1) -> Iterator[SeedVerdict]:
    return run_each(run_items_seed, seeds, jobs)
