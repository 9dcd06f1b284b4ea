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


def test_an_advertisement_of_a_routing_broker_is_refused() -> None:
    with pytest.raises(ConfigError, match="allowed is an edge or a plain broker, where publishers are"):
        parse_network(f'[brokers.west]\nrole = "routing"\n{ADVERTISED}')


def test_an_advertisement_of_an_edge_names_a_group_of_topics() -> None:
    [one] = parse_network(f'[brokers.west]\nrole = "edge"\n{ADVERTISED}').advertisements
    assert one.filter == "plant/video"
    with pytest.raises(ConfigError, match="allowed is a filter of an edge without a wildcard in its first two levels"):
        parse_network(f'[brokers.west]\nrole = "edge"\n{ADVERTISED.replace("plant/video", "plant/#")}')


def test_an_advertisement_of_a_plain_broker_is_taken() -> None:
    [one] = parse_network(f"[brokers.west]\n{ADVERTISED}").advertisements
    assert (one.broker, one.filter, one.message_bytes) == ("west", "plant/video", 1000)
