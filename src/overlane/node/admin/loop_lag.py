"""Loop lag and rates of a broker: the delay of its event loop, and its messages per second.

The clock and the counters are read ten times per second. The delay beyond the planned time is the lag of the loop:
everything else was delayed as much.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic  # finer than the loop's own clock
from typing import NamedTuple

EVERY_S = 0.1
LAGS_KEPT = 100
RATES_OVER = 10
"""Beats: one second."""


class LagTotals(NamedTuple):
    """What was counted since the start."""

    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int


class LoopLag:
    """`count` returns the totals; `on_second` is called about once per second."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, count: Callable[[], LagTotals], on_second: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._count = count
        self._on_second = on_second
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._beats = 0
        self._lags_s: deque[float] = deque(maxlen=LAGS_KEPT)
        self._seen: deque[tuple[float, LagTotals]] = deque(maxlen=RATES_OVER + 1)

    def start(self) -> None:
        self._seen.append((monotonic(), self._count()))
        self._arm()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @property
    def lag_s(self) -> float:
        """On average, lately."""
        return sum(self._lags_s) / len(self._lags_s) if self._lags_s else 0.0

    @property
    def lag_max_s(self) -> float:
        return max(self._lags_s, default=0.0)

    def rates(self) -> tuple[float, float, float, float]:
        """Of each of the totals, a second."""
        (since_s, before), (until_s, after) = self._seen[0], self._seen[-1]
        past_s = until_s - since_s
        if past_s <= 0:
            return 0.0, 0.0, 0.0, 0.0
        one, two, three, four = ((new - old) / past_s for new, old in zip(after, before, strict=True))
        return one, two, three, four

    def _arm(self) -> None:
        self._due_s = monotonic() + EVERY_S
        self._timer = self._loop.call_later(EVERY_S, self._beat)

    def _beat(self) -> None:
        now_s = monotonic()
        lag_s = max(0.0, now_s - self._due_s)
        self._lags_s.append(lag_s)
        self._seen.append((now_s, self._count()))
        self._beats += 1
        if self._beats % RATES_OVER == 0:
            self._on_second()
        self._arm()
