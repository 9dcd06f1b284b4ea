"""A few brokers wired by hand: integers for a clock, a list for a network.

Bytes take a link's latency and arrive in order. Nothing is lost unless a test says so. What a broker saves is kept
when it crashes; what it only remembered is not.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from overlane.core.broker import OverlayBroker
from overlane.core.config import BrokerConfig
from overlane.core.events import (
    Close,
    Deliver,
    Effect,
    Erase,
    Event,
    Lane,
    LinkDown,
    LinkUp,
    PublishResult,
    Reception,
    Save,
    Subscribe,
    Tick,
    Unsubscribe,
)
from overlane.core.gossip.incarnation_proofs import BrokerIdentity
from overlane.core.qos import QosClass, QosTable
from overlane.core.routing.forwarding.message_losses import MessageCount, each_is_one
from overlane.core.units import MS, Nanos
from overlane.core.wire.mixed_run import Split, no_mixed_runs
from overlane.core.wire.parcel import Message

PULLED_AT_ONCE = 1 << 30
START: Nanos = 1_000_000 * MS
"""No test may depend on a clock that begins at zero."""

Frame = tuple[str, str, Lane, bytes]
"""Sender, receiver, lane and bytes."""
EffectType = TypeVar("EffectType", bound=Effect)


def link(one: str, other: str) -> tuple[str, str]:
    return min(one, other), max(one, other)


class Overlay:
    def __init__(
        self,
        latency_ms: Mapping[str, int],
        topics: Mapping[str, QosClass] | None = None,
        config: Mapping[str, object] | None = None,
        of: Mapping[str, Mapping[str, object]] | None = None,
        identity: Callable[[str, int], BrokerIdentity | None] = lambda _name, _incarnation: None,
        encrypted: Iterable[str] = (),
        count: MessageCount = each_is_one,
        split: Split = no_mixed_runs,
    ) -> None:
        """Links are written as "a-b"; their names are all the brokers there are. `of` configures brokers apart.
        `identity` tells who proves what, by name and incarnation."""
        self.now: Nanos = START
        self.latency_ns = {link(*ends.split("-")): ms * MS for ends, ms in latency_ms.items()}
        self.qos = QosTable(topics or {})
        self._config = dict(config or {})
        self._config_of = dict(of or {})
        self._identity = identity
        self._count, self._split = count, split
        self.encrypted = {link(*ends.split("-")) for ends in encrypted}
        """Links whose next connections have TLS."""
        self.effects: dict[str, list[Effect]] = {}
        self.store: dict[str, dict[tuple[str, bytes], bytes]] = {}
        self.slow_disks: set[str] = set()
        """Brokers whose records never become durable."""
        self.frames: list[Frame] = []
        """Everything that was sent."""
        self.loses: Callable[[Frame], bool] = lambda _: False
        """Frames for which this says so are lost."""
        self.control_delay_ms: dict[str, int] = {}
        """By how much the control lane of a link, "a-b", is slower than its data lane."""
        self.up: set[tuple[str, str]] = set()
        self.brokers: dict[str, OverlayBroker] = {}
        self.instances: dict[str, int] = {}
        """Which of several brokers with its name one is, from its next start on; 0 where it does not tell."""
        self.readers: dict[str, Callable[[list[Message]], Reception]] = {}
        """Of brokers whose readers are asked."""
        self._incarnation = 0
        self._on_the_way: list[tuple[Nanos, int, Frame]] = []
        self._sent = 0
        for name in sorted({name for ends in self.latency_ns for name in ends}):
            self.effects[name], self.store[name] = [], {}
            self.start(name)
        for ends in sorted(self.latency_ns):
            self.join(*ends)

    # What tests do

    def subscribe(self, broker: str, topic_filter: str, subscriber: str = "s") -> None:
        self.handle(broker, Subscribe(subscriber, topic_filter))

    def unsubscribe(self, broker: str, topic_filter: str, subscriber: str = "s") -> None:
        self.handle(broker, Unsubscribe(subscriber, topic_filter))

    def ask_readers(self, broker: str, receive: Callable[[list[Message]], Reception]) -> None:
        """Until it crashes."""
        self.brokers[broker]._sink.asks_readers = True
        self.readers[broker] = receive

    def publish(self, broker: str, topic: str, *bodies: bytes) -> None:
        for body in bodies:
            assert self.brokers[broker].publish(topic, body, self.now) is PublishResult.ACCEPTED
        self.turn(broker, [])

    def handle(self, broker: str, event: Event) -> None:
        self.turn(broker, self.brokers[broker].handle(event, self.now))

    def join(self, one: str, other: str) -> None:
        self.up.add(link(one, other))
        for name, peer in ((one, other), (other, one)):
            self.handle(name, LinkUp(peer, link(one, other) in self.encrypted))

    def cut(self, one: str, other: str) -> None:
        """The connection breaks, both ends notice at once, and what was on the way is gone."""
        self.up.discard(link(one, other))
        self._on_the_way = [entry for entry in self._on_the_way if link(*entry[2][:2]) != link(one, other)]
        for name, peer in ((one, other), (other, one)):
            if name in self.brokers:
                self.handle(name, LinkDown(peer))

    def crash(self, name: str) -> None:
        del self.brokers[name]
        self.readers.pop(name, None)
        for ends in sorted(self.up):
            if name in ends:
                self.cut(*ends)

    def restart(self, name: str) -> None:
        self.start(name)
        for ends in sorted(self.latency_ns):
            if name in ends and all(end in self.brokers for end in ends):
                self.join(*ends)

    def run(self, duration_ms: int) -> None:
        end = self.now + duration_ms * MS
        while (when := self._next()) <= end:
            self.now = max(self.now, when)
            self._step()
        self.now = end

    # What tests look at

    def of(self, broker: str, kind: type[EffectType]) -> list[EffectType]:
        return [effect for effect in self.effects[broker] if isinstance(effect, kind)]

    def got(self, broker: str) -> list[tuple[str, bytes, tuple[str, ...]]]:
        """What was delivered at a broker: topic, body and subscribers."""
        return [
            (one.topic, one.body, one.subscribers) for deliver in self.of(broker, Deliver) for one in deliver.deliveries
        ]

    def bodies(self, broker: str) -> list[bytes]:
        return [body for _, body, _ in self.got(broker)]

    def path(self, broker: str) -> list[tuple[tuple[str, str], ...]]:
        """The links of each route of a broker."""
        return [route.links for route in self.brokers[broker].routes()]

    def digests(self) -> set[str]:
        return {broker.map_digest() for broker in self.brokers.values()}

    # How it works

    def turn(self, name: str, effects: Iterable[Effect]) -> None:
        broker = self.brokers[name]
        effects = self._received(name, effects)
        effects += self._received(name, broker.flush(self.now))
        if name in self.readers:
            effects += broker.flush(self.now)  # of what they have received receipts may be due
        if name not in self.slow_disks:
            effects += broker.durable(0, self.now)
        self.effects[name] += effects
        for effect in effects:
            match effect:
                case Save(table, key, value):
                    self.store[name][table, key] = value
                case Erase(table, key):
                    self.store[name].pop((table, key), None)
                case Close(peer, _):
                    self.cut(name, peer)
        for peer in broker.ready():
            for lane, data in broker.pull(peer, PULLED_AT_ONCE, self.now):
                self._send((name, peer, lane, data))

    def _received(self, name: str, effects: Iterable[Effect]) -> list[Effect]:
        """Effects without what readers there do not take, and with what follows from how they receive the rest."""
        coming, received = deque(effects), list[Effect]()
        while coming:
            effect = coming.popleft()
            if isinstance(effect, Deliver) and effect.reliable and name in self.readers:
                reception = self.readers[name](effect.messages)
                coming += self.brokers[name].delivered(reception, self.now)
                if not reception.is_taken:
                    continue
            received.append(effect)
        return received

    def start(self, name: str) -> None:
        """Alone, for now."""
        self._incarnation += 1
        records = [(table, key, value) for (table, key), value in self.store[name].items()]
        config = BrokerConfig(name, self.qos, **self._config, **self._config_of.get(name, {}))  # type: ignore[arg-type]
        self.brokers[name] = OverlayBroker(
            config,
            self._incarnation,
            records,
            self.now,
            self._identity(name, self._incarnation),
            self.instances.get(name, 0),
            count=self._count,
            split=self._split,
        )
        self.effects[name] += self.brokers[name].start(self.now)

    def _send(self, frame: Frame) -> None:
        self.frames.append(frame)
        ends = link(frame[0], frame[1])
        if ends in self.up and not self.loses(frame):
            self._sent += 1
            delay_ms = self.control_delay_ms.get("-".join(ends), 0) if frame[2] is Lane.CONTROL else 0
            self._on_the_way.append((self.now + self.latency_ns[ends] + delay_ms * MS, self._sent, frame))

    def _next(self) -> Nanos:
        deadlines = [broker.next_deadline() for broker in self.brokers.values()]
        return min([*deadlines, *(when for when, _, _ in self._on_the_way)])

    def _step(self) -> None:
        """Everything that is due now, once."""
        due = sorted(entry for entry in self._on_the_way if entry[0] <= self.now)
        self._on_the_way = [entry for entry in self._on_the_way if entry[0] > self.now]
        for _, _, (sender, receiver, lane, data) in due:
            if receiver in self.brokers and link(sender, receiver) in self.up:
                self.turn(receiver, self.brokers[receiver].receive(sender, data, self.now, lane))
        for name in sorted(self.brokers):
            if self.brokers[name].next_deadline() <= self.now:
                self.handle(name, Tick())
                assert self.brokers[name].next_deadline() > self.now, f"{name} asks for the same moment again"
