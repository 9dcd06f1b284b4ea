"""Messages that name their publisher, and the interface of their observers."""

from dataclasses import dataclass
from typing import Protocol

from overlane.sim.whole.contact import Contact


@dataclass(frozen=True, slots=True)
class Message:
    """`number` counts what one publisher has published on one topic, from 1; a will has that of its connection.

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
    def read(cls, topic: str, payload: bytes) -> "Message | None":
        """None if it has no payload."""
        if not payload:
            return None
        publisher, number, qos, is_retained = payload.decode().split()
        return cls(publisher, topic, int(number), int(qos), is_retained == "1")


class Observer(Protocol):
    """Who is told what clients were promised, and what they got."""

    def contacted(self, contact: Contact, will: Message | None) -> None: ...
    def sent(self, message: Message) -> None: ...
    def resent(self, message: Message) -> None: ...
    def acknowledged(self, message: Message) -> None: ...
    def refused(self, message: Message) -> None: ...
    def asked(self, client: str, topic_filter: str, qos: int) -> None: ...
    def subscribed(self, client: str, topic_filter: str, qos: int) -> None: ...
    def got(self, client: str, message: Message, qos: int) -> None: ...
    def got_retained(self, client: str, message: Message, qos: int) -> None: ...
    def came(self, client: str) -> None: ...
    def went(self, client: str) -> None: ...
    def woke_up(self, contact: Contact) -> None: ...
    def session_lost(self, client: str) -> None: ...
    def dismissed(self, contact: Contact, reason: int | None) -> None: ...
