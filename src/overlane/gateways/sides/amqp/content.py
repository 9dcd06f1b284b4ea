"""Messages as bytes of AMQP, and back; as the AMQP listener does it (docs/amqp.md); pure."""

from functools import lru_cache
from typing import NamedTuple

from overlane.amqp.codec import composites
from overlane.amqp.codec.types import Symbol
from overlane.amqp.messages import reading, sections
from overlane.amqp.messages.reading import HEAD_BYTES_KEPT, HEADS_KEPT
from overlane.amqp.messages.writing import TTL_MS_MAX, Head, write_body, write_head
from overlane.gateways.message import BridgedMessage
from overlane.pubsub import properties as kept

ROUTING_KEY = Symbol("x-routing-key")
PROPERTIES_MAX = 1_000


class Content(NamedTuple):
    incoming: reading.Incoming
    values: kept.Properties
    told: tuple[str, ...]
    """What is said of its topic, best first."""

    def message(self, topic: str, response_topic: str | None, qos: int) -> BridgedMessage:
        incoming, values = self.incoming, self.values
        return BridgedMessage(
            topic=topic,
            body=incoming.payload,
            qos=qos,
            retain=incoming.retain,
            expiry_s=None if incoming.ttl_ms is None else -(-incoming.ttl_ms // 1000),
            content_type=values.content_type,
            response_topic=response_topic,
            correlation_data=values.correlation_data,
            properties=values.user_properties,
        )


def read_content(data: bytes) -> Content:
    """AmqpError if it is no message."""
    incoming = reading.read_message(data, PROPERTIES_MAX)
    decode = _kept_values if len(incoming.properties) <= HEAD_BYTES_KEPT else kept.decode
    annotations = incoming.annotations
    told = (annotations.get(reading.TOPIC), annotations.get(ROUTING_KEY), incoming.to, incoming.subject)
    return Content(incoming, decode(incoming.properties), tuple(str(one) for one in told if one))


_kept_values = lru_cache(maxsize=HEADS_KEPT)(kept.decode)


def write_content(message: BridgedMessage, address: str, response: str | None) -> bytes:
    """`to` is the address: the anonymous relay goes by it. `response`: the address of the response topic."""
    encoded = kept.Properties(
        message.content_type, response, message.correlation_data, False, message.properties
    ).encode()
    ttl_ms = None if message.expiry_s is None else min(message.expiry_s * 1_000, TTL_MS_MAX)
    write = _kept_head if len(encoded) <= HEAD_BYTES_KEPT else _head
    head = write(address, encoded, message.qos, message.retain, ttl_ms)
    return head.sections + write_body(message.body, head)


def _head(address: str, encoded: bytes, qos: int, retain: bool, ttl_ms: int | None) -> Head:
    values = kept.decode(encoded)
    head = write_head(address, values, qos, retain, 0, ttl_ms)
    data = head.sections
    about = next((one for one in sections.split(data) if one.code == sections.PROPERTIES), None)
    if about is None:
        return head
    found = sections.read_properties(data, about)
    wanted = found._replace(to=address, reply_to=values.response_topic)
    if found == wanted:
        return head
    return head._replace(sections=data[: about.begin] + composites.write(wanted) + data[about.end :])


_kept_head = lru_cache(maxsize=HEADS_KEPT)(_head)
