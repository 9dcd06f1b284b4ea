"""What trials are made of: brokers a to d, joined as a test says, and reliable orders from a to d."""

from collections.abc import Mapping

from msgspec import structs

from overlane.core.units import Nanos
from overlane.network import Broker, Event, Link, Network, Simulation
from overlane.sim.story import network_of, topic


def orders(
    links: Mapping[tuple[str, str], Nanos | Link],
    *events: Event,
    duration_ns: Nanos,
    deadline_ns: Nanos,
    rate_hz: float,
    brokers: Mapping[str, Broker] | None = None,
) -> Network:
    network = network_of(
        links,
        {"orders/#": topic(deadline_ns, reliability="reliable")},
        publishers=[("a", "orders/1", rate_hz)],
        subscribers=[("d", "orders/#")],
        brokers=brokers,
        simulation=Simulation(duration_ns=duration_ns),
    )
    return structs.replace(network, events=events)
