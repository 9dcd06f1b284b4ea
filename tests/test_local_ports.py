"""Ports for servers that restart: no connection and no other process gets the port of a server that is away."""

import subprocess
import sys

from overlane import local_ports
from overlane.local_ports import free_ports, free_row

EPHEMERAL_FROM = 32_768
"""The first of the ports that Linux gives to connections, unless it is told otherwise."""
LOOK = "from overlane import local_ports; local_ports.PORTS = {ports}; print(*local_ports.free_ports({count}))"


def test_ports_are_never_returned_twice() -> None:
    ports = [port for _ in range(20) for port in free_ports(10)]
    assert len(set(ports)) == 200


def test_ports_are_below_those_of_outgoing_connections() -> None:
    assert max(free_ports(50)) < EPHEMERAL_FROM


def test_another_process_does_not_get_a_port_that_is_reserved() -> None:
    own = free_ports(20)
    ports = [*own, *free_elsewhere(5)]
    found = subprocess.run([sys.executable, "-c", LOOK.format(ports=ports, count=5)], capture_output=True, check=True)
    assert {int(port) for port in found.stdout.split()} == set(ports) - set(own)


def test_no_port_of_a_row_is_given_to_anybody_else() -> None:
    rows = [free_row(6) for _ in range(20)]
    ports = [first + place for first in rows for place in range(6)]
    assert len(set(ports)) == 120
    look = LOOK.format(ports=[*ports, *free_elsewhere(1)], count=1)
    found = subprocess.run([sys.executable, "-c", look], capture_output=True, check=True)
    assert int(found.stdout) not in ports


def free_elsewhere(count: int) -> list[int]:
    """Ports that a process had which has ended."""
    command = [sys.executable, "-c", LOOK.format(ports=local_ports.PORTS, count=count)]
    return [int(port) for port in subprocess.run(command, capture_output=True, check=True).stdout.split()]
