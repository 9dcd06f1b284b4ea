"""The page's server: static files, the stream of lines, and deeds.

    GET  /                 the page, and its modules and styles beside it: they hold nothing worth a token
    GET  /api/stream       the past as lines of JSON, then every change as it comes; of a recording, all of it
    POST /api/deeds/NAME   do something to the overlay; its parameters are a JSON object of strings

Nothing is fetched from other hosts, and the browser is told not to allow it. Who may ask is the gate's to say.
"""

import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from overlane.errors import Unavailable
from overlane.monitor.chaos import Chaos, Refused
from overlane.mqtt.secret import Secret
from overlane.network.schema import Endpoint
from overlane.node import gate
from overlane.node.httpserver import HttpServer

PAGE = Path(__file__).parent / "page"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
BODY_BYTES_MAX = 4_096
CONNECTIONS_MAX = 200

log = logging.getLogger("overlane.monitor")

Lines = Callable[[], AsyncIterator[bytes]]


class Server:
    """`chaos` is None where nothing may be done."""

    def __init__(self, endpoint: Endpoint, lines: Lines, chaos: Chaos | None, token: Secret | None) -> None:
        self._endpoint = endpoint
        self._lines = lines
        self._chaos = chaos
        self._token = token
        self._files = {path.name: path.read_bytes() for path in PAGE.iterdir() if path.suffix in TYPES}
        routes = [
            Route("/api/stream", self._stream, methods=["GET"]),
            Route("/api/deeds/{name}", self._deed, methods=["POST"]),
            Route("/{name}", self._file, methods=["GET"]),
            Route("/", self._file, methods=["GET"]),
        ]
        server = HttpServer("monitor", endpoint, Starlette(routes=routes), CONNECTIONS_MAX)
        self.start, self.stop = server.start, server.stop

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return f"http://{self._endpoint.dialled()}/"

    # Requests

    async def _file(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        content = self._files.get(name)
        if content is None:
            return _told(404, "there is no such file")
        return Response(content, 200, HEADERS, TYPES[Path(name).suffix])

    async def _stream(self, request: Request) -> Response:
        if (refused := self._refused(request)) is not None:
            return refused
        return StreamingResponse(self._lines(), 200, HEADERS, "application/x-ndjson")

    async def _deed(self, request: Request) -> Response:
        if (refused := self._refused(request)) is not None:
            return refused
        if self._chaos is None:
            return _told(403, "the monitor was started without --chaos: it only looks")
        try:
            # A form of another page cannot send this type without asking first.
            if request.headers.get("content-type", "").partition(";")[0] != "application/json":
                raise Refused("the parameters must be a JSON object")
            wanted = msgspec.json.decode(await _body(request), type=dict[str, str])
            await self._chaos.do(request.path_params["name"], wanted)
        except (Refused, msgspec.MsgspecError) as reason:
            return _told(400, str(reason))
        except Unavailable as reason:
            return _told(503, str(reason))
        except Exception:
            # A defect of ours; it must not end more than this request.
            log.exception("%s could not be done", request.path_params["name"])
            return _told(500, "the monitor could not do it; its log tells more")
        return Response(status_code=204, headers=HEADERS)

    def _refused(self, request: Request) -> Response | None:
        found = gate.refusal(request, self._token)
        return None if found is None else _told(found.status, found.why, found.headers)


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise Refused(f"more than {BODY_BYTES_MAX} bytes")
    return bytes(body)


def _told(status: int, error: str, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode({"error": error}), status, HEADERS | (headers or {}), "application/json")
