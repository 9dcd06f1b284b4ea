"""Sessions at the brokers of items that this client uses, and whether each can be used now.

A session is a client of its own, under the name `CLIENT@BROKER`: the brokers of a domain share their clients, so that
one name has one session. It is looked at every `ask_every`; whoever is silent is asked (PINGREQ).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from overlane.client.clocks import now_ns
from overlane.client.errors import ClientError
from overlane.core.units import SECOND
from overlane.items.directory import At, Entry
from overlane.items.switching import Switching

if TYPE_CHECKING:
    from overlane.client.client import Client
    from overlane.client.engine import Engine

RETRY_S = 0.5

log = logging.getLogger("overlane.client")


class Sessions:
    def __init__(
        self,
        make: "Callable[[At], Client | None]",
        changed: Callable[[], None],
        follow: "Callable[[Client], Awaitable[None]]",
    ) -> None:
        """`make`: an unopened client of this broker; None if it has no address. `changed` is called when another broker
        can be used, or one no more. `follow`: learns of changes of the directory over this session."""
        self._follow = follow
        self.switching = Switching()
        self._make = make
        self._changed = changed
        self._clients: dict[str, Client] = {}
        self._at: dict[str, At] = {}
        self._opening: dict[str, asyncio.Task[None]] = {}
        self._heard: dict[str, int] = {}
        self._online: set[str] = set()

    def use(self, entry: Entry) -> None:
        """Be connected with both brokers."""
        for at in entry.brokers:
            if self._at.get(at.broker) != at and at.clients:
                self._at[at.broker] = at
                if (task := self._opening.pop(at.broker, None)) is not None:
                    task.cancel()
                self._opening[at.broker] = asyncio.create_task(self._keep(at), name=f"overlane session {at.broker}")

    def engine(self, broker: str) -> "Engine | None":
        client = self._clients.get(broker)
        return None if client is None else client.engine

    def is_online(self, broker: str) -> bool:
        engine = self.engine(broker)
        return engine is not None and engine.online

    def targets(self, entry: Entry) -> list[str]:
        """Where messages of the item go now: two brokers if it is critical, and both are there."""
        best = self.switching.target(entry)
        if not entry.critical:
            return [best]
        return [at.broker for at in entry.brokers if self.is_online(at.broker)] or [best]

    async def end(self) -> None:
        tasks = list(self._opening.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        clients, self._clients = list(self._clients.values()), {}
        await asyncio.gather(*(client.close() for client in clients), return_exceptions=True)

    async def _keep(self, at: At) -> None:
        """Open a session, as long as it takes; after that it mends itself."""
        if (old := self._clients.pop(at.broker, None)) is not None:
            await old.close()
        while True:
            client = self._make(at)
            if client is None:
                return
            try:
                await client.open()
            except ClientError as error:
                log.info("no session with %s: %s", at.broker, error)
                await asyncio.sleep(RETRY_S)
                continue
            self._clients[at.broker] = client
            self.look()
            await self._follow(client)
            return

    def look(self) -> None:
        """Whatever has happened since the last time."""
        now, has_changed = now_ns(), False
        for broker in list(self._clients):
            engine = self.engine(broker)
            is_online = engine is not None and engine.online
            if is_online and broker not in self._online:
                self._online.add(broker)
                has_changed |= self.switching.connected(broker, now)
            elif not is_online and broker in self._online:
                self._online.discard(broker)
                has_changed |= self.switching.lost(broker, now)
            if engine is not None and engine.heard_at > self._heard.get(broker, 0):
                self._heard[broker] = engine.heard_at
                self.switching.heard(broker, engine.heard_at)
        asked, changed = self.switching.tick(now)
        for broker in asked:
            if (engine := self.engine(broker)) is not None:
                engine.ping()
        if has_changed or changed:
            for broker in changed:
                state = "can be used" if self.switching.is_usable(broker) else "is silent, lost or a bottleneck"
                log.info("%s %s", broker, state)
            self._changed()

    @property
    def has_online(self) -> bool:
        return bool(self._online)

    @property
    def brokers(self) -> list[str]:
        """Those with a session."""
        return list(self._clients)

    @property
    def look_every_s(self) -> float:
        return self.switching.ask_every / 2 / SECOND
