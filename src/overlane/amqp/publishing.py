"""Messages of clients, from a delivery to its outcome.

A delivery that the client has settled is of QoS 0, any other of QoS 1: `accepted` means that nothing will be lost that
had to be kept, and waits for the store where anything was stored for it. What cannot be accepted is rejected with the
reason. The durable field of the header says nothing here: many clients leave it out.
"""

from overlane.amqp.addresses import Address, NodeKind, read_address
from overlane.amqp.attaching import Attaching
from overlane.amqp.codec.malformed import INVALID_FIELD, UNAUTHORIZED, AmqpError
from overlane.amqp.codec.performatives import Error, Rejected
from overlane.amqp.connection import Connection
from overlane.amqp.incoming_link import Delivery
from overlane.amqp.messages.reading import Incoming, read_message
from overlane.amqp.reasons import condition_of
from overlane.core.topics import BadTopic, check_topic
from overlane.core.units import MS, NEVER, Nanos
from overlane.pubsub.contract.refused import PublicationRefused, RequestRefused
from overlane.pubsub.counters import Refusal
from overlane.pubsub.message import Message
from overlane.pubsub.publishing import backpressure
from overlane.pubsub.service import PubSub
from overlane.pubsub.sessions.session import Session

_IDENTIFIERS = 1 << 16


class PublishDeliveries:
    def __init__(self, pubsub: PubSub, attaching: Attaching) -> None:
        self._state = pubsub.state
        self._publishing = pubsub.publishing
        self._attaching = attaching

    def publish(self, connection: Connection, session: Session, delivery: Delivery, now: Nanos) -> None:
        """`backpressure.MustStop`, and nothing done, if the client has to stop first."""
        try:
            incoming = read_message(delivery.payload, self._state.limits.user_properties)
            topic = self._topic(delivery, incoming, now)
            self._check_user(connection, incoming)
        except AmqpError as refused:
            self._count(connection)
            self._refuse(connection, delivery, Refusal.PROTOCOL, refused.condition, refused.told)
            return
        except RequestRefused as refused:
            self._count(connection)
            self._refuse(connection, delivery, refused.why, condition_of(refused.fault), refused.told)
            return
        qos = 0 if delivery.settled else 1
        if not qos and not incoming.user_properties and self._publishing.must_stop(connection, topic, now):
            raise backpressure.MustStop
        self._count(connection)
        stats = self._state.stats(topic)
        stats.messages += 1
        stats.bytes += len(incoming.payload)
        message = Message(
            topic,
            incoming.payload,
            qos,
            incoming.retain,
            incoming.properties,
            session.client_id,
            now,
            _expires(incoming, now),
        )
        identifier = delivery.delivery_id % _IDENTIFIERS
        try:
            accepted = self._publishing.publish(message, session, identifier, incoming.user_properties, connection, now)
        except PublicationRefused as refused:
            self._refuse(connection, delivery, refused.why, condition_of(refused.fault), refused.told)
            return
        if qos:
            connection.waits |= accepted.is_stored
            connection.acks_owed += 1
            delivery.link.session.accept(delivery.delivery_id)
        if accepted.crowding > backpressure.CROWDED:
            rests_until_ns = now + backpressure.rest_ns(accepted.crowding)
            connection.rests_until_ns = max(connection.rests_until_ns, rests_until_ns)

    def _count(self, connection: Connection) -> None:
        connection.messages_in += 1
        self._state.counters.messages_in += 1

    def _topic(self, delivery: Delivery, incoming: Incoming, now: Nanos) -> str:
        address = delivery.link.address
        if address is not None:
            return address.topic
        if not incoming.to:
            raise AmqpError(INVALID_FIELD, "a message without an address, on a link without one")
        found: Address = read_address(incoming.to)
        topic = found.topic
        if topic not in self._state.topics:
            try:
                check_topic(topic)
            except BadTopic as bad:
                raise AmqpError(INVALID_FIELD, str(bad)) from None
            if told := self._state.limits.too_long(topic):
                raise AmqpError(INVALID_FIELD, told)
            if topic.count("/") >= self._state.limits.filter_levels:
                raise AmqpError(INVALID_FIELD, f"a topic of more than {self._state.limits.filter_levels} levels")
        if found.kind is NodeKind.QUEUE:
            self._attaching.need_queue(topic, now)
        return topic

    def _check_user(self, connection: Connection, incoming: Incoming) -> None:
        """A message cannot say that it is from somebody else."""
        if incoming.user is not None and incoming.user != (connection.user or "").encode():
            raise AmqpError(UNAUTHORIZED, "user-id is not the user that has logged in")

    def _refuse(self, connection: Connection, delivery: Delivery, why: Refusal, condition: str, told: str) -> None:
        self._state.refuse(why, told, connection)
        if not delivery.settled:
            delivery.link.session.settle(delivery.delivery_id, Rejected(Error(condition, told)))


def _expires(incoming: Incoming, now: Nanos) -> Nanos:
    """By the time to live from now on, or by the time that the message names."""
    if incoming.ttl_ms is not None:
        return now + incoming.ttl_ms * MS
    if incoming.expires_ms:
        return max(now, min(incoming.expires_ms * MS, NEVER))
    return NEVER
