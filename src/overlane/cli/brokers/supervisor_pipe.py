"""Standard input of a supervised process: how `overlane up` ends its brokers and gateways."""

import asyncio
import sys
from collections.abc import Callable

__all__ = ["SupervisorPipe"]


class SupervisorPipe(asyncio.Protocol):
    """Calls `end` when the supervisor has closed the pipe or has ended, and `leave` when it sends any byte."""

    def __init__(self, end: Callable[[], None] = lambda: None, leave: Callable[[], None] = lambda: None) -> None:
        self.end = end
        self.leave = leave
        self._is_connected = False

    async def connect(self) -> None:
        if not self._is_connected:
            self._is_connected = True
            await asyncio.get_running_loop().connect_read_pipe(lambda: self, sys.stdin)

    def data_received(self, data: bytes) -> None:  # noqa: ARG002
        self.leave()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.end()
