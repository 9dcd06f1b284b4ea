"""The driver of a replica: one host's part of one broker, in an event loop, with a disk, a transport and ZooKeeper.

It feeds events, carries out effects in their order, and re-arms one timer. It decides nothing. What comes while effects
are carried out is handled at once; its effects wait behind those before.

After `Serving` the owner assembles the broker and submits its batches here. After `Deposed` it has to drop the broker:
what was submitted is void.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from time import monotonic_ns
from typing import Protocol, assert_never

from overlane.coordination.contract import Request
from overlane.core.records import Record
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.node.recovery.replication.storage import ReplicaStorage, as_changes
from overlane.node.store.errors import StoreError
from overlane.node.store.record_file import Name
from overlane.recovery.events import (
    Alarm,
    AlarmKind,
    Ask,
    Deposed,
    Durable,
    Effect,
    Event,
    ReplicaSettings,
    Send,
    SendSnapshot,
    Serving,
    SnapshotSent,
    StageSnapshot,
    Tick,
    Write,
    Written,
)
from overlane.recovery.replica import Replica
from overlane.recovery.replication.frames import Frame, SnapshotPart, snapshot_parts

log = logging.getLogger("overlane.recovery")


class Transport(Protocol):
    """Replication connections, by the host at their other end."""

    def send(self, host: str, frame: Frame) -> None:
        """Lost where there is no connection: the protocol sends again."""

    async def send_slowly(self, host: str, frame: Frame) -> bool:
        """The same, when the connection has room; False where there is none."""

    def part_bytes(self, host: str) -> int:
        """How large a part of a snapshot may be: what is urgent waits behind it."""


class Owner(Protocol):
    """Who runs the broker while this host is the primary."""

    def serving(self, effect: Serving) -> None: ...

    def deposed(self, effect: Deposed) -> None: ...

    def durable(self, effect: Durable) -> None: ...

    def alarm(self, effect: Alarm) -> None: ...

    def failed(self, error: StoreError) -> None:
        """The storage has stopped: nothing more will be written."""


class ReplicaDriver:
    def __init__(
        self,
        broker: str,
        host: str,
        storage: ReplicaStorage,
        settings: ReplicaSettings,
        ask: Callable[[int, Request], None],
        transport: Transport,
        owner: Owner,
        *,
        is_home: bool,
        now: Callable[[], Nanos] = monotonic_ns,
    ) -> None:
        self.broker = broker
        self.host = host
        self.storage = storage
        self.replica = Replica(broker, host, storage.stored, now(), is_home=is_home, settings=settings)
        self.now = now
        self._ask = ask
        self._transport = transport
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._effects: deque[Effect] = deque()
        self._is_carrying_out = False
        self._is_stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: Nanos = NEVER
        self._snapshots: dict[str, asyncio.Task[None]] = {}

    # Inputs

    def handle(self, event: Event) -> None:
        if self._is_stopped:
            return
        self._effects += self.replica.handle(event, self.now())
        self._carry_out()

    def submit(self, changes: Mapping[Name, bytes | None]) -> int:
        """The records of a turn, while this host serves: the number of the batch, for `Durable`."""
        sequence, effects = self.replica.submit(as_changes(changes), self.now())
        self._effects += effects
        self._carry_out()
        return sequence

    def stop(self) -> None:
        """Nothing more is sent, asked or written."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._snapshots.values():
            task.cancel()

    # Effects

    def _carry_out(self) -> None:
        if self._is_carrying_out:
            return
        self._is_carrying_out = True
        try:
            while self._effects and not self._is_stopped:
                self._do(self._effects.popleft())
        finally:
            self._is_carrying_out = False
        self._arm()

    def _do(self, effect: Effect) -> None:
        match effect:
            case Send(host, frame):
                self._transport.send(host, frame)
            case Write():
                self.storage.write(effect, partial(self._written, effect.number))
            case StageSnapshot(changes, is_first):
                self.storage.stage(changes, is_first=is_first)
            case SendSnapshot():
                self._begin_snapshot(effect)
            case Ask(number, request):
                self._ask(number, request)
            case Serving():
                log.info("%s runs here from epoch %d on", self.broker, effect.epoch)
                self._owner.serving(effect)
            case Deposed():
                log.error("%s no longer runs here: epoch %d has ended", self.broker, effect.epoch)
                self._owner.deposed(effect)
            case Durable():
                self._owner.durable(effect)
            case Alarm(kind, detail):
                told = f"{self.broker}: {kind.value}{f' ({detail})' if detail else ''}"
                log.log(logging.WARNING if kind is AlarmKind.TAIL_DISCARDED else logging.ERROR, "%s", told)
                self._owner.alarm(effect)
            case _:
                assert_never(effect)

    def _written(self, number: int, error: StoreError | None) -> None:
        if error is None:
            self.handle(Written(number))
        elif not self._is_stopped:
            self._is_stopped = True
            self._owner.failed(error)

    # Time

    def _arm(self) -> None:
        due = self.replica.next_deadline()
        if self._is_stopped or due == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = due
        if due < NEVER:
            self._timer = self._loop.call_later(max(0, due - self.now()) / SECOND, self._wake)

    def _wake(self) -> None:
        self._timer, self._timer_at = None, NEVER
        self.handle(Tick())

    # Snapshots

    def _begin_snapshot(self, effect: SendSnapshot) -> None:
        if (former := self._snapshots.pop(effect.host, None)) is not None:
            former.cancel()
        task = self._snapshots[effect.host] = self._loop.create_task(self._send_snapshot(effect))
        task.add_done_callback(_report)

    async def _send_snapshot(self, effect: SendSnapshot) -> None:
        stored, records = await self._loop.run_in_executor(None, self.storage.snapshot)
        through = 0 if stored is None else stored.position.sequence
        if stored is not None and stored.position.epoch == effect.epoch:
            log.info("%s: sending a snapshot to %s", self.broker, effect.host)
            async for part in self._parts(effect, through, records):
                if not await self._transport.send_slowly(effect.host, part):
                    break
        self.handle(SnapshotSent(effect.host, through))

    async def _parts(
        self, effect: SendSnapshot, through: int, records: Iterator[list[Record]]
    ) -> AsyncIterator[SnapshotPart]:
        """Built in another thread: reading and packing of many records would hold up the loop."""
        flat = (record for some in records for record in some)
        part_bytes = self._transport.part_bytes(effect.host)
        parts = snapshot_parts(self.broker, effect.epoch, through, effect.snapshot, flat, self.now(), part_bytes)
        while (part := await self._loop.run_in_executor(None, next, parts, None)) is not None:
            yield part


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a snapshot could not be sent: %r", error)
