"""The server of the admin API: HTTP in the event loop of the broker.

On a loopback address no authentication is needed unless the network file has a token; `http_access` decides.

It stops after all other parts of the broker, so that a shutdown can be observed.
"""

import logging
from collections.abc import Awaitable, Callable
from functools import cache
from http import HTTPStatus
from typing import Any, assert_never

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from overlane.adminapi import http_access
from overlane.adminapi.http_server import BODY_S, BodyTooLarge, BodyTooSlow, HttpServer, Receive, Send, read_body
from overlane.adminapi.views import ErrorView
from overlane.errors import Failure, InDoubt
from overlane.network.schema import Endpoint
from overlane.node.admin.openapi import document
from overlane.node.admin.operations import BODY, USER, Answer, BadAdminRequest, Operation, json_answer
from overlane.node.failures import Failures
from overlane.node.security.logins import Login, Logins
from overlane.pubsub.contract.questions import LOGIN_BUSY, LOGIN_UNAVAILABLE
from overlane.secret import Secret

CONNECTIONS_MAX = 100
BODY_BYTES_MAX = 16 << 20

log = logging.getLogger("overlane.admin")


class Admin:
    """`token` may be replaced while it serves."""

    def __init__(
        self,
        endpoint: Endpoint,
        operations: tuple[Operation, ...],
        token: Secret | None,
        logins: Callable[[], Logins | None] = lambda: None,
        failures: Failures | None = None,
    ) -> None:
        """`logins`: of the users of MQTT, as they are now."""
        self.token = token
        self._logins = logins
        self._failures = failures or Failures()
        self._operations = operations
        # When they are asked for: they take longer to make than the rest of a broker that takes over.
        self._openapi = cache(lambda: msgspec.json.encode(document(operations)))
        self._app = cache(self._make_app)
        always = [one.path for one in operations if one.is_open]
        server = HttpServer("admin", endpoint, self._serve, CONNECTIONS_MAX, always)
        self.start, self.stop = server.start, server.stop

    def _make_app(self) -> Starlette:
        routes = [Route(_path(one), self._answering(one), methods=[one.method]) for one in self._operations]
        routes.append(Route("/openapi.json", self._document, methods=["GET"]))
        return Starlette(routes=routes, exception_handlers={HTTPException: _misdirected})

    # Requests

    async def _serve(self, scope: Any, receive: Receive, send: Send) -> None:
        await self._app()(scope, receive, send)

    def _answering(self, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            asked = {**request.query_params, **request.path_params}
            given = http_access.credentials(request) if operation.is_for_users else None
            refusal = self._refusal(request, operation.is_open) if given is None else await self._unknown(*given)
            if refusal is not None:
                return refusal
            if operation.is_for_users:
                asked[USER] = "" if given is None else given[0]
            try:
                if operation.takes is not None:
                    asked[BODY] = await _body(request)
                return _response(await operation.call(asked))
            except BadAdminRequest as bad:
                return _wrong(400, str(bad))
            except BodyTooSlow:
                return _wrong(408, f"the body was not received within {BODY_S:g} s", {"connection": "close"})
            except ClientDisconnect:
                return _wrong(400, "the body is incomplete")  # to nobody
            except InDoubt as error:
                self._failures.fatal(f"{operation.method} {operation.path}", error)
            except Exception as error:
                # A defect of ours; it must not end more than this request.
                self._failures.isolated(Failure("admin", f"{operation.method} {operation.path}", error))
                return _wrong(500, "internal error of the broker; see its log")

        return answer

    async def _unknown(self, user: str, password: Secret) -> Response | None:
        """Why the user is not answered, if so."""
        logins = self._logins()
        login = Login.REFUSED if logins is None or not user else await logins.check(user, password)
        match login:
            case Login.ACCEPTED:
                return None
            case Login.BUSY:
                return _wrong(503, LOGIN_BUSY)
            case Login.UNAVAILABLE:
                return _wrong(503, LOGIN_UNAVAILABLE)
            case Login.REFUSED:
                log.warning("a request with a wrong user or password was refused")
                return _wrong(401, "unknown user or wrong password", {"www-authenticate": "Basic"})
            case _:
                assert_never(login)

    async def _document(self, request: Request) -> Response:
        return self._refusal(request, False) or _response(Answer(200, self._openapi()))

    def _refusal(self, request: Request, is_open: bool) -> Response | None:
        """Why the request is not answered, if so."""
        if is_open and self.token is not None:
            return None
        found = http_access.refusal(request, self.token)
        if found is None:
            return None
        if found.status == HTTPStatus.UNAUTHORIZED:
            client = request.client.host if request.client else "?"
            log.warning("a request without the token was refused, from %s", client)
        return _wrong(found.status, found.why, found.headers)


async def _body(request: Request) -> str:
    """BadAdminRequest if there is too much of it, before it is read."""
    try:
        return (await read_body(request, BODY_BYTES_MAX)).decode()
    except BodyTooLarge:
        raise BadAdminRequest(f"the body is larger than {BODY_BYTES_MAX} bytes") from None
    except UnicodeDecodeError:
        raise BadAdminRequest("the body is no UTF-8 text") from None


def _path(operation: Operation) -> str:
    """Identifiers of clients may have slashes in them."""
    return operation.path.replace("{id}", "{id:path}")


def _response(answer: Answer, headers: dict[str, str] | None = None) -> Response:
    return Response(answer.body, answer.status, headers, answer.content_type if answer.body else None)


def _wrong(status: int, error: str, headers: dict[str, str] | None = None) -> Response:
    return _response(json_answer(ErrorView(error=error), status), headers)


async def _misdirected(_: Request, error: Exception) -> Response:
    """No such path, or not with this method."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers) if error.headers else None
    return _wrong(error.status_code, f"{HTTPStatus(error.status_code).phrase.lower()}; see /openapi.json", headers)
