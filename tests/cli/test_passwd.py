"""`overlane passwd`: what it asks, what it does to the file, and how it refuses."""

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from overlane.cli.main import app
from overlane.node.security.users import is_password, read_users
from overlane.secret import Secret


def passwd(*arguments: object, stdin: str | bytes = "") -> Result:
    return CliRunner().invoke(app, ["passwd", *map(str, arguments)], input=stdin)


def is_set(path: Path, user: str, password: bytes) -> bool:
    return is_password(read_users(path).hashes[user], Secret(password))


def test_a_password_from_standard_input_is_set_changed_and_deleted(tmp_path: Path) -> None:
    path = tmp_path / "users.txt"
    added = passwd(path, "alice", "--stdin", stdin="sesame\nignored\n")
    assert (added.exit_code, added.output) == (0, "added alice\n")
    assert is_set(path, "alice", b"sesame")
    changed = passwd(path, "alice", "--stdin", stdin="öffne dich\r\n")
    assert (changed.exit_code, changed.output) == (0, "changed alice\n")
    assert is_set(path, "alice", "öffne dich".encode())
    deleted = passwd(path, "alice", "--delete")
    assert (deleted.exit_code, deleted.output) == (0, "deleted alice\n")
    assert read_users(path).names() == []


def test_bytes_that_are_no_text_are_a_password_too(tmp_path: Path) -> None:
    path = tmp_path / "users.txt"
    assert passwd(path, "alice", "--stdin", stdin=b"\xff\x00 \xfe").exit_code == 0
    assert is_set(path, "alice", b"\xff\x00 \xfe")


def test_users_are_listed_by_name_and_without_their_hashes(tmp_path: Path) -> None:
    path = tmp_path / "users.txt"
    for name in ("bob", "alice"):
        assert passwd(path, name, "--stdin", stdin="x").exit_code == 0
    assert passwd(path, "--list").output == "alice\nbob\n"
    assert passwd(path, "--list", "--json").output == '["alice","bob"]\n'
    assert passwd(path, "bob", "--delete", "--json").output == '{"user":"bob","done":"deleted"}\n'


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["{file}", "bob", "--delete"], 1, "overlane: {file}: there is no user bob [OVL-102]"),
        (["{file}"], 2, "overlane: a user name or --list is required [OVL-102]"),
        (["{file}", "alice", "--list"], 2, "overlane: --list takes no user name [OVL-102]"),
        (
            ["{file}", "alice", "--delete", "--stdin"],
            2,
            "overlane: --delete, --list, --stdin and --nkey exclude each other [OVL-102]",
        ),
        (["{file}", "alice"], 2, "overlane: cannot prompt for the password without a terminal; use --stdin [OVL-102]"),
        (["{file}", "alice", "--stdin"], 2, "overlane: invalid password: 0 bytes, allowed are 1 to 1024 [OVL-112]"),
        (
            ["{file}", "a:b", "--stdin"],
            2,
            "overlane: invalid name: the name has a `:`, which ends the name in the file [OVL-111]",
        ),
        (
            ["{file}", "a\tb", "--stdin"],
            2,
            "overlane: invalid name: the name has a character that cannot be printed [OVL-111]",
        ),
        (
            ["{file}", "*", "--stdin"],
            2,
            "overlane: invalid name: `*` has a meaning of its own in access rules [OVL-111]",
        ),
        (
            ["{file}.none", "alice", "--delete"],
            2,
            "{file}.none: found no way to read it (No such file or directory), allowed is a users file, as `overlane"
            " passwd` writes it [OVL-101]",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_and_the_file_is_as_before(
    arguments: list[str], status: int, told: str, tmp_path: Path
) -> None:
    path = tmp_path / "users.txt"
    passwd(path, "alice", "--stdin", stdin="sesame")
    before = path.read_bytes()
    result = passwd(*(argument.format(file=path) for argument in arguments))
    assert (result.exit_code, result.stderr) == (status, f"{told.format(file=path)}\n")
    assert result.stdout == ""
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["users.txt"]


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    path = tmp_path / "none" / "users.txt"
    result = passwd(path, "alice", "--stdin", stdin="sesame")
    assert (result.exit_code, result.stderr) == (
        2,
        f"overlane: {path}: cannot be written: No such file or directory [OVL-102]\n",
    )


def converse(path: Path, *answers: str) -> tuple[int, str]:
    """Run the command on a terminal, answering each prompt; its status and all that stood on the screen."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "overlane.cli.main", "passwd", str(path), "alice"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as process:
        os.close(theirs)
        screen = ""
        for answer in answers:
            while not screen.endswith(("Password: ", "confirmation: ")):
                screen += read(ours)
            os.write(ours, f"{answer}\n".encode())
            screen += read(ours)
        while text := read(ours):
            screen += text
        status = process.wait(timeout=30)
    os.close(ours)
    return status, screen


def read(terminal: int) -> str:
    ready, _, _ = select.select([terminal], [], [], 30)
    assert ready, "nothing more came on the terminal"
    try:
        return os.read(terminal, 4096).decode()
    except OSError:  # how a terminal ends on Linux
        return ""


def test_on_a_terminal_it_asks_twice_and_shows_nothing_of_the_password(tmp_path: Path) -> None:
    path = tmp_path / "users.txt"
    status, screen = converse(path, "sesame", "sesame")
    assert status == 0
    assert screen.count(": ") == 2
    assert "added alice" in screen
    assert "sesame" not in screen
    assert is_set(path, "alice", b"sesame")


def test_on_a_terminal_two_different_answers_are_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "users.txt"
    status, screen = converse(path, "sesame", "sesamE", "simsim", "simsim")
    assert status == 0
    assert "do not match" in screen
    assert not any(password in screen for password in ("sesame", "sesamE", "simsim"))
    assert is_set(path, "alice", b"simsim")
