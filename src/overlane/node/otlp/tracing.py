"""Tracing: notes spans of sampled messages where they are published and where they are delivered.

Sampled is a message whose publisher says so in its `traceparent`, and one of so many others, by chance. The broker that
accepts it gives it a `traceparent` that names its own span, so that brokers that deliver it, and its subscribers, go on
with the same trace. A span of a delivery begins when the message was published, by its age: clocks of brokers need not
agree.

It stands in front of `Publishing.accept` and `Observing.delivered` of a broker that traces; another has neither.
"""

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from overlane.core.topics import matches
from overlane.core.units import MS, NEVER, Nanos
from overlane.node.otlp.spans import CONSUMER, PRODUCER, Span, Value
from overlane.node.otlp.trace_context import PROPERTY, TraceContext, context_of, new_trace, with_context
from overlane.pubsub.cluster.envelope import PROPERTIES, unpack
from overlane.pubsub.cluster.names import topic_of
from overlane.pubsub.contract.refused import PublicationRefused
from overlane.pubsub.message import Message
from overlane.pubsub.properties import encode_user_properties
from overlane.pubsub.publishing.accepted import Accepted
from overlane.pubsub.sessions.session import Session
from overlane.turn.turn import Delivered

_MARK = PROPERTY.encode()


class Tracing:
    """`wall`: nanoseconds since 1970."""

    def __init__(
        self,
        broker: str,
        sample: float,
        filters: Sequence[str],
        note: Callable[[Span], None],
        wall: Callable[[], Nanos],
        luck: Random | None = None,
    ) -> None:
        self._broker = broker
        self._sample = sample
        self._filters = filters
        self._note = note
        self._wall = wall
        self._luck = luck or Random()

    def traced(self, topic: str) -> bool:
        """Whether messages of this topic may be sampled."""
        return not topic.startswith("$") and any(matches(one, topic) for one in self._filters)

    # Published

    def accepting(self, accept: Callable[..., Accepted]) -> Callable[..., Accepted]:
        """`Publishing.accept`, with spans of those messages that are sampled."""

        def traced_accept(
            message: Message,
            session: Session,
            user_properties: Sequence[tuple[str, str]],
            now: Nanos,
            *args: Any,
            **more: Any,
        ) -> Accepted:
            if more.get("is_mediated") or not self.traced(message.topic):
                return accept(message, session, user_properties, now, *args, **more)
            parent = context_of(user_properties)
            context = self._sampled(parent)
            if context is None:
                return accept(message, session, user_properties, now, *args, **more)
            began_ns = self._wall()
            _mark(message, context)
            pairs, error = with_context(user_properties, context), ""
            try:
                return accept(message, session, pairs, now, *args, **more)
            except PublicationRefused as refused:
                error = refused.told
                raise
            finally:
                self._published(message, session, context, parent, began_ns, error)

        return traced_accept

    def _sampled(self, parent: TraceContext | None) -> TraceContext | None:
        """The context of a message that is sampled. What its publisher has decided holds."""
        if parent is not None:
            return parent.child(self._luck) if parent.is_sampled else None
        return new_trace(self._luck) if self._luck.random() < self._sample else None

    def _published(
        self,
        message: Message,
        session: Session,
        context: TraceContext,
        parent: TraceContext | None,
        began_ns: Nanos,
        error: str,
    ) -> None:
        attributes = self._attributes(message.topic, "publish", len(message.payload))
        attributes["messaging.client.id"] = session.client_id
        attributes["overlane.qos"] = message.qos
        before = "" if parent is None else parent.span_id
        name = f"publish {message.topic}"
        self._note(Span(context, before, name, PRODUCER, began_ns, self._wall(), attributes, error))

    # Delivered

    def delivering(self, report: Callable[[Iterable[Delivered]], None]) -> Callable[[Iterable[Delivered]], None]:
        """`Observing.delivered`, with spans of messages from other brokers that are sampled."""

        def traced_report(delivered: Iterable[Delivered]) -> None:
            delivered = list(delivered)
            for one in delivered:
                for topic, flags, body in one[0].messages:
                    if flags & PROPERTIES and _MARK in body:
                        self._delivered(one, topic, flags, body)
            report(delivered)

        return traced_report

    def _delivered(self, delivered: Delivered, name: str, flags: int, body: bytes) -> None:
        effect = delivered[0]
        topic, now_ns = topic_of(name) if name.startswith("$") else name, self._wall()
        if not effect.subscribers.get(name) or not self.traced(topic):
            return
        message = unpack(name, flags, body, 0)
        parent = context_of(message.properties.user_properties)
        if parent is None or not parent.is_sampled:
            return
        attributes = self._attributes(topic, "process", len(message.payload))
        attributes["overlane.origin"] = effect.origin
        attributes["overlane.age_ms"] = effect.age_ns / MS
        if effect.deadline_ns < NEVER:
            attributes["overlane.deadline_ms"] = effect.deadline_ns / MS
            attributes["overlane.in_time"] = effect.age_ns <= effect.deadline_ns
        context = parent.child(self._luck)
        self._note(
            Span(context, parent.span_id, f"deliver {topic}", CONSUMER, now_ns - effect.age_ns, now_ns, attributes)
        )

    def _attributes(self, topic: str, operation: str, size_bytes: int) -> dict[str, Value]:
        return {
            "messaging.system": "overlane",
            "messaging.destination.name": topic,
            "messaging.operation.type": operation,
            "messaging.message.body.size": size_bytes,
            "overlane.broker": self._broker,
        }


def _mark(message: Message, context: TraceContext) -> None:
    """Give a message that was just read its context. What its protocol wrote in front of it does not hold any more."""
    properties = message.properties
    others = properties._replace(user_properties=())
    before = len(message.encoded)
    message.encoded = others.encode() + encode_user_properties(with_context(properties.user_properties, context))
    message.size_bytes += len(message.encoded) - before
    message.head, message.head_version = b"", 0
