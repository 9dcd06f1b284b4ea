"""Tiers: gossip between edges and routing brokers.

The handshake contains the tier of a broker. Brokers of different tiers exchange only common information: interest by
edge_scope.py and routing_scope.py, and links here. A routing broker sends each edge its links with that edge and with
edges that share topics with it, and the adverts of these. An edge sends only its own information; over a direct link
(routing/direct_links.py) only its own links.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from overlane.core.config import BACKUP, EDGE, PLAIN, ROUTING
from overlane.core.gossip.edge_scope import EdgeScope
from overlane.core.gossip.incarnation_proofs import IncarnationProofs
from overlane.core.gossip.link_state import REFRESHED_PART, LinkStateTable, differs, is_other_broker
from overlane.core.gossip.routing_scope import RoutingScope
from overlane.core.links.neighbour import Neighbour
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.core.wire.control_messages import Advert, ControlMessage, PublishScope, ScopeComplete, ScopedInterest
from overlane.errors import ProtocolViolation

TIERS = {PLAIN: 0, EDGE: 1, ROUTING: 2, BACKUP: 2}
"""What a broker says in its greeting."""
PLAIN_TIER, EDGE_TIER, ROUTING_TIER = 0, 1, 2

AcrossTiers = ScopedInterest | PublishScope | ScopeComplete


class Tiers:
    """`next_sequence`: of adverts of this broker."""

    def __init__(
        self,
        neighbours: Mapping[str, Neighbour],
        table: LinkStateTable,
        proofs: IncarnationProofs,
        next_sequence: Callable[[], int],
    ) -> None:
        self._neighbours = neighbours
        self._table = table
        self._proofs = proofs
        self._next_sequence = next_sequence
        self.own_tier = PLAIN_TIER
        self.direct: frozenset[str] = frozenset()
        """Neighbours of the same tier that are told nothing but links, and tell nothing else."""
        self.edge_scope: EdgeScope | None = None
        self.routing_scope: RoutingScope | None = None
        """What is told to the other tier and heard of it; none where there are no tiers."""
        self._own: Advert | None = None
        """Our latest advert, whole."""
        self._own_changed: dict[str, None] = {}
        """Edges that are to be told our links anew."""
        self._introduced: dict[tuple[str, str], None] = {}
        """Edges, and partners that they are to be told of."""
        self._told_all_at: Nanos = -NEVER
        """When all edges were last told of our links."""

    def is_edge(self, neighbour: Neighbour) -> bool:
        """Whether it is an edge, and this broker is none."""
        return self.own_tier == ROUTING_TIER and neighbour.tier == EDGE_TIER

    def is_scoped(self, neighbour: Neighbour) -> bool:
        """Whether the two are of different tiers: they tell each other only what concerns both."""
        return self.is_edge(neighbour) or (self.own_tier == EDGE_TIER and neighbour.tier == ROUTING_TIER)

    def is_direct(self, neighbour: Neighbour) -> bool:
        return neighbour.name in self.direct and self.own_tier == EDGE_TIER == neighbour.tier

    # Connections

    def greet_direct(self, neighbour: Neighbour) -> None:
        if self._own is not None:
            neighbour.send(self._own)

    def greet(self, neighbour: Neighbour) -> None:
        """A new neighbour of the other tier."""
        known = self._table.adverts.get(neighbour.name)
        if known is not None and known.incarnation > neighbour.incarnation:
            neighbour.send(known)  # it has to know that it is not the latest
        if self.edge_scope is not None:
            if self._own is not None:
                neighbour.send(self._own)
            self.edge_scope.connected(neighbour.name)
        elif self.routing_scope is not None:
            self._own_changed[neighbour.name] = None
            self.routing_scope.connected(neighbour.name)
            for partner in self.routing_scope.partners(neighbour.name):
                self._introduced[neighbour.name, partner] = None
                self._own_changed[partner] = None

    def lost(self, peer: str) -> None:
        for scope in (self.edge_scope, self.routing_scope):
            if scope is not None:
                scope.disconnected(peer)

    def left(self, broker: str) -> None:
        for scope in (self.edge_scope, self.routing_scope):
            if scope is not None:
                scope.forget(broker)

    # Links

    def announced(self, advert: Advert, now: Nanos) -> None:
        """An advert of our own: whom it concerns is told at the end of the turn."""
        before, self._own = self._own, advert
        if self.routing_scope is not None:
            self._own_changed.update(dict.fromkeys(self._concerned(self.routing_scope, before, advert, now)))

    def _concerned(self, scope: RoutingScope, before: Advert | None, advert: Advert, now: Nanos) -> Iterable[str]:
        """The edges that an advert of our own concerns: all of them if it is repeated, or says more than of links."""
        lifetime = advert.lifetime_s * SECOND * REFRESHED_PART[0] // REFRESHED_PART[1]
        if before is None or advert.left or now >= self._told_all_at + lifetime or is_other_broker(before, advert):
            self._told_all_at = now
            return [name for name in sorted(self._neighbours) if self._greeted_edge(name) is not None]
        old, new = ({link.peer: link for link in one.links} for one in (before, advert))
        changed = [one for one in {**old, **new} if one not in old or one not in new or differs(old[one], new[one])]
        return {name: None for one in changed for name in (one, *scope.partners(one))}

    def introduce(self, name: str, partner: str) -> None:
        """An edge is to be told of another one, and of our links with both; if it is the same, of the links alone."""
        self._own_changed[name] = None
        if name != partner:
            self._introduced[name, partner] = None

    def tell(self) -> None:
        """Tell edges what has changed of our links with their partners, and of partners that are new."""
        scope = self.routing_scope
        if scope is None or not (self._own_changed or self._introduced):
            return
        changed, self._own_changed = self._own_changed, {}
        introduced, self._introduced = self._introduced, {}
        own_links = {} if self._own is None else {link.peer: link for link in self._own.links}
        for name in changed:
            neighbour = self._greeted_edge(name)
            if self._own is None or neighbour is None:
                continue
            told = {name, *scope.partners(name)}
            links = [own_links[one] for one in sorted(told) if one in own_links]
            neighbour.send(replace(self._own, sequence=self._next_sequence(), links=links))
        for name, partner in introduced:
            if (advert := self._table.adverts.get(partner)) is not None:
                self._tell_edges((name,), advert)

    def pass_on(self, advert: Advert) -> None:
        """What an edge has said of its links: to those that it concerns."""
        if self.routing_scope is not None:
            self._tell_edges(self.routing_scope.partners(advert.broker), advert)

    def _tell_edges(self, names: Iterable[str], advert: Advert) -> None:
        """Tell some edges of another one."""
        proof = self._proofs.proof_of(advert.broker)
        for name in names:
            if (neighbour := self._greeted_edge(name)) is not None:
                if proof is not None:
                    neighbour.send(proof)
                neighbour.send(advert)

    def _greeted_edge(self, name: str) -> Neighbour | None:
        neighbour = self._neighbours.get(name)
        return neighbour if neighbour is not None and neighbour.greeted and self.is_edge(neighbour) else None

    # Interest

    def next_message(self, neighbour: Neighbour) -> ControlMessage | None:
        """What a neighbour of the other tier is told next; None if it has been told everything."""
        scope = self.edge_scope or self.routing_scope
        message = scope.next_message(neighbour.name) if scope is not None else None
        if message is None:
            neighbour.has_scope_news = False
        return message

    def hear(self, sender: str, message: AcrossTiers, now: Nanos) -> list[tuple[str, list[str]]]:
        """Which brokers newly need which filters."""
        if not self.is_scoped(self._neighbours[sender]):
            raise ProtocolViolation("what only edges and routing brokers tell each other")
        if self.routing_scope is not None:
            self.routing_scope.hear(sender, message, now)
        elif self.edge_scope is not None:
            if isinstance(message, PublishScope):
                raise ProtocolViolation("a routing broker that publishes like an edge")
            return self.edge_scope.hear(sender, message, now)
        return []
