"""Topics as a source of Spark: `spark.readStream.format("overlane")`, and `spark.read` for what is kept at the moment.

The offset of a query tells for each broker, by its name, which log it reads and how far it has come:

    {"denver": {"since": 1760000000000000000, "next": 4711}, "seattle": {"since": ..., "next": 815}}

A broker that the offset does not know yet, or whose stream was made anew, enters it at its start without any messages,
so that every micro-batch is a range of offsets, which reads alike however often it is read. What a query has committed
its brokers are told to forget.

Spark asks for offsets in one process of the driver, and reads each partition in one of an executor; both speak with the
brokers themselves.
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

from overlane.errors import Unavailable
from overlane.node.views import LoggedPage, StreamView
from overlane.pipeline.streambroker import GONE, Access, Refused, StreamBroker
from overlane.pipeline.streamoptions import StreamOptions

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


class DataLoss(Exception):
    """Messages that a query has not read are not kept any more."""


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
        return {view.broker: self._beginning(view) for _, view in self._views()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        most = self._options.messages_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._targets = {view.broker: view.next for _, view in self._views()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        views = [view for _, view in self._views()]
        if missing := sorted(start.keys() - {view.broker for view in views}):
            raise Unavailable("the stream", f"the query has read from {', '.join(missing)}, which is not asked for now")
        left = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end: Offset = {}
        for place, view in enumerate(sorted(views, key=lambda view: view.broker)):
            name = view.broker
            if name not in start or not self._goes_on(view, start[name]):
                end[name] = self._beginning(view)
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
                _broker(address, self._options.access).commit(self._options.stream, done["since"], done["next"])

    # Parts

    def _views(self) -> list[tuple[str, StreamView]]:
        """The streams at all brokers, made where there are none."""
        return made(self._options)

    def _beginning(self, view: StreamView) -> dict[str, int]:
        return {"since": view.since_ns, "next": view.first if self._options.is_from_earliest else view.next}

    def _goes_on(self, view: StreamView, before: dict[str, int]) -> bool:
        """Whether the log has what comes after the offset; if not, and that matters, DataLoss."""
        if before["since"] == view.since_ns and view.first <= before["next"] <= view.next:
            return True
        if before["since"] == view.since_ns and not self._options.fails_on_loss and before["next"] < view.first:
            return True  # what is kept of it is read
        if self._options.fails_on_loss:
            told = "was removed and made anew" if before["since"] != view.since_ns else f"begins at {view.first} now"
            raise DataLoss(
                f"stream {view.name} at {view.broker} {told}, the query has come to {before['next']}; "
                "failOnDataLoss=false goes on with what there is"
            )
        return False


class Reader(DataSourceReader):
    """What is kept at the moment, without committing it."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        found: list[InputPartition] = []
        for address, view in made(self._options):
            pieces = _cut(view.first, view.next, self._options.partitions)
            found += [Range(address, view.broker, view.since_ns, first, last) for first, last in pieces]
        return found

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        if not isinstance(partition, Range):
            return iter(())  # there was nothing to read
        return read_range(partition, self._options, self._schema)


def made(options: StreamOptions) -> list[tuple[str, StreamView]]:
    """The stream at each address, made where there is none and it is said what it is of."""
    found: dict[str, tuple[str, StreamView]] = {}
    for address in options.brokers:
        broker = _broker(address, options.access)
        if options.topic:
            view = broker.make(options.stream, options.topic, options.scope, options.is_from_earliest)
        else:
            view = broker.look(options.stream)
        if view.broker in found:
            raise Unavailable(address, f"is {view.broker}, as is {found[view.broker][0]}")
        found[view.broker] = address, view
    return list(found.values())


def read_range(wanted: Range, options: StreamOptions, schema: StructType) -> Iterator["pa.RecordBatch"]:
    broker, arrow = _broker(wanted.address, options.access), to_arrow_schema(schema, timezone="UTC")
    offset = wanted.start
    while offset < wanted.end:
        try:
            page = broker.read(options.stream, wanted.since_ns, offset, wanted.end, PAGE_MESSAGES)
        except Refused as refused:
            if refused.status != GONE or options.fails_on_loss:
                raise
            first = broker.look(options.stream).first
            if first <= offset:
                return  # another stream by now
            offset = first
            continue
        if page.next <= offset:
            raise DataLoss(f"stream {options.stream} at {wanted.broker} ends at {offset}, before {wanted.end}")
        offset = page.next
        if page.messages:
            yield _batch(page, wanted.broker, arrow)
    broker.close()


def _batch(page: LoggedPage, broker: str, arrow: Any) -> "pa.RecordBatch":
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
    """The range in so many pieces of much the same length, none of them empty."""
    length = end - start
    edges = [start + length * piece // pieces for piece in range(pieces + 1)]
    return [(first, last) for first, last in pairwise(edges) if first < last]


def _broker(address: str, access: Access) -> StreamBroker:
    return StreamBroker(address, access)
