"""Listeners for clients: the one table of their kinds.

A kind of listener is a field of [brokers.NAME] with an address. Its row says which protocol clients use there, over
which transport, and the default address. The network file, its checks, the running broker and its output follow this
table.
"""

import msgspec


class ListenerKind(msgspec.Struct, frozen=True):
    name: str
    """The field of the network file."""
    protocol: str
    """What clients speak there (`overlane.turn.protocols`; "http": `overlane.node.web`)."""
    is_tls: bool = False
    is_websocket: bool = False
    is_upgraded: bool = False
    """Whether the connection begins without TLS, and becomes TLS when the server has introduced itself."""
    port: int | None = None
    """Port of the first broker of a file, the next one for the second, and so on; None: no default."""


LISTENER_KINDS = (
    ListenerKind("mqtt", "mqtt", port=1883),
    ListenerKind("mqtt_tls", "mqtt", is_tls=True),
    ListenerKind("websocket", "mqtt", is_websocket=True),
    ListenerKind("websocket_tls", "mqtt", is_tls=True, is_websocket=True),
    ListenerKind("nats", "nats"),
    ListenerKind("nats_tls", "nats", is_tls=True, is_upgraded=True),
    ListenerKind("http", "http"),
    ListenerKind("http_tls", "http", is_tls=True),
    ListenerKind("amqp", "amqp"),
    ListenerKind("amqp_tls", "amqp", is_tls=True),
)
