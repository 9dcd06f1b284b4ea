"""Reads [recovery]: copies of brokers on other hosts of their domain."""

from overlane.network import kinds
from overlane.network.kinds import Kind
from overlane.network.schema import Coordination, Recovery, Scoring
from overlane.network.table import NOTHING, Table
from overlane.quantities import MS, SECOND

MIRRORS_MAX = 8
SILENCE_MIN_NS = 100 * MS
SILENCE_MAX_NS = 600 * SECOND
WEIGHT_MAX = 1_000.0


def read_recovery(root: Table, coordination: Coordination | None, *, needs_coordination: bool) -> Recovery:
    default = Recovery()
    table = root.table("recovery")
    silence = kinds.duration(
        at_least_ns=SILENCE_MIN_NS, at_most_ns=SILENCE_MAX_NS, allowed='a duration from 100ms to 10m, as in "900ms"'
    )
    count = kinds.integer(0, MIRRORS_MAX, f"a whole number from 0 to {MIRRORS_MAX}")
    recovery = Recovery(
        mirrors=table.optional("mirrors", count, default.mirrors),
        silence_ns=table.optional("silence", silence, default.silence_ns),
        scoring=_read_scoring(table.table("scoring")),
    )
    table.close()
    if recovery.mirrors and coordination is None and needs_coordination:
        table.faults.add(("coordination",), NOTHING, "a table [coordination], since [recovery] has mirrors")
    return recovery


def _read_scoring(table: Table) -> Scoring:
    weight = kinds.number(0.0, WEIGHT_MAX, f"a number from 0 to {WEIGHT_MAX:g}")
    default = Scoring()
    scoring = Scoring(
        cpu=table.optional("cpu", weight, default.cpu),
        memory=table.optional("memory", weight, default.memory),
        bandwidth=table.optional("bandwidth", weight, default.bandwidth),
        battery=table.optional("battery", weight, default.battery),
        command=table.many("command", _word()) if "command" in table else (),
    )
    table.close()
    if not scoring.command and not scoring.cpu + scoring.memory + scoring.bandwidth + scoring.battery:
        table.faults.add(table.path, "weights of 0 alone", "one that is greater, or a command")
    return scoring


def _word() -> Kind[str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or not value or not value.isprintable():
            raise ValueError("not a word")
        return value

    return Kind("a word of a command", read, blank="")
