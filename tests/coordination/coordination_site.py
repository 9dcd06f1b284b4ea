"""Participants of one coordination service with all its weaknesses, on a clock of their own; what happens is drawn from
a seed. Routing brokers carry bundles, edges use them and notice which routing brokers they cannot reach."""

import random
from dataclasses import dataclass, field

from faulty_connection import FaultyConnection

from overlane.coordination.assignment.placement import least_loaded
from overlane.coordination.contract import Answer, Create, Delete, Done, Event, Replace, Request, Transaction
from overlane.coordination.leader import AssignmentPolicy, Leader
from overlane.coordination.participant import Notice, Participant
from overlane.coordination.records import (
    ASSIGNMENTS,
    BrokerRecord,
    ReportRecord,
    ShardRecord,
    decode,
    pack,
)
from overlane.coordination.znodes import Tree, Watch, ZooKeeperClient
from overlane.core.units import MS, SECOND, Nanos

POLICY = AssignmentPolicy(least_loaded)


class WatchedTree(Tree):
    """Keeps the writes of assignments that succeeded, in their order: the epoch, and the session that wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[tuple[int, int]] = []
        self.homes: dict[int, str] = {}
        self.moves: list[int] = []
        self.outsider = 0
        """The session of somebody who is no broker, whose writes are not kept."""

    def handle(self, client: ZooKeeperClient, request: Request) -> tuple[Answer, list[tuple[int, Watch]]]:
        answer, fired = super().handle(client, request)
        if isinstance(request, Transaction) and isinstance(answer, Done) and client.session != self.outsider:
            for operation in request.operations:
                if isinstance(operation, Create | Replace) and operation.path.startswith(f"{ASSIGNMENTS}/"):
                    shard = decode(operation.path, operation.data, ShardRecord)
                    self.writes.append((shard.epoch, client.session))
                    for bundle, one in shard.bundles.items():
                        if self.homes.get(bundle, one.broker) != one.broker:
                            self.moves.append(bundle)
                        self.homes[bundle] = one.broker
        return answer, fired


@dataclass
class Member:
    participant: Participant
    wire: FaultyConnection
    role: str
    instance: int
    used: frozenset[int] = frozenset()
    is_leaving: bool = False
    notices: list[Notice] = field(default_factory=list)


class Site:
    def __init__(self, seed: int, *, routing: int = 3, edges: int = 4, policy: AssignmentPolicy = POLICY) -> None:
        self.luck = random.Random(seed)
        self.tree = WatchedTree()
        self.policy = policy
        self.now: Nanos = 0
        self.members: dict[str, Member] = {}
        self.records: dict[str, BrokerRecord] = {}
        self.dead: dict[str, Member] = {}
        self._orphans: list[FaultyConnection] = []
        """Connections of processes that are gone; their sessions expire some time."""
        self._instances = 0
        for number in range(routing):
            self.add(f"r{number}", "routing")
        for number in range(edges):
            self.add(f"e{number}", "edge")
        self.writer = self.tree.open_session()
        self.tree.outsider = self.writer.session

    def add(self, name: str, role: str) -> Member:
        self._instances += 1
        instance = self._instances if name not in self.dead else self.dead.pop(name).instance
        domain = "core" if role == "routing" else ("west", "east")[int(name[1:]) % 2]
        record = BrokerRecord(domain, role, instance, (f"127.0.0.1:{7000 + instance}",))  # type: ignore[arg-type]
        leader = Leader(self.policy) if role == "routing" else None
        self.records[name] = record
        participant = Participant(name, record, leader, lambda: self.now // SECOND)

        def deliver(event: Event) -> None:
            member.notices += participant.handle(event, self.now)

        wire = FaultyConnection(self.tree, self.luck, deliver, participant.requests.take, self.fire)
        member = self.members[name] = Member(participant, wire, role, instance)
        return member

    def kill(self, name: str) -> None:
        """Its process is gone; its session lives on until it expires."""
        member = self.members.pop(name)
        if member.wire.is_connected:
            member.wire.cut()
        self.dead[name] = member
        self._orphans.append(member.wire)

    def expire_dead(self) -> None:
        for wire in self._orphans:
            wire.expire()

    def fire(self, fired: list[tuple[int, Watch]]) -> None:
        for member in self.members.values():
            member.wire.take(fired)

    def write(self, *operations: Create | Replace | Delete) -> Answer:
        answer, fired = self.tree.handle(self.writer, Transaction(operations))
        self.fire(fired)
        return answer

    def use(self, name: str, bundles: frozenset[int]) -> None:
        self.members[name].used = bundles
        self.report(self.members[name])

    def report(self, member: Member, load: float = 0.1) -> None:
        used = pack(member.used)
        member.participant.report(ReportRecord(load, used, used, {}, member.is_leaving))

    def look_around(self) -> None:
        """Edges find out which of their routing brokers do not answer."""
        for member in self.members.values():
            if member.role == "edge":
                homes = {one.broker for bundle, one in member.participant.assigned.items() if bundle in member.used}
                member.participant.suspect(tuple(sorted(homes & self.dead.keys())))

    def trouble(self, steps: int) -> None:
        kinds = {"step": 30, "wait": 3, "cut": 0.3, "expire": 0.1, "connect": 2, "use": 0.5, "kill": 0.1, "start": 0.2}
        kinds |= {"expire dead": 0.2, "look": 1, "leave": 0.05}
        for _ in range(steps):
            name = self.luck.choice(list(self.members))
            member = self.members[name]
            match self.luck.choices(list(kinds), list(kinds.values()))[0]:
                case "step":
                    member.wire.step()
                case "wait":
                    self.wait(self.luck.randrange(200) * MS)
                case "cut" if member.wire.is_connected:
                    member.wire.cut()
                case "expire":
                    member.wire.expire()
                case "connect" if not member.wire.is_connected:
                    member.wire.connect()
                case "use" if member.role == "edge":
                    self.use(name, frozenset(self.luck.sample(range(256), self.luck.randrange(1, 20))))
                case "kill" if member.role == "routing" and self.routing() > 1:
                    self.kill(name)
                case "start" if self.dead:
                    self.add(self.luck.choice(sorted(self.dead)), "routing")
                case "expire dead":
                    self.expire_dead()
                case "leave" if member.role == "routing":
                    member.is_leaving = not member.is_leaving
                    self.report(member)
                case "look":
                    self.look_around()

    def routing(self) -> int:
        return sum(member.role == "routing" for member in self.members.values())

    def wait(self, time: Nanos) -> None:
        self.now += time
        for member in self.members.values():
            member.notices += member.participant.tick(self.now)

    def settle(self, seconds: int = 20, *, step: Nanos = SECOND // 4, is_expired: bool = True) -> None:
        """All are connected, and everything under way comes to its end."""
        for member in self.members.values():
            if not member.wire.is_connected:
                member.wire.connect()
        if is_expired:
            self.expire_dead()
        for _ in range(seconds * SECOND // step):
            self.look_around()
            while sum(member.wire.step() for member in self.members.values()):
                pass
            self.wait(step)

    def known_to(self, name: str) -> dict[str, BrokerRecord]:
        """The brokers that this one should know: edges those of their domain and the routing tier, others all."""
        own, living = self.records[name], {one: self.records[one] for one in self.members}
        if own.role != "edge":
            return living
        return {
            one: record for one, record in living.items() if record.role == "routing" or record.domain == own.domain
        }

    def leaders(self) -> list[str]:
        return [name for name, member in self.members.items() if member.participant.is_leader]

    def homes(self) -> dict[int, str]:
        """The routing brokers of all bundles, as everybody knows them."""
        known = [member.participant.assigned for member in self.members.values()]
        assert all(one == known[0] for one in known)
        return {bundle: one.broker for bundle, one in known[0].items()}
