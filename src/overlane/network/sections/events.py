"""Reads [[events]]: the events of a simulation, and their times.

An event has a time and exactly one action, which is the name of a field: `crash = "denver"`. Some actions have
parameters: `slow = ["seattle", "denver"]` with `latency = "80ms"`.
"""

from collections.abc import Iterable, Sequence

from overlane.network.schema import (
    Broker,
    Crash,
    Cut,
    Ends,
    Event,
    Heal,
    Join,
    Leave,
    Link,
    Lossy,
    Partition,
    Plug,
    Restart,
    Slow,
    Unplug,
)
from overlane.network.syntax import kinds
from overlane.network.syntax.kinds import FieldKind
from overlane.network.syntax.table import NOTHING, Table

HAPPENINGS = ("slow", "loss", "cut", "partition", "heal", "crash", "restart", "leave", "join", "unplug", "plug")


def read_events(tables: Iterable[Table], brokers: Sequence[Broker], links: Iterable[Link]) -> tuple[Event, ...]:
    """All events, by time; those of the same time in the order of the file."""
    names = tuple(broker.name for broker in brokers)
    joined = frozenset(frozenset(link.ends) for link in links)
    link = _existing_link(names, joined)
    uplink = _existing_uplink(brokers)
    events = [event for table in tables if (event := _event(table, names, link, uplink)) is not None]
    return tuple(sorted(events, key=lambda event: event.at_ns))


def _event(table: Table, names: Sequence[str], link: FieldKind[Ends], uplink: FieldKind[Ends]) -> Event | None:
    at_ns = table.required("at", kinds.duration())
    happening = _happening(table)
    event: Event | None
    match happening:
        case "slow":
            event = Slow(at_ns, table.required("slow", link), table.required("latency", kinds.duration()))
        case "loss":
            event = Lossy(at_ns, table.required("loss", link), table.required("rate", kinds.share()))
        case "cut":
            event = Cut(at_ns, table.required("cut", link))
        case "partition":
            event = Partition(at_ns, table.required("partition", kinds.group(names)))
        case "heal":
            event = Heal(at_ns, table.required("heal", _link_or_all(link)))
        case "crash":
            event = Crash(at_ns, table.required("crash", kinds.broker(names)))
        case "restart":
            event = Restart(at_ns, table.required("restart", kinds.broker(names)))
        case "leave":
            event = Leave(at_ns, table.required("leave", kinds.broker(names)))
        case "join":
            event = Join(at_ns, table.required("join", kinds.broker(names)))
        case "unplug":
            event = Unplug(at_ns, *table.required("unplug", uplink))
        case "plug":
            event = Plug(at_ns, *table.required("plug", uplink))
        case _:
            return None
    table.close()
    return event


def _happening(table: Table) -> str | None:
    """The one thing that happens; a fault when it is none or several."""
    found = [name for name in HAPPENINGS if name in table]
    if len(found) == 1:
        return found[0]
    table.faults.add(
        table.path, " and ".join(found) or NOTHING + " that happens", f"exactly one of {', '.join(HAPPENINGS)}"
    )
    return None


def _existing_link(names: Sequence[str], joined: frozenset[frozenset[str]]) -> FieldKind[Ends]:
    ends = kinds.ends(names)

    def read(value: object) -> Ends:
        pair = ends.read(value)
        if frozenset(pair) not in joined:
            raise ValueError("no such link")
        return pair

    return FieldKind("a list of the two ends of a link", read, ends.blank, names)


def _existing_uplink(brokers: Sequence[Broker]) -> FieldKind[Ends]:
    known = frozenset((broker.name, uplink.name) for broker in brokers for uplink in broker.uplinks)

    def read(value: object) -> Ends:
        match value:
            case [str(broker), str(uplink)] if (broker, uplink) in known:
                return broker, uplink
            case _:
                raise ValueError("no such uplink")

    return FieldKind("a list of a broker and one of its uplinks", read, ("", ""), [broker.name for broker in brokers])


def _link_or_all(link: FieldKind[Ends]) -> FieldKind[Ends | None]:
    def read(value: object) -> Ends | None:
        return None if value == "all" else link.read(value)

    return FieldKind(f'{link.allowed}, or "all"', read, None, link.words)
