"""Where clients connect to a broker: the one table of its listeners.

A kind of listener is a field of [brokers.NAME] with an address. What follows from it is said here alone: which protocol
clients speak there, over what, and where it is if the file does not say. The file, its checks, the running broker and
what it prints follow this table.
"""

import msgspec


class ListenerKind(msgspec.Struct, frozen=True):
    name: str
    """The field of the network file."""
    protocol: str
    """What clients speak there (`overlane.node.clients.listeners`)."""
    is_tls: bool = False
    is_websocket: bool = False
    port: int | None = None
    """Of the first broker of a file, the next one for the second, and so on; None: only where the file says so."""


LISTENER_KINDS = (
    ListenerKind("mqtt", "mqtt", port=1883),
    ListenerKind("mqtt_tls", "mqtt", is_tls=True),
    ListenerKind("websocket", "mqtt", is_websocket=True),
    ListenerKind("websocket_tls", "mqtt", is_tls=True, is_websocket=True),
)
