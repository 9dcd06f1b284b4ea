"""Reading what only brokers that run need of their overlay: emulated links, and the borders of domains."""

from collections.abc import Iterable, Iterator, Sequence

from overlane.core.federation import ANYONE
from overlane.network import kinds
from overlane.network.kinds import Kind
from overlane.network.schema import Border, Emulated
from overlane.network.table import NOTHING, Table


def read_emulation(table: Table, as_the_link: Emulated) -> Emulated | None:
    """`emulate` of a link: true is as the link itself says, a table says it all anew."""
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


def read_federation(tables: Iterable[Table], names: Sequence[str]) -> Iterator[Border]:
    for table in tables:
        border = Border(
            broker=table.required("broker", kinds.broker(names)),
            other=table.optional("with", _anyone(names), ANYONE),
            leave=table.many("leave", kinds.topic_filter()) if "leave" in table else None,
            enter=table.many("enter", kinds.topic_filter()) if "enter" in table else None,
        )
        if "leave" not in table and "enter" not in table:
            table.faults.add(table.path, NOTHING + " that may cross", "leave, enter or both")
        table.close()
        yield border


def _anyone(names: Sequence[str]) -> Kind[str]:
    known = frozenset((*names, ANYONE))

    def read(value: object) -> str:
        if not isinstance(value, str) or value not in known:
            raise ValueError("neither a broker nor *")
        return value

    return Kind('the name of a broker, or "*"', read, blank=ANYONE, words=names)
