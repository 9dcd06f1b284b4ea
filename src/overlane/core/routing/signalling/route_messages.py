"""Route messages: what brokers tell each other of routes, and how it is sent.

A description goes ahead of the parcels on its version, and the neighbour is remembered to know it
(`Neighbour.describe_route`). Its acknowledgement is the number of the description, or the key of the version.
"""

from collections.abc import Mapping
from typing import NamedTuple

from overlane.core.links.neighbour import Neighbour
from overlane.core.units import Nanos
from overlane.core.wire.control_messages import Establish, RouteRefresh, RouteRequest, Teardown
from overlane.core.wire.frame_codec import broker_id, route_key
from overlane.core.wire.route_answers import established


class Established(NamedTuple):
    """The acknowledgement, from the leaves back. On the wire it is an ESTABLISHED frame (route_answers.py)."""

    origin: str
    incarnation: int
    route: int
    version: int

    @property
    def key(self) -> bytes:
        return route_key(broker_id(self.origin), self.incarnation, self.route, self.version)


Outbox = list[tuple[str, Establish | Established | Teardown | RouteRefresh | RouteRequest]]
"""What to send to which neighbour."""


def acknowledgement(message: Establish) -> Established:
    """Of a version of a route."""
    return Established(message.origin, message.incarnation, message.route, message.version)


def key_of(message: Establish) -> bytes:
    """What parcels on this version of a route carry."""
    return route_key(broker_id(message.origin), message.incarnation, message.route, message.version)


def send_all(outbox: Outbox, neighbours: Mapping[str, Neighbour], now: Nanos) -> None:
    for name, message in outbox:
        neighbour = neighbours.get(name)
        if neighbour is None:
            continue
        if isinstance(message, Established):
            neighbour.send_frame(established(message.key, neighbour.routes.number_of(message.key)))
        elif isinstance(message, Establish):
            neighbour.describe_route(key_of(message), message, now)
        else:
            neighbour.send(message)
