"""HTTP connections of clients: those of the admin API, with the limits of these, on sockets of a listener.

The app finds in the scope of a request who is at the other end, a client certificate included.
"""

import asyncio
from email.utils import formatdate
from time import time

from uvicorn.server import ServerState

from overlane.adminapi.http_server import App, BoundedHttpConnection, ConnectionSlots, Receive, Send, server_config
from overlane.node.clients.connection_limiter import ConnectionDecision, ConnectionLimiter, peer_of
from overlane.pubsub.contract.consumer import Peer

PEER = "overlane.peer"


class WebConnection(BoundedHttpConnection):
    """`limiter` and `name` are those of its listener."""

    limiter: ConnectionLimiter
    name: str
    always = frozenset[str]()
    tls_late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if self.tls_late is not None:
            self.tls_late.cancel()
            self.tls_late = None
        super().connection_made(transport)
        self.app = _telling(self.app, peer_of(transport, self.name))
        if self.limiter.admit() is not ConnectionDecision.ACCEPT:
            transport.abort()


class WebConnections:
    """All connections of one service, of any number of listeners."""

    def __init__(self, app: App, connections_max: int) -> None:
        its_slots = ConnectionSlots(connections_max, 0)

        class OwnConnection(WebConnection):
            slots = its_slots

        self._config = server_config(app, OwnConnection)
        self._config.load()
        self._kind = OwnConnection
        self._state = _DatedState()

    def __call__(self, limiter: ConnectionLimiter, name: str) -> WebConnection:
        connection = self._kind(config=self._config, server_state=self._state, app_state={})
        connection.limiter, connection.name = limiter, name
        return connection

    async def close(self) -> None:
        """Requests that are being answered are cut off, endless responses among them."""
        tasks = list(self._state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in list(self._state.connections):
            if isinstance(connection, WebConnection):
                connection.transport.close()


class _DatedState(ServerState):
    """What uvicorn keeps of a server. The date is made once a second."""

    def __init__(self) -> None:
        self._date = (0, b"")
        super().__init__()

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        now_s = int(time())
        if self._date[0] != now_s:
            self._date = now_s, formatdate(now_s, usegmt=True).encode()
        return [(b"date", self._date[1])]

    @default_headers.setter
    def default_headers(self, _: list[tuple[bytes, bytes]]) -> None:
        """Given by ServerState, empty."""


def _telling(app: App, peer: Peer) -> App:
    async def answer(scope: dict[str, object], receive: Receive, send: Send) -> None:
        scope[PEER] = peer
        await app(scope, receive, send)

    return answer
