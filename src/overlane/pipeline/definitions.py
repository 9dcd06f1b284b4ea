"""The tables of the pipeline, registered with Spark Declarative Pipelines, for tables in a catalogue.

Seven streaming tables ingest the files of the lake, each file once. All other tables are materialized views, computed
from everything. `overlane pipeline run` computes the same flows by hours (`runner`).
"""

from collections.abc import Callable

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from overlane.pipeline import ingest
from overlane.pipeline.flows import FLOWS, RAW, Flow
from overlane.pipeline.schemas import INGESTED, TABLES
from overlane.pipeline.settings import PipelineSettings

INGEST_CONF = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4",  # whole files
    "spark.sql.files.ignoreMissingFiles": "true",  # a broker may remove its oldest meanwhile
}


class CatalogueSource:
    """Reads tables of the catalogue, always everything."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def table(self, name: str) -> DataFrame:
        return self._spark.read.table(name)

    def touched(self, name: str) -> DataFrame:
        return self.table(name)

    def new(self, name: str) -> DataFrame:
        return self.table(name)

    def is_empty(self, name: str) -> bool:  # noqa: ARG002
        return False


def define(spark: SparkSession, settings: PipelineSettings, now_ns: int) -> list[str]:
    """Define everything with the registry that is active, and give the names."""
    for table in RAW:
        _define_raw(spark, table, settings, now_ns)
    source = CatalogueSource(spark)
    for flow in FLOWS:
        view = dp.materialized_view(name=flow.name, schema=TABLES[flow.name], format="parquet")  # type: ignore[call-overload]
        view(_maker(flow, source, settings))
    return [*RAW.values(), *(flow.name for flow in FLOWS)]


def _maker(flow: Flow, source: CatalogueSource, settings: PipelineSettings) -> Callable[[], DataFrame]:
    return lambda: flow.make(source, settings)


def _define_raw(spark: SparkSession, table: str, settings: PipelineSettings, now_ns: int) -> None:
    def rows() -> DataFrame:
        return ingest.ingest_files(ingest.lake_files(spark, settings.lake, table), table, now_ns)

    declared = dp.table(  # type: ignore[call-overload]
        name=RAW[table], schema=INGESTED[table], spark_conf=INGEST_CONF, format="parquet"
    )
    declared(rows)
