"""Reads [[dds]]: gateways to DDS domains."""

from collections.abc import Iterable, Sequence

from overlane.network.schema import DDS_FORMATS, DdsGateway
from overlane.network.syntax import kinds
from overlane.network.syntax.kinds import FieldKind
from overlane.network.syntax.table import Table

DOMAIN_MAX = 230


def read_dds(tables: Iterable[Table], names: Sequence[str], taken: Iterable[str]) -> tuple[DdsGateway, ...]:
    """`taken`: names of other gateways."""
    found: list[DdsGateway] = []
    known = set(taken)
    for table in tables:
        gateway = DdsGateway(
            name=table.required("name", kinds.name()),
            broker=table.required("broker", kinds.broker(names)),
            domain=table.optional("domain", kinds.integer(0, DOMAIN_MAX, f"a domain id from 0 to {DOMAIN_MAX}"), 0),
            topics=table.many("topics", _pattern()) or ("*",),
            prefix=table.optional("prefix", kinds.topic_name(), "dds"),
            format=table.optional("format", kinds.choice(DDS_FORMATS), DDS_FORMATS[0]),
        )
        if gateway.name and gateway.name in known:
            table.refuse("name", "a name of its own, and another gateway has this one")
        known.add(gateway.name)
        table.close()
        found.append(gateway)
    return tuple(found)


def _pattern() -> FieldKind[str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or not value or not value.isprintable():
            raise ValueError("not a pattern")
        return value

    return FieldKind('a DDS topic, or a pattern such as "plant_*"', read, blank="")
