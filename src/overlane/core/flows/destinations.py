"""Destinations: the brokers that a message published here goes to.

They are the brokers that need its topic and may receive it from here. In two tiers, what is retained also goes to the
routing broker that keeps it, and a handout goes to the broker that it names.
"""

from dataclasses import dataclass

from overlane.core.bundles import HANDOUT, RETAINED
from overlane.core.federation import Federation
from overlane.core.gossip.edge_scope import EdgeScope
from overlane.core.gossip.interest import RemoteInterest
from overlane.core.gossip.link_state import LinkStateTable

_IN_TIERS = (RETAINED, HANDOUT)


@dataclass(slots=True)
class Destinations:
    me: str
    remote: RemoteInterest
    federation: Federation
    table: LinkStateTable
    scope: EdgeScope | None = None
    """Where this broker is an edge: which routing brokers keep what is retained."""

    def of(self, topic: str) -> tuple[str, ...]:
        may_leave = self.federation.may_leave
        needing = self.remote.needing(topic)
        if topic.startswith(_IN_TIERS):
            needing = self._needing_in_tiers(topic, needing)
        return tuple(name for name in needing if name != self.me and may_leave(topic, name))

    def withheld_from(self, topic: str) -> tuple[str, ...]:
        """The brokers that need the topic and may not receive it from here."""
        if self.federation.leave is None:
            return ()
        may_leave = self.federation.may_leave
        return tuple(name for name in self.remote.needing(topic) if name != self.me and not may_leave(topic, name))

    def awaits_map(self, topic: str) -> bool:
        """Whether the map has no path yet to one of them, of whose needs was told lately."""
        if self.scope is None or not self.scope.newcomers:
            return False
        new, network_map = self.scope.newcomers, self.table.map
        return any(name in new and network_map.quickest_path(self.me, name) is None for name in self.of(topic))

    def _needing_in_tiers(self, topic: str, needing: tuple[str, ...]) -> tuple[str, ...]:
        if topic.startswith(HANDOUT):
            return (topic.split("/", 2)[1],)
        if self.scope is None:
            return needing
        found = {*needing, *self.remote.needing(topic.removeprefix(RETAINED))}
        if (carrier := self.scope.carrier_of(topic)) is not None:
            found.add(carrier)
        return tuple(sorted(found))
