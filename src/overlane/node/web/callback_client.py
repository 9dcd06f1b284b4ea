"""Requests to callbacks, guarded against reaching inside.

The name of a callback is resolved once. All of its addresses have to be allowed (`callback_address`), and the request
goes to one of those that were checked, so that a name that changes in between gains nothing. Redirects are not
followed. A response is read as far as it is needed, and the whole exchange has a time limit.
"""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from ipaddress import ip_network
from typing import NamedTuple

import h11

from overlane.errors import Unavailable
from overlane.web.callback_address import Network, is_allowed, split_callback

WITHIN_S = 10.0
RESPONSE_BYTES_MAX = 4_096
USER_AGENT = "overlane"


class CallbackResponse(NamedTuple):
    status: int
    body: bytes


class CallbackClient:
    def __init__(self, networks: Sequence[str]) -> None:
        self._networks: tuple[Network, ...] = tuple(map(ip_network, networks))
        self._tls: ssl.SSLContext | None = None

    async def request(
        self, method: str, url: str, target: str, headers: Sequence[tuple[str, str]] = (), body: bytes = b""
    ) -> CallbackResponse:
        """Unavailable if there is no response, or none may be asked for."""
        try:
            async with asyncio.timeout(WITHIN_S):
                return await self._exchange(method, url, target, headers, body)
        except TimeoutError:
            raise Unavailable(url[:100], f"no response within {WITHIN_S:g} s") from None
        except (OSError, h11.ProtocolError, EOFError) as error:
            raise Unavailable(url[:100], str(error) or type(error).__name__) from None

    async def _exchange(
        self, method: str, url: str, target: str, headers: Sequence[tuple[str, str]], body: bytes
    ) -> CallbackResponse:
        parts, host, port = split_callback(url)
        address = await self._resolved(url, host, port)
        tls = self._context() if parts.scheme == "https" else None
        reader, writer = await asyncio.open_connection(
            address, port, ssl=tls, server_hostname=host if tls is not None else None
        )
        try:
            connection = h11.Connection(h11.CLIENT)
            head = h11.Request(
                method=method,
                target=target,
                headers=[
                    ("host", parts.netloc),
                    ("user-agent", USER_AGENT),
                    ("accept", "*/*"),
                    ("connection", "close"),
                    ("content-length", str(len(body))),
                    *headers,
                ],
            )
            writer.write(connection.send(head) or b"")
            writer.write(connection.send(h11.Data(data=body)) or b"")
            writer.write(connection.send(h11.EndOfMessage()) or b"")
            await writer.drain()
            return await _response(connection, reader)
        finally:
            writer.transport.abort()

    async def _resolved(self, url: str, host: str, port: int) -> str:
        """An address of the host; Unavailable if one of its addresses is not allowed."""
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [str(one[4][0]) for one in found]
        refused = [one for one in addresses if not is_allowed(one, self._networks)]
        if refused or not addresses:
            told = f"{', '.join(refused) or 'no address'} is not allowed; see callback_networks in [web]"
            raise Unavailable(url[:100], told)
        return addresses[0]

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


async def _response(connection: h11.Connection, reader: asyncio.StreamReader) -> CallbackResponse:
    status, body = 0, bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(RESPONSE_BYTES_MAX))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > RESPONSE_BYTES_MAX:
                return CallbackResponse(status, bytes(body[:RESPONSE_BYTES_MAX]))
        elif isinstance(event, h11.EndOfMessage):
            return CallbackResponse(status, bytes(body))
        elif isinstance(event, h11.ConnectionClosed):
            raise EOFError("the connection was closed without a response")
