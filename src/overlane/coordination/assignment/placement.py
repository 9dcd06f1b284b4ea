"""Placement: where a bundle goes that has no broker, because it is new or its broker is gone.

A strategy is a pure function of what the leader knows. Three are built in; `package.module:function` names another.
All keep to the bound of "bounded loads": while a broker is below 1.25 times the mean load it is a candidate, so no
strategy can heap everything onto one. Among equals the bundle's hash decides: leaders that know the same decide alike.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib import import_module

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
    latency_us: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """From an edge to a routing broker, where it has been measured."""

    def expected_loads(self) -> dict[str, float]:
        """By broker that takes bundles. At least what its bundles take: what was just assigned is not measured yet."""
        planned = dict.fromkeys(self.brokers, 0.0)
        for bundle, broker in self.assigned.items():
            if broker in planned and bundle in self.bundles:
                planned[broker] += self.bundles[bundle].load
        return {name: max(broker.load, planned[name]) for name, broker in self.brokers.items() if not broker.is_leaving}


Strategy = Callable[[Bundle, Tier, Mapping[str, float]], str]
"""Takes a bundle, the tier, and the loads of the brokers to choose from, of which there is at least one."""


def fewest_topics(bundle: Bundle, tier: Tier, loads: Mapping[str, float]) -> str:
    """`topics`: the broker with the fewest topics."""
    topics = dict.fromkeys(loads, 0)
    for one, broker in tier.assigned.items():
        if broker in topics:
            topics[broker] += tier.bundles[one].topics if one in tier.bundles else 1
    return min(loads, key=lambda name: (topics[name], tie(bundle.id, name)))


def least_loaded(bundle: Bundle, _tier: Tier, loads: Mapping[str, float]) -> str:
    """`least-loaded`: the broker with the least load."""
    return min(loads, key=lambda name: (loads[name], tie(bundle.id, name)))


def lowest_latency(bundle: Bundle, tier: Tier, loads: Mapping[str, float]) -> str:
    """`latency`: where the longest path between two of its edges is shortest; the least loaded if none is known."""

    def longest_us(name: str) -> int | None:
        ways = sorted(tier.latency_us[edge, name] for edge in bundle.edges if (edge, name) in tier.latency_us)
        return sum(ways[-2:]) if len(ways) == len(bundle.edges) and ways else None

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
    """The broker for a bundle; None if there is none. A strategy of the user's that fails, or names no candidate, is
    replaced by the least load: topics must not be without a broker."""
    loads = tier.expected_loads()
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
    """The heaviest first, each with those before it in place."""
    placed: dict[int, str] = {}
    bundles = {**tier.bundles, **{bundle.id: bundle for bundle in unassigned}}
    for bundle in sorted(unassigned, key=lambda one: (-one.load, one.id)):
        now = Tier(tier.brokers, bundles, {**tier.assigned, **placed}, tier.latency_us)
        if (broker := place(bundle, now, strategy)) is not None:
            placed[bundle.id] = broker
    return placed


def tie(bundle: int, name: str) -> bytes:
    """Orders brokers that are equal otherwise, by each bundle in another way."""
    return blake2b(f"{bundle} {name}".encode(), digest_size=8).digest()
