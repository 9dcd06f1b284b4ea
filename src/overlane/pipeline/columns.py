"""Declared schemas, available without a request to Spark.

The query functions of a declarative pipeline must not analyse DataFrames: the tables they read do not exist yet. But
Python functions on DataFrames need the columns in advance. So the schema of every table is declared as text such as
"topic string, rates array<double>", and a DataFrame can be declared to have it.
"""

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

_PLAIN: dict[str, DataType] = {
    "string": StringType(),
    "bigint": LongType(),
    "int": IntegerType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "binary": BinaryType(),
}


def columns(declared: str) -> StructType:
    """A schema from text: names and types as SQL writes them."""
    fields = [part.strip().split(None, 1) for part in _parts(declared)]
    return StructType([StructField(name, _type(kind.strip())) for name, kind in fields])


def declare(frame: DataFrame, schema: StructType) -> DataFrame:
    """The columns of the schema, in its order, with Spark not to be asked for their names."""
    named = frame.select(*schema.fieldNames())
    if hasattr(named, "_cached_schema"):  # of Spark Connect, which would ask the server otherwise
        named._cached_schema = schema  # type: ignore[attr-defined]
    return named


def _parts(declared: str) -> list[str]:
    """Split at commas that are not within brackets."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(declared):
        depth += (letter == "<") - (letter == ">")
        if letter == "," and depth == 0:
            parts.append(declared[start:place])
            start = place + 1
    return [*parts, declared[start:]]


def _type(kind: str) -> DataType:
    if kind.startswith("array<"):
        return ArrayType(_type(kind[len("array<") : -1].strip()))
    if kind.startswith("map<"):
        key, value = _parts(kind[len("map<") : -1])
        return MapType(_type(key.strip()), _type(value.strip()))
    return _PLAIN[kind]
