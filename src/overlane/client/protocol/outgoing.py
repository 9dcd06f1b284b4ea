"""Outgoing: published messages, from the outbox until the broker has acknowledged them.

    waiting     not sent: the connection is down, the broker's window is used up, or the write buffer is full
    sent        QoS 1 and 2 without a response, by packet id in the order of sending
    released    QoS 2 that the broker has (PUBREC): only PUBREL and PUBCOMP are left
    repeat      packet ids of a resumed session that must be retransmitted before anything new

Messages are sent in the order in which they were published. If the broker still has the session, it is resumed: sent
messages are retransmitted under their old packet ids, marked as duplicates. If the broker has lost the session,
messages that it may not have go back to the front of the outbox, and those confirmed with PUBREC are done.

A session may also come from an earlier run of the application, whose QoS 2 packet ids are unknown. The broker would
treat a new message under such an id as a duplicate, and drop it. So before an id is first used for QoS 2 in an
inherited session, a PUBREL is sent, which frees the id.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import mqtt5

from overlane.client.message import Publication
from overlane.client.protocol.events import Event, PublicationAccepted, PublicationExpired, PublicationRejected, Sending
from overlane.client.protocol.packet_ids import PacketIds
from overlane.client.qos import Qos
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.mqtt.codec.malformed import PACKET_TOO_LARGE, Malformed
from overlane.mqtt.codec.writing import PUBREL, ack

PACKET_ID_NOT_FOUND = 0x92
RETAIN_NOT_SUPPORTED = 0x9A
QOS_NOT_SUPPORTED = 0x9B
FAILURE = 0x80
"""Reason codes from here on are errors."""


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """What the broker of this connection takes, from its CONNACK."""

    receive_max: int = 65_535
    packet_bytes_max: int = 1 << 28
    qos_max: int = 2
    retain: bool = True


class Outgoing:
    def __init__(self, ids: PacketIds, out: list[bytes]) -> None:
        self._ids = ids
        self._out = out
        self._waiting: deque[Sending] = deque()
        self._sent: dict[int, Sending] = {}
        self._repeat: deque[int] = deque()
        self._inherited: set[int] | None = None
        """Packet ids that are free of the past, in a session from an earlier run; None in one of our own."""
        self._freeing: set[int] = set()
        self._limits = BrokerLimits()
        self._credit = 0
        self.waiting_bytes = 0

    @property
    def waiting(self) -> int:
        """How many publications have not been sent."""
        return len(self._waiting)

    @property
    def unanswered(self) -> int:
        """How many wait for the broker's answer."""
        return len(self._sent)

    def publish(self, publication: Publication, now: Nanos) -> Sending:
        expiry_s = publication.expiry_s
        sending = Sending(publication, NEVER if expiry_s is None else now + expiry_s * SECOND)
        self._waiting.append(sending)
        self.waiting_bytes += publication.size_bytes
        return sending

    def withdraw(self, sending: Sending) -> None:
        """Nobody waits for it any more. What has been sent cannot be called back, but need not be sent again."""
        sending.cancelled = True
        if sending in self._waiting:
            self._waiting.remove(sending)
            self.waiting_bytes -= sending.publication.size_bytes

    def connected(self, session_present: bool, is_first: bool, limits: BrokerLimits) -> list[Event]:
        self._limits = limits
        self._credit = limits.receive_max
        self._freeing.clear()
        self._repeat.clear()
        if session_present:
            if is_first:
                self._inherited = set()
            self._repeat.extend(self._sent)
            # MQTT would let us use the whole window anew (4.9), but brokers are seen to refuse more than it holds.
            self._credit -= sum(sending.released for sending in self._sent.values())
            return []
        self._inherited = None
        done: list[Event] = []
        for packet_id, sending in self._sent.items():
            self._ids.give_back(packet_id)
            if sending.released:
                done.append(PublicationAccepted(sending))
        again = [sending for sending in self._sent.values() if not sending.released and not sending.cancelled]
        self._sent.clear()
        self._waiting.extendleft(reversed(again))
        self.waiting_bytes += sum(sending.publication.size_bytes for sending in again)
        return done

    def pump(self, now: Nanos) -> list[Event]:
        """Send what may be sent now."""
        events: list[Event] = []
        while self._repeat and self._repeat_one(self._repeat[0], now):
            self._repeat.popleft()
        while self._waiting and not self._repeat:
            sending = self._waiting[0]
            qos = sending.publication.qos
            if qos and self._credit <= 0:
                break
            self._waiting.popleft()
            self.waiting_bytes -= sending.publication.size_bytes
            if sending.expires_at <= now:
                events.append(PublicationExpired(sending))
            else:
                events += self._send(sending, now)
        return events

    def answered(self, packet: mqtt5.PubAckPacket | mqtt5.PubRecPacket | mqtt5.PubCompPacket) -> Iterator[Event]:
        """An answer of the broker. Answers to what is not in flight are late ones, and harmless."""
        packet_id = packet.packet_id
        code = int(packet.reason_code)
        sending = self._sent.get(packet_id)
        match packet:
            case mqtt5.PubRecPacket() if sending is not None and sending.publication.qos is not Qos.EXACTLY_ONCE:
                pass
            case mqtt5.PubRecPacket() if code < FAILURE:
                if sending is not None:
                    sending.released = True
                    sending.words = packet.reason_str or ""
                self._out.append(ack(5, PUBREL, packet_id, 0 if sending is not None else PACKET_ID_NOT_FOUND))
            case mqtt5.PubCompPacket() if packet_id in self._freeing:
                self._freeing.discard(packet_id)
            case _ if sending is None or isinstance(packet, mqtt5.PubAckPacket) != (sending.publication.qos == 1):
                pass
            case mqtt5.PubCompPacket() if not sending.released:
                pass
            case _:
                del self._sent[packet_id]
                self._ids.give_back(packet_id)
                self._credit = min(self._credit + 1, self._limits.receive_max)
                if code >= FAILURE and not sending.released:
                    yield PublicationRejected(sending, code, packet.reason_str or "")
                elif isinstance(packet, mqtt5.PubAckPacket):
                    yield PublicationAccepted(sending, packet.reason_str or "")
                else:
                    yield PublicationAccepted(sending, sending.words)

    def _send(self, sending: Sending, now: Nanos) -> list[Event]:
        publication = sending.publication
        code = self._beyond_limits(publication)
        if code:
            return [PublicationRejected(sending, code, "")]
        packet_id = self._ids.take() if publication.qos else 0
        try:
            data = publication.written(packet_id, _left_s(sending, now))
        except Malformed as wrong:
            self._ids.give_back(packet_id)
            return [PublicationRejected(sending, wrong.reason, str(wrong))]
        if len(data) > self._limits.packet_bytes_max:
            self._ids.give_back(packet_id)
            words = f"{len(data)} bytes, the broker takes at most {self._limits.packet_bytes_max}"
            return [PublicationRejected(sending, PACKET_TOO_LARGE, words)]
        if not packet_id:
            self._out.append(data)
            return []
        if publication.qos is Qos.EXACTLY_ONCE:
            self._free(packet_id)
        self._credit -= 1
        self._sent[packet_id] = sending
        self._out.append(data)
        return []

    def _free(self, packet_id: int) -> None:
        if self._inherited is not None and packet_id not in self._inherited:
            self._inherited.add(packet_id)
            self._freeing.add(packet_id)
            self._out.append(ack(5, PUBREL, packet_id))

    def _repeat_one(self, packet_id: int, now: Nanos) -> bool:
        """False if it has to wait for the broker's window."""
        sending = self._sent.get(packet_id)
        if sending is None:
            return True
        if sending.released:
            self._out.append(ack(5, PUBREL, packet_id))
            return True
        if self._credit <= 0:
            return False
        self._credit -= 1
        # It is sent even if it has expired: it may have been delivered, and only the broker knows.
        self._out.append(sending.publication.written(packet_id, _left_s(sending, now), duplicate=True))
        return True

    def _beyond_limits(self, publication: Publication) -> int:
        if publication.qos > self._limits.qos_max:
            return QOS_NOT_SUPPORTED
        if publication.retain and not self._limits.retain:
            return RETAIN_NOT_SUPPORTED
        return 0


def _left_s(sending: Sending, now: Nanos) -> int | None:
    return None if sending.expires_at >= NEVER else max(0, -(-(sending.expires_at - now) // SECOND))
