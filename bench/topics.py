"""Time to find the subscribers of a topic, by the number of filters.

    python bench/topics.py

Filters are a typical mix: seven in ten literal, two in ten with `+` somewhere, one in ten ending in `#`; three to five
levels deep. Half of the topics have a literal filter, half are new. Prints a table and writes bench/out/topics.json.
"""

import gc
import json
import tracemalloc
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter_ns

from rich.console import Console
from rich.table import Table

from overlane.core.topics import FilterTrie

OUT = Path(__file__).parent / "out" / "topics.json"
SIZES = (1_000, 10_000, 100_000)
TOPICS = 2_000
ROUNDS = 7


def random_topic(rng: Random, filters: int) -> str:
    """A place, a kind and a number; wider the more filters there are, as plants and fleets are."""
    regions, sites = max(20, filters // 500), max(10, filters // 500)
    parts = [f"region{rng.randrange(regions)}", f"site{rng.randrange(sites)}", f"device{rng.randrange(50)}"]
    parts += ["temperature", "raw"][: rng.randrange(3)]
    return "/".join(parts)


def random_filter(rng: Random, filters: int) -> str:
    levels = random_topic(rng, filters).split("/")
    kind = rng.random()
    if kind < 0.2:
        # One wildcard, seldom two, and seldom at the first level: nobody wants one device number of every site.
        for _ in range(1 if rng.random() < 0.8 else 2):
            levels[rng.choice([0, 1, 2, 2, 2, len(levels) - 1, len(levels) - 1])] = "+"
    elif kind < 0.3:
        levels = [*levels[: rng.choice([1, 2, 2, 3, 3, 3])], "#"]
    return "/".join(levels)


def measure(filters: int) -> dict[str, float]:
    rng = Random(filters)
    entries: list[tuple[str, int]] = [(random_filter(rng, filters), number) for number in range(filters)]
    literal = [entry for entry, _ in entries if "+" not in entry and "#" not in entry]
    topics = [rng.choice(literal) if n % 2 else random_topic(rng, filters) for n in range(TOPICS)]

    tracemalloc.start()
    trie: FilterTrie[int] = FilterTrie()
    for entry, value in entries:
        trie.add(entry, value)
    used_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    gc.collect()
    gc.disable()
    rounds = []
    for _ in range(ROUNDS):
        began = perf_counter_ns()
        for topic in topics:
            trie.match(topic)
        rounds.append((perf_counter_ns() - began) / len(topics))
    single = []
    for topic in topics:
        began = perf_counter_ns()
        trie.match(topic)
        single.append(perf_counter_ns() - began)
    hits = [len(trie.match(topic)) for topic in topics]

    began = perf_counter_ns()
    for entry, value in entries:
        trie.remove(entry, value)
    remove_ns = (perf_counter_ns() - began) / filters
    began = perf_counter_ns()
    for entry, value in entries:
        trie.add(entry, value)
    add_ns = (perf_counter_ns() - began) / filters
    gc.enable()
    return {
        "filters": filters,
        "match_us": median(rounds) / 1_000,
        "match_p99_us": sorted(single)[len(single) * 99 // 100] / 1_000,
        "matched_mean": sum(hits) / len(hits),
        "add_us": add_ns / 1_000,
        "remove_us": remove_ns / 1_000,
        "bytes_per_filter": used_bytes / filters,
    }


def main() -> None:
    results = [measure(filters) for filters in SIZES]
    table = Table(title="Matching one topic")
    for heading in ("filters", "match µs", "p99 µs", "found", "add µs", "remove µs", "bytes each"):
        table.add_column(heading, justify="right")
    for row in results:
        table.add_row(
            f"{row['filters']:,.0f}",
            f"{row['match_us']:.2f}",
            f"{row['match_p99_us']:.2f}",
            f"{row['matched_mean']:.1f}",
            f"{row['add_us']:.2f}",
            f"{row['remove_us']:.2f}",
            f"{row['bytes_per_filter']:.0f}",
        )
    Console().print(table)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
