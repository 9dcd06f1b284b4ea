"""Membership and assignment of one broker from the data in ZooKeeper, stable during restarts and short interruptions.

- A broker whose registration has ended stays a neighbour for half a minute, and a routing broker as long as a bundle is
  assigned to it: a session may end without its broker. Connection attempts to a stopped broker do no harm.
- An edge is linked with the routing brokers that carry its bundles, and with those that would carry them next.
- A link with a routing broker stays for half a minute after the last bundle that needs it has moved or is unused, so
  that messages in transit arrive.
- A direct link that another edge has opened is accepted, and stays for half a minute after it was last up.
- All of it can be stored (`kept`) for the next start of the broker, which then needs no ZooKeeper.
"""

from collections.abc import Mapping, Set

import msgspec

from overlane.coordination.records import Assigned, BrokerRecord, ConfigRecord
from overlane.coordination.topology import membership_for
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.membership.membership import NOBODY, Membership

LINGER: Nanos = 30 * SECOND
ACCEPTED_MAX = 64
"""Direct links that other edges have dialled; as many wanted ones as the core allows come on top."""


class Kept(msgspec.Struct, frozen=True):
    """What a broker keeps for its next life."""

    members: dict[str, BrokerRecord] = {}
    bundles: dict[int, Assigned] = {}
    config: ConfigRecord | None = None


class OverlayView:
    def __init__(self, me: str, own: BrokerRecord, kept: Kept | None = None) -> None:
        self.me = me
        self.own = own
        kept = kept if kept is not None else Kept()
        self.members: dict[str, BrokerRecord] = dict(kept.members)
        self.assigned: Mapping[int, Assigned] = dict(kept.bundles)
        self.config = kept.config
        self.file: Membership = NOBODY
        self._used: frozenset[int] = frozenset()
        self._needed: frozenset[str] | None = None
        """What `needed` says; None when the assignment or what is used has changed since."""
        self._gone_at: dict[str, Nanos] = {}
        self._needed_until: dict[str, Nanos] = {}
        """Routing brokers that were needed, and until when the link with them stays."""
        self._wanted_edges: tuple[str, ...] = ()
        self._accepted_until: dict[str, Nanos] = {}
        """Edges that have dialled this one for a direct link, and until when they are neighbours."""

    @property
    def assignment(self) -> dict[int, str]:
        return {bundle: one.broker for bundle, one in self.assigned.items()}

    @property
    def standbys(self) -> dict[int, str]:
        return {bundle: one.standby for bundle, one in self.assigned.items() if one.standby}

    def kept(self) -> Kept:
        return Kept(dict(self.members), dict(self.assigned), self.config)

    def registered(self, members: Mapping[str, BrokerRecord], now: Nanos) -> None:
        """These brokers are registered."""
        for name in self.members.keys() - members.keys():
            self._gone_at.setdefault(name, now)
        for name, record in members.items():
            self._gone_at.pop(name, None)
            self.members[name] = record

    def domain_edges(self) -> dict[str, BrokerRecord]:
        """The other edges of the domain that share clients with this one, by name; those included that were registered
        until lately."""
        if self.own.role != "edge":
            return {}
        return {
            name: record
            for name, record in sorted(self.members.items())
            if name != self.me and record.role == "edge" and record.domain == self.own.domain and record.takes_clients
        }

    def assign(self, assigned: Mapping[int, Assigned], now: Nanos) -> None:
        before = self.needed()
        self.assigned = assigned
        self._needed = None
        self._linger(before, now)

    def use(self, bundles: frozenset[int], now: Nanos) -> None:
        """The clients of this broker use these bundles."""
        before = self.needed()
        self._used = bundles
        self._needed = None
        self._linger(before, now)

    def want_direct(self, edges: tuple[str, ...]) -> list[str]:
        """This edge wants direct links with these, and no others: those that cannot be dialled."""
        self._wanted_edges = edges
        return [name for name in edges if name in self.members and not self.members[name].overlay]

    def accept_direct(self, peer: str, now: Nanos) -> bool:
        """Another broker has dialled this one, and is none of its neighbours: whether it becomes one."""
        record = self.members.get(peer)
        if record is None or peer == self.me or not self.own.role == record.role == "edge":
            return False
        if peer in self._accepted_until or len(self._accepted_until) >= ACCEPTED_MAX:
            return False
        self._accepted_until[peer] = now + LINGER
        return True

    def accepted(self) -> list[str]:
        return sorted(self._accepted_until)

    def note_up(self, peer: str, now: Nanos) -> None:
        """A direct link that was accepted is up."""
        self._accepted_until[peer] = now + LINGER

    def needed(self) -> frozenset[str]:
        """The routing brokers that this broker must be linked with: those of its bundles, and their standbys."""
        if self.own.role != "edge":
            return frozenset()
        if self._needed is None:
            assigned = [self.assigned[bundle] for bundle in self._used if bundle in self.assigned]
            self._needed = frozenset(name for one in assigned for name in (one.broker, one.standby) if name)
        return self._needed

    def next_deadline(self) -> Nanos:
        until = (*self._needed_until.values(), *self._accepted_until.values())
        return min([NEVER, *(at + LINGER for at in self._gone_at.values()), *until])

    def membership(self, now: Nanos) -> Membership:
        self._forget(now)
        needed = self.needed()
        lingering = self._needed_until.keys() - needed
        members = {name: record for name, record in self.members.items() if name != self.me}
        direct = {**dict.fromkeys(self._accepted_until, False), **dict.fromkeys(self._wanted_edges, True)}
        return membership_for(self.me, self.own, members, needed | lingering, self.file, direct)

    def _linger(self, before: Set[str], now: Nanos) -> None:
        needed = self.needed()
        for name in before - needed:
            self._needed_until[name] = now + LINGER
        for name in needed:
            self._needed_until.pop(name, None)

    def _forget(self, now: Nanos) -> None:
        self._needed_until = {name: until for name, until in self._needed_until.items() if until > now}
        self._accepted_until = {name: until for name, until in self._accepted_until.items() if until > now}
        expired = [name for name, at in self._gone_at.items() if now - at >= LINGER]
        if not expired:
            return
        carrying = {name for one in self.assigned.values() for name in (one.broker, one.standby)}
        for name in expired:
            if name in carrying:
                self._gone_at[name] = now  # looked at again
            else:
                del self._gone_at[name]
                self.members.pop(name, None)
