"""Free ports of this machine, for servers that keep their port over restarts.

A port that is merely free can be lost while its server restarts: to an outgoing connection, which gets any ephemeral
port, or to another program that looks for a free port at that moment. So ports are taken from below the ephemeral ones,
and reserved for the life of the process that asked, by a lock on one byte of a file that all processes of a user share.
The lock ends with the process, however that ends.
"""

import fcntl
import os
import random
import socket
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

HOST = "127.0.0.1"
PORTS = range(20_000, 32_000)
"""Below those that Linux gives to outgoing connections, from 32,768 on."""

_reserved: set[int] = set()
"""By this process: the system does not refuse a lock to the process that has it."""


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nothing is bound to, and that no other process has reserved. They stay reserved."""
    generator = random.SystemRandom()
    ports: list[int] = []
    while len(ports) < count:
        port = generator.choice(PORTS)
        if port not in _reserved and _reserve(port) and _is_free(port):
            ports.append(port)
    return ports


def _reserve(port: int) -> bool:
    try:
        fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _reserved.add(port)
    return True


@cache
def _reservations() -> int:
    """Never closed: closing it would end the locks."""
    path = Path(tempfile.gettempdir()) / f"overlane-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
