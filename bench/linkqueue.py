"""Cost of a push and a pull of a link queue, by the number of waiting items.

    python bench/linkqueue.py

The queue is kept at its length: one push, one pull, repeatedly, while virtual time runs as the link would drain it.
`calm`: all due times are far in the future, the usual case of a queue that absorbs a burst. `edge`: the load is 1.25,
sizes range over two decades, and the link has been busy for ten times the length of the queue, so that with `edf-shed`
the waiting items are exactly those that can be in time, and every new item displaces another. `waiting` is the actual
mean length. Prints a table and writes bench/out/linkqueue.json.
"""

import gc
import json
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter_ns

from rich.console import Console
from rich.table import Table

from overlane.core.links.link_queue import LinkQueue, QueuedItem, SchedulingPolicy
from overlane.core.units import SECOND

OUT = Path(__file__).parent / "out" / "linkqueue.json"
LENGTHS = (10, 100, 1_000, 10_000, 100_000)
TURNS = 4_000
NS_PER_BYTE = 80  # 100 Mbit/s
MEAN_SIZE = 1_000


def measure(policy: str, mood: str, length: int) -> dict[str, str | float]:
    rng = Random(length)
    queue = LinkQueue(policy, 1 << 40)
    queue.observe_rate(1_000, 1_000 * NS_PER_BYTE)
    is_edge = mood == "edge"
    # At the edge an item may wait as long as it takes to drain the length that is asked for.
    span = 2 * length * MEAN_SIZE * NS_PER_BYTE if is_edge else 3_600 * SECOND

    def item(now: int) -> QueuedItem:
        size = rng.choice((64, 200, 500, 1_000, 1_500, 2_736))
        return QueuedItem(None, size, now, now + rng.randrange(span // 8, span), True, rng.randrange(span))

    now = 0
    for _ in range(length):
        queue.push(item(now), now)
    waited = 0
    pushes: list[float] = []
    pulls: list[int] = []
    # Until the edge has settled nothing is measured.
    warm_up = min(10 * length, 40_000) if is_edge else 0
    gc.collect()
    gc.disable()
    for turn in range(warm_up + TURNS):
        news = [item(now) for _ in range(2 if is_edge and turn % 4 == 0 else 1)]
        t0 = perf_counter_ns()
        for new in news:
            queue.push(new, now)
        t1 = perf_counter_ns()
        sent, _ = queue.pull(now)
        t2 = perf_counter_ns()
        if turn >= warm_up:
            pushes.append((t1 - t0) / len(news))
            pulls.append(t2 - t1)
            waited += len(queue)
        if sent is not None:
            now += sent.size * NS_PER_BYTE
    gc.enable()
    return {
        "policy": policy,
        "mood": mood,
        "length": length,
        "waiting": waited / TURNS,
        "push_us": median(pushes) / 1_000,
        "pull_us": median(pulls) / 1_000,
        "pull_p99_us": sorted(pulls)[TURNS * 99 // 100] / 1_000,
    }


def main() -> None:
    results = [
        measure(policy, mood, length) for policy in SchedulingPolicy for mood in ("calm", "edge") for length in LENGTHS
    ]
    table = Table(title="Link queue: microseconds per operation")
    for heading in ("policy", "mood", "length", "waiting", "push", "pull", "pull p99"):
        table.add_column(heading, justify="left" if heading in ("policy", "mood") else "right")
    for row in results:
        figures = [
            f"{row['waiting']:,.0f}",
            f"{row['push_us']:.2f}",
            f"{row['pull_us']:.2f}",
            f"{row['pull_p99_us']:.1f}",
        ]
        table.add_row(str(row["policy"]), str(row["mood"]), f"{row['length']:,}", *figures)
    Console().print(table)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
