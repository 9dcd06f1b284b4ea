"""Reads [security.jwt] and [security.hook]."""

from urllib.parse import urlsplit

from overlane.core.units import MS, SECOND
from overlane.network.schema.logins import LoginHook, Tokens
from overlane.network.syntax import kinds
from overlane.network.syntax.kinds import FieldKind
from overlane.network.syntax.table import Table

HOUR_NS = 3_600 * SECOND


def read_tokens(table: Table, path: FieldKind[str]) -> Tokens:
    default = Tokens(keys="")
    leeway = kinds.duration(at_most_ns=HOUR_NS, allowed='a duration up to one hour, such as "30s"')
    tokens = Tokens(
        keys=table.required("keys", path),
        issuer=table.optional("issuer", _word(), None),
        audience=table.optional("audience", _word(), None),
        user_claim=table.optional("user_claim", _word(), default.user_claim),
        leeway_ns=table.optional("leeway", leeway, default.leeway_ns),
    )
    table.close()
    return tokens


def read_hook(table: Table, path: FieldKind[str]) -> LoginHook:
    default = LoginHook(url="")
    timeout = kinds.duration(
        at_least_ns=10 * MS, at_most_ns=30 * SECOND, allowed='a duration from 10 ms to 30 s, such as "2s"'
    )
    remember = kinds.duration(at_most_ns=24 * HOUR_NS, allowed='a duration up to one day, such as "60s"; "0s" is never')
    hook = LoginHook(
        url=table.required("url", url('a URL such as "http://127.0.0.1:8080/login", without a user')),
        ca=table.optional("ca", path, None),
        timeout_ns=table.optional("timeout", timeout, default.timeout_ns),
        remember_ns=table.optional("remember", remember, default.remember_ns),
    )
    table.close()
    return hook


def _word() -> FieldKind[str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or not value or not value.isprintable():
            raise ValueError
        return value

    return FieldKind("a string that is not empty", read, blank="")


def url(allowed: str) -> FieldKind[str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or not value.isascii() or not value.isprintable() or " " in value:
            raise ValueError
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.fragment:
            raise ValueError
        _ = parts.port  # ValueError if it is none
        return value

    return FieldKind(allowed, read, blank="http://localhost/")
