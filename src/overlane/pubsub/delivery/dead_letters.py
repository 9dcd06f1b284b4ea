"""Dead letters: messages that could not be delivered to a client, published under a topic of their own, with client and
reason.
"""

from overlane.pubsub.cluster.names import DEAD_LETTERS
from overlane.pubsub.message import Message
from overlane.pubsub.properties import BYTES_MAX, encode_user_properties

CLIENT = "overlane-client"
REASON = "overlane-reason"
REASON_CHARS_MAX = 1_000


def topic_of(message: Message) -> str:
    """The topic of its dead letter; empty for a dead letter itself, and where the topic would be too long."""
    if message.topic.startswith(DEAD_LETTERS) or len(message.topic_utf8) + len(DEAD_LETTERS) > BYTES_MAX:
        return ""
    return DEAD_LETTERS + message.topic


def letter_of(topic: str, message: Message, client_id: str, reason: str) -> Message:
    told = encode_user_properties(((CLIENT, client_id), (REASON, reason[:REASON_CHARS_MAX])))
    return Message(
        topic,
        message.payload,
        message.qos,
        encoded=message.encoded + told,
        sender=message.sender,
        published_ns=message.published_ns,
    )
