"""The client side of MQTT 5 without I/O: bytes, calls and the time go in, bytes and events come out.

Nothing here uses a socket, a clock or a thread; `overlane.client.client` drives it under asyncio.
"""

from overlane.client.protocol.events import (
    Connected,
    ConnectionFailed,
    ConnectRefused,
    Event,
    PublicationAccepted,
    PublicationExpired,
    PublicationRejected,
    Sending,
    ServerDisconnected,
    Subscribed,
    SubscriptionRefused,
    Unsubscribed,
)
from overlane.client.protocol.machine import Protocol, SessionSettings
from overlane.client.protocol.subscribing import WantedSubscription

__all__ = [
    "ConnectRefused",
    "Connected",
    "ConnectionFailed",
    "Event",
    "Protocol",
    "PublicationAccepted",
    "PublicationExpired",
    "PublicationRejected",
    "Sending",
    "ServerDisconnected",
    "SessionSettings",
    "Subscribed",
    "SubscriptionRefused",
    "Unsubscribed",
    "WantedSubscription",
]
