"""FileRotation: rows become files that a reader sees whole, in time and within limits."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from lakes import NOON, Desk, event, files, rows

from overlane.core.units import SECOND
from overlane.telemetry.file_rotation import DAY
from overlane.telemetry.rows import Event, Interest
from overlane.telemetry.schema import SCHEMAS, VERSION_KEY

KIB = 1024


def peers(lake: Path) -> list[str]:
    return [row["peer"] for row in rows(lake, "events")]


# When


def test_nothing_is_seen_before_a_file_is_finished(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.record(event(0, "one"))
    desk.pass_s(5)
    assert peers(desk.lake) == []
    desk.pass_s(5)
    assert peers(desk.lake) == ["one"]
    assert files(desk.lake) == ["events/date=2024-10-04/seattle-1-1.parquet"]


def test_files_get_longer_as_the_broker_gets_older_up_to_the_age_that_is_set(tmp_path: Path) -> None:
    desk = Desk(tmp_path, file_age_ns=60 * SECOND)
    seen = []
    for second in range(200):
        before = desk.filing.files_made
        desk.record(event(second))
        desk.pass_s(1)
        if desk.filing.files_made > before:
            seen.append(second + 1)
    assert seen == [10, 20, 40, 80, 140, 200]


def test_a_file_that_is_large_enough_is_finished_at_once(tmp_path: Path) -> None:
    desk = Desk(tmp_path, file_bytes=64 * KIB)
    desk.record(event(0, "x" * 70_000))
    desk.pass_s(0)
    assert len(peers(desk.lake)) == 1


def test_a_table_without_rows_has_no_files(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.record(event(0))
    desk.pass_s(100)
    desk.pass_s(100)
    desk.close()
    assert files(desk.lake) == ["events/date=2024-10-04/seattle-1-1.parquet"]


# Where


def test_rows_lie_under_the_day_they_are_of(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    midnight_s = DAY // 2 // SECOND
    desk.filing.record("events", [event(midnight_s - 1, "before"), event(midnight_s, "after")], desk.now_s)
    desk.record(event(midnight_s - 0.5, "late"))
    desk.close()
    assert [(row["peer"], row["date"]) for row in rows(desk.lake, "events")] == [
        ("before", "2024-10-04"),
        ("late", "2024-10-04"),
        ("after", "2024-10-05"),
    ]


def test_each_table_has_its_own_files_and_no_two_have_the_same_name(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.record(event(0), Interest(NOON, "a/#", "", 1))
    desk.close()
    desk.record(event(1))
    desk.close()
    assert files(desk.lake) == [
        "events/date=2024-10-04/seattle-1-1.parquet",
        "events/date=2024-10-04/seattle-1-3.parquet",
        "interests/date=2024-10-04/seattle-1-2.parquet",
    ]


def test_a_file_says_by_which_schema_it_was_written(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.record(event(0))
    desk.close()
    (path,) = (desk.lake / "events").rglob("*.parquet")
    schema = pq.read_schema(path)
    assert schema.equals(SCHEMAS["events"])
    assert schema.metadata[VERSION_KEY] == b"1"


def test_many_rows_at_once_are_all_written_in_order(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.filing.record("events", [event(second) for second in range(2_500)], desk.now_s)
    desk.close()
    assert [row["at_ns"] - NOON for row in rows(desk.lake, "events")] == [second * SECOND for second in range(2_500)]


# After a crash


def test_what_a_killed_broker_had_recorded_is_in_the_lake_after_its_next_start(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.record(event(0, "first"), event(1, "last words"))
    desk.die()
    desk = Desk(tmp_path, incarnation=2)
    desk.record(event(60, "again"))
    desk.close()
    assert [(row["incarnation"], row["peer"]) for row in rows(desk.lake, "events")] == [
        (1, "first"),
        (1, "last words"),
        (2, "again"),
    ]
    assert files(desk.spool) == []


def test_a_journal_whose_file_was_already_made_does_not_make_its_rows_twice(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.record(event(0, "once"))
    desk.die()
    (journal,) = desk.spool.iterdir()
    content = journal.read_bytes()
    Desk(tmp_path, incarnation=2).close()
    journal.write_bytes(content)  # killed between the file's rename and the journal's removal
    Desk(tmp_path, incarnation=3).close()
    assert peers(desk.lake) == ["once"]


def test_half_written_files_of_an_earlier_life_are_removed(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.record(event(0))
    desk.close()
    day = desk.lake / "events" / "date=2024-10-04"
    (day / ".seattle-1-2.parquet.part").write_bytes(b"PAR1 half")
    (day / ".denver-1-2.parquet.part").write_bytes(b"PAR1 being written by another broker")
    Desk(tmp_path, incarnation=2)
    assert files(day) == [".denver-1-2.parquet.part", "seattle-1-1.parquet"]


def test_a_journal_that_cannot_be_read_is_dropped_and_holds_up_nothing(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    (desk.spool / "events.2024-10-04.seattle-1-1.rows").write_bytes(b"garbage")
    desk = Desk(tmp_path, incarnation=2)
    desk.record(event(0, "good"))
    desk.close()
    assert (peers(desk.lake), files(desk.spool)) == (["good"], [])


def test_journals_of_other_brokers_and_of_one_that_lives_are_left_alone(tmp_path: Path) -> None:
    living = Desk(tmp_path, "seattle")
    living.record(event(0, "mine"))
    neighbour = Desk(tmp_path, "denver")
    neighbour.record(event(1, "dead"))
    neighbour.die()
    Desk(tmp_path, "seattle", incarnation=2).close()
    assert peers(living.lake) == []
    living.close()
    assert peers(living.lake) == ["mine"]


def test_two_lives_with_the_same_incarnation_do_not_overwrite_each_other(tmp_path: Path) -> None:
    for peer in ("first", "second"):
        desk = Desk(tmp_path, incarnation=5)
        desk.record(event(0, peer))
        desk.close()
    assert sorted(peers(desk.lake)) == ["first", "second"]


# Limits


def incompressible(number: int, size: int) -> str:
    state, text = number + 1, list[str]()
    while len(text) < size:
        state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        text.append(chr(33 + (state >> 33) % 94))
    return "".join(text)


def test_the_oldest_files_go_when_there_is_no_more_room(tmp_path: Path) -> None:
    desk = Desk(tmp_path, disk_bytes=100 * KIB)
    for number in range(20):
        desk.record(Event(NOON + number, "link", peer=incompressible(number, 20_000)))
        desk.close()
        desk.filing.trim_journals()
        size = sum((desk.lake / name).stat().st_size for name in files(desk.lake))
        assert size <= 100 * KIB
    left = [row["at_ns"] - NOON for row in rows(desk.lake, "events")]
    assert left == list(range(20 - len(left), 20))
    assert len(left) >= 3
    assert desk.filing.files_removed == 20 - len(left)
    assert desk.filing.bytes_removed > 15_000 * desk.filing.files_removed


def test_files_of_other_brokers_neither_count_nor_go(tmp_path: Path) -> None:
    other = Desk(tmp_path, "denver")
    other.record(Event(NOON, "link", peer=incompressible(1, 50_000)))
    other.close()
    desk = Desk(tmp_path, disk_bytes=40 * KIB)
    desk.record(event(1))
    desk.close()
    desk.filing.trim_journals()
    assert (desk.filing.files_removed, len(files(desk.lake))) == (0, 2)


def test_the_limit_holds_for_files_of_earlier_lives_too(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for number in range(4):
        desk.record(Event(NOON + number, "link", peer=incompressible(number, 20_000)))
        desk.close()
    desk = Desk(tmp_path, incarnation=2, disk_bytes=50 * KIB)
    desk.record(event(100, "new"))
    desk.close()
    desk.filing.trim_journals()
    assert desk.filing.files_removed >= 2
    assert peers(desk.lake)[-1] == "new"


def test_journals_that_cannot_be_published_stay_within_the_limit(tmp_path: Path) -> None:
    desk = Desk(tmp_path, disk_bytes=100 * KIB)
    (desk.lake / "events").write_text("in the way")
    for number in range(10):
        desk.record(Event(NOON + number, "link", peer="x" * 20_000))
        desk.filing.seal_all()
        with pytest.raises(OSError, match="events"):
            desk.filing.publish()
        desk.filing.trim_journals()
        assert sum(path.stat().st_size for path in desk.spool.iterdir()) <= 100 * KIB
    assert desk.filing.files_removed > 0
    (desk.lake / "events").unlink()
    desk.filing.publish()
    assert [row["at_ns"] - NOON for row in rows(desk.lake, "events")] == list(range(desk.filing.files_removed, 10))
