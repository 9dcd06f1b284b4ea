"""What goes into a broker and what comes out.

Control is events and effects: `Broker.handle(event, now)` returns the effects, and the driver carries them out in
order, after it has made the `Save`s and `Erase`s of the same turn durable. The data path is bytes:
`Broker.publish`, `Broker.receive`, `Broker.flush` and `Broker.pull`.

Two lanes lead to each neighbour. What is sent on the CONTROL lane arrives, in order, or the link goes down. What is
sent on the DATA lane may be lost or overtaken. A stream transport may carry both on one connection.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from overlane.core.qos import QosClass
from overlane.core.units import Nanos


class Lane(IntEnum):
    CONTROL = 0
    DATA = 1


# Events


@dataclass(frozen=True, slots=True)
class LinkUp:
    """A fresh connection with this neighbour is open for bytes, both ways. One that was open before, and is not told to
    be down, is replaced by it."""

    peer: str


@dataclass(frozen=True, slots=True)
class LinkDown:
    """The connection with this neighbour is broken; bytes under way on it may be lost."""

    peer: str


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A local subscriber wants a topic filter. Durable subscriptions survive a restart of the broker."""

    subscriber: str
    filter: str
    durable: bool = True


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    subscriber: str
    filter: str


@dataclass(frozen=True, slots=True)
class Tick:
    """The time that `Broker.next_deadline` asked for has come."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The broker departs for good: it tells everybody, so that nobody keeps anything for it."""


@dataclass(frozen=True, slots=True)
class Foresee:
    """How likely this broker and its links are down, by their history. It counts more than what the configuration
    says, which counts again for what is None or not named."""

    failure: float | None
    links: Mapping[str, float]
    """By neighbour."""


@dataclass(frozen=True, slots=True)
class RoomAgain:
    """Local readers that had no room for more have some again."""


Event = LinkUp | LinkDown | Subscribe | Unsubscribe | Tick | Leave | Foresee | RoomAgain


# Effects


@dataclass(frozen=True, slots=True)
class Save:
    """Make this record durable before any other effect of the turn is carried out."""

    table: str
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Erase:
    table: str
    key: bytes


class Delivery(NamedTuple):
    """One message for local subscribers, each named once."""

    topic: str
    body: bytes
    flags: int
    subscribers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Deliver:
    """Messages (topic, flags, body) that came together, with the age the broker believes they have.

    `subscribers` tells per topic who gets them; a topic that is not in it has no subscriber here. What is reliable was
    only brought because its readers said that they take it (`Broker.heed_readers`).
    """

    messages: list[tuple[str, int, bytes]]
    subscribers: Mapping[str, tuple[str, ...]]
    origin: str
    age_ns: Nanos
    deadline_ns: Nanos
    reliable: bool = False

    @property
    def deliveries(self) -> Iterator[Delivery]:
        for topic, flags, body in self.messages:
            if subscribers := self.subscribers.get(topic):
                yield Delivery(topic, body, flags, subscribers)


@dataclass(frozen=True, slots=True)
class Close:
    """Break the connection with this neighbour; the driver may connect anew.

    `last_words` tell the neighbour why. They go out ahead of the break if the connection still takes them.
    """

    peer: str
    reason: str
    last_words: bytes = b""


@dataclass(frozen=True, slots=True)
class RouteChanged:
    """The source moved a route: which class and destinations, over which links from now on, and why."""

    route: int
    version: int
    qos: QosClass
    destinations: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    cause: str
    latency_ns: Nanos


@dataclass(frozen=True, slots=True)
class RouteEstablished:
    """Every broker of this version of the route has acknowledged it."""

    route: int
    version: int


@dataclass(frozen=True, slots=True)
class DeadlineUnmeetable:
    """The best route to this destination takes longer than the deadline; its messages travel on it all the same."""

    qos: QosClass
    destination: str
    latency_ns: Nanos


@dataclass(frozen=True, slots=True)
class LinkChanged:
    """A link of this broker changed its state: up, suspect or failed."""

    peer: str
    state: str


Effect = Save | Erase | Deliver | Close | RouteChanged | RouteEstablished | DeadlineUnmeetable | LinkChanged


# Answers to a publisher


class Published(IntEnum):
    ACCEPTED = 0
    BUSY = 1
    """Reliable retention is full: try again when acknowledgements have made room."""
    TOO_LARGE = 2
