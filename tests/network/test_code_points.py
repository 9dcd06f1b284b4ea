"""`dscp` of a link."""

import pytest

from overlane.errors import ConfigError
from overlane.network import format_network, parse_network

LINK = '[brokers.a]\n[brokers.b]\n[[links]]\nends = ["a", "b"]\nlatency = "1ms"\n'


@pytest.mark.parametrize(
    ("word", "dscp"),
    [('"EF"', 46), ('"AF11"', 10), ('"AF43"', 38), ('"CS0"', 0), ('"CS7"', 56), ('"VA"', 44), ('"LE"', 1), ("63", 63)],
)
def test_a_code_point_is_a_name_of_the_rfcs_or_a_number(word: str, dscp: int) -> None:
    network = parse_network(f"{LINK}dscp = {word}")
    assert network.links[0].dscp == dscp
    assert parse_network(format_network(network)) == network


@pytest.mark.parametrize("word", ['"AF44"', '"ef"', "64", "-1", "true", "4.6", '""'])
def test_another_one_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match=r'dscp: found .*, allowed is a DSCP such as "EF"'):
        parse_network(f"{LINK}dscp = {word}")


def test_a_link_that_another_broker_carries_has_none() -> None:
    with pytest.raises(ConfigError, match="no dscp where another broker carries the link"):
        parse_network(f'{LINK}transport = "mqtt://127.0.0.1:1883/x"\ndscp = "EF"')
