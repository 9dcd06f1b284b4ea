"""Journals: rows survive the end of whoever wrote them, as far as they were written."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlane.telemetry.journal import MAGIC, FileName, Journal, _frame, abandoned
from overlane.telemetry.journal_reader import JournalRows, read_journal
from overlane.telemetry.rows import ROWS, Event, QueueDepth
from overlane.telemetry.schema import SCHEMAS, record_batch

NAME = FileName("2026-01-02", 7, 3, "events", "new-york.1")


def batch(*times: int) -> list[Event]:
    return [Event(at_ns, "link", peer="x" * at_ns) for at_ns in times]


def read(path: Path, name: FileName = NAME) -> JournalRows:
    with path.open("rb") as file:
        return read_journal(file, name)


def times(path: Path) -> list[int]:
    found: list[int] = read(path).rows["at_ns"].to_pylist()
    return found


def test_a_journal_holds_what_was_appended(tmp_path: Path) -> None:
    journal = Journal(tmp_path, NAME)
    journal.append(batch(1, 2))
    journal.append(batch(3))
    assert times(journal.path) == [1, 2, 3]
    assert journal.bytes == journal.path.stat().st_size
    journal.close()
    assert read(journal.path).rows.schema == SCHEMAS["events"]


def test_wherever_a_journal_is_cut_off_the_whole_batches_before_are_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path, NAME)
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
            read(path)


def test_zeros_where_the_disk_lost_the_end_are_no_rows(tmp_path: Path) -> None:
    journal = Journal(tmp_path, NAME)
    journal.append(batch(1))
    whole = journal.bytes
    journal.append(batch(2))
    journal.close()
    content = journal.path.read_bytes()
    journal.path.write_bytes(content[:whole] + bytes(len(content) - whole))
    assert times(journal.path) == [1]


def test_a_row_that_is_not_what_the_schema_says_costs_only_what_was_appended_with_it(tmp_path: Path) -> None:
    name = FileName("2026-01-02", 7, 3, "queues", "new-york.1")
    journal = Journal(tmp_path, name)
    journal.append([QueueDepth(1, "clients", None, 1, 1, None)])
    journal.append([QueueDepth(2, "clients", None, 1, "many", None)])  # type: ignore[arg-type]
    journal.append([QueueDepth(3, "clients", None, 1, 1, None)])
    journal.close()
    found = read(journal.path, name)
    assert (found.rows["at_ns"].to_pylist(), found.lost) == ([1, 3], 1)


@pytest.mark.parametrize("value", [2**70, object(), "\udc80"])
def test_what_cannot_be_written_down_leaves_the_journal_as_it_was(tmp_path: Path, value: object) -> None:
    journal = Journal(tmp_path, NAME)
    journal.append(batch(1))
    before = journal.path.read_bytes()
    with pytest.raises(ValueError, match=r"rows of events|surrogates"):
        journal.append([Event(2, "link", times=value)])  # type: ignore[arg-type]
    assert journal.path.read_bytes() == before


def test_a_journal_of_a_version_with_other_columns_is_read_by_their_names(tmp_path: Path) -> None:
    path = tmp_path / NAME.journal
    columns = ["kind", "at_ns", "dropped since"]
    path.write_bytes(MAGIC + _frame(columns) + _frame([["link", 5, True]]))
    (row,) = read(path).rows.to_pylist()
    assert row == dict.fromkeys(ROWS["events"]._fields) | {
        "at_ns": 5,
        "broker": "new-york.1",
        "incarnation": 7,
        "kind": "link",
    }


def test_a_journal_of_the_first_version_a_stream_of_arrow_is_read_as_far_as_it_is_whole(tmp_path: Path) -> None:
    first, second = (record_batch("events", "new-york.1", 7, batch(at_ns)) for at_ns in (1, 2))
    stream = SCHEMAS["events"].serialize().to_pybytes() + first.serialize().to_pybytes()
    path = tmp_path / NAME.journal
    path.write_bytes(stream + second.serialize().to_pybytes()[:-20])
    assert times(path) == [1]


def test_a_journal_is_abandoned_when_its_writer_is_gone(tmp_path: Path) -> None:
    journal = Journal(tmp_path, NAME)
    assert not abandoned(journal.path)
    journal.close()
    assert abandoned(journal.path)
    assert not abandoned(tmp_path / "none")


def test_no_journal_takes_the_place_of_another(tmp_path: Path) -> None:
    Journal(tmp_path, NAME).close()
    with pytest.raises(FileExistsError):
        Journal(tmp_path, NAME)


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)


@given(names, st.integers(0, 2**40), st.integers(0, 2**40))
def test_a_file_name_tells_the_broker_whatever_its_name(broker: str, incarnation: int, number: int) -> None:
    name = FileName("2026-12-31", incarnation, number, "topic_rates", broker)
    assert FileName.of_journal(name.journal) == name


@pytest.mark.parametrize("name", ["", "x.rows", "events.2026-01-02.a-1.rows", "events.2026-01-02.a-1-2", "broker.db"])
def test_other_names_are_none(name: str) -> None:
    assert FileName.of_journal(name) is None
