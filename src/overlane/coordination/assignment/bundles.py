"""Bundles: topics that are assigned to a routing broker together.

A topic's bundle follows from its first levels, so every broker finds it without asking. A filter that names these
levels concerns one bundle; one with a wildcard among them concerns all. Names that begin with `$` have no bundle: they
stay where they are used.
"""

from hashlib import blake2b

BUNDLES = 256
LEVELS = 2
"""How many levels tell the bundle: with one, everything below `plant/` could not be shared among brokers; with more,
filters such as `plant/line1/#` would concern all bundles."""

ALL = frozenset(range(BUNDLES))
NONE: frozenset[int] = frozenset()
_WILDCARDS = ("+", "#")


def bundle_of(topic: str) -> int | None:
    """The bundle of a topic; None for one that begins with `$`."""
    return None if topic.startswith("$") else _hash(topic.split("/", LEVELS)[:LEVELS])


def bundles_of(topic_filter: str) -> frozenset[int]:
    """The bundles of all topics that can match a filter."""
    if topic_filter.startswith("$"):
        return NONE
    levels = topic_filter.split("/", LEVELS)[:LEVELS]
    return ALL if any(level in _WILDCARDS for level in levels) else frozenset({_hash(levels)})


def _hash(levels: list[str]) -> int:
    digest = blake2b("/".join(levels).encode(), digest_size=4).digest()
    return int.from_bytes(digest) % BUNDLES
