"""Asynchronous HTTP client of the admin API: one persistent connection to one broker.

A connection that the broker closed while it was idle is opened again. Both sides are ours, so only the HTTP/1.1 that
brokers speak is implemented: responses with a Content-Length, no chunks.
"""

import asyncio
from urllib.parse import quote, urlencode

import msgspec

from overlane.adminapi.client import NOT_A_BROKER, RequestFailed, authorization, error_message, timed_out
from overlane.adminapi.views import SnapshotView
from overlane.network.schema import Endpoint
from overlane.secret import Secret

TIMEOUT_S = 3.0
RESPONSE_BYTES_MAX = 16 * 2**20
HEAD_BYTES_MAX = 64 * 2**10


class AsyncAdminClient:
    def __init__(self, endpoint: Endpoint, token: Secret | None) -> None:
        self._at = endpoint.dialled()
        self._headers = "".join(
            f"{name}: {value}\r\n" for name, value in {"Host": str(self._at), **authorization(token)}.items()
        )
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._lock = asyncio.Lock()

    async def snapshot(self, after: int) -> SnapshotView:
        """Everything a monitor shows, with the events after the given number; RequestFailed."""
        body = await self.request("GET", f"/glance?after={after}")
        try:
            return msgspec.json.decode(body, type=SnapshotView)
        except msgspec.MsgspecError:
            raise RequestFailed(NOT_A_BROKER) from None

    async def emulate(self, peer: str, conditions: dict[str, str]) -> None:
        """Emulate conditions on the broker's direction of a link; RequestFailed."""
        await self.request("PUT", f"/emulation/{quote(peer, safe='')}?{urlencode(conditions)}")

    async def heal(self, peer: str) -> None:
        """End the emulation; RequestFailed."""
        await self.request("DELETE", f"/emulation/{quote(peer, safe='')}")

    async def request(self, method: str, target: str) -> bytes:
        """The body of a response with status 200 or 204; RequestFailed otherwise."""
        async with self._lock:
            was_open = self._streams is not None
            try:
                try:
                    async with asyncio.timeout(TIMEOUT_S):
                        status, body = await self._exchange(method, target)
                except (ConnectionError, asyncio.IncompleteReadError):
                    if not was_open:
                        raise
                    # The broker closes connections that were idle for a while; that is no failure.
                    self.close()
                    async with asyncio.timeout(TIMEOUT_S):
                        status, body = await self._exchange(method, target)
            except TimeoutError:
                self.close()
                raise RequestFailed(timed_out(TIMEOUT_S)) from None
            except asyncio.IncompleteReadError:
                self.close()
                raise RequestFailed("the connection was closed") from None
            except OSError as error:
                self.close()
                raise RequestFailed(_reason(error)) from None
            except ValueError:
                self.close()
                raise RequestFailed(NOT_A_BROKER) from None
            except asyncio.CancelledError:
                self.close()
                raise
        if status not in (200, 204):
            raise RequestFailed(error_message(status, body), status)
        return body

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _exchange(self, method: str, target: str) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._at.host, self._at.port, limit=HEAD_BYTES_MAX)
        reader, writer = self._streams
        writer.write(f"{method} {target} HTTP/1.1\r\n{self._headers}Content-Length: 0\r\n\r\n".encode())
        await writer.drain()
        status_line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        status = int(status_line.split(" ")[1])
        size = int(headers.get("content-length", "0"))
        if not 0 <= size <= RESPONSE_BYTES_MAX:
            raise ValueError(f"a response of {size} bytes; at most {RESPONSE_BYTES_MAX} are read")
        body = await reader.readexactly(size)
        if headers.get("connection", "").lower() == "close":
            self.close()
        return status, body


def _reason(error: OSError) -> str:
    """Where a host has several addresses, asyncio's own text names all of them."""
    text = error.strerror or str(error)
    return "connection refused" if "refused" in text.lower() or "Connect call failed" in text else text.lower()
