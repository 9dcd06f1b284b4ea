"""Reads and writes [limits]: limits on the resources that clients can use. `overlane.pubsub.limits` explains each.

One row per field: its name in the file, the allowed values, and how a value is written.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from overlane.core.limits import FILTER_BYTES_MAX, FILTERS_MAX
from overlane.network.syntax import kinds
from overlane.network.syntax.kinds import FieldKind
from overlane.network.syntax.table import Table
from overlane.pubsub.cluster.names import TOPIC_BYTES_MAX
from overlane.pubsub.limits import EXPIRY_S_NEVER, NONE, Limits
from overlane.quantities import MS, SECOND, format_duration, format_size

PACKET_BYTES_MIN = 128
PACKET_BYTES_MAX = 256 * 2**20
STORE_BYTES_MIN = 2**20
TOPIC_BYTES_MIN = 64
FILTER_BYTES_MIN = 2**20


def _count(at_least: int, at_most: int) -> FieldKind[int]:
    return kinds.integer(at_least, at_most, f"a whole number from {at_least} to {at_most}")


def _size(at_least: int, at_most: int = kinds.SIZE_BYTES_MAX) -> FieldKind[int]:
    shown = f"a size from {format_size(at_least)} to {format_size(at_most)}, in bytes or as in "
    return kinds.size(at_least=at_least, at_most=at_most, allowed=f'{shown}"{format_size(max(at_least, 64 * 1024))}"')


def _seconds(at_least_s: int, at_most_s: int) -> FieldKind[int]:
    return kinds.seconds(
        at_least_s, at_most_s, f'whole seconds from {at_least_s}s to {at_most_s}s, as in "90s" or "1h"'
    )


@dataclass(frozen=True, slots=True)
class _Row:
    field: str
    name: str
    kind: FieldKind[int]
    write: Callable[[int], str] = str


def _quoted_size(size_bytes: int) -> str:
    return f'"{format_size(size_bytes)}"'


def _quoted_seconds(duration_s: int) -> str:
    return f'"{format_duration(duration_s * SECOND)}"'


def _expiry(duration_s: int) -> str:
    return '"none"' if duration_s == EXPIRY_S_NEVER else _quoted_seconds(duration_s)


_WITHIN = kinds.duration(at_least_ns=MS, allowed='a duration of at least 1ms such as "10s"')
_EXPIRY = kinds.or_none(_seconds(0, 10 * 365 * 86_400), EXPIRY_S_NEVER)
ROWS = (
    _Row("connections", "connections", _count(1, 10_000_000)),
    _Row("connections_per_second", "connections_per_second", _count(1, 10_000_000)),
    _Row("packet_bytes", "packet", _size(PACKET_BYTES_MIN, PACKET_BYTES_MAX), _quoted_size),
    _Row("packet_bytes_before_connect", "packet_before_connect", _size(PACKET_BYTES_MIN, 2**20), _quoted_size),
    _Row("connect_within_ns", "connect_within", _WITHIN, lambda within_ns: f'"{format_duration(within_ns)}"'),
    _Row("queue_messages", "queue_messages", _count(1, 10**9)),
    _Row("queue_bytes", "queue", _size(PACKET_BYTES_MIN), _quoted_size),
    _Row("in_flight", "in_flight", _count(1, 65_535)),
    _Row("user_properties", "user_properties", _count(0, 10_000)),
    _Row("messages_per_second", "messages_per_second", kinds.or_none(_count(1, 10**9), NONE)),
    _Row("tries", "tries", _count(1, 1_000)),
    _Row("keep_alive_s_max", "keep_alive_max", kinds.or_none(_seconds(1, 65_535), NONE), _quoted_seconds),
    _Row("session_expiry_s_max", "session_expiry_max", _EXPIRY, _expiry),
    _Row("sessions", "sessions", _count(1, 10**9)),
    _Row("topic_aliases", "topic_aliases", _count(0, 65_535)),
    _Row("subscriptions_per_client", "subscriptions_per_client", _count(1, 10_000_000)),
    _Row("filters", "filters", _count(1, FILTERS_MAX)),
    _Row("filter_bytes", "filter_bytes", _size(FILTER_BYTES_MIN, FILTER_BYTES_MAX), _quoted_size),
    _Row("retained_messages", "retained_messages", _count(0, 10**9)),
    _Row("retained_bytes", "retained", _size(0), _quoted_size),
    _Row("filter_levels", "filter_levels", _count(1, 65_535)),
    _Row("topic_bytes", "topic_bytes", _count(TOPIC_BYTES_MIN, TOPIC_BYTES_MAX)),
    _Row("streams", "streams", _count(0, 10_000)),
    _Row("stream_messages", "stream_messages", _count(1, 10**9)),
    _Row("stream_bytes", "stream", _size(PACKET_BYTES_MIN), _quoted_size),
    _Row("stream_expiry_s", "stream_expiry", _seconds(60, 10 * 365 * 86_400), _quoted_seconds),
    _Row("brokers", "brokers", _count(16, 4_096)),
    _Row("routes", "routes", kinds.or_none(_count(1, 10_000), NONE)),
    _Row("store_bytes", "store", kinds.or_none(_size(STORE_BYTES_MIN), NONE), _quoted_size),
)


def read_limits(table: Table) -> Limits:
    defaults = Limits()
    values = {row.field: table.optional(row.name, row.kind, getattr(defaults, row.field)) for row in ROWS}
    limits = msgspec.structs.replace(defaults, **values)
    if limits.queue_bytes < limits.packet_bytes:
        # The largest message could never wait for a client.
        if "queue" in table:
            table.refuse("queue", f"at least as much as packet, {format_size(limits.packet_bytes)}")
        else:
            table.refuse("packet", f"at most as much as queue, {format_size(limits.queue_bytes)}")
    table.close()
    return limits


def format_limits(limits: Limits) -> list[str]:
    """The lines of the fields that differ from their defaults."""
    defaults = Limits()
    return [
        f"{row.name} = {row.write(value)}"
        for row in ROWS
        if (value := getattr(limits, row.field)) != getattr(defaults, row.field)
    ]
