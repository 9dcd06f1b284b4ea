"""The one way in which the configuration of a running broker changes, for every source of changes.

A source (the network file, or a coordination service) repeatedly gives its state of the whole overlay: only the
differences from its previous state are applied. Operators add and remove links of this broker: these changes remain
until the source changes the same link. In both cases the result is one `Reconfigure` for the turns, which apply it as a
whole or reject it as a whole.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from overlane.membership.changes import MembershipChange, apply_change, diff
from overlane.membership.endpoint import Endpoint
from overlane.membership.membership import NOBODY, Ends, Member, MemberLink, Membership
from overlane.network.schema import LINK_FAILURE
from overlane.node.driver import Driver
from overlane.pubsub.state import Settings
from overlane.turn.reconfigure import Reconfigure


@dataclass(frozen=True, slots=True)
class AssignedBundles:
    """Bundles, and the routing brokers that carry them, and would carry them next."""

    carriers: Mapping[int, str] = field(default_factory=dict)
    standbys: Mapping[int, str] = field(default_factory=dict)


NO_BUNDLES = AssignedBundles()


class Reconfiguring:
    """All methods: BadMembership or RestartNeeded, and nothing has changed."""

    def __init__(self, driver: Driver, settings: Settings) -> None:
        self._driver = driver
        self._me = driver.core.name
        self._settings = settings
        self._source = NOBODY
        """The latest state of the source."""
        self.membership: Membership = NOBODY
        self._bundles = NO_BUNDLES

    def follow(
        self, source: Membership, settings: Settings | None = None, bundles: AssignedBundles = NO_BUNDLES
    ) -> None:
        """A new state of the source. Without settings the present ones remain."""
        wanted = apply_change(self.membership, diff(self._source, source))
        settings = settings if settings is not None else self._settings
        if (wanted, settings, bundles) != (self.membership, self._settings, self._bundles):
            self._take_up(wanted, settings, bundles)
        self._source = source

    def link(self, peer: str, addresses: Iterable[Endpoint]) -> None:
        """An operator wants a link with a broker that is reached there; where there is one, it stays as it is."""
        members = {member.name: member for member in self.membership.members}
        joined = [Member(name=self._me)] if self._me not in members else []
        known = members.get(peer, Member(name=peer, is_expected=False))
        moved = Member(
            name=peer,
            addresses=tuple(addresses),
            domain=known.domain,
            role=known.role,
            is_expected=known.is_expected and self._is_linked(peer),
        )
        linked = () if self._is_linked(peer) else (MemberLink(ends=self._ends(peer), failure=LINK_FAILURE),)
        change = MembershipChange(joined=tuple(joined), moved=(moved,), linked=linked)
        self._take_up(apply_change(self.membership, change), self._settings)

    def unlink(self, peer: str) -> None:
        """An operator wants no link with this broker. One that the source does not know is forgotten."""
        left = () if peer in self._source.names() else (peer,)
        change = MembershipChange(unlinked=(self._ends(peer),), left=left)
        self._take_up(apply_change(self.membership, change), self._settings)

    def _take_up(self, membership: Membership, settings: Settings, bundles: AssignedBundles | None = None) -> None:
        bundles = bundles if bundles is not None else self._bundles
        self._driver.reconfigure(Reconfigure(membership, settings, bundles.carriers, bundles.standbys))
        self.membership, self._settings, self._bundles = membership, settings, bundles

    def _is_linked(self, peer: str) -> bool:
        return any(link.ends == self._ends(peer) for link in self.membership.links)

    def _ends(self, peer: str) -> Ends:
        return (self._me, peer) if self._me < peer else (peer, self._me)
