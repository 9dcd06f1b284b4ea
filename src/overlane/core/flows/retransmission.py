"""Retransmission: parcels that a destination has not acknowledged, sent again directly to it.

They take the quickest path, and every second time another one: what does not arrive may be lost on that path, or its
receipt is. A parcel for which the first link has no room waits for it, and those after it wait too. So does a parcel
for which only some links of its route have room, for the destinations behind the others.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from overlane.core.flows.outflow import FlowName, Outflow, Retained
from overlane.core.flows.parcel_headers import Headers
from overlane.core.flows.waiting_for_link import WaitingForLink
from overlane.core.routing.forwarding.forwarding import Forwarding
from overlane.core.routing.routes import RoutePlanner
from overlane.core.routing.selection.path_trust import PathTrust
from overlane.core.routing.signalling.route_establishment import RouteEntry, reached_by
from overlane.core.units import NEVER, Nanos
from overlane.core.wire.frame_codec import ParcelFlag, broker_id, parcel_size
from overlane.core.wire.parcel import FlowPart, names_too_many, pack_flow

PARCEL_FLAGS_MOST = int(ParcelFlag.OWN_DEADLINE | ParcelFlag.ACK_REQUESTED)
"""With these a parcel's header is as long as it gets."""

_CONFIRM = int(ParcelFlag.CONFIRM)


@dataclass(slots=True)
class Retransmission:
    incarnation: int
    flows: dict[FlowName, Outflow]
    planner: RoutePlanner
    trust: PathTrust
    forwarding: Forwarding
    headers: Headers
    waiting_for_link: WaitingForLink

    def resend(self, flow: Outflow, destination: str, now: Nanos, at_once: bool) -> Nanos:
        """Send what is due for a destination; returns when more will be, NEVER while it cannot be reached."""
        send_window = flow.send_windows[destination]
        send_window.waits_for_room = False
        route = self.planner.routes.get((flow.qos, flow.destinations))
        route_id = 0 if route is None else route.id
        found = self.planner.maps.quickest_path(flow.qos, route_id, destination)
        if found is None:
            send_window.resend_at = NEVER  # until it is reachable again
            send_window.is_reachable = False
            return NEVER
        send_window.is_reachable = True
        path, latency_ns = found
        due = flow.due_for_resend(destination, 2 * latency_ns, now, at_once)
        if due and due[0].sequence in send_window.resent:
            send_window.tries += 1
            if not send_window.tries % 2:
                # It does not arrive over that path, or its receipt does not return.
                other = self.trust.other_path(path)
                path = path if other is None or not self.planner.maps.may_take(flow.qos, other) else other
        for place, parcel in enumerate(due):
            part = self.part_owed(flow, parcel, (destination,))
            if names_too_many(part):
                continue
            rest = pack_flow(part, self.incarnation) + parcel.content
            size = parcel_size(PARCEL_FLAGS_MOST, rest)
            if not self.forwarding.takes(path[1], size):
                for unsent in due[place:]:
                    flow.put_back(unsent, (destination,))
                self._wait(flow, destination, path[1], size, now)
                break
            header = self.headers.on_path(flow.qos, parcel, now)
            if not place:
                header = header._replace(flags=header.flags | _CONFIRM)
            due_ns = NEVER if not header.deadline_us else parcel.published_ns + flow.qos.deadline_ns - latency_ns
            if self.forwarding.send_on_path(path, header, rest, now, due_ns, now) and not place:
                self.trust.copied(route_id, path, header.sequence, header.age_us, flow.qos.label, now)
        return send_window.resend_at

    def with_room(
        self,
        flow: Outflow,
        parcel: Retained,
        entry: RouteEntry,
        destinations: Iterable[str],
        size: int,
        now: Nanos,
    ) -> RouteEntry:
        """The route to these destinations without next hops whose queues are full; those only behind such hops wait."""
        open_hops = tuple(hop for hop in entry.next_hops if self.forwarding.takes(hop, size))
        shut_hop = next(hop for hop in entry.next_hops if hop not in open_hops)
        waiting = parcel.missing.intersection(destinations) - reached_by(entry.message, open_hops)
        flow.put_back(parcel, waiting)
        for destination in sorted(waiting):
            self._wait(flow, destination, shut_hop, size, now)
        return replace(entry, next_hops=open_hops)

    def part_owed(self, flow: Outflow, parcel: Retained, destinations: tuple[str, ...]) -> FlowPart:
        """As `part`, for some destinations, without predecessors that will not be sent any more."""
        part = flow.part(parcel)
        if not part.predecessors:
            return part
        names = {broker_id(name): name for name in destinations}
        still = []
        for one in part.predecessors:
            earlier = self.flows.get((one.incarnation, one.flow))
            if earlier is not None:
                owed = tuple(
                    at for at in one.brokers if at in names and earlier.owes(names[at], one.sequence, one.kind)
                )
                if owed:
                    still.append(one._replace(brokers=owed))
        return part._replace(predecessors=tuple(still))

    def _wait(self, flow: Outflow, destination: str, hop: str, size: int, now: Nanos) -> None:
        flow.send_windows[destination].waits_for_room = True
        self.waiting_for_link.wait(hop, (flow.name, destination), size, now)
