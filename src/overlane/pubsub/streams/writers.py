"""Writers: numbered batches of messages, each message published once however often its batch is sent.

A writer sends the messages of its batches in order, in any number of parts, each with the number of its batch and the
position of its first message in it. The broker stores the progress of each writer: (batch, messages of it). It skips
messages that were sent before. The progress becomes durable in the same transaction as the records of the messages, so
that after any failure of broker or writer both are there or neither.

    same batch, from a position already passed    the new messages are published
    a later batch, from its start                 it is published
    an earlier batch                              nothing: it was published
    anything else                                 a gap: refused

If there are too many writers, those unused for longest are removed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from overlane.core.events import Erase, Save
from overlane.core.records import Owner, OwnerKind, RecordKind, subscriber_name
from overlane.core.topics import BadTopic, check_topic
from overlane.core.units import Nanos
from overlane.errors import OverlaneError
from overlane.pubsub.contract.refused import STORE_FAILS, PublicationRefused
from overlane.pubsub.message import Message
from overlane.pubsub.publishing.publishing import Publishing
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.state import State

TABLE = "mqtt.writer"
IDENTIFIER = subscriber_name(OwnerKind.WRITER)
"""What the identifiers of writers begin with, as no client's does."""
WRITERS_FOR_EACH_STREAM = 100

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, int, int]).decode

WRITER_KIND = RecordKind(
    TABLE, lambda key: Owner(OwnerKind.WRITER, key.decode()), lambda key, value: (key.decode(), _decode(value))
)


class Gap(OverlaneError):
    """A part that does not follow what came before: what is wrong with it."""

    error_code = "OVL-116"


class Unpublishable(OverlaneError):
    """Nothing of a part was published, and why. `is_denied`: for want of rights."""

    error_code = "OVL-117"

    def __init__(self, told: str, is_denied: bool = False) -> None:
        super().__init__(told)
        self.is_denied = is_denied


@dataclass(frozen=True, slots=True)
class Note:
    """A message to be published."""

    topic: str
    payload: bytes
    qos: int
    retain: bool


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """`count`: messages of the batch that are published by now. `refused`: why no more are."""

    count: int
    refused: str = ""


class Writers:
    def __init__(self, state: State, publishing: Publishing) -> None:
        self._state = state
        self._publishing = publishing
        self._places: dict[str, tuple[int, int, Nanos]] = {}
        """By user and name: batch, messages of it, and when that was; whoever was silent for longest is the first."""

    def write(
        self, name: str, user: str | None, batch: int, start: int, notes: Sequence[Note], now: Nanos
    ) -> BatchOutcome:
        """`user` None: an operator."""
        session = Session(f"{IDENTIFIER}{name}", user, 0)
        session.is_operators = user is None
        self._check(session, notes)
        key = f"{user or ''}/{name}"
        last, count, _ = self._places.get(key, (-1, 0, 0))
        if batch < last:
            return BatchOutcome(start + len(notes))
        if batch > last:
            count = 0
        if start > count:
            raise Gap(f"a part from {start} on, where batch {batch} has come to {count}")
        if self._state.is_store_failing:
            return BatchOutcome(count, STORE_FAILS)
        refused = ""
        for note in notes[count - start :]:
            try:
                self._publish(session, note, now)
            except PublicationRefused as why:
                refused = why.told
                break
            count += 1
        self._remember(key, batch, count, now)
        return BatchOutcome(count, refused)

    def _check(self, session: Session, notes: Sequence[Note]) -> None:
        """Everything that would be as wrong at the next try."""
        limits = self._state.limits
        for note in notes:
            try:
                check_topic(note.topic)
            except BadTopic as bad:
                raise Unpublishable(str(bad)) from None
            if told := limits.too_long(note.topic):
                raise Unpublishable(told)
            if note.topic.count("/") >= limits.filter_levels:
                raise Unpublishable(f"a topic of more than {limits.filter_levels} levels")
            if not 0 <= note.qos <= 2:
                raise Unpublishable(f"qos {note.qos}: allowed are 0, 1 and 2")
            if len(note.payload) + len(note.topic.encode()) > limits.packet_bytes:
                raise Unpublishable(f"a message on {note.topic[:60]} of more than {limits.packet_bytes} bytes")
            if not self._state.may_publish(session, note.topic):
                raise Unpublishable(f"not allowed to publish on {note.topic[:100]}", is_denied=True)

    def _publish(self, session: Session, note: Note, now: Nanos) -> None:
        message = Message(note.topic, note.payload, note.qos, note.retain, b"", session.client_id, now)
        self._publishing.accept(message, session, (), now)
        self._state.counters.messages_in += 1
        stats = self._state.stats(note.topic)
        stats.messages += 1
        stats.bytes += len(note.payload)

    def _remember(self, key: str, batch: int, count: int, now: Nanos) -> None:
        self._places.pop(key, None)
        self._places[key] = batch, count, now
        self._state.batch.add(Save(TABLE, key.encode(), _encode((batch, count, now))))
        while len(self._places) > max(1, self._state.limits.streams) * WRITERS_FOR_EACH_STREAM:
            silent = next(iter(self._places))
            del self._places[silent]
            self._state.batch.add(Erase(TABLE, silent.encode()))

    # Recovery

    def restore(self, key: bytes, value: bytes) -> None:
        self._places[key.decode()] = _decode(value)

    def recovered(self) -> None:
        self._places = dict(sorted(self._places.items(), key=lambda item: item[1][2]))
