"""A whole overlay in virtual time: brokers, links, publishers, subscribers, and changes of the network.

Brokers start at slightly different times, `settle` before time zero, so that links, maps and subscriptions are in place
when publishers begin. From zero to the duration the events of the file happen and publishers publish. After that
nothing new is published, and the run ends when everything has arrived or some seconds have passed: messages in transit
at the end of the duration are not lost.

Every possible change of the network is a method, used by the file, a story and the soak.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import assert_never

from overlane.core.broker import OverlayBroker
from overlane.core.events import (
    DeadlineUnmeetable,
    Deliver,
    DirectLinksWanted,
    LinkChanged,
    PathSuspected,
    PathTrusted,
    RequirementChanged,
    RouteChanged,
    RouteEstablished,
)
from overlane.core.units import MS, SECOND, Nanos
from overlane.network import Crash, Cut, Event, Heal, Join, Leave, Lossy, Network, Partition, Publisher, Restart, Slow
from overlane.network.classes import may_cross
from overlane.network.schema import Plug, Unplug
from overlane.sim import random_streams, traffic
from overlane.sim.clock import SkewedClock
from overlane.sim.engine import Engine
from overlane.sim.host import Core, Host
from overlane.sim.judge import Judge
from overlane.sim.link import Link
from overlane.sim.report import Report, sum_up
from overlane.sim.run_log import RunLog, told
from overlane.sim.setup import SimulationSetup
from overlane.sim.subscribers import Subscribers

START_WITHIN_NS: Nanos = 200 * MS
LINGER_NS: Nanos = 1 * SECOND
"""How long a leaving broker stays to spread the word."""
DRAIN_MIN_NS: Nanos = 1 * SECOND
DRAIN_MAX_NS: Nanos = 5 * SECOND
STEP_NS: Nanos = 250 * MS

Progress = Callable[[Nanos], None]


class Watch:
    """Passes effects of brokers to judge and run log, and checks the limits of their queues."""

    def __init__(self, engine: Engine, judge: Judge, run_log: RunLog) -> None:
        self._engine = engine
        self.overfull: list[str] = []
        self.delivered: Callable[[str, Deliver], None] = judge.delivered
        self.route_changed: Callable[[str, RouteChanged], None] = run_log.route_changed
        self.route_established: Callable[[str, RouteEstablished], None] = run_log.route_established
        self.deadline_unmeetable: Callable[[str, DeadlineUnmeetable], None] = run_log.deadline_unmeetable
        self.requirement_changed: Callable[[str, RequirementChanged], None] = run_log.requirement_changed
        self.direct_links_wanted: Callable[[str, DirectLinksWanted], None] = lambda *_: None
        self.link_changed: Callable[[str, LinkChanged], None] = run_log.link_changed
        self.path_judged: Callable[[str, PathSuspected | PathTrusted], None] = run_log.path_judged

    def about_to_send(self, broker: str, core: Core, peers: list[str]) -> None:
        for peer in peers:
            size = core.queue_bytes(peer)
            if size and size > (limit := core.queue_bytes_max(peer)) and not self.overfull:
                at = self._engine.now / SECOND
                self.overfull.append(f"the queue from {broker} to {peer} holds {size} of {limit} bytes at {at:.3f} s")


class World:
    """`seed`, `routing`, `scheduling` and `duration_ns` override the values of the network."""

    def __init__(
        self,
        network: Network,
        *,
        seed: int | None = None,
        routing: str | None = None,
        scheduling: str | None = None,
        duration_ns: Nanos | None = None,
        roles: Mapping[str, str] | None = None,
        assignment: Mapping[int, str] | None = None,
        plan: SimulationSetup | None = None,
    ) -> None:
        simulation = network.simulation
        self.seed = simulation.seed if seed is None else seed
        self.duration_ns = simulation.duration_ns if duration_ns is None else duration_ns
        self.plan = plan or SimulationSetup(network, routing, scheduling)
        self.plan.roles, self.plan.assignment = roles or {}, assignment or {}
        self.engine = Engine(-simulation.settle_ns)
        self.judge = Judge(self.engine, {name: qos.deadline_ns for name, qos in self.plan.classes.items()})
        self.run_log = RunLog(self.engine, self.plan.filters_affected)
        self.watch = Watch(self.engine, self.judge, self.run_log)
        self.hosts: dict[str, Host[OverlayBroker]] = {}
        self.links: dict[tuple[str, str], Link] = {}
        self.publishers: list[traffic.SimulatedPublisher] = []
        self.subscribers = Subscribers(self.engine, self.hosts, self.judge)
        self._control_bytes: dict[Nanos, int] = {}  # what had been sent by then
        self._unplugged: set[tuple[str, str]] = set()  # brokers and uplinks of theirs
        self._build(network)

    def _build(self, network: Network) -> None:
        for broker in network.brokers:
            clock = SkewedClock(broker.clock_offset_ns, broker.clock_drift_ppm)
            maker = self.plan.maker(broker.name, broker.failure)
            self.hosts[broker.name] = Host(broker.name, self.engine, clock, maker, self.watch)
        for spec in network.links:
            one, other = (self.hosts[end] for end in spec.ends)
            link = Link(self.engine, spec, one, other, self.seed)
            one.links[other.name] = other.links[one.name] = link
            self.links[_key(*spec.ends)] = link
        for broker in network.brokers:
            if broker.uplinks:
                for link in self._links_of(broker.name):
                    link.set_uplinks(broker.name, broker.uplinks)
        for subscriber in network.subscribers:
            self.subscribers.add(subscriber)
        starts = random_streams.stream(self.seed, "start")
        absent = network.absent_at_start()
        for name in self.hosts:
            start = self.engine.now + random_streams.between(
                starts, 0, min(START_WITHIN_NS, network.simulation.settle_ns)
            )
            if name not in absent:
                self.engine.at(start, self._start, name)
        for publisher in network.publishers:
            self.add_publisher(publisher)
        for mark in (0, self.duration_ns):
            self.engine.at(mark, self._note_control_bytes)
        for event in network.events:
            if event.at_ns <= self.duration_ns:
                self.engine.at(event.at_ns, self.do, event)

    # Running

    def run(self, progress: Progress | None = None) -> Report:
        """From settling to the end, and what it came to."""
        self._advance(self.duration_ns, progress)
        for publisher in self.publishers:
            publisher.stop()
        self._advance(self.duration_ns + DRAIN_MIN_NS, progress)
        while self.judge.outstanding and self.engine.now < self.duration_ns + DRAIN_MAX_NS:
            self._advance(self.engine.now + STEP_NS, progress)
        return self.report()

    def _advance(self, end: Nanos, progress: Progress | None) -> None:
        while self.engine.now < end:
            self.engine.run_until(min(end, self.engine.now + STEP_NS))
            if progress is not None:
                progress(self.engine.now)

    def counter(self, name: str) -> int:
        """What all brokers counted under this name, in all their lives."""
        return sum(host.counters().get(name, 0) for host in self.hosts.values())

    def report(self) -> Report:
        end = min(self.engine.now, self.duration_ns)
        sent = self._control_bytes.get(end, self.counter("control_bytes_sent")) - self._control_bytes.get(0, 0)
        broker_seconds = len(self.hosts) * end / SECOND
        control = sent / broker_seconds if broker_seconds > 0 else 0.0
        return sum_up(self.judge, self.run_log, self.counter("messages_sent"), control)

    def _note_control_bytes(self, _: None) -> None:
        self._control_bytes[self.engine.now] = self.counter("control_bytes_sent")

    def assign(
        self,
        assignment: Mapping[int, str],
        brokers: Iterable[str] | None = None,
        standbys: Mapping[int, str] | None = None,
    ) -> None:
        """Tell running brokers, all or some, which routing broker carries which bundle, and which would be next; others
        learn it when they start."""
        self.plan.assignment, self.plan.standbys = assignment, standbys or {}
        for name in self.hosts if brokers is None else brokers:
            if self.hosts[name].is_alive:
                config = self.hosts[name].core.config
                self.hosts[name].configure(replace(config, assignment=assignment, standbys=self.plan.standbys))

    # Applications

    def add_publisher(self, spec: Publisher) -> traffic.SimulatedPublisher:
        """A publisher that runs by itself, from its start or from now on."""
        publisher = self.add_hand_publisher(spec.broker, spec.topic, spec.size_bytes)
        phase = random_streams.stream(self.seed, "publisher", publisher.index).random()
        first = max(spec.start_ns, self.engine.now) + int(phase * SECOND / spec.rate_hz)
        stop = self.duration_ns if spec.stop_ns is None else min(spec.stop_ns, self.duration_ns)
        publisher.run(first, stop, spec.rate_hz)
        return publisher

    def add_hand_publisher(self, broker: str, topic: str, size_bytes: int = 64) -> traffic.SimulatedPublisher:
        """A publisher that publishes on request."""
        index = self.judge.add_publisher(
            topic,
            self.plan.row_of(topic),
            self.plan.qos_of(topic).deadline_ns,
            partial(may_cross, self.plan.network, topic, broker),
            self.plan.qos_of(topic).is_strict,
        )
        publisher = traffic.SimulatedPublisher(index, topic, size_bytes, self.hosts[broker], self.engine, self.judge)
        self.publishers.append(publisher)
        return publisher

    # What is done to the network

    def do(self, event: Event) -> None:
        self.run_log.note(told(event))
        match event:
            case Slow(_, (one, other), latency_ns):
                self.link(one, other).slow(latency_ns)
            case Lossy(_, (one, other), loss):
                self.link(one, other).lose(loss)
            case Cut(_, (one, other)):
                self.link(one, other).cut()
            case Partition(_, brokers):
                self._partition(brokers)
            case Heal(_, ends):
                if ends is None:
                    self._heal_all()
                else:
                    self.link(*ends).heal()
            case Crash(_, broker):
                self.hosts[broker].crash()
            case Restart(_, broker) | Join(_, broker):
                self._start(broker)
            case Leave(_, broker):
                self._leave(broker)
            case Unplug(_, broker, uplink):
                self._plug(broker, uplink, is_in=False)
            case Plug(_, broker, uplink):
                self._plug(broker, uplink, is_in=True)
            case _:
                assert_never(event)

    def link(self, one: str, other: str) -> Link:
        return self.links[_key(one, other)]

    def _partition(self, brokers: tuple[str, ...]) -> None:
        for (one, other), link in self.links.items():
            if (one in brokers) != (other in brokers):
                link.cut()

    def _heal_all(self) -> None:
        for link in self.links.values():
            link.heal()
        for broker, uplink in sorted(self._unplugged):
            self._plug(broker, uplink, is_in=True)

    def _plug(self, broker: str, uplink: str, *, is_in: bool) -> None:
        (self._unplugged.discard if is_in else self._unplugged.add)((broker, uplink))
        for link in self._links_of(broker):
            link.plug(broker, uplink, is_in)

    def _links_of(self, broker: str) -> list[Link]:
        return [link for ends, link in self.links.items() if broker in ends]

    def _leave(self, broker: str) -> None:
        host = self.hosts[broker]
        if host.is_open:
            self.subscribers.broker_leaves(broker)
            host.leave()
            self.engine.at(self.engine.now + LINGER_NS, self._gone, host)

    def _gone(self, host: Host[OverlayBroker]) -> None:
        host.crash()
        host.forget()

    def _start(self, broker: str) -> None:
        host = self.hosts[broker]
        if not host.is_alive:
            host.start()
            self.subscribers.broker_is_back(broker)


def _key(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)
