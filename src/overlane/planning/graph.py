"""The dissemination subgraph: one source, several destinations, one route for all of them.

Every destination gets its own best set of paths within the deadline; the route is the union of them all. A broker on it
forwards a parcel to all its next hops and drops duplicates, so a link that many destinations share carries the parcel
once.

The values for a destination refer to its own paths alone. The union may contain further paths to it, so a message may
arrive earlier and with a higher probability than computed, never later or with a lower one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from overlane.planning.network import Network
from overlane.planning.paths import multipath
from overlane.planning.problem import BadProblem
from overlane.planning.resiliency import WORK_MAX, PathSet


@dataclass(frozen=True, slots=True)
class Dissemination:
    """Directed links from a source to its destinations, and the best set of paths to each one that can be reached."""

    source: int
    reached: dict[int, PathSet]
    """In ascending order of destination."""
    unreached: tuple[int, ...]
    """Destinations without a path within the deadline."""

    @property
    def links(self) -> list[tuple[int, int]]:
        """Every link of the route once in each direction used, as (from, to), ascending."""
        paths = (path for best in self.reached.values() for path in best.paths)
        return sorted({link for path in paths for link in pairwise(path.brokers)})

    @property
    def exact(self) -> bool:
        """Whether no destination has a better set."""
        return all(best.exact for best in self.reached.values())

    def latency_ns(self, destination: int) -> int:
        """How long the quickest of the destination's own paths takes."""
        return self.reached[destination].paths[0].latency_ns


def disseminate(
    network: Network,
    source: int,
    destinations: Sequence[int],
    deadline_ns: int | None,
    n: int,
    k: int,
    work_max: int = WORK_MAX,
) -> Dissemination:
    """The route from `source` to all `destinations`: for each the best `n` of the `k` quickest paths in time."""
    if not destinations:
        raise BadProblem("destinations", "none", "at least one broker")
    if len(set(destinations)) < len(destinations):
        twice = next(one for one, other in pairwise(sorted(destinations)) if one == other)
        raise BadProblem("destinations", f"{network.names[twice]!r} twice", "every broker once")
    if source in destinations:
        raise BadProblem("destinations", repr(network.names[source]), "brokers other than the source")
    best = {
        destination: multipath(network, source, destination, deadline_ns, n, k, work_max)
        for destination in sorted(destinations)
    }
    return Dissemination(
        source,
        {destination: found for destination, found in best.items() if found.paths},
        tuple(destination for destination, found in best.items() if not found.paths),
    )
