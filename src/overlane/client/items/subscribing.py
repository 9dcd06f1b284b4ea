"""One subscription of the application, at several brokers; every message once.

For a filter within an item it is an ordinary subscription at the broker that is used, and one that stands by at the
other: that one gets only messages with an identity which are published there. Filters beyond one item are subscribed to
at the home session. Copies are recognised by their identities.

When an item moves, or another broker of it is used, the new subscription is added first. The old one stands by, or
ends, when the new one has been granted and its own broker well for OVERLAP: until then other brokers may not know of
the new one, and the old one's broker may have acknowledged messages that it has for this session only.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from overlane.client.clocks import now_ns
from overlane.client.engine import Engine
from overlane.client.inbox import Inbox
from overlane.client.items.sessions import Sessions
from overlane.client.message import Message
from overlane.client.protocol import WantedSubscription
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.items.directory import ItemDirectory
from overlane.pubsub.publishing.message_ids import PROPERTY, IdWindow, read_id

RUNS_MAX = 1_000
STANDBY = (("overlane-standby", "yes"),)
RETAINED_NEVER = 2
OVERLAP: Nanos = 5 * SECOND
PLAIN_OVERLAP: Nanos = 500 * MS
"""The same for messages without an identity, whose copies nobody recognises."""
HOME = ""


@dataclass(slots=True)
class _Leg:
    """A subscription at one broker to one filter."""

    engine: Engine
    number: int
    is_standby: bool
    surplus_since: Nanos = NEVER
    """Since when it is not needed as it is, while its broker is well and the one that is needed is granted."""
    replaced_at: Nanos = NEVER
    """When the one that is needed had been granted."""


class _Full(set[Inbox]):
    """The inbox of the application is full: all sessions stop reading."""

    def __init__(self, engines: "Callable[[], list[Engine]]") -> None:
        super().__init__()
        self._engines = engines

    def add(self, inbox: Inbox) -> None:
        for engine in self._engines():
            engine.inboxes.stop(inbox)

    def discard(self, inbox: object) -> None:
        for engine in self._engines():
            if isinstance(inbox, Inbox):
                engine.inboxes.go_on(inbox)


class ItemSubscription:
    """What a `Subscription` needs of its client (`SubscriptionHost`)."""

    def __init__(
        self,
        wanted: WantedSubscription,
        unread_max: int,
        home: Engine,
        sessions: Sessions,
        directory: ItemDirectory,
        ended: "Callable[[ItemSubscription], None]",
    ) -> None:
        self._wanted = wanted
        self._unread_max = unread_max
        self._home = home
        self._sessions = sessions
        self._directory = directory
        self._ended = ended
        self._legs: dict[tuple[str, str], _Leg] = {}
        """By broker and filter."""
        self._seen = IdWindow(RUNS_MAX)
        self._owners: dict[int, Engine] = {}
        """Which session a message came from that is to be acknowledged, by its `id`."""
        self._is_over = False
        self._wanted_now: dict[tuple[str, str], bool] = {}
        """By broker and filter: whether it is to stand by."""
        self.inbox = Inbox(wanted.filters, unread_max, _Full(self._engines))
        self.follow()

    def follow(self) -> None:
        """Have the subscriptions that directory and detectors ask for now."""
        if self._is_over:
            return
        wanted = self._wanted_now = self._legs_wanted()
        for key, is_standby in wanted.items():
            broker, topic_filter = key
            engine = self._home if broker == HOME else self._sessions.engine(broker)
            leg = self._legs.get(key)
            if engine is None or (leg is not None and leg.engine is engine and (is_standby or not leg.is_standby)):
                continue
            self._subscribe(key, engine, topic_filter, is_standby, leg)
        for key, leg in self._legs.items():
            is_right = key in wanted and wanted[key] == leg.is_standby
            leg.surplus_since = NEVER if is_right else min(leg.surplus_since, now_ns())
            leg.replaced_at = NEVER if is_right else leg.replaced_at

    def look(self) -> None:
        """Let subscriptions stand by or end that have been surplus for long enough."""
        now = now_ns()
        surplus = [] if self._is_over else [one for one in self._legs.items() if one[1].surplus_since < NEVER]
        for key, leg in surplus:
            broker, topic_filter = key
            if leg.engine is not (self._home if broker == HOME else self._sessions.engine(broker)):
                continue  # its session has ended: `follow` makes another one, if it is wanted
            is_there = leg.engine.online if broker == HOME else self._sessions.switching.is_usable(broker)
            is_carried = self._is_carried(topic_filter)
            if is_carried:
                leg.replaced_at = min(leg.replaced_at, now)
            if not is_there or not is_carried:
                leg.surplus_since = now
            elif now < leg.surplus_since + OVERLAP:
                continue
            elif key in self._wanted_now:
                self._subscribe(key, leg.engine, topic_filter, True, leg)
            else:
                del self._legs[key]
                leg.engine.leave(leg.number, for_good=True)

    def _is_carried(self, topic_filter: str) -> bool:
        """Whether the subscription that is to be the ordinary one is granted."""
        return any(
            leg.engine.is_granted(leg.number)
            for key, leg in self._legs.items()
            if key[1] == topic_filter and self._wanted_now.get(key) is False and not leg.is_standby
        )

    def _legs_wanted(self) -> dict[tuple[str, str], bool]:
        wanted: dict[tuple[str, str], bool] = {}
        for topic_filter in self._wanted.filters:
            entry = self._directory.within(topic_filter)
            if entry is None:
                wanted[HOME, topic_filter] = False
                continue
            self._sessions.use(entry)
            used = self._sessions.switching.target(entry)
            for at in entry.brokers:
                wanted[at.broker, topic_filter] = at.broker != used
            if not any(self._sessions.engine(at.broker) is not None for at in entry.brokers):
                wanted[HOME, topic_filter] = False  # until there is a session
        return wanted

    def _subscribe(
        self, key: tuple[str, str], engine: Engine, topic_filter: str, is_standby: bool, before: _Leg | None
    ) -> None:
        wanted = replace(self._wanted, filters=(topic_filter,))
        if is_standby:
            wanted = replace(wanted, retain_handling=RETAINED_NEVER, properties=(*wanted.properties, *STANDBY))
        elif before is not None or len(self._legs) > 0:
            wanted = replace(wanted, retain_handling=max(1, wanted.retain_handling))
        replaced = before.number if before is not None and before.engine is engine else None
        number, inbox = engine.subscribe(wanted, self._unread_max, replaced)
        leg = self._legs[key] = _Leg(engine, number, is_standby)
        inbox.sink = lambda message: self._arrived(leg, message)
        for message in inbox.take_all():
            self._arrived(leg, message)

    def _arrived(self, leg: _Leg, message: Message) -> None:
        engine = leg.engine
        pairs = message.property_pairs
        message_id = read_id(pairs) if pairs and any(name == PROPERTY for name, _ in pairs) else None
        if message_id is None:
            is_copy = now_ns() > leg.replaced_at + (PLAIN_OVERLAP if message.qos else 0)
        else:
            is_copy = not message.retained and not self._seen.add(message_id)
        if is_copy:
            engine.done(message)
            return
        if message.receipt is not None:
            self._owners[id(message)] = engine
        self.inbox.put(message)

    def _engines(self) -> list[Engine]:
        return list({id(leg.engine): leg.engine for leg in self._legs.values()}.values())

    # Of `Subscription`

    def done(self, message: Message) -> None:
        if (engine := self._owners.pop(id(message), None)) is not None:
            engine.done(message)

    def was_read(self) -> None:
        for engine in self._engines():
            engine.was_read()

    def leave(self, number: int) -> None:  # noqa: ARG002
        if self._is_over:
            return
        self._is_over = True
        for leg in self._legs.values():
            leg.engine.leave(leg.number)
        self._legs.clear()
        self.inbox.end()
        self._ended(self)

    def abandon(self, number: int) -> None:
        loop = self._home.loop
        if not loop.is_closed():
            loop.call_soon_threadsafe(self.leave, number)

    async def granted(self, number: int) -> None:  # noqa: ARG002
        """By every broker that is there."""
        for leg in list(self._legs.values()):
            if leg.engine.online:
                await leg.engine.granted(leg.number)

    async def unsubscribe(self, number: int) -> None:
        for leg in list(self._legs.values()):
            if leg.engine.online:
                await leg.engine.unsubscribe(leg.number)
        self.leave(number)
