"""PUB and HPUB: messages of NATS clients.

A `verbose` client gets +OK when its message is accepted, and on disk if QoS 1 requires it: it publishes at QoS 1.
Others publish at QoS 0. The reply subject is the response topic of the message. If a request has no subscriber, the
broker answers with status 503, if the client has requested that.

A forbidden message is refused with -ERR, and the connection stays open. If a message of a verbose client could not be
stored, the connection is closed without +OK, so that the client publishes the message again: NATS has no other way to
report this.
"""

from functools import lru_cache

from overlane.core.units import Nanos
from overlane.nats.connection import OK, Connection
from overlane.nats.headers import NO_RESPONDERS, BadHeaders, read_headers
from overlane.nats.subjects import NAMES_KEPT, BadSubject, topic_of
from overlane.nats.violation import Violation
from overlane.pubsub.contract.refused import PublicationRefused, RequestFault
from overlane.pubsub.counters import Refusal
from overlane.pubsub.message import Message, expires
from overlane.pubsub.properties import NONE, Properties
from overlane.pubsub.publishing import backpressure
from overlane.pubsub.publishing.publishing import Publishing
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.state import State
from overlane.pubsub.subscriptions.table import SHARED

SUBJECT_SHOWN = 200


class PublishOperations:
    def __init__(self, state: State, publishing: Publishing) -> None:
        self._state = state
        self._publishing = publishing

    def publish(
        self, connection: Connection, session: Session, subject: bytes, reply: bytes, headers: bytes, payload: bytes,
        now: Nanos,
    ) -> None:  # fmt: skip
        """Violation; `backpressure.MustStop`, and nothing done, if the client has to stop first."""
        state, options = self._state, connection.options
        topic = read_topic(subject)
        if topic is None or state.limits.too_long(topic) or topic.count("/") >= state.limits.filter_levels:
            state.refuse(Refusal.PROTOCOL, f"subject {subject[:SUBJECT_SHOWN]!r} cannot be published on", connection)
            connection.complain("Invalid Publish Subject")
            return
        properties, expiry_s = self._properties(connection, reply, headers)
        qos = 1 if options.verbose else 0
        pairs = properties.user_properties
        if not qos and not pairs and self._publishing.must_stop(connection, topic, now):
            raise backpressure.MustStop
        connection.messages_in += 1
        state.counters.messages_in += 1
        stats = state.stats(topic)
        stats.messages += 1
        stats.bytes += len(payload)
        encoded = properties.encode() if properties is not NONE else b""
        message = Message(topic, payload, qos, False, encoded, session.client_id, now, expires(now, expiry_s))
        try:
            accepted = self._publishing.publish(message, session, 0, pairs, connection, now)
        except PublicationRefused as refused:
            self._refuse(connection, topic, subject, reply, refused)
            return
        if qos:
            connection.waits |= accepted.is_stored
            connection.acks_owed += 1
            connection.send(OK)
        is_for_nobody = not accepted.has_receivers or (not accepted.is_mediated and self._is_for_nobody(topic))
        if reply and options.no_responders and is_for_nobody:
            self._answer_for_nobody(connection, reply)
        if accepted.crowding > backpressure.CROWDED:
            rests_until_ns = now + backpressure.rest_ns(accepted.crowding)
            connection.rests_until_ns = max(connection.rests_until_ns, rests_until_ns)

    def _is_for_nobody(self, topic: str) -> bool:
        """Whether all who subscribe do so by a `>` that stands for one token more."""
        state = self._state
        audience = state.subscriptions.audience(topic)
        if audience.groups or state.cluster.directory.shared(topic) or state.uplink.carries(topic):
            return False
        return all(
            isinstance(one.session.consumer, Connection) and not one.session.consumer.wants(topic, one.identifiers)
            for one in audience.receivers
        )

    def _properties(self, connection: Connection, reply: bytes, headers: bytes) -> tuple[Properties, int | None]:
        if not reply and not headers:
            return NONE, None
        response_topic = read_topic(reply) if reply else None
        if reply and response_topic is None:
            raise Violation("Invalid Reply Subject", f"reply subject {reply[:SUBJECT_SHOWN]!r} cannot be published on")
        if not headers:
            return Properties(response_topic=response_topic), None
        if not connection.options.headers:
            raise Violation("message headers not supported", "HPUB without `headers` in CONNECT")
        try:
            return read_headers(headers, response_topic, self._state.limits.user_properties)
        except BadHeaders as bad:
            raise Violation("Parser Error", str(bad)) from None

    def _refuse(
        self, connection: Connection, topic: str, subject: bytes, reply: bytes, refused: PublicationRefused
    ) -> None:
        if (
            refused.fault is RequestFault.NOT_ALLOWED
            and topic.startswith("$")
            and reply
            and connection.options.no_responders
        ):
            self._answer_for_nobody(connection, reply)  # such as a request to JetStream, which is not there
            return
        self._state.refuse(refused.why, refused.told, connection)
        if refused.fault is RequestFault.NOT_ALLOWED:
            shown = subject[:SUBJECT_SHOWN].decode(errors="replace")
            connection.complain(f'Permissions Violation for Publish to "{shown}"')
        elif refused.fault is not RequestFault.NO_ROOM:
            connection.complain("Invalid Publish Subject")
        elif connection.options.verbose:
            raise Violation("Message Not Stored", refused.told, refused.why)

    @staticmethod
    def _answer_for_nobody(connection: Connection, reply: bytes) -> None:
        """503: to the subscription of the client that waits for the reply."""
        topic = read_topic(reply)
        if topic is None:
            return
        waiting = tuple(one.identifier for one in connection.interests.values() if one.has(topic))
        size = len(NO_RESPONDERS)
        connection.deliver(topic, waiting[:1], b"%d %d\r\n" % (size, size), NO_RESPONDERS, True, "")


@lru_cache(maxsize=NAMES_KEPT)
def read_topic(subject: bytes) -> str | None:
    """The topic of a subject to publish on; None if there is none."""
    try:
        topic = topic_of(subject.decode())
    except (UnicodeDecodeError, BadSubject):
        return None
    return None if not topic or topic.startswith(SHARED) else topic
