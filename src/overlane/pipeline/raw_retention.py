"""Raw retention: ingested rows of old hours are deleted, and the tables computed from them are kept.

With `keep_raw`, at the end of a run the ingested rows of hours that end earlier than this before the newest row are
left out of the run. These hours are **sealed**: no later run computes them, every later run takes over their tables.
What is not aggregated yet is never deleted: rows are left out only after all tables of the same run are complete, and
of this run alone, by not linking their files; the runs before it still have them. A run that is killed has deleted
nothing.

Rows that come later for a sealed hour cannot be added, since the others of the hour are gone: they are rejected with a
reason (`ingest.TOO_LATE`). Days of the lake that have been sealed for a day or more are not listed any more, and their
files are not remembered.

Events and interests are kept: there are few, and intervals and interest are computed from all of them. Of the hour
before a sealed one rows are kept too: a wrong clock moves rows to the next hour.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from overlane.pipeline.hour_files import UNDIVIDED, HourFiles
from overlane.pipeline.units import HOUR_S

DROPPED = ("topic_rates", "links", "queues", "deliveries")
"""Tables of the lake whose old rows are deleted."""
DAY_S = 24 * HOUR_S


def sealed_before(newest_hour_s: int, keep_s: float | None, earlier_s: int) -> int:
    """The first hour that is not sealed. What was sealed stays so, whatever is asked for now."""
    if keep_s is None or newest_hour_s == UNDIVIDED:
        return earlier_s
    wanted = int((newest_hour_s + HOUR_S - keep_s) // HOUR_S) * HOUR_S
    return max(earlier_s, wanted, 0)


def drop_rows(tables: Iterable[HourFiles], sealed_before_s: int) -> int:
    """Remove the files of sealed hours from this run; gives how many. Rows without an hour stay."""
    count = 0
    for files in tables:
        for hour_s, path in list(files):
            if hour_s != UNDIVIDED and hour_s < sealed_before_s - HOUR_S:
                path.unlink()
                count += 1
    return count


def first_day(sealed_before_s: int) -> str:
    """The first day of the lake that is still read, as its directories are named; empty if that is all."""
    if sealed_before_s <= 0:
        return ""
    return f"date={datetime.fromtimestamp(sealed_before_s - DAY_S, UTC).date()}"


def prune_records(lake_files: HourFiles, run: int, day: str) -> bool:
    """Forget the files of days before this one, which are not listed any more; gives whether there were any."""
    paths = [path for _, path in lake_files]
    records = pa.concat_tables([pq.read_table(path) for path in paths])
    kept = records.filter(pc.greater_equal(records.column("file"), day))
    if kept.num_rows == records.num_rows:
        return False
    pq.write_table(kept, lake_files.free(UNDIVIDED, run))
    for path in paths:
        path.unlink()
    return True
