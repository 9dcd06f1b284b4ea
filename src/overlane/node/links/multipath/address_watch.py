"""Watches the addresses of this machine: reports when an interface loses its carrier, or an address comes or goes.

Linux only. Elsewhere, and where netlink sockets are not allowed, nothing is reported: paths that fail are noticed by
their silence.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import Callable

from overlane.node.links.multipath import netlink
from overlane.node.links.multipath.netlink import LocalAddress

ANSWER_BYTES = 64 * 1024
ANSWER_S = 1.0

log = logging.getLogger("overlane.link")


class AddressWatch:
    """`changed` is called with the present addresses, once for each change."""

    def __init__(self, changed: Callable[[tuple[LocalAddress, ...]], None]) -> None:
        self._changed = changed
        self._socket: socket.socket | None = None
        self._is_due = False
        self.addresses: tuple[LocalAddress, ...] | None = None
        """None where they are not known."""

    def open(self) -> None:
        if sys.platform != "linux":
            return
        try:
            made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
            made.setblocking(False)
            made.bind((0, netlink.GROUPS))
            self.addresses = _read_addresses()
        except OSError as error:
            log.info("cannot watch for changes of addresses: %s", error.strerror or error)
            return
        self._socket = made
        asyncio.get_running_loop().add_reader(made.fileno(), self._read)

    def close(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _read(self) -> None:
        try:
            while self._socket is not None:
                self._socket.recv(ANSWER_BYTES)  # whatever it was, the present state is asked for
        except BlockingIOError:
            pass
        except OSError as error:  # more than its buffer holds: the present state has it all
            log.debug("netlink: %s", error)
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._is_due = False
        if self._socket is None:
            return
        try:
            found = _read_addresses()
        except OSError as error:
            log.warning("the addresses of this machine cannot be read: %s", error.strerror or error)
            return
        if found != self.addresses:
            self.addresses = found
            self._changed(found)


def _read_addresses() -> tuple[LocalAddress, ...]:
    """The kernel answers at once."""
    answers = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as asked:
        asked.settimeout(ANSWER_S)
        asked.bind((0, 0))
        for request in netlink.requests():
            asked.send(request)
            answer = b""
            while not netlink.is_done(part := asked.recv(ANSWER_BYTES)):
                answer += part
            answers.append(answer + part)
    return netlink.parse(*answers)
