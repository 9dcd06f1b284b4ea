"""The path of QoS 1: plain messages and acknowledgements, taken by the read instead of one by one.

A client that publishes fast at QoS 1 has several messages on the way, and one read of its connection brings all of
them; so it is with the acknowledgements of one that subscribes. What is found out about a topic for the fast path
(`fast_path`), rights, receivers and size included, holds for its messages of QoS 1 as well. Those of one read for the
same receivers are one run: one record of messages and one for each durable queue, one write to each receiver, one write
with all acknowledgements.

A message is on this path if it is a PUBLISH of QoS 1, neither repeated nor retained, without properties, of a topic
that stays at this broker. All others take the ordinary way (`packets`), and so do all messages while the store fails or
some are suspected, those of a broker with mirrored topics, and those of clients that have more on the way than they
may. Nothing else differs: a message counts, is limited, stored and acknowledged as there.
"""

from collections.abc import Sequence
from struct import unpack_from

from overlane.core.units import NEVER, Nanos
from overlane.mqtt.codec import writing
from overlane.mqtt.codec.malformed import PROTOCOL_ERROR, Malformed
from overlane.mqtt.connection import V5, Connection
from overlane.mqtt.fast_path import FastPath, RunTarget
from overlane.mqtt.reasons import NO_SUBSCRIBERS
from overlane.pubsub.delivery.confirmations import UnexpectedConfirmation
from overlane.pubsub.delivery.delivery import Delivery
from overlane.pubsub.message import Message, Run
from overlane.pubsub.publishing import backpressure
from overlane.pubsub.publishing.publishing import Publishing
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.state import State

PUBLISH = 0x32
"""The first byte of a PUBLISH of QoS 1, neither repeated nor retained."""
PUBACK = writing.PUBACK
RUN_MAX = 64
"""Messages. A run is handled in one go, and its record of messages is kept until the last of them is done with."""
ACKS_MAX = 1_024
ACK_BYTES = 4
SHORT_ACK = PUBACK << 8 | 2
ACK = bytes((PUBACK, 2))
ACK_REASON = bytes((PUBACK, 3))
NO_SUBSCRIBERS_BYTE = bytes((NO_SUBSCRIBERS,))


class Qos1Path:
    def __init__(self, state: State, fast_path: FastPath, publishing: Publishing, delivery: Delivery) -> None:
        self._state = state
        self._fast_path = fast_path
        self._publishing = publishing
        self._delivery = delivery

    def pass_on(self, connection: Connection, data: bytes, position: int, now: Nanos) -> int:
        """Take what is on this path from the position on, as far as it is one run; where that ends. Malformed."""
        first = data[position]
        if first == PUBACK:
            return self._acknowledged(connection, data, position, now)
        if first != PUBLISH or connection.stops_for is not None:
            return position
        return self._publish(connection, data, position, now)

    def _publish(self, connection: Connection, data: bytes, position: int, now: Nanos) -> int:
        """Accept the messages from the position on, as far as they are one run; where it ends."""
        session = connection.session
        if session is None or not self._is_open(connection, session):
            return position
        is_v5 = connection.version == V5
        version, sender = connection.version, session.client_id
        find = connection.entries.get
        messages: list[Message] = []
        identifiers: list[bytes] = []
        run_max = 1 if session.promises_once else RUN_MAX  # of one that fails it must be known which it was
        lane: RunTarget | None = None
        end = len(data)
        behind_topic, last_head = (3 if is_v5 else 2), end - 6
        for _ in range(run_max):
            if position >= last_head or data[position] != PUBLISH:
                break
            length = data[position + 1]
            body = position + 2
            if length > 0x7F:
                more = data[body]
                if more > 0x7F or not more:  # longer than the lane takes, or longer than it needs to be
                    break
                length += (more << 7) - 0x80
                body += 1
            following = body + length
            middle = body + 2 + data[body + 1]
            payload = middle + behind_topic
            if following > end or payload > following:
                break
            entry = find(data[body:middle] + b"\0" if is_v5 else data[body:middle])
            if entry is None or (is_v5 and data[payload - 1]):
                break
            identifier = data[middle : middle + 2]
            stats = entry.stats
            if stats.is_forgotten or identifier == b"\0\0":
                break
            if entry.lane is not lane:
                if lane is not None or entry.lane.qos is not None:
                    break
                lane = entry.lane
            stats.messages += 1
            stats.bytes += following - payload
            head = data[position:middle]
            messages.append(
                Message(entry.topic, data[payload:following], 1, False, b"", sender, now, NEVER, head, version)
            )
            identifiers.append(identifier)
            position = following
        if lane is not None:
            self._accept(connection, session, lane, messages, identifiers, now)
        return position

    def _is_open(self, connection: Connection, session: Session) -> bool:
        """Whether messages of the client may take this path."""
        state = self._state
        if state.is_store_failing or state.suspects or self._fast_path.drop_stale(connection):
            return False
        if state.settings.mirrored is not None:
            return False  # which topics are mirrored is not known to the lanes
        return connection.version != V5 or connection.may_have_more_under_way(session)

    def _accept(
        self,
        connection: Connection,
        session: Session,
        lane: RunTarget,
        messages: list[Message],
        identifiers: list[bytes],
        now: Nanos,
    ) -> None:
        count = len(messages)
        connection.messages_in += count
        self._state.counters.messages_in += count
        accepted = self._publishing.publish_run(Run(messages), session, lane.audience, identifiers, now)
        if accepted.has_receivers or connection.version != V5:
            acks = b"".join([ACK + identifier for identifier in identifiers])
        else:
            acks = b"".join([ACK_REASON + identifier + NO_SUBSCRIBERS_BYTE for identifier in identifiers])
        connection.waits |= accepted.is_stored
        connection.acks_owed += count
        connection.send(acks)
        if accepted.crowding > backpressure.CROWDED:
            rests_until_ns = now + backpressure.rest_ns(accepted.crowding)
            connection.rests_until_ns = max(connection.rests_until_ns, rests_until_ns)

    def _acknowledged(self, connection: Connection, data: bytes, position: int, now: Nanos) -> int:
        """Take the acknowledgements from the position on that have no reason; where they end. Malformed."""
        session = connection.session
        count = min((len(data) - position) // ACK_BYTES, ACKS_MAX)
        if session is None or not count:
            return position
        fields = unpack_from(f"!{2 * count}H", data, position)
        tags = fields[1::2]
        if fields[::2].count(SHORT_ACK) != count or 0 in tags:
            tags = tuple(fields[at + 1] for at in range(0, _end_of_acks(fields), 2))
        try:
            self._delivery.acknowledged_run(session, connection, tags, now)
        except UnexpectedConfirmation as unexpected:
            raise Malformed(PROTOCOL_ERROR, f"PUBACK, but {unexpected}") from None
        return position + len(tags) * ACK_BYTES


def _end_of_acks(fields: Sequence[int]) -> int:
    """How many of the numbers are of acknowledgements without reason, heads and tags in turn."""
    at = 0
    while at < len(fields) and fields[at] == SHORT_ACK and fields[at + 1]:
        at += 2
    return at
