"""The table of client protocols: what makes the server of each.

A protocol is a package beside `mqtt`, whose server is a `pubsub.protocol.ProtocolServer`. Its listeners are rows of
`network.listeners`, which call it by the name that it has here. It is imported when the first listener needs it: a
broker for MQTT alone does not have the others in memory.
"""

from collections.abc import Callable, Mapping
from typing import Final

from overlane.pubsub.contract.protocol import AnyServer
from overlane.pubsub.service import PubSub

MQTT: Final = "mqtt"
"""Its server makes the service that the others use (`turn.assembly`)."""


def _amqp(pubsub: PubSub) -> AnyServer:
    from overlane.amqp.server import AmqpServer

    return AmqpServer(pubsub)


def _nats(pubsub: PubSub) -> AnyServer:
    from overlane.nats.server import NatsServer

    return NatsServer(pubsub)


PROTOCOLS: Final[Mapping[str, Callable[[PubSub], AnyServer]]] = {"amqp": _amqp, "nats": _nats}
"""All others."""
