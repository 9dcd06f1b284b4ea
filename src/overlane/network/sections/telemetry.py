"""Reads [telemetry]: what brokers record, and how much space it may take."""

from overlane.network.schema import Telemetry
from overlane.network.syntax import kinds
from overlane.network.syntax.table import Table
from overlane.quantities import MS, SECOND

FILE_BYTES_MIN = 64 * 1024
FILE_BYTES_MAX = 2**30
DISK_BYTES_MIN = 2**20
AGE_MIN_NS = 100 * MS
AGE_MAX_NS = 86_400 * SECOND
DELIVERIES_MAX = 10_000


def read_telemetry(table: Table) -> Telemetry:
    default = Telemetry()
    file = kinds.size(
        at_least=FILE_BYTES_MIN, at_most=FILE_BYTES_MAX, allowed='a size from 64KiB to 1GiB, as in "32MiB"'
    )
    age = kinds.duration(
        at_least_ns=AGE_MIN_NS, at_most_ns=AGE_MAX_NS, allowed='a duration from 100ms to 1d, as in "5m"'
    )
    disk = kinds.size(at_least=DISK_BYTES_MIN, allowed='a size of at least 1MiB, as in "1GiB"')
    deliveries = kinds.integer(0, DELIVERIES_MAX, f"a whole number from 0 to {DELIVERIES_MAX}")
    telemetry = Telemetry(
        enabled=table.optional("enabled", kinds.flag(), None),
        file_bytes=table.optional("file", file, default.file_bytes),
        file_age_ns=table.optional("file_age", age, default.file_age_ns),
        disk_bytes=table.optional("disk", disk, default.disk_bytes),
        deliveries_per_second=table.optional("deliveries_per_second", deliveries, default.deliveries_per_second),
    )
    table.close()
    return telemetry
