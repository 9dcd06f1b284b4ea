"""A lake in a store of buckets: a broker records into it as into a directory."""

import io
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from brokers import Overlane
from bucketstore import BucketStore, bucket_store
from waiting import eventually

SOON = '[telemetry]\nfile_age = "100ms"\n'
WITHIN_S = 60.0


class Remote(Overlane):
    def command(self) -> list[str]:
        return [*super().command(), "--telemetry", "s3://bucket/lake"]


def rows(store: BucketStore, table: str) -> list[dict[str, Any]]:
    """All that is there under whole names."""
    files = [name for name in sorted(store.objects) if name.startswith(f"bucket/lake/{table}/date=")]
    whole = [name for name in files if name.endswith(".parquet")]
    return [row for name in whole for row in pq.read_table(io.BytesIO(store.objects[name])).to_pylist()]


def has_lives(store: BucketStore, count: int) -> bool:
    return len({row["incarnation"] for row in rows(store, "queues")}) == count


def test_a_broker_records_into_a_bucket_and_goes_on_there_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bucket_store("bucket") as store:
        for name, value in store.environment().items():
            monkeypatch.setenv(name, value)
        broker = Remote(tmp_path / "broker", SOON)
        for number in (1, 2):
            broker.start()
            try:
                eventually(partial(has_lives, store, number), "rows of this life, while it lasts", WITHIN_S)
                broker.stop()
            finally:
                broker.kill()
            assert [row["kind"] for row in rows(store, "events")] == ["broker-started", "broker-stopped"] * number
        assert [name for name in store.objects if name.endswith(".part") or "?" in name] == []
