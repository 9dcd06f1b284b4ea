"""The plan of a domain, with its case base, and the policies of states that it lacks.

A plan has the items with mean rates and covariance in the peak period, the brokers with their capacities, the placement
of the normal state, and the policies of other states as differences from it. It comes from the pipeline, or is made
here of live rates. `solve` computes what is missing; it may take seconds, so agents hand it out and get answers back.
"""

import zlib
from collections.abc import Mapping, Sequence
from itertools import combinations

import msgspec
import numpy as np

from overlane.errors import OverlaneError
from overlane.items.policy import Place, Places
from overlane.network.plan import DomainForecast
from overlane.planning.allocation import BrokerCapacity, Item, Problem
from overlane.planning.case_base import Case, NormalPlan, solve_case
from overlane.planning.mirrors import allocate_and_mirror, nearest_mirroring
from overlane.planning.problem import BadProblem, NoSolution

PLAN_BYTES_MAX = 500_000
UNPACKED_BYTES_MAX = 32 * 2**20
ITEMS_MAX = 2_000
BROKERS_MAX = 200


class BadDomainPlan(OverlaneError, ValueError):
    """Something in the plan of a domain cannot be."""

    error_code = "OVL-128"


class PlannedItem(msgspec.Struct, frozen=True):
    name: str
    mean: float
    critical: bool = False


class PlannedBroker(msgspec.Struct, frozen=True):
    name: str
    capacity: float


class DomainState(msgspec.Struct, frozen=True):
    """The policy of one state: which brokers are missing, and the items that are placed otherwise than normally."""

    missing: tuple[str, ...]
    places: dict[str, Place] = {}
    status: str = "kept"
    risk: dict[str, float] = {}


class DomainPlan(msgspec.Struct, frozen=True):
    items: tuple[PlannedItem, ...]
    covariance: tuple[tuple[float, ...], ...]
    """Of the items in their order; the lower triangle is enough, row by row."""
    brokers: tuple[PlannedBroker, ...]
    places: dict[str, Place]
    """Of the normal state."""
    risk_max: float = 0.02
    states: tuple[DomainState, ...] = ()
    version: int = 0
    risk: dict[str, float] = {}

    def names(self) -> frozenset[str]:
        return frozenset(broker.name for broker in self.brokers)

    def state(self, missing: frozenset[str]) -> DomainState | None:
        """The normal state included."""
        if not missing:
            return DomainState((), dict(self.places), "kept", self.risk)
        wanted = tuple(sorted(missing))
        found = next((one for one in self.states if one.missing == wanted), None)
        return None if found is None else msgspec.structs.replace(found, places={**self.places, **found.places})

    def with_state(self, state: DomainState) -> "DomainPlan":
        """`state` has all places."""
        differing = {item: place for item, place in state.places.items() if self.places.get(item) != place}
        others = tuple(one for one in self.states if one.missing != state.missing)
        kept = msgspec.structs.replace(state, places=differing)
        return msgspec.structs.replace(self, states=(*others, kept))


def check_plan(plan: DomainPlan) -> None:
    """BadDomainPlan."""
    if len(plan.items) > ITEMS_MAX or len(plan.brokers) > BROKERS_MAX:
        raise BadDomainPlan(f"more than {ITEMS_MAX} items or {BROKERS_MAX} brokers")
    try:
        problem_of(plan)
    except BadProblem as bad:
        raise BadDomainPlan(str(bad)) from None
    items, brokers = {one.name for one in plan.items}, plan.names()
    for state in (DomainState((), plan.places), *plan.states):
        if not set(state.missing) <= brokers or set(state.missing) == brokers:
            raise BadDomainPlan(
                f"got a state without {', '.join(state.missing)}; expected brokers of the plan, not all"
            )
        for item, place in state.places.items():
            is_known = item in items and place.primary in brokers and (not place.mirror or place.mirror in brokers)
            is_there = place.primary not in state.missing and place.mirror not in state.missing
            if not is_known or not is_there or place.primary == place.mirror:
                raise BadDomainPlan(f"got {item} on {place.primary} and {place.mirror}; expected two known brokers")
    if items != plan.places.keys():
        raise BadDomainPlan("the normal state does not place every item")


def problem_of(plan: DomainPlan) -> Problem:
    """BadProblem."""
    size = len(plan.items)
    if len(plan.covariance) != size or any(len(row) <= index for index, row in enumerate(plan.covariance)):
        raise BadProblem("covariance", f"{len(plan.covariance)} rows", f"{size} rows, at least the lower triangle")
    matrix = np.zeros((size, size))
    for index, row in enumerate(plan.covariance):
        matrix[index, : index + 1] = row[: index + 1]
        matrix[: index + 1, index] = row[: index + 1]
    items = [Item(one.name, one.mean, critical=one.critical) for one in plan.items]
    brokers = [BrokerCapacity(one.name, one.capacity) for one in plan.brokers]
    return Problem.of(items, matrix, brokers, plan.risk_max)


def make_plan(
    items: Sequence[PlannedItem],
    covariance: Sequence[Sequence[float]],
    brokers: Sequence[PlannedBroker],
    risk_max: float,
    places: Places | None = None,
    version: int = 0,
) -> DomainPlan:
    """A plan without a case base. Without `places` they are computed; the nearest ones if the limits cannot be met."""
    rows = tuple(tuple(map(float, row[: index + 1])) for index, row in enumerate(covariance))
    empty = DomainPlan(tuple(items), rows, tuple(brokers), {}, risk_max, (), version)
    if places is not None:
        return msgspec.structs.replace(empty, places=dict(places))
    problem = problem_of(empty)
    if len(brokers) == 1:
        return msgspec.structs.replace(empty, places={one.name: Place(brokers[0].name) for one in items})
    try:
        found = allocate_and_mirror(problem)
    except NoSolution:
        found = nearest_mirroring(problem)
    named = {item: Place(primary, found.mirror[item]) for item, primary in found.primary.items()}
    return msgspec.structs.replace(empty, places=named, risk=found.risk_normal)


def domain_plan(forecast: DomainForecast, version: int, critical: Mapping[str, bool]) -> DomainPlan:
    """The plan of a domain out of a plan that an operator applies; BadDomainPlan."""
    normal = {item: Place(primary, forecast.mirror.get(item, "")) for item, primary in forecast.primary.items()}
    states = []
    for one in forecast.states:
        if one.off:
            continue  # for a low load; agents solve that for the load of the moment
        places = {
            item: Place(one.primary.get(item, place.primary), one.mirror.get(item, "" if one.primary else place.mirror))
            for item, place in normal.items()
        }
        if one.failed:
            states.append(DomainState(tuple(sorted(one.failed)), places, one.status, one.risk))
    risk = next((one.risk for one in forecast.states if not one.failed and not one.off), {})
    plan = DomainPlan(
        tuple(PlannedItem(one.name, one.mean, critical.get(one.name, False)) for one in forecast.items),
        tuple(tuple(row[: index + 1]) for index, row in enumerate(forecast.covariance)),
        tuple(PlannedBroker(one.name, one.capacity) for one in forecast.brokers),
        normal,
        forecast.risk_max,
        (),
        version,
        risk,
    )
    for state in states:
        plan = plan.with_state(state)
    check_plan(plan)
    return plan


def failure_states(plan: DomainPlan) -> list[frozenset[str]]:
    """Every single and every double failure that leaves a broker."""
    names = sorted(plan.names())
    return [frozenset(one) for size in (1, 2) if size < len(names) for one in combinations(names, size)]


def solve(plan: DomainPlan, missing: frozenset[str]) -> DomainState:
    """The policy of one state, with all places: a pure function of its arguments."""
    problem = problem_of(plan)
    mirrors = {item: place.mirror or place.primary for item, place in plan.places.items()}
    normal = NormalPlan(
        problem,
        problem.places({item: place.primary for item, place in plan.places.items()}, "primary"),
        problem.places(mirrors, "mirror"),
    )
    found = solve_case(normal, Case(failed=tuple(sorted(missing))))
    places = {item: Place(primary, found.mirror.get(item, "")) for item, primary in found.primary.items()}
    return DomainState(tuple(sorted(missing)), places, found.status, found.risk)


def fitted(plan: DomainPlan, critical: Mapping[str, bool]) -> DomainPlan | None:
    """The plan for the items that the file has now; None where it has none of them. Items that it does not know are
    left to be placed otherwise."""
    kept = [index for index, item in enumerate(plan.items) if item.name in critical]
    if not kept:
        return None
    if len(kept) == len(plan.items) and all(one.critical == critical[one.name] for one in plan.items):
        return plan
    names = {plan.items[index].name for index in kept}
    rows = tuple(tuple(_entry(plan.covariance, row, column) for column in kept if column <= row) for row in kept)
    return msgspec.structs.replace(
        plan,
        items=tuple(
            msgspec.structs.replace(plan.items[index], critical=critical[plan.items[index].name]) for index in kept
        ),
        covariance=rows,
        places={item: place for item, place in plan.places.items() if item in names},
        states=tuple(
            msgspec.structs.replace(one, places={item: place for item, place in one.places.items() if item in names})
            for one in plan.states
        ),
    )


def _entry(rows: tuple[tuple[float, ...], ...], row: int, column: int) -> float:
    return rows[row][column] if column <= row else rows[column][row]


# Bytes


def pack_plan(plan: DomainPlan) -> bytes:
    """For a znode. Where the case base is too large for one, the states with the most missing brokers are left out:
    they are solved when they occur."""
    while True:
        packed = zlib.compress(msgspec.msgpack.encode(plan))
        if len(packed) <= PLAN_BYTES_MAX or not plan.states:
            return packed
        most = max(len(state.missing) for state in plan.states)
        plan = msgspec.structs.replace(plan, states=tuple(one for one in plan.states if len(one.missing) < most))


def unpack_plan(data: bytes) -> DomainPlan:
    """BadDomainPlan."""
    try:
        unpacking = zlib.decompressobj()
        content = unpacking.decompress(data, UNPACKED_BYTES_MAX)
        if unpacking.unconsumed_tail:
            raise BadDomainPlan(f"more than {UNPACKED_BYTES_MAX} bytes")
        if not unpacking.eof:
            raise BadDomainPlan("it ends too early")
        plan = msgspec.msgpack.decode(content, type=DomainPlan)
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError) as bad:
        raise BadDomainPlan(f"not a plan: {bad}") from None
    check_plan(plan)
    return plan
