"""The table of client protocols: what makes the server of each.

A protocol is a package beside `mqtt`, whose server is a `pubsub.protocol.ProtocolServer`. Its listeners are rows of
`network.listeners`, which call it by the name that it has here.
"""

from collections.abc import Callable, Mapping
from typing import Final

from overlane.amqp.server import Server as AmqpServer
from overlane.nats.server import Server as NatsServer
from overlane.pubsub.protocol import AnyServer
from overlane.pubsub.service import PubSub

MQTT: Final = "mqtt"
"""Its server makes the service that the others use (`turn.assembly`)."""

PROTOCOLS: Final[Mapping[str, Callable[[PubSub], AnyServer]]] = {"amqp": AmqpServer, "nats": NatsServer}
"""All others."""
