"""Reconfigure: the configuration of a running broker changes, as far as it can while it runs.

One value for all of it, whoever it comes from: who is in the overlay and by which links this broker belongs to it, and
what clients may do and get. It is an input of a turn (`Turn.reconfigure`). Where it asks for what takes a restart it is
refused whole, before anything has changed.
"""

from dataclasses import dataclass, replace

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


def reconfigured(config: BrokerConfig, event: Reconfigure) -> BrokerConfig:
    """The core's configuration from now on; RestartNeeded."""
    neighbours = neighbours_of(event.membership, config.name)
    new = replace(
        config,
        qos=overlay_table(event.settings.qos),
        link_failure={peer: neighbour.failure for peer, neighbour in neighbours.items()},
        link_queue_bytes_max={peer: neighbour.queue_bytes for peer, neighbour in neighbours.items()},
        named=event.membership.names(),
        brokers_max=event.settings.limits.brokers,
    )
    if fixed := config.needs_restart(new):
        raise RestartNeeded(f"{config.name}: {', '.join(fixed)} cannot change while the broker runs")
    return new
