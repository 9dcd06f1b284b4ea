"""Reservations: advertisements of a broker's publishers, its subscribers' reservations, and reserved rates of links."""

from overlane.adminapi.views.view import View


class TSpecView(View, frozen=True, kw_only=True):
    """Traffic as links see it, with headers: bytes and bytes per second."""

    r: float
    b: float
    p: float | None
    """None: unknown."""
    m: float
    M: float


class AdvertisedView(View, frozen=True, kw_only=True):
    """What publishers of this broker advertise on a filter."""

    filter: str
    tspec: TSpecView
    excess: str
    """Treatment of messages beyond the profile."""
    owners: tuple[str, ...]
    """`file:`, `retained:NAME` or `client:ID`."""
    subscribers: tuple[str, ...]
    """Brokers whose subscribers request a reservation."""
    links: tuple[tuple[str, str], ...]
    """The tree of paths to them."""
    messages: int
    excess_messages: int


class ReservationView(View, frozen=True, kw_only=True):
    """The request of a subscriber of this broker."""

    client: str
    filter: str
    state: str
    """waiting: not advertised. asking. held. lost: searching for another path. denied: requested again."""
    service: str | None
    """The class that it has."""
    asked: str
    """The requested class."""
    tspec: TSpecView
    latency_ms: float | None
    reserved: float | None
    """R: bytes per second on each link."""
    slack_ms: float | None
    bound_ms: float | None
    delay_mean_ms: float | None
    """Delay from the publisher's broker, measured on arrival of messages from other brokers."""
    delay_max_ms: float | None
    messages: int
    late: int
    """Messages that took longer than the bound."""
    reason: str
    bottleneck: tuple[str, str] | None
    advertised: tuple[str, ...]
    """Advertised filters that it is about."""
    style: str


class LinkFlowView(View, frozen=True, kw_only=True):
    """One reservation on a link."""

    filter: str
    rate: int
    share: float
    """Of the rate of the link."""
    reserved_bytes: int
    """Sent within it."""
    excess_bytes: int


class LinkReservationsView(View, frozen=True, kw_only=True):
    """Reserved rates of the link to a neighbour, in this direction."""

    peer: str
    rate: float | None
    """Bytes per second; None: unknown, so that nothing can be reserved."""
    capacity: int
    """Bytes per second that may be reserved."""
    promised: int
    flows: tuple[LinkFlowView, ...]


class ReservationsView(View, frozen=True, kw_only=True):
    advertised: tuple[AdvertisedView, ...]
    reservations: tuple[ReservationView, ...]
    links: tuple[LinkReservationsView, ...]
    refused_messages: int
    """Invalid RSVP messages of neighbours."""
