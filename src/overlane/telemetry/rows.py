"""The rows of telemetry: one class per table, one field per column. The schema of the files is derived from them.

The first field is the time in nanoseconds since 1970, by the system clock; the broker and its incarnation are added to
all rows of a file when it is written. Counts cover the interval of length `interval_ns` that ends at that time; depths
and measurements refer to that moment. None means unknown or not applicable.

Columns may be added at any time; in older files they read as None. A column that is removed or changes its meaning
requires a new VERSION in `schema`.
"""

from enum import StrEnum
from typing import NamedTuple, TypeAlias


class TopicRate(NamedTuple):
    """One topic at one broker over an interval, in messages and bytes of payloads. A topic on which nothing came has no
    row."""

    at_ns: int
    interval_ns: int
    topic: str
    messages_in: int
    """From clients of this broker."""
    bytes_in: int
    messages_overlay: int
    """From other brokers, for clients of this one."""
    bytes_overlay: int
    messages_out: int
    """To clients of this broker, by their subscriptions when the interval ended. What was dropped on the way to one is
    in `events`."""
    bytes_out: int


class LinkSample(NamedTuple):
    """One link as this end of it believes it to be. Latency is one way; before the first measurement it is None."""

    at_ns: int
    interval_ns: int
    peer: str
    state: str
    """up, suspect, failed, or down: there is no connection."""
    latency_ns: int | None
    jitter_ns: int | None
    loss: float | None
    queue_parcels: int
    queue_bytes: int
    queue_bytes_max: int
    bytes_in: int
    """All frames, from the neighbour and to it."""
    bytes_out: int


class DeliveryRow(NamedTuple):
    """A message from another broker that was handed to clients here: one of a sample."""

    at_ns: int
    topic: str
    origin: str
    """The broker where it was published."""
    age_ns: int
    deadline_ns: int | None
    in_time: bool | None
    reliable: bool
    routing: str
    size_bytes: int
    hops: int | None
    path: tuple[str, ...] | None
    """The path of its route, where the route has only one. A message that was repaired or sent again may have come
    another way."""
    weight: int
    """How many deliveries this one stands for."""


class EventKind(StrEnum):
    BROKER_STARTED = "broker-started"
    BROKER_STOPPED = "broker-stopped"
    LINK = "link"
    """Of `peer`, into `state`."""
    ROUTE = "route"
    """From here to `destinations`, over `links` from now on, for `reason`."""
    DEADLINE_UNMEETABLE = "deadline-unmeetable"
    REQUIREMENT = "requirement"
    """A requirement of topics, named by `reason`, that the route to `peer` does not meet (`unmet`), or does again."""
    PATH = "path"
    """What goes to `destinations` over `paths` does not arrive, and `peer` is `suspect`; or `trusted` again."""
    NAME_CONFLICT = "name-conflict"
    """Another broker runs under the name of `peer`; `reason` tells who says so."""
    BROKERS_REFUSED = "brokers-refused"
    """`peer` told of more brokers than there is room for: so many adverts were not kept."""
    CLIENT_DROPPED = "client-dropped"
    """So many messages that did not reach a client, for `reason`."""
    CLIENT_REFUSED = "client-refused"
    OVERLAY_DROPPED = "overlay-dropped"
    TELEMETRY_LOST = "telemetry-lost"
    """So many rows that were not written, for `reason`."""
    TELEMETRY_REMOVED = "telemetry-removed"
    """So many files that were removed to stay within the limit."""


class Event(NamedTuple):
    """Something that happened, or happened so many `times` since the last row that says so."""

    at_ns: int
    kind: str
    peer: str | None = None
    """The neighbour of a link, the destination of a deadline."""
    state: str | None = None
    reason: str | None = None
    times: int | None = None
    route: int | None = None
    version: int | None = None
    deadline_ns: int | None = None
    reliable: bool | None = None
    latency_ns: int | None = None
    destinations: tuple[str, ...] | None = None
    paths: tuple[tuple[str, ...], ...] | None = None
    """To each destination the way of fewest hops."""
    links: tuple[tuple[str, ...], ...] | None = None
    """All links of the route, each from broker to broker."""


class QueueKind(StrEnum):
    CLIENTS = "clients"
    """QoS 1 and 2 messages that clients have not acknowledged, of all clients together."""
    CLIENT = "client"
    """The same of one client; only of those with the most."""
    UNSENT = "unsent"
    """What lies ready for clients to read."""
    LINK = "link"
    """Parcels that wait for a neighbour."""
    RETAINED = "retained"
    """Retained messages of topics."""
    UNACKNOWLEDGED = "unacknowledged"
    """Reliable parcels that other brokers have not acknowledged."""


class QueueDepth(NamedTuple):
    """One queue at that moment. There are rows every second while the broker runs: the last ones tell when it ended."""

    at_ns: int
    queue: str
    name: str | None
    """Of which neighbour or client."""
    messages: int | None
    bytes: int
    bytes_max: int | None


class Interest(NamedTuple):
    """How many clients here subscribe to a filter, from then on; 0 when it was the last. Told anew every day."""

    at_ns: int
    filter: str
    group: str
    """Of a shared subscription; empty if it is none."""
    subscribers: int


class ReservedFlow(NamedTuple):
    """Ten seconds of a flow that publishers of this broker advertise."""

    at_ns: int
    interval_ns: int
    filter: str
    advertised: int
    """Bytes per second, as links count them."""
    reserved: int
    """Bytes per second that the links of this broker have set aside, the most of them; 0: nobody has asked."""
    subscribers: int
    """Other brokers that have asked for it."""
    messages: int
    excess_messages: int
    """Of these, beyond the profile."""
    payload_bytes: int
    link_bytes: int
    """The same with what messages have on a link beside their payload."""
    size_max: int
    """The largest payload since the flow was advertised."""
    rates: tuple[int, ...]
    """Rates in bytes of payload per second."""
    depths: tuple[int, ...]
    """How deep a token bucket of each rate had to be in the interval."""


Row: TypeAlias = TopicRate | LinkSample | DeliveryRow | Event | QueueDepth | Interest | ReservedFlow

TABLES: dict[type[Row], str] = {
    TopicRate: "topic_rates",
    LinkSample: "links",
    DeliveryRow: "deliveries",
    Event: "events",
    QueueDepth: "queues",
    Interest: "interests",
    ReservedFlow: "reservations",
}

ROWS: dict[str, type[Row]] = {table: row for row, table in TABLES.items()}
