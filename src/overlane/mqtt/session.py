"""A session: what the broker remembers of a client between its connections.

It lasts while the client is connected and, after that, for its expiry interval. With an interval it is durable: the
session itself, its subscriptions, how far they have come with what is retained, its queue, the identifiers of QoS 2
messages it has sent, and what `once` has to remember are records in the store.
"""

import msgspec

from overlane.core.events import Effect, Erase, Save
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.mqtt.agenda import Appointment
from overlane.mqtt.connection import Connection
from overlane.mqtt.once import Once
from overlane.mqtt.streamlog import StreamLog
from overlane.mqtt.subscriptions import Subscription
from overlane.mqtt.window import Window

SESSIONS = "mqtt.session"
SUBSCRIPTIONS = "mqtt.subscription"
RECEIVED = "mqtt.received"
PASTS = "mqtt.past"

FOR_EVER_S = 0xFFFF_FFFF


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """What `Session.saved` writes. In older records there is no headway: whatever waits may have been sent."""

    user: str | None
    expiry_s: int
    expires_ns: Nanos
    headway: int = NEVER


_encode = msgspec.msgpack.Encoder().encode
_decode_session = msgspec.msgpack.Decoder(_Stored).decode
_decode_subscription = msgspec.msgpack.Decoder(tuple[str, str, int, bool, bool, int, int, bool]).decode


class Session:
    __slots__ = (
        "appointment",
        "client_id",
        "connection",
        "exchanged_in",
        "expires_ns",
        "expiry_s",
        "headway",
        "headway_in",
        "is_known",
        "is_operators",
        "known_in",
        "log",
        "once",
        "past",
        "received",
        "subscriptions",
        "user",
        "window",
    )

    def __init__(self, client_id: str, user: str | None, expiry_s: int) -> None:
        self.client_id = client_id
        self.user = user
        self.expiry_s = expiry_s
        self.connection: Connection | None = None
        self.expires_ns: Nanos = NEVER
        """When it ends, while nobody is connected."""
        self.appointment: Appointment | None = None
        """To end it then."""
        self.subscriptions: dict[str, Subscription] = {}
        self.past: dict[str, str] = {}
        """Subscriptions that have not got all retained messages yet, and the topic of the last one that they got."""
        self.window = Window()
        self.headway = 0
        """The sequence number up to which messages of the window may be sent, as the store is told ahead; while nobody
        is connected, up to which they were."""
        self.headway_in = 0
        """The turn in which it was told."""
        self.received: set[int] = set()
        """Packet identifiers of QoS 2 messages that came and are not released yet."""
        self.once = Once(self._key(b""))
        self.is_known = False
        """Whether the store has a record of it, or will have."""
        self.known_in = 0
        """The turn in which it was told."""
        self.exchanged_in = 0
        """The last turn in which it was told how far an exchange of QoS 2 has come, in either direction."""
        self.log: StreamLog | None = None
        """Where its messages go, if it stands for a stream and not for a client."""
        self.is_operators = False
        """Whether it stands for an operator, whose rights no rule limits."""

    @property
    def is_durable(self) -> bool:
        return self.expiry_s > 0

    def is_awaited(self, now: Nanos) -> bool:
        """Whether publishers wait for it where it falls behind: it is there, and answers."""
        return self.connection is not None and self.window.keeps_answering(now)

    def ends_ns(self, left_ns: Nanos) -> Nanos:
        return NEVER if self.expiry_s >= FOR_EVER_S else left_ns + self.expiry_s * SECOND

    def goes_ahead(self, sequence: int, turn: int) -> Effect:
        """Messages are about to be sent up to this sequence number."""
        self.headway, self.headway_in = sequence, turn
        return self.saved()

    # Records

    def saved(self) -> Effect:
        self.is_known = True
        value = self.user, self.expiry_s, self.expires_ns, self.headway
        return Save(SESSIONS, self.client_id.encode(), _encode(value))

    def saved_subscription(self, one: Subscription) -> Effect:
        value = (
            one.group,
            one.filter,
            one.qos,
            one.no_local,
            one.retain_as_published,
            one.identifier,
            one.deadline_ns,
            one.reliable,
        )
        return Save(SUBSCRIPTIONS, self._key(one.name.encode()), _encode(value))

    def erased_subscription(self, name: str) -> Effect:
        return Erase(SUBSCRIPTIONS, self._key(name.encode()))

    def saved_past(self, name: str) -> Effect:
        return Save(PASTS, self._key(name.encode()), self.past[name].encode())

    def erased_past(self, name: str) -> Effect:
        return Erase(PASTS, self._key(name.encode()))

    def saved_received(self, packet_id: int) -> Effect:
        return Save(RECEIVED, self._key(packet_id.to_bytes(2)), b"")

    def erased_received(self, packet_id: int) -> Effect:
        return Erase(RECEIVED, self._key(packet_id.to_bytes(2)))

    def erased(self) -> list[Effect]:
        """Everything but the queue, which the shelf knows."""
        if not self.is_known:
            return []
        self.is_known = False
        return [
            Erase(SESSIONS, self.client_id.encode()),
            *(self.erased_subscription(name) for name in self.subscriptions),
            *(self.erased_past(name) for name in self.past),
            *(self.erased_received(packet_id) for packet_id in sorted(self.received)),
            *self.once.erased(),
        ]

    def _key(self, rest: bytes) -> bytes:
        return self.client_id.encode() + b"\0" + rest


def restored(key: bytes, value: bytes) -> Session:
    stored = _decode_session(value)
    session = Session(key.decode(), stored.user, stored.expiry_s)
    session.expires_ns = stored.expires_ns
    session.headway = stored.headway
    session.is_known = True
    return session


def owner(key: bytes) -> tuple[str, bytes]:
    """Whose record it is, and what follows in the key."""
    client_id, _, rest = key.partition(b"\0")
    return client_id.decode(), rest


def restored_subscription(session: Session, name: str, value: bytes) -> Subscription:
    group, topic_filter, qos, no_local, as_published, identifier, deadline_ns, reliable = _decode_subscription(value)
    return Subscription(
        session, name, group, topic_filter, qos, no_local, as_published, identifier, deadline_ns, reliable
    )
