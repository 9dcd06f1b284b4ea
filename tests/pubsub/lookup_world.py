"""Brokers of one domain with nothing but their lookups and the sessions that these find: on a clock of their own, with
links that deliver in order and break, as drawn from a seed."""

from collections import deque
from dataclasses import dataclass, field
from itertools import permutations
from random import Random

from overlane.core.units import MS, NEVER, Nanos
from overlane.pubsub.sessions.domain import Domain, DomainPeer, HeldSession, Holding
from overlane.pubsub.sessions.lookup import Found, Send, SessionLookup
from overlane.pubsub.timers import Timers


@dataclass
class Client:
    """One attempt of a client to connect; `at`: the broker where it has its session, once it has."""

    client_id: str
    is_clean: bool
    is_kept: bool
    at: str | None = None
    is_refused: bool = False
    is_taken_over: bool = False


@dataclass
class Kept:
    holding: Holding
    claimed_ns: Nanos
    client: Client | None


class Sessions:
    def __init__(self) -> None:
        self.all: dict[str, Kept] = {}

    def held(self, client_id: str, now: Nanos) -> HeldSession:  # noqa: ARG002
        kept = self.all.get(client_id)
        return HeldSession() if kept is None else HeldSession(kept.holding, kept.claimed_ns)

    def give_up(self, client_id: str, until_ns: Nanos, now: Nanos) -> None:  # noqa: ARG002
        kept = self.all.get(client_id)
        if kept is not None and kept.claimed_ns <= until_ns:
            self.leave(self.all.pop(client_id))

    @staticmethod
    def leave(kept: Kept) -> None:
        if kept.client is not None:
            kept.client.is_taken_over, kept.client = True, None

    def claim(self, client: Client, after_ns: Nanos, now: Nanos) -> None:
        before = self.all.get(client.client_id)
        if before is not None:
            self.leave(before)
        holding = Holding.KEPT if client.is_kept else Holding.CONNECTED
        self.all[client.client_id] = Kept(holding, max(now, after_ns + 1), client)


@dataclass
class Broker:
    name: str
    sessions: Sessions = field(default_factory=Sessions)
    timers: Timers = field(default_factory=Timers)
    lookup: SessionLookup = field(init=False)
    found: deque[Found] = field(default_factory=deque)
    is_up: bool = True
    send: Send = lambda *_: False

    def __post_init__(self) -> None:
        self.lookup = SessionLookup(self.name, self.sessions, self.timers, self._send, self.found.append)

    def _send(self, peer: str, body: bytes, now: Nanos) -> bool:
        return self.send(peer, body, now)


class World:
    def __init__(self, names: str = "abc", seed: int = 0) -> None:
        self.luck = Random(seed)
        self.now: Nanos = 1_000_000 * MS
        self.brokers = {name: Broker(name) for name in names}
        self.cut: set[frozenset[str]] = set()
        self.registered = set(names)
        self.wires: dict[tuple[str, str], deque[bytes]] = {ends: deque() for ends in permutations(names, 2)}
        self.clients: list[Client] = []
        for broker in self.brokers.values():
            self._wire(broker)

    def _wire(self, broker: Broker) -> None:
        def send(peer: str, body: bytes, _: Nanos) -> bool:
            if not self.is_linked(broker.name, peer):
                return False
            self.wires[broker.name, peer].append(body)
            return True

        broker.send = send
        broker.lookup.follow(self.domain_of(broker.name), self.now)

    def domain_of(self, name: str) -> Domain:
        others = sorted(self.brokers.keys() - {name})
        return Domain({}, tuple(DomainPeer(one, {}, one in self.registered) for one in others))

    def is_linked(self, one: str, other: str) -> bool:
        return frozenset((one, other)) not in self.cut and self.brokers[one].is_up and self.brokers[other].is_up

    # What happens

    def connect(self, at: str, client_id: str = "x", *, is_clean: bool = False, is_kept: bool = True) -> Client:
        client = Client(client_id, is_clean, is_kept)
        self.clients.append(client)
        self.brokers[at].lookup.begin((len(self.clients) - 1, False), client_id, is_clean, self.now)
        return client

    def leave(self, at: str, client_id: str = "x") -> None:
        """The client's connection ends."""
        kept = self.brokers[at].sessions.all[client_id]
        kept.client = None
        if kept.holding is Holding.CONNECTED:
            del self.brokers[at].sessions.all[client_id]

    def break_link(self, one: str, other: str) -> None:
        """What is under way is lost."""
        self.cut.add(frozenset((one, other)))
        self.wires[one, other].clear()
        self.wires[other, one].clear()

    def heal(self) -> None:
        self.cut.clear()

    def crash(self, name: str) -> None:
        """It loses its connections and searches, and keeps its sessions."""
        before = self.brokers[name]
        for peer in self.brokers.keys() - {name}:
            self.wires[name, peer].clear()
            self.wires[peer, name].clear()
        fresh = self.brokers[name] = Broker(name)
        fresh.is_up = False
        for client_id, kept in before.sessions.all.items():
            Sessions.leave(kept)
            if kept.holding is not Holding.CONNECTED:
                fresh.sessions.all[client_id] = kept

    def start(self, name: str) -> None:
        self.brokers[name].is_up = True
        self._wire(self.brokers[name])

    def register(self, *names: str) -> None:
        """These, and no others, are registered."""
        self.registered = set(names)
        for name, broker in self.brokers.items():
            broker.lookup.follow(self.domain_of(name), self.now)

    # Steps

    def deliver(self, sender: str, receiver: str) -> bool:
        wire = self.wires[sender, receiver]
        if not wire:
            return False
        self.brokers[receiver].lookup.heard(sender, wire.popleft(), self.now)
        return True

    def place(self, name: str) -> bool:
        """The driver opens, or passes on, the first client whose search has ended."""
        broker = self.brokers[name]
        if not broker.found:
            return False
        found = broker.found.popleft()
        assert isinstance(found.key, tuple)
        number, is_passed = found.key
        client = self.clients[number]
        target = found.broker or name
        if found.silent or (target != name and (is_passed or not self.is_linked(name, target))):
            client.is_refused = True
        elif target != name:
            self.pass_on(number, client, target)
        else:
            client.at = name
            broker.sessions.claim(client, found.after_ns, self.now)
        broker.lookup.settle(found.key)
        return True

    def pass_on(self, number: int, client: Client, target: str) -> None:
        broker = self.brokers[target]
        if not client.is_clean and broker.lookup.is_kept_here(client.client_id, self.now):
            client.at = target
            broker.sessions.claim(client, 0, self.now)
        else:
            broker.lookup.begin((number, True), client.client_id, client.is_clean, self.now)

    def step(self) -> bool:
        """One thing that can happen happens."""
        moves = [lambda ends=ends: self.deliver(*ends) for ends, wire in sorted(self.wires.items()) if wire]
        moves += [lambda name=name: self.place(name) for name, one in self.brokers.items() if one.found]
        return bool(moves) and self.luck.choice(moves)()

    def wait(self, time: Nanos = 0) -> None:
        self.now += time
        for broker in self.brokers.values():
            if broker.is_up:
                broker.timers.run(self.now)

    def settle(self, time: Nanos = 1_000 * MS) -> None:
        """Everything that was begun comes to its end."""
        until = self.now + time
        while True:
            while self.step():
                pass
            due = min((one.timers.next_deadline() for one in self.brokers.values() if one.is_up), default=NEVER)
            if due > until:
                break
            self.wait(max(0, due - self.now))
        self.now = until

    def holders(self, client_id: str = "x") -> str:
        """The brokers that have a session of the client."""
        return "".join(name for name, broker in self.brokers.items() if client_id in broker.sessions.all)
