"""Logins besides those of the users file: the tables [security.jwt] and [security.hook] of a network file."""

import msgspec

from overlane.quantities import SECOND


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """JSON Web Tokens that clients send as password."""

    keys: str
    """Path of a JSON Web Key Set."""
    issuer: str | None = None
    audience: str | None = None
    user_claim: str = "sub"
    leeway_ns: int = 30 * SECOND


class LoginHook(msgspec.Struct, frozen=True, kw_only=True):
    """A service that is asked by HTTP whether a client is who it says."""

    url: str
    ca: str | None = None
    """Path of the authorities that the service's certificate is checked by. None: those of the system."""
    timeout_ns: int = 2 * SECOND
    remember_ns: int = 60 * SECOND
    """How long a client that was accepted is accepted again without being asked about."""
