"""Topics as a sink of Spark: `df.writeStream.format("overlane")`, and `df.write`.

A row is a message: its columns `topic` and `payload`, and if they are there `qos` and `retain`. Each partition of a
micro-batch is the batch of a writer at a broker (`overlane.mqtt.writers`), called after the query and the partition and
numbered as Spark numbers micro-batches. So a task that is tried again, and a query that goes on from its checkpoint,
publish what is missing and nothing twice. Partitions go to the brokers in turn, always the same to the same.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, BooleanType, IntegralType, StringType, StructType

from overlane.errors import ConfigError, Fault, Unavailable
from overlane.node.views import NoteView
from overlane.pipeline.streambroker import StreamBroker
from overlane.pipeline.streamoptions import WHERE, StreamOptions

PART_MESSAGES = 1_000
PART_BYTES = 1 << 20

QUERY = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"
"""What Spark tells tasks of a streaming query: it is the same when the query goes on from its checkpoint."""


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
            raise Unavailable("Spark", "does not tell which micro-batch this is")
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
    broker = StreamBroker(options.brokers[partition % len(options.brokers)], options.access)
    writer, count = f"{name}.{partition}", 0
    part: list[NoteView] = []
    size_bytes = 0
    for note in _notes(rows, options):
        part.append(note)
        size_bytes += len(note.payload)
        if len(part) >= PART_MESSAGES or size_bytes >= PART_BYTES:
            broker.write(writer, batch, count, tuple(part))
            count += len(part)
            part, size_bytes = [], 0
    if part:
        broker.write(writer, batch, count, tuple(part))
    broker.close()
    return Published(count + len(part))


def check_columns(schema: StructType) -> None:
    """ConfigError if rows of it are no messages."""
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
    faults += [Fault(WHERE, 0, name, "no column", "one of it") for name in ("topic", "payload") if name not in found]
    if faults:
        raise ConfigError(faults)


def _notes(rows: Iterator["pa.RecordBatch"], options: StreamOptions) -> Iterator[NoteView]:
    for batch in rows:
        for row in batch.to_pylist():
            topic, payload = row["topic"], row["payload"]
            if topic is None:
                raise ValueError("a row without a topic")
            content = b"" if payload is None else payload.encode() if isinstance(payload, str) else bytes(payload)
            qos, retain = row.get("qos"), row.get("retain")
            yield NoteView(
                topic=topic,
                payload=content,
                qos=options.qos if qos is None else qos,
                retain=options.retain if retain is None else retain,
            )
