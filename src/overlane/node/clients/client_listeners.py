"""The listeners of a broker for its clients: one for each kind that its network file names.

A new certificate: `prepare` makes servers that do not accept connections yet, on the same sockets. `renew` lets them
take over; `abandon` closes them. So all listeners have the new certificate, or none.
"""

import asyncio
import ssl
from collections.abc import Iterable
from typing import TYPE_CHECKING

from overlane.errors import Unavailable
from overlane.network.endpoints import Endpoints
from overlane.network.listeners import LISTENER_KINDS
from overlane.network.schema import Network
from overlane.node.clients.listeners import Listener
from overlane.node.driver import Driver
from overlane.node.reloading import needs_tls
from overlane.node.security.tls import server_context

if TYPE_CHECKING:
    from overlane.node.web.service import WebService

PreparedListener = tuple[Listener, list[asyncio.Server]]


class ClientListeners:
    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self.web: WebService | None = None
        """Where there is a listener for HTTP."""

    async def open(self, driver: Driver, network: Network, at: Endpoints) -> None:
        """ConfigError or Unavailable."""
        tls = server_context(network.security) if needs_tls(at) else None
        made: list[tuple[Listener, bool]] = []  # all of them first: what they import takes time
        for kind in LISTENER_KINDS:
            if (endpoint := at.listeners.get(kind.name)) is not None:
                protocol = self._web(driver, network).protocol if kind.protocol == "http" else None
                made.append((Listener(driver, kind, endpoint, protocol), kind.is_tls))
        for listener, is_tls in made:
            await listener.open(tls if is_tls else None)
            self._listeners.append(listener)

    def _web(self, driver: Driver, network: Network) -> "WebService":
        """Only where it is needed: most brokers have no HTTP listener for clients."""
        if self.web is None:
            from overlane.node.web.service import WebService

            self.web = WebService(driver, network.web)
        return self.web

    def closed(self) -> list[str]:
        """The names of those where no client can connect."""
        return [one.name for one in self._listeners if not one.is_open]

    async def prepare(self, tls: ssl.SSLContext | None) -> list[PreparedListener]:
        """Unavailable, and nothing has changed."""
        prepared: list[PreparedListener] = []
        try:
            for listener in self._listeners:
                if tls is not None and listener.is_secure:
                    prepared.append((listener, await listener.prepare(tls)))
        except Unavailable:
            abandon(prepared)
            raise
        return prepared

    async def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        if self.web is not None:
            await self.web.stop()


async def renew(prepared: Iterable[PreparedListener]) -> None:
    for listener, servers in prepared:
        await listener.renew(servers)


def abandon(prepared: Iterable[PreparedListener]) -> None:
    for _, servers in prepared:
        for server in servers:
            server.close()
