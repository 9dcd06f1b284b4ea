"""Latency budgets: how long a class may stay at this broker, for the `laxity` order of its link queues.

A class that has D from end to end, and whose hops are measured to take d_1 .. d_K, has the margin D - (d_1 + .. +
d_K). Its part at this broker is one K-th of it (`equal`), or as much of it as this hop is of all hops
(`proportional`): a slow hop, where waiting is likely, gets more of what there is to wait.

From the parts the budgets follow in one of two ways. `ranked` is the rule of the Harmony paper (its equation 3):
the classes are sorted by their parts, and the n-th gets the smallest part plus n steps, so that the budgets say who
goes first and by how much, but not how long each may really wait. `margin` takes the part itself as the budget.

Parts are not allowed below zero, so a class that is too late already ranks first together with others of its kind,
in the order of their keys. The budgets change only when a class is put in, changed or taken out.

`plan` does the same (`equal`) for one parcel and what is left of its margin now, for the `edf-shed` order.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

from overlane.core.units import MS, NEVER, Nanos

STEP_NS: Nanos = 200 * MS
"""Smaller steps come close to first come, first served; from the longest deadline on, greater ones change nothing.
See `bench/scheduling.py --variants "laxity, H8" --step-ms`."""


class Split(StrEnum):
    EQUAL = "equal"
    PROPORTIONAL = "proportional"


class Spacing(StrEnum):
    RANKED = "ranked"
    MARGIN = "margin"


class Sortable(Hashable, Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=Sortable)


@dataclass(frozen=True, slots=True)
class LatencyDemand:
    """The requirements of one class: its deadline, and the measured latencies of its hops from end to end."""

    deadline_ns: Nanos
    latency_ns: Nanos
    """Of all hops together."""
    hops: int
    here_ns: Nanos = 0
    """Of the hop that begins at this broker; for the proportional split only."""


class BudgetTable(Generic[K]):
    def __init__(self, split: str = Split.EQUAL, spacing: str = Spacing.RANKED, step_ns: Nanos = STEP_NS) -> None:
        self._split = Split(split)
        self._spacing = Spacing(spacing)
        self._step_ns = step_ns
        self._parts: dict[K, Nanos] = {}
        self._budgets: dict[K, Nanos] | None = {}

    def put(self, key: K, demand: LatencyDemand) -> None:
        """Add or update a class."""
        part = self.part(demand)
        if self._parts.get(key) != part:
            self._parts[key] = part
            self._budgets = None

    def remove(self, key: K) -> None:
        if self._parts.pop(key, None) is not None:
            self._budgets = None

    def budget(self, key: K) -> Nanos:
        """NEVER for classes without a deadline or not in the table: they wait behind all others."""
        if self._budgets is None:
            self._budgets = self._ranked() if self._spacing is Spacing.RANKED else self._parts
        return self._budgets.get(key, NEVER)

    def part(self, demand: LatencyDemand) -> Nanos:
        """This broker's part of the class's margin."""
        if demand.deadline_ns >= NEVER:
            return NEVER
        margin = max(0, demand.deadline_ns - demand.latency_ns)
        if self._split is Split.EQUAL or not demand.latency_ns:
            return margin // max(1, demand.hops)
        return margin * demand.here_ns // demand.latency_ns

    def _ranked(self) -> dict[K, Nanos]:
        order = sorted((part, key) for key, part in self._parts.items() if part < NEVER)
        return {key: order[0][0] + (rank + 1) * self._step_ns for rank, (_, key) in enumerate(order)}


def plan(due_ns: Nanos, now: Nanos, hops: int) -> Nanos:
    """When a parcel should have left this broker, of which it must have left by `due_ns` at the latest.

    Of what is left of its margin it may spend here one part in `hops`, the number of links of its whole way, as in the
    rule of the paper. Hops later on the way thus keep a reserve. Had they all that is left, a parcel would be in the
    last queues no more urgent than those that come from next door, though more has been spent on it.
    """
    if due_ns >= NEVER or due_ns <= now:
        return due_ns
    return now + (due_ns - now) // hops
