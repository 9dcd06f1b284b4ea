"""The items of a domain, as the network file has them, for the plans of the pipeline."""

from pathlib import Path

from overlane.errors import ConfigError, Fault
from overlane.items.directory import preferred
from overlane.network.reading import read_network
from overlane.network.schema import Network
from overlane.pipeline.settings import DomainPlacement

NO_AGENT = ("backup", "routing")


def read_placement(file: Path, domain: str | None) -> tuple[str, DomainPlacement]:
    """The domain and its placement; without a name, the only domain of the file. ConfigError."""
    network = read_network(file)
    domains = sorted({broker.domain for broker in network.brokers if broker.domain and broker.role not in NO_AGENT})
    if domain is None and len(domains) != 1:
        found = ", ".join(domains) or "no domain"
        raise ConfigError([Fault(str(file), 0, "brokers", found, "one domain, or --domain NAME")])
    chosen = domain or domains[0]
    if chosen not in domains:
        raise ConfigError([Fault(str(file), 0, "--domain", chosen, ", ".join(domains) or "a domain of the brokers")])
    placement = placement_of(network, chosen)
    if not placement.filters:
        raise ConfigError([Fault(str(file), 0, "items", "nothing", f"items of domain {chosen}, which are placed")])
    return chosen, placement


def placement_of(network: Network, domain: str) -> DomainPlacement:
    """What the agents of the domain go by."""
    items = [item for item in network.items if item.domain in ("", domain)]
    brokers = [one for one in network.brokers if one.domain == domain and one.role not in NO_AGENT]
    default = network.placement.capacity
    return DomainPlacement(
        filters=tuple(preferred({item.name: item.topics for item in items})),
        critical=tuple(sorted(item.name for item in items if item.critical)),
        capacities=tuple(sorted((one.name, default if one.capacity is None else one.capacity) for one in brokers)),
        unstated=tuple(sorted(one.name for one in brokers if one.capacity is None)),
        risk_max=network.placement.risk_max,
    )
