"""The source of the data source `overlane`: streaming reads, and batch reads of the messages kept now.

The offset of a query has, per broker, the creation time of its stream and the next offset in it:

    {"denver": {"since": 1760000000000000000, "next": 4711}, "seattle": {"since": ..., "next": 815}}

A broker that is not in the offset yet, or whose stream was created again, is added at the start of its stream without
any messages. So every micro-batch is a fixed range of offsets and can be read again. Committed messages are deleted by
the brokers.

Spark calls for offsets in a process of the driver, and reads partitions in processes of the executors; all of them call
the brokers directly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from overlane.adminapi.views import StreamMessagePage, StreamView
from overlane.errors import OverlaneError, Unavailable
from overlane.pipeline.streaming.stream_client import GONE, Credentials, RequestRejected, StreamClient
from overlane.pipeline.streaming.stream_options import StreamOptions

_PROPERTY = StructType([StructField("name", StringType()), StructField("value", StringType())])
SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("payload", BinaryType()),
        StructField("qos", IntegerType()),
        StructField("retain", BooleanType()),
        StructField("user_properties", ArrayType(_PROPERTY)),
        StructField("time", TimestampType()),
        StructField("arrived_ns", LongType()),
        StructField("broker", StringType()),
        StructField("offset", LongType()),
    ]
)
PAGE_MESSAGES = 5_000
NOT_FOUND = 404

Offset = dict[str, dict[str, int]]


class DataLoss(OverlaneError):
    """Messages that a query has not read are not kept any more."""

    error_code = "OVL-402"


@dataclass
class Range(InputPartition):
    """Messages of one broker, from one offset to before another."""

    address: str
    broker: str
    since_ns: int
    start: int
    end: int


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._targets: dict[str, int] | None = None
        """Where a query ends that reads what is there and no more."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {view.broker: self._earliest(view) for _, view in self._views()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        most = self._options.messages_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._targets = {view.broker: view.next for _, view in self._views()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        views = [view for _, view in self._views()]
        if missing := sorted(start.keys() - {view.broker for view in views}):
            raise Unavailable(
                "the stream", f"the query has read from {', '.join(missing)}, which is not in `brokers` now"
            )
        left = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end: Offset = {}
        for place, view in enumerate(sorted(views, key=lambda view: view.broker)):
            name = view.broker
            if name not in start or not self._can_resume(view, start[name]):
                end[name] = self._earliest(view)
                continue
            came_to = start[name]["next"]
            following = view.next if self._targets is None else min(view.next, self._targets.get(name, came_to))
            if left is not None:
                share = -(-left // (len(views) - place))
                following = min(following, came_to + share)
                left -= max(0, following - came_to)
            end[name] = {"since": view.since_ns, "next": max(came_to, following)}
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        addresses = {view.broker: address for address, view in self._views()}
        found: list[InputPartition] = []
        for name, to in sorted(end.items()):
            before = start.get(name)
            if before is not None and before["since"] == to["since"] and name in addresses:
                pieces = _cut(before["next"], to["next"], self._options.partitions)
                found += [Range(addresses[name], name, to["since"], first, last) for first, last in pieces]
        return found

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        assert isinstance(partition, Range)
        return read_range(partition, self._options, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        for address, view in self._views():
            done = end.get(view.broker)
            if done is not None and done["since"] == view.since_ns:
                _client(address, self._options.credentials).commit(self._options.stream, done["since"], done["next"])

    # Parts

    def _views(self) -> list[tuple[str, StreamView]]:
        """The streams at all brokers, created where they do not exist."""
        return ensure_streams(self._options)

    def _earliest(self, view: StreamView) -> dict[str, int]:
        return {"since": view.since_ns, "next": view.first if self._options.is_from_earliest else view.next}

    def _can_resume(self, view: StreamView, before: dict[str, int]) -> bool:
        """Whether the log still has the messages after the offset; DataLoss if not and the options demand it."""
        if before["since"] == view.since_ns and view.first <= before["next"] <= view.next:
            return True
        if before["since"] == view.since_ns and not self._options.fails_on_loss and before["next"] < view.first:
            return True  # read what is left
        if self._options.fails_on_loss:
            told = (
                "was deleted and created again" if before["since"] != view.since_ns else f"now begins at {view.first}"
            )
            raise DataLoss(
                f"stream {view.name} at {view.broker} {told}, the query is at {before['next']}; "
                "failOnDataLoss=false continues with the messages that are left"
            )
        return False


class Reader(DataSourceReader):
    """Reads the messages in the log now, without committing them."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        found: list[InputPartition] = []
        for address, view in ensure_streams(self._options):
            pieces = _cut(view.first, view.next, self._options.partitions)
            found += [Range(address, view.broker, view.since_ns, first, last) for first, last in pieces]
        return found

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        if not isinstance(partition, Range):
            return iter(())  # no partition
        return read_range(partition, self._options, self._schema)


def ensure_streams(options: StreamOptions) -> list[tuple[str, StreamView]]:
    """The stream at each broker; created where it does not exist, if a topic filter is given."""
    found: dict[str, tuple[str, StreamView]] = {}
    for address in options.brokers:
        broker = _client(address, options.credentials)
        if options.topic:
            view = broker.create(options.stream, options.topic, options.scope, options.is_from_earliest)
        else:
            view = broker.get(options.stream)
        if view.broker in found:
            raise Unavailable(address, f"is {view.broker}, as is {found[view.broker][0]}")
        found[view.broker] = address, view
    return list(found.values())


def read_range(wanted: Range, options: StreamOptions, schema: StructType) -> Iterator["pa.RecordBatch"]:
    broker, arrow = _client(wanted.address, options.credentials), to_arrow_schema(schema, timezone="UTC")
    offset = wanted.start
    while offset < wanted.end:
        try:
            page = broker.read(options.stream, wanted.since_ns, offset, wanted.end, PAGE_MESSAGES)
        except RequestRejected as refused:
            if refused.status != GONE or options.fails_on_loss:
                raise
            first = broker.get(options.stream).first
            if first <= offset:
                return  # the stream was created again
            offset = first
            continue
        if page.next <= offset:
            raise DataLoss(f"stream {options.stream} at {wanted.broker} ends at {offset}, before {wanted.end}")
        offset = page.next
        if page.messages:
            yield _batch(page, wanted.broker, arrow)
    broker.close()


def _batch(page: StreamMessagePage, broker: str, arrow: Any) -> "pa.RecordBatch":
    messages = page.messages
    columns = {
        "topic": [one.topic for one in messages],
        "payload": [one.payload for one in messages],
        "qos": [one.qos for one in messages],
        "retain": [one.retain for one in messages],
        "user_properties": [
            [{"name": name, "value": value} for name, value in one.user_properties] for one in messages
        ],
        "time": [one.arrived_ns // 1_000 for one in messages],
        "arrived_ns": [one.arrived_ns for one in messages],
        "broker": [broker] * len(messages),
        "offset": [one.offset for one in messages],
    }
    return pa.RecordBatch.from_arrays([pa.array(columns[field.name], field.type) for field in arrow], schema=arrow)


def _cut(start: int, end: int, pieces: int) -> list[tuple[int, int]]:
    """Split a range into up to `pieces` non-empty parts of about the same length."""
    length = end - start
    edges = [start + length * piece // pieces for piece in range(pieces + 1)]
    return [(first, last) for first, last in pairwise(edges) if first < last]


def _client(address: str, credentials: Credentials) -> StreamClient:
    return StreamClient(address, credentials)
