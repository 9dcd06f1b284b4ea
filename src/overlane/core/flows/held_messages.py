"""Held messages: messages published at an edge in a group of topics whose destinations are not known yet.

    group:  empty -- message --> unknown audience -- told everything --> unrouted -- all on the map, or 1 s --> empty

They wait until the filters of the group are complete (`gossip/edge_scope.py`). Destinations may be known before the
links to them are on the map, since a larger map is computed less often. A reliable message can be sent then, because it
is retransmitted. A best-effort message would be lost, so it waits for a path to all recently added destinations, and no
longer than ROUTE_WAIT. Then held messages are sent like any other, in order, and later messages wait behind them.

Reliable ones are stored before they are acknowledged, and use the space for reliable messages; without space,
publishers wait. Others have a separate bounded space, from which the oldest are dropped first. Local subscribers do not
wait: they get messages at once.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from overlane.core.bundles import group_of
from overlane.core.events import Effect, Erase, HeldMessageSent, PublishResult, Save
from overlane.core.qos import Order, QosClass, Routing
from overlane.core.records import THE_BROKER, RecordKind, numbers_in
from overlane.core.requirements import StoredRequirements, read_requirements, stored_requirements
from overlane.core.routing.forwarding.message_losses import MessageLosses
from overlane.core.units import NEVER, SECOND, Nanos

TABLE = "held"
HELD_BYTES_MAX = 4 << 20
"""Of messages that are not reliable."""
OVERHEAD_BYTES = 128
ROUTE_WAIT: Nanos = 1 * SECOND
"""How long messages of best effort wait for a path to those who need them. One of these may be gone for good."""


class Stored(msgspec.Struct, frozen=True, array_like=True):
    topic: str
    flags: int
    body: bytes
    deadline_ns: int
    lifespan_ns: int
    routing: str
    paths: int
    history: int
    order: str
    served: tuple[str, ...] = ()
    published_ns: int = NEVER
    """Unknown in records of earlier releases."""
    requires: StoredRequirements = None

    def qos(self) -> QosClass:
        return QosClass(
            deadline_ns=self.deadline_ns,
            reliable=True,
            routing=Routing(self.routing),
            paths=self.paths,
            lifespan_ns=self.lifespan_ns,
            history=self.history,
            order=Order(self.order),
            requires=read_requirements(self.requires),
        )


Served = tuple[str, ...]
"""Noted by the publisher of a message: who else gets it in other ways."""


class HeldMessage(NamedTuple):
    number: int
    """Of the record; negative if there is none."""
    topic: str
    flags: int
    body: bytes
    qos: QosClass
    published_ns: Nanos
    """The time for which it is held counts: it belongs to its age. NEVER if unknown."""
    served: Served = ()

    @property
    def size(self) -> int:
        return len(self.body) + len(self.topic) + OVERHEAD_BYTES


Send = Callable[[HeldMessage, bool], PublishResult]
"""Called with a message, and whether it may wait for a path; BUSY if it has to wait."""


class HeldMessages:
    def __init__(self, losses: MessageLosses) -> None:
        self._losses = losses
        self._groups: dict[int, deque[HeldMessage]] = {}
        self._unreliable: dict[int, tuple[int, HeldMessage]] = {}
        """Those without a record, with their groups, oldest first."""
        self._unreliable_bytes = 0
        self._number = 0
        self._unrouted_since: dict[int, Nanos] = {}
        """Groups whose audience is known, and whose messages wait for a path."""
        self.reliable_bytes = 0

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    @property
    def is_waiting(self) -> bool:
        return bool(self._groups)

    def has(self, group: int | None) -> bool:
        return group in self._groups

    def groups(self) -> list[int]:
        return list(self._groups)

    def hold(
        self,
        topic: str,
        flags: int,
        body: bytes,
        qos: QosClass,
        room: int,
        now: Nanos,
        served: Served = (),
    ) -> Save | PublishResult:
        """ACCEPTED, or the record of a message that is accepted if it is stored; or BUSY. `room`: for reliable
        messages."""
        group = group_of(topic)
        if group is None:
            raise ValueError(f"{topic!a} belongs to no group")
        self._number += 1
        result: Save | PublishResult = PublishResult.ACCEPTED
        if qos.reliable:
            held = HeldMessage(self._number, topic, flags, body, qos, now, served)
            if held.size > room:
                return PublishResult.BUSY
            self.reliable_bytes += held.size
            result = Save(TABLE, _key(held.number), _stored(held))
        else:
            held = HeldMessage(-self._number, topic, flags, body, qos, now, served)
            self._unreliable[held.number] = group, held
            self._unreliable_bytes += held.size
        self._groups.setdefault(group, deque()).append(held)
        self._bound()
        return result

    def _bound(self) -> None:
        while self._unreliable_bytes > HELD_BYTES_MAX:
            group, held = next(iter(self._unreliable.values()))
            self._forget_unreliable(held)
            waiting = self._groups[group]
            waiting.remove(held)
            if not waiting:
                self._empty(group)
            self._losses.queue_full += self._losses.count(held.flags, held.body)

    def _forget_unreliable(self, held: HeldMessage) -> None:
        del self._unreliable[held.number]
        self._unreliable_bytes -= held.size

    def _empty(self, group: int) -> None:
        del self._groups[group]
        self._unrouted_since.pop(group, None)

    def release(self, groups: Iterable[int], send: Send, now: Nanos) -> list[Effect]:
        """Send what was held of these groups, whose audience is known."""
        effects: list[Effect] = []
        for group in groups:
            if (waiting := self._groups.get(group)) is None:
                continue
            since = self._unrouted_since.setdefault(group, now)
            while waiting and (released := self._release_one(waiting[0], send, now - since < ROUTE_WAIT)):
                effects += released
                waiting.popleft()
            if not waiting:
                self._empty(group)
        return effects

    def _release_one(self, held: HeldMessage, send: Send, may_wait: bool) -> Sequence[Effect]:
        """Nothing if it has to go on waiting."""
        is_reliable = held.number > 0
        if is_reliable:
            self.reliable_bytes -= held.size
        if send(held, may_wait) is PublishResult.BUSY and (is_reliable or may_wait):
            if is_reliable:
                self.reliable_bytes += held.size
            return ()
        sent = HeldMessageSent(held.topic, held.flags, held.body, held.qos, held.served)
        if is_reliable:
            return sent, Erase(TABLE, _key(held.number))
        self._forget_unreliable(held)
        return (sent,)

    def next_deadline(self) -> Nanos:
        """When messages do not wait for a path any longer; those that wait for room wait for an event."""
        since = (at for group, at in self._unrouted_since.items() if self._groups[group][0].number < 0)
        return min(since, default=NEVER - ROUTE_WAIT) + ROUTE_WAIT

    def restore(self, key: bytes, value: bytes) -> None:
        """A message of an earlier run."""
        number, stored = read_record(key, value)
        held = HeldMessage(
            number, stored.topic, stored.flags, stored.body, stored.qos(), stored.published_ns, stored.served
        )
        group = group_of(held.topic)
        if group is None:
            raise ValueError(f"{held.topic!a} belongs to no group")
        self._number = max(self._number, number)
        self.reliable_bytes += held.size
        waiting = self._groups.setdefault(group, deque())
        waiting.append(held)
        if len(waiting) > 1 and waiting[-2].number > number:
            self._groups[group] = deque(sorted(waiting, key=lambda one: one.number))

    def topics(self) -> list[str]:
        """One of each group."""
        return [waiting[0].topic for waiting in self._groups.values()]


def _key(number: int) -> bytes:
    return number.to_bytes(8)


def _stored(held: HeldMessage) -> bytes:
    qos = held.qos
    return msgspec.msgpack.encode(
        Stored(
            held.topic,
            held.flags,
            held.body,
            qos.deadline_ns,
            qos.lifespan_ns,
            qos.routing.value,
            qos.paths,
            qos.history,
            qos.order.value,
            held.served,
            held.published_ns,
            stored_requirements(qos.requires),
        )
    )


def read_record(key: bytes, value: bytes) -> tuple[int, Stored]:
    return numbers_in(key, 1)[0], msgspec.msgpack.decode(value, type=Stored)


HELD_KIND = RecordKind(TABLE, lambda _: THE_BROKER, read_record)
