"""Counts messages of one size in the data that a subscriber reads, and checks that they are the published ones.

Nothing is done per message: the data is viewed as a table with one row per message, in which every row must start like
a delivery and have a greater number than the row before. Short reads are joined first, so that counting costs the same
for a broker that sends single messages as for one that sends many at once.
"""

import socket

import numpy as np
from numpy.typing import NDArray

from _wire import Form

BUFFER_BYTES = 256 * 1024
ENOUGH_BYTES = 64 * 1024
HEAD_BYTES = 4
"""How much of the start of each message is compared."""


class Tally:
    """The messages of one connection."""

    def __init__(self, form: Form, between: tuple[bytes, bytes] = (b"", b"")) -> None:
        self._form = form
        self._between = between
        self._head = np.frombuffer(form.message[:HEAD_BYTES], np.uint8)
        self._buffer = bytearray(BUFFER_BYTES + form.size)
        self._view = memoryview(self._buffer)
        self._have = 0
        self._last = -1
        self._checked = 0
        self.disorder = 0

    @property
    def count(self) -> int:
        return self._checked + self._have // self._form.size

    def read(self, connection: socket.socket) -> int:
        """Takes what there is, and returns how many bytes it was."""
        got = connection.recv_into(self._view[self._have :])
        self._have += got
        if self._have >= ENOUGH_BYTES or got == 0:
            self.check(connection)
        return got

    def check(self, connection: socket.socket) -> None:
        if self._between[0]:
            self._take_out(connection)
        size = self._form.size
        rows, rest = divmod(self._have, size)
        if rows == 0:
            return
        table = np.frombuffer(self._buffer, np.uint8, rows * size).reshape(rows, size)
        if (table[:, :HEAD_BYTES] != self._head).any():
            raise ValueError("something else than the messages of this run has arrived")
        at = self._form.payload_at
        found = numbers(table[:, at : at + 8])
        self.disorder += int((found[1:] <= found[:-1]).sum()) + (int(found[0]) <= self._last)
        self._last = int(found[-1])
        self._checked += rows
        self._view[:rest] = bytes(self._view[rows * size : self._have])
        self._have = rest

    def _take_out(self, connection: socket.socket) -> None:
        """NATS asks now and then whether we are alive, between two messages."""
        ask, answer = self._between
        at = self._buffer.find(ask, 0, self._have)
        if at >= 0:
            self._view[at : self._have - len(ask)] = bytes(self._view[at + len(ask) : self._have])
            self._have -= len(ask)
            connection.sendall(answer)


def numbers(columns: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Eight columns of bytes as one of numbers."""
    return np.ascontiguousarray(columns).view(np.int64).ravel()
