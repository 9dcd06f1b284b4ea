"""Tables in an object store: readers see one run, nothing is lost, and a new machine continues."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from bucketstore import BucketStore, bucket_store
from overlane.errors import Unavailable
from overlane.pipeline import object_store, table_files
from overlane.pipeline.object_store import LATEST, Manifest, ObjectStore, is_object_store, opened, work_directory
from overlane.pipeline.output_directory import OutputDirectory, Run

OUT = "s3a://bucket/some/tables"
NINE = 1_767_603_600


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[BucketStore]:
    with bucket_store("bucket") as running:
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield running


def next_run(output: OutputDirectory, hours: dict[int, bytes]) -> Run:
    """A run that takes over the tables of the last one, and computes these hours."""
    before, run = output.latest(), output.begin()
    for directory in (run.tables / "alive", run.raw / "links"):
        if before is not None:
            shutil.copytree(before.path / directory.relative_to(run.path), directory, dirs_exist_ok=True)
        directory.mkdir(exist_ok=True)
        for hour_s, content in hours.items():
            for old in directory.glob(f"{hour_s}-*"):
                old.unlink()
            (directory / f"{hour_s}-{run.number:04d}-0.parquet").write_bytes(content)
    (run.plans / "brokers.json").write_text(f"plan {run.number}")
    run.summary_file.write_text(str(run.number))
    output.complete(run)
    return run


def publish(output: OutputDirectory, hours: dict[int, bytes]) -> Run:
    with output.locked():
        ObjectStore(OUT).fetch(output)
        run = next_run(output, hours)
        ObjectStore(OUT).publish(output, run)
    return run


def contents(run: Run) -> dict[str, bytes]:
    return {str(path.relative_to(run.path)): path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


def published(store: BucketStore) -> dict[str, bytes]:
    """As a reader finds it: the manifest names the objects."""
    latest = msgspec.json.decode(store.objects[f"bucket/some/tables/{LATEST}"], type=Manifest)
    return {name: store.objects[f"bucket/some/tables/{to}"] for name, to in latest.files.items()}


def test_addresses_of_object_stores_are_told_from_directories() -> None:
    assert [is_object_store(out) for out in ("s3a://b/t", "gs://b/t", "tables", "/srv/t", "file:///srv/t")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert work_directory("s3a://b/t") != work_directory("s3a://b/u")


def test_a_run_is_published_whole_and_only_what_is_new_is_uploaded(store: BucketStore, tmp_path: Path) -> None:
    output = OutputDirectory(tmp_path / "work")
    first = publish(output, {NINE: b"nine", NINE + 3600: b"ten"})
    assert published(store) == contents(first)
    before = dict(store.objects)
    second = publish(output, {NINE + 3600: b"ten and late rows"})
    assert published(store) == contents(second)
    new = {name for name in store.objects if name not in before}
    assert len([name for name in new if name.endswith(".parquet")]) == 2, "an hour of a table, and of ingested rows"
    changed = {name for name in before if store.objects.get(name) != before[name]}
    assert changed == {f"bucket/some/tables/{LATEST}"}, "objects that readers may have open stay as they are"
    files = table_files(OUT, "alive")
    assert [store.objects[file.replace("s3a://", "")] for file in files] == [b"nine", b"ten and late rows"]
    assert table_files(OUT, "nothing") == []


def test_a_machine_without_the_files_downloads_them_and_one_with_older_ones_too(
    store: BucketStore, tmp_path: Path
) -> None:
    here, there = OutputDirectory(tmp_path / "here"), OutputDirectory(tmp_path / "there")
    publish(here, {NINE: b"nine"})
    publish(there, {NINE + 3600: b"ten"})
    third = publish(here, {NINE + 7200: b"eleven"})
    assert third.number == 3
    assert sorted(path.read_bytes() for path in (third.tables / "alive").iterdir()) == [
        b"eleven",
        b"nine",
        b"ten",
    ]
    assert published(store) == contents(third)


def test_tables_are_read_without_the_ingested_rows(store: BucketStore, tmp_path: Path) -> None:
    first = publish(OutputDirectory(tmp_path / "work"), {NINE: b"nine"})
    latest = opened(OUT).latest()
    assert latest is not None
    assert contents(latest) == {name: of for name, of in contents(first).items() if not name.startswith("raw/")}
    requests = len(store.objects)
    assert opened(OUT).latest() == latest
    assert len(store.objects) == requests
    assert opened(str(tmp_path / "work")).latest() == first
    assert table_files(str(tmp_path / "work"), "alive") == [str(next((first.tables / "alive").iterdir()))]


def test_two_machines_at_a_time_never_mix_and_the_later_one_fails(store: BucketStore, tmp_path: Path) -> None:
    here, there = OutputDirectory(tmp_path / "here"), OutputDirectory(tmp_path / "there")
    publish(here, {NINE: b"nine"})
    ObjectStore(OUT).fetch(there)
    mine, theirs = next_run(here, {NINE: b"mine"}), next_run(there, {NINE: b"theirs"})
    ObjectStore(OUT).publish(there, theirs)
    with pytest.raises(Unavailable, match="another pipeline run has written to it"):
        ObjectStore(OUT).publish(here, mine)
    assert published(store) == contents(theirs)


def test_objects_of_the_last_three_runs_are_kept(store: BucketStore, tmp_path: Path) -> None:
    output = OutputDirectory(tmp_path / "work")
    runs = [publish(output, {NINE: b"run %d" % number}) for number in range(5)]
    kept = {of for name, of in store.objects.items() if "/tables/alive/" in name and name.endswith(".parquet")}
    assert kept == {b"run 2", b"run 3", b"run 4"}
    manifests = [name for name in store.objects if "/tables/runs/" in name and name.endswith(".json")]
    assert [name.rpartition("/")[2][:4] for name in sorted(manifests)] == ["0003", "0004", "0005"]
    assert published(store) == contents(runs[-1])


def test_an_upload_that_is_killed_changes_nothing_that_is_read_and_its_objects_go(
    store: BucketStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = OutputDirectory(tmp_path / "work")
    first = publish(output, {NINE: b"nine"})
    expected = published(store)
    next_run(output, {NINE + 3600: b"ten"})
    dying = (
        "import os, signal, sys\n"
        "from overlane.pipeline import object_store\n"
        "from overlane.pipeline.output_directory import OutputDirectory\n"
        "store, output = object_store.ObjectStore(sys.argv[1]), OutputDirectory(sys.argv[2])\n"
        "store._write = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "store.publish(output, output.latest())\n"
    )
    killed = subprocess.run([sys.executable, "-c", dying, OUT, str(output.path)], capture_output=True, check=False)
    assert killed.returncode == -9, killed.stderr
    assert published(store) == expected == contents(first)
    assert b"ten" in store.objects.values(), "it had uploaded something"

    monkeypatch.setattr(object_store, "ORPHANED_S", -1.0)
    third = publish(output, {NINE + 7200: b"eleven"})
    assert published(store) == contents(third)
    assert sum(of == b"ten" for of in store.objects.values()) == 2, "those of the third run; the orphans are gone"
    assert contents(third).keys() >= {f"tables/alive/{NINE + 3600}-0002-0.parquet"}, "it continues the run that was not"


def test_a_store_that_was_emptied_begins_anew(store: BucketStore, tmp_path: Path) -> None:
    output = OutputDirectory(tmp_path / "work")
    publish(output, {NINE: b"nine"})
    store.objects.clear()
    run = publish(output, {NINE + 3600: b"ten"})
    assert [name for name in contents(run) if name.startswith("tables/")] == [
        f"tables/alive/{NINE + 3600}-0001-0.parquet"
    ]


def test_an_address_that_nothing_can_write_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="nosuch://bucket/tables"):
        ObjectStore("nosuch://bucket/tables").fetch(OutputDirectory(tmp_path / "work"))
