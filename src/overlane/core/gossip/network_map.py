"""Network map: what follows from all adverts together, at one moment.

A link counts while both ends claim it and neither says that it failed. The map answers in the terms of the path solver,
with or without suspect links, and as a QoS class sees it (brokers keep some classes longer than others). A map is
immutable: a changed advert makes a new one, of which only what is asked for is computed.
"""

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import lru_cache

from msgspec import structs

from overlane.core.links.link_health import LinkState
from overlane.core.units import NEVER, US, Nanos
from overlane.core.wire.control_messages import Advert, ControlMessage, LinkClaim, decode, encode
from overlane.core.wire.message_fields import BROKERS_MAX, LIFETIME_S
from overlane.planning import paths
from overlane.planning.network import HOP_BITS

MILLION = 1_000_000
MAPS_KEPT = 64


def matter_of(advert: Advert) -> bytes:
    """What of an advert the map depends on: all but its number and how long it counts."""
    return encode(structs.replace(advert, incarnation=0, sequence=0, instance=0, lifetime_s=LIFETIME_S))


@lru_cache(MAPS_KEPT)
def draw(matters: tuple[bytes, ...]) -> "NetworkMap":
    """The map of these adverts, in the order of their brokers. A pure function: who knows the same has the same map."""
    adverts = map(_read, matters)
    return NetworkMap(advert for advert in adverts if isinstance(advert, Advert))


@lru_cache(BROKERS_MAX)
def _read(matter: bytes) -> ControlMessage:
    """Maps share the adverts that they have in common."""
    return decode(memoryview(matter))


class NetworkMap:
    def __init__(self, adverts: Iterable[Advert]) -> None:
        present = {advert.broker: advert for advert in adverts if not advert.left}
        claims = {(name, link.peer): link for name, advert in present.items() for link in advert.links}
        self._adverts = present
        self.claims: dict[tuple[str, str], LinkClaim] = {}
        """Every link that counts, in each direction."""
        self.suspects: set[tuple[str, str]] = set()
        for (one, other), claim in claims.items():
            back = claims.get((other, one))
            worst = LinkState.FAILED if back is None else max(claim.state, back.state)
            if worst != LinkState.FAILED:
                self.claims[one, other] = claim
                if worst == LinkState.SUSPECT:
                    self.suspects.add((one, other))
        self._labels = {label for advert in present.values() for label in advert.processing_us}
        self._networks: dict[tuple[bool, str], paths.Network] = {}
        self._trees: dict[tuple[str, bool, str], paths.Tree | None] = {}
        self._before: NetworkMap | None = None
        self._changes: dict[tuple[bool, str], list[paths.Change] | None] = {}
        """How networks differ from those of the map before."""

    def follow(self, before: "NetworkMap") -> None:
        """Use trees of the map before this one where they still hold: most changes concern few paths."""
        if before is not self and self._before is None:
            self._before, self._changes, before._before = before, {}, None

    def brokers(self) -> Iterable[str]:
        return self._adverts.keys()

    def processing_ns(self, broker: str, label: str) -> Nanos:
        """How long a message of this class stays in a broker, by its own measurement."""
        advert = self._adverts.get(broker)
        return 0 if advert is None else advert.processing_us.get(label, 0) * US

    def failure(self, link: tuple[str, str]) -> float:
        """How likely a link is down by its history, as its ends say; the more cautious of them counts."""
        risks = [claim.risk_millionths for ends in (link, link[::-1]) if (claim := self.claims.get(ends)) is not None]
        return max(risks, default=0) / MILLION

    def broker_failure(self, broker: str) -> float:
        """How likely a broker is down by its history."""
        advert = self._adverts.get(broker)
        return 0.0 if advert is None else advert.failure_millionths / MILLION

    def slowed(self, extra_us: Mapping[tuple[str, str], int]) -> "NetworkMap":
        """The same map with links that take so much longer than their ends claim."""
        if not extra_us:
            return self
        found = copy(self)
        found.claims = {
            link: structs.replace(claim, latency_us=claim.latency_us + extra_us[link]) if link in extra_us else claim
            for link, claim in self.claims.items()
        }
        found._networks, found._trees, found._before = {}, {}, None
        return found

    def restricted(self, allows: Callable[[str, str], bool], *, is_encrypted: bool) -> "NetworkMap":
        """The same map with some of its links only. Encrypted is a link that both ends claim to be."""
        found, claims = copy(self), self.claims
        found.claims = {
            (one, other): claim
            for (one, other), claim in claims.items()
            if allows(one, other) and (not is_encrypted or (claim.encrypted and claims[other, one].encrypted))
        }
        found.suspects = self.suspects & found.claims.keys()
        found._networks, found._trees, found._before = {}, {}, None
        return found

    def network(self, suspects: bool, label: str = "") -> paths.Network:
        """The map as the path solver wants it."""
        key = suspects or not self.suspects, label if label in self._labels else ""
        found = self._networks.get(key)
        if found is None:
            found = self._networks[key] = self._draw(*key)
        return found

    def tree(self, source: str, suspects: bool, label: str = "") -> paths.Tree | None:
        """The quickest paths from one broker to all; None if it is not on the map."""
        key = source, suspects or not self.suspects, label if label in self._labels else ""
        if key not in self._trees:
            network = self.network(suspects, label)
            self._trees[key] = self._inherited(key) or (
                paths.shortest_tree(network, network.index(source)) if source in network else None
            )
        return self._trees[key]

    def _inherited(self, key: tuple[str, bool, str]) -> paths.Tree | None:
        """The same tree of the map before this one, if it still holds."""
        tree = None if self._before is None else self._before._trees.get(key)
        if self._before is None or tree is None:
            return None
        kind = key[1:]
        if kind not in self._changes:
            self._changes[kind] = paths.changes(self._before.network(*kind), self.network(*kind))
        changed = self._changes[kind]
        return tree if changed is not None and paths.still_shortest(tree, changed) else None

    def latencies(self, source: str, destinations: Iterable[str], suspects: bool, label: str = "") -> dict[str, Nanos]:
        """From one broker to those of others that it reaches, by the quickest path."""
        tree = self.tree(source, suspects, label)
        if tree is None:
            return {}
        network, latency_ns = self.network(suspects, label), tree.latency_ns
        found: dict[str, Nanos] = {}
        for name in destinations:
            if name in network and (ns := latency_ns[network.index(name)]) is not None:
                found[name] = ns
        return found

    def adverts_of(self, brokers: Iterable[str]) -> tuple[Advert | None, ...]:
        """What these brokers say; the same objects as on an earlier map, as a rule, if it is the same."""
        return tuple(map(self._adverts.get, brokers))

    def quickest_path(self, source: str, destination: str) -> tuple[tuple[str, ...], Nanos] | None:
        """The quickest path between two brokers and its latency, without suspect links if there is one."""
        for suspects in (False, True):
            network, tree = self.network(suspects), self.tree(source, suspects)
            if tree is not None and destination in network:
                path = tree.path(network.index(destination))
                if path is not None:
                    return tuple(network.named(path.brokers)), path.latency_ns
        return None

    def over_one_broker_ns(self, source: str, destination: str, label: str = "") -> Nanos:
        """The quickest path of two links; NEVER if there is none."""
        advert = self._adverts.get(source)
        best = NEVER
        for link in () if advert is None else advert.links:
            there, onward = self.claims.get((source, link.peer)), self.claims.get((link.peer, destination))
            if there is not None and onward is not None:
                stays_ns = self.processing_ns(link.peer, label) + self.processing_ns(destination, label)
                best = min(best, (there.latency_us + onward.latency_us) * US + stays_ns)
        return best

    def _draw(self, suspects: bool, label: str) -> paths.Network:
        # The same as `Network.build`, without the checks: adverts were checked when they came.
        names = tuple(self._adverts)
        index = {name: at for at, name in enumerate(names)}
        processing = tuple(self.processing_ns(name, label) for name in names)
        forth: list[list[tuple[int, int]]] = [[] for _ in names]
        back: list[list[tuple[int, int]]] = [[] for _ in names]
        failure: dict[tuple[int, int], float] = {}
        for ends, claim in self.claims.items():
            if not suspects and ends in self.suspects:
                continue
            start, end = index[ends[0]], index[ends[1]]
            cost = (claim.latency_us * US + processing[end] << HOP_BITS) + 1
            forth[start].append((end, cost))
            back[end].append((start, cost))
            both = (start, end) if start < end else (end, start)
            failure[both] = max(failure.get(both, 0.0), claim.risk_millionths / MILLION)
        return paths.Network(
            names,
            processing,
            tuple(advert.failure_millionths / MILLION for advert in self._adverts.values()),
            failure,
            tuple(tuple(sorted(steps)) for steps in forth),
            tuple(tuple(sorted(steps)) for steps in back),
            index,
        )
