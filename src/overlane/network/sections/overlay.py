"""Reads more of the overlay: emulation of links, different conditions of the reverse direction, uplinks, and borders of
domains.
"""

from collections.abc import Iterable, Iterator, Sequence

from overlane.core.federation import ANYONE
from overlane.core.requirements import DOMAIN_PREFIX
from overlane.membership.carrier import parse_carrier
from overlane.network.schema import QUEUE_BYTES, TRANSPORTS, Back, Border, Broker, Emulated, Link, Transport, Uplink
from overlane.network.syntax import kinds
from overlane.network.syntax.code_points import code_point
from overlane.network.syntax.kinds import FieldKind
from overlane.network.syntax.table import NOTHING, Table, show

UPLINKS_MAX = 8

_queue = kinds.size(at_least=1, allowed='a number of bytes above 0 such as 65536 or "256KiB"')


def read_emulation(table: Table, as_the_link: Emulated) -> Emulated | None:
    """`emulate` of a link: true means the values of the link itself, a table gives other values."""
    if not table.is_table("emulate"):
        return as_the_link if table.optional("emulate", kinds.flag(), False) else None
    inner = table.table("emulate")
    duration = kinds.duration()
    emulated = Emulated(
        latency_ns=inner.optional("latency", duration, 0),
        jitter_ns=inner.optional("jitter", duration, 0),
        loss=inner.optional("loss", kinds.share(), 0.0),
        rate_bps=inner.optional("rate", kinds.rate(), None),
    )
    inner.close()
    return emulated


def read_back(table: Table, there: Emulated, queue_bytes: int) -> Back | None:
    """`back` of a link: values of the reverse direction; others are those of the forward direction."""
    if "back" not in table:
        return None
    inner = table.table("back")
    back = Back(
        latency_ns=inner.optional("latency", kinds.duration(), there.latency_ns),
        jitter_ns=inner.optional("jitter", kinds.duration(), there.jitter_ns),
        loss=inner.optional("loss", kinds.share(), there.loss),
        rate_bps=inner.optional("rate", _rate_or_none(), there.rate_bps),
        queue_bytes=inner.optional("queue", _queue, queue_bytes),
    )
    inner.close()
    return back


def _rate_or_none() -> FieldKind[int | None]:
    rate = kinds.rate()

    def read(value: object) -> int | None:
        return None if value == "none" else rate.read(value)

    return FieldKind(f'{rate.allowed}, or "none"', read, blank=None)


def transport_kind() -> FieldKind[Transport]:
    choice = kinds.choice(TRANSPORTS)
    return FieldKind(
        f"{choice.allowed}, or an MQTT or AMQP broker that carries it and a prefix such as "
        '"mqtt://10.0.0.5:1883/overlane"',
        choice.read,
        choice.blank,
        choice.words,
    )


def read_carrier(table: Table) -> str | None:
    """`transport` of a link, where it is a broker that carries it."""
    value = table.given("transport")
    if not isinstance(value, str) or "://" not in value:
        return None
    try:
        parse_carrier(value)
    except ValueError:
        return None  # refused as a transport
    table.optional("transport", kinds.text(), None)
    return value


def read_dscp(table: Table, *, is_carried: bool) -> int:
    """`dscp` of a link: connections of its own are marked, not those with a broker that carries it."""
    found = table.optional("dscp", code_point(), 0)
    if found and is_carried:
        table.refuse("dscp", "no dscp where another broker carries the link")
    return found


def refuse_carriers(root: Table, links: Iterable[Link]) -> None:
    for index, link in enumerate(links):
        if link.carrier is not None:
            allowed = "a carrier only where [security] has overlay_secret, by which what it carries is sealed"
            root.faults.add(("links", index, "transport"), show(link.carrier), allowed)


def read_uplinks(broker: Table) -> tuple[Uplink, ...]:
    """[brokers.NAME.uplinks.UPLINK], in the order of the file."""
    name_kind = kinds.name()
    uplinks = []
    for name, table in broker.named_tables("uplinks"):
        try:
            name_kind.read(name)
        except ValueError:
            table.faults.add(table.path, show(name), name_kind.allowed)
        uplinks.append(
            Uplink(
                name=name,
                latency_ns=table.optional("latency", kinds.duration(), 0),
                jitter_ns=table.optional("jitter", kinds.duration(), 0),
                loss=table.optional("loss", kinds.share(), 0.0),
                rate_bps=table.optional("rate", kinds.rate(), None),
                queue_bytes=table.optional("queue", _queue, QUEUE_BYTES),
                interface=table.optional("interface", kinds.interface(), None),
            )
        )
        table.close()
    if len(uplinks) > UPLINKS_MAX:
        broker.refuse("uplinks", f"at most {UPLINKS_MAX} of them")
    return tuple(uplinks)


def read_federation(tables: Iterable[Table], brokers: Sequence[Broker]) -> Iterator[Border]:
    places = [one.name for one in brokers] + sorted({DOMAIN_PREFIX + (one.domain or one.name) for one in brokers})
    for table in tables:
        border = Border(
            broker=table.required("broker", _place(places, 'the name of a broker, or "domain:NAME"')),
            other=table.optional(
                "with", _place([*places, ANYONE], 'the name of a broker, "domain:NAME", or "*"'), ANYONE
            ),
            leave=table.many("leave", kinds.topic_filter()) if "leave" in table else None,
            enter=table.many("enter", kinds.topic_filter()) if "enter" in table else None,
        )
        if "leave" not in table and "enter" not in table:
            table.faults.add(table.path, NOTHING + " that may cross", "leave, enter or both")
        table.close()
        yield border


def _place(places: Sequence[str], allowed: str) -> FieldKind[str]:
    known = frozenset(places)

    def read(value: object) -> str:
        if not isinstance(value, str) or value not in known:
            raise ValueError("neither a broker nor a domain")
        return value

    return FieldKind(allowed, read, blank=places[-1] if places else "", words=places)
