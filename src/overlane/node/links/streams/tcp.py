"""The socket of a connection to a neighbour: its options, and the state that the kernel reports."""

import asyncio
import socket
import sys
from fcntl import ioctl
from termios import TIOCOUTQ

NOTSENT_BYTES = 16 * 1024
STUCK_MS = 5_000
"""A connection on which nothing was acknowledged for so long is broken (TCP_USER_TIMEOUT)."""


def under_way_bytes(transport: asyncio.Transport) -> int:
    """Bytes written to a connection that the other end has not acknowledged. Only Linux reports this."""
    connected = transport.get_extra_info("socket")
    if connected is None or sys.platform != "linux":
        return 0
    return int.from_bytes(ioctl(connected.fileno(), TIOCOUTQ, bytes(4)), sys.byteorder)


def tune(connected: socket.socket | None) -> None:
    if connected is None or connected.family not in (socket.AF_INET, socket.AF_INET6):
        return
    for option, value in (
        (socket.TCP_NODELAY, 1),
        (getattr(socket, "TCP_NOTSENT_LOWAT", 25), NOTSENT_BYTES),
        (getattr(socket, "TCP_USER_TIMEOUT", 18), STUCK_MS),
    ):
        connected.setsockopt(socket.IPPROTO_TCP, option, value)
