"""A broker of few words that keeps the contract of the driver: it hands every message to all neighbours, once."""

from collections import deque
from collections.abc import Iterable

from overlane.core.events import (
    Deliver,
    Effect,
    Event,
    Lane,
    LinkDown,
    LinkUp,
    PublishResult,
    Save,
    Subscribe,
    Tick,
)
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.sim.host import Record
from overlane.sim.line import Frame


class FakeBroker:
    """Ticks every 100 ms of its own clock; keeps its subscribers durable; is busy while `is_busy`."""

    def __init__(self, incarnation: int, records: Iterable[Record], now: Nanos) -> None:
        self.incarnation = incarnation
        self.subscribers = [value.decode() for table, _, value in records if table == "subscribers"]
        self.counters = {"messages_sent": 0, "control_bytes_sent": 0}
        self.ticks: list[Nanos] = []
        self.is_busy = False
        self._queues: dict[str, deque[Frame]] = {}
        self._seen: set[bytes] = set()
        self._pending: list[bytes] = []
        self._next_tick = now + 100 * MS

    def start(self, _: Nanos) -> list[Effect]:
        return []

    def handle(self, event: Event, now: Nanos) -> list[Effect]:
        match event:
            case LinkUp(peer):
                self._queues[peer] = deque([(Lane.CONTROL, b"hello")])
            case LinkDown(peer):
                self._queues.pop(peer, None)
            case Subscribe(name, _):
                self.subscribers.append(name)
                return [Save("subscribers", name.encode(), name.encode())]
            case Tick():
                self.ticks.append(now)
                self._next_tick = now + 100 * MS
            case _:
                pass
        return []

    def publish(self, _: str, body: bytes, __: Nanos) -> PublishResult:
        if self.is_busy:
            return PublishResult.BUSY
        self._pending.append(body)
        return PublishResult.ACCEPTED

    def receive(self, _: str, data: bytes, __: Nanos, lane: Lane) -> list[Effect]:
        if lane is Lane.DATA:
            self._pending.append(data)
        return []

    turn = 0

    def durable(self, _: int, __: Nanos) -> list[Effect]:
        return []

    def flush(self, _: Nanos) -> list[Effect]:
        fresh = [body for body in self._pending if body not in self._seen]
        self._pending.clear()
        self._seen.update(fresh)
        for queue in self._queues.values():
            queue.extend((Lane.DATA, body) for body in fresh)
        self.counters["messages_sent"] += len(fresh) * len(self._queues)
        if not fresh or not self.subscribers:
            return []
        return [Deliver([("t", 0, body) for body in fresh], {"t": tuple(self.subscribers)}, "", 0, SECOND)]

    def ready(self) -> list[str]:
        return sorted(peer for peer, queue in self._queues.items() if queue)

    def pull(self, peer: str, bytes_max: int, _: Nanos, in_buffer: int) -> list[Frame]:  # noqa: ARG002
        pulled: list[Frame] = []
        while self._queues[peer] and (not pulled or bytes_max > 0):
            pulled.append(self._queues[peer].popleft())
            bytes_max -= len(pulled[-1][1])
        return pulled

    def next_deadline(self) -> Nanos:
        return self._next_tick if self._next_tick else NEVER

    def queue_bytes_max(self, peer: str) -> int:  # noqa: ARG002
        return 1 << 20

    def queue_bytes(self, peer: str) -> int:
        return sum(len(data) for _, data in self._queues[peer])
