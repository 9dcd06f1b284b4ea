"""What gets the bytes of a client from the protocol that reads them, and can be replaced by something else."""

from typing import Protocol, runtime_checkable

from overlane.pubsub.contract.connection import ClientConnection


class ClientEnd(Protocol):
    """The client's link to the server (`turn.client_link`), or to another broker (`pass_through`)."""

    connection: ClientConnection

    def received(self, data: bytes, is_more: bool = False) -> None: ...
    def full(self) -> None: ...
    def drained(self) -> None: ...
    def lost(self) -> None: ...


@runtime_checkable
class Diverting(Protocol):
    """What reads the bytes of a client: MQTT upon a transport, or a WebSocket."""

    def divert(self, end: ClientEnd) -> None:
        """All further bytes, and the end of the connection, go there."""
