"""Journals: rows survive the end of whoever wrote them, as far as they were written."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlane.telemetry.journal import FileName, Journal, abandoned, read_journal
from overlane.telemetry.rows import Event
from overlane.telemetry.schema import SCHEMAS, record_batch

NAME = FileName("2026-01-02", 7, 3, "events", "new-york.1")


def batch(*times: int) -> object:
    return record_batch("events", "new-york.1", 7, [Event(at_ns, "link", peer="x" * at_ns) for at_ns in times])


def times(path: Path) -> list[int]:
    found: list[int] = read_journal(path)["at_ns"].to_pylist()
    return found


def test_a_journal_holds_what_was_appended(tmp_path: Path) -> None:
    journal = Journal(tmp_path, NAME, SCHEMAS["events"])
    journal.append(batch(1, 2))
    journal.append(batch(3))
    assert times(journal.path) == [1, 2, 3]
    assert journal.bytes == journal.path.stat().st_size
    journal.close()
    assert read_journal(journal.path).schema == SCHEMAS["events"]


def test_wherever_a_journal_is_cut_off_the_whole_batches_before_are_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path, NAME, SCHEMAS["events"])
    ends = {journal.bytes: list[int]()}
    for at_ns in range(1, 4):
        journal.append(batch(at_ns))
        ends[journal.bytes] = list(range(1, at_ns + 1))
    journal.close()
    content = journal.path.read_bytes()
    cut = tmp_path / "cut"
    for size in range(min(ends), len(content) + 1, 3):
        cut.write_bytes(content[:size])
        assert times(cut) == ends[max(end for end in ends if end <= size)], size


def test_a_journal_without_a_beginning_is_refused(tmp_path: Path) -> None:
    path = tmp_path / NAME.journal
    for content in (b"", b"\0" * 4096, b"not a journal"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=NAME.table):
            read_journal(path)


def test_zeros_where_the_disk_lost_the_end_are_no_rows(tmp_path: Path) -> None:
    journal = Journal(tmp_path, NAME, SCHEMAS["events"])
    journal.append(batch(1))
    whole = journal.bytes
    journal.append(batch(2))
    journal.close()
    content = journal.path.read_bytes()
    journal.path.write_bytes(content[:whole] + bytes(len(content) - whole))
    assert times(journal.path) == [1]


def test_a_journal_is_abandoned_when_its_writer_is_gone(tmp_path: Path) -> None:
    journal = Journal(tmp_path, NAME, SCHEMAS["events"])
    assert not abandoned(journal.path)
    journal.close()
    assert abandoned(journal.path)
    assert not abandoned(tmp_path / "none")


def test_no_journal_takes_the_place_of_another(tmp_path: Path) -> None:
    Journal(tmp_path, NAME, SCHEMAS["events"]).close()
    with pytest.raises(FileExistsError):
        Journal(tmp_path, NAME, SCHEMAS["events"])


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)


@given(names, st.integers(0, 2**40), st.integers(0, 2**40))
def test_a_file_name_tells_the_broker_whatever_its_name(broker: str, incarnation: int, number: int) -> None:
    name = FileName("2026-12-31", incarnation, number, "topic_rates", broker)
    assert FileName.of_journal(name.journal) == name


@pytest.mark.parametrize("name", ["", "x.rows", "events.2026-01-02.a-1.rows", "events.2026-01-02.a-1-2", "broker.db"])
def test_other_names_are_none(name: str) -> None:
    assert FileName.of_journal(name) is None
