"""Journals as Arrow tables, for the process that makes files of them.

Journals that were written by a version with other columns are read too: a column that a journal does not have is null.
Until version 1 of the format they were streams of Arrow batches; those are read as they are.
"""

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.ipc

from overlane.telemetry.journal import MAGIC, FileName, frames
from overlane.telemetry.rows import ROWS
from overlane.telemetry.schema import SCHEMAS, record_batch

_ARROW_STREAM = b"\xff\xff\xff\xff"


class JournalRows(NamedTuple):
    rows: Any
    """A pyarrow.Table."""
    lost: int
    """Rows that do not match the schema."""


def read_journal(file: BinaryIO, name: FileName) -> JournalRows:
    """All rows up to the first that is not whole.

    ValueError if there is nothing to be read in it; OSError if the disk does not give it.
    """
    begin = file.read(len(MAGIC))
    if begin.startswith(_ARROW_STREAM):
        file.seek(0)
        return JournalRows(_arrow_stream(file, name), 0)
    if begin != MAGIC or name.table not in SCHEMAS:
        raise ValueError(f"{name.journal}: no journal")
    content = frames(file)
    columns = next(content, None)
    if columns is None:
        raise ValueError(f"{name.journal}: it has no columns")
    batches, lost = [], 0
    for rows in content:
        try:
            batches.append(record_batch(name.table, name.broker, name.incarnation, _arranged(rows, columns, name)))
        except ValueError:
            lost += len(rows)
    return JournalRows(pa.Table.from_batches(batches, schema=SCHEMAS[name.table]), lost)


def _arranged(rows: Sequence[Sequence[Any]], columns: Sequence[Any], name: FileName) -> Sequence[Sequence[Any]]:
    """The rows with the present columns."""
    wanted = ROWS[name.table]._fields
    if tuple(columns) == wanted:
        return rows
    places = [columns.index(column) if column in columns else None for column in wanted]
    return [[None if place is None else row[place] for place in places] for row in rows]


def _arrow_stream(file: BinaryIO, name: FileName) -> Any:
    try:
        reader = pa.ipc.open_stream(file)
    except pa.ArrowInvalid as wrong:
        raise ValueError(f"{name.journal}: {wrong}") from None
    return pa.Table.from_batches(_whole_batches(reader), schema=reader.schema)


def _whole_batches(reader: Any) -> Iterator[Any]:
    try:
        for batch in reader:
            batch.validate(full=True)
            yield batch
    except (pa.ArrowException, OSError):
        return  # cut off in the middle of this one
