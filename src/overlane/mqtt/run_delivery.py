"""Run delivery: plain packets given to the receivers of their topics as the bytes they came as.

A receiver of another protocol version, with subscription identifiers, or that takes only small packets, has them
rewritten; a stream, a consumer of another protocol, or one with a content filter gets them one by one.
"""

from overlane.core.units import NEVER, Nanos
from overlane.mqtt.codec.fields import write_variable
from overlane.mqtt.codec.framing import packet_end
from overlane.mqtt.codec.writing import subscription_id_property
from overlane.mqtt.connection import V5, Connection
from overlane.mqtt.runs import messages_of
from overlane.pubsub.counters import Drop
from overlane.pubsub.delivery.delivery import Delivery
from overlane.pubsub.message import Message
from overlane.pubsub.publishing import backpressure
from overlane.pubsub.state import State
from overlane.pubsub.subscriptions.table import Audience, Receiver


class RunDelivery:
    def __init__(self, state: State, delivery: Delivery) -> None:
        self._state = state
        self._delivery = delivery

    def hand_out(self, audience: Audience, run: bytes, count: int, is_v5: bool, now: Nanos) -> float:
        """How full the queue is of the receiver that has most to read, of those that read: from 0, not crowded, to 1.
        One that hardly reads at all holds nobody up for long: its queue is soon full, and the rest is dropped."""
        counters, queue_bytes = self._state.counters, self._state.limits.queue_bytes
        crowded_bytes = queue_bytes * backpressure.CROWDED
        translated = b""
        crowding = 0.0
        for receiver in audience.receivers:
            connection = receiver.session.consumer
            if not isinstance(connection, Connection):
                if connection is not None or receiver.session.log is not None:
                    self._give_singly(receiver, run, is_v5, now)
                continue
            backlog_bytes = connection.unsent_bytes + connection.out_bytes
            if backlog_bytes > crowded_bytes and connection.keeps_reading(now):
                crowding = max(crowding, min(1.0, backlog_bytes / queue_bytes))
            if backlog_bytes > queue_bytes:
                counters.dropped[Drop.SLOW_CLIENT] += count
                continue
            sent = run
            try:
                if receiver.is_particular and (receiver.choices or connection.version == V5):
                    if receiver.choices:
                        self._give_singly(receiver, run, is_v5, now)
                        continue
                    properties = b"".join(map(subscription_id_property, receiver.identifiers))
                    sent = _rewritten(run, is_v5, properties)
                elif (connection.version == V5) is not is_v5:
                    translated = translated or _rewritten(run, is_v5, b"" if not is_v5 else None)
                    sent = translated
                if connection.packet_bytes_max < NEVER:
                    sent, left_out = _fitting(sent, connection.packet_bytes_max)
                    counters.dropped[Drop.TOO_LARGE] += left_out
                    count_sent = count - left_out
                else:
                    count_sent = count
            except Exception as error:
                self._state.failed("delivery", receiver.session.client_id, error, connection)
                receiver.session.consumer = None
                continue
            connection.messages_out += count_sent
            counters.messages_out += count_sent
            connection.send(sent)
        return crowding

    def _give_singly(self, receiver: Receiver, run: bytes, is_v5: bool, now: Nanos) -> None:
        """To a stream, a consumer that speaks another protocol, or one with a content filter."""
        for topic, payload, properties in messages_of(run, is_v5):
            message = Message(topic, payload, 0, False, properties, published_ns=now)
            self._delivery.give_filtered(receiver, message, now)


def _rewritten(run: bytes, is_v5: bool, properties: bytes | None) -> bytes:
    """The run with these properties besides its own; with None, as MQTT 3.1.1 has it."""
    pieces: list[bytes] = []
    position, end = 0, len(run)
    while position < end:
        body = position + 2 if run[position + 1] < 0x80 else position + 3
        following = packet_end(run, position)
        middle = body + 2 + run[body + 1]
        payload = middle + 1 + run[middle] if is_v5 else middle
        inserted = b""
        if properties is not None:
            all_properties = run[middle + 1 : payload] + properties
            inserted = write_variable(len(all_properties)) + all_properties
        length = middle - body + len(inserted) + following - payload
        pieces += (b"\x30", write_variable(length), run[body:middle], inserted, run[payload:following])
        position = following
    return b"".join(pieces)


def _fitting(run: bytes, packet_bytes_max: int) -> tuple[bytes, int]:
    """The packets of the run that are no larger than this, and how many are."""
    pieces: list[bytes] = []
    left_out = position = 0
    while position < len(run):
        following = packet_end(run, position)
        if following - position <= packet_bytes_max:
            pieces.append(run[position:following])
        else:
            left_out += 1
        position = following
    return b"".join(pieces), left_out
