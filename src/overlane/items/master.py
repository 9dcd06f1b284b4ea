"""The master's decisions: which plan, which policy, and what has to be computed. Nothing is written here.

plan     where none has been applied, one is made of the brokers that are there, first without rates, then with live
         ones. A placement that keeps the limits is not changed for better rates.
state    the brokers that have failed (`votes`), and those that are drained or switched off
policy   that of the state in the case base. For a state that is not there, mirrors are promoted at once, and the
         state is solved and added. Where nothing urgent is to be solved, failures that the case base lacks are.
relief   when a broker reports a bottleneck, few items are moved, by the rates of now; then items rest for REST
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from overlane.core.units import NEVER, SECOND, Nanos
from overlane.items.plans import (
    DomainPlan,
    DomainState,
    PlannedBroker,
    PlannedItem,
    failure_states,
    fitted,
    make_plan,
)
from overlane.items.policy import ItemPolicy, Place, is_sound, promoted, spread_out
from overlane.items.rates import LiveRates, item_rates
from overlane.items.records import AgentReport
from overlane.items.switching_off import SwitchingOff
from overlane.items.votes import FailureVotes
from overlane.network.schema import Item, Placement

SETTLE: Nanos = 2 * SECOND
"""A new master waits so long for agents to register before it places items for the first time."""
REST: Nanos = 60 * SECOND
DOUBLE_FAILURES_MAX = 12
"""Brokers of a domain up to which the master computes all double failures itself; the pipeline has no such limit."""
WRITTEN_AFTER = 16
"""States that are solved before the case base is written."""
RATES_CHANGED = 0.25
"""Live rates replace those of a plan that was made of live rates when the total differs by so much."""

Purpose = Literal["state", "relief", "off"]


@dataclass(frozen=True, slots=True)
class Solve:
    """To be answered with `Agent.solved`: `plans.solve(plan, missing)`."""

    plan: DomainPlan
    missing: frozenset[str]
    purpose: Purpose
    subject: str = ""


@dataclass(frozen=True, slots=True)
class MasterKnowledge:
    """What the znodes say."""

    plan: DomainPlan | None
    policy: ItemPolicy | None
    reports: Mapping[str, AgentReport]
    drained: frozenset[str]


@dataclass(slots=True)
class Decision:
    policy: ItemPolicy | None = None
    """To be written."""
    plan: DomainPlan | None = None
    """To be written."""
    solve: Solve | None = None
    due: Nanos = NEVER


@dataclass(slots=True)
class Master:
    name: str
    items: Sequence[Item]
    settings: Placement
    _votes: FailureVotes = field(default_factory=FailureVotes)
    _since: Nanos = NEVER
    _solving: Solve | None = None
    _solved: dict[frozenset[str], DomainState] = field(default_factory=dict)
    """Not yet in the plan that is written."""
    _of_plan: DomainPlan | None = None
    """The plan that `_solved` belongs to."""
    _rates: LiveRates | None = None
    _off: SwitchingOff = field(default_factory=SwitchingOff)
    _rest_until: Nanos = 0
    _relieved: tuple[DomainPlan, DomainState] | None = None
    _to_check: str | None = None
    """A broker that might be switched off."""

    def configure(self, items: Sequence[Item], settings: Placement) -> None:
        self.items, self.settings = items, settings
        self._rates = None

    def resign(self) -> None:
        """It is not the master, or not any more."""
        self._since = NEVER
        self._solving = self._relieved = self._to_check = None
        self._solved.clear()
        self._off = SwitchingOff()

    # Measurements and answers

    def sample(self, known: MasterKnowledge, now: Nanos) -> None:
        """Once a second, while it is the master."""
        names = [item.name for item in self.items]
        if self._rates is None or list(self._rates.items) != names:
            self._rates = LiveRates(names)
        rates = self._live(known)
        self._rates.observe(rates)
        if known.policy is not None and self._to_check is None:
            capacities = {name: report.capacity for name, report in known.reports.items() if name not in known.drained}
            failed = frozenset(known.policy.failed)
            self._to_check = self._off.candidate(self.settings, capacities, rates, known.policy.places, failed, now)

    def solved(self, job: Solve, state: DomainState, now: Nanos) -> None:
        if job is not self._solving:
            return  # it was asked by another master, or for another plan
        self._solving = None
        match job.purpose:
            case "state":
                self._solved[job.missing] = state
            case "relief":
                self._rest_until = now + REST
                self._relieved = job.plan, state
            case "off":
                if state.status == "kept":
                    self._off.switch_off(job.subject)

    def failed_to_solve(self, job: Solve, now: Nanos) -> None:
        """It is tried again when something has changed; promoted mirrors hold."""
        if job is self._solving:
            self._solving = None
            self._rest_until = now + REST

    def _live(self, known: MasterKnowledge) -> dict[str, float]:
        critical = frozenset(item.name for item in self.items if item.critical)
        return item_rates({name: report.rates for name, report in known.reports.items()}, critical)

    # Decisions

    def decide(self, known: MasterKnowledge, now: Nanos) -> Decision:
        self._since = min(self._since, now)
        decision = Decision()
        if not self.items or not known.reports:
            return decision
        plan = self._plan(known, decision, now)
        if plan is None:
            return decision
        if plan is not self._of_plan:
            self._of_plan = plan
            self._solved.clear()
            if self._solving is not None and self._solving.purpose != "relief":
                self._solving = None
        everyone = plan.names() | frozenset(known.reports)
        votes = {name: frozenset(report.unreachable) for name, report in known.reports.items()}
        failed, due = self._votes.failed(votes, everyone, self.name, now)
        decision.due = min(decision.due, due)
        off = (known.drained | self._off.off) & everyone - failed
        if not everyone - failed - off:
            off = frozenset()
        alive = everyone - failed - off
        if not alive:
            return decision
        if self._relieved is not None and decision.plan is None:
            decision.plan = self._relief(plan, failed | off)
            return decision
        self._place(plan, known.policy, failed, off, alive, decision)
        if decision.solve is None and self._solving is None:
            decision.solve = self._next_job(plan, known, failed | off, now)
        if decision.solve is not None:
            self._solving = decision.solve
        if decision.plan is None and self._is_worth_writing(decision):
            for state in self._solved.values():
                plan = plan.with_state(state)
            decision.plan = plan
        return decision

    def _plan(self, known: MasterKnowledge, decision: Decision, now: Nanos) -> DomainPlan | None:
        """The plan for the items of the file and the brokers that are there; where it has to change, it is written."""
        critical = {item.name: item.critical for item in self.items}
        plan = None if known.plan is None else fitted(known.plan, critical)
        if plan is None:
            if known.policy is None and now < self._since + SETTLE:
                decision.due = min(decision.due, self._since + SETTLE)
                return None
            decision.plan = self._first_plan(known)
            return decision.plan
        unplaced = [item for item in self.items if item.name not in plan.places]
        joined = sorted(known.reports.keys() - plan.names())
        if not unplaced and not joined:
            return plan
        is_rough = not any(item.mean for item in plan.items) and not plan.version
        if is_rough and joined:
            decision.plan = self._first_plan(known, plan)
            return decision.plan
        brokers = (*plan.brokers, *(PlannedBroker(name, known.reports[name].capacity) for name in joined))
        names = [item.name for item in self.items]
        decision.plan = msgspec.structs.replace(
            plan,
            items=(*plan.items, *(PlannedItem(item.name, 0.0, item.critical) for item in unplaced)),
            covariance=(*plan.covariance, *(_zeros(len(plan.items) + index) for index in range(len(unplaced)))),
            brokers=brokers,
            places=promoted(plan.places, names, [broker.name for broker in brokers]),
            states=() if unplaced else plan.states,
        )
        return decision.plan

    def _first_plan(self, known: MasterKnowledge, before: DomainPlan | None = None) -> DomainPlan:
        capacities = {} if before is None else {one.name: one.capacity for one in before.brokers}
        capacities |= {name: report.capacity for name, report in known.reports.items()}
        brokers = sorted(capacities)
        items = [PlannedItem(item.name, 0.0, item.critical) for item in self.items]
        places = spread_out([item.name for item in self.items], brokers)
        planned = [PlannedBroker(name, capacities[name]) for name in brokers]
        rows = [_zeros(index) for index in range(len(items))]
        return make_plan(items, rows, planned, self.settings.risk_max, places)

    def _place(
        self,
        plan: DomainPlan,
        before: ItemPolicy | None,
        failed: frozenset[str],
        off: frozenset[str],
        alive: frozenset[str],
        decision: Decision,
    ) -> None:
        missing = failed | off
        names = [item.name for item in self.items]
        state = self._solved.get(missing & plan.names()) or plan.state(missing & plan.names())
        is_known = state is not None and is_sound(state.places, names, alive & plan.names())
        if state is not None and is_known:
            places, risk, is_rough = dict(state.places), state.risk, False
        else:
            ground = plan.places if before is None or before.plan != plan.version else before.places
            places, risk, is_rough = promoted(ground, names, alive), {}, True
            urgent = missing & plan.names()
            if state is None and (self._solving is None or self._solving.missing != urgent):
                decision.solve = Solve(plan, urgent, "state")
        fresh = ItemPolicy(
            1 if before is None else before.epoch + 1,
            places,
            tuple(sorted(failed)),
            tuple(sorted(off)),
            plan.version,
            _why(failed, off),
            is_rough,
            risk,
        )
        if before is None or msgspec.structs.replace(fresh, epoch=before.epoch) != before:
            decision.policy = fresh

    def _next_job(self, plan: DomainPlan, known: MasterKnowledge, missing: frozenset[str], now: Nanos) -> Solve | None:
        rates = self._rates
        overloaded = [name for name, one in known.reports.items() if one.is_overloaded and name not in missing]
        if overloaded and rates is not None and rates.is_warm and now >= self._rest_until and known.policy is not None:
            live = self._live_plan(plan, rates, known.policy.places)
            return Solve(live, missing & plan.names(), "relief", overloaded[0])
        if self._to_check is not None and rates is not None and rates.is_warm and known.policy is not None:
            subject, self._to_check = self._to_check, None
            live = self._live_plan(plan, rates, known.policy.places)
            if subject in plan.names() and len(plan.names() - missing) > 1:
                return Solve(live, (missing & plan.names()) | {subject}, "off", subject)
        for state in failure_states(plan):
            if len(state) > 1 and len(plan.brokers) > DOUBLE_FAILURES_MAX:
                break
            if state not in self._solved and plan.state(state) is None:
                return Solve(plan, state, "state")
        return None

    def _live_plan(self, plan: DomainPlan, rates: LiveRates, places: Mapping[str, Place]) -> DomainPlan:
        mean = rates.mean
        return make_plan(
            [PlannedItem(item.name, mean[item.name], item.critical) for item in self.items],
            rates.covariance.tolist(),
            plan.brokers,
            self.settings.risk_max,
            places,
            plan.version,
        )

    def _relief(self, plan: DomainPlan, missing: frozenset[str]) -> DomainPlan | None:
        """A plan with the places that relieve the bottleneck; None if they are those of now, or were computed for
        another state."""
        assert self._relieved is not None
        (live, state), self._relieved = self._relieved, None
        if frozenset(state.missing) != missing & plan.names() or live.names() != plan.names():
            self._rest_until = 0
            return None
        if not state.missing:
            return msgspec.structs.replace(live, places=dict(state.places), risk=state.risk)
        return msgspec.structs.replace(live, places=plan.places).with_state(state)

    def _is_worth_writing(self, decision: Decision) -> bool:
        return bool(self._solved) and (
            len(self._solved) >= WRITTEN_AFTER or (decision.solve is None and self._solving is None)
        )


def _zeros(index: int) -> tuple[float, ...]:
    return (0.0,) * (index + 1)


def _why(failed: frozenset[str], off: frozenset[str]) -> str:
    parts = [f"{', '.join(sorted(failed))} failed"] if failed else []
    parts += [f"{', '.join(sorted(off))} off"] if off else []
    return "; ".join(parts) or "normal"
