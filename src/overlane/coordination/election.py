"""The election: who becomes the leader, and when another takes its place. Pure.

- Whoever may lead creates `/leader` where there is none, and replaces `/epoch` in the same transaction; the service
  lets one of them succeed.
- A leader that two edges cannot reach (or all, where there are fewer) is deposed by another that they can reach: if
  its process was killed, its session would live on for seconds. The former can write nothing any more.
- The first two of those that may lead stand by: they know all reports already (`leading`). The others let them go
  first, so that a lost leader costs two transactions, not as many as there are routing brokers.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from overlane.coordination.contract import Create, Delete, Operation, Replace, Znode
from overlane.coordination.follower import Follower
from overlane.coordination.records import (
    EPOCH,
    LEADER,
    ROUTING,
    BrokerRecord,
    EpochRecord,
    LeaderRecord,
    MalformedRecord,
    decode,
    encode,
)
from overlane.core.units import MS, NEVER, Nanos

DOUBTS_TO_DEPOSE = 2
"""How many edges must not reach a leader; all, where there are fewer."""
STANDBYS = 2
STAND_LATER: Nanos = 300 * MS
"""How long those that do not stand by wait for one that does."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a candidate has read."""

    follower: Follower
    leader: str | None
    registration: str
    """The path of its own."""


class Election:
    def __init__(self, name: str) -> None:
        self._name = name
        self._vacant_since: Nanos | None = None
        """Since when another leader is needed."""
        self._doubted: frozenset[str] = frozenset()

    def next_deadline(self) -> Nanos:
        return NEVER if self._vacant_since is None else self._vacant_since + STAND_LATER

    def doubts_changed(self, members: Mapping[str, BrokerRecord], suspects: Mapping[str, frozenset[str]]) -> None:
        """`suspects`: by broker, which routing brokers it cannot reach."""
        edges = [edge for edge, record in members.items() if record.role == "edge"]
        counts = Counter(one for edge in edges for one in suspects.get(edge, ()))
        enough = max(1, min(DOUBTS_TO_DEPOSE, len(edges)))
        self._doubted = frozenset(one for one, count in counts.items() if count >= enough)

    def due(self, session: int, seen: Standing, now: Nanos) -> tuple[Operation, ...]:
        """What makes this broker the leader, if there should be another one. `/leader` has been read."""
        found = seen.follower.found
        is_vacant = LEADER not in found
        if not is_vacant and not self._may_depose(session, seen):
            self._vacant_since = None
            return ()
        if self._vacant_since is None:
            self._vacant_since = now
        is_own = not is_vacant and found[LEADER].owner == session
        # Its own node with the epoch of another: it may have been deposed, and not have heard of that yet.
        if now < self._vacant_since + STAND_LATER and (is_own or not self.is_standby(seen)):
            return ()
        self._vacant_since = None
        mark = encode(EpochRecord(self._name, session))
        create = Create(LEADER, encode(LeaderRecord(self._name)), is_ephemeral=True)
        if is_vacant:
            return create, Replace(EPOCH, mark)
        if (epoch := found.get(EPOCH)) is None:
            return Create(EPOCH, mark), Delete(LEADER), create
        # The version of the epoch tells whether it is still the same leader: each of them is a node of version 0.
        return Replace(EPOCH, mark, epoch.version), Delete(LEADER), create

    def is_standby(self, seen: Standing) -> bool:
        """Whether few others that may lead come before it."""
        if seen.leader == self._name:
            return True
        routing = seen.follower.names(ROUTING)
        before = [one for one in routing if one < self._name and one != seen.leader and one not in self._doubted]
        return len(before) < STANDBYS

    def _may_depose(self, session: int, seen: Standing) -> bool:
        """A leader that edges do not reach, or the former life of this broker, whose session has not expired yet."""
        found, owner = seen.follower.found, seen.follower.found[LEADER].owner
        if owner == session:
            return seen.follower.has_read(EPOCH) and not self._is_own(found.get(EPOCH), session)
        if owner == 0:
            return True
        if seen.leader == self._name:
            own = found.get(seen.registration)
            return own is not None and own.owner == session
        return seen.leader in self._doubted and self._name not in self._doubted

    @staticmethod
    def _is_own(epoch: Znode | None, session: int) -> bool:
        try:
            return epoch is not None and decode(EPOCH, epoch.data, EpochRecord).session == session
        except MalformedRecord:
            return False
