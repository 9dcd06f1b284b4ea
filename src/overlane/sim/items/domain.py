"""The management agents of a domain in virtual time.

Their ZooKeeper is the simulated ensemble, with servers that lag, answers that are lost and sessions that expire. Links
between brokers are as good as the process at the other end: a broker finds out after DETECT that one is down. Jobs of
the solver are done by the real solver, and answered late.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random

from overlane.coordination.contract import Event
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.items.agent import Agent, Notice, PolicyChanged
from overlane.items.master import Solve
from overlane.items.plans import DomainPlan, DomainState, pack_plan, solve, unpack_plan
from overlane.items.policy import ItemPolicy
from overlane.network.schema import Item, Placement
from overlane.sim.engine import Engine
from overlane.sim.random_streams import between
from overlane.sim.whole.ensemble import Connection, Ensemble

DETECT: Nanos = 300 * MS
LOOK: Nanos = 100 * MS
SOLVING = 5 * MS, 400 * MS


@lru_cache(4096)
def _solved(plan: bytes, missing: frozenset[str]) -> DomainState:
    """Worlds of many seeds have the same plans."""
    return solve(unpack_plan(plan), missing)


class SimBroker:
    """A broker with its agent, as a process that ends, stops and starts again."""

    def __init__(self, domain: "SimulatedDomain", name: str, power: float) -> None:
        self.domain = domain
        self.name = name
        self.power = power
        self.is_up = False
        self.is_stopped = False
        self.agent: Agent
        self.rates: dict[str, float] = {}
        self._connection: Connection | None = None
        self._life = 0
        self._inbox: list[Event] = []
        self.down_since: dict[str, Nanos] = {}

    def start(self) -> None:
        domain = self.domain
        self._life += 1
        self.is_up, self.is_stopped = True, False
        self.down_since, self._inbox = {}, []
        self.agent = Agent(self.name, "west", domain.items, domain.settings, domain.capacity, self.power)
        life = self._life
        self._connection = domain.ensemble.connect(lambda event: self._heard(event, life))
        domain.engine.at(domain.engine.now + LOOK, self._look, life)

    def kill(self) -> None:
        self.is_up = False
        self._life += 1
        if self._connection is not None:
            self._connection.abandon()
            self._connection = None

    def stop(self) -> None:
        """SIGSTOP: its connections stay, and nothing answers."""
        self.is_stopped = True

    def go_on(self) -> None:
        self.is_stopped = False
        waiting, self._inbox = self._inbox, []
        for event in waiting:
            self._take(self.agent.handle(event, self.domain.engine.now))

    def cut_off(self, is_expired: bool) -> None:
        """From ZooKeeper, for a moment."""
        if self._connection is not None:
            if is_expired:
                self._connection.expire()
            else:
                self._connection.cut()

    @property
    def runs(self) -> bool:
        return self.is_up and not self.is_stopped

    def _heard(self, event: Event, life: int) -> None:
        if life != self._life:
            return
        if self.is_stopped:
            self._inbox.append(event)
            return
        self._take(self.agent.handle(event, self.domain.engine.now))

    def _look(self, life: int) -> None:
        if life != self._life:
            return
        engine = self.domain.engine
        engine.at(engine.now + LOOK, self._look, life)
        if self.is_stopped:
            return
        for other in self.domain.brokers.values():
            if other is not self and self.domain.is_linked(self, other):
                self.down_since.pop(other.name, None)
            elif other is not self:
                self.down_since.setdefault(other.name, engine.now)
        unreachable = tuple(sorted(one for one, since in self.down_since.items() if engine.now >= since + DETECT))
        self._take(self.agent.reach(unreachable, engine.now))
        if engine.now // SECOND != (engine.now - LOOK) // SECOND:
            self._take(self.agent.sample(self.rates, sum(self.rates.values()), engine.now))
        if self.agent.next_deadline() <= engine.now:
            self._take(self.agent.tick(engine.now))

    def _take(self, notices: Sequence[Notice]) -> None:
        engine = self.domain.engine
        for notice in notices:
            if isinstance(notice, Solve):
                delay = between(self.domain.luck, *SOLVING)
                engine.at(engine.now + delay, self._answer, (self._life, notice))
            elif isinstance(notice, PolicyChanged):
                self.domain.on_policy(self, notice.policy)
        if self._connection is not None:
            for number, request in self.agent.requests.take():
                self._connection.ask(number, request)

    def _answer(self, job: tuple[int, Solve]) -> None:
        life, wanted = job
        if life == self._life and self.is_up:
            state = _solved(pack_plan(wanted.plan), wanted.missing)
            self._take(self.agent.solved(wanted, state, self.domain.engine.now))


class SimulatedDomain:
    def __init__(
        self, luck: Random, names: Sequence[str], items: Sequence[Item], settings: Placement, capacity: float = 1_000.0
    ) -> None:
        self.engine = Engine()
        self.luck = luck
        self.items = tuple(items)
        self.settings = settings
        self.capacity = capacity
        self.ensemble = Ensemble(self.engine, luck)
        self.cuts: set[frozenset[str]] = set()
        self.on_policy: Callable[[SimBroker, ItemPolicy], None] = lambda _, __: None
        self.brokers = {name: SimBroker(self, name, luck.random()) for name in names}
        for broker in self.brokers.values():
            broker.start()

    def is_linked(self, one: SimBroker, other: SimBroker) -> bool:
        return one.runs and other.runs and frozenset((one.name, other.name)) not in self.cuts

    def run(self, for_ns: Nanos) -> None:
        self.engine.run_until(self.engine.now + for_ns)

    @property
    def running(self) -> list[SimBroker]:
        return [one for one in self.brokers.values() if one.runs]

    @property
    def policy(self) -> ItemPolicy | None:
        """The latest that any running agent has."""
        known = [one.agent.policy for one in self.running if one.agent.policy is not None]
        return max(known, key=lambda policy: policy.epoch, default=None)

    @property
    def plan(self) -> DomainPlan | None:
        return next((one.agent.plan for one in self.running if one.agent.is_master), None)

    def masters(self) -> list[str]:
        return [one.name for one in self.running if one.agent.is_master]

    def heal(self) -> None:
        """Everything runs and is linked."""
        self.cuts.clear()
        self.ensemble.heal()
        for broker in self.brokers.values():
            if not broker.is_up:
                broker.start()
            elif broker.is_stopped:
                broker.go_on()

    def next_deadline(self) -> Nanos:
        return min((one.agent.next_deadline() for one in self.running), default=NEVER)
