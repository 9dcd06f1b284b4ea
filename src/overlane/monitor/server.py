"""HTTP server of the monitor: static files, the stream of deltas, and actions.

    GET  /                 the page, its modules and styles; these need no token
    GET  /api/stream       the history as lines of JSON, then every new delta; of a recording, all of it
    POST /api/deeds/NAME   carry out an action; parameters are a JSON object of strings

The page loads nothing from other hosts, and the headers forbid it. `http_access` decides which requests are authorized.
"""

import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from overlane.adminapi import http_access
from overlane.adminapi.http_server import BODY_S, BodyTooLarge, BodyTooSlow, HttpServer, read_body
from overlane.errors import Unavailable
from overlane.monitor.chaos import Chaos, InvalidAction
from overlane.network.schema import Endpoint
from overlane.secret import Secret

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


class MonitorServer:
    """`chaos` is None if actions are not allowed."""

    def __init__(self, endpoint: Endpoint, lines: Lines, chaos: Chaos | None, token: Secret | None) -> None:
        self._endpoint = endpoint
        self._lines = lines
        self._chaos = chaos
        self._token = token
        self._files = {path.name: path.read_bytes() for path in PAGE.iterdir() if path.suffix in TYPES}
        routes = [
            Route("/api/stream", self._stream, methods=["GET"]),
            Route("/api/deeds/{name}", self._action, methods=["POST"]),
            Route("/{name}", self._file, methods=["GET"]),
            Route("/", self._file, methods=["GET"]),
        ]
        server = HttpServer("monitor", endpoint, Starlette(routes=routes), CONNECTIONS_MAX)
        self.start, self.stop = server.start, server.stop

    @property
    def address(self) -> str:
        """URL of the page."""
        return f"http://{self._endpoint.dialled()}/"

    # Requests

    async def _file(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        content = self._files.get(name)
        if content is None:
            return _error(404, "no such file")
        return Response(content, 200, HEADERS, TYPES[Path(name).suffix])

    async def _stream(self, request: Request) -> Response:
        if (rejected := self._rejection(request)) is not None:
            return rejected
        return StreamingResponse(self._lines(), 200, HEADERS, "application/x-ndjson")

    async def _action(self, request: Request) -> Response:
        if (rejected := self._rejection(request)) is not None:
            return rejected
        if self._chaos is None:
            return _error(403, "the monitor was started without --chaos: actions are disabled")
        try:
            # A form of another origin cannot send this type without a CORS preflight.
            if request.headers.get("content-type", "").partition(";")[0] != "application/json":
                raise InvalidAction("the parameters must be a JSON object")
            wanted = msgspec.json.decode(await _body(request), type=dict[str, str])
            await self._chaos.do(request.path_params["name"], wanted)
        except (InvalidAction, msgspec.MsgspecError) as reason:
            return _error(400, str(reason))
        except Unavailable as reason:
            return _error(503, str(reason))
        except Exception:
            # A bug; it must affect only this request.
            log.exception("action %s failed", request.path_params["name"])
            return _error(500, "internal error; see the log of the monitor")
        return Response(status_code=204, headers=HEADERS)

    def _rejection(self, request: Request) -> Response | None:
        found = http_access.refusal(request, self._token)
        return None if found is None else _error(found.status, found.why, found.headers)


async def _body(request: Request) -> bytes:
    try:
        return await read_body(request, BODY_BYTES_MAX)
    except BodyTooLarge:
        raise InvalidAction(f"the body has more than {BODY_BYTES_MAX} bytes") from None
    except BodyTooSlow:
        raise InvalidAction(f"the body did not arrive within {BODY_S:g} s") from None
    except ClientDisconnect:
        raise InvalidAction("the body is incomplete") from None


def _error(status: int, error: str, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode({"error": error}), status, HEADERS | (headers or {}), "application/json")
