"""In which order parallel workers take the tests, and which of them one worker takes together.

Tests of one file share what is set up for the file (a broker, a browser): one worker takes them all, so that it is set
up once. A slow test that uses nothing of the kind is taken alone. What takes longest comes first, so that at the end
only small pieces are left and no worker waits for another: first the tests of Spark, which share one for each of two
groups and so run one after the other, then all that is slow, then the rest.
"""

from collections.abc import Sequence

import pytest

SPARK = "spark"
SPARK_PARTS = "spark-parts"
CHEAP = ("bench_folder",)
"""Fixtures that cost nothing to set up again."""


def group_of(item: pytest.Item) -> str | None:
    """The name of those it stays with; None if it goes alone."""
    found = item.get_closest_marker("xdist_group")
    if found is not None:
        return str(found.args[0])
    return None if is_slow(item) and not shares(item) else item.nodeid.partition("::")[0]


def is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


def shares(item: pytest.Item) -> bool:
    """Whether it uses what is set up once for its file."""
    if not isinstance(item, pytest.Function):
        return False
    fixtures = item._fixtureinfo.name2fixturedefs  # nothing public tells the scope
    return any(found[-1].scope == "module" for name, found in fixtures.items() if name not in CHEAP)


def longest_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """All of a group together, at the place of its slowest."""
    ranks: dict[str, int] = {}
    for item in items:
        key = group_of(item) or item.nodeid
        ranks[key] = min(ranks.get(key, 2), 0 if key in (SPARK, SPARK_PARTS) else 1 if is_slow(item) else 2)
    return sorted(items, key=lambda item: ranks[group_of(item) or item.nodeid])
