"""Messages as bytes of AMQP, and back; as the AMQP listener does it (docs/amqp.md); pure."""

from typing import NamedTuple

from overlane.amqp.codec import composites
from overlane.amqp.messages import reading, sections
from overlane.amqp.messages.writing import write_message
from overlane.core.units import NEVER, SECOND
from overlane.gateways.message import BridgedMessage
from overlane.pubsub import properties as kept
from overlane.pubsub.message import Message

ROUTING_KEY = "x-routing-key"
PROPERTIES_MAX = 1_000


class Content(NamedTuple):
    message: BridgedMessage
    """Without its topic."""
    told: tuple[str, ...]
    """What is said of its topic, best first."""


def read_content(data: bytes, qos: int) -> Content:
    """AmqpError if it is no message."""
    incoming = reading.read_message(data, PROPERTIES_MAX)
    values = kept.decode(incoming.properties)
    told: list[str] = []
    subject = None
    for section in sections.split(data):
        if section.code == sections.MESSAGE_ANNOTATIONS:
            annotations = {str(name): value for name, value in sections.read_map(data, section).items()}
            told += [str(annotations[name]) for name in (reading.TOPIC, ROUTING_KEY) if annotations.get(name)]
        elif section.code == sections.PROPERTIES:
            subject = sections.read_properties(data, section).subject
    told += [one for one in (incoming.to, subject) if one]
    message = BridgedMessage(
        topic="",
        body=incoming.payload,
        qos=qos,
        retain=incoming.retain,
        expiry_s=None if incoming.ttl_ms is None else -(-incoming.ttl_ms // 1000),
        content_type=values.content_type,
        response_topic=values.response_topic,
        correlation_data=values.correlation_data,
        properties=values.user_properties,
    )
    return Content(message, tuple(told))


def write_content(message: BridgedMessage, address: str) -> bytes:
    """`to` is the address: the anonymous relay goes by it."""
    properties = kept.Properties(
        message.content_type, message.response_topic, message.correlation_data, False, message.properties
    )
    expires = NEVER if message.expiry_s is None else message.expiry_s * SECOND
    made = Message(address, message.body, message.qos, message.retain, properties.encode(), expires_ns=expires)
    data = write_message(made, message.qos, message.retain, 0, 0)
    parts = sections.split(data)
    about = next((one for one in parts if one.code == sections.PROPERTIES), None)
    if about is None:
        return data
    found = sections.read_properties(data, about)
    wanted = found._replace(to=address, reply_to=message.response_topic)
    return data if found == wanted else data[: about.begin] + composites.write(wanted) + data[about.end :]
