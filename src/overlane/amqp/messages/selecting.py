"""The values of a message in a selector, with the types that an AMQP client gave them.

    floor                  an application property: a number stays a number; other names are as in `selectors`
    JMSPriority, JMSType,  what JMS calls priority, subject,
    JMSMessageID, JMSCorrelationID, JMSTimestamp, JMSDeliveryMode, JMSXGroupID, JMSXGroupSeq

Properties come before fields of a JSON payload: a selector of JMS knows nothing of the payload.
"""

from overlane.amqp.codec.types import Uuid
from overlane.amqp.messages import sections
from overlane.amqp.messages.reading import EXTRAS, PRIORITY_DEFAULT, as_text
from overlane.amqp.messages.sections import MessageProperties
from overlane.amqp.messages.writing import read_extras
from overlane.pubsub.message import Message
from overlane.pubsub.properties import Properties
from overlane.selectors import MessageValues

PROPERTY = "$property."
JMS = "JMS"


def values_of(message: Message) -> MessageValues:
    return TypedValues(message, message.properties)


class TypedValues(MessageValues):
    __slots__ = ("_kept", "_properties_kept", "_typed")

    def __init__(self, message: Message, properties: Properties) -> None:
        pairs = tuple(pair for pair in properties.user_properties if pair[0] != EXTRAS)
        super().__init__(message.topic, message.payload, pairs, properties.content_type, message.qos, message.retain)
        self._kept = message
        self._properties_kept = properties
        self._typed: dict[str, object] | None = None

    def get(self, name: str, /) -> object:
        if not name.startswith(JMS) and not self._properties_kept.user_properties:
            return super().get(name)
        if self._typed is None:
            self._typed = _typed(self._kept, self._properties_kept)
        plain = name.removeprefix(PROPERTY)
        return self._typed[plain] if plain in self._typed else super().get(name)


def _typed(message: Message, properties: Properties) -> dict[str, object]:
    about, priority = MessageProperties(correlation_id=properties.correlation_data), PRIORITY_DEFAULT
    values: dict[str, object] = {name: value for name, value in properties.user_properties if name != EXTRAS}
    for section, raw in read_extras(properties)[0]:
        match section.code:
            case sections.HEADER:
                priority = sections.read_header(raw, section).priority or 0
            case sections.PROPERTIES:
                about = sections.read_properties(raw, section)
            case sections.APPLICATION_PROPERTIES:
                values = {str(name): _plain(value) for name, value in sections.read_map(raw, section).items()}
            case _:
                pass
    values["JMSPriority"] = priority
    values["JMSDeliveryMode"] = "PERSISTENT" if message.qos else "NON_PERSISTENT"
    for name, value in (
        ("JMSType", about.subject),
        ("JMSMessageID", about.message_id),
        ("JMSCorrelationID", about.correlation_id),
        ("JMSTimestamp", about.creation_time),
        ("JMSXGroupID", about.group_id),
        ("JMSXGroupSeq", about.group_sequence),
    ):
        values[name] = _plain(value)
    return values


def _plain(value: object) -> object:
    """As selectors compare it: a string, number or boolean."""
    match value:
        case None | bool():
            return value
        case int():
            return int(value)
        case float():
            return float(value)
        case str():
            return str(value)
        case Uuid():
            return as_text(value)
        case bytes():
            return value.decode(errors="replace")
        case _:
            return None
