"""Reads [brokers.NAME]: addresses, listeners and properties of a broker."""

from collections.abc import Iterator
from itertools import combinations

from overlane.network.listeners import LISTENER_KINDS
from overlane.network.schema import BROKER_FAILURE, ROLES, Broker, Endpoint
from overlane.network.sections.items import capacity
from overlane.network.sections.overlay import read_uplinks
from overlane.network.syntax import kinds
from overlane.network.syntax.table import Table, show


def read_brokers(root: Table) -> Iterator[Broker]:
    name_kind = kinds.name()
    endpoint = kinds.endpoint()
    drift = kinds.number(-100_000.0, 100_000.0, "a number from -100000 to 100000")
    offset = kinds.duration(at_least_ns=-(2**63), allowed='a duration such as "5ms" or "-1.5s"')
    dialled: dict[Endpoint, str] = {}
    for name, table in root.named_tables("brokers"):
        try:
            name_kind.read(name)
        except ValueError:
            table.faults.add(table.path, show(name), name_kind.allowed)
        broker = Broker(
            name=name,
            failure=table.optional("failure", kinds.share(), BROKER_FAILURE),
            latitude=table.optional("latitude", kinds.number(-90.0, 90.0, "degrees from -90 to 90"), None),
            longitude=table.optional("longitude", kinds.number(-180.0, 180.0, "degrees from -180 to 180"), None),
            clock_offset_ns=table.optional("clock_offset", offset, 0),
            clock_drift_ppm=table.optional("clock_drift_ppm", drift, 0.0),
            listeners=_read_listeners(table, endpoint),
            overlay=table.optional("overlay", endpoint, None),
            admin=table.optional("admin", endpoint, None),
            reach=table.many("reach", endpoint) if "reach" in table else None,
            uplinks=read_uplinks(table),
            datagrams=table.optional("datagrams", kinds.flag(), True),
            domain=table.optional("domain", name_kind, None) or "",
            role=table.optional("role", kinds.choice(ROLES), ROLES[0]),
            capacity=table.optional("capacity", capacity, None),
        )
        _refuse_clashes(table, broker)
        # Two brokers may listen on the same address of two machines, but links find them by their overlay's.
        if broker.overlay is not None and not broker.overlay.is_wildcard():
            other = dialled.setdefault(broker.overlay, name)
            if other != name:
                table.refuse("overlay", f"an address of its own, and {other} has this one")
        table.close()
        yield broker


def _read_listeners(table: Table, endpoint: kinds.FieldKind[Endpoint]) -> dict[str, Endpoint]:
    given = {kind.name: table.optional(kind.name, endpoint, None) for kind in LISTENER_KINDS}
    return {name: at for name, at in given.items() if at is not None}


def _refuse_clashes(table: Table, broker: Broker) -> None:
    for (first, one), (second, other) in combinations(broker.addresses().items(), 2):
        if one.clashes(other):
            table.refuse(second, f"another address than {first}'s, which is {one}")
