"""A broker of another host, continued on this one: what its process is told, and where it listens.

It has the role and the listeners that its primary has published, at free ports of the addresses of this host.
Everything else is as the configuration of this host says.
"""

import msgspec
from msgspec import structs

from overlane.local_ports import free_ports
from overlane.membership.endpoint import Endpoint
from overlane.network.endpoints import endpoints
from overlane.network.schema import Broker, Network, Role


class Hosted(msgspec.Struct, frozen=True):
    """Given to the process of a mirror, as JSON on its command line."""

    broker: str
    role: Role
    domain: str
    listeners: tuple[str, ...] = ("mqtt",)
    zookeeper: str = ""
    """Addresses, as the parent has resolved them."""


def hosted_broker(network: Network, host: str, hosted: Hosted) -> Broker:
    """As it runs on this host, at ports that are free now."""
    mine = endpoints(network, host)
    described = next((one for one in network.brokers if one.name == hosted.broker), Broker(name=hosted.broker))
    kinds = tuple(dict.fromkeys(("mqtt", *hosted.listeners)))
    overlay, admin, *ports = free_ports(2 + len(kinds))
    broker: Broker = structs.replace(
        described,
        role=hosted.role,
        domain=hosted.domain,
        listeners={
            kind: Endpoint(mine.listeners.get(kind, mine.mqtt).host, port)
            for kind, port in zip(kinds, ports, strict=True)
        },
        overlay=Endpoint(mine.overlay.host, overlay),
        admin=Endpoint(mine.admin.host, admin),
        reach=None,
    )
    return broker


def with_broker(network: Network, broker: Broker) -> Network:
    others = tuple(one for one in network.brokers if one.name != broker.name)
    replaced: Network = structs.replace(network, brokers=(*others, broker))
    return replaced
