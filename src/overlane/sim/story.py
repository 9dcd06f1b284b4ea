"""Scenarios in Python: build an overlay, apply faults, let time pass, query the results.

    net = Story(
        links={("a", "b"): 10 * MS, ("b", "c"): link(10 * MS, loss=0.1)},
        topics={"alarms": 60 * MS, "files": topic(10 * SECOND, reliability="reliable")},
        publishers=[("a", "alarms", 100)],
        subscribers=[("c", "alarms")],
    )
    net.cut("a", "b")
    net.run(3 * SECOND)
    assert net.missed("alarms") == 0

A story begins when the overlay has settled, at time zero; publishers run from then on. Nothing happens between a query
and the next `run`. A topic may be named by its filter or by any topic that matches it.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import msgspec

from overlane.core.broker import OverlayBroker
from overlane.core.qos import QosClass
from overlane.core.routing.paths import paths_in
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.network import Broker as BrokerSpec
from overlane.network import Link, Network, Publisher, Simulation, Subscriber, Topic
from overlane.network.schema import Crash, Cut, Defaults, Heal, Join, Leave, Lossy, Partition, Restart, Slow
from overlane.sim.host import Host
from overlane.sim.judge import JudgedMessage, Row
from overlane.sim.report import Report
from overlane.sim.run_log import RouteMove
from overlane.sim.world import World

PATIENCE_NS: Nanos = 1 * SECOND
"""What was published longer ago than this and has not arrived counts as lost."""

STEP_NS: Nanos = 10 * MS


def link(latency_ns: Nanos, **more: Any) -> Link:
    """A link for the `links` of a story; more fields as in `overlane.network.Link`."""
    return Link(ends=("", ""), latency_ns=latency_ns, **more)


def topic(deadline_ns: Nanos = NEVER, **more: Any) -> Topic:
    """A topic for the `topics` of a story; more fields as in `overlane.network.Topic`."""
    return Topic(filter="", deadline_ns=deadline_ns, **more)


def network_of(
    links: Mapping[tuple[str, str], Nanos | Link],
    topics: Mapping[str, Nanos | Topic],
    publishers: Iterable[tuple[str, str, float] | Publisher] = (),
    subscribers: Iterable[tuple[str, str] | Subscriber] = (),
    brokers: Mapping[str, BrokerSpec] | None = None,
    simulation: Simulation | None = None,
    **defaults: Any,
) -> Network:
    """The network that a story is about. Brokers are those that links join, unless something is to be said of them."""
    names = dict.fromkeys(end for ends in links for end in ends)
    known = {**{name: BrokerSpec(name=name) for name in names}, **(brokers or {})}
    return Network(
        brokers=tuple(msgspec.structs.replace(broker, name=name) for name, broker in known.items()),
        links=tuple(
            msgspec.structs.replace(spec if isinstance(spec, Link) else link(spec), ends=ends)
            for ends, spec in links.items()
        ),
        topics=tuple(
            msgspec.structs.replace(spec if isinstance(spec, Topic) else topic(spec), filter=name)
            for name, spec in topics.items()
        ),
        publishers=tuple(
            spec if isinstance(spec, Publisher) else Publisher(broker=spec[0], topic=spec[1], rate_hz=spec[2])
            for spec in publishers
        ),
        subscribers=tuple(
            spec if isinstance(spec, Subscriber) else Subscriber(broker=spec[0], topic=spec[1]) for spec in subscribers
        ),
        simulation=simulation or Simulation(seed=1),
        defaults=Defaults(**defaults),
    )


class Story:
    """`like` takes a whole network instead of its parts. What is not here is in `world`."""

    def __init__(
        self,
        links: Mapping[tuple[str, str], Nanos | Link] | None = None,
        topics: Mapping[str, Nanos | Topic] | None = None,
        *,
        like: Network | None = None,
        seed: int | None = None,
        routing: str | None = None,
        scheduling: str | None = None,
        roles: Mapping[str, str] | None = None,
        assignment: Mapping[int, str] | None = None,
        **parts: Any,
    ) -> None:
        network = like or network_of(links or {}, topics or {}, **parts)
        self.world = World(
            network,
            seed=seed,
            routing=routing,
            scheduling=scheduling,
            duration_ns=NEVER,
            roles=roles,
            assignment=assignment,
        )
        self.world.engine.run_until(0)

    # Time

    @property
    def now(self) -> Nanos:
        return self.world.engine.now

    def run(self, duration_ns: Nanos) -> None:
        self.world.engine.run_until(self.now + duration_ns)

    def wait(self, until: Callable[[], bool], within: Nanos) -> Nanos:
        """Let time pass until something is so; how long it took. AssertionError if it takes too long."""
        start = self.now
        while not until():
            if self.now - start >= within:
                raise AssertionError(f"still not so after {within / SECOND:g} s")
            self.run(STEP_NS)
        return self.now - start

    # Deeds

    def slow(self, one: str, other: str, to: Nanos) -> None:
        self.world.do(Slow(self.now, (one, other), to))

    def lose(self, one: str, other: str, share: float) -> None:
        self.world.do(Lossy(self.now, (one, other), share))

    def cut(self, one: str, other: str) -> None:
        self.world.do(Cut(self.now, (one, other)))

    def partition(self, *brokers: str) -> None:
        self.world.do(Partition(self.now, brokers))

    def heal(self, one: str | None = None, other: str | None = None) -> None:
        """Put this link, or without names every link, back to what it was."""
        self.world.do(Heal(self.now, None if one is None or other is None else (one, other)))

    def crash(self, broker: str) -> None:
        self.world.do(Crash(self.now, broker))

    def restart(self, broker: str) -> None:
        self.world.do(Restart(self.now, broker))

    def leave(self, broker: str) -> None:
        self.world.do(Leave(self.now, broker))

    def join(self, broker: str) -> None:
        self.world.do(Join(self.now, broker))

    def assign(self, assignment: Mapping[int, str], *brokers: str, standbys: Mapping[int, str] | None = None) -> None:
        """Let routing brokers carry these bundles from now on, or be the next to; only these brokers hear of it, or
        all."""
        self.world.assign(assignment, brokers or None, standbys)

    def foresee(self, one: str, other: str, failure: float) -> None:
        """Set the failure probability of a link, as a plan does."""
        for end, peer in ((one, other), (other, one)):
            self.host(end).foresee(None, {peer: failure})

    def subscribe(self, broker: str, topic_filter: str) -> str:
        """A new subscriber, from now on; its name."""
        name = self.world.subscribers.add(Subscriber(broker=broker, topic=topic_filter, start_ns=max(self.now, 1)))
        self.run(0)
        return name

    def unsubscribe(self, subscriber: str) -> None:
        self.world.subscribers.remove(subscriber)

    def publish(self, broker: str, topic_name: str, count: int = 1, size_bytes: int = 64) -> int:
        """Publish so many messages now, in one turn, by a publisher of their own; how many the broker accepted."""
        return self.world.add_hand_publisher(broker, topic_name, size_bytes).publish(count)

    def start(self, broker: str, topic_name: str, rate_hz: float, size_bytes: int = 64) -> None:
        """A new publisher, from now on."""
        spec = Publisher(
            broker=broker, topic=topic_name, rate_hz=rate_hz, size_bytes=size_bytes, start_ns=max(self.now, 0)
        )
        self.world.add_publisher(spec)

    def silence(self) -> None:
        """Stop all publishers."""
        for publisher in self.world.publishers:
            publisher.stop()

    # Questions

    def broker(self, name: str) -> OverlayBroker:
        """The broker itself, while it runs."""
        return self.host(name).core

    def host(self, name: str) -> Host[OverlayBroker]:
        return self.world.hosts[name]

    def row(self, topic_name: str) -> Row:
        rows = self.world.judge.rows
        return rows[topic_name] if topic_name in rows else rows[self.world.plan.row_of(topic_name)]

    def published(self, topic_name: str) -> int:
        return self.row(topic_name).published

    def delivered(self, topic_name: str) -> int:
        return self.row(topic_name).delivered

    def replayed(self, topic_name: str) -> int:
        """Number of messages that late subscribers got from the history."""
        return self.row(topic_name).replayed

    def duplicates(self, topic_name: str) -> int:
        return self.row(topic_name).duplicates

    def late(self, topic_name: str) -> int:
        """How many messages arrived after their deadline."""
        return self.row(topic_name).delivered - self.row(topic_name).in_time

    def losses(self, topic_name: str, patience: Nanos = PATIENCE_NS) -> list[JudgedMessage]:
        """The messages published longer ago than `patience` that have not arrived."""
        rows = self.world.judge.rows
        name = topic_name if topic_name in rows else self.world.plan.row_of(topic_name)
        return [message for message in self.world.judge.lost(name) if message.published_at < self.now - patience]

    def lost(self, topic_name: str, patience: Nanos = PATIENCE_NS) -> int:
        return len(self.losses(topic_name, patience))

    def missed(self, topic_name: str) -> int:
        """How many messages did not arrive by their deadline, whether they came later or not."""
        return self.late(topic_name) + self.lost(topic_name, patience=self.row(topic_name).deadline_ns)

    def in_order(self) -> bool:
        return not self.world.judge.disorders

    def sent(self) -> int:
        """How often a message has crossed a link."""
        return self.world.counter("messages_sent")

    def sent_per_message(self) -> float:
        return self.sent() / max(1, sum(row.published for row in self.world.judge.rows.values()))

    def paths(self, topic_name: str, source: str, destination: str) -> list[list[str]]:
        """The ways that the topic's messages take, the quickest first."""
        qos = self._class_of(topic_name)
        links = {
            hop: None
            for route in self.broker(source).routes()
            if route.qos == qos and destination in route.destinations
            for hop in route.links
        }
        found = [list(path) for path in paths_in(links, source, destination)]
        return sorted(found, key=self._latency)

    def path(self, topic_name: str, source: str, destination: str) -> list[str]:
        """The quickest of the ways; empty when there is none."""
        return next(iter(self.paths(topic_name, source, destination)), [])

    def route_moves(self, topic_name: str | None = None) -> list[RouteMove]:
        """How routes changed since time zero, all of them or those of one topic's class."""
        moves = [move for move in self.world.run_log.route_moves if move.at >= 0]
        if topic_name is None:
            return moves
        qos = self._class_of(topic_name)
        return [move for move in moves if move.effect.qos == qos]

    def has_converged(self) -> bool:
        """Whether all running brokers see the same map and subscriptions, and all their routes are established."""
        cores = [host.core for host in self.world.hosts.values() if host.is_alive]
        same_map = len({core.map_digest() for core in cores}) <= 1
        return same_map and all(route.established for core in cores for route in core.routes())

    def control_bytes_per_broker_s(self) -> float:
        return self.report().control_bytes_per_broker_s

    def report(self) -> Report:
        return self.world.report()

    def _class_of(self, topic_name: str) -> QosClass:
        classes = self.world.plan.classes
        return classes[topic_name] if topic_name in classes else self.world.plan.qos_of(topic_name)

    def _latency(self, path: list[str]) -> Nanos:
        return sum(self.world.link(here, there).latency_from(here) for here, there in pairwise(path))
