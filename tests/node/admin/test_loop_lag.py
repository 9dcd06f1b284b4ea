"""The loop_lag and the timed store: what is measured of a broker while it works."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from overlane.node.admin import loop_lag
from overlane.node.admin.loop_lag import EVERY_S, LAGS_KEPT, LagTotals, LoopLag
from overlane.node.store.errors import StoreError
from overlane.node.store.memory import MemoryDisk, MemoryStore
from overlane.node.store.timed import BOUNDS_NS, TimedStore


class Bench:
    """A loop and a clock that do as they are told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.totals = LagTotals(0, 0, 0, 0)
        self.seconds = 0
        self._beat: Callable[[], None] | None = None
        monkeypatch.setattr(loop_lag, "monotonic", lambda: self.now_s)
        self.loop_lag = LoopLag(cast(asyncio.AbstractEventLoop, self), lambda: self.totals, self._on_second)
        self.loop_lag.start()

    def _on_second(self) -> None:
        self.seconds += 1

    def call_later(self, _: float, beat: Callable[[], None]) -> None:
        self._beat = beat

    def pass_by(self, duration_s: float) -> None:
        """Time passes, and then the loop gets to the next beat."""
        self.now_s += duration_s
        assert self._beat is not None
        self._beat()


def test_rates_are_those_of_the_last_second(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    assert bench.loop_lag.rates() == (0, 0, 0, 0)
    for beat in range(1, 31):
        bench.totals = LagTotals(5 * beat, 10 * beat, 0, 100 * beat)
        bench.pass_by(EVERY_S)
    assert bench.loop_lag.rates() == pytest.approx((50, 100, 0, 1000))
    for _ in range(10):
        bench.pass_by(EVERY_S)
    assert bench.loop_lag.rates() == pytest.approx((0, 0, 0, 0))
    assert bench.seconds == 4


def test_a_loop_that_is_held_up_shows_a_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.pass_by(EVERY_S)
    assert bench.loop_lag.lag_max_s == pytest.approx(0, abs=1e-9)
    bench.pass_by(EVERY_S + 0.3)
    assert bench.loop_lag.lag_max_s == pytest.approx(0.3)
    assert bench.loop_lag.lag_s == pytest.approx(0.15)
    for _ in range(LAGS_KEPT):
        bench.pass_by(EVERY_S)
    assert bench.loop_lag.lag_max_s == pytest.approx(0, abs=1e-9)


def test_a_store_is_timed_and_what_is_not_on_disk_counted() -> None:
    disk = MemoryDisk()
    soon: list[tuple[Callable[..., object], tuple[object, ...]]] = []
    store = TimedStore(MemoryStore(disk, lambda call, *args: soon.append((call, args))))
    done: list[StoreError | None] = []
    assert store.percentile_ns(50) == 0
    store.submit({("t", b"k"): b"v"}, done.append)
    store.submit({("t", b"l"): b"v"}, done.append)
    assert (store.pending, store.commits) == (2, 0)
    while soon:
        call, args = soon.pop(0)
        call(*args)
    assert done == [None, None]
    assert (store.pending, store.commits, sum(store.buckets)) == (0, 2, 2)
    assert 0 < store.percentile_ns(50) <= store.percentile_ns(99) <= store.latency_total_ns
    assert len(store.buckets) == len(BOUNDS_NS) + 1
    assert dict(disk.records) == {("t", b"k"): b"v", ("t", b"l"): b"v"}
