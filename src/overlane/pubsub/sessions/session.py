"""A session: the state of a client between its connections.

It lasts while the client is connected and, after that, for its expiry interval. With an interval it is durable: the
session itself, its subscriptions, the progress of their retained replay, its queue, the identifiers of QoS 2 messages
it has sent, and the state of deduplication are records in the store.
"""

from typing import NamedTuple

import msgspec

from overlane.core.events import Erase, RecordChange, Save
from overlane.core.records import Owner, OwnerKind, RecordKind
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.pubsub.contract.consumer import Consumer
from overlane.pubsub.delivery.window import Window
from overlane.pubsub.policies.policy import NO_REQUEST, Request
from overlane.pubsub.publishing.qos_override import QosOverride
from overlane.pubsub.reservations.request import ReservationRequest
from overlane.pubsub.sessions import deduplication
from overlane.pubsub.sessions.deduplication import Deduplication
from overlane.pubsub.streams.log import StreamLog
from overlane.pubsub.subscriptions.table import Subscription
from overlane.pubsub.timers import Timer
from overlane.selectors import Selector

SESSIONS = "mqtt.session"
SUBSCRIPTIONS = "mqtt.subscription"
RECEIVED = "mqtt.received"
REPLAYS = "mqtt.past"

FOR_EVER_S = 0xFFFF_FFFF


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """What `Session.saved` writes. In older records there is no headway: whatever waits may have been sent. Nor do they
    say when the session was claimed: one elsewhere that does is later. `publishes_as` "": as itself."""

    user: str | None
    expiry_s: int
    expires_ns: Nanos
    headway: int = NEVER
    claimed_ns: Nanos = 0
    publishes_as: str = ""


_encode = msgspec.msgpack.Encoder().encode
_decode_session = msgspec.msgpack.Decoder(_Stored).decode


class _StoredSubscription(NamedTuple):
    group: str
    filter: str
    qos: int
    no_local: bool
    retain_as_published: bool
    identifier: int
    deadline_ns: Nanos
    reliable: bool
    strict: bool = False
    where: str = ""
    is_standby: bool = False
    reserve: str = ""
    lease_ns: Nanos = NEVER
    period_ns: Nanos = NEVER
    is_exclusive: bool | None = None


_decode_subscription = msgspec.msgpack.Decoder(_StoredSubscription).decode


class Session:
    __slots__ = (
        "_deduplication",
        "claimed_ns",
        "client_id",
        "consumer",
        "exchanged_in",
        "expires_ns",
        "expiry_s",
        "headway",
        "headway_in",
        "is_known",
        "is_operators",
        "known_in",
        "log",
        "publishes_as",
        "received",
        "replays",
        "subscriptions",
        "timer",
        "user",
        "window",
    )

    def __init__(self, client_id: str, user: str | None, expiry_s: int) -> None:
        self.client_id = client_id
        self.publishes_as = client_id
        """The session whose messages are its own (`no_local`): of a link of AMQP, that of its connection."""
        self.user = user
        self.expiry_s = expiry_s
        self.consumer: Consumer | None = None
        """Its connection, while the client is there."""
        self.claimed_ns: Nanos = 0
        """When a client last connected to it: of several sessions in a domain the latest counts."""
        self.expires_ns: Nanos = NEVER
        """When it ends, while the client is not connected."""
        self.timer: Timer | None = None
        """To end it then."""
        self.subscriptions: dict[str, Subscription] = {}
        self.replays: dict[str, str] = {}
        """Subscriptions that have not got all retained messages yet, and the topic of the last one that they got."""
        self.window = Window()
        self.headway = 0
        """The sequence number up to which messages of the window may be sent, as the store is told ahead; while nobody
        is connected, up to which they were."""
        self.headway_in = 0
        """The turn in which it was told."""
        self.received: dict[int, None] = {}
        """The publisher's identifiers of QoS 2 messages that came and are not released yet."""
        self._deduplication: Deduplication | None = None
        self.is_known = False
        """Whether the store has a record of it, or will have."""
        self.known_in = 0
        """The turn in which it was told."""
        self.exchanged_in = 0
        """The last turn in which the client was sent the state of a QoS 2 exchange, in either direction."""
        self.log: StreamLog | None = None
        """Where its messages go, if it stands for a stream and not for a client."""
        self.is_operators = False
        """Whether it stands for an operator, whose rights no rule limits."""

    @property
    def deduplication(self) -> Deduplication:
        """Made for the first who asks: most clients promise nothing."""
        if self._deduplication is None:
            self._deduplication = Deduplication(self._key(b""))
        return self._deduplication

    @property
    def promises_once(self) -> bool:
        """Whether its client was promised that each of its QoS 1 messages is accepted once."""
        return self._deduplication is not None and self._deduplication.is_promised

    @property
    def is_durable(self) -> bool:
        return self.expiry_s > 0

    def ends_ns(self, left_ns: Nanos) -> Nanos:
        return NEVER if self.expiry_s >= FOR_EVER_S else left_ns + self.expiry_s * SECOND

    def goes_ahead(self, sequence: int, turn: int) -> RecordChange:
        """Messages are about to be sent up to this sequence number."""
        self.headway, self.headway_in = sequence, turn
        return self.saved()

    # Records

    def saved(self) -> RecordChange:
        self.is_known = True
        value = (self.user, self.expiry_s, self.expires_ns, self.headway, self.claimed_ns)
        if self.publishes_as != self.client_id:
            return Save(SESSIONS, self.client_id.encode(), _encode((*value, self.publishes_as)))
        return Save(SESSIONS, self.client_id.encode(), _encode(value))

    def saved_subscription(self, one: Subscription) -> RecordChange:
        value = (
            one.group,
            one.filter,
            one.qos,
            one.no_local,
            one.retain_as_published,
            one.identifier,
            *one.override[:3],
            *_stored_more(one),
        )
        return Save(SUBSCRIPTIONS, self._key(one.name.encode()), _encode(value))

    def erased_subscription(self, name: str) -> RecordChange:
        return Erase(SUBSCRIPTIONS, self._key(name.encode()))

    def saved_replay(self, name: str) -> RecordChange:
        return Save(REPLAYS, self._key(name.encode()), self.replays[name].encode())

    def erased_replay(self, name: str) -> RecordChange:
        return Erase(REPLAYS, self._key(name.encode()))

    def saved_received(self, identifier: int) -> RecordChange:
        return Save(RECEIVED, self._key(identifier.to_bytes(2)), b"")

    def erased_received(self, identifier: int) -> RecordChange:
        return Erase(RECEIVED, self._key(identifier.to_bytes(2)))

    def erased(self) -> list[RecordChange]:
        """Everything but the queue (`delivery.queue_records`)."""
        if not self.is_known:
            return []
        self.is_known = False
        return [
            Erase(SESSIONS, self.client_id.encode()),
            *(self.erased_subscription(name) for name in self.subscriptions),
            *(self.erased_replay(name) for name in self.replays),
            *(self.erased_received(identifier) for identifier in sorted(self.received)),
            *self.deduplication.erased(),
        ]

    def _key(self, rest: bytes) -> bytes:
        return self.client_id.encode() + b"\0" + rest


def restored(key: bytes, value: bytes) -> Session:
    stored = _decode_session(value)
    session = Session(key.decode(), stored.user, stored.expiry_s)
    session.expires_ns = stored.expires_ns
    session.headway = stored.headway
    session.claimed_ns = stored.claimed_ns
    session.publishes_as = stored.publishes_as or session.client_id
    session.is_known = True
    return session


def owner(key: bytes) -> tuple[str, bytes]:
    """Whose record it is, and what follows in the key."""
    client_id, separator, rest = key.partition(b"\0")
    if not separator:
        raise ValueError("a key without a client")
    return client_id.decode(), rest


def part_owner(key: bytes) -> Owner:
    return Owner(OwnerKind.SESSION, owner(key)[0])


def _read_subscription(key: bytes, value: bytes) -> tuple[str, _StoredSubscription]:
    return owner(key)[1].decode(), _decode_subscription(value)


def restored_identifier(rest: bytes) -> int:
    if len(rest) != 2:
        raise ValueError(f"an identifier of {len(rest)} bytes")
    return int.from_bytes(rest)


SESSION_KIND = RecordKind(SESSIONS, lambda key: Owner(OwnerKind.SESSION, key.decode()), restored)
SUBSCRIPTION_KIND = RecordKind(SUBSCRIPTIONS, part_owner, _read_subscription)
RECEIVED_KIND = RecordKind(RECEIVED, part_owner, lambda key, _: restored_identifier(owner(key)[1]))
DEDUPLICATION_KIND = RecordKind(
    deduplication.TABLE, part_owner, lambda key, value: deduplication.read(owner(key)[1], value)
)
REPLAY_KIND = RecordKind(REPLAYS, part_owner, lambda key, value: (owner(key)[1].decode(), value.decode()))


def restored_subscription(session: Session, name: str, value: bytes) -> Subscription:
    stored = _decode_subscription(value)
    where = Selector.parse(stored.where) if stored.where else None
    return Subscription(
        session,
        name,
        *stored[:6],
        override=QosOverride(*stored[6:9]),
        where=where,
        is_local=stored.is_standby,
        is_standby=stored.is_standby,
        reserve=ReservationRequest.decode(stored.reserve) if stored.reserve else None,
        request=Request(stored.lease_ns, stored.period_ns, stored.is_exclusive),
    )


def _stored_more(one: Subscription) -> tuple[object, ...]:
    """Content filter, whether it stands by, reservation and request, as far as there are any."""
    where = "" if one.where is None else one.where.text
    reserve = "" if one.reserve is None else one.reserve.encode()
    if one.request != NO_REQUEST:
        return (where, one.is_standby, reserve, *one.request)
    if reserve:
        return (where, one.is_standby, reserve)
    if one.is_standby:
        return (where, True)
    return (where,) if where else ()
