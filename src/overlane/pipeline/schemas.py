"""The tables of the pipeline and their columns. Times end in `_s` or `_ns`, since 1970; an hour is named by its start.

Ingested tables have the columns of the brokers' files and four more: the file, the row in it, the hour it belongs to,
and its fault, if any. Rows with a fault belong to hour 0.
"""

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from overlane.pipeline.columns import columns
from overlane.telemetry.schema import SCHEMAS

INGEST_COLUMNS = columns("file string, row bigint, hour_s bigint, fault string")


def _landed(table: str) -> StructType:
    given = from_arrow_schema(SCHEMAS[table])
    every = StructType()
    for field in [*given.fields, *INGEST_COLUMNS.fields]:
        every = every.add(field.name, field.dataType, nullable=True)
    return every


INGESTED: dict[str, StructType] = {table: _landed(table) for table in SCHEMAS}

KEYS: dict[str, tuple[str, ...]] = {
    "topic_rates": ("topic",),
    "links": ("peer",),
    "queues": ("queue", "name"),
    "interests": ("filter", "group"),
    "reservations": ("filter",),
    "deliveries": tuple(name for name in SCHEMAS["deliveries"].names if name not in ("at_ns", "broker", "incarnation")),
    "events": tuple(name for name in SCHEMAS["events"].names if name not in ("at_ns", "broker", "incarnation")),
}
"""The key of rows of the same broker and moment. A second row with the same key is a repetition."""

ENTITY = "kind string, broker string, peer string"
"""A broker, or a link with the first of its ends in the alphabet as `broker`."""

TABLES: dict[str, StructType] = {
    name: columns(declared)
    for name, declared in {
        # What came in
        "lake_files": "table string, file string, broker string, incarnation bigint, rows bigint, faults bigint, "
        "first_ns bigint, last_ns bigint",
        "repeats": "table string, file string, row bigint, hour_s bigint",
        "quarantine": "table string, file string, row bigint, reason string, broker string, at_ns bigint, "
        "hour_s bigint, content string",
        "clock_offsets": "broker string, hour_s bigint, offset_s int, links int",
        "alive": "broker string, minute_s bigint, seen bigint",
        # Load
        "load_windows": "window_s bigint, broker string, topic string, messages_in bigint, bytes_in bigint, "
        "messages_overlay bigint, bytes_overlay bigint, messages_out bigint, bytes_out bigint, seconds bigint, "
        "messages_in_max bigint",
        "load_hours": "hour_s bigint, topic string, messages bigint, bytes bigint, messages_per_second double, "
        "seconds bigint",
        "peaks": "domain string, start_s bigint, end_s bigint, messages_per_second double",
        "load_chunks": "chunk_s bigint, seconds array<int>",
        "load_series": "chunk_s bigint, topic string, rates binary, total double, squares double, "
        "place int, topics int",
        "topic_load": "number int, topic string, item string, mean double, variance double, bytes_mean double, "
        "seconds bigint",
        "topic_covariance": "number int, topic string, first int, covariances array<double>",
        "item_load": "number int, item string, topics bigint, mean double, variance double",
        "item_covariance": "number int, item string, covariances array<double>",
        # Reliability
        "link_minutes": "broker string, peer string, minute_s bigint, seen bigint, down bigint, every_s bigint, "
        "samples bigint, latency_ns double, latency_ns_max bigint, jitter_ns double, loss double, queue_bytes double, "
        "queue_bytes_max bigint",
        "intervals": f"{ENTITY}, state string, start_ns bigint, end_ns bigint",
        "reliability": f"{ENTITY}, observed_s double, down_s double, failures bigint, mtbf_s double, mttr_s double, "
        "failure double, failure_low double, failure_high double, failure_planned double, latency_ms double, "
        "latency_p99_ms double, jitter_ms double, loss double",
        "failure_pairs": f"{ENTITY}, other_kind string, other_broker string, other_peer string, joint bigint, "
        "expected double, correlation double",
        "failure_groups": f"group bigint, {ENTITY}, failures bigint",
        # Compliance
        "latency_bins": "hour_s bigint, topic string, origin string, broker string, path string, bin int, "
        "deliveries bigint, judged bigint, in_time bigint",
        "compliance": "scope string, topic string, origin string, broker string, path string, hour_s bigint, "
        "deliveries bigint, judged bigint, in_time bigint, in_time_rate double, p50_ms double, p90_ms double, "
        "p99_ms double, p999_ms double",
        "offenders": "rank int, scope string, topic string, origin string, broker string, deliveries bigint, "
        "missed bigint, in_time_rate double, p99_ms double",
        "anomalies": "scope string, topic string, origin string, broker string, hour_s bigint, measure string, "
        "value double, usual double, score double",
        "bottlenecks": "kind string, broker string, peer string, hour_s bigint, late_deliveries bigint, "
        "spent_ms double, share double",
        "residence_bins": "hour_s bigint, broker string, rate int, bin int, deliveries bigint",
        "capacity": "broker string, messages_per_second double, exceeded_at double, p99_ms double, deliveries bigint",
        # Interest
        "interest": "broker string, topic string, subscribers bigint, messages_per_second double, bps double",
        "interest_overlap": "broker string, peer string, topics bigint, bps double, jaccard double",
        "channel_plan": "mapping string, cost_bps double, waste_bps double, channel int, members array<string>, "
        "topics array<string>, sent_bps double",
        "channels": "channel int, members array<string>, topics array<string>, sent_bps double",
        "channel_costs": "mapping string, cost_bps double, waste_bps double",
        # Reservations
        "reserved_flows": "broker string, filter string, seconds double, advertised bigint, reserved double, "
        "used double, share double, messages bigint, excess_messages bigint, size_max bigint, rate bigint, "
        "bucket bigint",
        # Plans
        "planning_problem": "problem string",
        "normal_plan": "item string, primary string, mirror string",
        "case_base": "state int, failed array<string>, status string, utility double, next_loss double, "
        "promoted array<string>, moved array<string>, primary map<string,string>, mirror map<string,string>, "
        "risk map<string,double>",
    }.items()
}
