"""The five cities of examples/five-cities.toml, for stories."""

from collections.abc import Mapping
from typing import Any

from overlane.core.units import MS, Nanos
from overlane.network import Topic
from overlane.sim.story import Story

LINKS = {
    ("seattle", "denver"): 14 * MS,
    ("seattle", "los-angeles"): 13 * MS,
    ("los-angeles", "denver"): 11 * MS,
    ("los-angeles", "orlando"): 25 * MS,
    ("los-angeles", "washington"): 29 * MS,
    ("denver", "washington"): 20 * MS,
    ("denver", "orlando"): 20 * MS,
    ("orlando", "washington"): 10 * MS,
}

READERS = {"alarms": "washington", "reports": "orlando"}


def five_cities(topics: Mapping[str, Nanos | Topic], rate_hz: float = 50, **more: Any) -> Story:
    """Seattle publishes every topic; Washington reads the alarms, Orlando the reports, both of them whatever else."""
    publishers = [("seattle", name, rate_hz) for name in topics]
    subscribers = [
        (reader, name)
        for name in topics
        for reader in ([READERS[name]] if name in READERS else ["washington", "orlando"])
    ]
    return Story(LINKS, topics, publishers=publishers, subscribers=subscribers, **more)
