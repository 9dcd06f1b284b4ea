"""Trouble history: what a source remembers of trouble on the map, and what it therefore expects of other links.

The map shows the present state of links. That a link got into trouble just now, or that several did lately, is
evidence about links of which nothing is known yet:

  silent     a link is suspect, since a given time
  fresh      a link of a broker got into trouble just now, and its other links have not been probed since
  unsettled  two links lost parcels within a minute, so a third may

A link that is the only one in trouble for some time is evidence about itself alone: a relapse is not fresh, and its
losses do not unsettle others.
"""

from overlane.core.gossip.network_map import NetworkMap
from overlane.core.links.link_health import TROUBLE_LOSS
from overlane.core.routing.selection.link_risks import Link, Risks, in_trouble
from overlane.core.units import NEVER, SECOND, Nanos

UNSETTLED_FOR: Nanos = 60 * SECOND
"""How long trouble is remembered: classes that leave no time for repair are prepared for more of it."""
FRESH_FOR: Nanos = 1 * SECOND
"""How long after a link got into trouble the other links of its brokers have not been asked."""


class TroubleHistory:
    def __init__(self) -> None:
        self.silent_since: dict[Link, Nanos] = {}
        self._troubled_since: dict[Link, Nanos] = {}
        """Links in trouble; -NEVER where that was nothing new."""
        self._troubled_at: dict[Link, Nanos] = {}
        self._lost_at: dict[Link, Nanos] = {}
        """When a link was last in trouble, and when it last lost, lately; a link is one in both directions here."""
        self._unsettled_until: Nanos = -NEVER

    def note(self, network_map: NetworkMap, now: Nanos) -> None:
        """The map has changed."""
        self.silent_since = {link: self.silent_since.get(link, now) for link in network_map.suspects}
        self._troubled_at = _since(now - UNSETTLED_FOR, self._troubled_at)
        self._lost_at = _since(now - UNSETTLED_FOR, self._lost_at)
        bad = in_trouble(network_map)
        alone = next(iter(self._troubled_at)) if len(self._troubled_at) == 1 else None
        self._troubled_since = {
            link: self._troubled_since.get(link, -NEVER if _undirected(link) == alone else now) for link in bad
        }
        for link in bad:
            self._troubled_at[_undirected(link)] = now
            if network_map.claims[link].loss_millionths >= TROUBLE_LOSS:
                self._lost_at[_undirected(link)] = now
        if len(self._lost_at) > 1:
            self._unsettled_until = sorted(self._lost_at.values())[-2] + UNSETTLED_FOR

    def risks(self, network_map: NetworkMap, now: Nanos) -> Risks:
        fresh = {link for link, since in self._troubled_since.items() if now < since + FRESH_FOR}
        return Risks(network_map, now < self._unsettled_until, fresh)

    def milder_at(self, now: Nanos) -> Nanos:
        """When risks are to be taken for less, though the map be the same."""
        ends = (self._unsettled_until, *(since + FRESH_FOR for since in self._troubled_since.values()))
        return min((end for end in ends if end > now), default=NEVER)


def _since(when: Nanos, seen: dict[Link, Nanos]) -> dict[Link, Nanos]:
    return {link: at for link, at in seen.items() if at > when}


def _undirected(link: Link) -> Link:
    one, other = link
    return (one, other) if one < other else (other, one)
