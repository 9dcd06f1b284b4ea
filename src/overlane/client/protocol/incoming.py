"""Incoming: received QoS 1 and 2 messages, and their outstanding acknowledgements.

    held        given to the application, not acknowledged yet, by packet id
    order       the same, in the order of arrival on this connection
    recorded    QoS 2 acknowledged with PUBREC, until the broker sends PUBREL
    finished    QoS 1 acknowledged with PUBACK recently, if the broker does not reuse packet ids soon

A message is acknowledged when the application has processed it, not when it arrives: unread messages are delivered
again after a crash. Acknowledgements are sent in the order of arrival, as MQTT requires (4.6.0-2), so an early one
waits.

After a lost connection the broker retransmits unacknowledged messages. The application already has these messages: if
the session is resumed, they are recognised and not delivered twice. If the session is lost, so are the outstanding
acknowledgements. An acknowledgement may also be lost with the connection, or with the broker. In MQTT a packet id may
then belong to another message; if the broker has promised not to reuse packet ids, its retransmissions are recognised
too (`overlane.pubsub.sessions.deduplication`).

A broker that exceeds the receive maximum is tolerated: some brokers do so after they have resumed a session, and the
driver stops reading when too much is unread.
"""

from collections import deque

import mqtt5

from overlane.client.message import Message, Receipt
from overlane.mqtt.codec.malformed import PROTOCOL_ERROR, Malformed
from overlane.mqtt.codec.writing import PUBACK, PUBCOMP, PUBREC, ack

PACKET_ID_NOT_FOUND = 0x92
FINISHED_MAX = 8_192
"""More than a broker can have delivered since its disk last knew, and far less than there are packet ids."""


class Incoming:
    def __init__(self, out: list[bytes]) -> None:
        self._out = out
        self._is_once = False
        self._finished: dict[int, None] = {}
        self._online = False
        self._epoch = 0
        self._held: dict[int, Receipt] = {}
        self._order: deque[Receipt] = deque()
        self._recorded: set[int] = set()

    def connected(self, session_present: bool, is_once: bool) -> None:
        """`is_once`: the broker has promised to give its packet ids round and round."""
        self._online = True
        self._is_once = is_once
        self._order.clear()
        if not session_present or not is_once:
            self._finished.clear()
        if not session_present:
            self._epoch += 1
            self._held.clear()
            self._recorded.clear()

    def lost(self) -> None:
        self._online = False

    def arrived(self, packet: mqtt5.PublishPacket) -> Message | None:
        """The message, if the application does not have it yet."""
        packet_id = packet.packet_id
        if packet_id is None:
            return Message(packet)
        if packet_id in self._recorded:
            if int(packet.qos) != 2:
                raise Malformed(PROTOCOL_ERROR, f"packet id {packet_id} is used anew before it was released")
            self._out.append(ack(5, PUBREC, packet_id))
            return None
        held = self._held.get(packet_id)
        if held is not None and _is_repeated(held.packet, packet):
            self._order.append(held)
            self._settle()
            return None
        receipt = self._held[packet_id] = Receipt(packet, self._epoch)
        self._order.append(receipt)
        if packet_id in self._finished:
            # Also where it is not marked as a duplicate: a broker that died need not know that it was sent.
            receipt.readers = 0
            self._settle()
            return None
        return Message(packet, receipt)

    def done(self, receipt: Receipt) -> None:
        """One reader of the message is done with it."""
        receipt.readers -= 1
        if receipt.epoch == self._epoch:
            self._settle()

    def released(self, packet_id: int) -> None:
        """PUBREL: the broker has forgotten the message, so may we."""
        code = 0 if packet_id in self._recorded else PACKET_ID_NOT_FOUND
        self._recorded.discard(packet_id)
        self._out.append(ack(5, PUBCOMP, packet_id, code))

    def _settle(self) -> None:
        """Acknowledge what is done and has nothing unacknowledged before it."""
        while self._online and self._order and self._order[0].readers <= 0:
            packet = self._order.popleft().packet
            packet_id = packet.packet_id or 0
            self._held.pop(packet_id, None)
            if int(packet.qos) == 2:
                self._recorded.add(packet_id)
                self._out.append(ack(5, PUBREC, packet_id))
            else:
                self._out.append(ack(5, PUBACK, packet_id))
                self._finish(packet_id)

    def _finish(self, packet_id: int) -> None:
        if self._is_once:
            self._finished.pop(packet_id, None)
            self._finished[packet_id] = None
            if len(self._finished) > FINISHED_MAX:
                del self._finished[next(iter(self._finished))]


def _is_repeated(held: mqtt5.PublishPacket, packet: mqtt5.PublishPacket) -> bool:
    # A broker that has given up the old message may use its packet id for another one.
    return packet.duplicate and packet.topic == held.topic and packet.payload == held.payload
