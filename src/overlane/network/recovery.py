"""Reads [recovery]: copies of brokers on other hosts of their domain."""

from overlane.network import kinds
from overlane.network.schema import Coordination, Recovery, Security
from overlane.network.table import NOTHING, Table
from overlane.quantities import MS, SECOND

MIRRORS_MAX = 8
SILENCE_MIN_NS = 100 * MS
SILENCE_MAX_NS = 600 * SECOND


def read_recovery(
    root: Table, coordination: Coordination | None, security: Security, *, needs_coordination: bool
) -> Recovery:
    default = Recovery()
    table = root.table("recovery")
    silence = kinds.duration(
        at_least_ns=SILENCE_MIN_NS, at_most_ns=SILENCE_MAX_NS, allowed='a duration from 100ms to 10m, as in "900ms"'
    )
    count = kinds.integer(0, MIRRORS_MAX, f"a whole number from 0 to {MIRRORS_MAX}")
    recovery = Recovery(
        mirrors=table.optional("mirrors", count, default.mirrors),
        silence_ns=table.optional("silence", silence, default.silence_ns),
    )
    table.close()
    if recovery.mirrors and coordination is None and needs_coordination:
        table.faults.add(("coordination",), NOTHING, "a table [coordination], since [recovery] has mirrors")
    if recovery.mirrors and security.overlay_tls:
        # A host would need the certificate of every broker that it may continue.
        table.refuse("mirrors", "0 where security.overlay_tls is true; with overlay_secret any number")
    return recovery
