"""The other brokers, as seen by this one.

The overlay knows filters and topics, and nothing of sessions. Three things concern all brokers: retained messages, the
members of shared subscriptions, and QoS overrides of subscribers. Each is encoded in cluster names (`names`), so that
the overlay carries it like any message, durably and in order.
"""

from collections.abc import Callable
from dataclasses import replace

from overlane.core.events import PublishResult
from overlane.core.qos import QosClass, QosTable
from overlane.core.requirements import NONE as NO_REQUIREMENTS
from overlane.core.topic_cache import TopicCache
from overlane.core.units import Nanos
from overlane.pubsub.cluster import envelope
from overlane.pubsub.cluster.directory import ClusterDirectory, RemoteGroup
from overlane.pubsub.cluster.names import (
    EVERYTHING_RETAINED,
    HANDOUT,
    RETAINED,
    handout_name,
    share_name,
    unplaced_share_name,
    want_name,
)
from overlane.pubsub.cluster.uplink import Uplink
from overlane.pubsub.message import Message
from overlane.pubsub.publishing.qos_override import NONE, Deadlines, QosOverride, apply_override

RETAINED_CLASS = QosClass(reliable=True, history=1)
HANDOUT_CLASS = QosClass(reliable=True)
LOCAL_SUBSCRIBERS = "mqtt"
"""The overlay's name for all local subscribers together. It is in records, so it stays as it was first called."""

_STAMP_BYTES = 8


def overlay_table(qos: QosTable) -> QosTable:
    """The classes of applications' topics, and those of what brokers carry for each other beside them: what is retained
    takes no path that messages of its topic may not take."""
    of_topics = {
        RETAINED + pattern: replace(RETAINED_CLASS, requires=requires)
        for pattern, requires in qos.trusting().items()
        if not pattern.startswith("$")
    }
    return qos.extended({EVERYTHING_RETAINED: RETAINED_CLASS, **of_topics})


class Cluster:
    def __init__(self, me: str, uplink: Uplink, class_of: Callable[[str], QosClass] = lambda _: QosClass()) -> None:
        """`class_of`: a topic's class by the network file."""
        self._me = me
        self._class_of = class_of
        self._uplink = uplink
        self.directory = ClusterDirectory()
        self.deadlines = Deadlines()
        self._turns: TopicCache[tuple[str, str], int] = TopicCache()

    def class_of(self, topic: str, qos: QosClass, now: Nanos) -> QosClass:
        """The class of a topic, with what subscribers of other brokers ask for beyond the network file."""
        override = self.directory.override(topic)
        return qos if override is NONE else self.apply_override(qos, override, now)

    def apply_override(self, qos: QosClass, override: QosOverride, now: Nanos) -> QosClass:
        if override.deadline_ns < qos.deadline_ns:
            override = override._replace(deadline_ns=self.deadlines.settle(override.deadline_ns, now))
        if override.requires is not NO_REQUIREMENTS:
            self.deadlines.require(override.requires, now)
        return apply_override(qos, override)

    def start(self, now: Nanos) -> None:
        """Retained messages of all brokers are kept at each of them."""
        if not self._uplink.is_alone:
            self._uplink.subscribe(LOCAL_SUBSCRIBERS, EVERYTHING_RETAINED, False, now)
            if self._uplink.is_edge or self._uplink.is_routing:
                self._uplink.subscribe(LOCAL_SUBSCRIBERS, handout_name(self._me, "#"), False, now)

    # Retained messages

    def retain(self, message: Message, now: Nanos) -> PublishResult:
        """Let every broker keep it, or forget the one before. The later stamp wins."""
        if self._uplink.is_alone:
            return PublishResult.ACCEPTED
        flags, body = envelope.pack(message, now)
        stamp = message.published_ns.to_bytes(_STAMP_BYTES)
        qos = self._of_topic(RETAINED_CLASS, message.topic)
        return self._uplink.publish(RETAINED + message.topic, stamp + body, flags, qos, now)

    def hand_out(self, broker: str, message: Message, is_asked: bool, now: Nanos) -> PublishResult:
        """Let one broker have a retained message."""
        flags, body = envelope.pack(message, now)
        flags |= envelope.ASKED if is_asked else 0
        stamp = message.published_ns.to_bytes(_STAMP_BYTES)
        qos = self._of_topic(HANDOUT_CLASS, message.topic)
        return self._uplink.publish(handout_name(broker, message.topic), stamp + body, flags, qos, now)

    def _of_topic(self, qos: QosClass, topic: str) -> QosClass:
        """The class of what brokers carry beside messages of a topic, which takes no path that these may not take."""
        requires = self._class_of(topic).requires
        return replace(qos, requires=requires.trust_alone()) if requires.is_trust else qos

    @staticmethod
    def read_retained(name: str, flags: int, body: bytes) -> Message:
        """Of a retained message, or a handout; ValueError if it is none."""
        stamp = int.from_bytes(body[:_STAMP_BYTES])
        levels = 2 if name.startswith(HANDOUT) else 1
        return envelope.unpack(name.split("/", levels)[levels], flags, body[_STAMP_BYTES:], stamp)

    # Shared subscriptions

    def join_group(self, group: str, topic_filter: str, now: Nanos) -> None:
        """There are members here from now on."""
        self._uplink.subscribe(LOCAL_SUBSCRIBERS, share_name(group, self._me, topic_filter, topic_filter), False, now)

    def leave_group(self, group: str, topic_filter: str, now: Nanos) -> None:
        self._uplink.unsubscribe(LOCAL_SUBSCRIBERS, share_name(group, self._me, topic_filter, topic_filter), now)

    def choose(self, group: str, topic_filter: str, brokers: tuple[str, ...], is_here: bool) -> str:
        """Whose turn it is: another broker's name, or "" for this one. Those that cannot be reached come last."""
        reachable = [broker for broker in brokers if self._uplink.can_reach(broker)]
        candidates: list[str] = [*([""] if is_here else []), *reachable] or list(brokers)
        turn = self._turns.get((group, topic_filter))
        if turn is None:
            self._turns.make_room(topic_filter)
            turn = 0
        self._turns[group, topic_filter] = turn + 1
        return candidates[turn % len(candidates)]

    def send_to_group(
        self, broker: str, one: RemoteGroup, message: Message, qos: QosClass, now: Nanos
    ) -> PublishResult:
        flags, body = envelope.pack(message, now)
        name = share_name(one.group, broker, one.filter, message.topic)
        return self._uplink.publish(name, body, flags, qos, now)

    def hold_for_group(self, group: str, tag: str, message: Message, qos: QosClass, now: Nanos) -> bool:
        """Hold a message for a group while it is not known who needs its topic, as at an edge whose routing broker has
        not told that yet; `Publishing.held_message_sent` follows when it has. False if that is known already."""
        name = unplaced_share_name(group, tag, message.topic)
        if not self._uplink.carries(name):
            return False
        flags, body = envelope.pack(message, now)
        return self._uplink.publish(name, body, flags, qos, now) is PublishResult.ACCEPTED

    # QoS overrides

    def want(self, override: QosOverride, topic_filter: str, now: Nanos) -> None:
        self._uplink.subscribe(LOCAL_SUBSCRIBERS, want_name(override, topic_filter), False, now)

    def want_no_more(self, override: QosOverride, topic_filter: str, now: Nanos) -> None:
        self._uplink.unsubscribe(LOCAL_SUBSCRIBERS, want_name(override, topic_filter), now)
