"""The leader's decisions: the routing broker of each bundle, and the number of routing brokers. Pure.

  - Every bundle has a routing broker, also unused ones: a new topic needs no decision, and works while ZooKeeper is
    down. Unused bundles are distributed evenly whenever a broker is added.
  - A routing broker counts as failed when its ephemeral node is removed, or when more than half of the edges that
    should be linked with it cannot reach it. Then its bundles move at once, without waiting for the expiry of its
    session. It gets no bundle for a minute, unless it registers again. Moving the bundles of a running broker does no
    harm.
  - Every bundle has a standby too (`standbys`), which gets it when its broker fails.
  - While no other broker could take them, bundles stay where they are.
  - Loads are levelled in rounds (`rebalancing`); a broker that is leaving is drained first.

The same data gives the same decisions at every leader.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

import msgspec

from overlane.coordination.assignment.elasticity import Bounds, Elasticity
from overlane.coordination.assignment.latencies import Latencies
from overlane.coordination.assignment.load_outlook import LoadOutlook
from overlane.coordination.assignment.placement import Bundle, RoutingBroker, Strategy, Tier, place, place_all
from overlane.coordination.assignment.rebalancing import Rebalancer
from overlane.coordination.assignment.standbys import choose_standbys
from overlane.coordination.records import Assigned, BrokerRecord, ReportRecord, WantedRecord
from overlane.coordination.uses import Uses
from overlane.core.bundles import ALL
from overlane.core.units import MS, NEVER, SECOND, Nanos

ROUND_EVERY: Nanos = 10 * SECOND
DRAIN_EVERY: Nanos = 200 * MS
DISTRUST: Nanos = 60 * SECOND
BUNDLE_LOAD_MIN = 0.001
"""What a bundle counts at least, so that those without traffic are spread as well."""
SPREAD_MAX = 2
"""How many more bundles than another a broker may have before those that nobody uses are spread anew."""

UNUSED = "assigned before its first use"
IDLE = {bundle: Bundle(bundle, BUNDLE_LOAD_MIN) for bundle in sorted(ALL)}
"""Bundles that nobody uses, most of all in many overlays: made once."""


@dataclass(frozen=True, slots=True)
class AssignmentPolicy:
    """The table [routing]."""

    strategy: Strategy
    is_by_place: bool = False
    """Whether the strategy depends on who uses a bundle, so that it is placed anew when it is first used."""
    bounds: Bounds = field(default_factory=Bounds)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the leader has read."""

    members: Mapping[str, BrokerRecord]
    lives: Mapping[str, int]
    """When each routing broker has registered (czxid): another number is another life."""
    reports: Mapping[str, ReportRecord]
    uses: Uses
    """The bundles that the clients of each broker use."""
    suspects: Mapping[str, frozenset[str]]
    """By broker, which routing brokers it should be linked with and cannot reach."""
    assigned: Mapping[int, Assigned]
    wanted: WantedRecord | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    assigned: Mapping[int, Assigned] = field(default_factory=dict)
    """Only what changes."""
    wanted: WantedRecord | None = None
    """None: as before."""

    def __bool__(self) -> bool:
        return bool(self.assigned) or self.wanted is not None


def suspected(seen: Seen) -> frozenset[str]:
    """Routing brokers that more than half of the edges that should be linked with them cannot reach."""
    found = set()
    for name in {one for suspects in seen.suspects.values() for one in suspects}:
        carried = [bundle for bundle, one in seen.assigned.items() if name in (one.broker, one.standby)]
        users = (set[str]().union(*map(seen.uses.users, carried)) & seen.members.keys()) - {name}
        doubting = sum(name in seen.suspects.get(edge, ()) for edge in users)
        if 2 * doubting > len(users):
            found.add(name)
    return frozenset(found)


def _home(seen: Seen, bundle: int) -> str | None:
    return seen.assigned[bundle].broker if bundle in seen.assigned else None


def _is_leaving(seen: Seen, name: str) -> bool:
    return name in seen.reports and seen.reports[name].is_leaving


class Leader:
    def __init__(self, policy: AssignmentPolicy) -> None:
        self.policy = policy
        self._rebalancer = Rebalancer()
        self._elasticity = Elasticity(policy.bounds)
        self._count = 0
        """How many routing brokers there were when it decided last."""
        self._next_round: Nanos = 0
        self._next_drain: Nanos = NEVER
        self._distrusted: dict[str, tuple[int, Nanos]] = {}
        """By routing broker: the life in which it was not reached, and until when that counts."""
        self._bundles: Mapping[int, Bundle] = IDLE
        self._outlook: LoadOutlook | None = None

    def follow(self, policy: AssignmentPolicy) -> None:
        """Decide by this policy from now on."""
        if policy != self.policy:
            self.policy = policy
            self._elasticity = Elasticity(policy.bounds)
            self._next_round = 0

    def expect(self, outlook: LoadOutlook | None) -> None:
        """The load that a plan expects from now on; None: the present one."""
        self._outlook = outlook

    def next_deadline(self) -> Nanos:
        return min(self._next_round, self._next_drain, self._elasticity.next_deadline())

    def decide(self, seen: Seen, now: Nanos, unix_s: int) -> Decision:
        self._distrust(seen, now)
        tier = self._tier(seen, self._routing(seen))
        loads = tier.expected_loads()
        wanted = self._wanted(seen, list(loads.values()), now, unix_s)
        is_round = now >= self._next_round
        if is_round:
            self._next_round = now + ROUND_EVERY
        if not loads:
            return Decision(wanted=wanted)
        chosen = self._place(seen, tier)
        if not chosen:
            chosen = self._move(tier, now, is_round=is_round)
        return Decision(self._with_standbys(seen, tier, chosen, unix_s), wanted)

    # What is known

    def _distrust(self, seen: Seen, now: Nanos) -> None:
        for name in suspected(seen):
            self._distrusted[name] = (seen.lives.get(name, 0), now + DISTRUST)
        self._distrusted = {
            name: (life, until)
            for name, (life, until) in self._distrusted.items()
            if until > now and seen.lives.get(name) == life
        }

    def _routing(self, seen: Seen) -> dict[str, RoutingBroker]:
        found = {}
        for name, member in sorted(seen.members.items()):
            if member.role == "routing" and name not in self._distrusted:
                report = seen.reports.get(name, ReportRecord())
                found[name] = RoutingBroker(name, report.load, report.is_leaving)
        return found

    def _tier(self, seen: Seen, routing: dict[str, RoutingBroker]) -> Tier:
        if not routing:
            return Tier({}, {}, {})
        members = seen.members.keys()
        edges = {bundle: seen.uses.users(bundle) & members for bundle in sorted(seen.uses.bundles())}
        assigned = {bundle: one.broker for bundle, one in seen.assigned.items()}
        shares: dict[str, int] = dict.fromkeys(routing, 0)
        for bundle, users in edges.items():
            if (broker := assigned.get(bundle, "")) in shares:
                shares[broker] += len(users)
        loads = {name: broker.load / shares[name] for name, broker in routing.items() if shares[name]}
        bundles = dict(IDLE)
        for bundle, users in edges.items():
            if users:
                bundles[bundle] = self._bundle(bundle, loads.get(assigned.get(bundle, ""), 0.0) * len(users), users)
        self._bundles = bundles
        latencies = Latencies({edge: report.latency_us for edge, report in seen.reports.items()})
        return Tier(routing, bundles, assigned, latencies)

    def _bundle(self, bundle: int, share: float, users: Set[str]) -> Bundle:
        """The same value as before, if it is: most do not change from one decision to the next."""
        known, load = self._bundles[bundle], max(BUNDLE_LOAD_MIN, share)
        return known if known.load == load and known.edges == users else Bundle(bundle, load, 1, frozenset(users))

    # Bundles

    def _place(self, seen: Seen, tier: Tier) -> dict[int, tuple[str, str]]:
        """Bundles without a broker, and those that are used for the first time."""
        homeless = [known for bundle, known in tier.bundles.items() if tier.assigned.get(bundle) not in tier.brokers]
        if not homeless and not self.policy.is_by_place:
            return {}
        kept = {bundle: broker for bundle, broker in tier.assigned.items() if broker in tier.brokers}
        tier = Tier(tier.brokers, tier.bundles, kept, tier.latency_us)
        takers, standbys = tier.takers(), {bundle: one.standby for bundle, one in seen.assigned.items()}
        taken = {one.id: standbys[one.id] for one in homeless if standbys.get(one.id) in takers}
        tier = Tier(tier.brokers, tier.bundles, {**kept, **taken}, tier.latency_us)
        placed = taken | place_all([one for one in homeless if one.id not in taken], tier, self.policy.strategy)
        chosen = {bundle: (broker, self._why(seen, tier, bundle)) for bundle, broker in placed.items()}
        if self.policy.is_by_place:
            chosen |= self._first_used(seen, tier)
        return chosen

    def _with_standbys(
        self, seen: Seen, tier: Tier, chosen: Mapping[int, tuple[str, str]], unix_s: int
    ) -> dict[int, Assigned]:
        """What changes. Where a bundle leaves a broker that lives, that one stands by: it has been told everything."""
        homes = {**tier.assigned, **{bundle: broker for bundle, (broker, _) in chosen.items()}}
        takers = tier.takers()
        before = {bundle: one.standby for bundle, one in seen.assigned.items()}
        before |= {bundle: seen.assigned[bundle].broker for bundle in chosen if _home(seen, bundle) in takers}
        strategy = self.policy.strategy if self.policy.is_by_place else None
        unreached = [one for one in self._distrusted if one in seen.members and not _is_leaving(seen, one)]
        after = Tier(tier.brokers, tier.bundles, homes, tier.latency_us)
        standbys = choose_standbys(after, before, strategy, unreached)
        changed = {}
        for bundle in sorted(homes):
            standby = standbys.get(bundle, "")
            if bundle in chosen:
                broker, why = chosen[bundle]
                changed[bundle] = Assigned(broker, unix_s, why, standby)
            elif standby != seen.assigned[bundle].standby:
                changed[bundle] = msgspec.structs.replace(seen.assigned[bundle], standby=standby)
        return changed

    def _why(self, seen: Seen, tier: Tier, bundle: int) -> str:
        before = seen.assigned.get(bundle)
        if before is None:
            return "placed" if tier.bundles[bundle].edges else UNUSED
        is_there = before.broker in seen.members
        return f"{before.broker} cannot be reached" if is_there else f"{before.broker} is gone"

    def _first_used(self, seen: Seen, tier: Tier) -> dict[int, tuple[str, str]]:
        measured = {edge for edge, report in seen.reports.items() if report.latency_us}
        chosen = {}
        for bundle, one in seen.assigned.items():
            known = tier.bundles[bundle]
            if one.why != UNUSED or not known.edges or not known.edges <= measured or bundle not in tier.assigned:
                continue
            if (broker := place(known, tier, self.policy.strategy)) is not None:
                chosen[bundle] = (broker, "placed by its first use")
        return chosen

    def _move(self, tier: Tier, now: Nanos, *, is_round: bool) -> dict[int, tuple[str, str]]:
        is_draining = any(tier.brokers[name].is_leaving for name in tier.assigned.values())
        if is_round or (is_draining and now >= self._next_drain):
            moves = self._rebalancer.round(tier, self.policy.strategy, now)
            self._next_drain = now + DRAIN_EVERY if is_draining else NEVER
            if moves:
                return {move.bundle: (move.target, move.why) for move in moves}
        elif is_draining:
            self._next_drain = min(self._next_drain, now + DRAIN_EVERY)
        return self._spread(tier)

    def _spread(self, tier: Tier) -> dict[int, tuple[str, str]]:
        """Bundles that nobody uses go where there are fewest: nobody notices."""
        counts = dict.fromkeys(tier.takers(), 0)
        unused: dict[str, list[int]] = {name: [] for name in counts}
        for bundle, broker in sorted(tier.assigned.items()):
            if broker in counts:
                counts[broker] += 1
                if not tier.bundles[bundle].edges:
                    unused[broker].append(bundle)
        chosen: dict[int, tuple[str, str]] = {}
        while True:
            source = max((name for name in counts if unused[name]), key=lambda name: (counts[name], name), default=None)
            target = min(counts, key=lambda name: (counts[name], name))
            if source is None or counts[source] - counts[target] <= SPREAD_MAX:
                return chosen
            chosen[unused[source].pop()] = (target, UNUSED)
            counts[source] -= 1
            counts[target] += 1

    # How many

    def _wanted(self, seen: Seen, loads: list[float], now: Nanos, unix_s: int) -> WantedRecord | None:
        """The number stays until there is a reason for another: one that dies is to be started again."""
        low, high = self.policy.bounds.brokers_min, self.policy.bounds.brokers_max
        growth = 1.0 if self._outlook is None else self._outlook.growth(unix_s)
        target = self._elasticity.wanted(loads, now, growth)
        before = seen.wanted.routing if seen.wanted is not None else None
        if before is None:
            return WantedRecord(max(low, min(high, len(loads))), unix_s, "the brokers that are there")
        if not low <= before <= high:
            return WantedRecord(max(low, min(high, before)), unix_s, f"{low} to {high} are allowed")
        came, self._count = len(loads) > self._count > 0, len(loads)
        if came and before < len(loads) <= high:
            return WantedRecord(len(loads), unix_s, "the brokers that are there")
        mean = sum(loads) / len(loads) if loads else 0.0
        if target > max(before, len(loads)):
            soon = f", {growth:.1f} times as much is expected" if growth > 1 else ""
            return WantedRecord(target, unix_s, f"the mean load is {mean:.0%}{soon}")
        if target < len(loads) == before:
            return WantedRecord(target, unix_s, f"the mean load is {mean:.0%}")
        return None
