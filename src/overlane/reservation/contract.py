"""The contract of a broker's reservations: events that go in, effects that come out.

Brokers are identities, as RSVP objects carry them (`core.wire.frame_codec.broker_id`). Messages to a neighbour arrive
in order, or the link goes down; what is lost or repeated nevertheless is repaired by the next refresh.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from overlane.planning.reserve import TSpec
from overlane.reservation.link_ledger import LinkTerms
from overlane.reservation.rsvp.intserv import FlowSpec
from overlane.reservation.rsvp.messages import Message
from overlane.reservation.rsvp.objects import Style

Broker = int
Link = tuple[Broker, Broker]
"""A direction of it: from, to."""
Topology = Mapping[Broker, Mapping[Broker, int]]
"""The links that are up, with their latencies in microseconds."""


# Events


@dataclass(frozen=True, slots=True)
class Offer:
    """A publisher of this broker advertises traffic on a topic filter."""

    topic_filter: str
    tspec: TSpec


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Nobody here advertises the topic filter any more."""

    topic_filter: str


@dataclass(frozen=True, slots=True)
class SetLeaves:
    """The brokers that need what is advertised here on a topic filter, from now on."""

    topic_filter: str
    leaves: frozenset[Broker]


@dataclass(frozen=True, slots=True)
class Ask:
    """A subscriber of this broker asks for a rate, perhaps for a latency, on an advertised topic filter."""

    request: str
    topic_filter: str
    tspec: TSpec
    latency_s: float | None = None
    style: Style = Style.SE


@dataclass(frozen=True, slots=True)
class Release:
    """The subscriber needs it no longer."""

    request: str


@dataclass(frozen=True, slots=True)
class LinkUp:
    """A link is up, or its terms have changed."""

    peer: Broker
    terms: LinkTerms


@dataclass(frozen=True, slots=True)
class LinkDown:
    """Everything that was told over the link is void."""

    peer: Broker


@dataclass(frozen=True, slots=True)
class SetTopology:
    """The links of the overlay, as far as this broker knows them."""

    links: Topology


@dataclass(frozen=True, slots=True)
class Received:
    peer: Broker
    message: Message


@dataclass(frozen=True, slots=True)
class Tick:
    """The time that `next_deadline` asked for has come."""


Event = Offer | Withdraw | SetLeaves | Ask | Release | LinkUp | LinkDown | SetTopology | Received | Tick


# Effects


@dataclass(frozen=True, slots=True)
class Send:
    peer: Broker
    message: Message


@dataclass(frozen=True, slots=True)
class Admitted:
    """Every link of the path has set aside what was asked for. It may come again, after `Interrupted`."""

    request: str
    flowspec: FlowSpec
    delay_bound_s: float | None
    """With the latency of the path; None without a latency asked for."""


@dataclass(frozen=True, slots=True)
class ReservationRefused:
    """The request is forgotten."""

    request: str
    reason: str
    bottleneck: Link | None = None
    nearest_rate: float | None = None
    """Bytes per second that the path had left."""
    nearest_latency_s: float | None = None
    """What could be had instead."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A path is gone; another one is being sought. `Admitted` or `ReservationRefused` follows."""

    request: str


Effect = Send | Admitted | ReservationRefused | Interrupted
