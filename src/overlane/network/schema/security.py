"""Who may connect, and from where."""

import msgspec

from overlane.network.schema.choices import ClientCertificate
from overlane.network.schema.logins import LoginHook, Tokens


class Security(msgspec.Struct, frozen=True, kw_only=True):
    """Who may connect, and how brokers prove who they are. Files are paths; nothing secret stands in a network file."""

    anonymous: bool | None = None  # None: only clients on the same machine
    users: str | None = None
    certificate: str | None = None
    key: str | None = None
    client_ca: str | None = None
    client_certificate: ClientCertificate = "required"  # where there is a client_ca
    admin_token: str | None = None
    overlay_secret: str | None = None
    overlay_tls: bool = False  # with the same certificate and authority as clients
    overlay_open: bool = False  # whether a broker on another machine is believed its mere name
    jwt: Tokens | None = None
    hook: LoginHook | None = None


ANY_ORIGIN = "*"


class Web(msgspec.Struct, frozen=True, kw_only=True):
    """The listeners `http` and `http_tls`."""

    origins: tuple[str, ...] = ()
    """Of web pages that may use them besides pages of the broker's own host; "*" is every page."""
    url: str | None = None
    """Scheme and host under which subscribers reach the broker. None: as each request says."""
    callback_networks: tuple[str, ...] = ()
    """Where callbacks may be besides the public internet."""
    connections: int = 1_000
