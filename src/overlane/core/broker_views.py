"""Views: what people, tests and telemetry see of a broker, its links, routes and counters. Nothing here changes it."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from hashlib import sha256

import msgspec

from overlane.core.config import InboundRouteView, SourceRoute
from overlane.core.flows.drafts import Drafts
from overlane.core.flows.sink import Sink
from overlane.core.flows.source import Source
from overlane.core.frame_dispatch import FrameDispatcher
from overlane.core.gossip.broker_admission import BrokerAdmission
from overlane.core.gossip.incarnation_proofs import IncarnationProofs
from overlane.core.gossip.local_interest import LocalInterest
from overlane.core.link_supervisor import LinkSupervisor
from overlane.core.links.link_health import LinkState
from overlane.core.links.link_view import LinkStatus, view_of
from overlane.core.links.reserved_lane import FlowCounters
from overlane.core.qos import QosClass
from overlane.core.routing.signalling.route_establishment import links_of
from overlane.core.units import NEVER, US


@dataclass(frozen=True, slots=True)
class BrokerViews:
    names: Mapping[int, str]
    local: LocalInterest
    proofs: IncarnationProofs
    admission: BrokerAdmission
    sink: Sink
    links: LinkSupervisor
    source: Source
    drafts: Drafts
    dispatcher: FrameDispatcher

    def known_brokers(self) -> int:
        """How many brokers this one knows the links of."""
        return len(self.source.table.adverts)

    def needs_size(self) -> tuple[int, int]:
        """Number and bytes of the filters that this broker has announced as its interest."""
        return self.local.size

    def is_congested(self, besides: str) -> bool:
        """Whether the queue of any link, except the one to `besides`, is more than half full."""
        for name, one in self.links.neighbours.items():
            if 2 * one.queue.bytes > one.queue.bytes_max and one.connected and name != besides:
                return True
        return False

    def left_bytes(self, besides: str) -> int:
        """Bytes of parcels sent to all neighbours except `besides`."""
        return sum([one.queue.left_bytes for name, one in self.links.neighbours.items() if name != besides])

    def can_reach(self, broker: str) -> bool:
        return self.source.table.map.quickest_path(self.links.me, broker) is not None

    def claimed_links(self) -> Mapping[tuple[str, str], int]:
        """The links of the map, in each direction, with their latencies in microseconds."""
        return {link: claim.latency_us for link, claim in self.source.table.map.claims.items()}

    def reserved_counters(self, peer: str) -> Mapping[Hashable, FlowCounters]:
        """What became of the parcels of reserved flows on the link to a neighbour, by the group of the flow."""
        neighbour = self.links.neighbours.get(peer)
        lane = None if neighbour is None else neighbour.queue.reserved
        return {} if lane is None else lane.counters()

    def needing(self, topic: str) -> tuple[str, ...]:
        """The other brokers that need a topic."""
        return self.source.destinations.remote.needing(topic)

    def is_subscribed(self, topic: str) -> bool:
        """Whether there are local subscribers to a topic that others know of."""
        return bool(self.sink.subscribers(topic))

    def queue_bytes(self, peer: str) -> int:
        return self.links.neighbours[peer].queue_bytes

    def link_state(self, peer: str) -> LinkState | None:
        """None for a broker that has not been linked with this one."""
        neighbour = self.links.neighbours.get(peer)
        return None if neighbour is None else neighbour.health.state

    def link_views(self) -> list[LinkStatus]:
        return [view_of(self.links.neighbours[name]) for name in sorted(self.links.neighbours)]

    def carried_topics(self, topics_max: int) -> dict[tuple[QosClass, tuple[str, ...]], list[str]]:
        """Topics that lately went along each route, which has this class and these destinations; some of them."""
        return self.drafts.carried_topics(topics_max)

    def missing(self) -> list[tuple[str, str, int]]:
        """Best-effort parcels that have not come: (origin, a topic of theirs, how many); 0 where none is missing."""
        return [(self.names.get(gap.origin, "?"), gap.topic, gap.missing) for gap in self.sink.gaps.all()]

    def routes(self) -> list[SourceRoute]:
        return [
            SourceRoute(
                route.id,
                route.version,
                route.qos,
                route.destinations,
                tuple(sorted(route.plan.links)),
                dict(route.plan.latency_ns),
                route.cause,
                route.established,
                tuple(sorted(self.source.trust.avoided(route.id))),
                route.unmet,
                dict(route.quality),
            )
            for route in self.source.route_announcer.planner.routes.values()
        ]

    def inbound_routes(self) -> list[InboundRouteView]:
        """The newest version of every route of another broker that delivers here."""
        return [
            InboundRouteView(entry.message.origin, links_of(entry.message), entry.message.deadline_us * US or NEVER)
            for _, entry in self.links.routes.newest()
            if entry.deliver and entry.message.origin != self.links.me
        ]

    def counters(self) -> dict[str, int]:
        sent, counters, losses = self.links.sent, self.links.forwarding.counters, self.links.forwarding.losses
        return {
            "parcel_bytes_sent": sent.parcel_bytes,
            "control_bytes_sent": sent.control_bytes,
            "parcels_sent": sent.parcels,
            "messages_sent": sent.messages,
            "violations": self.dispatcher.violations,
            "duplicates_dropped": counters.duplicates_dropped,
            "expired_dropped": losses.expired,
            "queue_full_dropped": losses.queue_full,
            "unroutable_dropped": losses.unroutable,
            "link_lost_dropped": losses.link_lost,
            "overtaken_dropped": losses.overtaken,
            "lifespan_ended_dropped": losses.lifespan_ended,
            "destination_left_dropped": losses.destination_left,
            "unproven_dropped": self.proofs.dropped,
            "brokers_refused": self.admission.refused,
            "name_conflicts": self.links.gossip.own_name.conflicts,
            "repairs": counters.repairs,
            "detours": counters.detours,
            "filters_refused": self.source.destinations.remote.refused,
            "unsendable_dropped": self.links.unsendable,
            "refused_at_border": self.sink.refused.messages,
            "unsolicited_messages": self.sink.unsolicited.messages,
            "unsolicited_bytes": self.sink.unsolicited.size_bytes,
            "retained_bytes": self.source.retained_bytes,
            "held_messages": len(self.source.held),
            "unconfirmed_samples": self.source.trust.missed,
            "path_suspicions": self.source.trust.episodes,
            "suspected_links": self.source.trust.suspected,
        }

    def map_digest(self) -> str:
        """The same at all brokers that have heard the same."""
        links = [(*ends, claim.state) for ends, claim in sorted(self.source.table.map.claims.items())]
        needs = {
            name: message.added
            for name in self.source.destinations.remote.brokers()
            if (message := self.source.destinations.remote.everything(name))
        }
        needs[self.links.me] = self.local.everything().added
        known = sorted((name, sorted(filters)) for name, filters in needs.items() if filters)
        return sha256(msgspec.json.encode((links, known))).hexdigest()
