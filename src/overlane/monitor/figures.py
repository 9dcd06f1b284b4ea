"""Delivery figures: recent and total values from counters.

Broker counters start at zero with each broker process. Increases are added up at each poll, so totals continue over
restarts. Earlier totals of the last seconds are kept; the recent figures are the difference.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from overlane.monitor.overlay_state import Figures, rounded

RECENT_S = 10.0
SMOOTH_S = 2.0
SETTLE_S = 3.0
"""A message missing for longer is lost; until then it may arrive on another path."""


@dataclass(slots=True)
class Totals:
    """Counters of one topic. Ages: upper bound in microseconds -> messages."""

    published: int = 0
    delivered: int = 0
    in_time: int = 0
    missing: int = 0
    ages_us: Counter[int] = field(default_factory=Counter)

    def copy(self) -> "Totals":
        return Totals(self.published, self.delivered, self.in_time, self.missing, self.ages_us.copy())


def percentile_ms(ages_us: Mapping[int, int], percent: int) -> float | None:
    """By nearest rank; None without messages."""
    count = sum(ages_us.values())
    if count <= 0:
        return None
    rank, seen = (count * percent + 99) // 100, 0
    for age_us in sorted(ages_us):
        seen += ages_us[age_us]
        if seen >= rank:
            return rounded(age_us / 1000)
    return None


class DeliveryCounters:
    """Counters of one topic, or of all messages of one broker."""

    def __init__(self) -> None:
        self.totals = Totals()
        self._samples: deque[tuple[float, Totals]] = deque()
        self._lost = 0
        self._lost_before = 0

    def sample(self, at_s: float) -> None:
        """Record the current totals."""
        self._samples.append((at_s, self.totals.copy()))
        while len(self._samples) > 2 and self._samples[1][0] <= at_s - RECENT_S:
            self._samples.popleft()
        settled = [totals.missing for seen_s, totals in self._samples if seen_s >= at_s - SETTLE_S]
        self._lost = min(settled, default=0)
        self._lost_before = min(self._lost, self._samples[0][1].missing)

    def rate_hz(self) -> float:
        """Messages published per second, over about the last two seconds."""
        if len(self._samples) < 2:
            return 0.0
        until_s, now = self._samples[-1]
        since_s, before = next((one for one in reversed(self._samples) if one[0] <= until_s - 2.0), self._samples[0])
        past_s = until_s - since_s
        return rounded((now.published - before.published) / past_s) if past_s > 0 else 0.0

    def total(self) -> Figures:
        return _figures(self.totals, Totals(), self._lost)

    def lately(self) -> Figures:
        if not self._samples:
            return Figures()
        return _figures(self.totals, self._samples[0][1], self._lost - self._lost_before)

    def in_time_lately(self) -> float | None:
        """A share; None if nothing was delivered."""
        figures = self.lately()
        return round(figures.in_time / figures.delivered, 4) if figures.delivered else None


def _figures(now: Totals, before: Totals, lost: int) -> Figures:
    ages_us = now.ages_us - before.ages_us
    return Figures(
        published=now.published - before.published,
        delivered=now.delivered - before.delivered,
        in_time=now.in_time - before.in_time,
        lost=lost,
        p50_ms=percentile_ms(ages_us, 50),
        p99_ms=percentile_ms(ages_us, 99),
        max_ms=percentile_ms(ages_us, 100),
    )


class RateSmoother:
    """Smoothed rates of counters."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[float, int, float]] = {}

    def of(self, name: tuple[str, str], total: int, at_s: float) -> float:
        """Per second; a counter that decreased has restarted at zero."""
        before_s, before, rate = self._seen.get(name, (at_s, total, 0.0))
        if at_s > before_s:
            grown = total - before if total >= before else total
            new_share = min(1.0, (at_s - before_s) / SMOOTH_S)
            rate += new_share * (grown / (at_s - before_s) - rate)
        self._seen[name] = at_s, total, rate
        return rounded(rate, 2) if rate >= 1 else 0.0


class CounterIncrease:
    """Increases of counters that restart at zero with each incarnation of a broker."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], tuple[int, int]] = {}

    def of(self, name: tuple[str, ...], incarnation: int, count: int) -> int:
        previous, before = self._seen.get(name, (incarnation, 0))
        self._seen[name] = incarnation, count
        return max(0, count - before) if incarnation == previous else count


class HistogramIncrease:
    """The same for histograms."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], tuple[int, Counter[int]]] = {}

    def of(self, name: tuple[str, ...], incarnation: int, ages_us: Iterable[tuple[int, int]]) -> Counter[int]:
        now = Counter(dict(ages_us))
        previous, before = self._seen.get(name, (incarnation, Counter()))
        self._seen[name] = incarnation, now
        return now - before if incarnation == previous else now
