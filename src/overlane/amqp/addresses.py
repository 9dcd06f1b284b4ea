"""Addresses: what clients call a node, and which topic or queue that is.

    sensors/+/temperature      a topic or filter as in MQTT
    topic://sensors/a          the same
    queue://orders             a queue: one group of consumers that share what is published on `orders`

The capability `queue` or `topic` of a terminus beats the prefix, and the prefix beats the default, a topic.
"""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

TOPIC_PREFIX = "topic://"
QUEUE_PREFIX = "queue://"

QUEUE_GROUP = "queue"
"""The group of shared subscriptions that a queue is: an MQTT client joins it with `$share/queue/orders`."""

QUEUE_CAPABILITIES = frozenset({"queue"})
TOPIC_CAPABILITIES = frozenset({"topic", "temporary-topic", "temporary-queue"})
"""A temporary queue has one consumer, which made it: that is a topic."""

TEMPORARY = "temporary/"
"""What the topics of dynamic nodes begin with."""


class NodeKind(Enum):
    TOPIC = "topic"
    QUEUE = "queue"


class Address(NamedTuple):
    topic: str
    kind: NodeKind


def read_address(text: str, capabilities: Iterable[str] = ()) -> Address:
    wanted = frozenset(map(str, capabilities))
    kind = NodeKind.QUEUE if text.startswith(QUEUE_PREFIX) else NodeKind.TOPIC
    if wanted & QUEUE_CAPABILITIES:
        kind = NodeKind.QUEUE
    elif wanted & TOPIC_CAPABILITIES:
        kind = NodeKind.TOPIC
    return Address(topic_of(text), kind)


def topic_of(text: str) -> str:
    """Without the prefix."""
    if text.startswith(TOPIC_PREFIX):
        return text[len(TOPIC_PREFIX) :]
    return text[len(QUEUE_PREFIX) :] if text.startswith(QUEUE_PREFIX) else text
