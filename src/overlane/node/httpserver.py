"""An HTTP server in a loop that has other things to do, for what operators see of it.

Its address is taken before anything is served, signals are left to others, and its end takes no longer than a moment.
No stranger can make it hold much: one connection more than is allowed is closed at once, and so are one that asks for
nothing and one whose request has an endless head.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from overlane.network.schema import Endpoint
from overlane.node.binding import bound

FIRST_REQUEST_S = 10.0
HEAD_BYTES_MAX = 16 * 1024
END_S = 1
"""How long answers that are being given may take in the end."""


class HttpServer:
    """`name`: of its address, for people."""

    def __init__(self, name: str, endpoint: Endpoint, app: Starlette, connections_max: int) -> None:
        self._name = name
        self._endpoint = endpoint
        self._connections_max = connections_max
        self._server = _Server(
            uvicorn.Config(
                app,
                loop="none",
                http=_bounded(connections_max),
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=END_S,
                h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            )
        )
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serve; Unavailable if the address cannot be had."""
        sockets = await bound(self._name, self._endpoint, self._connections_max)
        self._task = asyncio.create_task(self._server.serve(sockets))

    async def stop(self) -> None:
        if self._task is not None:
            self._server.should_exit = True
            await self._task


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are for whoever runs it to handle."""
        yield


def _bounded(connections_max: int) -> type[H11Protocol]:
    class Bounded(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            if len(self.connections) >= connections_max:
                transport.abort()
            super().connection_made(transport)
            self.loop.call_later(FIRST_REQUEST_S, self._look)

        def _look(self) -> None:
            if not self.cycle and not self.transport.is_closing():
                self.transport.abort()

    return Bounded
