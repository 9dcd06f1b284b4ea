"""The management agent of one broker.

It knows the domain as the znodes of its records say, and what its own broker measures. It reports that, stands for
election, and follows the policy; the master (`master`) decides besides. Every agent has the plan with its case base and
the policy, so the next master begins with what the last one knew, and a change of the master changes nothing for
clients. Without ZooKeeper everything stays as it is: nothing is ever unlearned because it is away.

A policy of a lower epoch than one that is known is ignored. What a master writes is one transaction with a check of
`epoch`: one that was deposed, and does not know it yet, changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from overlane.coordination.contract import (
    Answer,
    Answered,
    Check,
    Connected,
    Create,
    Delete,
    Done,
    Event,
    Operation,
    Read,
    Replace,
    Suspended,
    Transaction,
)
from overlane.coordination.follower import Follower, Numbered
from overlane.coordination.records import MalformedRecord
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.items.master import Master, MasterKnowledge, Solve
from overlane.items.mastership import Mastership, Strategy, most_power_first
from overlane.items.plans import DomainPlan, DomainState, pack_plan
from overlane.items.policy import ItemPolicy
from overlane.items.rates import Bottleneck
from overlane.items.records import AgentReport, MasterRecord, Paths, decode, decode_plan, encode
from overlane.items.votes import accused
from overlane.network.schema import Item, Placement

TRY_AGAIN: Nanos = 1 * SECOND
RATES_EVERY: Nanos = 2 * SECOND
"""Rates are reported so often at most; what others have to act on is reported at once."""


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    policy: ItemPolicy


@dataclass(frozen=True, slots=True)
class MasterChanged:
    name: str | None


@dataclass(frozen=True, slots=True)
class Ignored:
    """A znode that no agent would have written; what it said before counts."""

    path: str
    reason: str


Notice = PolicyChanged | MasterChanged | Ignored | Solve


class Agent:
    def __init__(
        self,
        name: str,
        domain: str,
        items: Sequence[Item],
        settings: Placement,
        capacity: float,
        power: float = 1.0,
        strategy: Strategy = most_power_first,
    ) -> None:
        self.name = name
        self.items = tuple(items)
        self.paths = Paths(domain)
        self.requests = Numbered()
        paths = self.paths
        self._own = f"{paths.agents}/{name}"
        nodes = (paths.master, paths.epoch, paths.plan, paths.policy, self._own)
        self.follower = Follower(self.requests, nodes, (paths.agents, paths.drained))
        self._mastership = Mastership(name, paths, strategy)
        self.bottleneck = Bottleneck(capacity, settings.risk_max)
        self._report = AgentReport(capacity, power)
        self._rates_at: Nanos = 0
        self._master = Master(name, self.items, settings)
        self._writes: dict[int, str] = {}
        self._quiet_until: dict[str, Nanos] = {}
        self._due: Nanos = NEVER
        self._is_connected = False
        self.session = 0
        self.reports: dict[str, AgentReport] = {}
        self.drained: frozenset[str] = frozenset()
        self.master: str | None = None
        self.plan: DomainPlan | None = None
        self.policy: ItemPolicy | None = None
        self._offered: DomainPlan | None = None
        """A plan that an operator has applied at this broker."""

    @property
    def is_master(self) -> bool:
        """As far as it knows: what a master writes is checked by the service."""
        node = self.follower.found.get(self.paths.master)
        return self._is_connected and node is not None and node.owner == self.session

    @property
    def is_connected(self) -> bool:
        return self._is_connected

    @property
    def report(self) -> AgentReport:
        return self._report

    # What the broker tells it

    def configure(self, items: Sequence[Item], settings: Placement, strategy: Strategy, now: Nanos) -> list[Notice]:
        """The network file says this from now on."""
        self.items = tuple(items)
        self._mastership.strategy = strategy
        self.bottleneck.risk_max = settings.risk_max
        self._master.configure(self.items, settings)
        return self.tick(now)

    def offer(self, plan: DomainPlan, now: Nanos) -> list[Notice]:
        """A plan has been applied; it counts if no later one has."""
        self._offered = plan
        return self.tick(now)

    def reach(self, unreachable: tuple[str, ...], now: Nanos) -> list[Notice]:
        """Brokers of the domain that cannot be reached; all others can."""
        if unreachable == self._report.unreachable:
            return []
        self._tell(unreachable=unreachable)
        return self.tick(now)

    def sample(self, rates: Mapping[str, float], total: float, now: Nanos) -> list[Notice]:
        """Once a second: messages per second published here by item, and all that the broker has handled."""
        has_turned = self.bottleneck.observe(total)
        if has_turned or now >= self._rates_at + RATES_EVERY:
            self._rates_at = now
            rounded = {item: float(f"{rate:.3g}") for item, rate in sorted(rates.items()) if rate > 0}
            risk = float(f"{self.bottleneck.risk:.3g}")
            self._tell(rates=rounded, is_overloaded=self.bottleneck.is_raised, risk=risk)
        if self.is_master:
            self._master.sample(self._known, now)
        return self.tick(now)

    def solved(self, job: Solve, state: DomainState | None, now: Nanos) -> list[Notice]:
        """What was to be solved; None: it failed."""
        if state is None:
            self._master.failed_to_solve(job, now)
        else:
            self._master.solved(job, state, now)
        return self.tick(now)

    def _tell(self, **changes: object) -> None:
        values = {field: getattr(self._report, field) for field in self._report.__struct_fields__}
        self._report = AgentReport(**{**values, **changes})

    # Events

    def next_deadline(self) -> Nanos:
        if not self._is_connected:
            return NEVER
        return min([self._due, self._mastership.next_deadline(), *self._quiet_until.values()])

    def handle(self, event: Event, now: Nanos) -> list[Notice]:
        changed: list[str] = []
        match event:
            case Connected(session):
                self._is_connected, self.session = True, session
                self._quiet_until.clear()
                self._writes.clear()
                self.requests.forget_all()
                self.follower.handle(event)
                self._make_folders()
            case Suspended():
                self._is_connected = False
                self.follower.handle(event)
            case Answered(number, answer):
                request = self.requests.answered(number)
                if number in self._writes:
                    self._written(self._writes.pop(number), answer, now)
                elif request is not None:
                    changed = self.follower.answered(event, request)
            case _:
                changed = self.follower.handle(event)
        notices = [notice for path in changed for notice in self._take(path)]
        return notices + self.tick(now)

    def tick(self, now: Nanos) -> list[Notice]:
        """Do what is due: report, stand for election, decide."""
        self._due = NEVER
        if not self._is_connected:
            return []
        self._quiet_until = {path: until for path, until in self._quiet_until.items() if until > now}
        self._write_report()
        self._write_offered()
        self._stand(now)
        if not self._leads():
            if not self.is_master:
                self._master.resign()
            return []
        return self._decide(now)

    def _stand(self, now: Nanos) -> None:
        paths, found = self.paths, self.follower.found
        if not self._may_write(paths.master) or not self.follower.has_read(paths.epoch):
            return
        votes = {name: frozenset(report.unreachable) for name, report in self.reports.items()}
        failed = accused(votes, frozenset(votes), self.name) if self.master is not None else frozenset()
        operations = self._mastership.due(
            self.session, found.get(paths.master), found.get(paths.epoch), self.master, self.reports, failed, now
        )
        if operations:
            self._write(paths.master, *operations)

    def _leads(self) -> bool:
        """Whether it is the master by both nodes, and has read what it decides on."""
        paths, epoch = self.paths, self.follower.found.get(self.paths.epoch)
        if not self.is_master or epoch is None or not self.follower.is_complete:
            return False
        try:
            holder = decode(paths.epoch, epoch.data, MasterRecord)
        except MalformedRecord:
            return False
        return (holder.name, holder.session) == (self.name, self.session)

    @property
    def _known(self) -> MasterKnowledge:
        return MasterKnowledge(self.plan, self.policy, self.reports, self.drained)

    def _decide(self, now: Nanos) -> list[Notice]:
        if not (self._may_write(self.paths.plan) and self._may_write(self.paths.policy)):
            return []
        decision = self._master.decide(self._known, now)
        self._due = decision.due
        if decision.plan is not None:
            self._fenced(self.paths.plan, pack_plan(decision.plan))
        elif decision.policy is not None:
            self._fenced(self.paths.policy, encode(decision.policy))
        return [decision.solve] if decision.solve is not None else []

    # Writing

    def _may_write(self, path: str) -> bool:
        return path not in self._writes.values() and path not in self._quiet_until and self.follower.has_read(path)

    def _fenced(self, path: str, data: bytes) -> None:
        found = self.follower.found
        check = Check(self.paths.epoch, found[self.paths.epoch].version)
        node = found.get(path)
        self._write(path, check, Create(path, data) if node is None else Replace(path, data, node.version))

    def _make_folders(self) -> None:
        for path in self.paths.folders:
            self._write(path, Create(path))
        self._write(self.paths.epoch, Create(self.paths.epoch, encode(MasterRecord(""))))

    def _write_report(self) -> None:
        if not self._may_write(self._own):
            return
        data, node = encode(self._report), self.follower.found.get(self._own)
        create = Create(self._own, data, is_ephemeral=True)
        if node is None:
            self._write(self._own, create)
        elif node.owner != self.session:
            self._write(self._own, Delete(self._own, node.version), create)
        elif node.data != data:
            self._write(self._own, Replace(self._own, data, node.version))

    def _write_offered(self) -> None:
        """Any agent writes it: a later version wins, and of two writers the service lets one succeed."""
        path = self.paths.plan
        if self._offered is None or not self._may_write(path):
            return
        if self.plan is not None and self.plan.version >= self._offered.version:
            self._offered = None
            return
        data, node = pack_plan(self._offered), self.follower.found.get(path)
        self._write(path, Create(path, data) if node is None else Replace(path, data, node.version))

    def _write(self, path: str, *operations: Operation) -> None:
        self._writes[self.requests.ask(Transaction(operations))] = path

    def _written(self, path: str, answer: Answer, now: Nanos) -> None:
        if path in self.paths.folders:
            return
        if not isinstance(answer, Done):
            self._quiet_until[path] = now + TRY_AGAIN if path != self.paths.master else now + TRY_AGAIN // 4
            if path == self._own:
                self._make_folders()
        # Its watch may have told before this answer, or may be lost: see what became of it.
        if self._is_connected:
            self.follower.look_again(Read(path))
            if path == self.paths.master:
                self.follower.look_again(Read(self.paths.epoch))

    # Reading

    def _take(self, path: str) -> list[Notice]:
        node, paths = self.follower.found.get(path), self.paths
        try:
            if path == paths.master:
                self.master = None if node is None else decode(path, node.data, MasterRecord).name
                return [MasterChanged(self.master)]
            if path == paths.plan and node is not None:
                self.plan = decode_plan(path, node.data)
            elif path == paths.policy and node is not None:
                return self._take_policy(decode(path, node.data, ItemPolicy))
            elif path.startswith(f"{paths.agents}/"):
                self._take_report(path, path.rpartition("/")[2])
            elif path.startswith(f"{paths.drained}/"):
                self.drained = frozenset(self.follower.names(paths.drained))
        except MalformedRecord as error:
            return [Ignored(error.path, error.reason)]
        return []

    def _take_report(self, path: str, name: str) -> None:
        node = self.follower.found.get(path)
        if node is None:
            self.reports.pop(name, None)
        else:
            self.reports[name] = decode(path, node.data, AgentReport)

    def _take_policy(self, policy: ItemPolicy) -> list[Notice]:
        if self.policy is not None and policy.epoch <= self.policy.epoch:
            return []
        carried = _carried(self.policy, self.name)
        self.policy = policy
        if _carried(policy, self.name) != carried:
            self.bottleneck.forget()
        return [PolicyChanged(policy)]


def _carried(policy: ItemPolicy | None, broker: str) -> frozenset[str]:
    places = {} if policy is None else policy.places
    return frozenset(item for item, place in places.items() if place.primary == broker)
