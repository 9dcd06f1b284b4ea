"""What is durable when, for topics of either policy: a value that the turn gets.

    local      on the primary's disk and on that of every mirror in every possible replica set: goes on without a mirror
    mirrored   as well, and in every possible set there is a mirror: waits until one has joined

QoS 0 and best effort wait for neither.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum

from overlane.recovery.replica_set import ReplicaSet


class Durability(StrEnum):
    """The policy of a topic."""

    LOCAL = "local"
    MIRRORED = "mirrored"


def required(possible: Collection[ReplicaSet], joining: Collection[int], own: int) -> frozenset[int]:
    """The mirrors that a batch has to be on: the union of all sets that the znode may contain, and who is joining."""
    return frozenset().union(*(one.storages for one in possible), joining) - {own}


def is_mirrored(possible: Collection[ReplicaSet]) -> bool:
    return all(one.mirrors for one in possible)


def durable_through(committed: int, progress: Mapping[int, int], mirrors: Collection[int]) -> int | None:
    """The last batch that is on the own disk and on all of these mirrors; None where one has nothing of this epoch."""
    least = committed
    for storage in mirrors:
        on_mirror = progress.get(storage)
        if on_mirror is None:
            return None
        least = min(least, on_mirror)
    return least
