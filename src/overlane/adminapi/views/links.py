"""Links to neighbours, with their paths and datagrams, and the routes that begin at a broker."""

from typing import Literal, TypeAlias

import msgspec

from overlane.adminapi.views.view import View

LinkCondition: TypeAlias = Literal["up", "suspect", "failed", "down"]
DatagramsState: TypeAlias = Literal["probing", "open", "doubted"]
PathState: TypeAlias = Literal["in_use", "copies", "standby", "silent", "probing", "gone"]


class EmulationView(View, frozen=True, kw_only=True):
    """Emulated conditions of one direction of a link."""

    latency_ms: float
    jitter_ms: float
    loss: float
    rate_bps: int | None
    is_cut: bool


class DatagramsView(View, frozen=True, kw_only=True):
    """The UDP path beside a link's TCP connection, for messages with a deadline."""

    state: DatagramsState
    """probing: carries probes only. open: carries frames. doubted: recently silent, so both paths are used."""
    rtt_ms: float | None
    window_bytes: int
    """Bytes that may be unacknowledged."""
    frames_bytes_max: int
    """Larger frames use the TCP connection."""
    sent: int
    received: int
    lost: int
    """Sent datagrams that were lost."""
    refused: dict[str, int]
    """Received datagrams that were rejected, by reason: malformed, forged, replayed."""


class PathView(View, frozen=True, kw_only=True):
    """One of several paths of a link: a pair of addresses."""

    local: str
    remote: str
    state: PathState
    """in_use: carries messages with a deadline. copies: carries copies too. standby: works. silent: does not answer.
    probing: does not answer for longer. gone: the interface or address of one end is gone."""
    has_connection: bool
    """Whether the TCP connection uses it; known at the end that opened it."""
    latency_ms: float | None
    """One way. None until measured."""
    loss: float
    sent: int
    received: int


class LinkView(View, frozen=True, kw_only=True):
    """A link to a neighbour, as seen from this end. `down`: not connected."""

    peer: str
    state: LinkCondition
    latency_ms: float | None
    """One way. Latency, jitter and loss are None until measured."""
    jitter_ms: float | None
    loss: float | None
    queue_parcels: int
    queue_bytes: int
    queue_bytes_max: int
    bytes_in: int = 0
    """`bytes_in`, `bytes_out`: all bytes of the current connection, including handshake and routing."""
    bytes_out: int = 0
    datagrams: DatagramsView | None = None
    """None: the link uses the TCP connection only."""
    paths: tuple[PathView, ...] = ()
    """Empty: there is one path."""
    emulation: EmulationView | None = None
    reserved: float = 0.0
    """Share of the link's rate that reservations have, in this direction."""


class LinkList(View, frozen=True, kw_only=True):
    items: tuple[LinkView, ...]


class RouteView(View, frozen=True, kw_only=True):
    """A route from this broker: the paths of a class of topics to its destinations."""

    id: int
    version: int
    destinations: tuple[str, ...]
    paths: dict[str, tuple[tuple[str, ...], ...]]
    """Per destination, paths with fewer hops first."""
    latency_ms: dict[str, float]
    """Per reachable destination."""
    deadline_ms: float | None
    reliable: bool
    routing: str
    cause: str
    """Cause of the last change."""
    is_established: bool
    topics: tuple[str, ...]
    """A sample of the topics that used it recently."""
    suspects: tuple[str, ...] = ()
    """Brokers that it avoids, because messages sent over them did not arrive."""
    requires: dict[str, bool | float | tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Requirements of its topics in addition to the deadline, by the fields of the network file."""
    unmet: dict[str, str] = msgspec.field(default_factory=dict)
    """Per destination, the requirements that are not met. Without trusted paths there are none."""
    loss: dict[str, float] = msgspec.field(default_factory=dict)
    resiliency: dict[str, float] = msgspec.field(default_factory=dict)
    """Per destination, if its topics require it."""


class RouteList(View, frozen=True, kw_only=True):
    items: tuple[RouteView, ...]
