"""Clients that follow the directory, and brokers that pass their messages on, in virtual time.

The client's detectors (`Switching`), its directory, and the windows of identities of clients and brokers are the real
ones. What a broker keeps on its disk is kept here: sessions, what they are owed, and what it owes to other brokers. A
killed broker forgets the identities it has seen, and what has not been acknowledged. One that is stopped takes what was
sent to it when it goes on.

One client publishes to all items, QoS 1, and another one subscribes to all of them. Each has a connection to every
broker; one that is lost is made again. A connection may be cut without a sign.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.items.directory import At, Entry, ItemDirectory
from overlane.items.switching import Switching
from overlane.pubsub.publishing.message_ids import IdWindow, MessageId, MessageIds
from overlane.sim.engine import Engine
from overlane.sim.items.domain import SimBroker, SimulatedDomain

HOP: Nanos = 2 * MS
AGAIN: Nanos = 300 * MS
"""How often a lost connection is tried again, and what was not acknowledged is sent again between brokers."""
DROPPED_AFTER: Nanos = 5 * SECOND
"""A cut connection ends after so long; both ends learn of it then."""
OVERLAP: Nanos = 5 * SECOND
PUBLISHER, SUBSCRIBER = "pub", "sub"

Action = Callable[[], object]


@dataclass
class Sent:
    """A message, and what became of it."""

    item: str
    at: Nanos
    epoch: int
    """Of the directory entry that the publisher went by."""
    acknowledged_at: Nanos = NEVER
    arrived_at: Nanos = NEVER
    times: int = 0


@dataclass
class Kept:
    """What the disk of a broker has."""

    subscribed: dict[str, bool] = field(default_factory=dict)
    """By item, whether the subscriber stands by here."""
    owed: dict[MessageId, str] = field(default_factory=dict)
    """To the subscriber's session: identity and item."""
    owed_to: dict[str, dict[MessageId, str]] = field(default_factory=dict)
    """To other brokers."""


class Relay:
    """What a broker does with messages."""

    def __init__(self, traffic: "Traffic", broker: SimBroker) -> None:
        self._traffic = traffic
        self.broker = broker
        self.kept = Kept()
        self.ids = MessageIds()
        self._life = broker._life
        self._waiting: list[Action] = []
        """What was sent to it while it was stopped."""

    def reach(self, action: Action) -> None:
        """Something has been sent to this broker: it takes it after one hop, if it is there then."""
        life = self.broker._life
        self._traffic.engine.at(self._traffic.engine.now + HOP, self._take, (life, action))

    def _take(self, sent: tuple[int, Action]) -> None:
        life, action = sent
        if not self.broker.is_up or life != self.broker._life:
            return
        if life != self._life:
            self._life, self.ids, self._waiting = life, MessageIds(), []
        if self.broker.is_stopped:
            self._waiting.append(action)
        else:
            self.go_on()
            action()

    def go_on(self) -> None:
        if self._life != self.broker._life:
            self._waiting = []
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            action()

    def published(self, message_id: MessageId, item: str) -> None:
        if not self.ids.published.has(message_id):
            for other in self._traffic.relays.values():
                if other is not self and other.kept.subscribed.get(item) is False:
                    self.kept.owed_to.setdefault(other.broker.name, {})[message_id] = item
                    self._pass_on(other, message_id, item)
            self.ids.published.add(message_id)
            if self.ids.delivered.add(message_id) and item in self.kept.subscribed:
                self._deliver(message_id, item)
        name = self.broker.name
        self._traffic.publisher.hear(name, lambda: self._traffic.publisher.acknowledged(message_id, name))

    def _pass_on(self, other: "Relay", message_id: MessageId, item: str) -> None:
        if self._traffic.domain.is_linked(self.broker, other.broker):
            other.reach(lambda: other._arrived(self, message_id, item))

    def _arrived(self, sender: "Relay", message_id: MessageId, item: str) -> None:
        if self.ids.delivered.add(message_id) and self.kept.subscribed.get(item) is False:
            self._deliver(message_id, item)
        name = self.broker.name
        if self._traffic.domain.is_linked(self.broker, sender.broker):
            sender.reach(lambda: sender._passed_on(name, message_id))

    def _passed_on(self, other: str, message_id: MessageId) -> None:
        self.kept.owed_to.get(other, {}).pop(message_id, None)

    def _deliver(self, message_id: MessageId, item: str) -> None:
        self.kept.owed[message_id] = item
        self._hand_out(message_id, item)

    def _hand_out(self, message_id: MessageId, item: str) -> None:
        name, subscriber = self.broker.name, self._traffic.subscriber
        subscriber.hear(name, lambda: subscriber.arrived(name, message_id, item))

    def received(self, message_id: MessageId) -> None:
        self.kept.owed.pop(message_id, None)

    def again(self) -> None:
        """Send once more what other brokers owe a receipt for."""
        if self.broker.runs:
            for name, owed in self.kept.owed_to.items():
                for message_id, item in list(owed.items()):
                    self._pass_on(self._traffic.relays[name], message_id, item)

    def resumed(self) -> None:
        """The subscriber has connected: its session goes on."""
        for message_id, item in list(self.kept.owed.items()):
            self._hand_out(message_id, item)


class SimClient:
    """The connections of one client, its directory and its detectors."""

    def __init__(self, traffic: "Traffic", name: str) -> None:
        self.traffic = traffic
        self.name = name
        self.switching = Switching()
        self.directory = ItemDirectory()
        self.online: set[str] = set()
        self.cut: set[str] = set()
        """Brokers that nothing passes to or from."""
        self._lives: dict[str, int] = {}
        self._connections: dict[str, int] = {}

    @property
    def now(self) -> Nanos:
        return self.traffic.engine.now

    def hear(self, broker: str, action: Action) -> None:
        """A broker has sent something over the connection of now."""
        if broker in self.online and broker not in self.cut:
            number = self._connections[broker]
            self.traffic.engine.at(self.now + HOP, self._take, (broker, number, action))

    def _take(self, sent: tuple[str, int, Action]) -> None:
        broker, number, action = sent
        if broker in self.online and self._connections[broker] == number:
            self.switching.heard(broker, self.now)
            action()

    def send(self, broker: str, action: Action) -> None:
        if broker in self.online and broker not in self.cut:
            self.traffic.relays[broker].reach(action)

    def look(self) -> None:
        """Once per tick: what has happened to connections, whom to ask, and where to go now."""
        for name, relay in self.traffic.relays.items():
            is_same = self._lives.get(name) == relay.broker._life and relay.broker.is_up
            if name in self.online and not is_same:
                self.drop(name)
            elif name not in self.online and relay.broker.runs and name not in self.cut and self._may_try():
                self._lives[name] = relay.broker._life
                self._connections[name] = self._connections.get(name, 0) + 1
                self.online.add(name)
                self.switching.connected(name, self.now)
                self.connected(name)
        asked, _ = self.switching.tick(self.now)
        for name in asked:
            self.send(name, lambda name=name: self.hear(name, lambda: None))  # type: ignore[misc]
        self.follow()

    def _may_try(self) -> bool:
        return self.now // AGAIN != (self.now - self.switching.ask_every) // AGAIN

    def drop(self, name: str) -> None:
        self.online.discard(name)
        self.switching.lost(name, self.now)

    def connected(self, broker: str) -> None:
        """A session goes on: the directory of that broker comes with it."""
        self.traffic.tell_directory(self, broker)

    def follow(self) -> None: ...


class SimPublisher(SimClient):
    def __init__(self, traffic: "Traffic") -> None:
        super().__init__(traffic, PUBLISHER)
        self._number = 0
        self.handed: dict[MessageId, dict[str, Nanos]] = {}
        """Messages that nobody has acknowledged, and when they were handed to which broker."""

    def targets(self, entry: Entry) -> list[str]:
        best = self.switching.target(entry)
        if not entry.critical:
            return [best]
        return [at.broker for at in entry.brokers if at.broker in self.online] or [best]

    def publish(self, item: str) -> None:
        entry = self.directory.entries.get(item)
        if entry is None:
            return
        self._number += 1
        message_id = ("run", self._number)
        self.traffic.sent[message_id] = Sent(item, self.now, entry.epoch)
        self.handed[message_id] = {}
        for broker in self.targets(entry):
            self._hand(message_id, broker)

    def _hand(self, message_id: MessageId, broker: str) -> None:
        item, relay = self.traffic.sent[message_id].item, self.traffic.relays[broker]
        self.handed[message_id].setdefault(broker, self.now)
        self.traffic.chosen(item, broker)
        self.send(broker, lambda: relay.published(message_id, item))

    def acknowledged(self, message_id: MessageId, broker: str) -> None:  # noqa: ARG002
        if self.handed.pop(message_id, None) is not None:
            self.traffic.sent[message_id].acknowledged_at = self.now

    def connected(self, broker: str) -> None:
        super().connected(broker)
        for message_id, brokers in list(self.handed.items()):
            if broker in brokers:
                self._hand(message_id, broker)

    def follow(self) -> None:
        oldest: dict[str, Nanos] = {}
        for message_id, brokers in list(self.handed.items()):
            entry = self.directory.entries[self.traffic.sent[message_id].item]
            for broker in self.targets(entry):
                if broker not in brokers:
                    self._hand(message_id, broker)
            for broker, at in brokers.items():
                oldest[broker] = min(oldest.get(broker, NEVER), at)
        for broker in self.traffic.relays:
            self.switching.waits_since(broker, oldest.get(broker, NEVER))


class SimSubscriber(SimClient):
    def __init__(self, traffic: "Traffic") -> None:
        super().__init__(traffic, SUBSCRIBER)
        self._seen = IdWindow()
        self.legs: dict[tuple[str, str], bool] = {}
        """By broker and item: whether it stands by there, as it was asked for and granted."""
        self._asked: dict[tuple[str, str], bool] = {}
        self._surplus_since: dict[tuple[str, str], Nanos] = {}

    def arrived(self, broker: str, message_id: MessageId, item: str) -> None:
        relay = self.traffic.relays[broker]
        if (broker, item) in self._asked and self._seen.add(message_id):
            sent = self.traffic.sent[message_id]
            sent.times += 1
            sent.arrived_at = min(sent.arrived_at, self.now)
        self.send(broker, lambda: relay.received(message_id))

    def connected(self, broker: str) -> None:
        super().connected(broker)
        for (at, item), is_standby in self._asked.items():
            if at == broker and self.legs.get((at, item)) != is_standby:
                self._ask(broker, item, is_standby)
        self.send(broker, self.traffic.relays[broker].resumed)

    def follow(self) -> None:
        wanted: dict[tuple[str, str], bool] = {}
        for entry in self.directory.entries.values():
            used = self.switching.target(entry)
            wanted |= {(at.broker, entry.item): at.broker != used for at in entry.brokers}
        for key, is_standby in wanted.items():
            if key not in self._asked or (self._asked[key] and not is_standby):
                self._want(key, is_standby)
        carried = {key[1] for key, is_standby in wanted.items() if not is_standby and self.legs.get(key) is False}
        for key in list(self._asked):
            if wanted.get(key) == self._asked[key]:
                self._surplus_since.pop(key, None)
            elif key[1] not in carried or not self.switching.is_usable(key[0]):
                self._surplus_since[key] = self.now
            elif self.now >= self._surplus_since.setdefault(key, self.now) + OVERLAP:
                self._give_up(key, key in wanted)

    def _want(self, key: tuple[str, str], is_standby: bool) -> None:
        self._asked[key] = is_standby
        self._ask(*key, is_standby)

    def _give_up(self, key: tuple[str, str], is_wanted: bool) -> None:
        """It stands by from now on, or ends."""
        del self._surplus_since[key]
        if is_wanted:
            self._want(key, True)
            return
        del self._asked[key]
        self.legs.pop(key, None)
        relay = self.traffic.relays[key[0]]
        self.send(key[0], lambda: relay.kept.subscribed.pop(key[1], None))

    def _ask(self, broker: str, item: str, is_standby: bool) -> None:
        relay, key = self.traffic.relays[broker], (broker, item)

        def granted() -> None:
            if self._asked.get(key) == is_standby:
                self.legs[key] = is_standby

        def subscribed() -> None:
            if self._asked.get(key) == is_standby:
                relay.kept.subscribed[item] = is_standby
                self.hear(broker, granted)

        self.send(broker, subscribed)


class Traffic:
    def __init__(self, domain: SimulatedDomain, chosen: Callable[[str, str], None]) -> None:
        """`chosen` hears of every item and broker that the publisher hands a message to."""
        self.domain = domain
        self.engine: Engine = domain.engine
        self.chosen = chosen
        self.sent: dict[MessageId, Sent] = {}
        self.relays = {name: Relay(self, broker) for name, broker in domain.brokers.items()}
        self.publisher = SimPublisher(self)
        self.subscriber = SimSubscriber(self)
        self.is_over = False
        self.engine.at(self.engine.now, self._look)

    @property
    def clients(self) -> tuple[SimClient, SimClient]:
        return self.publisher, self.subscriber

    def _look(self, _: object) -> None:
        if self.is_over:
            return
        for relay in self.relays.values():
            if relay.broker.runs:
                relay.go_on()
        for client in self.clients:
            client.look()
        now, every = self.engine.now, self.publisher.switching.ask_every
        if now // AGAIN != (now - every) // AGAIN:
            for relay in self.relays.values():
                relay.again()
        self.engine.at(now + every, self._look)

    def publish(self, item: str) -> None:
        self.publisher.publish(item)

    def policy_changed(self, broker: SimBroker) -> None:
        """The broker publishes its directory anew."""
        for client in self.clients:
            self.tell_directory(client, broker.name)

    def tell_directory(self, client: SimClient, broker: str) -> None:
        for entry in self._entries(self.relays[broker].broker):
            client.hear(broker, lambda entry=entry: client.directory.take(entry))  # type: ignore[misc]

    def _entries(self, broker: SimBroker) -> list[Entry]:
        policy = broker.agent.policy
        if policy is None:
            return []
        return [
            Entry(
                item.name,
                "west",
                item.topics,
                policy.epoch,
                At(place.primary),
                At(place.mirror) if place.mirror else None,
                item.critical,
            )
            for item in self.domain.items
            if (place := policy.places.get(item.name)) is not None
        ]

    def cut(self, client: SimClient, broker: str) -> None:
        """Nothing passes any more, and neither end is told."""
        client.cut.add(broker)
        self.engine.at(self.engine.now + DROPPED_AFTER, self._drop, (client, broker))

    def _drop(self, connection: tuple[SimClient, str]) -> None:
        client, broker = connection
        if broker in client.cut and broker in client.online:
            client.drop(broker)

    def mend(self, client: SimClient, broker: str) -> None:
        """What was sent meanwhile is lost with the connection."""
        client.cut.discard(broker)
        if broker in client.online:
            client.drop(broker)
