"""State of clients at a broker: sessions, connections, subscriptions, and published topics."""

from overlane.adminapi.views.broker import QueuesView, TrafficView
from overlane.adminapi.views.view import View


class ConnectionView(View, frozen=True, kw_only=True):
    address: str
    listener: str
    via: str | None = None
    """The broker that forwards the connection of the client, if any."""
    protocol: str = "MQTT"
    version: str
    """Of the protocol."""
    is_secure: bool
    connected_s: float
    silent_s: float
    keep_alive_s: float | None
    """The client is disconnected after this time without a packet."""
    traffic: TrafficView
    unsent_bytes: int
    """Bytes queued for the client."""


class ClientView(View, frozen=True, kw_only=True):
    """A session, and its connection if the client is connected."""

    id: str
    user: str | None
    connection: ConnectionView | None
    session_expiry_s: int
    expires_s: float | None
    """Time until the session expires; None while the client is connected, or if it never expires."""
    subscriptions: int
    queue: QueuesView


class SubscriptionView(View, frozen=True, kw_only=True):
    client: str
    filter: str
    group: str
    """Group of a shared subscription; empty for other subscriptions."""
    qos: int
    identifier: int
    no_local: bool
    retain_as_published: bool
    deadline_ms: float | None
    reliable: bool
    where: str = ""
    """Content filter; empty for subscriptions without one."""


class ClientDetail(View, frozen=True, kw_only=True):
    client: ClientView
    subscriptions: tuple[SubscriptionView, ...]


class TopicView(View, frozen=True, kw_only=True):
    """Messages and payload bytes published by clients of this broker on one topic."""

    topic: str
    messages: int
    bytes: int
    deadline_ms: float | None
    reliability: str
    is_retained: bool


class RetainedMessageView(View, frozen=True, kw_only=True):
    topic: str
    bytes: int
    """Of the payload."""
    qos: int
    age_s: float
    """Age since it was published, by the clock of the publisher's broker."""
    expires_s: float | None


class RetainedPage(View, frozen=True, kw_only=True):
    """By topic levels. `next`: value of `after` for the next page; None on the last page."""

    items: tuple[RetainedMessageView, ...]
    next: str | None


class RetainedRemoved(View, frozen=True, kw_only=True):
    """`has_more`: others match, beyond the limit of one request."""

    removed: int
    has_more: bool


class ClientPage(View, frozen=True, kw_only=True):
    """`total`: number of matches on all pages. `next`: value of `after` for the next page; None on the last page."""

    items: tuple[ClientView, ...]
    total: int
    next: str | None


class SubscriptionPage(View, frozen=True, kw_only=True):
    items: tuple[SubscriptionView, ...]
    total: int
    next: str | None


class TopicPage(View, frozen=True, kw_only=True):
    items: tuple[TopicView, ...]
    total: int
    next: str | None
