"""A shared queue: one session of the broker from which several links take, each message to one of them.

This is what a `queue` address and a shared subscription of JMS are. The session is a member of a group of shared
subscriptions (`$share/queue/orders`), so that a message goes to one consumer wherever it is: here, at another broker,
or an MQTT client. It keeps messages while no link is there.

To delivery it is one consumer whose window is the credit of all links. Links with credit take turns. What a link has
not settled when it goes is given to another one.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from overlane.core.units import Nanos
from overlane.pubsub.contract.consumer import Ending, Peer
from overlane.pubsub.message import Message
from overlane.pubsub.sessions.session import Session

if TYPE_CHECKING:
    from overlane.amqp.connection import Connection
    from overlane.amqp.outgoing_link import OutgoingLink
    from overlane.pubsub.delivery.window import Entry

NOWHERE = Peer("", listener="amqp")


class SharedQueue:
    __slots__ = ("_last", "_turn", "closing", "links", "peer", "session")

    def __init__(self, session: Session) -> None:
        self.session: Session | None = session
        self.links: list[OutgoingLink] = []
        self.peer = NOWHERE
        """Its links come from many places."""
        self.closing: str | None = None
        self._turn = 0
        self._last: OutgoingLink | None = None
        """That was given a message last."""

    @property
    def connection(self) -> "Connection | None":
        """One of those that take from it."""
        return self.links[0].connection if self.links else None

    @property
    def unanswerable_until_ns(self) -> Nanos:
        return max((link.unanswerable_until_ns for link in self.links), default=0)

    @unanswerable_until_ns.setter
    def unanswerable_until_ns(self, until_ns: Nanos) -> None:
        for link in self.links:
            link.unanswerable_until_ns = until_ns

    @property
    def waits(self) -> bool:
        return False

    @waits.setter
    def waits(self, waits: bool) -> None:
        """Of the connection that was given a message last."""
        if waits and self._last is not None:
            self._last.waits = True

    @property
    def backlog_bytes(self) -> int:
        """Of the link that has least to read: messages go there."""
        return min((link.backlog_bytes for link in self.links if link.credit > 0), default=0)

    def keeps_reading(self, now: Nanos) -> bool:
        return any(link.keeps_reading(now) for link in self.links)

    def take(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],  # noqa: ARG002 - it has one subscription
        now: Nanos,
        tag: int = 0,
        again: bool = False,
    ) -> bool:
        link = self._next()
        if link is None:
            if qos:
                raise RuntimeError("a queue was given a message that no consumer has credit for")
            return True  # and nobody gets it, as QoS 0 allows
        tries = 0
        if qos and again and self.session is not None:
            entry = self.session.window.next_to_send()
            tries = max(1, entry.tries) if entry is not None else 1
        self._last = link
        return link.deliver(message, qos, retain, tries, tag, now)

    def take_run(self, entries: "Sequence[Entry]") -> bool:
        """Only where there is no choice."""
        if len(self.links) != 1:
            return False
        self._last = self.links[0]
        return self._last.take_run(entries)

    def release(self, tag: int) -> None:
        """There is no QoS 2 here."""

    def end(self, ending: Ending, why: str) -> None:
        self.closing = why
        for link in self.links:
            link.end(ending, why)

    # Links

    def _next(self) -> "OutgoingLink | None":
        links = self.links
        self._turn += 1
        ready = [link for at in range(len(links)) if (link := links[(self._turn + at) % len(links)]).credit > 0]
        return min(ready, key=lambda link: link.backlog_bytes // _CLOSE_BYTES, default=None)

    def fit_window(self, given_back: int = 0) -> None:
        """As large as what is unsettled and the credit of all links. `given_back`: so many will not be unsettled."""
        if self.session is not None:
            window = self.session.window
            window.receive_max = len(window.sent) - given_back + sum(link.credit for link in self.links)


_CLOSE_BYTES = 64 * 1024
"""Links that differ by less in what they have to read are equal."""
