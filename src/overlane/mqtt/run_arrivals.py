"""Run arrivals: runs and mixed runs of plain packets that other brokers bring.

No client gets bytes of which not every packet is what it should be: a run is checked packet by packet before anything
of it is handed out. In a mixed run each packet may be of another topic; what is to be known of a topic is looked up by
the bytes that a packet has of it, and consecutive packets with the same receivers are handed out together.
"""

from functools import lru_cache

from overlane.core.topics import check_topic
from overlane.core.units import Nanos
from overlane.core.wire.parcel import MIXED_RUN
from overlane.mqtt.codec.framing import packet_end
from overlane.mqtt.plain_properties import PlainProperties
from overlane.mqtt.run_delivery import RunDelivery
from overlane.mqtt.runs import PLAIN, RUN, RUN_OF_V5, end_of_alike, plain_prefix, unpack_run
from overlane.pubsub.cluster.arrivals import Mixed
from overlane.pubsub.state import State
from overlane.pubsub.subscriptions.table import Audience

TOPIC_BYTES_MAX = 255
TOPICS_MAX = 10_000
"""Known by their bytes."""
PAIRS_MAX = 0xFFFF
"""User properties of one message: how many are allowed is for its own broker to say."""

_NOBODY = Audience((), ())


class RunArrivals:
    def __init__(self, state: State, delivery: RunDelivery) -> None:
        self._state = state
        self._delivery = delivery
        self._properties = PlainProperties()
        self._topics: dict[bytes, tuple[str, Audience]] = {}
        """By what a packet has between its length and its payload; of the versions no two are alike."""
        self._known_at = -1
        """The state of subscriptions that it holds for."""

    def arrive(self, topic: str, flags: int, body: bytes, now: Nanos) -> Mixed | None:
        """Hand out what came from another broker, and tell what a mixed run has held. ValueError if it is not what it
        says, or has not so many messages."""
        is_v5 = flags & RUN_OF_V5 != 0
        if topic == MIXED_RUN:
            return self._open_mixed_run(flags, body, is_v5, now)
        prefix, audience = _checked_prefix(topic, is_v5), self._state.subscriptions.audience(topic)
        if flags & RUN:
            run, count, _ = unpack_run(flags, body)
            is_lone = run[0] == PLAIN and run[1] == len(run) - 2 < 0x80 and run.startswith(prefix, 2)
            if (1 if is_lone else self._counted(run, topic, prefix, is_v5)) != count:
                raise ValueError("not as many messages as it says")
            self._delivery.hand_out(audience, run, count, is_v5, now)
            return None
        length = len(prefix) + len(body)
        if length > 0x7F:
            raise ValueError("longer than a message alone")
        self._delivery.hand_out(audience, b"".join((bytes((PLAIN, length)), prefix, body)), 1, is_v5, now)
        return None

    def _counted(self, run: bytes, topic: str, prefix: bytes, is_v5: bool) -> int:
        """How many messages it has, all on this topic; ValueError if it is anything else."""
        position, end = 0, len(run)
        count = 0
        while position < end:
            following = packet_end(run, position)
            body = position + 2 if run[position + 1] < 0x80 else position + 3
            is_sound = run[position] == PLAIN and following <= end and run.startswith(prefix, body)
            is_short = body == position + 2 or 0 < run[body - 1] < 0x80
            if not is_sound or not is_short or body + len(prefix) > following:
                break
            far = end_of_alike(run, position, body + len(prefix), following)
            count += (far - position) // (following - position)
            position = far
        if position < end:  # with properties, or something else
            mixed = Mixed([], [])
            self._parts(run[position:], is_v5, mixed)
            if mixed.topics.count(topic) != len(mixed.topics):
                raise ValueError("not a run of plain messages on one topic")
            count += len(mixed.topics)
        return count

    def _open_mixed_run(self, flags: int, body: bytes, is_v5: bool, now: Nanos) -> Mixed:
        if not flags & RUN:
            raise ValueError("a mixed run that is no run")
        run, count, _ = unpack_run(flags, body)
        mixed = Mixed([], [])
        parts = self._parts(run, is_v5, mixed)
        if len(mixed.topics) != count:
            raise ValueError("not as many messages as it says")
        for audience, start, end, messages in parts:
            if audience.receivers:
                part = run if end - start == len(run) else run[start:end]
                self._delivery.hand_out(audience, part, messages, is_v5, now)
        return mixed

    def _parts(self, run: bytes, is_v5: bool, mixed: Mixed) -> list[tuple[Audience, int, int, int]]:
        """Consecutive packets with the same receivers: who, from where to where, and how many."""
        if self._known_at != self._state.changes:
            self._topics.clear()
            self._known_at = self._state.changes
        find, topics = self._topics.get, mixed.topics
        note_topic, note_size = topics.append, mixed.sizes.append
        parts: list[tuple[Audience, int, int, int]] = []
        behind_topic = 3 if is_v5 else 2
        position, end = 0, len(run)
        last, start, before = _NOBODY, 0, 0
        while position + 4 < end:
            length = run[position + 1]
            at = position + 2
            if length > 0x7F:
                more = run[at]
                if not 0 < more < 0x80:
                    raise ValueError("a packet too long, or with a length longer than it needs to be")
                length += (more << 7) - 0x80
                at += 1
            payload = at + behind_topic + run[at + 1]
            following = at + length
            known = find(run[at:payload])
            if known is None:
                known = self._learn(run[at:payload], is_v5)
                if is_v5 and run[payload - 1]:
                    payload = self._properties.end(run, payload - 1, following, PAIRS_MAX) or end + 1
            topic, audience = known
            if run[position] != PLAIN or payload > following or following > end:
                raise ValueError("not a plain packet")
            if audience is not last:
                if position:
                    parts.append((last, start, position, len(topics) - before))
                last, start, before = audience, position, len(topics)
            note_topic(topic)
            note_size(following - payload)
            position = following
        if position != end:
            raise ValueError("a packet that is cut off")
        parts.append((last, start, position, len(topics) - before))
        return parts

    def _learn(self, prefix: bytes, is_v5: bool) -> tuple[str, Audience]:
        """What is known of the topic that a packet begins with; ValueError if no plain packet begins like this."""
        if is_v5:
            prefix = prefix[:-1] + b"\0"  # whatever the length of its properties
        if (known := self._topics.get(prefix)) is not None:
            return known
        topic = prefix[2:-1].decode() if is_v5 else prefix[2:].decode()
        if _checked_prefix(topic, is_v5) != prefix:
            raise ValueError("a packet that is cut off")
        state = self._state
        if len(self._topics) >= TOPICS_MAX:
            self._topics.clear()
        is_wanted = not topic.startswith("$") and state.uplink.is_subscribed(topic)
        known = self._topics[prefix] = topic, state.subscriptions.audience(topic) if is_wanted else _NOBODY
        self._known_at = state.changes  # looking for an audience may have made it count
        return known


@lru_cache(maxsize=TOPICS_MAX)
def _checked_prefix(topic: str, is_v5: bool) -> bytes:
    """The prefix of a topic that another broker named; ValueError if no plain message can be of it."""
    check_topic(topic)
    topic_utf8 = topic.encode()
    if len(topic_utf8) > TOPIC_BYTES_MAX:
        raise ValueError("a topic too long for the lane")
    return plain_prefix(topic_utf8, is_v5)
