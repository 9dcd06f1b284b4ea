"""The network file: brokers, links, topics, and the traffic and events of a simulation, in one TOML format.

`read_network` returns a `Network` of frozen values in plain units (nanoseconds, bytes, bits per second), or raises a
`ConfigError` that names every wrong field with its line. The simulator and real brokers read the same file.
`format_network` writes a network as a file.
"""

from overlane.network.endpoints import Endpoints, endpoints, endpoints_on_one_machine
from overlane.network.reading import parse_network, read_network
from overlane.network.schema import (
    Broker,
    Crash,
    Cut,
    Defaults,
    Endpoint,
    Event,
    Heal,
    History,
    Join,
    Leave,
    Link,
    Lossy,
    Network,
    Partition,
    Publisher,
    Reliability,
    Restart,
    Routing,
    Scheduling,
    Security,
    Simulation,
    Slow,
    Subscriber,
    Topic,
    Transport,
)
from overlane.network.writing import format_network
from overlane.quantities import parse_duration, parse_rate, parse_size

__all__ = [
    "Broker",
    "Crash",
    "Cut",
    "Defaults",
    "Endpoint",
    "Endpoints",
    "Event",
    "Heal",
    "History",
    "Join",
    "Leave",
    "Link",
    "Lossy",
    "Network",
    "Partition",
    "Publisher",
    "Reliability",
    "Restart",
    "Routing",
    "Scheduling",
    "Security",
    "Simulation",
    "Slow",
    "Subscriber",
    "Topic",
    "Transport",
    "classes",
    "coordinated",
    "endpoints",
    "endpoints_on_one_machine",
    "format_network",
    "kinds",
    "listeners",
    "members",
    "parse_duration",
    "parse_network",
    "parse_rate",
    "parse_size",
    "plan",
    "read_network",
    "reading",
    "schema",
]
