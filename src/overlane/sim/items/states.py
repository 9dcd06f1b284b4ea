"""A case base applied state by state: simulated agents follow a plan, brokers are lost, and the policy is looked at."""

from collections.abc import Iterable, Iterator

from overlane.core.units import MS, SECOND
from overlane.items.plans import DomainPlan
from overlane.items.policy import ItemPolicy
from overlane.network.schema import Item, Placement
from overlane.sim.items.domain import SimulatedDomain
from overlane.sim.random_streams import stream

SETTLED_WITHIN = 40
FOLLOWED_WITHIN = 40
"""Steps."""
STEP = 250 * MS


def policies_followed(plan: DomainPlan, states: Iterable[frozenset[str]]) -> Iterator[ItemPolicy | None]:
    """Of each state, the policy that all remaining agents follow after these brokers have been killed at once; None if
    they have come to none. `plan`: with its case base."""
    items = [Item(name=item.name, topics=(f"{item.name}/#",), critical=item.critical) for item in plan.items]
    for missing in states:
        domain = SimulatedDomain(
            stream(0, "states"), sorted(plan.names()), items, Placement(), plan.brokers[0].capacity
        )
        first = min(domain.brokers)
        domain.run(3 * SECOND)
        domain.brokers[first].agent.offer(plan, domain.engine.now)
        if _agreed(domain, plan, frozenset(), SETTLED_WITHIN) is None:
            yield None
            continue
        for name in sorted(missing):
            domain.brokers[name].kill()
        yield _agreed(domain, plan, missing, FOLLOWED_WITHIN)


def _agreed(domain: SimulatedDomain, plan: DomainPlan, missing: frozenset[str], steps: int) -> ItemPolicy | None:
    for _ in range(steps):
        domain.run(STEP)
        found = [one.agent.policy for one in domain.running]
        policy = found[0]
        is_wanted = policy is not None and policy.missing == missing and policy.plan == plan.version
        if policy is not None and is_wanted and not policy.is_rough and all(one == policy for one in found):
            return policy
    return None
