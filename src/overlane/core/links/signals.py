"""Signals: state that all neighbours of a broker share, so that it need not poll each of them every turn.

Deadlines are kept in groups of some neighbours. One neighbour that changes costs a look at its group and at the groups,
not at every neighbour: a routing broker may have thousands.
"""

from dataclasses import dataclass, field
from typing import Protocol

from overlane.core.units import NEVER, Nanos
from overlane.errors import Failure

FAILURES_TOLD = 16
"""Failures reported per turn."""
WAKE_GROUP_MAX = 32


class Waker(Protocol):
    """What is asked of a neighbour."""

    name: str
    wake_at: Nanos | None
    """Its next deadline; None if it has to be found anew."""

    def next_deadline(self) -> Nanos: ...


@dataclass(slots=True)
class WakeGroup:
    members: list[Waker] = field(default_factory=list)
    woken: bool = True
    """The next deadline of one of them may be later than it was."""
    wake_at: Nanos = NEVER
    """The next deadline of all of them, unless `woken`."""

    def next_deadline(self) -> Nanos:
        if self.woken:
            self.woken = False
            wake_at = NEVER
            for one in self.members:
                due_ns = one.next_deadline() if one.wake_at is None else one.wake_at
                if due_ns < wake_at:
                    wake_at = due_ns
            self.wake_at = wake_at
        return self.wake_at


@dataclass(slots=True)
class Signals:
    woken: bool = True
    """The next deadline of some neighbour may be later than it was."""
    wake_at: Nanos = NEVER
    """The next deadline of all neighbours, unless `woken`."""
    groups: list[WakeGroup] = field(default_factory=list)
    touched: dict[str, None] = field(default_factory=dict)
    """Neighbours with links whose state or measurements have changed."""
    ready: set[str] = field(default_factory=set)
    """Neighbours with something to send."""
    failures: list[Failure] = field(default_factory=list)
    """Messages and parcels that could not be encoded."""
    unsendable: int = 0
    """How many there were."""

    def join(self, neighbour: Waker) -> WakeGroup:
        """The group of a new neighbour."""
        if not self.groups or len(self.groups[-1].members) >= WAKE_GROUP_MAX:
            self.groups.append(WakeGroup())
        self.groups[-1].members.append(neighbour)
        return self.groups[-1]

    def next_deadline(self) -> Nanos:
        """Of all neighbours."""
        if self.woken:
            self.woken = False
            wake_at = NEVER
            for group in self.groups:
                due_ns = group.next_deadline() if group.woken else group.wake_at
                if due_ns < wake_at:
                    wake_at = due_ns
            self.wake_at = wake_at
        return self.wake_at

    def due(self, now: Nanos) -> list[str]:
        """The neighbours whose deadline has come."""
        groups = [group for group in self.groups if group.next_deadline() <= now]
        return sorted(one.name for group in groups for one in group.members if one.next_deadline() <= now)

    def fail(self, kind: str, peer: str, error: Exception) -> None:
        self.unsendable += 1
        if len(self.failures) < FAILURES_TOLD:
            self.failures.append(Failure(kind, peer, error))
