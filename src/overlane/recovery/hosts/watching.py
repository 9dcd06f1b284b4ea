"""Failure detection: whether another broker's process has ended, or is silent. One watcher for each monitored broker.

    alive    --nothing heard for `suspect`-->  asking       it is probed, by us and by neighbours, all at once
    asking   --a neighbour reaches it-->  alive             our own link is broken: asked again later
    asking   --silence for `silence`-->  silent             reported, and again at every `silence` after that
    any      --connection closed, and another refused-->  dead
    any      --a frame-->  alive

Every frame counts as a heartbeat. Neighbours are asked before `silence` is over, so that their answers cost no time,
and all at once, so that neighbours that have failed together with the broker cost no time either. If the watcher itself
was late (its loop was busy, or the process was stopped), this delay is added to its limits.

Only a positive answer counts: that a neighbour reaches the broker. A watcher without any answer may be disconnected
itself, and need not find out: a takeover needs a compare-and-set in the coordination service, which fails without a
connection. If only the hosts do not reach each other, the primary drops the mirror before `silence` is over (`lease`),
and the report has no effect. A false alarm causes a handover, but never the loss of a message.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from overlane.core.units import MS, NEVER, Nanos

ASKED_MAX = 5
"""Neighbours that are asked."""


@dataclass(frozen=True, slots=True)
class WatchSettings:
    silence: Nanos = 600 * MS
    """After which a silent broker is reported."""
    suspect: Nanos = 400 * MS
    """After which it is probed."""
    lag_max: Nanos = 5_000 * MS
    """By how much the own lag stretches the silence, at most."""

    def __post_init__(self) -> None:
        if not 0 < self.suspect < self.silence:
            raise ValueError("a broker is probed before it is reported")


class WatchState(Enum):
    ALIVE = "alive"
    ASKING = "asking"
    SILENT = "silent"
    DEAD = "dead"


# Effects


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask the broker itself for a sign of life: `heard`, or never."""


@dataclass(frozen=True, slots=True)
class AskNeighbour:
    """Ask whether it reaches the broker that is watched: `answered`, or never."""

    neighbour: str
    round: int


@dataclass(frozen=True, slots=True)
class Lost:
    """To be acted on: `PrimaryLost` or `MirrorLost`."""

    is_dead: bool


@dataclass(frozen=True, slots=True)
class Back:
    """It is heard again after it was reported as lost."""


WatchEffect: TypeAlias = Probe | AskNeighbour | Lost | Back


class Watcher:
    def __init__(self, settings: WatchSettings, now: Nanos) -> None:
        self.state = WatchState.ALIVE
        self._settings = settings
        self._heard_at = now
        """When it was heard last, by us or by a neighbour."""
        self._stretch: Nanos = 0
        """By how much the own lag has stretched the silence since the last sign of life."""
        self._due = now + settings.suspect
        self._round = 0
        self._asked: set[str] = set()
        """Neighbours whose answer is awaited."""

    # Inputs

    def heard(self, now: Nanos) -> list[WatchEffect]:
        """A frame, a datagram, an accepted connection."""
        was_lost = self.state in (WatchState.SILENT, WatchState.DEAD)
        self._alive_at(now)
        return [Back()] if was_lost else []

    def connection_refused(self) -> list[WatchEffect]:
        """Its connection was closed, and its host refuses another: the process has ended."""
        if self.state is WatchState.DEAD:
            return []
        self.state = WatchState.DEAD
        self._asked = set()
        self._due = NEVER
        return [Lost(is_dead=True)]

    def lagged(self, lag: Nanos, now: Nanos) -> None:
        """The own loop was late by this much: what has come meanwhile is not handled yet."""
        if lag <= 0 or self.state is WatchState.DEAD:
            return
        before = self._stretch
        self._stretch = min(self._settings.lag_max, self._stretch + lag)
        self._due += self._stretch - before
        if self.state is WatchState.ASKING:
            self._due = max(self._due, now + self._answer_time)

    def answered(self, neighbour: str, round_: int, heard_ago: Nanos | None, now: Nanos) -> list[WatchEffect]:
        """`heard_ago`: how long ago the neighbour has heard the broker; None: it does not reach it."""
        if self.state is not WatchState.ASKING or round_ != self._round or neighbour not in self._asked:
            return []
        if heard_ago is not None and heard_ago < self._settings.suspect:
            # It lives, as far as anybody knows: until it has been silent to that neighbour for as long.
            self._alive_at(now - max(0, heard_ago))
        return []

    def tick(self, neighbours: Sequence[str], now: Nanos) -> list[WatchEffect]:
        """`neighbours`: who may be asked, best first; without the broker that is watched."""
        if now < self._due:
            return []
        match self.state:
            case WatchState.ALIVE:
                return self._ask(neighbours[:ASKED_MAX], now)
            case _:
                return self._report(now)

    def _ask(self, chosen: Sequence[str], now: Nanos) -> list[WatchEffect]:
        self.state = WatchState.ASKING
        self._round += 1
        self._asked = set(chosen)
        # A watcher that is late asks all the same, and gives the answers their time.
        self._due = max(self._heard_at + self._stretch + self._settings.silence, now + self._answer_time)
        return [Probe(), *(AskNeighbour(neighbour, self._round) for neighbour in chosen)]

    # What is known

    def next_deadline(self) -> Nanos:
        return self._due

    @property
    def _answer_time(self) -> Nanos:
        return self._settings.silence - self._settings.suspect

    def _alive_at(self, moment: Nanos) -> None:
        self.state = WatchState.ALIVE
        self._heard_at = max(self._heard_at, moment)
        self._stretch = 0
        self._asked = set()
        self._due = self._heard_at + self._settings.suspect

    def _report(self, now: Nanos) -> list[WatchEffect]:
        self.state = WatchState.SILENT
        self._asked = set()
        self._due = now + self._settings.silence
        return [Lost(is_dead=False)]
