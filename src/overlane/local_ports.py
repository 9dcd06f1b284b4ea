"""Free ports of this machine, for servers that keep their port over restarts.

A port that is merely free can be lost while its server restarts: to an outgoing connection, which gets any ephemeral
port, or to another program that looks for a free port at that moment. So ports are taken from below the ephemeral ones,
and reserved by the process that asked, until it ends: on Linux by a socket whose name in the abstract namespace has
the port. Such names are of one network namespace, as ports are, and leave nothing behind.
"""

import random
import socket
import sys
from collections import deque
from contextlib import closing

HOST = "127.0.0.1"
PORTS = range(20_000, 32_000)
"""Below those that Linux gives to outgoing connections, from 32,768 on."""
RESERVED_MAX = 400
"""Each takes an open file. When there are more, the oldest are given up."""

_reserved: deque[socket.socket] = deque()


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nothing is bound to, and that no process has reserved. They stay reserved."""
    generator = random.SystemRandom()
    ports: list[int] = []
    while len(ports) < count:
        port = generator.choice(PORTS)
        if port not in ports and _reserve(port) and _is_free(port):
            ports.append(port)
    return ports


def free_row(count: int) -> int:
    """The first of so many such ports one after the other."""
    generator = random.SystemRandom()
    while True:
        first = generator.randrange(PORTS.start, PORTS.stop - count + 1)
        if all(_reserve(port) and _is_free(port) for port in range(first, first + count)):
            return first


def _reserve(port: int) -> bool:
    if sys.platform != "linux":
        return True
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0overlane port {port}")
    except OSError:
        name.close()
        return False
    _reserved.append(name)
    if len(_reserved) > RESERVED_MAX:
        _reserved.popleft().close()
    return True


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
