"""Output in an object store: `--out s3a://bucket/tables`, or any address that Arrow can write.

An object store has no links, no renaming and no locks, so a run works in a directory of this machine (`--work`) as
always, and publishes what is new:

    OUT/tables/<name>/<hour>-<run>-<number>-<token>.parquet   never changed; shared by later runs
    OUT/raw/..., OUT/plans/..., OUT/run-<token>.json          the other files of a run, in the same way
    OUT/runs/0003-<token>.json                                a manifest: the objects of each file of the run
    OUT/latest.json                                           the manifest of the last run

`latest.json` is written last, as one object: readers that go by it (`table_files`) see the tables of one run, never a
mixture. A run that is killed before leaves objects that no manifest names; they are deleted after a day. The objects of
the last three manifests are kept. Names contain a token of the publication, so two machines never overwrite each other;
the one that finds another manifest than the one it began with fails.

The store is what counts: if the directory of this machine is new, or knows another state, the files are downloaded.
"""

import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.fs as fs

from overlane.errors import Unavailable
from overlane.pipeline.lake_listing import file_system
from overlane.pipeline.output_directory import RUNS_KEPT, OutputDirectory, Run

LATEST = "latest.json"
CONCURRENT = 16
ORPHANED_S = 86_400.0
"""Objects that no manifest names may be of a run that is being published."""
_MARKER = ".published"
_DIRECTORIES = ("tables", "raw", "plans")


class Manifest(msgspec.Struct, frozen=True):
    run: int
    token: str
    files: dict[str, str]
    """Path of a file within the run, and its object within OUT."""


def is_object_store(out: str) -> bool:
    return "://" in out and not out.startswith("file://")


def work_directory(out: str, purpose: str = "") -> Path:
    """Where a run works if nothing else is said."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "overlane" / "pipeline" / f"{hashlib.sha256(out.encode()).hexdigest()[:16]}{purpose}"


def opened(out: str, work: Path | None = None) -> OutputDirectory:
    """The tables of the last run for reading: OUT itself, or a copy of what the store has, without ingested rows."""
    if not is_object_store(out):
        return OutputDirectory(out.removeprefix("file://"))
    output = OutputDirectory(work or work_directory(out, "-tables"))
    with output.locked():
        ObjectStore(out).fetch(output, lambda name: not name.startswith("raw/"))
    return output


def table_files(out: str, table: str) -> list[str]:
    """Addresses of the files of a table of the last run, for `spark.read.parquet(*files)`."""
    if not is_object_store(out):
        latest = OutputDirectory(out.removeprefix("file://")).latest()
        return [] if latest is None else sorted(map(str, (latest.tables / table).glob("*.parquet")))
    found = ObjectStore(out).manifest()
    objects = [] if found is None else [to for name, to in found.files.items() if name.startswith(f"tables/{table}/")]
    return [f"{out.rstrip('/')}/{name}" for name in sorted(objects)]


class ObjectStore:
    def __init__(self, out: str) -> None:
        self._out = out
        with self._told():
            self._system, self._root = file_system(out)

    def manifest(self) -> Manifest | None:
        """Of the last run."""
        with self._told():
            if self._system.get_file_info(f"{self._root}/{LATEST}").type != fs.FileType.File:
                return None
            try:
                return msgspec.json.decode(self._read(LATEST), type=Manifest)
            except (msgspec.DecodeError, msgspec.ValidationError) as wrong:
                raise Unavailable(f"{self._out}/{LATEST}", str(wrong)) from None

    def fetch(self, output: OutputDirectory, is_wanted: Callable[[str], bool] = lambda _: True) -> None:
        """Bring the directory into the state of the store."""
        found, marker = self.manifest(), output.path / _MARKER
        known = marker.read_text() if marker.is_file() else None
        if known == (None if found is None else found.token):
            return
        for old in ("runs", "latest"):  # a link, at last, or a directory
            place = output.path / old
            place.unlink() if place.is_symlink() else shutil.rmtree(place, ignore_errors=True)
        marker.unlink(missing_ok=True)
        if found is None:
            return
        run = Run(output.path / "runs" / f"{found.run:04d}")
        for directory in (run.tables, run.raw, run.plans):
            directory.mkdir(parents=True)
        wanted = [(run.path / name, to) for name, to in found.files.items() if is_wanted(name)]
        with self._told():
            self._all(self._download, wanted)
        output.complete(run)
        marker.write_text(found.token)

    def publish(self, output: OutputDirectory, run: Run) -> None:
        """Upload what is new in a run, and make it the last one."""
        marker = output.path / _MARKER
        began_with = marker.read_text() if marker.is_file() else None
        before = self._unchanged_since(began_with)
        token = secrets.token_hex(4)
        files: dict[str, str] = {}
        new: list[tuple[Path, str]] = []
        for path in sorted(one for one in run.path.rglob("*") if one.is_file()):
            name = str(path.relative_to(run.path))
            is_there = before is not None and name in before.files and path.suffix == ".parquet"
            files[name] = before.files[name] if before is not None and is_there else _object_of(name, token)
            if not is_there:
                new.append((path, files[name]))
        manifest = Manifest(run.number, token, files)
        encoded = msgspec.json.encode(manifest)
        with self._told():
            self._all(self._upload, new)
            self._write(f"runs/{run.number:04d}-{token}.json", encoded)
        self._unchanged_since(began_with)
        with self._told():
            self._write(LATEST, encoded)
            marker.write_text(token)
            self._clean(manifest)

    # Parts

    def _unchanged_since(self, token: str | None) -> Manifest | None:
        found = self.manifest()
        if (None if found is None else found.token) != token:
            raise Unavailable(self._out, "another pipeline run has written to it meanwhile; repeat the run")
        return found

    def _clean(self, latest: Manifest) -> None:
        """Delete what no kept manifest names."""
        listed = [info for info in self._listed("runs") if info.base_name.endswith(".json")]
        own = f"{latest.run:04d}-{latest.token}.json"
        earlier = sorted(info.base_name for info in listed if info.base_name != own)
        dropped = earlier[: -(RUNS_KEPT - 1)]
        manifests = {name: msgspec.json.decode(self._read(f"runs/{name}"), type=Manifest) for name in [*earlier, own]}
        kept = {to for name, of in manifests.items() if name not in dropped for to in of.files.values()}
        gone = {to for name in dropped for to in manifests[name].files.values()} - kept
        old_s = time.time() - ORPHANED_S
        for directory in _DIRECTORIES:
            for info in self._listed(directory):
                name = info.path.removeprefix(f"{self._root}/")
                if name not in kept and info.mtime_ns and info.mtime_ns / 1e9 < old_s:
                    gone.add(name)
        self._all(self._delete, [(name,) for name in [*sorted(gone), *(f"runs/{name}" for name in dropped)]])

    def _listed(self, directory: str) -> Iterator[Any]:
        selector = fs.FileSelector(f"{self._root}/{directory}", allow_not_found=True, recursive=True)
        return (info for info in self._system.get_file_info(selector) if info.type == fs.FileType.File)

    def _read(self, name: str) -> bytes:
        with self._system.open_input_stream(f"{self._root}/{name}") as stream:
            content: bytes = stream.read()
        return content

    def _write(self, name: str, content: bytes) -> None:
        with self._system.open_output_stream(f"{self._root}/{name}") as stream:
            stream.write(content)

    def _upload(self, path: Path, name: str) -> None:
        with path.open("rb") as given, self._system.open_output_stream(f"{self._root}/{name}") as stream:
            shutil.copyfileobj(given, stream, 1 << 20)

    def _download(self, path: Path, name: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._system.open_input_stream(f"{self._root}/{name}") as stream, path.open("wb") as copy:
            shutil.copyfileobj(stream, copy, 1 << 20)

    def _delete(self, name: str) -> None:
        if self._system.get_file_info(f"{self._root}/{name}").type == fs.FileType.File:
            self._system.delete_file(f"{self._root}/{name}")

    def _all(self, work: Callable[..., None], given: Iterable[tuple[Any, ...]]) -> None:
        with ThreadPoolExecutor(CONCURRENT) as pool:
            for future in [pool.submit(work, *each) for each in given]:
                future.result()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, pa.ArrowException) as refused:
            raise Unavailable(self._out, str(refused).splitlines()[0]) from None


def _object_of(name: str, token: str) -> str:
    path = PurePosixPath(name)
    return str(path.with_name(f"{path.stem}-{token}{path.suffix}"))
