"""The Spark data source `overlane`: topics as streams, and as batch tables of the messages kept now."""

from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from overlane.errors import ConfigError, Fault
from overlane.pipeline.streaming.sink import StreamWriter, Writer
from overlane.pipeline.streaming.source import SCHEMA, Reader, StreamReader, ensure_streams
from overlane.pipeline.streaming.stream_options import WHERE, StreamOptions, read_options


class OverlaneDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "overlane"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return Reader(self._reading(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return StreamReader(self._reading(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002 - topics only grow
        return Writer(read_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802, ARG002
        return StreamWriter(read_options(self.options), schema)

    def _reading(self) -> StreamOptions:
        return reading_options(self.options)


def reading_options(given: Mapping[str, str]) -> StreamOptions:
    options = read_options(given)
    if not options.stream:
        raise ConfigError([Fault(WHERE, 0, "stream", "nothing", "a name that is this query's alone")])
    return options


def create_streams(given: Mapping[str, str]) -> None:
    """Create the streams of a query, where they do not exist."""
    options = reading_options(given)
    if not options.topic:
        raise ConfigError([Fault(WHERE, 0, "topic", "nothing", "a topic filter")])
    ensure_streams(options)
