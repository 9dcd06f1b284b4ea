"""Speed of the durable store, and how much of the event loop's time it leaves.

    python bench/store.py [DIRECTORY]

The directory selects the disk that is measured; the default is beside this file.

1. Records per second: one turn after the other; each saves a number of records of 150 bytes and erases as many older
   ones, and the next starts when it is durable. With and without syncing, one after the other in the same round.
2. Durable publishes per second: 50 publishers, each with a number of publishes in flight. A publish saves two records,
   and erases two when it is acknowledged. All waiting turns share a commit.
3. The loop's share: a thread counts and, as a loop does, polls every 100 us. How far it counts while it also makes the
   changes of 20,000 publishes per second, without a store and with it; and how long these take until they are
   durable. Time in which the thread could have run but other processes had the CPU is excluded.

Prints tables and writes bench/out/store.json. Times depend on the disk; compare the ratios.
"""

import json
import shutil
import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from statistics import median
from tempfile import mkdtemp
from time import clock_gettime, perf_counter, pthread_getcpuclockid, sleep
from typing import Any

from rich.console import Console
from rich.table import Table

from overlane.node.store.durable import Store, StoreError
from overlane.node.store.record_file import Name

OUT = Path(__file__).parent / "out" / "store.json"
ROUNDS = 3
SECONDS = 1.5
SIZES = (1, 50, 1000)
WINDOWS = (1, 10, 40)
PUBLISHERS = 50
RATE_HZ = 20_000
SLICE = 3000
"""So far a thread counts in about 100 us."""
RECORDS_PER_PUBLISH = 2
HELD_PUBLISHES = 5000
"""A publish is acknowledged, and its records erased, when so many later ones have come."""
VALUE = bytes(range(150))

Changes = dict[Name, bytes | None]


class Loop:
    """Runs what the store hands over, in this thread."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]]] = SimpleQueue()

    def soon(self, call: Callable[..., object], *arguments: Any) -> None:
        self._calls.put((call, arguments))

    def run_one(self) -> None:
        call, arguments = self._calls.get()
        call(*arguments)

    def poll(self) -> None:
        sleep(0)
        try:
            while True:
                call, arguments = self._calls.get_nowait()
                call(*arguments)
        except Empty:
            pass


class Publishes:
    """The changes of publishes: what each saves, and what is erased of an earlier one."""

    def __init__(self) -> None:
        self._number = 0
        self._held: deque[tuple[Name, Name]] = deque()

    def add_to(self, changes: Changes) -> None:
        self._number += 1
        number = self._number
        names = ("message", b"%016d" % number), ("queue", b"client-%04d/%016d" % (number % PUBLISHERS, number))
        changes[names[0]] = VALUE
        changes[names[1]] = VALUE
        self._held.append(names)
        if len(self._held) > HELD_PUBLISHES:
            for name in self._held.popleft():
                # A record that is saved and erased in the same turn is never written; here each is written first.
                changes[name] = None


def turns_per_second(directory: Path, synced: bool, size: int) -> float:
    loop = Loop()
    store = Store.open(directory, loop.soon, synced=synced)
    turns, number, ended = 0, 0, list[StoreError | None]()
    until = perf_counter() + SECONDS
    while perf_counter() < until:
        changes: Changes = {("a", b"%d" % n): VALUE for n in range(number, number + size)}
        changes |= {("a", b"%d" % (n - 10 * size)): None for n in range(number, number + size)}
        number += size
        store.submit(changes, ended.append)
        while len(ended) == turns:
            loop.run_one()
        turns += 1
    store.close()
    return turns / SECONDS


def publishes_per_second(directory: Path, synced: bool, size: int) -> float:
    loop, publishes = Loop(), Publishes()
    store = Store.open(directory, loop.soon, synced=synced)
    free, durable = PUBLISHERS * size, 0

    def ended(count: int) -> Callable[[StoreError | None], None]:
        def end(_: StoreError | None) -> None:
            nonlocal free, durable
            free += count
            durable += count

        return end

    since, until = perf_counter(), perf_counter() + SECONDS
    while perf_counter() < until:
        changes: Changes = {}
        for _ in range(free):
            publishes.add_to(changes)
        store.submit(changes, ended(free))
        free = 0
        while not free:
            loop.run_one()
    elapsed = perf_counter() - since
    store.close()
    return durable / elapsed


def count_beside(take: Callable[[Changes, float], None], poll: Callable[[], None], rate_hz: float) -> float:
    """How often a second this thread counts while it makes the changes of publishes and `take` gets them."""
    publishes, counted, published = Publishes(), 0, 0
    delay, since = processor_delay(), perf_counter()
    while (elapsed := perf_counter() - since) < SECONDS:
        if due := int(elapsed * rate_hz) - published:
            changes: Changes = {}
            for _ in range(due):
                publishes.add_to(changes)
            published += due
            take(changes, perf_counter())
        poll()
        counted += sum(1 for _ in range(SLICE))
    return counted / (perf_counter() - since - (processor_delay() - delay))


def store_clock() -> int:
    """The clock that tells how long the store's thread has had a processor."""
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "overlane-store")
    assert thread.ident is not None
    return pthread_getcpuclockid(thread.ident)


def processor_delay() -> float:
    """How long this thread was ready to run, and another had the processor."""
    _, waited_ns, _ = Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()
    return int(waited_ns) / 1e9


def loop_share(directory: Path) -> dict[str, float]:
    loop = Loop()
    latencies_ms: list[float] = []
    durable = 0
    store = Store.open(directory, loop.soon)

    def take(changes: Changes, at: float) -> None:
        def done(_: StoreError | None) -> None:
            nonlocal durable
            latencies_ms.append((perf_counter() - at) * 1e3)
            durable += sum(value is not None for value in changes.values()) // RECORDS_PER_PUBLISH

        store.submit(changes, done)

    alone = count_beside(lambda *_: None, loop.poll, 0)
    untaken = count_beside(lambda *_: None, loop.poll, RATE_HZ)
    taken = count_beside(take, loop.poll, RATE_HZ)
    used_s, durable_then = clock_gettime(store_clock()), durable
    store.close()
    loop.poll()
    latencies_ms.sort()
    return {
        "untaken": untaken / alone,
        "taken": taken / alone,
        "store_us": used_s / max(1, durable_then) * 1e6,
        "p50_ms": median(latencies_ms),
        "p99_ms": latencies_ms[len(latencies_ms) * 99 // 100],
    }


def fresh(parent: Path, measure: Callable[[Path], Any]) -> Any:
    """Measure in a directory of its own."""
    directory = Path(mkdtemp(prefix="store-", dir=parent))
    try:
        return measure(directory)
    finally:
        shutil.rmtree(directory)


def compared(parent: Path, sizes: tuple[int, ...], measure: Callable[..., float]) -> list[dict[str, float]]:
    """Synced and not, round by round; the ratio is of the same round, and the median over rounds counts."""
    rows: list[dict[str, float]] = []
    for size in sizes:
        rounds = [
            [fresh(parent, partial(measure, synced=synced, size=size)) for synced in (True, False)]
            for _ in range(ROUNDS)
        ]
        synced, unsynced = (median(column) for column in zip(*rounds, strict=True))
        ratio = median(one / other for one, other in rounds)
        rows.append({"size": size, "synced": synced, "unsynced": unsynced, "ratio": ratio})
    return rows


def table(title: str, what: str, rows: list[dict[str, float]]) -> Table:
    shown = Table(title=title)
    for column in (what, "synced", "not synced", "ratio"):
        shown.add_column(column, justify="right")
    for row in rows:
        shown.add_row(f"{row['size']:.0f}", f"{row['synced']:,.0f}", f"{row['unsynced']:,.0f}", f"{row['ratio']:.2f}")
    return shown


def main(parent: Path) -> None:
    parent.mkdir(parents=True, exist_ok=True)
    console = Console()
    turns = compared(parent, SIZES, turns_per_second)
    records = [
        row | {"synced": row["synced"] * row["size"], "unsynced": row["unsynced"] * row["size"]} for row in turns
    ]
    console.print(table("Commits a second, one turn after the other", "records saved in a turn", turns))
    console.print(table("Records saved a second, and as many erased", "records saved in a turn", records))
    publishes = compared(parent, WINDOWS, publishes_per_second)
    console.print(table(f"Durable publishes a second, {PUBLISHERS} publishers", "on the way, each", publishes))
    shares = [fresh(parent, loop_share) for _ in range(ROUNDS)]
    share = {name: median(share[name] for share in shares) for name in shares[0]}
    console.print(f"At {RATE_HZ:,} publishes a second:")
    console.print(f"  {share['untaken']:.0%} of the loop's time is left when their changes are made,")
    console.print(f"  {share['taken']:.0%} when the store takes them too;")
    console.print(f"  the store's thread needs {share['store_us']:.1f} us of a processor for each;")
    console.print(f"  durable after {share['p50_ms']:.1f} ms (half of them), {share['p99_ms']:.1f} ms (99 %)")
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({"turns": turns, "publishes": publishes, "loop": share}, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else OUT.parent)
