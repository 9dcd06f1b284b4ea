"""The fast path: plain QoS 0 messages, passed on by the read instead of one by one.

A PUBLISH of QoS 0 without retain flag and properties has the same bytes on its way in and on its way out. What a client
writes in one go is therefore looked at packet by packet only as far as to find whose it is: the topic's bytes are
looked up, and consecutive packets for the same audience are one run, which every receiver gets as the bytes it came
as. Packets alike in topic and length are passed all at once: every byte of their heads is compared for all of them
together. No object is made per message, and nothing is remembered of lengths.

Whatever is not plain stops the lane, for the server to handle on its own way: then the lane goes on behind it. A topic
enters the lane after its first message was handled that way, so that every check was made once; when subscriptions,
rights or the overlay's needs change, all topics start anew.
"""

from collections.abc import Iterator
from functools import lru_cache
from struct import Struct

from overlane.core.events import PublishResult
from overlane.core.qos import QosClass
from overlane.core.topics import check_topic
from overlane.core.units import NEVER, Nanos
from overlane.mqtt.codec.fields import write_variable
from overlane.mqtt.codec.framing import packet_end
from overlane.mqtt.codec.writing import subscription_id_property
from overlane.mqtt.connection import V5, Connection
from overlane.mqtt.runs import RUN, RUN_OF_V5, pack_lone, pack_run, unpack_run
from overlane.pubsub import backpressure
from overlane.pubsub.counters import Drop, TopicStats
from overlane.pubsub.delivery.delivery import Delivery
from overlane.pubsub.message import Message
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.state import State
from overlane.pubsub.subscriptions.table import Audience, Receiver

TOPIC_BYTES_MAX = 255
TOPICS_MAX = 10_000
"""Of one connection."""
ENTRIES_MAX = 200_000
"""Of all connections together. When so many have been made, all start anew."""

PLAIN = 0x30
"""The first byte of a PUBLISH of QoS 0, not retained."""

PACKET_BYTES_MAX = 3 + 0x3FFF
"""The lane takes packets whose length is told in one or two bytes."""


REPEATS = 4
"""After so many packets of one topic and length in a row it is worth to look for the end of them all at once."""
ONE_BY_ONE = 4
"""Up to so many packets for each byte of a head, it is quicker to compare head by head than byte by byte."""

_short = Struct("!BBH").unpack_from
_long = Struct("!BBBH").unpack_from


class TopicEntry:
    """`lane`: messages of consecutive entries with the same one are one run. `qos`: if other brokers need the topic."""

    __slots__ = ("audience", "head_bytes", "lane", "prefix_bytes", "qos", "stats", "topic")

    def __init__(
        self, topic: str, audience: Audience, prefix_bytes: int, stats: TopicStats, qos: QosClass | None
    ) -> None:
        self.topic = topic
        self.audience = audience
        self.qos = qos
        self.lane: object = audience if qos is None else self
        self.prefix_bytes = prefix_bytes
        self.head_bytes = prefix_bytes + 2
        """What precedes the payload of a small packet; of a larger one, one byte more."""
        self.stats = stats


class FastPath:
    def __init__(self, state: State, delivery: Delivery) -> None:
        self._state = state
        self._delivery = delivery
        self._entered = 0
        """Entries made since all were dropped: there are no more than that."""

    def enter(self, connection: Connection, session: Session, topic: str, now: Nanos) -> None:
        """A plain message on this topic came from this client: those that follow may take the lane."""
        state = self._state
        if not state.settings.access.may_publish(session.user, session.client_id, topic):
            return
        topic_utf8, audience = topic.encode(), state.subscriptions.audience(topic)
        if len(topic_utf8) > min(TOPIC_BYTES_MAX, state.limits.topic_bytes):
            return
        if audience.groups or state.cluster.directory.shared(topic):
            return
        if connection.framer.packet_bytes_max < PACKET_BYTES_MAX:
            return  # the lane does not look at the size
        qos = None
        if state.uplink.carries(topic):
            qos = state.cluster.class_of(topic, state.settings.qos.of(topic), now)
            if qos.history:
                return
        if any(one.session.log is not None for one in audience.receivers):
            return  # a log is written message by message
        if any(one.session is session and not one.is_own for one in audience.receivers):
            return
        if len(connection.entries) >= TOPICS_MAX:
            connection.entries.clear()
        if self._entered >= ENTRIES_MAX:
            for one in state.connections:
                if isinstance(one, Connection):
                    one.entries.clear()
            self._entered = 0
        self._entered += 1
        key = _prefix(topic_utf8, connection.version == V5)
        connection.entries[key] = TopicEntry(topic, audience, len(key), state.stats(topic), qos)

    def pass_on(self, connection: Connection, data: bytes, position: int, now: Nanos) -> int:  # noqa: C901 - one loop, for speed
        """Pass on the plain messages from the position on; the place of the first that is not plain and whole, or has
        to wait: then the connection has to stop."""
        if self._is_stale(connection):
            return position
        find = connection.entries.get
        behind_topic = 3 if connection.version == V5 else 2
        end = len(data)
        if not position and 4 < end < 0x82 and data[1] == end - 2:
            return self._pass_lone(connection, data, behind_topic, now)
        last: TopicEntry | None = None
        lane: TopicEntry | None = None  # the first entry of the run
        run = topic_from = position  # where the run began, and in it the last topic
        run_count = count = 0  # messages of the run before the last topic, and on it
        wide = 0  # those on it whose length takes two bytes
        last_length, repeats = -1, 0
        while position + 4 < end:
            first, length, topic_bytes = _short(data, position)
            body = position + 2
            if length > 0x7F:
                first, length, more, topic_bytes = _long(data, position)
                if more > 0x7F or not more:  # longer than the lane takes, or longer than it needs to be
                    break
                length += (more << 7) - 0x80
                body += 1
                wide += 1
            following = body + length
            if first != PLAIN or following > end:
                wide -= body - position - 2
                break
            entry = find(data[body : body + behind_topic + topic_bytes])
            if entry is not last:
                if last is not None:
                    wide -= body - position - 2
                    last.stats.messages += count
                    last.stats.bytes += position - topic_from - count * last.head_bytes - wide
                    run_count += count
                    last = None
                if entry is None or entry.stats.is_forgotten:
                    break
                if lane is None or entry.lane is not lane.lane:
                    if run_count and lane is not None:
                        self._spread(connection, lane, data[run:position], run_count, now)
                        run_count = 0
                    if connection.stops_for is not None or self._must_stop(connection, entry, now):
                        break
                    lane, run, run_count = entry, position, 0
                last, count, topic_from, last_length, repeats = entry, 0, position, length, 0
                wide = body - position - 2
            if entry is None or body + entry.prefix_bytes > following:
                wide -= body - position - 2
                break
            if length != last_length:
                last_length, repeats = length, 0
            elif repeats < REPEATS:
                repeats += 1
            else:
                far = end_of_alike(data, position, body + entry.prefix_bytes, following)
                alike = (far - position) // (following - position)
                count += alike
                wide += (alike - 1) * (body - position - 2)
                position, repeats = far, 0
                continue
            count += 1
            position = following
        if last is not None:
            last.stats.messages += count
            last.stats.bytes += position - topic_from - count * last.head_bytes - wide
            run_count += count
        if run_count and lane is not None:
            whole = data if run == 0 and position == end else data[run:position]
            self._spread(connection, lane, whole, run_count, now)
        return position

    def _pass_lone(self, connection: Connection, data: bytes, behind_topic: int, now: Nanos) -> int:
        """As `pass_on` for what is one short packet and no more: of a client that has little to say every read is."""
        first, _, topic_bytes = _short(data)
        entry = connection.entries.get(data[2 : 2 + behind_topic + topic_bytes])
        if first != PLAIN or entry is None or entry.stats.is_forgotten or self._must_stop(connection, entry, now):
            return 0
        entry.stats.messages += 1
        entry.stats.bytes += len(data) - entry.head_bytes
        self._spread(connection, entry, data, 1, now)
        return len(data)

    def _must_stop(self, connection: Connection, entry: TopicEntry, now: Nanos) -> bool:
        """Stop the client before messages of the topic are accepted, if there is no room on the way."""
        return entry.qos is not None and backpressure.stop_if_full(
            self._state.uplink, connection, entry.topic, entry.qos, now
        )

    def _is_stale(self, connection: Connection) -> bool:
        """Whether every topic must prove anew that its messages may take the lane."""
        if connection.entries_of == self._state.changes:
            return False
        connection.entries.clear()
        connection.entries_of = self._state.changes
        return True

    def _spread(self, sender: Connection, entry: TopicEntry, run: bytes, count: int, now: Nanos) -> None:
        sender.messages_in += count
        self._state.counters.messages_in += count
        is_v5 = sender.version == V5
        if entry.qos is not None:
            is_lone = count == 1 and run[1] < 0x80
            flags, body = pack_lone(run[entry.head_bytes :], is_v5) if is_lone else pack_run(run, count, is_v5)
            if self._state.uplink.publish(entry.topic, body, flags, entry.qos, now) is not PublishResult.ACCEPTED:
                self._state.counters.dropped[Drop.OVERLAY_FULL] += count
            if entry.qos.deadline_ns < NEVER:
                backpressure.stop_for_deadline(self._state.uplink, sender, entry.topic, entry.qos, now)
        if entry.audience.receivers:
            crowding = self._hand_out(entry.audience, run, count, is_v5, now)
            if crowding > backpressure.CROWDED:
                sender.rests_until_ns = max(sender.rests_until_ns, now + backpressure.rest_ns(crowding))

    def arrive(self, topic: str, flags: int, body: bytes, now: Nanos) -> None:
        """A run that came from another broker; ValueError if it is none of this topic, or has not so many messages."""
        is_v5 = flags & RUN_OF_V5 != 0
        prefix, audience = _checked_prefix(topic, is_v5), self._state.subscriptions.audience(topic)
        if flags & RUN:
            run, count, _ = unpack_run(flags, body)
            is_lone = run[0] == PLAIN and run[1] == len(run) - 2 < 0x80 and run.startswith(prefix, 2)
            if (1 if is_lone else self._counted(run, prefix)) != count:
                raise ValueError("not as many messages as it says")
            self._hand_out(audience, run, count, is_v5, now)
            return
        length = len(prefix) + len(body)
        if length > 0x7F:
            raise ValueError("longer than a message alone")
        self._hand_out(audience, b"".join((bytes((PLAIN, length)), prefix, body)), 1, is_v5, now)

    @staticmethod
    def _counted(run: bytes, prefix: bytes) -> int:
        """How many messages it has. No client gets bytes of which not every packet is what it should be."""
        position, end = 0, len(run)
        count = 0
        while position < end:
            following = packet_end(run, position)
            body = position + 2 if run[position + 1] < 0x80 else position + 3
            is_sound = run[position] == PLAIN and following <= end and run.startswith(prefix, body)
            is_short = body == position + 2 or 0 < run[body - 1] < 0x80
            if not is_sound or not is_short or body + len(prefix) > following:
                raise ValueError("not a run of plain messages on one topic")
            far = end_of_alike(run, position, body + len(prefix), following)
            count += (far - position) // (following - position)
            position = far
        return count

    def _hand_out(self, audience: Audience, run: bytes, count: int, is_v5: bool, now: Nanos) -> float:
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
                if receiver.identifiers and connection.version == V5:
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
        """To a stream, or to a consumer that speaks another protocol."""
        for topic, payload in messages_of(run, is_v5):
            message = Message(topic, payload, published_ns=now)
            self._delivery.give(receiver.session, message, 0, False, receiver.identifiers, now)


def _prefix(topic_utf8: bytes, is_v5: bool) -> bytes:
    """What a plain PUBLISH has between its length and its payload."""
    return len(topic_utf8).to_bytes(2) + topic_utf8 + (b"\0" if is_v5 else b"")


def end_of_alike(data: bytes, position: int, payload: int, following: int) -> int:
    """Where the packets end that have the same head and length as the one from the position to the following one."""
    head, size = data[position:payload], following - position
    whole = (len(data) - position) // size  # packets, if they go on like that
    far = position + whole * size
    one_by_one = far if whole <= ONE_BY_ONE * len(head) else position + len(head) * size
    while following < one_by_one:
        if not data.startswith(head, following):
            return following
        following += size
    if following < far:
        left = (far - following) // size
        for at in range(len(head)):
            column = data[following + at : far : size]
            wanted = head[at : at + 1]
            if column != wanted * left:
                left -= len(column.lstrip(wanted))
                far = following + left * size
    return far


def messages_of(run: bytes, is_v5: bool) -> Iterator[tuple[str, bytes]]:
    """Topic and payload of each message of a run that is sound."""
    position, end = 0, len(run)
    while position < end:
        body = position + 2 if run[position + 1] < 0x80 else position + 3
        position = packet_end(run, position)
        middle = body + 2 + run[body + 1]
        yield run[body + 2 : middle].decode(), run[middle + is_v5 : position]


@lru_cache(maxsize=TOPICS_MAX)
def _checked_prefix(topic: str, is_v5: bool) -> bytes:
    """The prefix of a topic that another broker named; ValueError if no plain message can be of it."""
    check_topic(topic)
    topic_utf8 = topic.encode()
    if len(topic_utf8) > TOPIC_BYTES_MAX:
        raise ValueError("a topic too long for the lane")
    return _prefix(topic_utf8, is_v5)


def _rewritten(run: bytes, is_v5: bool, properties: bytes | None) -> bytes:
    """The run with these properties instead of none; with None, as MQTT 3.1.1 has it."""
    pieces: list[bytes] = []
    position, end = 0, len(run)
    while position < end:
        body = position + 2 if run[position + 1] < 0x80 else position + 3
        following = packet_end(run, position)
        middle = body + 2 + run[body + 1]
        payload = middle + 1 if is_v5 else middle
        inserted = b"" if properties is None else write_variable(len(properties)) + properties
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
