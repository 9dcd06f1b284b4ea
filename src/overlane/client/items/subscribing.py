"""One subscription of the application, at several brokers; every message once.

For a filter within an item it is an ordinary subscription at the broker that is used, and one that stands by at the
other: that one gets only messages with an identity which are published there. Filters beyond one item are subscribed to
at the home session. When an item moves, the new subscriptions are made before the old ones end; copies are recognised
by their identities.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from overlane.client.engine import Engine
from overlane.client.errors import ClientError
from overlane.client.inbox import Inbox
from overlane.client.items.sessions import Sessions
from overlane.client.message import Message
from overlane.client.protocol import WantedSubscription
from overlane.items.directory import ItemDirectory
from overlane.pubsub.publishing.message_ids import PROPERTY, IdWindow, read_id

RUNS_MAX = 1_000
STANDBY = (("overlane-standby", "yes"),)
RETAINED_NEVER = 2
HOME = ""


@dataclass(slots=True)
class _Leg:
    """A subscription at one broker to one filter."""

    engine: Engine
    number: int
    is_standby: bool


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
        self._tasks: set[asyncio.Task[None]] = set()
        self.inbox = Inbox(wanted.filters, unread_max, _Full(self._engines))
        self.follow()

    def follow(self) -> None:
        """Have the subscriptions that directory and detectors ask for now."""
        if self._is_over:
            return
        wanted = self._legs_wanted()
        fresh: list[_Leg] = []
        for key, is_standby in wanted.items():
            broker, topic_filter = key
            engine = self._home if broker == HOME else self._sessions.engine(broker)
            leg = self._legs.get(key)
            if engine is None or (leg is not None and (leg.engine, leg.is_standby) == (engine, is_standby)):
                continue
            fresh.append(self._subscribe(key, engine, topic_filter, is_standby, leg))
        obsolete = [key for key in self._legs if key not in wanted]
        if obsolete and all(self._legs.get(key) is not None for key in wanted):
            task = asyncio.create_task(self._leave_later(fresh, obsolete))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

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
    ) -> _Leg:
        wanted = replace(self._wanted, filters=(topic_filter,))
        if is_standby:
            wanted = replace(wanted, retain_handling=RETAINED_NEVER, properties=(*wanted.properties, *STANDBY))
        elif before is not None or len(self._legs) > 0:
            wanted = replace(wanted, retain_handling=max(1, wanted.retain_handling))
        replaced = before.number if before is not None and before.engine is engine else None
        number, inbox = engine.subscribe(wanted, self._unread_max, replaced)
        inbox.sink = lambda message: self._arrived(engine, message)
        for message in inbox.take_all():
            self._arrived(engine, message)
        leg = self._legs[key] = _Leg(engine, number, is_standby)
        return leg

    async def _leave_later(self, fresh: list[_Leg], obsolete: list[tuple[str, str]]) -> None:
        for leg in fresh:
            try:
                await leg.engine.granted(leg.number)
            except ClientError:
                return
        wanted = self._legs_wanted()
        for key in obsolete:
            if key not in wanted and key in self._legs:
                old = self._legs.pop(key)
                old.engine.leave(old.number, for_good=True)

    def _arrived(self, engine: Engine, message: Message) -> None:
        pairs = message.property_pairs
        if pairs and any(name == PROPERTY for name, _ in pairs):
            message_id = read_id(pairs)
            if message_id is not None and not message.retained and not self._seen.add(message_id):
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
