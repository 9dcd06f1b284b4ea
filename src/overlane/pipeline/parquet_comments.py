"""Comments of columns in Parquet files: where Spark keeps them, and as metadata of Arrow's fields.

    spark.read.parquet("tables/latest/tables/reliability").schema["failure"].metadata["comment"]
    pyarrow.parquet.read_schema(...).field("failure").metadata[b"comment"]     # of files that Arrow has written

Spark stores its schema, with comments, as JSON under a key of the footer, and reads it from there.
"""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructField, StructType

from overlane.pipeline.schemas import INGESTED, TABLES
from overlane.pipeline.table_comments import comment_of

COMMENT = "comment"
SPARK_KEY = "org.apache.spark.sql.parquet.row.metadata"
RAW_PREFIX = "raw_"


def schema_of(table: str) -> StructType:
    """With comments. Ingested tables are `raw_...`."""
    declared = TABLES[table] if table in TABLES else INGESTED[table.removeprefix(RAW_PREFIX)]
    return StructType([StructField(f.name, f.dataType, True, _metadata(table, f.name)) for f in declared.fields])


def commented(frame: DataFrame, table: str) -> DataFrame:
    """The columns of the table with their comments."""
    names = TABLES[table].fieldNames()
    return frame.select(*[sf.col(name).alias(name, metadata=_metadata(table, name)) for name in names])


def commented_arrow(schema: Any, table: str) -> Any:
    """An Arrow schema of the table, with comments for Arrow and for Spark."""
    every = schema
    for place, field in enumerate(schema):
        every = every.set(place, field.with_metadata(_metadata(table, field.name)))
    return every.with_metadata({SPARK_KEY: schema_of(table).json()})


def _metadata(table: str, column: str) -> dict[str, str]:
    return {COMMENT: comment_of(table, column)}
