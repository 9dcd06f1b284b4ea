"""The datagram sockets of a broker: one for each of its addresses that a connection to a neighbour uses.

A datagram is sent from the address of its connection, so that it takes the same path and passes the same NAT. All
sockets use the port of the overlay's listener if it is free, so that a firewall needs to open one port. Received
datagrams are assigned to links by their session; others are counted. A link that accepts further paths (`admit`) gets
the first datagram of one, whichever socket it came to.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Any

from overlane.node.links.datagrams.seal import DATAGRAM_BYTES_MAX, PATH_MAX, session_of
from overlane.node.links.marking import MARKS_DATAGRAMS, ancillary

RECEIVE_BYTES = 1024 * 1024
AT_ONCE_MAX = 64
"""Datagrams that are read before others get their turn."""

log = logging.getLogger("overlane.link")

Address = tuple[Any, ...]
"""As the socket module has it."""
Receive = Callable[[bytes, Address], None]
Admit = Callable[[int, "DatagramSocket", bytes, Address], None]
"""Gets the first datagram of a path: its number, and where it came to and from."""

_UNREACHABLE = frozenset({errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL, errno.EHOSTUNREACH})


class DatagramSockets:
    def __init__(self, port: int) -> None:
        self._port = port
        self._open: dict[str, DatagramSocket] = {}
        self.strange = 0
        """Datagrams of sessions that there are not."""
        self._admits: dict[int, Admit] = {}
        self.on_unreachable: Callable[[str], None] = lambda _: None
        """Called with one of our addresses from which the kernel cannot send."""

    def admit(self, session: int, admit: Admit | None) -> None:
        """Whether the link of this session accepts further paths."""
        if admit is None:
            self._admits.pop(session, None)
        else:
            self._admits[session] = admit

    def stranger(self, at: "DatagramSocket", session: int | None, datagram: bytes, address: Address) -> None:
        """A datagram of no session at this socket: of a new path, or counted."""
        path = 0 if session is None else session & PATH_MAX
        admit = None if session is None or not path else self._admits.get(session - path)
        if admit is None:
            self.strange += 1
        else:
            admit(path, at, datagram, address)

    def at(self, address: Address) -> "DatagramSocket | None":
        """The socket of one of our addresses; None where there cannot be one."""
        host = str(address[0])
        if host not in self._open:
            made = self._bind(address)
            if made is None:
                return None
            self._open[host] = DatagramSocket(made, host, self)
        return self._open[host]

    def close(self) -> None:
        for one in self._open.values():
            one.close()
        self._open.clear()

    def _bind(self, address: Address) -> socket.socket | None:
        family = socket.AF_INET6 if len(address) == 4 else socket.AF_INET
        for port in (self._port, 0):
            try:
                made = socket.socket(family, socket.SOCK_DGRAM)
            except OSError as error:
                log.warning("no datagrams at %s: %s", address[0], error.strerror)
                return None
            try:
                made.setblocking(False)
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
                made.bind((address[0], port, *address[2:]))
                return made
            except OSError as error:
                made.close()
                if error.errno != errno.EADDRINUSE:
                    log.warning("no datagrams at %s: %s", address[0], error.strerror)
                    return None
        return None


class DatagramSocket:
    def __init__(self, made: socket.socket, host: str, all_of_them: DatagramSockets) -> None:
        self._socket = made
        self.host = host
        self._all = all_of_them
        self._sessions: dict[int, Receive] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(made.fileno(), self._read)
        self.port: int = made.getsockname()[1]

    def enlist(self, session: int, receive: Receive) -> None:
        self._sessions[session] = receive

    def dismiss(self, session: int) -> None:
        self._sessions.pop(session, None)
        self._all.admit(session, None)

    def send(self, datagram: bytes, address: Address, dscp: int = 0) -> None:
        """It may be lost here as anywhere."""
        try:
            if dscp and MARKS_DATAGRAMS:
                self._socket.sendmsg([datagram], ancillary(self._socket.family, dscp), 0, address)
            else:
                self._socket.sendto(datagram, address)
        except OSError as error:
            if error.errno in _UNREACHABLE:
                self._all.on_unreachable(self.host)

    def close(self) -> None:
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()

    def _read(self) -> None:
        for _ in range(AT_ONCE_MAX):
            try:
                datagram, address = self._socket.recvfrom(DATAGRAM_BYTES_MAX + 1)
            except BlockingIOError:
                return
            except OSError as error:  # what an earlier datagram met with
                log.debug("datagrams: %s", error)
                continue
            session = session_of(datagram)
            receive = self._sessions.get(session) if session is not None else None
            if receive is None:
                self._all.stranger(self, session, datagram, address)
            else:
                receive(datagram, address)
