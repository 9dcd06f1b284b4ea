"""Notices for operators: connections, disconnections with their reasons, and refusals.

They are collected during a turn and taken by the driver at its end. Unauthenticated clients can cause any number of
them in one turn, so only the first ones are kept; the counters include all.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.counters import Refusal

NOTICES_MAX = 200
"""Of one turn."""


@dataclass(frozen=True, slots=True)
class Connected:
    """A client was accepted. `is_resumed`: its session was there before."""

    client_id: str
    user: str | None
    peer: Peer
    protocol: str
    """And its version, such as `MQTT 5.0`."""
    is_resumed: bool


@dataclass(frozen=True, slots=True)
class PassedOn:
    """A client was accepted here, and has its session at another broker of the domain."""

    client_id: str
    user: str | None
    peer: Peer
    broker: str
    is_redirected: bool
    """Whether it was told to go there itself; otherwise its connection is passed on."""


@dataclass(frozen=True, slots=True)
class Left:
    """A client that had been accepted is gone."""

    client_id: str
    peer: Peer
    why: str


@dataclass(frozen=True, slots=True)
class RefusalNotice:
    """A client, or something that it asked for, was turned away. Who that is may not be known yet, or be no client."""

    why: Refusal
    told: str
    client_id: str | None
    peer: Peer | None


Notice: TypeAlias = Connected | PassedOn | Left | RefusalNotice


@dataclass(slots=True)
class Notices:
    _kept: list[Notice] = field(default_factory=list)
    _left_out: int = 0

    @property
    def has_room(self) -> bool:
        return len(self._kept) < NOTICES_MAX

    @property
    def are_there(self) -> bool:
        return bool(self._kept)

    def add(self, notice: Notice) -> None:
        if self.has_room:
            self._kept.append(notice)
        else:
            self._left_out += 1

    def take(self) -> tuple[list[Notice], int]:
        """Those of this turn, and how many were left out."""
        taken = self._kept, self._left_out
        self._kept, self._left_out = [], 0
        return taken
