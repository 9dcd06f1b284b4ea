"""Reads [recovery]: copies of brokers on other hosts of their domain."""

from overlane.network.schema import Coordination, CopiesOf, Recovery, Scoring
from overlane.network.syntax import kinds
from overlane.network.syntax.table import NOTHING, Table
from overlane.quantities import MS, SECOND

MIRRORS_MAX = 8
SILENCE_MIN_NS = 100 * MS
SILENCE_MAX_NS = 600 * SECOND
WEIGHT_MAX = 1_000.0
NEEDED_GHZ_MAX = 10_000.0
HOSTS_MAX = 16
"""Whom the file names for one broker, or in one group."""


def read_recovery(root: Table, coordination: Coordination | None, *, needs_coordination: bool) -> Recovery:
    default = Recovery()
    table = root.table("recovery")
    silence = kinds.duration(
        at_least_ns=SILENCE_MIN_NS, at_most_ns=SILENCE_MAX_NS, allowed='a duration from 100ms to 10m, as in "600ms"'
    )
    count = kinds.integer(0, MIRRORS_MAX, f"a whole number from 0 to {MIRRORS_MAX}")
    recovery = Recovery(
        mirrors=table.optional("mirrors", count, default.mirrors),
        silence_ns=table.optional("silence", silence, default.silence_ns),
        on_takeover=_read_command(table, "on_takeover"),
        together=table.many("together", kinds.names(2, HOSTS_MAX)),
        scoring=_read_scoring(table.table("scoring")),
        brokers=tuple(_read_copies(name, one) for name, one in table.named_tables("brokers")),
    )
    table.close()
    if recovery.mirrors and coordination is None and needs_coordination:
        table.faults.add(("coordination",), NOTHING, "a table [coordination], since [recovery] has mirrors")
    return recovery


def _read_copies(name: str, table: Table) -> CopiesOf:
    try:
        kinds.name().read(name)
    except ValueError:
        table.faults.add(table.path, repr(name), "the name of a broker")
    copies = CopiesOf(name=name, hosts=table.required("hosts", kinds.names(1, HOSTS_MAX)))
    table.close()
    return copies


def _read_command(table: Table, field: str) -> tuple[str, ...]:
    command = table.optional(field, kinds.command(), None)
    return () if command is None else command


def _read_scoring(table: Table) -> Scoring:
    weight = kinds.number(0.0, WEIGHT_MAX, f"a number from 0 to {WEIGHT_MAX:g}")
    needed = kinds.number(0.0, NEEDED_GHZ_MAX, f"a number of GHz from 0 to {NEEDED_GHZ_MAX:g}")
    size = kinds.size(at_least=0, allowed='a size such as "512MiB"')
    default = Scoring()
    scoring = Scoring(
        cpu=table.optional("cpu", weight, default.cpu),
        memory=table.optional("memory", weight, default.memory),
        bandwidth=table.optional("bandwidth", weight, default.bandwidth),
        battery=table.optional("battery", weight, default.battery),
        cpu_needed=table.optional("cpu_needed", needed, default.cpu_needed),
        memory_needed_bytes=table.optional("memory_needed", size, default.memory_needed_bytes),
        bandwidth_needed_bps=table.optional("bandwidth_needed", kinds.rate(), default.bandwidth_needed_bps),
        battery_needed_ns=table.optional("battery_needed", kinds.duration(), default.battery_needed_ns),
        command=_read_command(table, "command"),
    )
    table.close()
    if not scoring.command and not scoring.cpu + scoring.memory + scoring.bandwidth + scoring.battery:
        table.faults.add(table.path, "weights of 0 alone", "one that is greater, or a command")
    return scoring
