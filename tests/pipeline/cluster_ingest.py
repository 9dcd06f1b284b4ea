"""A driver of its own on a cluster, whose executors ingest one table; tells the rows of each file.

python cluster_ingest.py MASTER LAKE TABLE
"""

import json
import sys
import time

from overlane.pipeline.ingest import ingest_files, new_files
from overlane.pipeline.lake_listing import list_lake
from overlane.pipeline.session import open_session
from overlane.pipeline.small_runs import SMALL_RUN_CONF


def main(master: str, lake: str, table: str) -> None:
    files = [file.name for file in list_lake(lake) if file.table == table]
    with open_session(master, conf={**SMALL_RUN_CONF, "spark.executor.memory": "800m"}) as spark:
        rows = ingest_files(new_files(spark, lake, table, files), table, time.time_ns())
        print(json.dumps({row["file"]: row["count"] for row in rows.groupBy("file").count().collect()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
