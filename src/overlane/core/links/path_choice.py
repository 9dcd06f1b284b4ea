"""Path choice: which path of a link is in use, which one gets copies, and which one the connection should take.

    in use    of the paths that work and are trusted, the one with the least round trip. One that loses much gives way
              to a clean one that is not much slower
    copies    while the path that was in use is silent and not given up, it gets copies: it may have been a delay. If
              the path in use loses much and there was no clean one to give way to, the next best gets copies
    stream    the connection leaves a path that is gone at once, and one that is silent after STREAM_AFTER, if another
              path works: the neighbour lives, the path does not. It follows the path in use after STREAM_BACK

A path that fails is left at once. It is trusted again when it has worked for a hold time, which doubles each time that
it fails again soon. A path that is only better takes over after BETTER_FOR, so that two similar paths do not alternate.

No I/O, no clock: it is told what the paths are like, and the time. The simulator uses it too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from overlane.core.units import MS, NEVER, SECOND, Nanos

HOLD_MIN: Nanos = 1 * SECOND
HOLD_MAX: Nanos = 60 * SECOND
RELAPSE_WITHIN: Nanos = 60 * SECOND
BETTER_FOR: Nanos = 1 * SECOND
BETTER_MIN: Nanos = 2 * MS
LOSSY, CLEAN = 50_000, 10_000
"""Loss, in millionths, from which on a path counts as lossy, and below which it no longer does."""
SLOWER_MAX: Nanos = 20 * MS
"""A clean path may be slower than a lossy one by a half and this."""
STREAM_AFTER: Nanos = 200 * MS
STREAM_BACK: Nanos = 10 * SECOND


@dataclass(frozen=True, slots=True)
class PathSample:
    """A path as it is measured now."""

    number: int
    is_open: bool
    """It answers probes, or did until lately."""
    is_silent: bool = False
    """Answers are overdue."""
    is_gone: bool = False
    """One end says that its interface or address is gone."""
    rtt_ns: Nanos = 0
    loss_millionths: int = 0

    @property
    def works(self) -> bool:
        return self.is_open and not self.is_silent and not self.is_gone


@dataclass(slots=True)
class _Record:
    """What is remembered of a path."""

    works_since: Nanos = NEVER
    failed_at: Nanos = -NEVER
    hold_ns: Nanos = 0
    is_lossy: bool = False
    has_worked: bool = False

    def is_trusted(self, now: Nanos) -> bool:
        return now >= self.works_since + self.hold_ns


class PathChoice:
    def __init__(self) -> None:
        self.in_use: int | None = None
        self.copies: int | None = None
        self._records: dict[int, _Record] = {}
        self._samples: dict[int, PathSample] = {}
        self._better_since: Nanos = NEVER
        self._in_use_since: Nanos = 0

    def judge(self, samples: Sequence[PathSample], now: Nanos) -> bool:
        """All paths as they are now; whether another one is in use from now on."""
        self._samples = {sample.number: sample for sample in samples}
        for sample in samples:
            self._remember(sample, now)
        before = self.in_use
        self.in_use = self._chosen(now)
        if self.in_use != before:
            self._in_use_since, self._better_since = now, NEVER
        self.copies = self._copied(before)
        return self.in_use != before

    @property
    def standby_ns(self) -> Nanos:
        """The round trip of the best path that works beside the one in use; 0 if there is none."""
        others = (one.rtt_ns for one in self._samples.values() if one.works and one.number != self.in_use)
        return min(others, default=0)

    def stream_path(self, current: int | None, now: Nanos) -> int | None:
        """The path that the connection should move to from the one that it takes; None if it stays."""
        used = self._samples.get(self.in_use) if self.in_use is not None else None
        if used is None or not used.works or used.number == current:
            return None
        sample = self._samples.get(current) if current is not None else None
        if sample is None or sample.is_gone:
            return used.number
        if not sample.works:
            record = self._records[sample.number]
            # Where datagrams have never passed, their silence says nothing about the connection.
            return used.number if record.has_worked and now - record.failed_at >= STREAM_AFTER else None
        return used.number if now - self._in_use_since >= STREAM_BACK else None

    def _remember(self, sample: PathSample, now: Nanos) -> None:
        record = self._records.setdefault(sample.number, _Record())
        if not sample.works:
            if record.works_since != NEVER:
                is_relapse = now - record.failed_at < RELAPSE_WITHIN + record.hold_ns
                record.hold_ns = min(HOLD_MAX, 2 * record.hold_ns) if is_relapse else HOLD_MIN
                record.works_since, record.failed_at = NEVER, now
        elif record.works_since == NEVER:
            record.works_since = now
            record.hold_ns = record.hold_ns if record.has_worked else 0
            record.has_worked = True
        record.is_lossy = sample.loss_millionths >= (CLEAN if record.is_lossy else LOSSY)

    def _chosen(self, now: Nanos) -> int | None:
        working = [sample for sample in self._samples.values() if sample.works]
        trusted = [sample for sample in working if self._records[sample.number].is_trusted(now)]
        current = self._samples.get(self.in_use) if self.in_use is not None else None
        if current is not None and current.works and current not in trusted:
            trusted.append(current)  # nothing better was there when it was chosen
        best = self._best(trusted or working)
        if best is None or current is None:
            return self.in_use if best is None and current is not None else best.number if best is not None else None
        if not current.works or best.number == current.number:
            self._better_since = NEVER
            return best.number
        if self._is_better(best, current):
            self._better_since = min(self._better_since, now)
        elif best.rtt_ns >= current.rtt_ns:
            self._better_since = NEVER
        return best.number if now - self._better_since >= BETTER_FOR else current.number

    def _best(self, samples: Sequence[PathSample]) -> PathSample | None:
        ranked = sorted(samples, key=lambda sample: (sample.rtt_ns, sample.number))
        for sample in ranked[1:]:
            is_near = sample.rtt_ns <= ranked[0].rtt_ns * 3 // 2 + SLOWER_MAX
            if self._is_lossy(ranked[0]) and not self._is_lossy(sample) and is_near:
                return sample
        return ranked[0] if ranked else None

    def _is_better(self, best: PathSample, current: PathSample) -> bool:
        if self._is_lossy(current) and not self._is_lossy(best):
            return True
        return current.rtt_ns - best.rtt_ns >= max(BETTER_MIN, current.rtt_ns >> 3)

    def _is_lossy(self, sample: PathSample) -> bool:
        return self._records[sample.number].is_lossy

    def _copied(self, before: int | None) -> int | None:
        for number in (before, self.copies):
            sample = self._samples.get(number) if number is not None else None
            if sample is None or number == self.in_use or sample.is_gone:
                continue
            if sample.is_open and sample.is_silent:
                return number
        used = self._samples.get(self.in_use) if self.in_use is not None else None
        if used is None or not (used.is_silent or self._is_lossy(used)):
            return None
        others = [one for one in self._samples.values() if one.works and one.number != used.number]
        return min(others, key=lambda one: (one.rtt_ns, one.number)).number if others else None
