"""The users file and files with secrets in general: written whole and for their owner, refused with a line, told to
nobody."""

import os
import stat
import threading
from pathlib import Path

import pytest

from overlane.errors import ConfigError
from overlane.node.security.users import (
    BadName,
    BadPassword,
    Cost,
    check_name,
    is_password,
    read_users,
    remove_user,
    set_password,
)
from overlane.secret import Secret
from overlane.secret_file import others_can_read, read_token, rewrite_secret_file

CHEAP = Cost(memory_kib=8, times=1)
ALLOWED = (
    "allowed is NAME:HASH with an argon2id hash, or NAME:nkey:KEY with a public key, as `overlane passwd` writes them"
)


def write(path: Path, **passwords: str) -> Path:
    for name, password in passwords.items():
        set_password(path, name, Secret(password.encode()), CHEAP)
    return path


def test_a_password_that_was_set_is_the_users_and_no_other_is(tmp_path: Path) -> None:
    users = read_users(write(tmp_path / "users.txt", alice="sesame", bob="sesame"))
    assert users.names() == ["alice", "bob"]
    assert is_password(users.hashes["alice"], Secret(b"sesame"))
    assert not is_password(users.hashes["alice"], Secret(b"Sesame"))
    assert not is_password(users.hashes["alice"], Secret(b""))
    assert users.hashes["alice"] != users.hashes["bob"]


def test_the_usual_hash_is_argon2id_at_the_cost_the_documents_tell(tmp_path: Path) -> None:
    set_password(tmp_path / "users.txt", "alice", Secret(b"sesame"))
    assert read_users(tmp_path / "users.txt").hashes["alice"].startswith("$argon2id$v=19$m=19456,t=2,p=1$")


def test_the_file_is_the_owners_alone_even_where_it_was_open_before(tmp_path: Path) -> None:
    path = tmp_path / "users.txt"
    path.write_text("# open\n")
    path.chmod(0o644)
    assert others_can_read(path)
    write(path, alice="sesame")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not others_can_read(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["users.txt"]


def test_comments_order_and_other_users_stay_when_one_changes(tmp_path: Path) -> None:
    path = write(tmp_path / "users.txt", alice="1", bob="2")
    alice, bob = path.read_text().splitlines()
    path.write_text(f"# the house\n{alice}\n\n{bob}\n")
    assert not set_password(path, "alice", Secret(b"3"), CHEAP)
    lines = path.read_text().splitlines()
    assert (lines[0], lines[2:]) == ("# the house", ["", bob])
    assert is_password(lines[1].removeprefix("alice:"), Secret(b"3"))
    assert set_password(path, "carol", Secret(b"4"), CHEAP)
    assert remove_user(path, "alice")
    assert not remove_user(path, "alice")
    assert path.read_text().splitlines()[:3] == ["# the house", "", bob]
    assert read_users(path).names() == ["bob", "carol"]


def test_the_file_behind_a_link_is_written_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "users.txt"
    link.symlink_to(tmp_path / "there" / "users.txt")
    write(link, alice="sesame")
    assert link.is_symlink()
    assert read_users(tmp_path / "there" / "users.txt").names() == ["alice"]


def test_users_set_at_the_same_time_are_all_there_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "users.txt"
    threads = [threading.Thread(target=write, args=(path,), kwargs={f"user{number}": "x"}) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_users(path)) == 12


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "users.txt", alice="sesame")
    before = path.read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write(path, bob="x")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_writer_that_died_left_behind_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / ".users.txt.new").write_text("half a li")
    write(tmp_path / "users.txt", alice="sesame")
    assert [entry.name for entry in tmp_path.iterdir()] == ["users.txt"]


def test_a_bad_file_is_told_by_line_and_never_by_what_stands_there(tmp_path: Path) -> None:
    path = write(tmp_path / "users.txt", alice="sesame")
    good = path.read_text()
    hashed = good.strip().removeprefix("alice:")
    path.write_bytes(
        f"{good}bob:hunter2\n# fine: this\nhunter3\n{good}:{hashed}\n*:{hashed}\n".encode()
        + b"\xff:hunter4\n"
        + f"carol:{hashed.replace('m=8,', 'm=99999999,')}\n".encode()
        + f"dave:{hashed.replace('t=1,', 't=0,')}\n".encode()
        + f"erin:{hashed.replace('argon2id', 'argon2i')}\n".encode()
    )
    with pytest.raises(ConfigError) as refused:
        read_users(path)
    assert str(refused.value).splitlines() == [
        f"{path}:2: found user bob without an argon2id hash, {ALLOWED}",
        f"{path}:4: found a line without a colon, {ALLOWED}",
        f"{path}:5: found user alice a second time, {ALLOWED}",
        f"{path}:6: found a name that is not allowed: the name is empty, {ALLOWED}",
        f"{path}:7: found a name that is not allowed: `*` has a meaning of its own in access rules, {ALLOWED}",
        f"{path}:8: found a line that is not UTF-8, {ALLOWED}",
        f"{path}:9: found user carol with a hash that costs 99999999 KiB of memory, {ALLOWED}",
        f"{path}:10: found user dave with a hash that costs 0 times and 1 lanes, {ALLOWED}",
        f"{path}:11: found user erin without an argon2id hash, {ALLOWED}",
    ]


def test_a_bad_file_is_not_made_worse(tmp_path: Path) -> None:
    path = tmp_path / "users.txt"
    path.write_text("no users file at all")
    with pytest.raises(ConfigError):
        write(path, alice="sesame")
    assert path.read_text() == "no users file at all"


def test_a_file_that_cannot_be_read_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no way to read it \(No such file or directory\), allowed is a users file"):
        read_users(tmp_path / "none.txt")


@pytest.mark.parametrize(
    "name", ["", "a:b", "a\nb", "a\x00", "\x7f", " a", "a ", "#a", "*", "anonymous", "x" * 257, "\ud800", "a\u200eb"]
)
def test_a_name_that_no_user_can_have_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadName):
        check_name(name)
    with pytest.raises(BadName):
        set_password(tmp_path / "users.txt", name, Secret(b"sesame"), CHEAP)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["alice", "Zoë", "a b", "a@b.org", "sensor/1", "$x", "日本"])
def test_a_good_name_survives_the_file(name: str, tmp_path: Path) -> None:
    set_password(tmp_path / "users.txt", name, Secret(b"sesame"), CHEAP)
    assert read_users(tmp_path / "users.txt").names() == [name]


@pytest.mark.parametrize("password", [b"", b"x" * 1025])
def test_a_password_that_nobody_can_send_is_refused(password: bytes, tmp_path: Path) -> None:
    with pytest.raises(BadPassword):
        set_password(tmp_path / "users.txt", "alice", Secret(password), CHEAP)


def test_no_hash_stands_in_what_users_look_like(tmp_path: Path) -> None:
    assert "argon2" not in repr(read_users(write(tmp_path / "users.txt", alice="sesame")))


def test_a_token_is_read_without_the_white_space_around_it(tmp_path: Path) -> None:
    path = tmp_path / "admin.token"
    rewrite_secret_file(path, lambda _old: b"0123456789abcdef\n")
    assert read_token(path) == Secret(b"0123456789abcdef")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"hunter2\n", "a token of 7 bytes"),
        (b"", "a token of 0 bytes"),
        (b"x" * 5000, "a token of 5000 bytes"),
        (b"two words of sixteen", "a token with blanks or signs beyond ASCII"),
        (b"0123456789abcde\xff", "a token with blanks or signs beyond ASCII"),
    ],
)
def test_a_weak_token_is_refused_and_not_shown(content: bytes, found: str, tmp_path: Path) -> None:
    path = tmp_path / "admin.token"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        read_token(path)
    assert str(refused.value) == (
        f"{path}: found {found}, allowed is a readable file with one line of 16 to 4096 bytes without blanks"
    )
