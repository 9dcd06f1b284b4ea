"""What the network file says of reservations."""

import pytest

from overlane.errors import ConfigError
from overlane.network import parse_network

ADVERTISED = """
[[advertisements]]
broker = "west"
filter = "plant/video"
size = 1000
period = "10ms"
"""


@pytest.mark.parametrize("role", ["edge", "routing"])
def test_an_advertisement_of_an_edge_or_a_routing_broker_is_refused(role: str) -> None:
    with pytest.raises(ConfigError, match="allowed is a plain broker: edges and routing brokers have no reservations"):
        parse_network(f'[brokers.west]\nrole = "{role}"\n{ADVERTISED}')


def test_an_advertisement_of_a_plain_broker_is_taken() -> None:
    [one] = parse_network(f"[brokers.west]\n{ADVERTISED}").advertisements
    assert (one.broker, one.filter, one.message_bytes) == ("west", "plant/video", 1000)
