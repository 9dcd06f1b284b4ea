"""The tables of the lake as Arrow and Parquet schemas, derived from the row classes.

Brokers write by these schemas, and readers of the lake declare their tables by them. Only types that Parquet and Spark
share are used: times are 64-bit nanoseconds, since Spark's timestamps are coarser, and nothing is unsigned. The
metadata of a file contains its table and the version of the schema.
"""

import types
from collections.abc import Sequence
from typing import Any, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

from overlane.telemetry.rows import TABLES, Row

VERSION = 1
TABLE_KEY = b"overlane.telemetry.table"
VERSION_KEY = b"overlane.telemetry.version"

_PLAIN = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}

WRITTEN_BY = (pa.field("broker", pa.string(), nullable=False), pa.field("incarnation", pa.int64(), nullable=False))
"""Columns that every table has behind the time."""


def _arrow_type(hint: Any) -> Any:
    if get_origin(hint) is tuple:
        return pa.list_(_arrow_type(get_args(hint)[0]))
    return _PLAIN[hint]


def _field(name: str, hint: Any) -> Any:
    is_nullable = get_origin(hint) in (Union, types.UnionType)
    if is_nullable:
        (hint,) = (one for one in get_args(hint) if one is not type(None))
    return pa.field(name, _arrow_type(hint), nullable=is_nullable)


def _schema(row: type[Row]) -> Any:
    hints = get_type_hints(row)
    first, *others = (_field(name, hints[name]) for name in row._fields)
    metadata = {TABLE_KEY: TABLES[row].encode(), VERSION_KEY: b"%d" % VERSION}
    return pa.schema([first, *WRITTEN_BY, *others], metadata=metadata)


SCHEMAS: dict[str, Any] = {table: _schema(row) for row, table in TABLES.items()}
"""A pyarrow.Schema for each table."""


def record_batch(table: str, broker: str, incarnation: int, rows: Sequence[Sequence[Any]]) -> Any:
    """Rows of one table as a pyarrow.RecordBatch; ValueError if they are not what the schema says."""
    schema = SCHEMAS[table]
    first, *others = zip(*rows, strict=True)
    columns = [first, [broker] * len(rows), [incarnation] * len(rows), *others]
    try:
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    except (pa.ArrowException, OverflowError, TypeError) as wrong:
        raise ValueError(f"rows of {table}: {wrong}") from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
