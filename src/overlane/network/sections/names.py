"""Reads [[names]]: names of topics in a domain, and in the overlay (`overlane.domain_names`)."""

from collections.abc import Iterable, Sequence

from overlane.domain_names import unclear
from overlane.network.schema import Broker, DomainName, Network
from overlane.network.syntax import kinds
from overlane.network.syntax.table import Table, show
from overlane.topic_names import NameRule, are_alike

_CANNOT = ("routing", "backup")


def read_names(tables: Iterable[Table], brokers: Sequence[Broker]) -> tuple[DomainName, ...]:
    read = [(table, _read(table)) for table in tables]
    for domain in dict.fromkeys(one.domain for _, one in read):
        _check_domain(domain, [(table, one) for table, one in read if one.domain == domain], brokers)
    return tuple(one for _, one in read)


def names_of(network: Network, broker: str) -> tuple[NameRule, ...]:
    """The rules of the domain of a broker; none where its topics have the names of the overlay. Brokers that pass
    messages on for all domains have no clients, whatever their domain is."""
    own = [one for one in network.brokers if one.name == broker and one.role not in _CANNOT]
    domains = {one.domain or one.name for one in own}
    return tuple(NameRule(one.local, one.overlay) for one in network.names if one.domain in domains)


def _read(table: Table) -> DomainName:
    kind = kinds.topic_filter()
    found = DomainName(
        domain=table.required("domain", kinds.name()),
        local=table.required("local", kind),
        overlay=table.required("overlay", kind),
    )
    table.close()
    if found.local and found.overlay:
        for field, value in (("local", found.local), ("overlay", found.overlay)):
            if value.startswith("$"):
                table.refuse(field, "a filter that does not begin with $")
        if not are_alike(found.local, found.overlay):
            allowed = f"a filter with the wildcards of overlay ({show(found.overlay)}) in the same order"
            table.refuse("local", allowed)
    return found


def _check_domain(domain: str, read: Sequence[tuple[Table, DomainName]], brokers: Sequence[Broker]) -> None:
    first, members = read[0][0], [one for one in brokers if (one.domain or one.name) == domain]
    if domain and brokers and not members:
        first.refuse("domain", "the domain of a broker of this file, or the name of a broker without one")
    for broker in members:
        if broker.role in _CANNOT:
            allowed = f"a domain without routing brokers, and {broker.name} is one"
            first.refuse("domain", allowed)
    if not all(one.local and one.overlay for _, one in read):
        return
    for earlier, later, side in unclear([NameRule(one.local, one.overlay) for _, one in read]):
        table, before = read[later][0], read[earlier][0]
        line = table.faults.line(before.path)
        found = f"{show(getattr(read[later][1], side))}, and line {line} has {show(getattr(read[earlier][1], side))}"
        allowed = "filters without a topic in common, or one narrower than the other"
        table.faults.add((*table.path, side), found, allowed)


def refuse_advertised(root: Table, network: Network) -> None:
    """Reservations know no names of domains."""
    for index, one in enumerate(network.advertisements):
        if names_of(network, one.broker):
            path = "advertisements", index, "broker"
            root.faults.add(path, show(one.broker), "a broker whose domain has no [[names]]")
