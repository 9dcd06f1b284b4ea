"""The fast path: plain QoS 0 messages, forwarded a whole read at a time instead of one by one.

A PUBLISH of QoS 0 without retain flag, whose properties are plain ones (`plain_properties`) if it has any, has the same
bytes when it is received and when it is delivered; a topic alias is first replaced by its topic (`topic_aliases`). So
the packets of a read are inspected only to find their receivers: the topic's bytes are looked up, and consecutive
packets of any topics for the same local receivers and the same other brokers are one run, which every receiver gets as
the received bytes. Packets with the same topic and length are found together: their heads are compared in one step. No
object is created per message, and lengths are not stored.

A packet that is not plain ends the run; the server handles it on the ordinary path, then the fast path continues after
it. A topic uses the fast path after its first message was handled on the ordinary path, with all checks; clients with
the same permissions share the data about topics. When subscriptions, permissions or the overlay's interest change, all
topics start again.
"""

from collections.abc import Hashable

from overlane.core.events import PublishResult
from overlane.core.qos import QosClass
from overlane.core.units import NEVER, Nanos
from overlane.mqtt.connection import V5, Connection
from overlane.mqtt.plain_properties import PlainProperties
from overlane.mqtt.run_delivery import RunDelivery
from overlane.mqtt.runs import LONE, PLAIN, RUN, RUN_OF_V5, end_of_alike, pack_run, plain_prefix
from overlane.mqtt.topic_aliases import expand, is_aliased
from overlane.pubsub.counters import Drop, TopicStats
from overlane.pubsub.publishing import backpressure
from overlane.pubsub.publishing.backpressure import stop_if_full
from overlane.pubsub.reservations.service import Reservations
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.state import State
from overlane.pubsub.subscriptions.table import Audience

TOPIC_BYTES_MAX = 255
TOPICS_MAX = 10_000
"""Of one connection, or of all that share what they know."""
ENTRIES_MAX = 200_000
"""Of all connections together. When so many have been made, all start anew."""

PACKET_BYTES_MAX = 3 + 0x3FFF
"""The lane takes packets whose length is told in one or two bytes."""

_ACCEPTED = PublishResult.ACCEPTED

REPEATS = 2
"""After so many packets of one topic and length in a row it is worth to look for the end of them all at once."""


class RunTarget:
    """Where messages go: the receivers here, and the class and a topic of those that go to the same other brokers, if
    they go to any. `is_mixed`: whether messages of several topics are one run."""

    __slots__ = ("audience", "has_deadline", "is_mixed", "qos", "stops_on", "topic")

    def __init__(self, audience: Audience, qos: QosClass | None, topic: str) -> None:
        self.audience = audience
        self.qos = qos
        self.topic = topic
        self.is_mixed = qos is not None and not qos.reliable
        self.has_deadline = qos is not None and qos.deadline_ns < NEVER
        self.stops_on = qos if qos is not None and backpressure.stops_when_full(qos) else None
        """The class, if its publishers are stopped before their messages are accepted, when the way is full."""


class TopicEntry:
    """Messages of consecutive entries of one lane are one run."""

    __slots__ = ("lane", "lone_flags", "prefix_bytes", "stats", "topic", "topics")

    def __init__(self, topic: str, lane: RunTarget, prefix_bytes: int, stats: TopicStats, lone_flags: int) -> None:
        self.topic = topic
        self.topics = (topic,)
        self.lane = lane
        self.prefix_bytes = prefix_bytes
        self.lone_flags = lone_flags
        """Of a message that the overlay carries by itself (`runs`)."""
        self.stats = stats


class FastPath:
    def __init__(self, state: State, delivery: RunDelivery, reservations: Reservations) -> None:
        self._state = state
        self._delivery = delivery
        self._reservations = reservations
        self._properties = PlainProperties()
        self._entered = 0
        """Entries made since all were dropped: there are no more than that."""
        self._known_at = -1
        """The state of subscriptions and rights that the following hold for."""
        self._lanes: dict[Hashable, RunTarget] = {}
        self._shared: dict[Hashable, dict[bytes, TopicEntry]] = {}
        """Entries of clients with the same rights."""

    def knows(self, connection: Connection, topic: str) -> bool:
        """Whether plain messages of this client on the topic may take the lane, so that it need not be entered."""
        known = connection.entries.get(plain_prefix(topic.encode(), connection.version == V5))
        return known is not None and not known.stats.is_forgotten

    def enter(self, connection: Connection, session: Session, topic: str, now: Nanos) -> None:
        """A plain message on this topic came from this client: those that follow may take the lane."""
        state = self._state
        if not state.settings.access.may_publish(session.user, session.client_id, topic):
            return
        topic_utf8, audience = topic.encode(), state.subscriptions.audience(topic)
        if len(topic_utf8) > min(TOPIC_BYTES_MAX, state.limits.topic_bytes):
            return
        if self._reservations.flow_of(topic) is not None:
            return  # what is advertised is compared with its profile message by message
        if audience.groups or state.cluster.directory.shared(topic) or state.is_mediated(topic):
            return
        if state.has_policy(topic):
            return
        if connection.framer.packet_bytes_max < PACKET_BYTES_MAX:
            return  # the lane does not look at the size
        if state.uplink.withheld_from(topic):
            return  # each message that may not leave is counted
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
            self._forget()
        self._entered += 1
        prefix = plain_prefix(topic_utf8, connection.version == V5)
        lane = self._lane(topic, audience, qos)
        lone_flags = LONE | RUN_OF_V5 if connection.version == V5 else LONE
        connection.entries[prefix] = TopicEntry(topic, lane, len(prefix), state.stats(topic), lone_flags)

    def _lane(self, topic: str, audience: Audience, qos: QosClass | None) -> RunTarget:
        if qos is not None and qos.reliable:
            return RunTarget(audience, qos, topic)  # what is kept for others is kept topic by topic
        key = audience, qos, None if qos is None else self._state.uplink.destinations(topic)
        found = self._lanes.get(key)
        if found is None:
            found = self._lanes[key] = RunTarget(audience, qos, topic)
        return found

    def _forget(self) -> None:
        for one in self._state.connections:
            if isinstance(one, Connection):
                one.entries.clear()
        for entries in self._shared.values():
            entries.clear()
        self._entered = 0

    def pass_on(self, connection: Connection, data: bytes, position: int, now: Nanos) -> int:  # noqa: C901 - one loop, for speed
        """Pass on the plain messages from the position on; the place of the first that is not plain and whole, or has
        to wait: then the connection has to stop."""
        if connection.entries_of != self._state.changes and self.drop_stale(connection):
            return position
        behind_topic = 3 if connection.version == V5 else 2
        end = len(data)
        if not position and 4 < end < 0x82 and data[1] == end - 2:
            passed = self._pass_lone(connection, data, behind_topic, now)
            if passed or behind_topic == 2 or connection.stops_for is not None:
                return passed
        entries = connection.entries
        last: TopicEntry | None = None
        lane: RunTarget | None = None
        topics: list[str] = []  # of the run, where other brokers need them
        run, count = position, 0  # where the run began, and its messages
        last_length, repeats = -1, 0
        pairs_max, end_of_properties = self._state.limits.user_properties, self._properties.end
        head_end = end - 4
        while position < head_end:
            length = data[position + 1]
            body = position + 2
            if length > 0x7F:
                more = data[body]
                if more > 0x7F or not more:  # longer than the lane takes, or longer than it needs to be
                    break
                length += (more << 7) - 0x80
                body += 1
            following = body + length
            if data[position] != PLAIN or following > end:
                break
            try:
                entry = entries[data[body : body + behind_topic + data[body + 1]]]
                size = length - entry.prefix_bytes  # of the payload
            except KeyError:
                if behind_topic == 2:
                    break
                topic_end = body + 2 + data[body + 1]
                found = entries.get(data[body:topic_end] + b"\0")
                if found is None or topic_end >= following:
                    break
                entry = found
                size = following - end_of_properties(data, topic_end, following, pairs_max)
                if size == following:
                    break
            if size < 0:
                break
            stats = entry.stats
            if entry is not last:
                if stats.is_forgotten:
                    break
                if entry.lane is not lane:
                    if lane is not None:
                        self._spread(connection, lane, topics, data[run:position], count, now)
                        run, count, topics, lane = position, 0, [], None
                    if connection.stops_for is not None:
                        break
                    qos, topic = entry.lane.stops_on, entry.lane.topic
                    if qos is not None and stop_if_full(self._state.uplink, connection, topic, qos, now):
                        break
                    lane = entry.lane
                    is_mixed = lane.is_mixed
                if is_mixed:
                    topics.append(entry.topic)
                last, repeats = entry, 0
            elif length != last_length:
                last_length, repeats = length, 0
            elif repeats < REPEATS:
                repeats += 1
            else:
                far = end_of_alike(data, position, following - size, following)
                alike = (far - position) // (following - position)
                count += alike
                stats.messages += alike
                stats.bytes += alike * size
                position, repeats = far, 0
                continue
            stats.messages += 1
            stats.bytes += size
            count += 1
            position = following
        if lane is not None:
            whole = data if run == 0 and position == end else data[run:position]
            self._spread(connection, lane, topics, whole, count, now)
        if connection.aliases_in and position + 5 < end and is_aliased(data, position):
            return self._pass_aliased(connection, data, position, now)
        return position

    def _pass_aliased(self, connection: Connection, data: bytes, position: int, now: Nanos) -> int:
        """As `pass_on`, from a packet on that has a topic alias."""
        while connection.stops_for is None and connection.aliases_in:
            expanded = expand(data, position, connection.aliases_in)
            passed = self.pass_on(connection, expanded.data, 0, now)
            if not passed:
                break
            position = expanded.origin(passed)
            if passed < len(expanded.data):
                break
        return position

    def _pass_lone(self, connection: Connection, data: bytes, behind_topic: int, now: Nanos) -> int:
        """As `pass_on` for what is one short packet and no more: of a client that has little to say every read is."""
        entry = connection.entries.get(data[2 : 2 + behind_topic + data[3]])
        if data[0] != PLAIN or entry is None or entry.stats.is_forgotten:
            return 0
        lane = entry.lane
        qos = lane.stops_on
        if qos is not None and stop_if_full(self._state.uplink, connection, lane.topic, qos, now):
            return 0
        payload, size, stats = 2 + entry.prefix_bytes, len(data), entry.stats
        stats.messages += 1
        stats.bytes += size - payload
        alone = (entry.lone_flags, data[payload:]) if lane.qos is not None else None
        self._spread(connection, lane, entry.topics, data, 1, now, alone)
        return size

    def drop_stale(self, connection: Connection) -> bool:
        """Forget what is known of topics if it may have changed; True if each must take the general path again."""
        changes = self._state.changes
        if connection.entries_of == changes:
            return False
        if self._known_at != changes:
            self._known_at = changes
            self._lanes.clear()
            self._shared.clear()
        connection.entries_of = changes
        connection.entries = self._entries_of(connection)
        return not connection.entries

    def _entries_of(self, connection: Connection) -> dict[bytes, TopicEntry]:
        """What is known of topics, of all clients with the same rights."""
        session = connection.session
        if session is None:
            return {}
        if any(one.no_local for one in session.subscriptions.values()):
            return {}  # some topics may not be for everybody when it is this client that publishes
        rights = self._state.settings.access.rights(session.user, session.client_id)
        is_limited = connection.framer.packet_bytes_max < PACKET_BYTES_MAX
        return self._shared.setdefault((rights, connection.version == V5, is_limited), {})

    def _spread(
        self,
        sender: Connection,
        lane: RunTarget,
        topics: "list[str] | tuple[str]",
        run: bytes,
        count: int,
        now: Nanos,
        alone: tuple[int, bytes] | None = None,
    ) -> None:
        """`alone`: a single message as the overlay carries it by itself."""
        sender.messages_in += count
        self._state.counters.messages_in += count
        is_v5 = sender.version == V5
        qos = lane.qos
        if qos is not None:
            uplink = self._state.uplink
            if lane.is_mixed:
                flags = RUN | RUN_OF_V5 if is_v5 else RUN
                result = uplink.publish_mixed_run(topics, run, count, flags, alone, qos, now)
            else:
                flags, body = alone or pack_run(run, count, is_v5)
                result = uplink.publish(lane.topic, body, flags, qos, now)
            if result is not _ACCEPTED:
                self._state.counters.dropped[Drop.OVERLAY_FULL] += count
            if lane.has_deadline:
                backpressure.stop_for_deadline(uplink, sender, lane.topic, qos, now)
        if lane.audience.receivers:
            crowding = self._delivery.hand_out(lane.audience, run, count, is_v5, now)
            if crowding > backpressure.CROWDED:
                sender.rests_until_ns = max(sender.rests_until_ns, now + backpressure.rest_ns(crowding))
