"""HTTP server for operators, inside an event loop that has other work.

It binds its address before it serves anything, leaves signals to others, and stops without delay.

Unauthenticated clients cannot make it hold much memory, or block other clients:

    head        of each request must arrive within HEAD_S, and is limited in bytes
    body        must arrive within BODY_S (`read_body`); the connection is closed soon after that
    response    is dropped if the client reads nothing of it for STALL_S
    number      of connections is limited, in total and per address: beyond that, a new connection replaces the oldest
                one that waits for a request
    reserve     if all connections are busy with requests, a few more are accepted for the paths that are always
                answered (health); there too a new connection replaces the oldest
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, MutableMapping
from contextlib import contextmanager
from time import monotonic
from typing import Any

import uvicorn
from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from overlane.binding import bound
from overlane.errors import OverlaneError
from overlane.network.schema import Endpoint

HEAD_S = 10.0
BODY_S = 30.0
STALL_S = 30.0
RESERVE_HEAD_S = 2.0
GRACE_S = 2.0
"""How long a connection lasts after the time limit of a body: enough for the error response."""
LOOK_EVERY_S = 1.0
RESERVE_MAX = 32
ADDRESS_PART = 2
"""One address gets this part of all connections at most: a half."""
HEAD_BYTES_MAX = 16 * 1024
END_S = 1
"""How long answers that are being given may take in the end."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]


class BodyTooLarge(OverlaneError):
    """More bytes than are taken."""

    error_code = "OVL-115"


class BodyTooSlow(OverlaneError):
    """Not all of it came in time."""

    error_code = "OVL-215"


async def read_body(request: Request, bytes_max: int) -> bytes:
    """BodyTooLarge before more than that is kept, BodyTooSlow; ClientDisconnect if the client does not wait for it."""
    found = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                found += part
                if len(found) > bytes_max:
                    raise BodyTooLarge
    except TimeoutError:
        raise BodyTooSlow from None
    return bytes(found)


class HttpServer:
    """`name`: of its address, for people. `always`: paths that are answered though too many connect."""

    def __init__(
        self, name: str, endpoint: Endpoint, app: App, connections_max: int, always: Collection[str] = ()
    ) -> None:
        self._name = name
        self._endpoint = endpoint
        self._connections_max = connections_max
        slots = ConnectionSlots(connections_max, RESERVE_MAX if always else 0)
        self._server = _Server(server_config(app, _bounded(slots, frozenset(always))))
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serve; Unavailable if the address cannot be had."""
        sockets = await bound(self._name, self._endpoint, self._connections_max + RESERVE_MAX)
        self._task = asyncio.create_task(self._server.serve(sockets))
        self._task.add_done_callback(self._look_at_end)

    async def stop(self) -> None:
        if self._task is not None:
            self._server.should_exit = True
            await self._task

    def _look_at_end(self, task: "asyncio.Task[None]") -> None:
        """Report a server that ends unexpectedly to the exception handler of the loop."""
        if not task.cancelled() and (error := task.exception()) is not None:
            context = {"message": f"the server of the {self._name} address has ended", "exception": error}
            task.get_loop().call_exception_handler(context)


def server_config(app: App, connection: type[H11Protocol]) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        interface="asgi3",
        loop="none",
        http=connection,
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


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are handled by the owner of the server."""
        yield


class ConnectionSlots:
    """The connections of a server; reserve slots are only for paths that are always answered."""

    def __init__(self, connections_max: int, reserve_max: int) -> None:
        self._connections_max = connections_max
        self._address_max = max(1, connections_max // ADDRESS_PART)
        self._reserve_max = reserve_max
        self._regular: dict[BoundedHttpConnection, str] = {}
        self._reserve: dict[BoundedHttpConnection, None] = {}

    def take(self, one: "BoundedHttpConnection", address: str) -> bool:
        """Take a slot for a new connection; False if there is none."""
        of_address = [other for other, at in self._regular.items() if at == address]
        if len(of_address) >= self._address_max:
            is_free = self._is_freed(of_address)
        else:
            is_free = len(self._regular) < self._connections_max or self._is_freed(list(self._regular))
        if is_free:
            self._regular[one] = address
            return True
        if not self._reserve_max:
            return False
        if len(self._reserve) >= self._reserve_max:
            self._dismiss(next(iter(self._reserve)))
        self._reserve[one] = None
        return True

    def is_reserve(self, one: "BoundedHttpConnection") -> bool:
        return one in self._reserve

    def leave(self, one: "BoundedHttpConnection") -> None:
        self._regular.pop(one, None)
        self._reserve.pop(one, None)

    def _is_freed(self, among: "list[BoundedHttpConnection]") -> bool:
        """Close the oldest connection that waits for a request; whether there was one."""
        idle = next((one for one in among if one.waits_for_request), None)
        if idle is not None:
            self._dismiss(idle)
        return idle is not None

    def _dismiss(self, one: "BoundedHttpConnection") -> None:
        self.leave(one)
        one.transport.abort()


class BoundedHttpConnection(H11Protocol):
    """A connection with limits. `slots` and `always` are the server's."""

    slots: ConnectionSlots
    always: frozenset[str]
    _timer: asyncio.TimerHandle | None = None
    _phase = ""
    _since_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = transport.get_extra_info("peername")
        if not self.slots.take(self, str(address[0]) if isinstance(address, tuple) else "?"):
            transport.abort()
            return
        if self.slots.is_reserve(self):
            self.app = _only(self.app, self.always)
        self._since_s = monotonic()
        self._timer = self.loop.call_later(LOOK_EVERY_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.slots.leave(self)
        super().connection_lost(exc)

    @property
    def waits_for_request(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _look(self) -> None:
        if self.transport.is_closing():
            return
        if self.waits_for_request:
            phase, most_s = "head", RESERVE_HEAD_S if self.slots.is_reserve(self) else HEAD_S
        elif self.flow.write_paused:
            phase, most_s = "stalled", STALL_S
        elif self.cycle.more_body and not self.cycle.response_started:
            phase, most_s = "body", BODY_S + GRACE_S
        else:
            phase, most_s = "", 0.0
        now_s = monotonic()
        if phase != self._phase:
            self._phase, self._since_s = phase, max(self._since_s, now_s - LOOK_EVERY_S)
        if phase and now_s - self._since_s > most_s:
            self.transport.abort()
            return
        self._timer = self.loop.call_later(LOOK_EVERY_S, self._look)


def _bounded(its_slots: ConnectionSlots, its_always: frozenset[str]) -> type[H11Protocol]:
    class BoundedByServer(BoundedHttpConnection):
        slots = its_slots
        always = its_always

    return BoundedByServer


def _only(app: App, paths: Collection[str]) -> App:
    """Answers these paths, and 503 to everything else."""

    async def answer(scope: Any, receive: Receive, send: Send) -> None:
        if scope["path"] in paths:
            await app(scope, receive, send)
            return
        headers = [(b"content-type", b"application/json"), (b"connection", b"close"), (b"retry-after", b"1")]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"error":"too many connections"}'})

    return answer
