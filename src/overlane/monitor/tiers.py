"""The two tiers of a coordinated overlay: who is an edge of which domain, who routes, who leads, who carries how much.

Roles and domains are those of the network file, and what brokers have read in ZooKeeper. Brokers may have read it at
different times: one that reaches ZooKeeper counts more than one that does not, and the leader itself most.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from overlane.adminapi.views import CoordinationView
from overlane.network.schema import Network

PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Tier:
    role: str = ""
    domain: str = ""
    is_leader: bool = False
    bundles: int = 0


class Tiers:
    def __init__(self, network: Network) -> None:
        self._known: dict[str, tuple[str, str]] = {
            one.name: ("", one.domain or "") if one.role == PLAIN else (one.role, one.domain or one.name)
            for one in network.brokers
        }
        self._leader = ""
        self._bundles: dict[str, int] = {}

    def update(self, told: Iterable[CoordinationView | None]) -> None:
        """What brokers that respond say."""
        views = sorted((one for one in told if one is not None), key=_weight)
        for view in views:
            self._known |= {name: place for name, place in view.members.items() if place[0] != PLAIN}
        if views:
            self._leader, self._bundles = views[-1].leader, views[-1].bundles

    def of(self, name: str) -> Tier:
        role, domain = self._known.get(name, ("", ""))
        return Tier(role, domain, name == self._leader, self._bundles.get(name, 0) if role == "routing" else 0)


def _weight(view: CoordinationView) -> tuple[bool, bool, bool]:
    is_routing = view.role == "routing"
    return view.is_connected, bool(view.leader), is_routing
