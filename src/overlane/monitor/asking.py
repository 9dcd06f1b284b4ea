"""Asking brokers, again and again: one connection to each admin API, kept open as long as it serves.

A broker that does not answer within its time is an answer too, with the reason. The requests are ours and the servers
are our brokers, so this speaks just as much HTTP/1.1 as they do: answers with a length, nothing chunked.
"""

import asyncio
from urllib.parse import quote, urlencode

import msgspec

from overlane.mqtt.secret import Secret
from overlane.network.schema import Endpoint
from overlane.node.views import ErrorView, GlanceView

PATIENCE_S = 3.0
ANSWER_BYTES_MAX = 16 * 2**20
HEAD_BYTES_MAX = 64 * 2**10


class NoAnswer(Exception):
    """Why a broker did not do what it was asked for."""


class Source:
    """One broker's admin API."""

    def __init__(self, endpoint: Endpoint, token: Secret | None) -> None:
        self._at = endpoint.dialled()
        authorization = f"Authorization: Bearer {token.reveal().decode()}\r\n" if token is not None else ""
        self._head = f"Host: {self._at}\r\n{authorization}"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turn = asyncio.Lock()

    async def glance(self, after: int) -> GlanceView:
        """Everything there is to see, with the events after one; NoAnswer."""
        body = await self.ask("GET", f"/glance?after={after}")
        try:
            return msgspec.json.decode(body, type=GlanceView)
        except msgspec.MsgspecError:
            raise NoAnswer("what listens there is no broker of this version") from None

    async def emulate(self, peer: str, conditions: dict[str, str]) -> None:
        """Let its direction of a link behave like this; NoAnswer."""
        await self.ask("PUT", f"/emulation/{quote(peer, safe='')}?{urlencode(conditions)}")

    async def heal(self, peer: str) -> None:
        await self.ask("DELETE", f"/emulation/{quote(peer, safe='')}")

    async def ask(self, method: str, path: str) -> bytes:
        """The body of a good answer; NoAnswer."""
        async with self._turn:
            was_open = self._streams is not None
            try:
                try:
                    status, body = await asyncio.wait_for(self._exchange(method, path), PATIENCE_S)
                except (ConnectionError, asyncio.IncompleteReadError):
                    if not was_open:
                        raise
                    # The broker closes connections that were idle for a while: that says nothing about it.
                    self.close()
                    status, body = await asyncio.wait_for(self._exchange(method, path), PATIENCE_S)
            except TimeoutError:
                self.close()
                raise NoAnswer(f"nothing came within {PATIENCE_S:g} s") from None
            except asyncio.IncompleteReadError:
                self.close()
                raise NoAnswer("the connection was closed") from None
            except OSError as error:
                self.close()
                raise NoAnswer(_reason(error)) from None
            except ValueError:
                self.close()
                raise NoAnswer("what listens there is no broker of this version") from None
            except asyncio.CancelledError:
                self.close()
                raise
        if status not in (200, 204):
            raise NoAnswer(_why(status, body))
        return body

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _exchange(self, method: str, path: str) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._at.host, self._at.port, limit=HEAD_BYTES_MAX)
        reader, writer = self._streams
        writer.write(f"{method} {path} HTTP/1.1\r\n{self._head}Content-Length: 0\r\n\r\n".encode())
        await writer.drain()
        status_line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        status = int(status_line.split(" ")[1])
        size = int(headers.get("content-length", "0"))
        if not 0 <= size <= ANSWER_BYTES_MAX:
            raise ValueError("an answer of such a size")
        body = await reader.readexactly(size)
        if headers.get("connection", "").lower() == "close":
            self.close()
        return status, body


class Round:
    """Asking all of them at once. One that takes its time holds up nobody: its answer comes with a later round."""

    def __init__(self, sources: dict[str, Source]) -> None:
        self._sources = sources
        self._asked: dict[str, asyncio.Task[GlanceView | str]] = {}

    async def answers(self, after: dict[str, int], within_s: float) -> dict[str, GlanceView | str]:
        """What has come within this time, from this round or an earlier one; or why nothing will."""
        for name in self._sources:
            if name not in self._asked:
                self._asked[name] = asyncio.create_task(self._ask(name, after[name]))
        await asyncio.wait(self._asked.values(), timeout=within_s)
        come = {name: task.result() for name, task in self._asked.items() if task.done()}
        for name in come:
            del self._asked[name]
        return come

    async def end(self) -> None:
        for task in self._asked.values():
            task.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)
        for source in self._sources.values():
            source.close()

    async def _ask(self, name: str, after: int) -> GlanceView | str:
        try:
            return await self._sources[name].glance(after)
        except NoAnswer as reason:
            return str(reason)


def _reason(error: OSError) -> str:
    """Of several addresses of a host, the last one's."""
    text = error.strerror or str(error)
    return "connection refused" if "refused" in text.lower() or "Connect call failed" in text else text.lower()


def _why(status: int, body: bytes) -> str:
    if status == 401:
        return "it asks for another token"
    try:
        return msgspec.json.decode(body, type=ErrorView).error
    except msgspec.MsgspecError:
        return f"HTTP status {status}"
