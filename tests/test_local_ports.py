"""The loopback as a ground: brokers have ports of their own, that stay theirs while they are away."""

from overlane.testbed.loopback import free_ports

CONNECTIONS_FROM = 32_768
"""The first of the ports that Linux gives to connections, unless it is told otherwise."""


def test_ports_are_never_given_twice() -> None:
    ports = [port for _ in range(20) for port in free_ports(10)]
    assert len(set(ports)) == 200


def test_no_connection_is_given_the_port_of_a_broker_that_is_away() -> None:
    assert max(free_ports(50)) < CONNECTIONS_FROM
