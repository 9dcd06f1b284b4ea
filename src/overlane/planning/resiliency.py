"""Resiliency: the probability that a message arrives on at least one of several paths.

A path is up while every broker and every link on it is up, both ends included. Elements fail independently, but paths
share elements, so the probability that some path of a set Q is up is computed by inclusion and exclusion, each shared
element counted once:

    Pr(Q) = sum over non-empty subsets I of Q of (-1)^(|I|+1) * product of (1 - p) over the union of I's elements

Probabilities are fixed-point integers (`ONE` is certainty), so the alternating sum cancels without loss and is
identical on every machine. A product is always taken over elements in ascending failure; it then depends only on the
failures in it, and equal sets tie exactly.

The best set is found by branch and cut. Adding a path never lowers resiliency, and adds less the more paths there are
already, so the present gain of each candidate gives a bound of what several could add later:

- no more than the sum of their gains, and
- no more than if they failed independently of the rest, since shared elements only make joint failure likelier
  (Harris's inequality).

Branches whose bound is below the best set found are cut; the rest is searched completely, so the answer is exact,
unless `work_max` stops it first. Among sets of equal resiliency the one with the least total latency wins, then the one
with the fewest paths, then the first in the order of paths.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from heapq import nlargest
from itertools import groupby, pairwise
from operator import and_, itemgetter

from overlane.planning.network import Network
from overlane.planning.problem import BadProblem
from overlane.planning.shortest import Path

ONE_BITS = 90
ONE = 1 << ONE_BITS
PATHS_MAX = 10
"""Most paths in a set: the sum has up to 2**PATHS_MAX terms."""
WORK_MAX = 1_000_000
"""Terms evaluated before a search settles for the best set so far: a second or a few."""

_SLACK = 1 << 20  # more than truncation can add up to: 2**PATHS_MAX terms, a unit for each of a product's elements

Mask = int
"""A set of elements, one bit each, ascending in failure."""
Terms = dict[Mask, int]
"""Of the sum over subsets: union of elements -> how often it is added, less how often it is taken off."""


@dataclass(frozen=True, slots=True)
class PathSet:
    """Paths to use together, quickest first, and what they are worth; `exact` when no better set exists."""

    paths: tuple[Path, ...]
    resiliency: float
    exact: bool


def resiliency(paths: Iterable[Path], network: Network) -> float:
    """The probability that at least one of the paths is up."""
    elements = _Elements(network, list(paths))
    if len(elements.masks) > 2 * PATHS_MAX:
        raise BadProblem("paths", f"{len(elements.masks)} paths", f"at most {2 * PATHS_MAX}")
    terms: Terms = {}
    for mask in elements.masks:
        terms = _with(terms, mask)
    return max(0, sum(sign * elements.up(mask) for mask, sign in terms.items())) / ONE


def best_set(network: Network, candidates: Iterable[Path], n: int, work_max: int = WORK_MAX) -> PathSet:
    """The most resilient set of 1 to `n` of the candidates; no paths when there are no candidates."""
    if not 1 <= n <= PATHS_MAX:
        raise BadProblem("paths", str(n), f"1 to {PATHS_MAX}")
    ordered = sorted(candidates, key=lambda path: (path.latency_ns, len(path.brokers), path.brokers))
    if not ordered:
        return PathSet((), 0.0, exact=True)
    search = _Search(network, ordered, n, work_max)
    chosen = tuple(search.paths[at] for at in search.best) or (ordered[0],)
    return PathSet(chosen, resiliency(chosen, network), search.exact)


class _Elements:
    """The elements of some paths that may fail, and every path that may be up as a mask over them."""

    def __init__(self, network: Network, paths: Sequence[Path]) -> None:
        parts = [_failures(network, path) for path in paths]
        alive = [(path, part) for path, part in zip(paths, parts, strict=True) if 1.0 not in part.values()]
        ordered = sorted({(failure, ends) for _, part in alive for ends, failure in part.items()})
        bit = {ends: 1 << at for at, (_, ends) in enumerate(ordered)}
        self.paths = [path for path, _ in alive]
        self.masks: list[Mask] = [sum(bit[ends] for ends in part) for _, part in alive]
        by_failure = groupby(ordered, key=itemgetter(0))
        self._alike = [_powers(failure, [bit[ends] for _, ends in same]) for failure, same in by_failure]
        self._up: dict[Mask, int] = {}

    def up(self, mask: Mask) -> int:
        """The probability that all of these elements are up."""
        known = self._up.get(mask)
        if known is not None:
            return known
        product = ONE
        for alike, powers in self._alike:
            if here := mask & alike:
                product = product * powers[here.bit_count()] >> ONE_BITS
        self._up[mask] = product
        return product


def _powers(failure: float, bits: list[Mask]) -> tuple[Mask, list[int]]:
    """Elements that fail alike, and the probability that none, one, two ... of them are all up."""
    up = ONE - int(failure * ONE)  # ONE is a power of two: exact
    powers = [ONE]
    for _ in bits:
        powers.append(powers[-1] * up >> ONE_BITS)
    return sum(bits), powers


def _failures(network: Network, path: Path) -> dict[tuple[int, int], float]:
    """What may fail on a path, a broker as (b, b) and a link as (smaller, larger), with its probability."""
    brokers = path.brokers
    failures = {(broker, broker): network.broker_failure[broker] for broker in brokers}
    for one, other in pairwise(brokers):
        ends = (one, other) if one < other else (other, one)
        failures[ends] = network.link_failure[ends]
    return {ends: failure for ends, failure in failures.items() if failure > 0.0}


def _with(terms: Terms, mask: Mask) -> Terms:
    """The terms after one more path."""
    more = dict(terms)
    more[mask] = more.get(mask, 0) + 1
    for union, sign in terms.items():
        both = union | mask
        more[both] = more.get(both, 0) - sign
    return {union: sign for union, sign in more.items() if sign}


class _Search:
    """Branch and cut over the paths that can be up and are not made needless by a quicker one.

    What all of them share (both ends, at least) scales every set alike, so it is left out: the bounds get tighter.
    """

    def __init__(self, network: Network, paths: Sequence[Path], n: int, work_max: int) -> None:
        self._elements = _Elements(network, paths)
        self.paths = self._elements.paths
        shared = reduce(and_, self._elements.masks, -1)
        self._masks = [mask & ~shared for mask in self._elements.masks]
        self._single = [self._elements.up(mask) for mask in self._masks]
        self._work_left = work_max
        self._best_key: tuple[int, int, int, tuple[int, ...]] = (0, 0, 0, ())
        self.exact = True
        self._extend((), {}, 0, 0, self._needed(), n)

    @property
    def best(self) -> tuple[int, ...]:
        return self._best_key[-1]

    def _needed(self) -> list[int]:
        """Without paths that contain, among what may fail, all of a quicker path: they are never up without it."""
        needed: list[int] = []
        for at, mask in enumerate(self._masks):
            if not any(self._masks[other] & ~mask == 0 for other in needed):
                needed.append(at)
        return needed

    def _extend(
        self, chosen: tuple[int, ...], terms: Terms, up: int, latency_ns: int, more: list[int], room: int
    ) -> None:
        """Weigh the chosen paths together with each one of `more`, then with several, up to `room`."""
        gains: list[tuple[int, int]] = []
        for at in more:
            if self._work_left <= 0 and self.best:
                self.exact = False
                return
            self._work_left -= 1 + len(terms)
            gain = self._gain(terms, at)
            if gain > 0:
                gains.append((gain, at))
                self._offer((*chosen, at), up + gain, latency_ns + self.paths[at].latency_ns)
        if room == 1:
            return
        gains.sort(key=lambda entry: (-entry[0], entry[1]))
        for rank, (gain, at) in enumerate(gains[:-1], start=1):
            if self._bound(up + gain, gains[rank:], room - 1) + _SLACK < -self._best_key[0]:
                break  # the later ones gain less, and have less to go with
            rest = [other for _, other in gains[rank:]]
            taken = (*chosen, at)
            self._extend(
                taken, _with(terms, self._masks[at]), up + gain, latency_ns + self.paths[at].latency_ns, rest, room - 1
            )

    def _gain(self, terms: Terms, at: int) -> int:
        """The probability that this path is up and none of those in `terms` is."""
        mask, up = self._masks[at], self._elements.up
        return self._single[at] - sum(sign * up(union | mask) for union, sign in terms.items())

    def _bound(self, up: int, rest: list[tuple[int, int]], room: int) -> int:
        """No set of resiliency `up` gets above this by `room` more of the paths in `rest`, given with their gains."""
        by_gains = up + sum(gain for gain, _ in rest[:room])
        down = ONE - up
        for single in nlargest(room, (self._single[at] for _, at in rest)):
            down = down * (ONE - single) >> ONE_BITS
        return min(by_gains, ONE - down)

    def _offer(self, chosen: tuple[int, ...], up: int, latency_ns: int) -> None:
        if up >= -self._best_key[0]:
            key = (-up, latency_ns, len(chosen), tuple(sorted(chosen)))
            if key < self._best_key:
                self._best_key = key
