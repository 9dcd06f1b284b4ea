"""The Python API for applications: publish and subscribe at a broker, with automatic reconnection.

    import overlane.client

    async with (
        overlane.client.connect("127.0.0.1:1883") as client,
        client.subscribe("alarms/#", qos=1) as alarms,
    ):
        await client.publish("alarms/1", b"fire", deadline="60ms", reliability="reliable")
        async for message in alarms:
            print(message.topic, message.body)

It uses MQTT 5 and works with any broker that does. `protocol` is the part without I/O, for use with other event loops.
"""

from overlane.client.client import Client
from overlane.client.errors import (
    BrokerViolation,
    ClientError,
    Closed,
    ConnectionRefused,
    Disconnected,
    Expired,
    InvalidRequest,
    PublishRefused,
    Refused,
    SubscribeRefused,
    Unreachable,
)
from overlane.client.message import Message, Will
from overlane.client.opening import connect
from overlane.client.qos import Order, Qos, Reliability, TopicQos
from overlane.client.reservation import Reserve, Traffic
from overlane.client.subscription import Subscription
from overlane.client.tls import Tls

__all__ = [
    "BrokerViolation",
    "Client",
    "ClientError",
    "Closed",
    "ConnectionRefused",
    "Disconnected",
    "Expired",
    "InvalidRequest",
    "Message",
    "Order",
    "PublishRefused",
    "Qos",
    "Refused",
    "Reliability",
    "Reserve",
    "SubscribeRefused",
    "Subscription",
    "Tls",
    "TopicQos",
    "Traffic",
    "Unreachable",
    "Will",
    "connect",
]
