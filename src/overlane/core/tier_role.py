"""Tier role: the additional work of an edge or a routing broker, and its start and end.

An edge knows only the topics that its clients use (`edge_scope`), and holds messages until their destinations are
known; a routing broker carries its assigned bundles of topics (`routing_scope`). A broker of neither tier has no scope.
The role comes with the configuration. It may change while the broker runs: then all links are closed, since neighbours
of another tier exchange other information.
"""

from collections.abc import Callable, Sequence, Set

from overlane.core.config import BrokerConfig
from overlane.core.events import Effect, ScopeDigest
from overlane.core.flows.drafts import Drafts
from overlane.core.flows.source import Source
from overlane.core.gossip.edge_scope import EdgeScope
from overlane.core.gossip.local_interest import LocalInterest
from overlane.core.gossip.routing_scope import RoutingScope
from overlane.core.gossip.tiers import EDGE_TIER, ROUTING_TIER, TIERS
from overlane.core.link_supervisor import LinkSupervisor
from overlane.core.routing.direct_link_review import DirectLinkReview
from overlane.core.units import NEVER, SECOND, Nanos

HELD_FOR_ROLE: Nanos = 30 * SECOND
"""How long messages that an edge had to hold in an earlier run wait for this broker to be an edge again."""


class TierRole:
    def __init__(
        self,
        links: LinkSupervisor,
        local: LocalInterest,
        source: Source,
        drafts: Drafts,
        interest_changed: Callable[[], None],
        now: Nanos,
    ) -> None:
        self._name = links.me
        self._links = links
        self._tiers = links.gossip.tiers
        self._local = local
        self._remote = source.destinations.remote
        self._source = source
        self._drafts = drafts
        self._interest_changed = interest_changed
        self._scope: EdgeScope | None = None
        """Where this broker is an edge."""
        self._held_until: Nanos = now + HELD_FOR_ROLE
        self._direct_links = DirectLinkReview(self._name, source.route_announcer.planner)
        self._linked: Set[str] = frozenset()
        """The neighbours, but for those of direct links."""

    def configure(self, config: BrokerConfig, now: Nanos) -> None:
        """Begin to be an edge or a routing broker, if the configuration says so, and follow the assignment."""
        tiers = self._tiers
        tier = TIERS[config.role]
        if tier != tiers.own_tier:
            tiers.own_tier = self._links.tier = tier
            for name in sorted(self._links.neighbours):
                self._links.close_peer(name, "its role has changed", now)
            if tier == EDGE_TIER:
                self._begin_edge(now)
            elif tier == ROUTING_TIER:
                tiers.routing_scope = RoutingScope(self._name, self._remote, self._want_scope, tiers.introduce)
                tiers.routing_scope.restore()
            self._remote.reports_all = tier == ROUTING_TIER
        tiers.direct = config.direct
        self._linked = config.link_failure.keys() - config.direct
        if self._scope is not None:
            before = self._scope.carriers()
            self._scope.assign(config.assignment, now, config.standbys)
            for name in sorted(before - self._scope.carriers()):
                self._source.left(name)  # it was owed what is retained, and keeps that no more
            self._interest_changed()
        elif tiers.routing_scope is not None:
            tiers.routing_scope.configure(config.assignment, config.link_failure.keys(), now, config.standbys)

    def _begin_edge(self, now: Nanos) -> None:
        scope = self._scope = EdgeScope(self._name, self._remote, self._want_scope, self._interest_changed)
        scope.doubt_restored(now)
        self._tiers.edge_scope = self._source.destinations.scope = self._drafts.scope = scope
        for topic_filter in self._local.everything().added:
            scope.need(topic_filter, True)
        for topic in self._source.held.topics():
            scope.must_wait(topic)

    def _want_scope(self, peer: str) -> None:
        if (neighbour := self._links.neighbours.get(peer)) is not None:
            neighbour.want_scope()

    def renew(self, topic_filter: str) -> None:
        if self._scope is not None:
            self._scope.renew(topic_filter)

    def release_held(self, now: Nanos) -> None:
        """Send messages that need not wait any more."""
        scope, held = self._scope, self._source.held
        if scope is not None:
            groups = [group for group in held.groups() if not scope.is_waiting(group)]
        else:  # it was an edge in an earlier run, and perhaps will be one again soon
            groups = held.groups() if now >= self._held_until else []
        if groups:
            self._drafts.release_held(groups, now)

    def tick(self, now: Nanos) -> list[Effect]:
        if self._scope is not None:
            return self._scope.tick(now)
        if self._tiers.routing_scope is not None:
            self._tiers.routing_scope.tick(now)
            self._tiers.tell()
        return []

    def map_changed(self, now: Nanos) -> None:
        """Links have come or gone: messages held for brokers that were not on the map may be sent."""
        if self._source.held.is_waiting:
            self.release_held(now)
            self._drafts.flush(now)

    def review_direct_links(self, now: Nanos, *, is_sweep: bool) -> Sequence[Effect]:
        """An edge's links to other edges, for deadlines that the routing tier does not meet."""
        return () if self._scope is None else self._direct_links.review(self._linked, now, is_sweep=is_sweep)

    def next_deadline(self) -> Nanos:
        if self._scope is not None:
            return min(
                self._scope.next_deadline(), self._source.held.next_deadline(), self._direct_links.next_deadline()
            )
        scope = self._tiers.routing_scope
        return NEVER if scope is None else scope.next_deadline()

    @property
    def is_edge(self) -> bool:
        return self._scope is not None

    def digest(self) -> ScopeDigest:
        """The bundles that clients of this broker use; nothing unless it is an edge."""
        return ScopeDigest() if self._scope is None else self._scope.digest()

    def size(self) -> dict[str, int]:
        """How much an edge or a routing broker knows of the other tier; nothing where there are no tiers."""
        scope = self._scope or self._tiers.routing_scope
        return {} if scope is None else scope.size()
