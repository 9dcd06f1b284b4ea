"""Reads [security] and [[access]]: who may connect to the brokers, and who may publish and receive which topics.

Paths are joined to the directory of the file. Whether they are valid is checked by the code that opens them, since a
file that is only simulated needs none of them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from overlane.network.listeners import LISTENER_KINDS
from overlane.network.schema import CLIENT_CERTIFICATES, Broker, Security
from overlane.network.sections.logins import read_hook, read_tokens
from overlane.network.syntax import kinds
from overlane.network.syntax.kinds import FieldKind
from overlane.network.syntax.table import NOTHING, Table
from overlane.pubsub.access import Rule

T = TypeVar("T")

RULE_FIELDS = ("publish", "subscribe", "deny_publish", "deny_subscribe")


def read_security(table: Table, brokers: Sequence[Broker], directory: Path | None) -> Security:
    path = kinds.path(directory)
    security = Security(
        anonymous=table.optional("anonymous", kinds.flag(), None),
        users=table.optional("users", path, None),
        certificate=table.optional("certificate", path, None),
        key=table.optional("key", path, None),
        client_ca=table.optional("client_ca", path, None),
        client_certificate=table.optional(
            "client_certificate", kinds.choice(CLIENT_CERTIFICATES), Security().client_certificate
        ),
        admin_token=table.optional("admin_token", path, None),
        overlay_secret=table.optional("overlay_secret", path, None),
        overlay_tls=table.optional("overlay_tls", kinds.flag(), False),
        overlay_open=table.optional("overlay_open", kinds.flag(), False),
        jwt=_inner(table, "jwt", read_tokens, path),
        hook=_inner(table, "hook", read_hook, path),
    )
    table.close()
    if security.anonymous is False and not any(one in table for one in ("users", "client_ca", "jwt", "hook")):
        table.refuse(
            "anonymous", "true, or false with users, client_ca, jwt or hook; otherwise no client could connect"
        )
    if security.overlay_tls and "client_ca" not in table:
        table.refuse("overlay_tls", "true only with certificate, key and client_ca, by which neighbours are known")
    _require_together(table)
    for broker in brokers:
        _check_broker(table, broker)
    return security


def _inner(table: Table, field: str, read: Callable[[Table, FieldKind[str]], T], path: FieldKind[str]) -> T | None:
    """The table under this name, if there is one."""
    found = table.table(field)
    return read(found, path) if field in table else None


def read_access(tables: Iterable[Table]) -> Iterator[Rule]:
    for table in tables:
        rule = Rule(
            user=table.required("user", kinds.access_user()),
            publish=table.many("publish", kinds.access_pattern()),
            subscribe=table.many("subscribe", kinds.access_pattern()),
            deny_publish=table.many("deny_publish", kinds.access_pattern()),
            deny_subscribe=table.many("deny_subscribe", kinds.access_pattern()),
        )
        if not any(field in table for field in RULE_FIELDS):
            table.faults.add(
                table.path, NOTHING + " that it allows or denies", f"at least one of {', '.join(RULE_FIELDS)}"
            )
        table.close()
        yield rule


def _require_together(table: Table) -> None:
    for field, needed in (
        ("certificate", "key"),
        ("key", "certificate"),
        ("client_ca", "certificate"),
        ("client_certificate", "client_ca"),
    ):
        if field in table and needed not in table:
            table.faults.add((*table.path, needed), NOTHING, f"the path of a file, since there is {field}")


def _check_broker(table: Table, broker: Broker) -> None:
    """What an address of the broker's needs that the table does not have."""
    for kind in LISTENER_KINDS:
        if kind.is_tls and kind.name in broker.listeners and "certificate" not in table:
            found = f"{broker.listeners[kind.name]} without a certificate"
            table.faults.add(
                ("brokers", broker.name, kind.name), found, "an address where [security] has certificate and key"
            )
    if broker.admin is not None and not broker.admin.is_loopback() and "admin_token" not in table:
        table.faults.add(
            ("brokers", broker.name, "admin"),
            f"{broker.admin} without a token",
            'a loopback address such as "127.0.0.1:8001", or any where [security] has admin_token',
        )
