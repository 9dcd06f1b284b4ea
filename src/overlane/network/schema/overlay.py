"""Brokers, their uplinks, the links between them, and the borders of their domains."""

import msgspec

from overlane.membership.endpoint import Endpoint
from overlane.membership.membership import LINK_QUEUE_BYTES, Emulated, Ends, Role
from overlane.network.schema.choices import Transport

# Not zero: were nothing expected to fail, a second path would be worth nothing and disjoint paths no better than one.
BROKER_FAILURE = 0.001

LINK_FAILURE = 0.002

QUEUE_BYTES = LINK_QUEUE_BYTES


class Uplink(msgspec.Struct, frozen=True, kw_only=True):
    """One of several ways in which a broker is connected: what it adds to all links that go through it."""

    name: str
    latency_ns: int = 0
    jitter_ns: int = 0
    loss: float = 0.0
    rate_bps: int | None = None
    queue_bytes: int = QUEUE_BYTES
    interface: str | None = None
    """The network interface of a broker that runs; None: it is known by an address in `reach`."""


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    """A broker; its clock reads true time x (1 + drift / 10^6) + offset.

    The endpoints are as the file says; `overlane.network.endpoints` gives those it listens on, defaults included.
    """

    name: str
    failure: float = BROKER_FAILURE
    latitude: float | None = None
    longitude: float | None = None
    clock_offset_ns: int = 0
    clock_drift_ppm: float = 0.0
    listeners: dict[str, Endpoint] = {}
    """Where clients connect, by the name of the listener (`overlane.network.listeners`)."""
    overlay: Endpoint | None = None
    admin: Endpoint | None = None
    reach: tuple[Endpoint, ...] | None = None
    """Where its neighbours dial it, tried in turn. None: where it listens. Empty: nowhere, it dials them."""
    uplinks: tuple[Uplink, ...] = ()
    """None: it is connected in one way, which adds nothing."""
    datagrams: bool = True
    """Whether it offers its neighbours datagrams beside connections, for what has a deadline."""
    domain: str = ""
    """Brokers of one domain have the same; empty: a domain of its own."""
    role: Role = "plain"
    capacity: float | None = None
    """Messages per second that it can carry; None: that of [placement]."""

    def addresses(self) -> dict[str, Endpoint]:
        """All that the file gives it to listen on, by field."""
        of_overlay = {"overlay": self.overlay, "admin": self.admin}
        return self.listeners | {field: at for field, at in of_overlay.items() if at is not None}


class Back(msgspec.Struct, frozen=True, kw_only=True):
    """What a link is like from its second end to its first, where that is not the same."""

    latency_ns: int
    jitter_ns: int = 0
    loss: float = 0.0
    rate_bps: int | None = None
    queue_bytes: int = QUEUE_BYTES


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A link, the same in both directions unless it says how it is back. On a datagram link loss loses a frame, unless
    it is one that must arrive; on a stream it delays it."""

    ends: Ends
    latency_ns: int
    jitter_ns: int = 0
    loss: float = 0.0
    rate_bps: int | None = None
    failure: float = LINK_FAILURE
    queue_bytes: int = QUEUE_BYTES
    transport: Transport = "datagram"
    carrier: str | None = None
    """The MQTT broker that carries it, with a prefix of topics: `mqtt://host:port/prefix`; then it is a stream."""
    emulate: Emulated | None = None
    back: Back | None = None
    encrypted: bool = False
    """Whether it is encrypted by other means than TLS, such as a virtual private network."""
    dscp: int = 0
    """The code point that its packets carry (RFC 2474)."""

    def from_end(self, end: str) -> "Link | Back":
        """What it is like for what this end sends."""
        return self if self.back is None or end == self.ends[0] else self.back


class Border(msgspec.Struct, frozen=True, kw_only=True):
    """What may leave a broker's domain for another broker, and enter it from there; `*` is any. None: no rule."""

    broker: str
    other: str = "*"
    leave: tuple[str, ...] | None = None
    enter: tuple[str, ...] | None = None
