"""A protocol that is none: consumers that keep what they take in a list, on a publish/subscribe service of their own.

Nothing here imports `overlane.mqtt` or a library of a protocol, and no packet is made.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from overlane.core.events import Effect, Erase, Save
from overlane.core.records import Record
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.pubsub.cluster.uplink import Alone, Uplink
from overlane.pubsub.contract.consumer import Ending, Peer
from overlane.pubsub.delivery.window import Entry
from overlane.pubsub.limits import Limits
from overlane.pubsub.message import Message
from overlane.pubsub.properties import Properties
from overlane.pubsub.publishing.accepted import Accepted
from overlane.pubsub.service import PubSub
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.sessions.wills import Will
from overlane.pubsub.state import Settings
from overlane.pubsub.subscriptions.subscribing import SubscriptionRequest, Unsubscribed


class Taken(NamedTuple):
    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    again: bool = False


@dataclass(eq=False)
class Inbox:
    """A consumer and publisher. It acknowledges by hand: `acknowledge` for QoS 1, `receive` and `forget` for QoS 2."""

    service: "Service"
    session: Session | None = None
    peer: Peer = field(default_factory=lambda: Peer("nowhere", listener="in memory"))
    taken: list[Taken] = field(default_factory=list)
    properties: list[Properties] = field(default_factory=list)
    tags: list[int] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    ended: Ending | None = None
    closing: str | None = None
    waits: bool = False
    unread_bytes: int = 0
    unanswerable_until_ns: Nanos = 0
    message_bytes_max: int = 10_000
    stops_for: Hashable = None
    stops_until_ns: Nanos = 0
    waits_on: bool = False
    passes: bool = False
    keep_alive_ns: Nanos = NEVER

    # As a consumer

    @property
    def backlog_bytes(self) -> int:
        return self.unread_bytes

    def keeps_reading(self, now: Nanos) -> bool:  # noqa: ARG002
        return not self.unread_bytes

    def take_run(self, entries: Sequence[Entry]) -> bool:  # noqa: ARG002
        return False

    def take(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],  # noqa: ARG002
        now: Nanos,  # noqa: ARG002
        tag: int = 0,
        again: bool = False,
    ) -> bool:
        if len(message.payload) > self.message_bytes_max:
            return False
        self.taken.append(Taken(message.topic, message.payload, qos, retain, again))
        self.properties.append(message.properties)
        if qos:
            self.tags.append(tag)
        return True

    def release(self, tag: int) -> None:
        self.released.append(tag)

    def end(self, ending: Ending, why: str) -> None:
        if self.ended is None:
            self.ended, self.closing = ending, why

    # What its client does

    @property
    def its(self) -> Session:
        assert self.session is not None
        return self.session

    def subscribe(self, name: str, qos: int = 0) -> None:
        pubsub, now = self.service.pubsub, self.service.now
        subscription, is_replayed = pubsub.subscribing.subscribe(self.its, SubscriptionRequest(name, qos), now)
        if is_replayed:
            pubsub.subscribing.replay(self.its, self, subscription, now)
        self.service.end_turn()

    def unsubscribe(self, name: str) -> Unsubscribed:
        outcome = self.service.pubsub.subscribing.unsubscribe(self.its, name, True, self.service.now)
        self.service.end_turn()
        return outcome

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
        identifier: int = 0,
    ) -> Accepted:
        encoded = b"" if properties is None else properties.encode()
        pairs = () if properties is None else properties.user_properties
        message = Message(topic, payload, qos, retain, encoded, self.its.client_id, self.service.now)
        publishing = self.service.pubsub.publishing
        accepted = publishing.publish(message, self.its, identifier, pairs, self, self.service.now)
        self.service.end_turn()
        return accepted

    def acknowledge(self, tag: int) -> bool:
        done = self.service.pubsub.delivery.acknowledged(self.its, self, tag, self.service.now)
        self.service.end_turn()
        return done

    def receive(self, tag: int, is_refused: bool = False) -> bool:
        known = self.service.pubsub.delivery.received(self.its, self, tag, is_refused, self.service.now)
        self.service.end_turn()
        return known

    def forget(self, tag: int) -> bool:
        done = self.service.pubsub.delivery.completed(self.its, self, tag, self.service.now)
        self.service.end_turn()
        return done

    def leave(self, with_will: bool = False) -> None:
        self.service.pubsub.state.connections.discard(self)
        self.service.pubsub.sessions.leave(self, with_will, self.service.now)
        self.service.end_turn()

    def take_all(self) -> list[Taken]:
        taken, self.taken = self.taken, []
        return taken


class Service:
    def __init__(
        self,
        records: Iterable[Record] = (),
        now: Nanos = SECOND,
        limits: Limits | None = None,
        uplink: Uplink | None = None,
    ) -> None:
        self.now = now
        self.records: dict[tuple[str, bytes], bytes] = {(table, key): value for table, key, value in records}
        settings = Settings(limits=limits or Limits())
        self.pubsub = PubSub("here", settings, uplink or Alone(), lambda: "fresh", records, now)
        self.end_turn()

    def connect(self, client_id: str, expiry_s: int = 0, will: Will | None = None, receive_max: int = 10) -> Inbox:
        """A session for a client, taken over if somebody has it."""
        inbox = Inbox(self)
        session = self.pubsub.sessions.claim(client_id, None, False, expiry_s, self.now).session
        inbox.session, session.consumer = session, inbox
        session.window.receive_max = receive_max
        self.pubsub.state.connections.add(inbox)
        self.pubsub.wills.connected(session, will)
        self.pubsub.sessions.resume(session, inbox, self.now)
        self.end_turn()
        return inbox

    def end_turn(self) -> None:
        """The records are on disk at once."""
        for effect in self.pubsub.take_records():
            self._write(effect)
        self.pubsub.durable(self.pubsub.state.turn - 1, self.now)

    def _write(self, effect: Effect) -> None:
        match effect:
            case Save(table, key, value):
                self.records[table, key] = value
            case Erase(table, key):
                self.records.pop((table, key), None)
            case _:
                raise AssertionError(effect)

    def run(self, duration_ns: Nanos) -> None:
        until = self.now + duration_ns
        while (due := self.pubsub.next_deadline()) <= until:
            self.now = max(self.now, due)
            self.pubsub.tick(self.now)
            self.end_turn()
        self.now = until

    def restarted(self) -> "Service":
        return Service([(table, key, value) for (table, key), value in self.records.items()], self.now)
