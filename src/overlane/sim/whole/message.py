"""Messages that name their publisher, and the interface of their observers."""

from typing import NamedTuple, Protocol

from overlane.sim.whole.contact import Contact


class SimulatedMessage(NamedTuple):
    """A tuple, as messages are keys of most that is noted about them, and tuples are hashed quickly.

    `number` counts what one publisher has published on one topic, from 1; a will has that of its connection.

    `clears`: it takes the retained message of its topic away. It has no payload, so a receiver cannot read its number.
    """

    publisher: str
    topic: str
    number: int
    qos: int
    is_retained: bool = False
    clears: bool = False

    def payload(self) -> bytes:
        return b"" if self.clears else f"{self.publisher} {self.number} {self.qos} {self.is_retained:d}".encode()

    @classmethod
    def read(cls, topic: str, payload: bytes) -> "SimulatedMessage | None":
        """None if it has no payload."""
        if not payload:
            return None
        publisher, number, qos, is_retained = payload.decode().split()
        return cls(publisher, topic, int(number), int(qos), is_retained == "1")


class SimulationObserver(Protocol):
    """Who is told what clients were promised, and what they got."""

    def contacted(self, contact: Contact, will: SimulatedMessage | None) -> None: ...
    def sent(self, message: SimulatedMessage) -> None: ...
    def resent(self, message: SimulatedMessage) -> None: ...
    def acknowledged(self, message: SimulatedMessage) -> None: ...
    def refused(self, message: SimulatedMessage) -> None: ...
    def asked(self, client: str, topic_filter: str, qos: int) -> None: ...
    def subscribed(self, client: str, topic_filter: str, qos: int) -> None: ...
    def got(self, client: str, message: SimulatedMessage, qos: int) -> None: ...
    def got_retained(self, client: str, message: SimulatedMessage, qos: int) -> None: ...
    def came(self, client: str) -> None: ...
    def went(self, client: str) -> None: ...
    def woke_up(self, contact: Contact) -> None: ...
    def session_lost(self, client: str) -> None: ...
    def dismissed(self, contact: Contact, reason: int | None) -> None: ...
