"""The management agent in the event loop of a broker.

Events of ZooKeeper come over the session that the coordination has. Ten times a second it is looked which brokers of
the domain are linked, once a second what was published. The directory is published at this broker as retained messages
below `$overlane/directory/`, so that every client that is connected here learns of a change at once.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from typing import Protocol, assert_never

from overlane.adminapi.views import DirectoryView, ItemView
from overlane.coordination.contract import Event, Request
from overlane.coordination.reachability import Reachability
from overlane.coordination.records import BrokerRecord
from overlane.core.units import NEVER, Nanos
from overlane.errors import Unavailable
from overlane.items.agent import Agent, Ignored, MasterChanged, Notice, PolicyChanged
from overlane.items.directory import DIRECTORY, At, Entry, item_of
from overlane.items.master import Solve
from overlane.items.mastership import Strategy, strategy_named
from overlane.items.plans import BadDomainPlan, domain_plan
from overlane.items.policy import Place
from overlane.network.plan import Plan
from overlane.network.schema import Item, Network
from overlane.node.items.solver import solve_apart

LOOK_S = 0.1
LOOKS_PER_SECOND = 10
TOPICS_REMEMBERED_MAX = 20_000
TOLD_MAX = 1_000

log = logging.getLogger("overlane.items")


class Surroundings(Protocol):
    """What the agent needs of its broker."""

    def domain_edges(self) -> Mapping[str, BrokerRecord]:
        """The other brokers of the domain, those included that were registered until lately."""

    def own_record(self) -> BrokerRecord: ...

    def is_up(self, peer: str) -> bool: ...

    def topic_counts(self) -> Mapping[str, int]:
        """Messages that clients have published here since the start, by topic; idle ones may be forgotten."""

    def publish_own(self, topic: str, payload: bytes) -> None:
        """As the broker's own retained message; without payload it is removed."""


def computing_power() -> float:
    """Of this machine: its processors that are not busy."""
    try:
        busy = os.getloadavg()[0]
    except OSError:
        busy = 0.0
    count = os.cpu_count() or 1
    return round(max(count - busy, 0.1 * count), 1)


class ItemsAgent:
    def __init__(
        self,
        name: str,
        network: Network,
        now: Callable[[], Nanos],
        around: Surroundings,
        ask: Callable[[int, Request], None],
    ) -> None:
        """ConfigError for an election that cannot be imported."""
        self._now = now
        self._around = around
        self._ask_service = ask
        self._domain = around.own_record().domain
        self._items = self._items_of(network)
        self._loop = asyncio.get_running_loop()
        own = next((broker for broker in network.brokers if broker.name == name), None)
        capacity = network.placement.capacity if own is None or own.capacity is None else own.capacity
        strategy = strategy_named(network.placement.master)
        self.agent = Agent(name, self._domain, self._items, network.placement, capacity, computing_power(), strategy)
        self._reachability = Reachability()
        self._looks = 0
        self._counts: dict[str, int] = {}
        self._item_of: dict[str, str | None] = {}
        self._known: dict[str, BrokerRecord] = {}
        """Where brokers of the domain were last registered."""
        self._published: dict[str, Entry] = {}
        self._told: set[str] = set()
        self._is_told = False
        self._jobs: set[asyncio.Task[None]] = set()
        self._looking = self._loop.call_later(LOOK_S, self._look)

    def _items_of(self, network: Network) -> list[Item]:
        return [item for item in network.items if item.domain in ("", self._domain)]

    def follow(self, network: Network) -> None:
        """The network file says this from now on. ConfigError."""
        strategy: Strategy = strategy_named(network.placement.master)
        self._items = self._items_of(network)
        self._item_of.clear()
        self._take(self.agent.configure(self._items, network.placement, strategy, self._now()))
        self._publish_directory()

    def planned(self, plan: Plan | None) -> None:
        """An operator has applied a plan: its placement of this domain counts if it is later than the one in use."""
        forecast = None if plan is None else plan.domains.get(self._domain)
        if plan is None or forecast is None:
            return
        critical = {item.name: item.critical for item in self._items}
        try:
            found = domain_plan(forecast, plan.version, critical)
        except BadDomainPlan as bad:
            log.error("items: plan %d was rejected: %s", plan.version, bad)
            return
        log.info("items: plan %d for %d items, %d states", plan.version, len(found.items), len(found.states) + 1)
        self._take(self.agent.offer(found, self._now()))

    def end(self) -> None:
        self._looking.cancel()
        for job in self._jobs:
            job.cancel()

    # Events

    def heard(self, event: Event) -> None:
        self._take(self.agent.handle(event, self._now()))

    def _look(self) -> None:
        self._looking = self._loop.call_later(LOOK_S, self._look)
        now = self._now()
        edges = self._around.domain_edges()
        if any(self._known.get(name) != record for name, record in edges.items()):
            self._known |= edges
            self._publish_directory()
        self._take(self.agent.reach(self._reachability.look(edges.keys(), self._around.is_up, now), now))
        self._looks += 1
        if self._looks % LOOKS_PER_SECOND == 0:
            rates, total = self._measure()
            self._take(self.agent.sample(rates, total, now))
        elif self.agent.next_deadline() <= now < NEVER:
            self._take(self.agent.tick(now))

    def _measure(self) -> tuple[dict[str, float], float]:
        counts = dict(self._around.topic_counts())
        if len(self._item_of) > TOPICS_REMEMBERED_MAX:
            self._item_of.clear()
        filters = {item.name: item.topics for item in self._items}
        rates: dict[str, float] = {}
        total = 0.0
        for topic, count in counts.items():
            fresh = count - self._counts.get(topic, 0)
            if fresh <= 0 or topic.startswith("$"):
                continue
            total += fresh
            if topic not in self._item_of:
                self._item_of[topic] = item_of(topic, filters)
            if (item := self._item_of[topic]) is not None:
                rates[item] = rates.get(item, 0.0) + fresh
        self._counts = counts
        return rates, total

    def _take(self, notices: list[Notice]) -> None:
        for notice in notices:
            match notice:
                case PolicyChanged(policy):
                    log.info("items: epoch %d, %s", policy.epoch, policy.why)
                    self._publish_directory()
                case MasterChanged(name):
                    log.info("items: master of %s: %s", self._domain, name or "none")
                case Ignored(path, reason):
                    if path not in self._told and len(self._told) < TOLD_MAX:
                        self._told.add(path)
                        log.error("znode %s was ignored: %s", path, reason)
                case Solve():
                    job = self._loop.create_task(self._solve(notice))
                    self._jobs.add(job)
                    job.add_done_callback(self._jobs.discard)
                case _:
                    assert_never(notice)
        for number, request in self.agent.requests.take():
            self._ask_service(number, request)

    async def _solve(self, job: Solve) -> None:
        try:
            state = await solve_apart(job.plan, job.missing)
        except Unavailable as error:
            log.error("items: %s", error)
            self._take(self.agent.solved(job, None, self._now()))
            return
        if job.purpose == "relief":
            log.warning("items: %s is a bottleneck; moving items by the present rates", job.subject)
        self._take(self.agent.solved(job, state, self._now()))

    # The directory

    def _publish_directory(self) -> None:
        entries = {entry.item: entry for entry in self.entries()}
        for item, entry in entries.items():
            if self._published.get(item) != entry:
                self._around.publish_own(f"{DIRECTORY}{item}", entry.encode())
        for item in self._published.keys() - entries.keys():
            self._around.publish_own(f"{DIRECTORY}{item}", b"")
        self._published = entries
        if entries and not self._is_told:
            self._is_told = True
            log.info("items: the directory has %d entries", len(entries))

    def entries(self) -> list[Entry]:
        """Those of items that are placed."""
        policy = self.agent.policy
        if policy is None:
            return []
        return [
            Entry(
                item.name,
                self._domain,
                item.topics,
                policy.epoch,
                self._at(place.primary),
                self._at(place.mirror) if place.mirror else None,
                item.critical,
            )
            for item in self._items
            if (place := policy.places.get(item.name)) is not None
        ]

    def _at(self, broker: str) -> At:
        record = self._around.own_record() if broker == self.agent.name else self._known.get(broker)
        return At(broker, {} if record is None else dict(record.clients))

    def item_of(self, topic: str) -> str | None:
        return item_of(topic, {item.name: item.topics for item in self._items})

    def view(self) -> DirectoryView:
        agent, policy = self.agent, self.agent.policy
        places = {} if policy is None else policy.places
        risks = {name: report.risk for name, report in agent.reports.items()}
        return DirectoryView(
            domain=self._domain,
            master=agent.master or "",
            epoch=0 if policy is None else policy.epoch,
            state="no placement yet" if policy is None else policy.why,
            plan=0 if agent.plan is None else agent.plan.version,
            states=0 if agent.plan is None else 1 + len(agent.plan.states),
            items=[self._item_view(item, places.get(item.name)) for item in self._items],
            predicted={} if policy is None else policy.risk,
            measured=risks,
        )

    def _item_view(self, item: Item, place: Place | None) -> ItemView:
        return ItemView(
            item=item.name,
            topics=list(item.topics),
            critical=item.critical,
            primary="" if place is None else place.primary,
            mirror="" if place is None else place.mirror,
        )
