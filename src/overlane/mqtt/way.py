"""The way: publishers whose messages go to other brokers stop while the first link takes no more.

Best-effort messages that can wait are not dropped at a full queue: whoever publishes them is not read from until there
is room again, and its own connection fills up. Messages with a deadline wait no longer than a part of it; then what is
due decides at the queue what goes and what is dropped. What is reliable has a window of its own from end to end.
"""

from overlane.core.qos import QosClass
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.mqtt.connection import Connection
from overlane.mqtt.uplink import Uplink

STOP_SHARE = 0.5
GO_SHARE = 0.25
PATIENCE: Nanos = SECOND
"""A link that takes nothing for so long gets one more read of each publisher, and drops what is too much."""
DEADLINE_PART = 8


def look(uplink: Uplink, sender: Connection, topic: str, qos: QosClass, now: Nanos) -> None:
    """It has published on the topic: must it stop?"""
    if not qos.reliable and uplink.way_share(topic, qos) > STOP_SHARE:
        patience_ns = PATIENCE if qos.deadline_ns >= NEVER else min(PATIENCE, qos.deadline_ns // DEADLINE_PART)
        sender.stops_for = topic, qos
        sender.stops_until_ns = now + patience_ns


def is_free(uplink: Uplink, sender: Connection) -> bool:
    """Whether one that has stopped may go on."""
    return sender.stops_for is None or uplink.way_share(*sender.stops_for) <= GO_SHARE
