"""A tunnel between two brokers on one machine: connections go through it, and it may be slow, or silent.

Its two ends are real connections with real buffers, so that what waits, waits in the kernels.
"""

import socket
import threading
import time
from contextlib import closing, suppress

from brokers import free_port

BUFFER_BYTES = 16 * 1024
PIECE_BYTES = 4 * 1024


class Tunnel:
    """Passes connections on to a broker, each direction at the rate. While it is silent it takes everything and passes
    nothing, as a path does that was cut somewhere: neither end is told."""

    def __init__(self, behind: str, rate_bps: int | None = None) -> None:
        host, port = behind.split(":")
        self._behind = host, int(port)
        self._rate_bps = rate_bps
        self._server = socket.create_server(("127.0.0.1", free_port()))
        if rate_bps is not None:
            self._server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        self.address = "{}:{}".format(*self._server.getsockname())
        self.is_silent = False
        self.count = 0
        """Of the connections so far."""
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._server.accept()
                try:
                    there = socket.create_connection(self._behind)
                except ConnectionRefusedError:
                    here.close()  # the broker does not listen yet
                    continue
                self.count += 1
                for one, other in ((here, there), (there, here)):
                    threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        free_s = 0.0
        with suppress(OSError), closing(one), closing(other):
            while data := one.recv(PIECE_BYTES):
                if self._rate_bps is not None:
                    free_s = max(free_s, time.monotonic()) + len(data) * 8 / self._rate_bps
                    time.sleep(max(0.0, free_s - time.monotonic()))
                if not self.is_silent:
                    other.sendall(data)
