"""Reads [items.NAME] and [placement]: groups of topics that are placed as one, and how they are placed."""

from collections.abc import Iterator

from overlane.network.schema import Coordination, Item, Placement
from overlane.network.syntax import kinds
from overlane.network.syntax.kinds import FieldKind
from overlane.network.syntax.table import NOTHING, Table
from overlane.quantities import SECOND

ITEMS_MAX = 2_000
CAPACITY_MAX = 1e9
MASTERS = ("power", "name")
DAY = 24 * 3600 * SECOND

capacity = kinds.number(1.0, CAPACITY_MAX, "messages per second, from 1 to 1e9")


def read_items(root: Table, coordination: Coordination | None, *, needs_coordination: bool) -> Iterator[Item]:
    taken: dict[str, str] = {}
    count = 0
    for name, table in root.named_tables("items"):
        count += 1
        try:
            kinds.name().read(name)
        except ValueError:
            table.faults.add(table.path, f'"{name[:60]}"', kinds.name().allowed)
        item = Item(
            name=name,
            topics=table.many("topics", kinds.topic_filter()),
            critical=table.optional("critical", kinds.flag(), False),
            domain=table.optional("domain", kinds.name(), None) or "",
        )
        table.close()
        if not item.topics and "topics" not in table:
            table.faults.add((*table.path, "topics"), NOTHING, "the filters of its topics")
        for topic_filter in item.topics:
            if topic_filter.startswith("$"):
                table.refuse("topics", "filters that do not begin with $")
            elif (other := taken.setdefault(f"{item.domain}@{topic_filter}", name)) != name:
                table.refuse("topics", f"filters that no other item has; {topic_filter} is of {other}")
        yield item
    if count > ITEMS_MAX:
        root.faults.add(("items",), f"{count} items", f"at most {ITEMS_MAX}")
    if count and coordination is None and needs_coordination:
        root.faults.add(
            ("coordination",),
            NOTHING,
            "a table [coordination], since there are [items]: agents elect a master through ZooKeeper",
        )


def read_placement(root: Table) -> Placement:
    default = Placement()
    table = root.table("placement")
    share = kinds.number(0.0001, 1.0, "a number from 0.0001 to 1")
    patience = kinds.duration(at_least_ns=SECOND, at_most_ns=DAY, allowed='a duration from 1s to 24h, as in "5m"')
    placement = Placement(
        capacity=table.optional("capacity", capacity, default.capacity),
        risk_max=table.optional("risk_max", share, default.risk_max),
        brokers_min=table.optional(
            "brokers_min", kinds.integer(1, 200, "a whole number from 1 to 200"), default.brokers_min
        ),
        off_below=table.optional("off_below", share, None),
        off_after_ns=table.optional("off_after", patience, default.off_after_ns),
        master=table.optional("master", _master(), default.master),
    )
    table.close()
    return placement


def _master() -> FieldKind[str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or not (value in MASTERS or kinds.is_function(value)):
            raise ValueError("no election")
        return value

    words = ", ".join(f'"{word}"' for word in MASTERS)
    return FieldKind(f'{words} or "package.module:function"', read, blank=MASTERS[0], words=MASTERS)
