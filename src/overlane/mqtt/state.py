"""What the parts of the server share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import nsmallest

from overlane.core.events import Effect
from overlane.core.qos import QosTable
from overlane.core.units import Nanos
from overlane.mqtt.access import Access
from overlane.mqtt.agenda import Agenda
from overlane.mqtt.connection import Connection
from overlane.mqtt.counters import Counters, Refusal, TopicStats
from overlane.mqtt.elsewhere import Elsewhere
from overlane.mqtt.limits import Limits
from overlane.mqtt.notices import Notices, Refused
from overlane.mqtt.retained import RetainedMessages
from overlane.mqtt.session import Session
from overlane.mqtt.shelf import Shelf
from overlane.mqtt.subscriptions import SubscriptionTable
from overlane.mqtt.uplink import Uplink

TOPICS_COUNTED = 10_000
TOPICS_FORGOTTEN = 1_000
"""Of more topics than can be counted so many are forgotten at once: the idlest since the last time."""

POSTPONED_MAX = 10_000
"""Who says any more has to wait for the store with all that it wants to hear."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What can be changed while the server runs. `anonymous` None: from loopback addresses only."""

    limits: Limits = field(default_factory=Limits)
    access: Access = field(default_factory=Access)
    qos: QosTable = field(default_factory=lambda: QosTable({}))
    anonymous: bool | None = None


@dataclass(slots=True)
class State:
    name: str
    settings: Settings
    uplink: Uplink
    fresh_id: Callable[[], str]
    """Makes a client identifier that nobody has."""
    effects: list[Effect]
    shelf: Shelf
    retained: RetainedMessages
    subscriptions: SubscriptionTable = field(init=False)
    elsewhere: Elsewhere = field(init=False)
    sessions: dict[str, Session] = field(default_factory=dict)
    connections: set[Connection] = field(default_factory=set)
    touched: list[Connection] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    notices: Notices = field(default_factory=Notices)
    agenda: Agenda = field(default_factory=Agenda)
    is_store_failing: bool = False
    """While it is, nothing is accepted that would have to be durable."""
    postponed: dict[tuple[Connection, int, int], Callable[[Nanos], object]] = field(default_factory=dict)
    """What clients have said, by connection, kind and packet identifier, whose answer would hold back all that follows
    until the store works again: it is heard then."""
    can_erase: bool = True
    """Whether what is erased is erased for good, though the store fails, and makes room; as long as it works it is."""
    is_draining: bool = False
    turn: int = 1
    """The number of the turn that is open."""
    durable_turn: int = 0
    """What was stored in turns up to this one is on disk."""
    crowding: float = 0.0
    """How full the fullest queue was that a message has joined lately, of those whose clients are there."""
    is_let_in: bool = False
    """Whether what is being delivered has passed the gate: it was acknowledged for all who are waited for."""
    topics: dict[str, TopicStats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.subscriptions = SubscriptionTable(self.may_receive)
        self.elsewhere = Elsewhere(self.name, self.uplink)

    def may_receive(self, session: Session, topic: str) -> bool:
        return session.is_operators or self.settings.access.may_receive(session.user, session.client_id, topic)

    def may_publish(self, session: Session, topic: str) -> bool:
        if session.is_operators:
            return not topic.startswith("$")
        return self.settings.access.may_publish(session.user, session.client_id, topic)

    @property
    def changes(self) -> int:
        """Grows whenever a topic may have to go elsewhere than before."""
        return self.subscriptions.changes + self.uplink.changes

    def refuse(self, why: Refusal, told: str, connection: Connection | None = None, client_id: str = "") -> None:
        """Count what is turned away, and let operators know."""
        self.counters.refused[why] += 1
        if connection is not None and connection.session is not None:
            client_id = connection.session.client_id
        self.notices.add(Refused(why, told, client_id or None, connection.peer if connection is not None else None))

    def must_hear_later(
        self, rests_on: int, connection: Connection, kind: int, packet_id: int, hear: Callable[[Nanos], object]
    ) -> bool:
        """Whether what a client says is heard another time: the answer rests on records of this turn, which cannot be
        written now. Otherwise the answer waits for them, if need be. One that is given again, over a new connection,
        rests on the same as the first, and must not leave earlier."""
        if rests_on <= self.durable_turn:
            return False
        if not self.can_erase and len(self.postponed) < POSTPONED_MAX:
            self.postponed[connection, kind, packet_id] = hear
            return True
        connection.waits = True
        return False

    def hear_postponed(self, now: Nanos) -> None:
        postponed, self.postponed = self.postponed, {}
        for (connection, _, _), hear in postponed.items():
            if connection.session is not None:
                hear(now)

    def stats(self, topic: str) -> TopicStats:
        found = self.topics.get(topic)
        if found is None:
            if len(self.topics) >= TOPICS_COUNTED:
                self._forget_the_idlest()
            found = self.topics[topic] = TopicStats()
        return found

    def _forget_the_idlest(self) -> None:
        for topic in nsmallest(TOPICS_FORGOTTEN, self.topics, key=lambda one: self.topics[one].lately):
            self.topics.pop(topic).is_forgotten = True
        for stats in self.topics.values():
            stats.messages_before = stats.messages

    @property
    def limits(self) -> Limits:
        return self.settings.limits
