"""HTTP access: which requests an HTTP server for operators answers.

Without a token, it answers everyone who can connect; on a loopback address these are the users of the machine. So that
no web page reaches the server through the browser of such a user, it then accepts only requests whose host is an
address or localhost, and no requests from a page of another origin. With a token, it answers requests that carry the
token.

Some operations are for MQTT users too, who send their name and password: `credentials` reads them.
"""

import base64
import ipaddress
from dataclasses import dataclass

from starlette.requests import Request

from overlane.secret import Secret


@dataclass(frozen=True, slots=True)
class HttpRefusal:
    status: int
    why: str
    headers: dict[str, str] | None = None


def refusal(request: Request, token: Secret | None) -> HttpRefusal | None:
    """Why the request is not answered, if so."""
    if token is None:
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if not is_address(host):
            return HttpRefusal(421, "the host of a request must be an address or localhost where there is no token")
        if origin is not None and origin.partition("://")[2] != host:
            return HttpRefusal(403, "pages of another origin get nothing where there is no token")
        return None
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and Secret(given.strip().encode()) == token:
        return None
    return HttpRefusal(401, "this needs the token: Authorization: Bearer TOKEN", {"www-authenticate": "Bearer"})


def credentials(request: Request) -> tuple[str, Secret] | None:
    """The user and the password that the request gives, if it does."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, _, password = base64.b64decode(given.strip(), validate=True).decode().partition(":")
    except ValueError:
        return "", Secret(b"")
    return name, Secret(password.encode())


def is_address(host: str) -> bool:
    """Whether the host header is an address or localhost, and not a name that DNS could map to this machine."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if name.lower() in ("localhost", "localhost."):
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
