"""Reads [coordination] and [routing]: the address of ZooKeeper, and the settings of the tier of routing brokers."""

from pathlib import Path

from overlane.network.schema import EMBEDDED, LAUNCHERS, STRATEGIES, Coordination, RoutingTier
from overlane.network.syntax import kinds
from overlane.network.syntax.kinds import FieldKind
from overlane.network.syntax.table import NOTHING, Table
from overlane.quantities import SECOND

SERVERS_MAX = 9
BROKERS_MAX = 1_000
WORDS_MAX = 64
LOAD_MIN = 0.05
DAY = 24 * 3600 * SECOND


def read_coordination(root: Table, directory: Path | None) -> Coordination | None:
    if "coordination" not in root:
        root.table("coordination")
        return None
    table, path = root.table("coordination"), kinds.path(directory)
    coordination = Coordination(
        zookeeper=table.required("zookeeper", zookeeper_hosts()),
        path=table.optional("path", chroot(), Coordination().path),
        servers=table.optional(
            "servers", kinds.integer(1, SERVERS_MAX, f"a whole number from 1 to {SERVERS_MAX}"), Coordination().servers
        ),
        user=table.optional("user", _word("the name of a user"), None),
        password_file=table.optional("password_file", path, None),
        ca=table.optional("ca", path, None),
        certificate=table.optional("certificate", path, None),
        key=table.optional("key", path, None),
    )
    table.close()
    for field, needed in (("user", "password_file"), ("password_file", "user"), ("certificate", "key"), ("key", "ca")):
        if field in table and needed not in table:
            table.faults.add((*table.path, needed), NOTHING, f"a value, since there is {field}")
    return coordination


def read_routing(root: Table) -> RoutingTier:
    default = RoutingTier()
    table = root.table("routing")
    launcher = table.optional("launcher", kinds.choice(LAUNCHERS), None)
    count = kinds.integer(1, BROKERS_MAX, f"a whole number from 1 to {BROKERS_MAX}")
    load = kinds.number(LOAD_MIN, 1.0, f"a number from {LOAD_MIN} to 1")
    patience = kinds.duration(at_least_ns=SECOND, at_most_ns=DAY, allowed='a duration from 1s to 24h, as in "30s"')
    tier = RoutingTier(
        strategy=table.optional("strategy", strategy(), default.strategy),
        brokers_min=table.optional("brokers_min", count, default.brokers_min),
        brokers_max=table.optional("brokers_max", count, default.brokers_max),
        rate_bps=table.optional("rate", kinds.rate(), default.rate_bps),
        grow_above=table.optional("grow_above", load, default.grow_above),
        grow_after_ns=table.optional("grow_after", patience, default.grow_after_ns),
        shrink_below=table.optional("shrink_below", load, default.shrink_below),
        shrink_after_ns=table.optional("shrink_after", patience, default.shrink_after_ns),
        launcher=launcher,
        command=table.many("command", _word("a word of a command")) if "command" in table else (),
        unit=table.optional("unit", _word("the name of a template unit such as overlane-routing@"), default.unit),
        resource=table.optional("resource", _word("a resource such as statefulset/overlane-routing"), default.resource),
        namespace=table.optional("namespace", kinds.name(), default.namespace),
    )
    if tier.brokers_max < tier.brokers_min:
        table.refuse("brokers_max" if "brokers_max" in table else "brokers_min", "no fewer than brokers_min")
    if tier.shrink_below > tier.grow_above:
        # Between the two nothing changes; the other way round the number would swing.
        table.refuse("shrink_below" if "shrink_below" in table else "grow_above", "no more than grow_above")
    if tier.launcher == "command" and not tier.command:
        table.faults.add((*table.path, "command"), NOTHING, "the words of a command, since launcher is command")
    table.close()
    return tier


def zookeeper_hosts() -> FieldKind[str]:
    endpoint = kinds.endpoint()

    def read(value: object) -> str:
        if value == EMBEDDED:
            return EMBEDDED
        if not isinstance(value, str):
            raise ValueError("not a string")
        return ",".join(str(endpoint.read(one.strip())) for one in value.split(","))

    return FieldKind(f'"{EMBEDDED}", or addresses such as "zk1:2181,zk2:2181,zk3:2181"', read, blank=EMBEDDED)


def chroot() -> FieldKind[str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or not value.startswith("/") or len(value.encode()) > 255:
            raise ValueError("no path")
        if value != "/" and any(part in ("", ".", "..") or not part.isprintable() for part in value[1:].split("/")):
            raise ValueError("no path")
        return value

    return FieldKind('a path of ZooKeeper such as "/overlane/plant"', read, blank="/")


def strategy() -> FieldKind[str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or not (value in STRATEGIES or kinds.is_function(value)):
            raise ValueError("no strategy")
        return value

    words = ", ".join(f'"{word}"' for word in STRATEGIES)
    return FieldKind(f'{words} or "package.module:function"', read, blank=STRATEGIES[0], words=STRATEGIES)


def _word(allowed: str) -> FieldKind[str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or not value or not value.isprintable():
            raise ValueError("no word")
        return value

    return FieldKind(allowed, read, blank="")
