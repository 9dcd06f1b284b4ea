"""Systems that alternate: each is started once, and then measured round by round, each time in another order.

So other work on the machine affects all of them. A system that cannot be measured here is reported once, with the
reason, and skipped.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from rich.console import Console

from _crew import LoadFailed
from _peers import Peer, Unavailable

Figures = Mapping[str, float]
Found = dict[str, list[Figures]]
"""By system, one entry for each round."""
P = TypeVar("P", bound=Peer)
S = TypeVar("S")
"""A system that runs."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How long each round measures."""

    measured_s: float


@dataclass(frozen=True, slots=True)
class Measure(Generic[S]):
    title: str
    round: Callable[[S, Extent], Figures]
    fresh: bool = False
    """Needs a system that has done nothing before."""
    repeated: bool = True
    """One round says too little."""
    at_once: bool = False
    """Everybody is to run as soon as there is something to do: what else runs on the machine is not to count."""


@dataclass(slots=True)
class Turns:
    console: Console
    rounds: int
    extent: Extent
    directory: Path
    real_time: bool
    left_out: dict[str, str] = field(default_factory=dict)
    there: dict[str, bool] = field(default_factory=dict)
    started: int = 0

    def measure(
        self, measure: Measure[S], peers: Sequence[P], start: Callable[[P, Path], AbstractContextManager[S]]
    ) -> Found:
        peers = [peer for peer in peers if self._is_there(peer)]
        found: Found = {peer.name: [] for peer in peers}
        with ExitStack() as stack, self.console.status("") as status:
            if measure.at_once and self.real_time:
                stack.enter_context(self._real_time())
            systems = {} if measure.fresh else self._start(peers, start, stack)
            for number in range(self.rounds if measure.repeated else 1):
                turn = number % max(1, len(peers))
                for peer in [*peers[turn:], *peers[:turn]]:
                    status.update(f"{measure.title}: {peer.name}, round {number + 1}")
                    figures = self._round(measure, peer, systems.get(peer.name), start)
                    if figures is not None:
                        found[peer.name].append(figures)
        return {peer: rounds for peer, rounds in found.items() if rounds}

    def _start(
        self, peers: Sequence[P], start: Callable[[P, Path], AbstractContextManager[S]], stack: ExitStack
    ) -> dict[str, S]:
        systems = {}
        for peer in peers:
            try:
                systems[peer.name] = stack.enter_context(start(peer, self._fresh_directory()))
            except Unavailable as why:
                self._leave_out(peer, str(why))
        return systems

    def _round(
        self,
        measure: Measure[S],
        peer: P,
        system: S | None,
        start: Callable[[P, Path], AbstractContextManager[S]],
    ) -> Figures | None:
        try:
            if measure.fresh:
                with start(peer, self._fresh_directory()) as fresh:
                    return measure.round(fresh, self.extent)
            return measure.round(system, self.extent) if system is not None else None
        except (LoadFailed, Unavailable, FileNotFoundError) as why:
            self._leave_out(peer, f"{measure.title}: {why}")
            return None

    @contextmanager
    def _real_time(self) -> Iterator[None]:
        """For this process and those it starts meanwhile."""
        before, usual = os.sched_getscheduler(0), os.sched_getparam(0)
        try:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        except PermissionError:
            self.console.print("[yellow]without real-time priority[/]: what else runs here counts as latency")
        try:
            yield
        finally:
            os.sched_setscheduler(0, before, usual)

    def _is_there(self, peer: Peer) -> bool:
        if peer.name not in self.there:
            missing = peer.missing()
            if missing is not None:
                self._leave_out(peer, missing)
            self.there[peer.name] = missing is None
        return self.there[peer.name]

    def _leave_out(self, peer: Peer, why: str) -> None:
        if self.left_out.get(peer.name) != why:
            self.console.print(f"[yellow]left out[/]  {peer.name}: {why}", highlight=False)
            self.left_out[peer.name] = why

    def _fresh_directory(self) -> Path:
        self.started += 1
        return self.directory / str(self.started)
