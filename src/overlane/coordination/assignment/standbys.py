"""Standbys: for every bundle a second routing broker, which carries it next if its carrier fails.

Edges are linked with both, and send both their filters, so messages do not wait for a decision of the leader when a
broker fails: paths over the standby are already known. The leader then makes the standby the carrier, and chooses
another one.

  - A standby is not the carrier of the same bundle, and can accept bundles: it is reachable, and is not leaving. If
    there is no such broker, one that was not reachable recently is better than none: edges find out whether it is
    reachable again.
  - It changes as rarely as possible: another one would first have to receive all filters.
  - The bundles of one broker have standbys all over the tier, so that no single broker gets all of them.
"""

from collections import Counter
from collections.abc import Collection, Mapping

from overlane.coordination.assignment.placement import Strategy, Tier, choose, fewest

SPREAD_MAX = 2
"""How many more bundles than another a broker may stand by for before some are given to that one."""


def choose_standbys(
    tier: Tier, before: Mapping[int, str], strategy: Strategy | None = None, last_resort: Collection[str] = ()
) -> dict[int, str]:
    """The standby of each bundle that is assigned; none where there is no other broker. `strategy`: where bundles
    belong to places, the standby is the second best. `last_resort`: brokers that were not reached lately."""
    takers = sorted(tier.takers())
    if len(takers) < 2:
        takers, strategy = sorted({*takers, *last_resort}), None
    possible = frozenset(takers)
    loads = {} if strategy is None else tier.expected_loads()
    found = {
        bundle: standby
        for bundle, carrier in sorted(tier.assigned.items())
        if (standby := before.get(bundle, "")) in possible and standby != carrier
    }
    used = {bundle for bundle, known in tier.bundles.items() if known.edges and bundle in tier.assigned}
    duties = {**dict.fromkeys(takers, 0), **Counter(found.values())}
    used_duties = {**dict.fromkeys(takers, 0), **Counter(found[bundle] for bundle in used if bundle in found)}
    for bundle in sorted(tier.assigned.keys() - found.keys(), key=lambda one: (one not in used, one)):
        others = [name for name in takers if name != tier.assigned[bundle]]
        if not others:
            continue
        if strategy is not None and bundle in tier.bundles:
            chosen = choose(tier.bundles[bundle], tier, strategy, {name: loads[name] for name in others}) or others[0]
        else:
            counts = used_duties if bundle in used else duties
            least = min(counts[name] for name in others)
            chosen = fewest(bundle, {name: duties[name] for name in others if counts[name] == least})
        found[bundle] = chosen
        duties[chosen] += 1
        used_duties[chosen] += bundle in used
    if strategy is None:
        _spread(tier.assigned, found, duties, used)
    return found


def _spread(carriers: Mapping[int, str], found: dict[int, str], duties: dict[str, int], used: set[int]) -> None:
    """Give some to a broker that has come, those that nobody uses first."""
    while len(duties) > 1:
        source = max(duties, key=lambda name: (duties[name], name))
        target = min(duties, key=lambda name: (duties[name], name))
        movable = [bundle for bundle, name in found.items() if name == source and carriers[bundle] != target]
        if duties[source] - duties[target] <= SPREAD_MAX or not movable:
            return
        found[min(movable, key=lambda bundle: (bundle in used, bundle))] = target
        duties[source] -= 1
        duties[target] += 1
