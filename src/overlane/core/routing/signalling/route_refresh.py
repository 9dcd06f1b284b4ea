"""Route refresh: routes that stay as they are are kept installed by their numbers, without being described again.

A source names the routes that go on, and their versions, for all of its routes at a time. Each broker notes the time
and passes to each next hop the part that leads there, once. A broker that lacks a route that it is told of (it was
restarted, or had no room) requests it from the sender, and is sent the description.

    source -- RouteRefresh {1: 4, 2: 1} --> b -- RouteRefresh {1: 4} --> c
                                            b <-- RouteRequest {1: 4} -- c
                                            b -- Establish 1, version 4 --> c
"""

from overlane.core.routing.signalling.route_establishment import RouteTable
from overlane.core.routing.signalling.route_messages import Outbox
from overlane.core.routing.signalling.route_parts import part_for
from overlane.core.units import Nanos
from overlane.core.wire.control_messages import RouteRefresh, RouteRequest
from overlane.core.wire.frame_codec import broker_id
from overlane.core.wire.message_fields import REFRESHED_MAX


def take_refresh(table: RouteTable, sender: str | None, message: RouteRefresh, now: Nanos) -> Outbox:
    """A refresh came (our own if `sender` is None); what to send."""
    origin = broker_id(message.origin)
    onward: dict[str, dict[int, int]] = {}
    lacking: dict[int, int] = {}
    for route, version in message.routes.items():
        if table.lacks(origin, message.incarnation, route, version):
            lacking[route] = version
        elif (entry := table.refresh(origin, message.incarnation, route, version, now)) is not None:
            if entry.refreshed >= message.refresh:
                continue
            entry.refreshed = message.refresh
            for hop in entry.next_hops:
                if hop != sender:
                    onward.setdefault(hop, {})[route] = version
    outbox: Outbox = [
        (hop, RouteRefresh(message.origin, message.incarnation, message.refresh, routes))
        for hop, routes in sorted(onward.items())
    ]
    if lacking and sender is not None:
        outbox.append((sender, RouteRequest(message.origin, message.incarnation, lacking)))
    return outbox


def take_request(table: RouteTable, sender: str, message: RouteRequest) -> Outbox:
    """A next hop lacks routes: describe them to it."""
    origin = broker_id(message.origin)
    outbox: Outbox = []
    for route, version in message.routes.items():
        entry = table.entry(origin, route, version)
        if entry is None or entry.name.incarnation != message.incarnation or sender not in entry.next_hops:
            continue
        entry.unconfirmed.add(sender)
        outbox.append((sender, part_for(entry.message, sender)))
    return outbox


def refreshes(origin: str, incarnation: int, refresh: int, routes: dict[int, int]) -> list[RouteRefresh]:
    """All these routes, by versions, in as many messages as it takes."""
    numbers = sorted(routes)
    return [
        RouteRefresh(
            origin, incarnation, refresh, {number: routes[number] for number in numbers[at : at + REFRESHED_MAX]}
        )
        for at in range(0, len(numbers), REFRESHED_MAX)
    ]
