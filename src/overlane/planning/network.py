"""The network map for the path solvers: small integers, no floats in any sum.

Brokers are numbered in the order of their names, so "the smaller index" and "the earlier name" are the same rule, and
all brokers with the same map break every tie the same way. Latencies are whole nanoseconds: their sums are exact, do
not depend on the order of addition, and are identical on every machine.

A link joins two brokers. Its two directions may have different latencies, and either may be closed; it fails as a
whole, so two paths that use it in opposite directions share one element.

Costs. A step over a link to a broker takes the link's latency and that broker's processing. The solvers also need steps
that are never free; otherwise a cycle of zero latency would look as short as no cycle. So a cost is one integer,
`latency_ns << HOP_BITS | hops`: least latency first, then fewest hops.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from overlane.planning.problem import BadProblem

HOP_BITS = 16
BROKERS_MAX = 1 << HOP_BITS
LATENCY_NS_MAX = 1 << 62

Steps = tuple[tuple[int, int], ...]
"""From one broker: (neighbour, cost), neighbours in ascending order."""


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A broker: how long a message stays in it, and how probable it is to be down."""

    name: str
    processing_ns: int = 0
    failure: float = 0.0


@dataclass(frozen=True, slots=True)
class Link:
    """A link: latency from its first end to its second and back (None: closed in that direction)."""

    ends: tuple[str, str]
    forth_ns: int | None
    back_ns: int | None
    failure: float = 0.0


def both_ways(one: str, other: str, latency_ns: int, failure: float = 0.0) -> Link:
    """A link as fast in one direction as in the other."""
    return Link((one, other), latency_ns, latency_ns, failure)


@dataclass(frozen=True, slots=True)
class Network:
    """An immutable map. Solvers speak in broker indices; `index` and `named` translate at the border."""

    names: tuple[str, ...]
    processing_ns: tuple[int, ...]
    broker_failure: tuple[float, ...]
    link_failure: dict[tuple[int, int], float]
    """By (smaller index, larger index)."""
    steps: tuple[Steps, ...]
    """Where one can go from each broker, at what cost."""
    steps_back: tuple[Steps, ...]
    """From where one can come to each broker, at what cost."""
    _index: dict[str, int] = field(repr=False, compare=False)

    @classmethod
    def build(cls, brokers: Iterable[BrokerNode], links: Iterable[Link]) -> "Network":
        """The map of these brokers and links, in any order; `BadProblem` names what contradicts itself."""
        ordered = sorted(brokers, key=lambda broker: broker.name)
        index = {broker.name: at for at, broker in enumerate(ordered)}
        _check_brokers(ordered, index)
        forth: list[list[tuple[int, int]]] = [[] for _ in ordered]
        back: list[list[tuple[int, int]]] = [[] for _ in ordered]
        failure: dict[tuple[int, int], float] = {}
        for number, link in enumerate(links):
            one, other = _check_ends(number, link, index, failure)
            failure[min(one, other), max(one, other)] = _probability(f"links[{number}].failure", link.failure)
            for start, end, latency_ns in ((one, other, link.forth_ns), (other, one, link.back_ns)):
                if latency_ns is not None:
                    _check_latency(f"links[{number}].latency_ns", latency_ns)
                    cost = (latency_ns + ordered[end].processing_ns << HOP_BITS) + 1
                    forth[start].append((end, cost))
                    back[end].append((start, cost))
        return cls(
            names=tuple(broker.name for broker in ordered),
            processing_ns=tuple(broker.processing_ns for broker in ordered),
            broker_failure=tuple(broker.failure for broker in ordered),
            link_failure=failure,
            steps=tuple(tuple(sorted(steps)) for steps in forth),
            steps_back=tuple(tuple(sorted(steps)) for steps in back),
            _index=index,
        )

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: str) -> bool:
        return name in self._index

    def index(self, name: str, field_name: str = "broker") -> int:
        """The index of a broker; an unknown name is the fault of `field_name`."""
        try:
            return self._index[name]
        except KeyError:
            raise BadProblem(field_name, repr(name), "the name of a broker") from None

    def named(self, brokers: Iterable[int]) -> list[str]:
        """The names of these brokers, in their order."""
        return [self.names[broker] for broker in brokers]

    def latency_ns(self, brokers: Sequence[int]) -> int:
        """Delay of a path: its links and the processing of every broker on it, both ends included."""
        cost = self.processing_ns[brokers[0]] << HOP_BITS
        for start, end in pairwise(brokers):
            cost += next(step for neighbour, step in self.steps[start] if neighbour == end)
        return cost >> HOP_BITS


def _check_brokers(ordered: Sequence[BrokerNode], index: dict[str, int]) -> None:
    if len(index) < len(ordered):
        twice = next(one.name for one, other in pairwise(ordered) if one.name == other.name)
        raise BadProblem("brokers", f"{twice!r} twice", "every broker once")
    if len(ordered) > BROKERS_MAX:
        raise BadProblem("brokers", f"{len(ordered)} brokers", f"at most {BROKERS_MAX}")
    for broker in ordered:
        _check_latency(f"brokers.{broker.name}.processing_ns", broker.processing_ns)
        _probability(f"brokers.{broker.name}.failure", broker.failure)


def _check_ends(number: int, link: Link, index: dict[str, int], known: dict[tuple[int, int], float]) -> tuple[int, int]:
    ends = [index.get(name) for name in link.ends]
    for name, end in zip(link.ends, ends, strict=True):
        if end is None:
            raise BadProblem(f"links[{number}].ends", repr(name), "the name of a broker")
    one, other = (end for end in ends if end is not None)
    if one == other:
        raise BadProblem(f"links[{number}].ends", f"{link.ends[0]!r} twice", "two different brokers")
    if (min(one, other), max(one, other)) in known:
        raise BadProblem(f"links[{number}].ends", f"a second link of {link.ends[0]!r} and {link.ends[1]!r}", "one")
    return one, other


def _check_latency(field_name: str, latency_ns: int) -> None:
    if not 0 <= latency_ns <= LATENCY_NS_MAX:
        raise BadProblem(field_name, f"{latency_ns} ns", f"0 to {LATENCY_NS_MAX} ns")


def _probability(field_name: str, failure: float) -> float:
    if not 0.0 <= failure <= 1.0:
        raise BadProblem(field_name, repr(failure), "a probability from 0 to 1")
    return failure
