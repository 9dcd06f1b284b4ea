"""Mediating: rules of mediation for messages of clients, and messages that wait for rules.

The rules are applied before any other processing of a message, so a dropped message reaches neither local subscribers
nor other brokers. Its acknowledgement waits for the usual records: those of the rules' result, its dead letter if a
rule has failed, or the message itself if it has to wait, for the end of an interval or for a function.

    accept --- passed ----> accepted as if it had come like that
           --- dropped ---> acknowledged, and nothing else
           --- failed ----> a dead letter
           --- held ------> waits: until its time, or until a later one of its topic takes its place
           --- called ----> waits: until its function has returned, or failed

A message of QoS 1 or 2 that waits is a record, erased in the same turn in which its result is stored: after a crash it
continues from there. The number of waiting messages is limited; beyond that publishers are refused, and QoS 0 is
dropped.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

import msgspec

from overlane.core.events import Erase, Save
from overlane.core.records import THE_BROKER, RecordKind, numbers_in
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.mediation.draft import Draft
from overlane.mediation.functions import FunctionMessage
from overlane.mediation.mediation import (
    Called,
    Dropped,
    Failed,
    Held,
    Key,
    Mediation,
    Memory,
    Passed,
    Result,
    Resume,
    RuleStage,
)
from overlane.pubsub.contract.consumer import Publisher
from overlane.pubsub.contract.questions import CallFunction
from overlane.pubsub.contract.refused import STORE_FAILS, PublicationRefused, RequestFault
from overlane.pubsub.counters import Drop, Refusal
from overlane.pubsub.delivery.delivery import Delivery
from overlane.pubsub.message import Message, restored
from overlane.pubsub.publishing.accepted import Accepted
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.state import State
from overlane.pubsub.timers import Timer

if TYPE_CHECKING:
    from overlane.pubsub.publishing.publishing import Publishing

TABLE = "mediation.waiting"

RETRY: Nanos = SECOND // 4
"""After this time a message is published again that could not be accepted when it had waited."""

FULL = "too many messages wait for mediation; try again"


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    rule: str
    stage: str
    due_ns: Nanos
    message: bytes


@dataclass(slots=True)
class _Waiting:
    number: int
    message: Message
    resume: Resume
    due_ns: Nanos = NEVER
    timer: Timer | None = None
    is_stored: bool = False
    is_done: bool = False
    """Its rules are done with, and it could not be accepted yet."""


class Mediating:
    def __init__(self, state: State, publishing: "Publishing", delivery: Delivery) -> None:
        self._state = state
        self._publishing = publishing
        self._delivery = delivery
        self._memory = Memory()
        self._waiting: dict[int, _Waiting] = {}
        self._latest: dict[Key, int] = {}
        """The message of each topic that waits for the end of an interval."""
        self._bytes = 0
        self._number = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def reconfigured(self) -> None:
        mediation = self._state.settings.mediation
        self._memory.forget(() if mediation is None else mediation.names)

    # Messages of clients

    def accept(
        self, message: Message, session: Session, now: Nanos, publisher: Publisher | None, is_will: bool
    ) -> Accepted:
        """As `Publishing.accept`, of a message that its client may publish and that rules are for."""
        draft = _draft(message)
        result = self._rules.run(draft, self._memory, now)
        accepted = self._accept(message, draft, result, session, now, publisher, is_will)
        self._memory.apply(result.changes)
        self._state.counters.mediated += 1
        return accepted

    def _accept(
        self,
        message: Message,
        draft: Draft,
        result: Result,
        session: Session,
        now: Nanos,
        publisher: Publisher | None,
        is_will: bool,
    ) -> Accepted:
        match result:
            case Passed():
                changed = message if result.draft is draft else self._message(message, result.draft)
                if isinstance(changed, str):
                    return self._dead(message, session.client_id, changed, now)
                pairs = result.draft.properties
                accepted = self._publishing.accept(changed, session, pairs, now, publisher, is_will, is_mediated=True)
                return accepted._replace(is_mediated=True)
            case Dropped():
                self._state.counters.mediation_dropped += 1
                return _ACCEPTED
            case Failed(rule, reason):
                return self._dead(message, session.client_id, f"rule {rule}: {reason}", now)
            case Held() | Called():
                changed = self._message(message, result.draft)
                if isinstance(changed, str):
                    return self._dead(message, session.client_id, changed, now)
                return self._wait(changed, result, now)
            case _:
                assert_never(result)

    def _wait(self, message: Message, result: Held | Called, now: Nanos) -> Accepted:
        state, limits = self._state, self._state.limits
        replaced = self._latest.get((result.rule, message.topic)) if isinstance(result, Held) else None
        is_full = len(self._waiting) >= limits.queue_messages or self._bytes + message.size_bytes > limits.queue_bytes
        if is_full and replaced is None:
            if message.qos:
                raise PublicationRefused(RequestFault.NO_ROOM, Refusal.BUSY, FULL)
            state.counters.dropped[Drop.QUEUE_FULL] += 1
            return _ACCEPTED
        if message.qos and state.is_store_failing:
            raise PublicationRefused(RequestFault.NO_ROOM, Refusal.STORE, STORE_FAILS)
        if replaced is not None:
            self._end(self._waiting[replaced])
            state.counters.mediation_dropped += 1
        self._number += 1
        waiting = _Waiting(self._number, message, _resume(result))
        self._waiting[waiting.number] = waiting
        self._bytes += message.size_bytes
        self._begin(waiting, result, now)
        crowding = len(self._waiting) / limits.queue_messages
        return Accepted(True, waiting.is_stored, crowding, is_mediated=True)

    def _begin(self, waiting: _Waiting, result: Held | Called, now: Nanos) -> None:
        """It waits from now on for this."""
        waiting.resume = _resume(result)
        waiting.due_ns = result.until_ns if isinstance(result, Held) else NEVER
        if waiting.message.qos:
            waiting.is_stored = True
            self._state.batch.add(_saved(waiting))
        self._watch(waiting, result.function if isinstance(result, Called) else "", now)

    def _watch(self, waiting: _Waiting, function: str, now: Nanos) -> None:
        if waiting.resume.stage is RuleStage.HELD:
            self._latest[waiting.resume.rule, waiting.message.topic] = waiting.number
            self._set_timer(waiting, max(now, waiting.due_ns))
        elif function:
            within_ns = next(one.call_within_ns for one in self._rules.rules if one.name == waiting.resume.rule)
            given = _given(waiting.message)
            self._state.questions.append(CallFunction(waiting.number, function, within_ns, given))
        else:
            self._set_timer(waiting, now)  # its rule is not there any more

    def _set_timer(self, waiting: _Waiting, at_ns: Nanos) -> None:
        client = waiting.message.sender
        waiting.timer = self._state.timers.at(
            at_ns,
            lambda now: self._due(waiting, now),
            lambda error: self._state.failed("mediation", client, error),
        )

    # Messages that have waited

    def _due(self, waiting: _Waiting, now: Nanos) -> None:
        waiting.timer = None
        if waiting.is_done:
            self._publish(waiting, waiting.message, now)
            return
        key = waiting.resume.rule, waiting.message.topic
        every_ns = self._rules.window_ns(waiting.resume.rule)
        self._go_on(waiting, waiting.message, now)
        if every_ns and waiting.resume.stage is RuleStage.HELD and key not in self._latest:
            self._memory.windows[key] = now + every_ns

    def returned(self, number: int, message: FunctionMessage | None, failure: str, now: Nanos) -> None:
        """A function has returned what becomes of a message (None: nothing), or has failed."""
        waiting = self._waiting.get(number)
        if waiting is None or waiting.resume.stage is not RuleStage.CALLED or waiting.is_done:
            return
        if failure:
            self._dead(waiting.message, waiting.message.sender, f"rule {waiting.resume.rule}: {failure}", now)
            self._end(waiting)
        elif message is None:
            self._state.counters.mediation_dropped += 1
            self._end(waiting)
        else:
            draft = _draft(waiting.message)
            draft.topic, draft.payload, draft.content_type = message.topic, message.payload, message.content_type
            draft.properties = tuple((name, value) for name, value in message.properties)
            changed = self._message(waiting.message, draft)
            if isinstance(changed, str):
                self._dead(waiting.message, waiting.message.sender, f"rule {waiting.resume.rule}: {changed}", now)
                self._end(waiting)
            else:
                self._go_on(waiting, changed, now)

    def _go_on(self, waiting: _Waiting, message: Message, now: Nanos) -> None:
        """Through the rest of the rules."""
        if waiting.resume.stage is RuleStage.HELD:
            self._latest.pop((waiting.resume.rule, waiting.message.topic), None)
        draft = _draft(message)
        result = self._rules.run(draft, self._memory, now, waiting.resume)
        self._memory.apply(result.changes)
        match result:
            case Passed():
                changed = self._message(message, result.draft)
                if isinstance(changed, str):
                    self._dead(message, message.sender, changed, now)
                    self._end(waiting)
                else:
                    self._publish(waiting, changed, now)
            case Dropped():
                self._state.counters.mediation_dropped += 1
                self._end(waiting)
            case Failed(rule, reason):
                self._dead(message, message.sender, f"rule {rule}: {reason}", now)
                self._end(waiting)
            case Held() | Called():
                changed = self._message(message, result.draft)
                if isinstance(changed, str):
                    self._dead(message, message.sender, changed, now)
                    self._end(waiting)
                    return
                if isinstance(result, Held) and (other := self._latest.get((result.rule, changed.topic))) is not None:
                    self._end(self._waiting[other])
                self._bytes += changed.size_bytes - waiting.message.size_bytes
                waiting.message = changed
                self._begin(waiting, result, now)
            case _:
                assert_never(result)

    def _publish(self, waiting: _Waiting, message: Message, now: Nanos) -> None:
        state = self._state
        if message.is_expired(now):
            state.counters.dropped[Drop.EXPIRED] += 1
            self._end(waiting)
            return
        speaker = Session(message.sender, None, 0)
        pairs = message.properties.user_properties
        try:
            self._publishing.accept(message, speaker, pairs, now, is_mediated=True)
        except PublicationRefused as refused:
            if not message.qos or refused.fault is not RequestFault.NO_ROOM:
                self._dead(message, message.sender, refused.told, now)
                self._end(waiting)
                return
            self._bytes += message.size_bytes - waiting.message.size_bytes
            waiting.message, waiting.is_done = message, True
            self._set_timer(waiting, now + RETRY)
            return
        self._end(waiting)

    def _end(self, waiting: _Waiting) -> None:
        """Nothing is kept of it any more."""
        del self._waiting[waiting.number]
        self._bytes -= waiting.message.size_bytes
        self._state.timers.cancel(waiting.timer)
        key = waiting.resume.rule, waiting.message.topic
        if self._latest.get(key) == waiting.number:
            del self._latest[key]
        if waiting.is_stored:
            self._state.batch.add(Erase(TABLE, waiting.number.to_bytes(8)))

    # Recovery

    def restore(self, key: bytes, value: bytes) -> None:
        [number] = numbers_in(key, 1)
        stored = _decode(value)
        resume = Resume(stored.rule, RuleStage(stored.stage))
        waiting = _Waiting(number, restored(stored.message), resume, stored.due_ns, is_stored=True)
        self._waiting[number] = waiting
        self._bytes += waiting.message.size_bytes
        self._number = max(self._number, number)

    def recovered(self, now: Nanos) -> None:
        functions = {one.name: one.call for one in self._rules.rules}
        for number in sorted(self._waiting):
            waiting = self._waiting[number]
            self._watch(waiting, functions.get(waiting.resume.rule, ""), now)

    # Parts

    @property
    def _rules(self) -> Mediation:
        return self._state.settings.mediation or _NO_RULES

    def _message(self, message: Message, draft: Draft) -> Message | str:
        """The message as rules have changed it, or why there cannot be such a message."""
        limits = self._state.limits
        try:
            encoded = message.properties._replace(
                content_type=draft.content_type, is_text=draft.is_text, user_properties=draft.properties
            ).encode()
        except ValueError as wrong:
            return str(wrong)
        changed = Message(
            draft.topic,
            draft.payload,
            message.qos,
            message.retain,
            encoded,
            message.sender,
            message.published_ns,
            message.expires_ns,
        )
        if told := limits.too_long(changed.topic):
            return told
        if changed.topic.startswith("$") or changed.topic.count("/") >= limits.filter_levels:
            return f"the topic {changed.topic[:60]} cannot be published on"
        if len(draft.properties) > limits.user_properties:
            return f"{len(draft.properties)} user properties; at most {limits.user_properties} are allowed"
        if changed.size_bytes > limits.packet_bytes:
            return f"a message of {changed.size_bytes} bytes; at most {limits.packet_bytes} are allowed"
        return changed

    def failed_at_border(self, message: Message, reason: str, now: Nanos) -> None:
        """A rule at a border has failed for a message, which does not cross it."""
        self._dead(message, message.sender, reason, now)

    def _dead(self, message: Message, client_id: str, reason: str, now: Nanos) -> Accepted:
        self._state.counters.mediation_failed += 1
        is_stored = self._delivery.dead(Session(client_id, None, 0), message, Drop.MEDIATION, now, reason)
        return _ACCEPTED._replace(is_stored=is_stored)


_NO_RULES = Mediation(())
_ACCEPTED = Accepted(True, False, 0.0, is_mediated=True)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Stored).decode


def _draft(message: Message) -> Draft:
    properties = message.properties
    return Draft(
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        properties.content_type,
        properties.is_text,
        properties.user_properties,
    )


def _given(message: Message) -> FunctionMessage:
    properties = message.properties
    return FunctionMessage(
        topic=message.topic,
        payload=message.payload,
        qos=message.qos,
        retain=message.retain,
        content_type=properties.content_type,
        properties=list(properties.user_properties),
    )


def _resume(result: Held | Called) -> Resume:
    return Resume(result.rule, RuleStage.HELD if isinstance(result, Held) else RuleStage.CALLED)


def _saved(waiting: _Waiting) -> Save:
    stored = _Stored(waiting.resume.rule, waiting.resume.stage.value, waiting.due_ns, waiting.message.stored())
    return Save(TABLE, waiting.number.to_bytes(8), _encode(stored))


MEDIATION_KIND = RecordKind(TABLE, lambda _: THE_BROKER, lambda key, value: (numbers_in(key, 1), _decode(value)))
"""Messages that wait for mediation."""
