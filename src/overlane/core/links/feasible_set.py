"""Feasible set: which of the jobs that wait for one server can all still meet their deadlines.

A job has a time by which it must be finished and an amount of work. If any order meets all deadlines, the order of
deadlines does (Jackson). If none does, the rule of Moore and Hodgson keeps the largest number of jobs in time: go
through the jobs by deadline, and where one would finish too late, remove the longest of all up to there. Jobs that may
not be lost are removed only where no other is left, since they must be sent anyway.

The jobs are kept in sorted blocks of limited length. A block knows its total work and the latest start for which all
of its jobs are in time, so that one comparison skips a block. Adding and removing cost a search and one block. A scan
of n jobs costs n / BLOCK comparisons, and is needed only when `safe_until`, which is corrected with every change, says
that some job may be late. Jobs are named by numbers that the caller never uses twice.
"""

from bisect import bisect_left, insort
from itertools import accumulate
from operator import sub

from overlane.core.units import NEVER, Nanos

BLOCK = 32

Burden = tuple[bool, Nanos, Nanos, int]
"""The greatest is taken out first: may be lost, work, and of equally long jobs the most urgent, since the others have
more time left for the rest of their way. The last two are -by and -number."""

Job = tuple[Nanos, int, Nanos, Burden]
"""Finished by, number, work, burden."""


class _Block:
    """A run of jobs. `latest`, its latest start, and `burden`, its greatest, are of use only while it is fresh."""

    __slots__ = ("burden", "is_fresh", "jobs", "latest", "work")

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs = jobs
        self.work = sum([job[2] for job in jobs])
        self.latest: Nanos = NEVER
        self.burden: Burden = (False, 0, 0, 0)
        self.is_fresh = False

    def refresh(self) -> None:
        bys, _, works, burdens = zip(*self.jobs, strict=True)
        self.latest = min(map(sub, bys, accumulate(works)))
        self.burden = max(burdens)
        self.is_fresh = True

    def burden_up_to_the_first_late(self, start: Nanos) -> Burden:
        greatest = self.jobs[0][3]
        for by, _, work, burden in self.jobs:
            if burden > greatest:
                greatest = burden
            start += work
            if start > by:
                break
        return greatest


class FeasibleSet:
    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._lasts: list[tuple[Nanos, int]] = []
        self._work: Nanos = 0
        self.safe_until: Nanos = NEVER
        """All jobs are in time if the first starts by then, and perhaps if it starts later."""

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def add(self, number: int, by_ns: Nanos, work_ns: Nanos, *, may_be_lost: bool) -> None:
        self._work += work_ns
        self.safe_until = min(self.safe_until - work_ns, by_ns - self._work)
        if not self._blocks:
            self._blocks.append(_Block([]))
            self._lasts.append((by_ns, number))
        index = min(bisect_left(self._lasts, (by_ns, number)), len(self._blocks) - 1)
        block = self._blocks[index]
        insort(block.jobs, (by_ns, number, work_ns, (may_be_lost, work_ns, -by_ns, -number)))
        block.work += work_ns
        block.is_fresh = False
        if len(block.jobs) > 2 * BLOCK:
            self._split(index)
        else:
            self._lasts[index] = block.jobs[-1][:2]

    def remove(self, number: int, by_ns: Nanos) -> int:
        """Returns the index of the block that it was in."""
        index = bisect_left(self._lasts, (by_ns, number))
        at = bisect_left(self._blocks[index].jobs, (by_ns, number))
        self._remove_at(index, at)
        return index

    def pop(self) -> int | None:
        """The job to serve next. What follows it can start later by its work, and still be in time as before."""
        if not self._blocks:
            return None
        _, number, work, _ = self._remove_at(0, 0)
        if self._blocks:
            self.safe_until += work
        return number

    def shed(self, now: Nanos) -> list[int]:
        """Take out what the rule takes out, so that all others are in time if the first starts now."""
        if now <= self.safe_until:
            return []
        shed = self._shed_hopeless(now)
        start, index, slack_min = now, 0, NEVER
        while index < len(self._blocks):
            block = self._blocks[index]
            if not block.is_fresh:
                block.refresh()
            slack = block.latest - start
            if slack >= 0:
                if slack < slack_min:
                    slack_min = slack
                start += block.work
                index += 1
                continue
            burdens = [earlier.burden for earlier in self._blocks[:index]]
            _, work, minus_by, minus_number = max([*burdens, block.burden_up_to_the_first_late(start)])
            shed.append(-minus_number)
            at = self.remove(-minus_number, -minus_by)
            if at < index:
                start -= work
                if self._blocks[at].is_fresh:
                    # Its block is empty and gone; here is the next one.
                    index -= 1
                else:
                    self._blocks[at].refresh()
        self.safe_until = now + slack_min if self._blocks else NEVER
        return shed

    def _shed_hopeless(self, now: Nanos) -> list[int]:
        """The usual case after a pause: the first jobs are too late even if served at once."""
        shed = []
        while self._blocks:
            by, number, work, _ = self._blocks[0].jobs[0]
            if now + work <= by:
                break
            self._remove_at(0, 0)
            shed.append(number)
        return shed

    def _remove_at(self, index: int, at: int) -> Job:
        block = self._blocks[index]
        job = block.jobs.pop(at)
        block.work -= job[2]
        block.is_fresh = False
        self._work -= job[2]
        if not block.jobs:
            del self._blocks[index]
            del self._lasts[index]
            if not self._blocks:
                self.safe_until = NEVER
        elif at == len(block.jobs):
            self._lasts[index] = block.jobs[-1][:2]
        return job

    def _split(self, index: int) -> None:
        block = self._blocks[index]
        halves = [_Block(block.jobs[:BLOCK]), _Block(block.jobs[BLOCK:])]
        self._blocks[index : index + 1] = halves
        self._lasts[index : index + 1] = [half.jobs[-1][:2] for half in halves]
