"""Bundles and groups: the units in which topics are shared among routing brokers.

A *group* is all topics with the same first two levels, known by a hash of them: what a broker publishes and needs is
compared by groups. A *bundle* is many groups: bundles are what is assigned to routing brokers. Both follow from the
topic alone, so every broker finds them without asking. A filter that names the first two levels concerns one group; one
with a wildcard among them concerns all (`ANY`).

Names of the overlay's own that begin with `$` and carry a topic or filter (retained messages, shared subscriptions,
overrides, dead letters, reservations) belong to the group of that. Other names that begin with `$` have none: they stay
where they are used.
"""

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b

BUNDLES = 256
LEVELS = 2
"""How many levels tell the group: with one, everything below `plant/` could not be shared among brokers; with more,
filters such as `plant/line1/#` would concern all bundles."""

ANY = -1
"""Instead of a group: all of them."""
GROUP_BYTES = 8
GROUP_MAX = (1 << 8 * GROUP_BYTES) - 1

ALL = frozenset(range(BUNDLES))
NONE: frozenset[int] = frozenset()

_WILDCARDS = frozenset("+#")
_PREFIX_LEVELS = {
    "$retained": 1,
    "$handout": 2,
    "$share": 4,
    "$want": 3,
    "$dead-letter": 1,
    "$overlane": 2,
    "$advertise": 1,
    "$reserve": 1,
    "$seek": 1,
}
"""How many levels stand before the topic or filter that a reserved name carries."""
RETAINED = "$retained/"
HANDOUT = "$handout/"
"""`$handout/BROKER/TOPIC` is a retained message for one broker."""
ADVERTISED, SEEK = "$advertise/", "$seek/"
"""Advertisements of this broker's publishers, and subscribers here that look for those of others (reservations)."""
_UNTOLD = (RETAINED, HANDOUT, SEEK)
_FOLLOWED = (ADVERTISED, SEEK)
_REMEMBERED = 65536


def inner_of(name: str) -> str | None:
    """The topic or filter that decides to which group a name belongs; None if it belongs to none."""
    if not name.startswith("$"):
        return name
    levels = _PREFIX_LEVELS.get(name.partition("/")[0])
    if levels is None:
        return None
    parts = name.split("/", levels)
    return parts[levels] if len(parts) > levels else None


def group_of(topic: str) -> int | None:
    """The group of a topic; None for a name that belongs to none."""
    inner = inner_of(topic)
    return None if inner is None else _hash("/".join(inner.split("/", LEVELS)[:LEVELS]))


def groups_of(topic_filter: str) -> int | None:
    """The group of all topics that can match a filter, or ANY; None if they belong to none."""
    inner = inner_of(topic_filter)
    if inner is None:
        return None
    levels = inner.split("/", LEVELS)[:LEVELS]
    return _hash("/".join(levels)) if _WILDCARDS.isdisjoint(levels) else ANY


def is_scoped(topic_filter: str) -> bool:
    """Whether a filter that this broker needs is told to the routing brokers of its bundles. Whoever needs a topic gets
    what is retained of it too, so that this needs no filter of its own."""
    return not topic_filter.startswith(_UNTOLD) and inner_of(topic_filter) is not None


def is_followed(topic_filter: str) -> bool:
    """Whether a broker that needs this name has to know what others need in its group, though it may publish nothing
    there: a publisher who has reserved, a subscriber what is advertised."""
    return topic_filter.startswith(_FOLLOWED)


def bundle_of_group(group: int) -> int:
    return group % BUNDLES


def as_mask(bundles: Iterable[int]) -> int:
    """A set of bundles as a number: bit b stands for bundle b."""
    mask = 0
    for bundle in bundles:
        mask |= 1 << bundle
    return mask


def bundles_in(mask: int) -> frozenset[int]:
    return frozenset(bundle for bundle in range(BUNDLES) if mask >> bundle & 1)


def encode_mask(mask: int) -> bytes:
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def decode_mask(data: bytes) -> int:
    return int.from_bytes(data, "little")


def bundle_of(topic: str) -> int | None:
    """The bundle of a topic; None for a name that belongs to none."""
    group = group_of(topic)
    return None if group is None else bundle_of_group(group)


def bundles_of(topic_filter: str) -> frozenset[int]:
    """The bundles of all topics that can match a filter."""
    group = groups_of(topic_filter)
    if group is None:
        return NONE
    return ALL if group == ANY else frozenset({bundle_of_group(group)})


@lru_cache(maxsize=_REMEMBERED)
def _hash(levels: str) -> int:
    return int.from_bytes(blake2b(levels.encode(), digest_size=GROUP_BYTES).digest())
