"""A client that follows the directory of items. What is no item's goes over its home session, as with any client."""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterable

from overlane.client.client import Client
from overlane.client.clocks import now_ns
from overlane.client.connecting import ConnectOptions
from overlane.client.errors import ClientError, InvalidRequest, SubscribeRefused
from overlane.client.items.publishing import Publishing
from overlane.client.items.sessions import Sessions
from overlane.client.items.subscribing import ItemSubscription
from overlane.client.message import Body, Properties, Publication
from overlane.client.protocol import SessionSettings, WantedSubscription
from overlane.client.qos import Qos, Reliability, TopicQos
from overlane.client.subscription import Subscription
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.items.directory import DIRECTORY, At, BadEntry, Entry, ItemDirectory, decode_entry
from overlane.pubsub.publishing.message_ids import PROPERTY

HOME_ASKED_AFTER: Nanos = 1 * SECOND
HOME_SILENCE: Nanos = 2 * SECOND
DIRECTORY_WITHIN_S = 1.0
"""How long a client waits for the directory, and for the first session of an item."""


class ItemClient(Client):
    def __init__(
        self,
        settings: SessionSettings,
        options: ConnectOptions,
        make: "Callable[[At], Client | None]",
        *,
        keep_session: bool,
        outbox_max: int,
        outbox_bytes_max: int,
    ) -> None:
        """`make`: a client of one broker, as `Sessions` wants it."""
        super().__init__(
            settings, options, keep_session=keep_session, outbox_max=outbox_max, outbox_bytes_max=outbox_bytes_max
        )
        self.directory = ItemDirectory()
        self._sessions = Sessions(make, self._changed, self._follow)
        self._publishing = Publishing(self._sessions, self.directory.entries.get)
        self._subscriptions: list[ItemSubscription] = []
        self._run_word = secrets.token_hex(8)
        self._number = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._is_known = asyncio.Event()
        self._home_asked: Nanos = NEVER

    async def open(self) -> "ItemClient":
        await super().open()
        self._tasks = [asyncio.create_task(self._follow_home()), asyncio.create_task(self._look_always())]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DIRECTORY_WITHIN_S / 4):
                await self._is_known.wait()
        return self

    def brokers_of(self, topic: str) -> tuple[str, ...]:
        """Where messages of the topic go now; () if it belongs to no item."""
        entry = self.directory.find(topic)
        return () if entry is None else tuple(self._sessions.targets(entry))

    @property
    def online_brokers(self) -> list[str]:
        """Brokers of items with which there is a connection now."""
        return [broker for broker in self._sessions.brokers if self._sessions.is_online(broker)]

    async def publish_many(
        self,
        topic: str,
        bodies: Iterable[Body],
        *,
        qos: TopicQos | Qos | int | None = None,
        deadline: str | None = None,
        reliability: Reliability | str | None = None,
        retain: bool = False,
        expiry: str | None = None,
        properties: Properties = (),
    ) -> int:
        """As `Client.publish_many`; messages of an item are published one by one, each with its identity."""
        if self.directory.find(topic) is None:
            return await super().publish_many(
                topic,
                bodies,
                qos=qos,
                deadline=deadline,
                reliability=reliability,
                retain=retain,
                expiry=expiry,
                properties=properties,
            )
        count = 0
        for body in bodies:
            await self.publish(
                topic,
                body,
                qos=qos,
                deadline=deadline,
                reliability=reliability,
                retain=retain,
                expiry=expiry,
                properties=properties,
            )
            count += 1
        return count

    # Inside

    def _subscribed(self, wanted: WantedSubscription, unread_max: int) -> Subscription:
        engine = self._opened()
        for topic_filter in wanted.filters:
            if any(topic_filter in one.inbox.filters for one in self._subscriptions):
                raise InvalidRequest(f"there is already a subscription to {topic_filter}")
        made = ItemSubscription(wanted, unread_max, engine, self._sessions, self.directory, self._subscriptions.remove)
        self._subscriptions.append(made)
        return Subscription(made, 0, made.inbox)

    async def _send(self, topic: str, made: "Callable[[tuple[tuple[str, str], ...]], Publication]") -> None:
        entry = self.directory.find(topic)
        if entry is None:
            await super()._send(topic, made)
            return
        self._number += 1
        publication = made(((PROPERTY, f"{self._run_word}:{self._number}"),))
        self._sessions.use(entry)
        if not await self._publishing.publish(entry, publication):
            await self._first_session(entry)
            if not await self._publishing.publish(entry, publication):
                await self._opened().publish(publication)

    async def _first_session(self, entry: Entry) -> None:
        """Until one broker of the item is there, or for a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DIRECTORY_WITHIN_S):
                while not any(self._sessions.is_online(at.broker) for at in entry.brokers):
                    await asyncio.sleep(self._sessions.look_every_s)

    def _changed(self) -> None:
        """Another broker is to be used for some item."""
        self._publishing.changed()
        for subscription in list(self._subscriptions):
            subscription.follow()

    async def _follow_home(self) -> None:
        entries = super().subscribe(f"{DIRECTORY}#", qos=1)
        try:
            await self._read_entries(entries)
        except SubscribeRefused:
            self._is_known.set()  # it is not shown to this client: then this is a client like any other

    async def _follow(self, client: Client) -> None:
        """The home session may be the one that is lost, so that every session brings the directory."""
        with contextlib.suppress(ClientError):
            await self._read_entries(client.subscribe(f"{DIRECTORY}#", qos=1))

    async def _read_entries(self, entries: Subscription) -> None:
        async for message in entries:
            item = message.topic.removeprefix(DIRECTORY)
            if not message.body:
                is_news = self.directory.remove(item)
            else:
                try:
                    is_news = self.directory.take(decode_entry(message.body))
                except BadEntry:
                    continue
            self._is_known.set()
            if is_news:
                self._changed()

    async def _look_always(self) -> None:
        while True:
            await asyncio.sleep(self._sessions.look_every_s)
            self._publishing.tell_waiting()
            self._sessions.look()
            for subscription in list(self._subscriptions):
                subscription.look()
            self._leave_silent_home()

    def _leave_silent_home(self) -> None:
        """The home session goes to another broker when its own has stopped: keep-alive would take half a minute."""
        engine, now = self._opened(), now_ns()
        if not engine.online:
            self._home_asked = NEVER
        elif engine.heard_at >= self._home_asked or self._home_asked >= NEVER:
            self._home_asked = NEVER
            if now > engine.heard_at + HOME_ASKED_AFTER:
                self._home_asked = now
                engine.ping()
        elif now > self._home_asked + HOME_SILENCE and self._sessions.has_online:
            self._home_asked = NEVER
            engine.driver.drop_connection()

    async def _close(self, within_s: float, is_clean: bool) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if is_clean:
            for subscription in self._subscriptions:
                taken, subscription.inbox.taken = subscription.inbox.taken, []
                for message in taken:
                    subscription.done(message)
        with contextlib.suppress(ClientError):
            await self._sessions.end()
        for subscription in list(self._subscriptions):
            subscription.inbox.end()
        await super()._close(within_s, is_clean)
