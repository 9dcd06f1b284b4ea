"""A broker as it runs, without sockets and disk: a publisher of QoS 1 with messages in flight, and a durable session.

Each round the publisher writes a window of messages of many topics in one go, and the subscriber acknowledges what it
gets in one go, as busy clients do.
"""

import mqtt5

from _lone_row import BrokerByHand, Wire
from overlane.pubsub.contract.consumer import Peer
from overlane.turn.client_link import ClientLink

IN_FLIGHT = 20
"""What paho, the usual client library, has by default."""
TOPICS = 100
ITERATIONS = 8
"""Of the loop, until all that a round has brought about is done."""


class Qos1Row:
    def __init__(self) -> None:
        self._broker = BrokerByHand("a", is_recorded=False)
        self._subscriber, self._received = self._connect("subscriber", is_kept=True)
        topic_filter = mqtt5.TopicFilter("plant/#", max_qos=mqtt5.QoS.AT_LEAST_ONCE)
        self._subscriber.received(mqtt5.SubscribePacket(1, [topic_filter]).write())
        self._publisher, self._answers = self._connect("publisher", is_kept=False)
        self._sent = 0
        self.run()
        self._received.taken()
        self._answers.taken()

    def _connect(self, name: str, is_kept: bool) -> tuple[ClientLink, Wire]:
        wire = Wire()
        link = self._broker.driver.attach(wire, Peer("127.0.0.1:1"), self._broker.clock.now())
        expiry_s = 3600 if is_kept else 0
        link.received(mqtt5.ConnectPacket(name, clean_start=not is_kept, session_expiry_interval=expiry_s).write())
        self.run()
        wire.taken()
        return link, wire

    def run(self) -> None:
        for _ in range(ITERATIONS):
            self._broker.loop.run()

    def window(self) -> bytes:
        """The next messages."""
        packets = b""
        for place in range(IN_FLIGHT):
            topic, payload = f"plant/{(self._sent + place) % TOPICS}/temperature", bytes(64)
            packets += mqtt5.PublishPacket(topic, payload, qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=place + 1).write()
        self._sent += IN_FLIGHT
        return packets

    def publish(self, packets: bytes) -> None:
        self._publisher.received(packets)
        self.run()

    def acknowledge(self, packets: bytes) -> None:
        self._subscriber.received(packets)
        self.run()

    def acknowledgements(self) -> bytes:
        """Of all that has arrived; AssertionError if anything is missing."""
        arrived, acknowledged = self._received.taken(), len(self._answers.taken()) // 4
        acks, position = b"", 0
        while position < len(arrived):
            packet, size = mqtt5.read(memoryview(arrived)[position:])
            assert isinstance(packet, mqtt5.PublishPacket)
            acks += mqtt5.PubAckPacket(packet.packet_id or 0).write()
            position += size
        if (len(acks) // 4, acknowledged) != (IN_FLIGHT, IN_FLIGHT):
            raise AssertionError(f"{len(acks) // 4} messages arrived, {acknowledged} acknowledged, of {IN_FLIGHT}")
        return acks
