"""Results of a stream: which messages were in time, late, duplicated or lost, phase by phase.

A message is in time if its first copy reaches the subscriber within the deadline after the moment at which it was due
to be published; publisher and subscriber read the same clock. A lost message counts as late, and each copy beyond the
first as duplicated.

After an event the stream has recovered with the first second in which at least 99 % are in time. Seconds start at any
tenth of a second; one that is not over when the phase ends does not count.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RECOVERED_SHARE = 0.99
SECOND_NS = 1_000_000_000
STEP_NS = SECOND_NS // 10
NEVER_NS = np.iinfo(np.int64).max
Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Heard:
    """Messages in the order in which they arrived, all copies."""

    numbers: Times
    arrived_ns: Times


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    from_ns: int
    to_ns: int
    """By when messages are due."""


@dataclass(frozen=True, slots=True)
class Figures:
    sent: int
    in_time: float
    delivered: float
    """Shares of what was sent; of nothing, not a number."""
    duplicated: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    worst_ms: float
    """Of what was delivered."""
    recovered_s: float | None
    """From the start of the phase; none if never within it."""
    first_second: float = float("nan")
    """The share in time of what was sent in the first second of the phase."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Message `n` was due at `due_ns[n]`, first arrived at `first_ns[n]`, and came `copies[n]` times."""

    due_ns: Times
    first_ns: Times
    copies: Times
    deadline_ns: int

    @property
    def latency_ns(self) -> Times:
        """Of all; of what never came it is beyond every deadline."""
        return np.where(self.first_ns == NEVER_NS, NEVER_NS, self.first_ns - self.due_ns)

    @property
    def is_in_time(self) -> NDArray[np.bool_]:
        return self.latency_ns <= self.deadline_ns


def stream(due_ns: Times, heard: Heard, deadline_ns: int) -> Stream:
    count = len(due_ns)
    if len(heard.numbers) and not 0 <= int(heard.numbers.min()) <= int(heard.numbers.max()) < count:
        raise ValueError("something has arrived that was never sent")
    first_ns = np.full(count, NEVER_NS, np.int64)
    np.minimum.at(first_ns, heard.numbers, heard.arrived_ns)
    return Stream(due_ns, first_ns, np.bincount(heard.numbers, minlength=count).astype(np.int64), deadline_ns)


def figures(stream: Stream, phase: Phase) -> Figures:
    of_phase = (stream.due_ns >= phase.from_ns) & (stream.due_ns < phase.to_ns)
    sent = int(of_phase.sum())
    copies = stream.copies[of_phase]
    latency_ms = stream.latency_ns[of_phase][copies > 0] / 1e6
    p50_ms, p99_ms, p999_ms, worst_ms = (
        (float(np.quantile(latency_ms, share)) for share in (0.5, 0.99, 0.999, 1.0))
        if len(latency_ms)
        else [float("nan")] * 4
    )
    return Figures(
        sent=sent,
        in_time=_share(int(stream.is_in_time[of_phase].sum()), sent),
        delivered=_share(int((copies > 0).sum()), sent),
        duplicated=int(np.maximum(copies - 1, 0).sum()),
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        p999_ms=p999_ms,
        worst_ms=worst_ms,
        recovered_s=recovered_s(stream, phase),
        first_second=over_time(stream, phase.from_ns, min(phase.to_ns, phase.from_ns + SECOND_NS), SECOND_NS)[0],
    )


def recovered_s(stream: Stream, phase: Phase) -> float | None:
    is_in_time = stream.is_in_time
    for from_ns in range(phase.from_ns, phase.to_ns - SECOND_NS + 1, STEP_NS):
        within = (stream.due_ns >= from_ns) & (stream.due_ns < from_ns + SECOND_NS)
        if within.any() and float(is_in_time[within].mean()) >= RECOVERED_SHARE:
            return (from_ns - phase.from_ns) / SECOND_NS
    return None


def over_time(stream: Stream, from_ns: int, to_ns: int, step_ns: int) -> list[float]:
    """The share in time of each step."""
    steps = ((stream.due_ns - from_ns) // step_ns)[(stream.due_ns >= from_ns) & (stream.due_ns < to_ns)]
    in_time = stream.is_in_time[(stream.due_ns >= from_ns) & (stream.due_ns < to_ns)]
    count = -(-(to_ns - from_ns) // step_ns)
    sent = np.bincount(steps, minlength=count)
    good = np.bincount(steps, weights=in_time, minlength=count)
    return [_share(float(some), int(all_)) for some, all_ in zip(good, sent, strict=True)]


def overall(by_phase: Mapping[str, Figures]) -> Mapping[str, float]:
    """Over all phases, by what was sent in each."""
    sent = sum(one.sent for one in by_phase.values())
    return {
        "in_time": _share(sum(one.in_time * one.sent for one in by_phase.values() if one.sent), sent),
        "delivered": _share(sum(one.delivered * one.sent for one in by_phase.values() if one.sent), sent),
        "duplicated": sum(one.duplicated for one in by_phase.values()),
        "worst_phase": min((one.in_time for one in by_phase.values() if one.sent), default=float("nan")),
    }


def _share(some: float, of: int) -> float:
    return some / of if of else float("nan")
