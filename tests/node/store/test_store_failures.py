"""A store whose disk is full, locked or gone: nothing is acknowledged that is not on disk, and nothing is forgotten."""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from storebench import Loop, Turns, content

from overlane.errors import Unavailable
from overlane.node.store import durable as store_module
from overlane.node.store.durable import FILE, RESERVE, Store
from overlane.node.store.errors import Cause, StoreError
from overlane.node.store.reserve import Reserve

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture
def turns() -> Turns:
    return Turns(Loop())


@contextmanager
def disk_of(path: Path, size: str) -> Iterator[Path]:
    """A file system of this size."""
    path.mkdir()
    if call("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path):
        pytest.skip("mounting a file system is not allowed here")
    try:
        yield path
    finally:
        assert call("umount", "--lazy", path) == 0


def call(*command: str | Path) -> int:
    return subprocess.run(command, capture_output=True, check=False).returncode


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with disk_of(tmp_path / "disk", "2m") as disk:
        yield disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Large enough for the reserve."""
    with disk_of(tmp_path / "disk", "80m") as disk:
        yield disk


def fill(disk: Path) -> Path:
    """Leave nothing free."""
    ballast = disk / "ballast"
    free = os.statvfs(disk)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize)
    return ballast


def cause(error: StoreError | None) -> Cause | None:
    return error.cause if error else None


def fail(store: Store, turns: Turns) -> None:
    """Wait until the store fails."""
    turns.loop.run_until(lambda: store.failing is not None)


def test_a_full_disk_holds_acknowledgements_back_until_there_is_room(small_disk: Path, turns: Turns) -> None:
    store = Store.open(small_disk / "data", turns.loop.soon, turns.states.append)
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * MIB)
    for turn in range(20):
        turns.submit(store, turn, {("a", b"%d" % turn): b"x" * 60 * KIB})
    fail(store, turns)
    assert cause(store.failing) is Cause.FULL
    assert [error for _, error in turns.ended] == [None] * len(turns.ended)
    ballast.unlink()
    turns.loop.run_until(lambda: len(turns.ended) == 20)
    assert turns.ended == [(turn, None) for turn in range(20)]
    assert [cause(error) for error in turns.states] == [Cause.FULL, None]
    assert store.failing is None
    assert store.close() is None


def write_until_it_fails(store: Store, turns: Turns) -> int:
    """How many records of 100 KiB it takes."""
    written = 0
    while store.failing is None:
        turns.commit(store, {("a", b"%d" % written): b"x" * 100 * KIB})
        written += 1
    return written


def test_on_a_disk_that_the_store_has_filled_erasing_goes_on(disk: Path, turns: Turns) -> None:
    store = Store.open(disk / "data", turns.loop.soon, turns.states.append)
    written = write_until_it_fails(store, turns)
    assert [cause(error) for error in turns.states] == [Cause.FULL]
    assert not (disk / "data" / RESERVE).exists()
    # Little is erased, and still nothing more is wanted; much is erased, and there is room again inside the database.
    turns.commit(store, {("a", b"%d" % number): None for number in range(written // 20)})
    assert cause(store.failing) is Cause.FULL
    turns.commit(store, {("a", b"%d" % number): None for number in range(written)})
    turns.loop.run_until(lambda: store.failing is None)
    assert content(store) == {}
    turns.states.clear()
    assert write_until_it_fails(store, turns) > 100
    assert [cause(error) for error in turns.states] == [Cause.FULL]
    store.close()


def test_the_reserve_is_taken_again_when_the_disk_has_room(
    disk: Path, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "RETRY_MAX_S", 0.01)
    store = Store.open(disk / "data", turns.loop.soon, turns.states.append)
    ballast = fill(disk)
    turns.submit(store, 1, {("a", b"1"): b"x" * 100 * KIB})
    turns.loop.run_until(lambda: len(turns.ended) == 1)
    assert cause(store.failing) is Cause.FULL
    assert not (disk / "data" / RESERVE).exists()
    ballast.unlink()
    turns.loop.run_until(lambda: store.failing is None)
    assert (disk / "data" / RESERVE).stat().st_size == store_module.RESERVE_BYTES
    store.close()


def test_a_full_disk_at_the_start_is_said_to_be_full(small_disk: Path, turns: Turns) -> None:
    Store.open(small_disk / "data", turns.loop.soon).close()
    ballast = fill(small_disk)
    with pytest.raises(StoreError) as refused:
        Store.open(small_disk / "data", turns.loop.soon)
    assert refused.value.cause is Cause.FULL
    ballast.unlink()
    Store.open(small_disk / "data", turns.loop.soon).close()


def test_a_read_only_disk_at_the_start_is_said_to_be_read_only(small_disk: Path, turns: Turns) -> None:
    Store.open(small_disk / "data", turns.loop.soon).close()
    assert call("mount", "-o", "remount,ro", small_disk) == 0
    with pytest.raises(Unavailable, match=f"{small_disk}.*[Rr]ead-only"):
        Store.open(small_disk / "data", turns.loop.soon)


def test_files_that_may_not_be_written_for_a_while_are_written_later(tmp_path: Path, turns: Turns) -> None:
    store = Store.open(tmp_path / "data", turns.loop.soon, turns.states.append)
    turns.commit(store, {("a", b"0"): b"x"})
    files = [tmp_path / "data" / name for name in (FILE, f"{FILE}-wal")]
    if shutil.which("chattr") is None or call("chattr", "+i", *files):
        store.close()
        pytest.skip("this file system does not know files that cannot be written")
    try:
        turns.submit(store, 1, {("a", b"1"): b"y"})
        fail(store, turns)
        turns.submit(store, 2, {("a", b"2"): b"z", ("a", b"0"): None})
        assert len(turns.ended) == 1
    finally:
        assert call("chattr", "-i", *files) == 0
    turns.loop.run_until(lambda: len(turns.ended) == 3)
    assert turns.ended[1:] == [(1, None), (2, None)]
    assert content(store) == {("a", b"1"): b"y", ("a", b"2"): b"z"}
    store.close()


def test_a_reserve_on_a_disk_that_is_gone_or_read_only_is_just_not_there(small_disk: Path) -> None:
    nowhere = Reserve(small_disk / "nowhere" / RESERVE, MIB)
    assert not nowhere.hold()
    reserve = Reserve(small_disk / RESERVE, MIB)
    assert reserve.hold()
    fill(small_disk)
    assert call("mount", "-o", "remount,ro", small_disk) == 0
    assert not reserve.give_up()
    assert reserve.is_held


@pytest.mark.parametrize("name", ["", FILE, f"{FILE}-wal"])
def test_nothing_is_acknowledged_while_the_files_are_not_in_their_place(
    tmp_path: Path, turns: Turns, name: str
) -> None:
    store = Store.open(tmp_path / "data", turns.loop.soon, turns.states.append)
    turns.commit(store, {("a", b"1"): b"x"})
    moved = tmp_path / "data" / name
    moved.rename(tmp_path / "elsewhere")
    turns.submit(store, 2, {("a", b"2"): b"x"})
    fail(store, turns)
    assert cause(store.failing) is Cause.BROKEN
    assert "No such file" in str(store.failing)
    (tmp_path / "elsewhere").rename(moved)
    turns.loop.run_until(lambda: len(turns.ended) == 2)
    assert turns.ended[1] == (2, None)
    store.close()


def test_a_tool_that_locks_the_file_only_delays(tmp_path: Path, turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("overlane.node.store.record_format.BUSY_MS", 1)
    store = Store.open(tmp_path, turns.loop.soon, turns.states.append)
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        turns.submit(store, 1, {("a", b"1"): b"y"})
        fail(store, turns)
        assert "lock" in str(store.failing)
        shell.execute("ROLLBACK")
    turns.loop.run_until(lambda: turns.ended == [(1, None)])
    store.close()


def test_a_reader_that_stays_neither_delays_nor_loses_anything(tmp_path: Path, turns: Turns) -> None:
    store = Store.open(tmp_path, turns.loop.soon, turns.states.append)
    with closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as shell:
        shell.execute("BEGIN")
        assert shell.execute("SELECT count(*) FROM records").fetchone() == (2,)  # incarnation and instance
        for turn in range(10):
            turns.commit(store, {("a", b"%d" % turn): b"x" * MIB})
        assert store.close() is None
    store = Store.open(tmp_path, turns.loop.soon)
    assert len(content(store)) == 10
    store.close()


def test_a_store_near_its_limit_still_writes_and_says_that_no_more_should_come(tmp_path: Path, turns: Turns) -> None:
    store = Store.open(tmp_path, turns.loop.soon, turns.states.append, bytes_max=MIB)
    number = 0
    while not turns.states:
        turns.commit(store, {("a", b"%d" % number): bytes(20_000)})
        turns.loop.run_what_waits()
        number += 1
    assert cause(store.failing) is Cause.FULL
    assert 0.8 * MIB < number * 20_000 < MIB
    # What has been begun is brought to its end, and the state does not flicker.
    turns.commit(store, {("b", b"begun"): bytes(50_000)})
    turns.commit(store, {("a", b"0"): None, ("a", b"1"): None})
    assert cause(store.failing) is Cause.FULL
    turns.commit(store, {("a", b"%d" % gone): None for gone in range(2, 12)})
    turns.loop.run_what_waits()
    assert [cause(error) for error in turns.states] == [Cause.FULL, None]
    store.close()


def test_closing_a_store_that_cannot_write_tells_what_is_lost(tmp_path: Path, turns: Turns) -> None:
    store = Store.open(tmp_path, turns.loop.soon, turns.states.append, bytes_max=MIB)
    turns.commit(store, {("a", b"0"): b"x"})
    turns.submit(store, 1, {("a", b"1"): b"x" * 2 * MIB, ("a", b"2"): b""})
    fail(store, turns)
    turns.submit(store, 2, {("a", b"3"): b"x"})
    error = store.close(patience_s=0.0)
    turns.loop.run_what_waits()
    assert cause(error) is Cause.CLOSED
    assert "closed with 3 changes of 2 turns not written" in str(error)
    assert turns.ended[1:] == [(1, error), (2, error)]
    assert store.close() is error
    store = Store.open(tmp_path, turns.loop.soon)
    assert content(store) == {("a", b"0"): b"x"}
    store.close()


def test_closing_tries_to_write_until_its_patience_ends(small_disk: Path, turns: Turns) -> None:
    store = Store.open(small_disk / "data", turns.loop.soon, turns.states.append)
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * MIB)
    turns.submit(store, 1, {("a", b"1"): b"x" * MIB})
    fail(store, turns)
    ballast.unlink()
    assert store.close() is None
    turns.loop.run_what_waits()
    assert turns.ended == [(1, None)]


def test_one_done_that_fails_does_not_keep_the_others_waiting(tmp_path: Path, turns: Turns) -> None:
    def broken(error: StoreError | None) -> None:
        raise ZeroDivisionError(error)

    store = Store.open(tmp_path, turns.loop.soon)
    turns.submit(store, 1, {("a", b"1"): b"x"})
    store.submit({("a", b"2"): b"x"}, broken)
    turns.submit(store, 3, {("a", b"3"): b"x"})
    with pytest.raises(ZeroDivisionError):
        turns.loop.run_until(lambda: len(turns.ended) == 2)
    turns.loop.run_until(lambda: len(turns.ended) == 2)
    assert turns.ended == [(1, None), (3, None)]
    store.close()


@pytest.mark.parametrize(
    "wrong", [{("a", b"1"): 7}, {("a", "key"): b"x"}, {("a\udcff", b"1"): b"x"}, {("a", b"1"): [1]}]
)
def test_a_defect_stops_the_store_loudly(tmp_path: Path, turns: Turns, wrong: Any) -> None:
    store = Store.open(tmp_path, turns.loop.soon, turns.states.append)
    turns.submit(store, 1, wrong)
    turns.loop.run_until(lambda: len(turns.ended) == 1)
    assert "defect" in str(turns.ended[0][1])
    assert "defect" in str(store.failing)
    with pytest.raises(RuntimeError, match="closed"):
        store.submit({}, lambda _: None)
    assert cause(store.close()) is Cause.CLOSED


def test_tries_come_less_often_the_longer_the_trouble_lasts(
    tmp_path: Path, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    store = Store.open(tmp_path, turns.loop.soon, turns.states.append, bytes_max=MIB)

    def pause(pause_s: float) -> bool:
        pauses.append(pause_s)
        return len(pauses) < 10

    monkeypatch.setattr(store, "_pause", pause)
    turns.submit(store, 1, {("a", b"1"): b"x" * 2 * MIB})
    turns.loop.run_until(lambda: len(turns.ended) == 1)
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0])
    assert (pauses[0], pauses[-1]) == (store_module.RETRY_MIN_S, store_module.RETRY_MAX_S)
