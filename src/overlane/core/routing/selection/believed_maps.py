"""Believed maps: the map as this source believes it, and the part of it that a class of messages may use.

The map of all adverts is changed by experience: links that take longer than is claimed, and links that a route should
do without, which are left on it as the last resort. Classes that require encrypted links, or brokers to pass or avoid,
see the links alone that they may use. Each of these maps is drawn once per change.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Protocol

from overlane.core.gossip.link_state import LinkStateTable
from overlane.core.gossip.network_map import NetworkMap
from overlane.core.qos import QosClass
from overlane.core.requirements import Places, Requirements, Unmet
from overlane.core.routing.route import Route
from overlane.core.routing.selection.route_plan import Links
from overlane.core.units import SECOND, US, Nanos

AVOIDED_US = 60 * SECOND // US
"""Added to the latency of a link that is to be avoided: any other path is quicker."""


class Experience(Protocol):
    """What a source has learned about links beyond the map."""

    @property
    def changes(self) -> int:
        """Grows whenever routes should be planned otherwise."""

    @property
    def extra_us(self) -> Mapping[tuple[str, str], int]:
        """How much longer links take than is claimed."""

    def avoided(self, route: int) -> Links:
        """Links that a route should do without."""


class NoExperience:
    changes = 0
    extra_us: Mapping[tuple[str, str], int] = {}

    def avoided(self, _: int) -> Links:
        return frozenset()


class BelievedMaps:
    def __init__(
        self, me: str, table: LinkStateTable, places: Places | None = None, experience: Experience | None = None
    ) -> None:
        self._me = me
        self._table = table
        self._places = places or Places()
        self.experience = experience or NoExperience()
        self._maps: dict[Links, NetworkMap] = {}
        self._allowed_maps: dict[tuple[Links, Requirements, tuple[str, ...]], NetworkMap] = {}
        self._maps_of = (-1, -1)

    def set_places(self, places: Places) -> bool:
        """The brokers of the configuration, or their domains, may have changed; whether they have."""
        if places == self._places:
            return False
        self._places, self._maps_of = places, (-1, -1)
        return True

    def whole(self, avoided: Links = frozenset()) -> NetworkMap:
        """With all links, those to be avoided as the last resort."""
        now = self._table.changes, self.experience.changes
        if self._maps_of != now:
            self._maps_of, self._maps, self._allowed_maps = now, {}, {}
        found = self._maps.get(avoided)
        if found is None:
            extra_us = {**self.experience.extra_us}
            for link in avoided:
                extra_us[link] = extra_us.get(link, 0) + AVOIDED_US
            found = self._maps[avoided] = self._table.map.slowed(extra_us)
        return found

    def of(self, route: Route) -> NetworkMap:
        """With the links alone that the class of a route may use."""
        return self._allowed(route.qos.requires, route.destinations, self.experience.avoided(route.id))

    def towards(self, route: Route, destination: str) -> NetworkMap | None:
        """As `of`, without regard to links to be avoided; None if the destination may not have its messages."""
        if not self._places.may_receive(destination, route.qos.requires):
            return None
        return self._allowed(route.qos.requires, route.destinations)

    def quickest_path(self, qos: QosClass, route: int, destination: str) -> tuple[tuple[str, ...], Nanos] | None:
        """The quickest path for what is sent again to a destination of a route of this class, and its latency."""
        avoided = self.experience.avoided(route)
        found = self._allowed(qos.requires, (destination,), avoided).quickest_path(self._me, destination)
        if found is None or avoided.isdisjoint(pairwise(found[0])):
            return found
        return self._allowed(qos.requires, (destination,)).quickest_path(self._me, destination)

    def may_take(self, qos: QosClass, path: Sequence[str]) -> bool:
        """Whether a class may be sent along a path that was found without regard to it."""
        if not qos.requires.is_trust:
            return True
        return {*pairwise(path)} <= self._allowed(qos.requires, (path[-1],)).claims.keys()

    def unmet_on_the_way(self, requires: Requirements, destination: str) -> list[Unmet]:
        """Which requirements leave no path to a destination that there is one to otherwise."""
        if self.whole().quickest_path(self._me, destination) is None:
            return []
        asked = requires.trust_names()
        alone = [
            name
            for name in asked
            if self._allowed(requires.without(name), (destination,)).quickest_path(self._me, destination) is not None
        ]
        return [Unmet(destination, name) for name in alone or asked]

    def _allowed(
        self, requires: Requirements, destinations: tuple[str, ...], avoided: Links = frozenset()
    ) -> NetworkMap:
        believed = self.whole(avoided)
        if not requires.is_trust:
            return believed
        key = avoided, requires, destinations
        found = self._allowed_maps.get(key)
        if found is None:
            places, ends = self._places, {*destinations}
            passing = {name for name in believed.brokers() if places.may_pass(name, requires)}
            reached = passing | {name for name in ends if places.may_receive(name, requires)}
            found = self._allowed_maps[key] = believed.restricted(
                lambda one, other: (one == self._me or one in passing) and other in reached,
                is_encrypted=requires.encrypted,
            )
        return found
