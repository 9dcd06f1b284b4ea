"""One client's side of MQTT 5 without I/O: bytes, calls and the time go in, bytes and events come out.

Nothing here knows a socket, a clock or a thread; `overlane.client.client` drives it under asyncio.
"""

from overlane.client.protocol.events import (
    Accepted,
    Broken,
    Connected,
    Dismissed,
    Event,
    Overdue,
    Refused,
    Rejected,
    Sending,
    Subscribed,
    SubscriptionRefused,
    Unsubscribed,
)
from overlane.client.protocol.machine import Protocol, Settings
from overlane.client.protocol.subscribing import Wish

__all__ = [
    "Accepted",
    "Broken",
    "Connected",
    "Dismissed",
    "Event",
    "Overdue",
    "Protocol",
    "Refused",
    "Rejected",
    "Sending",
    "Settings",
    "Subscribed",
    "SubscriptionRefused",
    "Unsubscribed",
    "Wish",
]
