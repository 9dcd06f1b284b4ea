"""Reads [web]: who may use the HTTP listeners from a web page, and where callbacks may be."""

from ipaddress import ip_network
from urllib.parse import urlsplit

from overlane.network.schema import ANY_ORIGIN, Web
from overlane.network.syntax import kinds
from overlane.network.syntax.kinds import FieldKind
from overlane.network.syntax.table import Table

CONNECTIONS_MAX = 100_000


def read_web(table: Table) -> Web:
    default = Web()
    connections = kinds.integer(1, CONNECTIONS_MAX, f"a whole number from 1 to {CONNECTIONS_MAX}")
    web = Web(
        origins=table.many("origins", _origin()),
        url=table.optional("url", _url(), None),
        callback_networks=table.many("callback_networks", _network()),
        connections=table.optional("connections", connections, default.connections),
    )
    table.close()
    return web


def _origin() -> FieldKind[str]:
    def read(value: object) -> str:
        return ANY_ORIGIN if value == ANY_ORIGIN else _checked_origin(value)

    return FieldKind('an origin such as "https://app.example.com", or "*"', read, blank=ANY_ORIGIN)


def _url() -> FieldKind[str]:
    return FieldKind('scheme and host such as "https://events.example.com"', _checked_origin, blank="http://localhost")


def _network() -> FieldKind[str]:
    def read(value: object) -> str:
        return str(ip_network(_text(value)))

    return FieldKind('a network such as "10.0.0.0/8"', read, blank="127.0.0.0/8")


def _checked_origin(value: object) -> str:
    text = _text(value)
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or text != f"{parts.scheme}://{parts.netloc}":
        raise ValueError
    if "@" in parts.netloc:
        raise ValueError
    return text.lower()


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value
