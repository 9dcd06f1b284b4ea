"""The sink of the data source `overlane`: `df.writeStream.format("overlane")`, and `df.write`.

A row is a message: columns `topic` and `payload`, optionally `qos` and `retain`. Each partition of a micro-batch is a
batch of a writer at a broker (`overlane.pubsub.streams.writers`), named after the query and the partition and numbered
as the micro-batch. So a retried task, or a query that resumes from its checkpoint, publishes only what is missing.
Partitions are assigned to brokers round robin, always the same way.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, BooleanType, IntegralType, StringType, StructType

from overlane.adminapi.views import WriterMessageView
from overlane.errors import ConfigError, Fault, Unavailable
from overlane.pipeline.streaming.stream_client import StreamClient
from overlane.pipeline.streaming.stream_options import WHERE, StreamOptions

PART_MESSAGES = 1_000
PART_BYTES = 1 << 20

QUERY = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"
"""Local properties of the tasks of a streaming query; unchanged when the query resumes from its checkpoint."""


@dataclass
class Published(WriterCommitMessage):
    messages: int


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        check_columns(schema)
        self._options = options

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        task = TaskContext.get()
        query = task.getLocalProperty(QUERY) if task is not None else None
        batch = task.getLocalProperty(BATCH) if task is not None else None
        if task is None or query is None or batch is None:
            raise Unavailable("Spark", "does not provide the number of the micro-batch")
        return publish(iterator, self._options, self._options.name or query, task.partitionId(), int(batch))


class Writer(DataSourceArrowWriter):
    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        check_columns(schema)
        self._options = options
        self._name = options.name or f"job-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> WriterCommitMessage:
        task = TaskContext.get()
        return publish(iterator, self._options, self._name, task.partitionId() if task is not None else 0, 0)


def publish(
    rows: Iterator["pa.RecordBatch"], options: StreamOptions, name: str, partition: int, batch: int
) -> Published:
    broker = StreamClient(options.brokers[partition % len(options.brokers)], options.credentials)
    writer, count = f"{name}.{partition}", 0
    part: list[WriterMessageView] = []
    size_bytes = 0
    for message in _messages(rows, options):
        part.append(message)
        size_bytes += len(message.payload)
        if len(part) >= PART_MESSAGES or size_bytes >= PART_BYTES:
            broker.write(writer, batch, count, tuple(part))
            count += len(part)
            part, size_bytes = [], 0
    if part:
        broker.write(writer, batch, count, tuple(part))
    broker.close()
    return Published(count + len(part))


def publish_texts(texts: Sequence[str], topic: str, options: StreamOptions, name: str, batch: int) -> None:
    """Publish messages without Spark, as a batch of a writer: once, however often it is repeated."""
    rows = pa.RecordBatch.from_pydict({"topic": [topic] * len(texts), "payload": list(texts)})
    publish(iter([rows]), options, name, 0, batch)


def check_columns(schema: StructType) -> None:
    """ConfigError if the columns are not those of messages."""
    allowed: dict[str, tuple[Any, ...]] = {
        "topic": (StringType,),
        "payload": (BinaryType, StringType),
        "qos": (IntegralType,),
        "retain": (BooleanType,),
    }
    found = {field.name: field.dataType for field in schema}
    faults = [
        Fault(WHERE, 0, name, f"a column of {kind.simpleString()}", ", ".join(allowed) + " as Spark reads them")
        for name, kind in found.items()
        if not isinstance(kind, allowed.get(name, ()))
    ]
    faults += [
        Fault(WHERE, 0, name, "no such column", "a column") for name in ("topic", "payload") if name not in found
    ]
    if faults:
        raise ConfigError(faults)


def _messages(rows: Iterator["pa.RecordBatch"], options: StreamOptions) -> Iterator[WriterMessageView]:
    for batch in rows:
        for row in batch.to_pylist():
            topic, payload = row["topic"], row["payload"]
            if topic is None:
                raise ValueError("a row without a topic")
            content = b"" if payload is None else payload.encode() if isinstance(payload, str) else bytes(payload)
            qos, retain = row.get("qos"), row.get("retain")
            yield WriterMessageView(
                topic=topic,
                payload=content,
                qos=options.qos if qos is None else qos,
                retain=options.retain if retain is None else retain,
            )
