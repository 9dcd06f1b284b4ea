"""Messages of items with their identities, until one broker has acknowledged them.

A message is handed to the brokers that `Sessions.targets` names. When these change, messages that nobody has
acknowledged are handed to the new ones too, under the same identity: brokers and subscribers know that it is the same.
"""

import asyncio
from collections.abc import Callable

from overlane.client.clocks import now_ns
from overlane.client.engine import Engine
from overlane.client.errors import ClientError
from overlane.client.items.sessions import Sessions
from overlane.client.message import Publication
from overlane.client.protocol import Sending
from overlane.core.units import NEVER, Nanos
from overlane.items.directory import Entry

Find = Callable[[str], Entry | None]
"""The present entry of an item."""


class _Pending:
    __slots__ = ("answer", "copies", "error", "handed", "item", "publication")

    def __init__(self, item: str, publication: Publication) -> None:
        self.item = item
        self.publication = publication
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.handed: dict[str, Nanos] = {}
        """When it was handed to which broker."""
        self.copies: dict[str, tuple[Engine, Sending]] = {}
        """Not answered yet."""
        self.error: Exception | None = None


class Publishing:
    def __init__(self, sessions: Sessions, find: Find) -> None:
        self._sessions = sessions
        self._find = find
        self._pending: set[_Pending] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def publish(self, entry: Entry, publication: Publication) -> bool:
        """False, and nothing done: there is no session yet."""
        targets = [one for one in self._sessions.targets(entry) if self._sessions.engine(one) is not None]
        if not targets:
            return False
        if not publication.qos:
            online = [one for one in targets if self._sessions.is_online(one)] or targets[:1]
            for broker in online:
                if (engine := self._sessions.engine(broker)) is not None:
                    await engine.submit(publication)
            return True
        pending = _Pending(entry.item, publication)
        self._pending.add(pending)
        try:
            for broker in targets:
                await self._hand(pending, broker)
            await pending.answer
        finally:
            self._pending.discard(pending)
            if not entry.critical or not pending.answer.done() or pending.answer.cancelled():
                for engine, sending in pending.copies.values():
                    engine.withdraw(sending)
        return True

    def changed(self) -> None:
        """Other brokers are to be used: hand what is not acknowledged to them."""
        for pending in list(self._pending):
            entry = self._find(pending.item)
            if entry is None:
                continue
            for broker in self._sessions.targets(entry):
                if broker not in pending.handed and self._sessions.engine(broker) is not None:
                    task = asyncio.create_task(self._hand(pending, broker))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)

    def tell_waiting(self) -> None:
        """Let the detectors know for how long which broker owes an acknowledgement."""
        oldest: dict[str, Nanos] = {}
        for pending in self._pending:
            for broker in pending.copies:
                oldest[broker] = min(oldest.get(broker, NEVER), pending.handed[broker])
        for broker in self._sessions.brokers:
            self._sessions.switching.waits_since(broker, oldest.get(broker, NEVER))

    async def _hand(self, pending: _Pending, broker: str) -> None:
        engine = self._sessions.engine(broker)
        if engine is None or pending.answer.done():
            return
        pending.handed[broker] = now_ns()
        try:
            sending, waiter = await engine.submit(pending.publication)
        except ClientError as error:
            self._settle(pending, broker, error)
            return
        if waiter is None:
            return
        pending.copies[broker] = engine, sending
        waiter.add_done_callback(lambda answer: self._answered(pending, broker, answer))

    def _answered(self, pending: _Pending, broker: str, answer: "asyncio.Future[None]") -> None:
        self._settle(pending, broker, None if answer.cancelled() else answer.exception())

    def _settle(self, pending: _Pending, broker: str, error: BaseException | None) -> None:
        """The first acknowledgement counts; an error counts when no other copy is under way."""
        pending.copies.pop(broker, None)
        if pending.answer.done():
            return
        if error is None:
            pending.answer.set_result(None)
        elif not pending.copies:
            pending.answer.set_exception(error)
            pending.answer.exception()
