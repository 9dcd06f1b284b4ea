"""The network of a broker that follows ZooKeeper: what was pushed there, and what its own command or file says."""

from typing import TYPE_CHECKING

from msgspec import structs

from overlane.errors import ConfigError, Fault
from overlane.network.reading import parse_network
from overlane.network.schema import Broker, Network
from overlane.node.coordination.options import SOURCE, Own

if TYPE_CHECKING:  # a broker of a file alone does without
    from overlane.coordination.records import ConfigRecord


def own_network(config: "ConfigRecord | None", own: Own) -> Network:
    """ConfigError, in the words of a file. A table [brokers.NAME] of this name says what the command does not."""
    pushed = Network() if config is None else parse_network(config.text, SOURCE, own.directory, needs_brokers=False)
    described = {broker.name: broker for broker in pushed.brokers}
    broker = own.broker if own.broker is not None else described.get(own.name, Broker(name=own.name))
    changes: dict[str, object] = {
        "role": own.role,
        "domain": own.domain,
        "overlay": own.overlay,
        "admin": own.admin,
        "listeners": None if not own.listeners else {**broker.listeners, **own.listeners},
    }
    told: Broker = structs.replace(broker, **{field: value for field, value in changes.items() if value is not None})
    if told.admin is not None and not told.admin.is_loopback() and pushed.security.admin_token is None:
        found, allowed = f"{told.admin} without a token", "a loopback address, or any where [security] has admin_token"
        raise ConfigError([Fault(SOURCE, 0, "--admin", found, allowed)])
    if own.name in described:
        brokers = tuple(told if one.name == own.name else one for one in pushed.brokers)
    else:
        brokers = (told, *pushed.brokers)
    network: Network = structs.replace(pushed, brokers=brokers, coordination=own.zookeeper)
    return network


def unconfigured(own: Own) -> Network:
    """Where nothing has been pushed: the defaults hold."""
    return own_network(None, own)
