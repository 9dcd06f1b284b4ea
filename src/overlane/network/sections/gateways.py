"""Reads [[gateways]]: foreign brokers, and which topics cross to and from them under which names."""

import re
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, get_args

from overlane.network.schema import ADDRESS_SYNTAXES, MQTT_VERSIONS, SASL_MECHANISMS, Endpoint, Gateway, NameRule
from overlane.network.syntax import kinds
from overlane.network.syntax.kinds import FieldKind
from overlane.network.syntax.table import NOTHING, Table, show
from overlane.topic_names import DIRECTIONS, ambiguities, are_alike, overlaps

Technology: TypeAlias = Literal["mqtt", "nats", "amqp", "kafka"]
TECHNOLOGIES: tuple[Technology, ...] = get_args(Technology)
RATE_MAX = 10**7
ADDRESSES_MAX = 16
QOS_MAX = 2
_KAFKA_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

_SCHEMES: dict[str, tuple[Technology, bool, int]] = {
    "mqtt": ("mqtt", False, 1883),
    "mqtts": ("mqtt", True, 8883),
    "nats": ("nats", False, 4222),
    "tls": ("nats", True, 4222),
    "amqp": ("amqp", False, 5672),
    "amqps": ("amqp", True, 5671),
    "kafka": ("kafka", False, 9092),
    "kafkas": ("kafka", True, 9093),
}


class ForeignAddress(NamedTuple):
    """Where a foreign broker is, and what it speaks."""

    technology: Technology
    is_tls: bool
    endpoints: tuple[Endpoint, ...]


def foreign_address(url: str) -> ForeignAddress:
    """ValueError if it is none."""
    scheme, _, rest = url.partition("://")
    if scheme not in _SCHEMES:
        raise ValueError("unknown scheme")
    technology, is_tls, port = _SCHEMES[scheme]
    parts = rest.split(",")
    if len(parts) > ADDRESSES_MAX:
        raise ValueError("too many addresses")
    one = kinds.endpoint()
    return ForeignAddress(
        technology, is_tls, tuple(one.read(part if _has_port(part) else f"{part}:{port}") for part in parts)
    )


def read_gateways(tables: Iterable[Table], names: Sequence[str], directory: Path | None) -> tuple[Gateway, ...]:
    read = [(table, _read_gateway(table, names, directory)) for table in tables]
    for (_, one), (table, other) in combinations(read, 2):
        if one.name and one.name == other.name:
            table.refuse("name", "a name of its own, and another gateway has this one")
        _check_pair(one, other, table)
    return tuple(gateway for _, gateway in read)


def _read_gateway(table: Table, names: Sequence[str], directory: Path | None) -> Gateway:
    path = kinds.path(directory)
    default = Gateway(name="", broker="", to="")
    rate = kinds.or_none(kinds.integer(1, RATE_MAX, f"messages a second from 1 to {RATE_MAX}"), 0)
    gateway = Gateway(
        name=table.required("name", kinds.name()),
        broker=table.required("broker", kinds.broker(names)),
        to=table.required("to", _foreign()),
        topics=tuple(_read_rule(inner) for inner in table.tables("topics")),
        version=table.optional("version", kinds.choice(MQTT_VERSIONS), default.version),
        qos=table.optional("qos", kinds.integer(0, QOS_MAX, "0, 1 or 2"), default.qos),
        backlog_rate=table.optional("backlog_rate", rate, 1_000) or None,
        stream=table.optional("stream", kinds.name(), None),
        address=table.optional("address", _template(), default.address),
        syntax=table.optional("syntax", kinds.choice(ADDRESS_SYNTAXES), default.syntax),
        queue=table.optional("queue", _address(), None),
        user=table.optional("user", _user(), None),
        password_file=table.optional("password_file", path, None),
        sasl=table.optional("sasl", kinds.choice(SASL_MECHANISMS), default.sasl),
        ca=table.optional("ca", path, None),
        certificate=table.optional("certificate", path, None),
        key=table.optional("key", path, None),
        overlay_user=table.optional("overlay_user", _user(), None),
        overlay_password_file=table.optional("overlay_password_file", path, None),
    )
    table.close()
    _check(gateway, table)
    return gateway


def _read_rule(table: Table) -> NameRule:
    kind = kinds.topic_filter()
    overlay = table.required("overlay", kind)
    rule = NameRule(
        local=table.optional("local", kind, None) or overlay,
        overlay=overlay,
        direction=table.optional("direction", kinds.choice(DIRECTIONS), DIRECTIONS[0]),
    )
    table.close()
    if rule.overlay and rule.local:
        if not are_alike(rule.local, rule.overlay):
            table.refuse("local", f"a filter with the wildcards of overlay ({show(rule.overlay)}) in the same order")
        elif rule.overlay.startswith("$"):
            table.refuse("overlay", "a filter that does not begin with $")
        elif rule.local.startswith("$") and rule.direction != "in":
            table.refuse("local", 'a filter that does not begin with $, except with direction = "in"')
    return rule


def _check(gateway: Gateway, table: Table) -> None:
    rules = gateway.topics
    if not rules:
        table.faults.add((*table.path, "topics"), NOTHING, "at least one table [[gateways.topics]]")
    if all(rule.local and rule.overlay for rule in rules):
        for first, second, side in ambiguities(rules):
            line = table.faults.line((*table.path, "topics", first))
            found = f"{show(getattr(rules[second], side))}, and line {line} has {show(getattr(rules[first], side))}"
            path = (
                *table.path,
                "topics",
                second,
                side if side == "overlay" or rules[second].local != rules[second].overlay else "overlay",
            )
            table.faults.add(path, found, "filters that have no topic in common, so that each name has one translation")
    if not gateway.to:
        return
    _check_technology(gateway, table)
    for field, needed in (("certificate", "key"), ("key", "certificate"), ("password_file", "user")):
        if field in table and needed not in table:
            table.faults.add((*table.path, needed), NOTHING, f"a value, since there is {field}")


_ONLY: dict[str, tuple[Technology, str]] = {
    "version": ("mqtt", "MQTT broker"),
    "stream": ("nats", "NATS server"),
    "address": ("amqp", "AMQP broker"),
    "syntax": ("amqp", "AMQP broker"),
    "queue": ("amqp", "AMQP broker"),
    "sasl": ("kafka", "Kafka cluster"),
}
"""Fields that only one technology has."""


def _check_technology(gateway: Gateway, table: Table) -> None:
    technology = foreign_address(gateway.to).technology
    for field, (its, called) in _ONLY.items():
        if field in table and technology != its:
            table.refuse(field, f"nothing where to is no {called}")
    if technology == "kafka":
        for index, rule in enumerate(gateway.topics):
            if rule.local and not _KAFKA_TOPIC.fullmatch(rule.local.split("/")[0]):
                allowed = "a filter that begins with a topic of Kafka such as readings/#"
                table.faults.add((*table.path, "topics", index, "local"), show(rule.local), allowed)
    if gateway.qos > 1 and (technology != "mqtt" or gateway.version != "5"):
        table.refuse("qos", "0 or 1; 2 only to brokers with MQTT 5")


def _check_pair(one: Gateway, other: Gateway, table: Table) -> None:
    """Messages of MQTT 3.1.1 have no properties: a message that one gateway sends there is a new one to the other."""
    if not one.to or not other.to or not has_same_peer(one, other) or "3.1.1" not in (one.version, other.version):
        return
    for ours, others in ((one, other), (other, one)):
        for out in ours.topics:
            for into in others.topics:
                if out.direction != "in" and into.direction != "out" and overlaps(out.local, into.local):
                    found = f'"3.1.1", and gateway {one.name} is connected to the same broker'
                    allowed = '"5", or topics that do not overlap: MQTT 3.1.1 cannot mark messages that come back'
                    table.faults.add((*table.path, "version"), found, allowed)
                    return


def has_same_peer(one: Gateway, other: Gateway) -> bool:
    """Whether two gateways are connected to the same foreign broker, as far as their addresses tell."""
    ours, its = foreign_address(one.to), foreign_address(other.to)
    return ours.technology == its.technology and not set(ours.endpoints).isdisjoint(its.endpoints)


def _foreign() -> FieldKind[str]:
    def read(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError
        foreign_address(value)
        return value

    shown = ", ".join(f"{scheme}://" for scheme in _SCHEMES)
    return FieldKind(f'an address such as "mqtt://10.0.0.5:1883", with {shown}', read, blank="")


def _address() -> FieldKind[str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or not value or not value.isprintable():
            raise ValueError
        return value

    return FieldKind('an address such as "/queue/overlane"', read, blank="")


def _template() -> FieldKind[str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or value.count("{}") != 1 or not value.isprintable():
            raise ValueError
        return value

    return FieldKind('an address with {} in the place of the name, such as "/topic/{}"', read, blank="{}")


def _user() -> FieldKind[str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or not value or not value.isprintable():
            raise ValueError
        return value

    return FieldKind("the name of a user", read, blank="")


def _has_port(address: str) -> bool:
    return address.rpartition(":")[2].isdigit() and not address.endswith("]")
