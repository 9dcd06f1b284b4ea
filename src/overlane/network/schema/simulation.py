"""A simulation: its traffic, its events, and how it runs."""

from typing import TypeAlias

import msgspec

from overlane.membership.membership import Ends
from overlane.quantities import SECOND


class Publisher(msgspec.Struct, frozen=True, kw_only=True):
    broker: str
    topic: str
    rate_hz: float
    size_bytes: int = 64
    start_ns: int = 0
    stop_ns: int | None = None


class Subscriber(msgspec.Struct, frozen=True, kw_only=True):
    broker: str
    topic: str
    start_ns: int = 0
    stop_ns: int | None = None


class Slow(msgspec.Struct, frozen=True, tag="slow", tag_field="event"):
    """The link's latency becomes this."""

    at_ns: int
    ends: Ends
    latency_ns: int


class Lossy(msgspec.Struct, frozen=True, tag="loss", tag_field="event"):
    """The link loses this share of what it carries."""

    at_ns: int
    ends: Ends
    loss: float


class Cut(msgspec.Struct, frozen=True, tag="cut", tag_field="event"):
    """The link passes nothing more."""

    at_ns: int
    ends: Ends


class Partition(msgspec.Struct, frozen=True, tag="partition", tag_field="event"):
    """Every link between these brokers and all others is cut."""

    at_ns: int
    brokers: tuple[str, ...]


class Heal(msgspec.Struct, frozen=True, tag="heal", tag_field="event"):
    """The link has the values of the file again; without ends, every link does."""

    at_ns: int
    ends: Ends | None


class Crash(msgspec.Struct, frozen=True, tag="crash", tag_field="event"):
    """The broker stops at once: its memory is lost, its durable store is not."""

    at_ns: int
    broker: str


class Restart(msgspec.Struct, frozen=True, tag="restart", tag_field="event"):
    """The crashed broker starts again from its durable store."""

    at_ns: int
    broker: str


class Leave(msgspec.Struct, frozen=True, tag="leave", tag_field="event"):
    """The broker announces that it leaves, and ends."""

    at_ns: int
    broker: str


class Join(msgspec.Struct, frozen=True, tag="join", tag_field="event"):
    """The broker comes into the overlay, new or after it had left."""

    at_ns: int
    broker: str


class Unplug(msgspec.Struct, frozen=True, tag="unplug", tag_field="event"):
    """An uplink of the broker fails; while it has another, that one takes over."""

    at_ns: int
    broker: str
    uplink: str


class Plug(msgspec.Struct, frozen=True, tag="plug", tag_field="event"):
    """An uplink of the broker works again."""

    at_ns: int
    broker: str
    uplink: str


Event: TypeAlias = Slow | Lossy | Cut | Partition | Heal | Crash | Restart | Leave | Join | Unplug | Plug


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """How a simulation runs. Time zero, from which all times count, comes after the brokers have had `settle`."""

    duration_ns: int = 60 * SECOND
    seed: int = 0
    settle_ns: int = 10 * SECOND
