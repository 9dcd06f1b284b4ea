"""State shared by the parts of pubsub."""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import nsmallest

from overlane.core.qos import QosClass, QosTable
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.errors import Failure
from overlane.mediation.border import BorderRules
from overlane.mediation.mediation import Mediation
from overlane.pubsub.access import Access, is_own_bridge_state
from overlane.pubsub.cluster.cluster import Cluster
from overlane.pubsub.cluster.uplink import Uplink
from overlane.pubsub.contract.connection import ClientConnection
from overlane.pubsub.contract.consumer import Confirmation, ConnectionEnd, Consumer, Ending
from overlane.pubsub.contract.questions import Question
from overlane.pubsub.counters import Counters, Refusal, TopicStats
from overlane.pubsub.delivery.queue_records import QueueRecords
from overlane.pubsub.limits import Limits
from overlane.pubsub.notices import Notices, RefusalNotice
from overlane.pubsub.policies.policy import Policies
from overlane.pubsub.publishing.message_ids import MessageIds
from overlane.pubsub.publishing.mirrored import MirroredTopics
from overlane.pubsub.reservations.advertisement import ADVERTISE, Advertisement
from overlane.pubsub.reservations.reserving import ANSWER_NS
from overlane.pubsub.reservations.service import own_topic
from overlane.pubsub.retained.messages import RetainedMessages
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.subscriptions.table import SubscriptionTable
from overlane.pubsub.timers import Timers
from overlane.pubsub.write_batch import WriteBatch
from overlane.topic_names import NameRule

TOPICS_COUNTED = 10_000
TOPIC_CHARS_COUNTED = 8 * 2**20
TOPICS_FORGOTTEN = 1_000
"""Of more topics than can be counted so many are forgotten at once: the idlest since the last time."""

SLOW_COMMIT: Nanos = SECOND
"""Whoever waits for a batch that takes longer has the time to answer anew (`delivery.window.ANSWER_WITHIN`)."""

REPORTS = "$overlane/liveliness/", "$overlane/period/", "$overlane/incompatible/"
"""What is told of publishers and subscribers (`policies.publishers`)."""

POSTPONED_MAX = 10_000
"""Beyond this number, all packets for a client that confirms more wait for the store."""


@dataclass(frozen=True, slots=True)
class ReservationSettings:
    advertisements: tuple[Advertisement, ...] = ()
    """Those of the network file."""
    answer_ns: Nanos = ANSWER_NS
    """How long a subscriber waits for an answer."""
    share: float = 0.8
    """Of the rate of a link that may be reserved."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What can be changed while the server runs. `anonymous` None: from loopback addresses only."""

    limits: Limits = field(default_factory=Limits)
    access: Access = field(default_factory=Access)
    qos: QosTable = field(default_factory=lambda: QosTable({}))
    anonymous: bool | None = None
    mirrored: MirroredTopics | None = None
    """None: no topic is."""
    reserving: ReservationSettings = field(default_factory=ReservationSettings)
    mediation: Mediation | None = None
    """None: there are no rules."""
    policies: Policies | None = None
    """None: publishers of no topic are told apart."""
    borders: BorderRules | None = None
    """Rules of mediation at borders of domains (`cluster.border`). None: there are none."""
    names: tuple[NameRule, ...] = ()
    """Of topics: the names in the domain of the broker, and those in the overlay, which QoS classes, policies and
    mirrored topics are for (`cluster.renaming`). None: they are the same."""


@dataclass(slots=True)
class State:
    name: str
    settings: Settings
    uplink: Uplink
    fresh_id: Callable[[], str]
    """Makes an unused client identifier."""
    retained: RetainedMessages
    batch: WriteBatch = field(default_factory=WriteBatch)
    """Records of the turn that is open, but for those of queues."""
    queue_records: QueueRecords = field(default_factory=QueueRecords)
    subscriptions: SubscriptionTable = field(init=False)
    cluster: Cluster = field(init=False)
    sessions: dict[str, Session] = field(default_factory=dict)
    connections: set[Consumer] = field(default_factory=set)
    """Of clients of every protocol, those that are not accepted yet included."""
    touched: list[ClientConnection] = field(default_factory=list)
    """Connections of every protocol that have something to send, or to be closed, at the end of the turn."""
    questions: list[Question] = field(default_factory=list)
    """What must be found out about clients before they are let in, and where their sessions are."""
    counters: Counters = field(default_factory=Counters)
    notices: Notices = field(default_factory=Notices)
    timers: Timers = field(default_factory=Timers)
    failures: list[tuple[Failure, Consumer | None]] = field(default_factory=list)
    """Inputs that failed by our own fault, and whose connection is to be ended for it."""
    is_store_failing: bool = False
    """While it is, nothing is accepted that would have to be durable."""
    postponed: dict[tuple[Consumer, Confirmation, int], Callable[[Nanos], object]] = field(default_factory=dict)
    """Confirmations of clients, by connection, kind and tag, whose answer would hold back all that follows until the
    store works again: they are handled then."""
    lacks_mirror: bool = False
    """Whether no other host has a copy: then nothing is accepted on mirrored topics."""
    needs_mirror: bool = False
    """Whether a message of a mirrored topic was accepted in this turn: its records have to be on another host too."""
    can_erase: bool = True
    """Whether what is erased is erased for good, though the store fails, and makes room; as long as it works it is."""
    is_draining: bool = False
    turn: int = 1
    """The number of the turn that is open."""
    durable_turn: int = 0
    """What was stored in turns up to this one is on disk."""
    commit_since_ns: Nanos = NEVER
    """Since when the oldest of the batches is under way that are not on disk; NEVER if there is none."""
    topics: dict[str, TopicStats] = field(default_factory=dict)
    _topic_chars: int = 0
    """Of all topics that are counted."""
    message_ids: MessageIds = field(default_factory=MessageIds)
    """Of messages that may come more than once."""
    is_traced: Callable[[str], bool] | None = None
    """Whether messages of a topic may be sampled for traces; None: none are."""
    suspects: frozenset[str] = frozenset()
    """Messages that have ended the process too often, and are refused (`pubsub.suspects`)."""

    def __post_init__(self) -> None:
        self.subscriptions = SubscriptionTable(self.may_receive)
        self.cluster = Cluster(self.name, self.uplink, self.class_of)

    def class_of(self, topic: str) -> QosClass:
        """By the network file."""
        return self.settings.qos.of(topic)

    def has_policy(self, topic: str) -> bool:
        """Whether publishers of a topic are told apart, so that its messages are looked at one by one."""
        policies = self.settings.policies
        return policies is not None and policies.of(topic) is not None

    def may_receive(self, session: Session, topic: str) -> bool:
        if session.is_operators:
            return True
        access, client_id = self.settings.access, session.client_id
        if topic.startswith("$"):
            if topic == own_topic(client_id):
                return True
            if topic.startswith(REPORTS):  # of a topic: for those who may receive that
                told_of = topic.split("/", 2)[2]
                if not access.may_receive(session.user, client_id, told_of):
                    return False
        return access.may_receive(session.user, client_id, topic)

    def awaits(self, session: Session, now: Nanos) -> bool:
        """Whether publishers wait for it where it falls behind: it is there, and answers, or cannot answer. Where the
        disk is slow, what it was sent may not have left yet."""
        consumer = session.consumer
        return consumer is not None and (
            session.window.keeps_answering(now, consumer.unanswerable_until_ns)
            or now - self.commit_since_ns > SLOW_COMMIT
        )

    def may_publish(self, session: Session, topic: str) -> bool:
        if session.is_operators:
            return not topic.startswith("$")
        client_id = session.client_id
        if topic.startswith(ADVERTISE):
            return True  # as far as it may publish what it advertises, which is in the document
        return self.settings.access.may_publish(session.user, client_id, topic) or is_own_bridge_state(topic, client_id)

    def is_mediated(self, topic: str) -> bool:
        """Whether messages of the topic have to be looked at one by one, for rules of mediation or traces."""
        mediation = self.settings.mediation
        if self.is_traced is not None and self.is_traced(topic):
            return True
        return (mediation is not None and mediation.concerns(topic)) or self.uplink.mediates(topic)

    @property
    def changes(self) -> int:
        """Grows whenever the receivers of a topic may have changed."""
        return self.subscriptions.changes + self.uplink.changes

    def refuse(self, why: Refusal, told: str, client: ConnectionEnd | None = None, client_id: str = "") -> None:
        """Count what is turned away, and let operators know."""
        self.counters.refused[why] += 1
        if client is not None and client.session is not None:
            client_id = client.session.client_id
        self.notices.add(RefusalNotice(why, told, client_id or None, client.peer if client is not None else None))

    def failed(self, kind: str, source: str, error: Exception, consumer: Consumer | None = None) -> None:
        """An input failed by our own fault, and nothing that matters is half done: whoever it came from, or was for, is
        ended with a reason (`Server.take_failures`). Nothing more is sent to it from now on."""
        self.failures.append((Failure(kind, source, error), consumer))
        if consumer is not None:
            consumer.end(Ending.INTERNAL_ERROR, Ending.INTERNAL_ERROR.value)

    def postpone(
        self, rests_on: int, consumer: Consumer, kind: Confirmation, tag: int, handle: Callable[[Nanos], object]
    ) -> bool:
        """Put off what a client confirms if the answer rests on records of this turn, which cannot be written now;
        whether that was done. Otherwise the answer waits for them, if need be. One that is given again, over a new
        connection, rests on the same as the first, and must not leave earlier."""
        if rests_on <= self.durable_turn:
            return False
        if not self.can_erase and len(self.postponed) < POSTPONED_MAX:
            self.postponed[consumer, kind, tag] = handle
            return True
        consumer.waits = True
        return False

    def handle_postponed(self, now: Nanos) -> None:
        postponed, self.postponed = self.postponed, {}
        for (consumer, _, _), handle in postponed.items():
            if consumer.session is not None:
                handle(now)

    def stats(self, topic: str) -> TopicStats:
        found = self.topics.get(topic)
        if found is None:
            while self.topics and (len(self.topics) >= TOPICS_COUNTED or self._topic_chars > TOPIC_CHARS_COUNTED):
                self._forget_the_idlest()
            found = self.topics[topic] = TopicStats()
            self._topic_chars += len(topic)
        return found

    def _forget_the_idlest(self) -> None:
        for topic in nsmallest(TOPICS_FORGOTTEN, self.topics, key=lambda one: self.topics[one].lately):
            self.topics.pop(topic).is_forgotten = True
            self._topic_chars -= len(topic)
        for stats in self.topics.values():
            stats.messages_before = stats.messages

    @property
    def limits(self) -> Limits:
        return self.settings.limits
