"""The file of suspects: a message is refused when it has ended the process twice, lately."""

from pathlib import Path

from overlane.node.suspect_file import FILE, LINES_MAX, REMEMBERED_S, SuspectFile
from overlane.pubsub.suspects import suspect_of


def test_a_message_is_refused_after_the_second_time(tmp_path: Path) -> None:
    one, other = suspect_of("bob", 7, "t", b"x"), suspect_of("bob", 8, "t", b"x")
    for suspect, refused in ((one, set()), (other, set()), (one, {one}), (other, {one, other})):
        SuspectFile(tmp_path).note(suspect)
        assert SuspectFile(tmp_path).refused() == refused


def test_what_is_old_cut_short_or_too_much_is_forgotten(tmp_path: Path) -> None:
    SuspectFile(tmp_path, lambda: 0.0).note("a")
    SuspectFile(tmp_path, lambda: REMEMBERED_S).note("a")
    assert SuspectFile(tmp_path, lambda: REMEMBERED_S).refused() == frozenset()
    with (tmp_path / FILE).open("ab") as file:
        file.write(b"a\xff\na 1x\na")
    assert SuspectFile(tmp_path, lambda: REMEMBERED_S).refused() == frozenset()
    for number in range(LINES_MAX + 5):
        SuspectFile(tmp_path).note(str(number))
    assert len((tmp_path / FILE).read_text().splitlines()) == LINES_MAX


def test_without_a_directory_nothing_is_refused_and_nothing_fails(tmp_path: Path) -> None:
    nowhere = SuspectFile(tmp_path / "nowhere")
    nowhere.note("a")
    assert nowhere.refused() == frozenset()
