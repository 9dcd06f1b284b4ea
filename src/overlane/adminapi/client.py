"""Blocking HTTP client of the admin API: one request per connection.

Standard library only: a command that calls a broker should not need more than a broker does.
"""

import http.client
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import msgspec

from overlane.adminapi.views import ErrorView
from overlane.errors import OverlaneError
from overlane.network.schema import Endpoint
from overlane.secret import Secret

TIMEOUT_S = 3.0
RESPONSE_BYTES_MAX = 64 * 2**20

NOT_A_BROKER = "the response is not from a broker of this version"
_ERRORS = msgspec.json.Decoder(ErrorView)
"""Made here, since requests run in threads: msgspec is not safe while it looks at the fields of a type."""


class RequestFailed(OverlaneError):
    """Why a request failed. `status`: of the HTTP response; None if there was none, or none that makes sense."""

    error_code = "OVL-211"

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


def request(
    endpoint: Endpoint,
    method: str,
    target: str,
    *,
    token: Secret | None = None,
    body: bytes | None = None,
    timeout_s: float = TIMEOUT_S,
    connecting: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> bytes:
    """The body of a response with status 200 or 204; RequestFailed otherwise.

    `connecting` is entered while the connection is made, for example to make it in another network namespace.
    """
    at = endpoint.dialled()
    connection = http.client.HTTPConnection(at.host, at.port, timeout=timeout_s)
    try:
        with connecting():
            connection.connect()
        connection.request(method, target, body, authorization(token))
        response = connection.getresponse()
        content = response.read(RESPONSE_BYTES_MAX)
    except TimeoutError:
        raise RequestFailed(timed_out(timeout_s)) from None
    except OSError as error:
        raise RequestFailed((error.strerror or str(error)).lower()) from None
    except http.client.HTTPException:
        raise RequestFailed(NOT_A_BROKER) from None
    finally:
        connection.close()
    if response.status not in (200, 204):
        raise RequestFailed(error_message(response.status, content), response.status)
    return content


def authorization(token: Secret | None) -> dict[str, str]:
    """The header that carries the token."""
    return {} if token is None else {"Authorization": f"Bearer {token.reveal().decode()}"}


def error_message(status: int, body: bytes) -> str:
    """The reason that a response with an error status gives."""
    if status == 401:
        return "the admin token is missing or wrong"
    try:
        return _ERRORS.decode(body).error
    except msgspec.MsgspecError:
        return f"HTTP status {status}"


def timed_out(timeout_s: float) -> str:
    return f"no response within {timeout_s:g} s"
