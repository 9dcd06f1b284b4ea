"""A store with timing: how long turns wait until they are on disk, and how many wait now."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping
from time import monotonic_ns

from overlane.core.records import Record
from overlane.core.units import MS, SECOND, US, Nanos
from overlane.node.store.durable import Done, RecordStore, StoreError
from overlane.node.store.record_file import Name, Quarantined
from overlane.node.store.salvage import Salvage

LATENCIES_KEPT = 1_000
BOUNDS_NS: tuple[Nanos, ...] = (
    *(n * US for n in (50, 100, 250, 500)),
    *(n * MS for n in (1, 2, 5, 10, 25, 50, 100, 250, 500)),
    *(n * SECOND for n in (1, 5, 30)),
)


class TimedStore:
    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._latencies_ns: deque[Nanos] = deque(maxlen=LATENCIES_KEPT)
        self.buckets = [0] * (len(BOUNDS_NS) + 1)
        """Commits by their latency: one more than there are bounds, for those beyond the last."""
        self.latency_total_ns: Nanos = 0
        self.commits = 0
        """Turns whose records are on disk."""
        self._since_ns: deque[Nanos] = deque()
        """When the turns were submitted whose records are not on disk yet."""

    @property
    def pending(self) -> int:
        """Turns whose records are not on disk yet."""
        return len(self._since_ns)

    def longest_wait_s(self) -> float:
        """How long the oldest of these has waited."""
        return (monotonic_ns() - self._since_ns[0]) / SECOND if self._since_ns else 0.0

    def percentile_ns(self, percent: float) -> Nanos:
        """Of the latest commits; 0 where there was none."""
        ordered = sorted(self._latencies_ns)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else 0

    def submit(self, changes: Mapping[Name, bytes | None], done: Done, *, needs_mirror: bool = False) -> None:
        since_ns = monotonic_ns()
        self._since_ns.append(since_ns)
        self._store.submit(changes, lambda error: self._done(done, since_ns, error), needs_mirror=needs_mirror)

    def _done(self, done: Done, since_ns: Nanos, error: StoreError | None) -> None:
        self._since_ns.popleft()
        if error is None:
            latency_ns = monotonic_ns() - since_ns
            self._latencies_ns.append(latency_ns)
            self.buckets[bisect_left(BOUNDS_NS, latency_ns)] += 1
            self.latency_total_ns += latency_ns
            self.commits += 1
        done(error)

    # The store's own

    @property
    def incarnation(self) -> int:
        return self._store.incarnation

    @property
    def instance(self) -> int:
        return self._store.instance

    @property
    def quarantined(self) -> list[Quarantined]:
        return self._store.quarantined

    @property
    def salvaged(self) -> Salvage | None:
        return self._store.salvaged

    @property
    def failing(self) -> StoreError | None:
        return self._store.failing

    @property
    def unknown(self) -> Mapping[str, int]:
        return self._store.unknown

    def records(self) -> Iterator[Record]:
        return self._store.records()

    def replica(self) -> Iterator[Record]:
        return self._store.replica()

    def close(self) -> StoreError | None:
        return self._store.close()
