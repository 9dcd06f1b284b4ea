"""One seed from the first fault to the last probe, and many of them.

First everybody connects and subscribes, and the brokers find each other. Then traffic and faults. Then everything
heals: all clients come back, all brokers run, all disks write, and within a minute everything that was published must
be answered and everything acknowledged must be delivered. Then every publisher publishes once more on each of its
topics, which must be acknowledged and arrive.
"""

import traceback
from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random

from overlane.core.config import BACKUP, PLAIN, ROUTING
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.network.classes import broker_config, policies, qos_table
from overlane.pubsub.counters import Drop
from overlane.pubsub.limits import Limits
from overlane.pubsub.state import Settings
from overlane.sim import random_streams
from overlane.sim.clock import SkewedClock
from overlane.sim.engine import Engine
from overlane.sim.link import Link
from overlane.sim.random_streams import stream
from overlane.sim.soak.invariants import Broken
from overlane.sim.soak.running import SeedVerdict, run_each
from overlane.sim.whole.broker import WholeBroker
from overlane.sim.whole.client import SimulatedClient
from overlane.sim.whole.contact import Contact
from overlane.sim.whole.convergence import not_converged
from overlane.sim.whole.disk import RETRY_NS, Trouble
from overlane.sim.whole.drawing import (
    CHAOS_NS,
    RETAINED,
    Drawn,
    DrawnFault,
    DrawnSubscription,
    FaultKind,
    Person,
    Publication,
    draw,
)
from overlane.sim.whole.habits import Habits
from overlane.sim.whole.judge import WholeJudge
from overlane.sim.whole.wire import Wire
from overlane.turn.client_link import HELD_BYTES_MAX

SETTLE_NS: Nanos = 3 * SECOND
REST_WITHIN_NS: Nanos = 60 * SECOND
STEP_NS: Nanos = 250 * MS
WRITE_WITHIN_NS: Nanos = 200 * MS
WRITE_POLL_NS: Nanos = MS // 5
"""How long, and how often, a crash waits for a write to fall into."""
LIMITS = Limits(queue_messages=1_000, tries=1_000, in_flight=20)
TIGHT_LIMITS = Limits(queue_messages=60, tries=1_000, in_flight=4)
"""What all publishers have under way together is about a queue, so that those who rest when it is full rest in time."""
CLEARED_SHARE = 0.25
"""Of retained messages, those that take the one before away."""
QUEUE_OVERRUN = 3
"""A queue is filled up to twice its limit, and a parcel from another broker is taken in whole."""
HELD_SLACK_BYTES = 1 << 20

_TROUBLES = {
    FaultKind.DISK_RESERVE: Trouble.RESERVE,
    FaultKind.DISK_FULL: Trouble.FULL,
    FaultKind.DISK_BROKEN: Trouble.BROKEN,
}


class WholeWorld:
    def __init__(self, drawn: Drawn) -> None:
        self.drawn = drawn
        self.engine = Engine(-SETTLE_NS)
        people = {person.name: person for person in (*drawn.clients, *_late_readers(drawn))}
        self.judge = WholeJudge(
            lambda: self.engine.now,
            {name: person.broker for name, person in people.items()},
            frozenset(name for name, person in people.items() if person.habits.is_passing),
            excuses_absence=drawn.is_tight,
            # What edges hold for want of a path leaves in one burst, which may be longer than a short queue.
            queue_full_at=self._queue_full_at if drawn.is_tight and drawn.roles else None,
        )
        self.overfull: str | None = None
        network, seed = drawn.network, drawn.seed
        self.limits = TIGHT_LIMITS if drawn.is_tight else LIMITS
        self.brokers: dict[str, WholeBroker] = {}
        for broker in network.brokers:
            self.brokers[broker.name] = WholeBroker(
                replace(
                    broker_config(network, broker.name),
                    role=drawn.roles.get(broker.name, PLAIN),
                    assignment=drawn.assignment,
                ),
                Settings(self.limits, qos=qos_table(network), policies=policies(network)),
                self.engine,
                SkewedClock(broker.clock_offset_ns, broker.clock_drift_ppm),
                drawn.paces[broker.name],
                stream(seed, "broker", broker.name),
                self._look,
            )
        self.links: dict[tuple[str, ...], Link] = {}
        for spec in network.links:
            one, other = (self.brokers[end] for end in spec.ends)
            link = self.links[spec.ends] = Link(self.engine, spec, one, other, seed)
            one.links[other.name] = other.links[one.name] = link
        self.clients: dict[str, SimulatedClient] = {}
        self._wires: dict[str, Wire] = {}
        self._down: dict[str, int] = {}
        for person in drawn.clients:
            self._add_client(person)
        for fault in drawn.faults:
            self.engine.at(fault.at_ns, self._do, fault)

    def _queue_full_at(self, broker: str) -> int:
        return self.brokers[broker].turn.server.state.counters.dropped[Drop.QUEUE_FULL]

    def _add_client(self, person: Person) -> SimulatedClient:
        chance = stream(self.drawn.seed, "client", person.name)

        def dial(client: SimulatedClient, contact: Contact) -> Wire | None:
            broker = self._broker_for(person, client)
            if not broker.is_alive:
                return None
            wire = Wire(self.engine, chance, person.latency_ns, contact, client.received, client.lost, client.owed)
            self._wires[person.name] = wire
            broker.accept(wire)
            return wire

        client = SimulatedClient(
            person.name, self.engine, chance, dial, self.judge, person.habits, self.limits.in_flight
        )
        self.clients[person.name] = client
        for wanted in person.subscriptions:
            self.engine.at(
                wanted.at_ns, lambda one: client.subscribe(one.topic_filter, one.qos, replays=one.replays), wanted
            )
        for publication in person.publications:
            self._publish_over_time(client, publication, chance)
        if person.habits.is_passing and person.visit_ns < NEVER:
            self.engine.at(person.visit_ns, lambda _: client.come())
            part = client.vanish if person.vanishes else client.leave
            self.engine.at(min(person.visit_ns + person.stays_ns, CHAOS_NS), lambda _: part())
        return client

    def _broker_for(self, person: Person, client: SimulatedClient) -> WholeBroker:  # noqa: ARG002
        """Where the client connects the next time."""
        return self.brokers[person.broker]

    def _publish_over_time(self, client: SimulatedClient, publication: Publication, chance: Random) -> None:
        def publish(clears: bool) -> None:
            client.publish(publication.topic, publication.qos, is_retained=publication.is_retained, clears=clears)

        at_once_ns = random_streams.between(chance, 0, CHAOS_NS)
        for _ in range(publication.count):
            at_ns = at_once_ns if self.drawn.is_tight else random_streams.between(chance, 0, CHAOS_NS)
            self.engine.at(at_ns, publish, publication.is_retained and random_streams.chance(chance, CLEARED_SHARE))

    def start(self) -> None:
        for broker in self.brokers.values():
            broker.start()
        self._come()

    def _come(self) -> None:
        for person in self.drawn.clients:
            if not person.habits.is_passing:
                self.clients[person.name].come()

    def _look(self, broker: WholeBroker) -> None:
        """Whether a broker's memory is within its bounds, after each of its turns."""
        if self.overfull is not None:
            return
        turn = broker.turn
        core, state = turn.core, turn.server.state
        for peer in core.ready():
            if core.queue_bytes(peer) > core.queue_bytes_max(peer):
                self.overfull = f"the queue from {broker.name} to {peer} holds {core.queue_bytes(peer)} bytes"
        messages_max = QUEUE_OVERRUN * self.limits.queue_messages
        for session in state.sessions.values():
            if len(session.window) > messages_max:
                self.overfull = f"{len(session.window)} messages wait for {session.client_id}"
        for connection in state.connections:
            if connection.backlog_bytes > HELD_BYTES_MAX + HELD_SLACK_BYTES:
                self.overfull = f"{connection.backlog_bytes} bytes wait for {connection.peer.address}"

    # Faults

    def _do(self, fault: DrawnFault) -> None:
        until_ns = min(self.engine.now + fault.lasts_ns, CHAOS_NS)
        name = fault.whom[0]
        match fault.kind:
            case FaultKind.KILL | FaultKind.POWER:
                self._crash(fault, until_ns)
            case FaultKind.DISK_RESERVE | FaultKind.DISK_FULL | FaultKind.DISK_BROKEN:
                self._set_trouble(name, _TROUBLES[fault.kind])
                self.engine.at(until_ns, lambda _: self._set_trouble(name, None))
            case FaultKind.CONNECTION:
                if name in self._wires:
                    self._wires[name].break_off()
            case FaultKind.AWAY:
                self.clients[name].leave()
                self.engine.at(until_ns, lambda _: self.clients[name].come())
            case FaultKind.VANISH:
                self.clients[name].vanish()
                self.engine.at(until_ns, lambda _: self.clients[name].come())
            case FaultKind.SILENCE:
                self.clients[name].fall_silent(until_ns)
            case FaultKind.CUT | FaultKind.SLOW | FaultKind.LOSSY:
                link = self.links[fault.whom]
                if fault.kind is FaultKind.CUT:
                    link.cut()
                elif fault.kind is FaultKind.SLOW:
                    link.slow(10 * link.latency_from(name))
                else:
                    link.lose(0.4)
                self.engine.at(until_ns, lambda _: link.heal())

    def _set_trouble(self, name: str, trouble: Trouble | None) -> None:
        """The store finds out that its disk is well again when it next tries."""
        self.brokers[name].set_trouble(trouble)
        if trouble is None:
            self.judge.history.disk_works(name, self.engine.now + RETRY_NS)
        else:
            self.judge.history.disk_failed(name, self.engine.now)

    def _crash(self, fault: DrawnFault, until_ns: Nanos) -> None:
        """Where the seed says so, at the next moment at which something is written and not synced."""
        broker = self.brokers[fault.whom[0]]
        if not broker.is_alive:
            return
        if fault.waits_for_write and not broker.disk.written and self.engine.now < fault.at_ns + WRITE_WITHIN_NS:
            self.engine.at(self.engine.now + WRITE_POLL_NS, self._do, fault)
            return
        broker.crash(loses_power=fault.kind is FaultKind.POWER)
        self.judge.history.went_down(broker.name, self.engine.now)
        self.judge.retained.broker_went_down(broker.name)
        self.engine.at(until_ns, lambda _: self._start(broker.name))

    def _start(self, name: str) -> None:
        if not self.brokers[name].is_alive:
            self.brokers[name].start()
            self.judge.history.came_up(name, self.engine.now)

    def heal(self) -> None:
        for name in self.brokers:
            self._set_trouble(name, None)
            self._start(name)
        for link in self.links.values():
            link.heal()
        self._come()

    # What must hold

    def broken(self) -> Broken | None:
        if self.judge.broken is not None:
            return self.judge.broken
        return Broken("memory is bounded", self.overfull) if self.overfull is not None else None

    def unsettled(self) -> Broken | None:
        present = [client for client in self.clients.values() if not client.is_away]
        waiting = [client for client in present if client.unsettled or not client.is_online]
        if waiting:
            told = f"{waiting[0].name} waits for {waiting[0].unsettled} answers, one of {len(waiting)} clients"
            return Broken("everything is answered after healing", told)
        return self.judge.lost() or self.not_converged()

    def not_converged(self) -> Broken | None:
        return not_converged(self.brokers)

    def rest(self) -> Broken | None:
        """Wait until everything is answered and delivered, and the brokers agree; what is in the way if it takes too
        long."""
        until = self.engine.now + REST_WITHIN_NS
        while True:
            self.engine.run_until(self.engine.now + STEP_NS)
            if (broken := self.broken()) is not None:
                return broken
            if (unsettled := self.unsettled()) is None or self.engine.now >= until:
                return unsettled

    def probe(self) -> Broken | None:
        """Somebody new at each broker asks for what is retained; then everybody publishes once more."""
        refusals = self.judge.refusals
        self.judge.come_to_rest()
        for person in _late_readers(self.drawn):
            self._add_client(person).come()
        if (broken := self.rest()) is not None:
            return broken
        for person in self.drawn.clients:
            for one in person.publications:
                self.clients[person.name].publish(one.topic, one.qos, is_retained=one.is_retained)
        broken = self.rest()
        if broken is None and self.judge.refusals != refusals:
            return Broken("fresh messages are accepted after healing", f"{self.judge.refusals - refusals} were refused")
        return broken


def _late_readers(drawn: Drawn) -> list[Person]:
    wanted = DrawnSubscription(RETAINED, 2, replays=True)
    habits = Habits(is_passing=True)
    return [
        Person(f"late-{broker.name}", broker.name, MS, (wanted,), (), habits, visit_ns=NEVER)
        for broker in drawn.network.brokers
        if drawn.roles.get(broker.name) not in (ROUTING, BACKUP)
    ]


def examine(world: WholeWorld) -> Broken | None:
    world.start()
    world.engine.run_until(CHAOS_NS)
    world.heal()
    # What was published right before the end may be refused by a disk that has just become well: then a probe follows.
    return world.broken() or world.rest() or world.probe()


def run_seed(seed: int) -> SeedVerdict:
    return run_world(WholeWorld(draw(seed)), seed, "brokers")


def run_world(world: WholeWorld, seed: int, kind: str) -> SeedVerdict:
    try:
        broken = examine(world)
    except Exception as failure:  # whatever it is, it is a finding about this seed, and the next one must still run
        cause = failure.__cause__ or failure
        last = traceback.extract_tb(cause.__traceback__)[-1]
        where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
        told = f"{type(cause).__name__} in {where} at {world.engine.now / SECOND:.3f} s: {failure}: {cause}"
        broken = Broken("no broker fails by itself", told)
    return SeedVerdict(seed, world.judge.deliveries, world.judge.digest_of(), broken, kind)


def run_seeds(seeds: Iterable[int], jobs: int = 1) -> Iterator[SeedVerdict]:
    """The verdicts in the order of the seeds."""
    return run_each(run_seed, seeds, jobs)
