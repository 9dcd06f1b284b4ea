"""Reconfigure: changes the configuration of a running broker, as far as possible without a restart.

One value contains all of it, from any source: the membership and the links of this broker, and the rights and limits of
clients. It is an input of a turn (`Turn.reconfigure`). If it contains a change that needs a restart, it is rejected as
a whole, before anything has changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from overlane.core.config import BrokerConfig
from overlane.errors import OverlaneError
from overlane.membership.membership import Membership
from overlane.membership.neighbours import neighbours_of
from overlane.pubsub.cluster.cluster import overlay_table
from overlane.pubsub.state import Settings


class RestartNeeded(OverlaneError):
    """A new configuration differs from that of the running broker in what cannot change while it runs."""

    error_code = "OVL-122"


@dataclass(frozen=True, slots=True)
class Reconfigure:
    membership: Membership
    settings: Settings
    """Limits, rights, QoS classes, and who may come without a name."""
    assignment: Mapping[int, str] = field(default_factory=dict)
    """Bundles (`core.bundles`), and the routing brokers that carry them, as far as they are assigned."""
    standbys: Mapping[int, str] = field(default_factory=dict)
    """The routing brokers that would carry them next."""


def reconfigured(config: BrokerConfig, event: Reconfigure) -> BrokerConfig:
    """The core's configuration from now on; RestartNeeded."""
    neighbours = neighbours_of(event.membership, config.name)
    role = next((one.role for one in event.membership.members if one.name == config.name), config.role)
    new = replace(
        config,
        qos=overlay_table(event.settings.qos),
        link_failure={peer: neighbour.failure for peer, neighbour in neighbours.items()},
        link_queue_bytes_max={peer: neighbour.queue_bytes for peer, neighbour in neighbours.items()},
        named=event.membership.names(),
        brokers_max=event.settings.limits.brokers,
        routes_max=event.settings.limits.routes,
        role=role,
        assignment=event.assignment,
        standbys=event.standbys,
        direct=frozenset(peer for peer, neighbour in neighbours.items() if neighbour.is_direct),
        domains={one.name: one.domain for one in event.membership.members},
        encrypted=frozenset(peer for peer, neighbour in neighbours.items() if neighbour.is_encrypted),
    )
    if fixed := config.needs_restart(new):
        raise RestartNeeded(f"{config.name}: {', '.join(fixed)} cannot change while the broker runs")
    return new
