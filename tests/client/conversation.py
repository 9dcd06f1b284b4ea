"""A conversation with the client's protocol: the test plays the broker."""

import mqtt5

from overlane.client.message import Message, Publication, encoded_properties
from overlane.client.protocol import Event, Protocol, SessionSettings
from overlane.client.qos import Qos
from overlane.core.units import SECOND, Nanos
from overlane.mqtt.codec import codec5
from overlane.mqtt.codec.framing import Framer


class Conversation:
    """`say` is the broker's voice, `heard` what the client said since it was last asked."""

    def __init__(self, settings: SessionSettings | None = None) -> None:
        self.protocol = Protocol(settings or SessionSettings("me"))
        self.now: Nanos = 1_000 * SECOND

    def connect(self, answer: mqtt5.ConnAckPacket | None = None) -> list[Event]:
        """A new connection, up to the broker's answer. What the client says in return is still to be heard."""
        self.protocol.opened()
        (connect,) = self.heard()
        assert isinstance(connect, mqtt5.ConnectPacket)
        return self.say(answer or mqtt5.ConnAckPacket())

    def reconnect(self, session_present: bool = True) -> list[Event]:
        self.protocol.lost()
        return self.connect(mqtt5.ConnAckPacket(session_present=session_present))

    def say(self, *packets: mqtt5.Packet) -> list[Event]:
        return self.protocol.receive(b"".join(codec5.write(packet) for packet in packets), self.now)

    def heard(self) -> list[mqtt5.Packet]:
        data = b"".join(self.protocol.out)
        self.protocol.out.clear()
        return [codec5.read(packet) for packet in Framer(1 << 28).feed(data)]

    def messages(self, *packets: mqtt5.Packet) -> list[Message]:
        """What reaches the application of what the broker says."""
        return [event for event in self.say(*packets) if isinstance(event, Message)]

    def done(self, message: Message) -> None:
        assert message.receipt is not None
        self.protocol.done(message.receipt)


def publication(
    topic: str, body: bytes, qos: int = 0, retain: bool = False, expiry_s: int | None = None
) -> Publication:
    return Publication(topic.encode(), body, Qos(qos), retain, expiry_s, encoded_properties(None, None, None, ()))


def packet(
    topic: str, body: bytes, qos: int = 0, packet_id: int | None = None, duplicate: bool = False
) -> mqtt5.PublishPacket:
    return mqtt5.PublishPacket(topic, body, qos=mqtt5.QoS(qos), packet_id=packet_id, duplicate=duplicate)
