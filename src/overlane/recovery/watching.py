"""Watching: whether another broker's process has ended, or is silent. One watcher for each that is watched.

    alive    --nothing heard for `silence`-->  asking     two neighbours are asked whether they reach it
    asking   --one does not answer-->  asking             the next neighbour is asked instead
    asking   --two do not reach it-->  silent             reported, and again at every `silence` after that
    asking   --one has heard it lately-->  alive          our own link is broken: asked again later
    any      --connection closed, and another refused-->  dead
    any      --a frame-->  alive

Every frame is a sign of life. A watcher that was itself late (its loop was busy, or the process was stopped) has not
listened: the time by which it was late is added to the silence that it allows. One neighbour is enough where no other
answers. A watcher that nobody answers is probably cut off itself, and reports only after `unconfirmed`. A false alarm
costs a handover, never a message.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from overlane.core.units import MS, NEVER, Nanos

ASKED = 2
"""Neighbours that are asked."""


@dataclass(frozen=True, slots=True)
class WatchSettings:
    silence: Nanos = 900 * MS
    """After which a silent broker is suspected."""
    answer_within: Nanos = 100 * MS
    """How long an answer of neighbours is waited for."""
    unconfirmed: Nanos = 3_000 * MS
    """After which silence is reported that no neighbour has confirmed."""
    lag_max: Nanos = 5_000 * MS
    """By how much the own lag stretches the silence, at most."""


class WatchState(Enum):
    ALIVE = "alive"
    ASKING = "asking"
    SILENT = "silent"
    DEAD = "dead"


# Effects


@dataclass(frozen=True, slots=True)
class AskNeighbour:
    """Ask whether it reaches the broker that is watched, and how long ago it has heard it; `answered`, or never."""

    neighbour: str
    round: int


@dataclass(frozen=True, slots=True)
class Lost:
    """To be acted on: `PrimaryLost` or `MirrorLost`."""

    is_dead: bool


@dataclass(frozen=True, slots=True)
class Back:
    """It is heard again after it was reported as lost."""


WatchEffect: TypeAlias = AskNeighbour | Lost | Back


class Watcher:
    def __init__(self, settings: WatchSettings, now: Nanos) -> None:
        self.state = WatchState.ALIVE
        self._settings = settings
        self._heard_at = now
        self._stretch: Nanos = 0
        """By how much the own lag has stretched the silence since the last sign of life."""
        self._due = now + settings.silence
        self._round = 0
        self._tried: set[str] = set()
        """Neighbours that were asked in this round."""
        self._asked: set[str] = set()
        """Those of them whose answer is awaited."""
        self._confirmed = 0
        """How many do not reach it either."""

    # Inputs

    def heard(self, now: Nanos) -> list[WatchEffect]:
        """A frame, a datagram, an accepted connection."""
        was_lost = self.state in (WatchState.SILENT, WatchState.DEAD)
        self.state = WatchState.ALIVE
        self._heard_at = max(self._heard_at, now)
        self._stretch = 0
        self._asked = set()
        self._due = self._heard_at + self._settings.silence
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
        if self.state is WatchState.ALIVE:
            self._due += self._stretch - before
        else:
            self._due = max(self._due, now + min(lag, self._settings.answer_within))

    def answered(self, neighbour: str, round_: int, heard_ago: Nanos | None, now: Nanos) -> list[WatchEffect]:
        """`heard_ago`: how long ago the neighbour has heard the broker; None: it does not reach it."""
        if self.state is not WatchState.ASKING or round_ != self._round or neighbour not in self._asked:
            return []
        if heard_ago is not None and heard_ago < self._settings.silence:
            self.state = WatchState.ALIVE
            self._asked = set()
            # It lives, as far as anybody knows: until it has been silent to that neighbour for as long.
            self._due = now + self._settings.silence - max(0, heard_ago)
            return []
        self._asked.discard(neighbour)
        self._confirmed += 1
        if self._confirmed >= ASKED:
            return self._report(now)
        if not self._asked:
            self._due = now  # to ask others, if there are any
        return []

    def tick(self, neighbours: Sequence[str], now: Nanos) -> list[WatchEffect]:
        """`neighbours`: who may be asked, best first; without the broker that is watched."""
        if now < self._due:
            return []
        if self.state is WatchState.SILENT:
            return self._report(now)
        if self.state is WatchState.ALIVE:
            self.state = WatchState.ASKING
            self._round += 1
            self._tried, self._asked, self._confirmed = set(), set(), 0
        chosen = [one for one in neighbours if one not in self._tried][: ASKED - self._confirmed]
        if not chosen:
            return self._conclude(now, is_alone=not neighbours)
        self._tried.update(chosen)
        self._asked.update(chosen)
        self._due = now + self._settings.answer_within
        return [AskNeighbour(neighbour, self._round) for neighbour in chosen]

    def _conclude(self, now: Nanos, *, is_alone: bool) -> list[WatchEffect]:
        """There is nobody left to ask."""
        unconfirmed_until = self._heard_at + self._stretch + self._settings.unconfirmed
        if self._confirmed or is_alone or now >= unconfirmed_until:
            return self._report(now)
        self._due = unconfirmed_until
        return []

    # What is known

    def heard_ago(self, now: Nanos) -> Nanos:
        """For a neighbour that asks."""
        return now - self._heard_at

    def next_deadline(self) -> Nanos:
        return self._due

    def _report(self, now: Nanos) -> list[WatchEffect]:
        self.state = WatchState.SILENT
        self._asked = set()
        self._due = now + self._settings.silence
        return [Lost(is_dead=False)]
