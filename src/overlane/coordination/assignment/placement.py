"""Placement: where a bundle goes that has no broker, because it is new or its broker is gone.

A strategy is a pure function of what the leader knows. Three are built in; `package.module:function` names another.
All keep to the bound of "bounded loads": while a broker is below 1.25 times the mean load it is a candidate, so no
strategy can heap everything onto one. Among equals the bundle's hash decides: leaders that know the same decide alike.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib import import_module

from overlane.coordination.assignment.latencies import Latencies
from overlane.errors import ConfigError, Fault

LOAD_BOUND = 1.25
"""How far above the mean a broker may be loaded and still get another bundle."""


@dataclass(frozen=True, slots=True)
class RoutingBroker:
    name: str
    load: float = 0.0
    """Of its capacity: 1 is all it can do. The greatest of processor, links and lag, averaged over time."""
    is_leaving: bool = False
    """It is being drained, and gets nothing more."""


@dataclass(frozen=True, slots=True)
class Bundle:
    id: int
    load: float = 0.0
    """What it takes of a broker's capacity."""
    topics: int = 0
    edges: frozenset[str] = frozenset()
    """The brokers whose clients publish or subscribe in it."""


@dataclass(frozen=True, slots=True)
class Tier:
    """What the leader knows of the routing tier."""

    brokers: Mapping[str, RoutingBroker]
    bundles: Mapping[int, Bundle]
    assigned: Mapping[int, str]
    latency_us: Latencies = field(default_factory=lambda: Latencies({}))
    """From an edge to a routing broker, where it has been measured."""

    def takers(self) -> list[str]:
        """Brokers that take bundles."""
        return [name for name, broker in self.brokers.items() if not broker.is_leaving]

    def planned_loads(self) -> dict[str, float]:
        """What the bundles of each broker take together."""
        planned = dict.fromkeys(self.brokers, 0.0)
        bundles = self.bundles
        for bundle, broker in self.assigned.items():
            if broker in planned and bundle in bundles:
                planned[broker] += bundles[bundle].load
        return planned

    def expected_loads(self) -> dict[str, float]:
        """By broker that takes bundles. At least what its bundles take: what was just assigned is not measured yet."""
        planned = self.planned_loads()
        return {name: max(self.brokers[name].load, planned[name]) for name in self.takers()}


Strategy = Callable[[Bundle, Tier, Mapping[str, float]], str]
"""Takes a bundle, the tier, and the loads of the brokers to choose from, of which there is at least one."""


def fewest_topics(bundle: Bundle, tier: Tier, loads: Mapping[str, float]) -> str:
    """`topics`: the broker with the fewest topics."""
    topics = dict.fromkeys(loads, 0)
    for one, broker in tier.assigned.items():
        if broker in topics:
            topics[broker] += tier.bundles[one].topics if one in tier.bundles else 1
    return fewest(bundle.id, {name: topics[name] for name in loads})


def least_loaded(bundle: Bundle, _tier: Tier, loads: Mapping[str, float]) -> str:
    """`least-loaded`: the broker with the least load."""
    return fewest(bundle.id, loads)


def lowest_latency(bundle: Bundle, tier: Tier, loads: Mapping[str, float]) -> str:
    """`latency`: where the longest path between two of its edges is shortest; the least loaded if none is known."""

    def longest_us(name: str) -> int | None:
        measured = tier.latency_us.to(name)
        if not bundle.edges or not bundle.edges <= measured.keys():
            return None
        ways = [measured[edge] for edge in bundle.edges]
        longest = max(ways)
        ways.remove(longest)
        return longest + max(ways, default=0)

    known = {name: us for name in loads if (us := longest_us(name)) is not None}
    if not known:
        return least_loaded(bundle, tier, loads)
    return min(known, key=lambda name: (known[name], loads[name], tie(bundle.id, name)))


STRATEGIES: dict[str, Strategy] = {"topics": fewest_topics, "least-loaded": least_loaded, "latency": lowest_latency}


def strategy_named(name: str) -> Strategy:
    """One that is built in, or `package.module:function`. ConfigError."""
    if name in STRATEGIES:
        return STRATEGIES[name]
    module, _, function = name.partition(":")
    try:
        found = getattr(import_module(module), function) if function else None
    except (ImportError, AttributeError, ValueError):
        found = None
    if not callable(found):
        allowed = f"{', '.join(STRATEGIES)}, or package.module:function that can be imported"
        raise ConfigError([Fault("routing", 0, "strategy", name, allowed)])
    return found  # type: ignore[no-any-return]


def place(bundle: Bundle, tier: Tier, strategy: Strategy) -> str | None:
    """The broker for a bundle; None if there is none."""
    return choose(bundle, tier, strategy, tier.expected_loads())


def choose(bundle: Bundle, tier: Tier, strategy: Strategy, loads: dict[str, float]) -> str | None:
    """One of those with these loads. A strategy of the user's that fails, or names no candidate, is replaced by the
    least load: topics must not be without a broker."""
    if not loads:
        return None
    bound = LOAD_BOUND * sum(loads.values()) / len(loads)
    candidates = {name: load for name, load in loads.items() if load <= bound} or loads
    try:
        chosen = strategy(bundle, tier, candidates)
    except Exception:
        chosen = ""
    return chosen if chosen in candidates else least_loaded(bundle, tier, candidates)


def place_all(unassigned: list[Bundle], tier: Tier, strategy: Strategy) -> dict[int, str]:
    """The heaviest first."""
    return place_in_turn(sorted(unassigned, key=lambda one: (-one.load, one.id)), tier, strategy)


def place_in_turn(bundles: list[Bundle], tier: Tier, strategy: Strategy) -> dict[int, str]:
    """Each with those before it in place. Those that have a broker leave it."""
    placed: dict[int, str] = {}
    assigned, planned, loads = dict(tier.assigned), tier.planned_loads(), tier.expected_loads()
    known = {**tier.bundles, **{bundle.id: bundle for bundle in bundles}}
    now = Tier(tier.brokers, known, assigned, tier.latency_us)
    for bundle in bundles:
        if (chosen := choose(bundle, now, strategy, loads)) is None:
            continue
        former = assigned.get(bundle.id)
        placed[bundle.id] = assigned[bundle.id] = chosen
        for name, share in ((former, -bundle.load), (chosen, bundle.load)):
            if name in planned:
                planned[name] += share
                if name in loads:
                    loads[name] = max(tier.brokers[name].load, planned[name])
    return placed


def fewest(bundle: int, counts: Mapping[str, float]) -> str:
    """The broker with the least of something. Among equals the bundle's hash decides."""
    least = min(counts.values())
    equal = [name for name, count in counts.items() if count == least]
    return equal[0] if len(equal) == 1 else min(equal, key=lambda name: tie(bundle, name))


def tie(bundle: int, name: str) -> bytes:
    """Orders brokers that are equal otherwise, by each bundle in another way."""
    return blake2b(f"{bundle} {name}".encode(), digest_size=8).digest()
