"""Logins: right or wrong, at the same cost for those who exist and those who do not, and never more than the machine
can bear."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from overlane.errors import ConfigError
from overlane.node.security.logins import Login, Logins
from overlane.node.security.password_hashes import Cost
from overlane.node.security.users import remove_user, set_password
from overlane.secret import Secret

CHEAP = Cost(memory_kib=8, times=1)
DEAR = Cost(memory_kib=8_192, times=2)


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users.txt"
    set_password(path, "alice", Secret(b"sesame"), CHEAP)
    set_password(path, "bob", Secret(b"simsim"), CHEAP)
    return path


@pytest.fixture
def logins(users: Path) -> Iterator[Logins]:
    made = Logins(users, threads=1)
    yield made
    made.close()


def check(logins: Logins, name: str, password: bytes) -> Login:
    return asyncio.run(logins.check(name, Secret(password)))


@pytest.mark.parametrize(
    ("name", "password", "verdict"),
    [
        ("alice", b"sesame", Login.ACCEPTED),
        ("bob", b"simsim", Login.ACCEPTED),
        ("alice", b"simsim", Login.REFUSED),
        ("alice", b"", Login.REFUSED),
        ("alice", b"sesame\0", Login.REFUSED),
        ("Alice", b"sesame", Login.REFUSED),
        ("", b"", Login.REFUSED),
        ("nobody", b"sesame", Login.REFUSED),
    ],
)
def test_only_the_users_own_password_is_accepted(logins: Logins, name: str, password: bytes, verdict: Login) -> None:
    assert check(logins, name, password) is verdict


def test_a_password_that_was_right_before_does_not_open_another_door(logins: Logins) -> None:
    assert check(logins, "alice", b"sesame") is Login.ACCEPTED
    assert check(logins, "alice", b"sesame") is Login.ACCEPTED
    assert check(logins, "alice", b"sesamE") is Login.REFUSED
    assert check(logins, "bob", b"sesame") is Login.REFUSED
    assert check(logins, "alices", b"esame") is Login.REFUSED


def test_a_new_password_holds_from_the_reload_and_the_old_one_no_longer(logins: Logins, users: Path) -> None:
    assert check(logins, "alice", b"sesame") is Login.ACCEPTED
    set_password(users, "alice", Secret(b"new"), CHEAP)
    remove_user(users, "bob")
    logins.reload()
    assert check(logins, "alice", b"sesame") is Login.REFUSED
    assert check(logins, "alice", b"new") is Login.ACCEPTED
    assert check(logins, "bob", b"simsim") is Login.REFUSED


def test_a_wrong_file_is_refused_at_the_reload_and_the_users_stay(logins: Logins, users: Path) -> None:
    users.write_text("alice:sesame\n")
    with pytest.raises(ConfigError):
        logins.reload()
    assert check(logins, "alice", b"sesame") is Login.ACCEPTED
    with pytest.raises(ConfigError):
        Logins(users)


def test_a_user_removed_while_the_password_is_checked_does_not_get_in(logins: Logins, users: Path) -> None:
    async def story() -> Login:
        checking = asyncio.ensure_future(logins.check("alice", Secret(b"sesame")))
        await asyncio.sleep(0)  # the check has begun
        assert logins.waiting == 1
        remove_user(users, "alice")
        logins.reload()
        return await checking

    assert asyncio.run(story()) is Login.REFUSED


def test_a_flood_is_refused_as_busy_while_those_who_were_in_before_come_back_in(users: Path) -> None:
    logins = Logins(users, threads=1, waiting_max=5)

    async def story() -> None:
        assert await logins.check("alice", Secret(b"sesame")) is Login.ACCEPTED
        flood = [asyncio.ensure_future(logins.check(f"user{number}", Secret(b"x"))) for number in range(50)]
        await asyncio.sleep(0)
        assert logins.waiting == 5
        assert await logins.check("bob", Secret(b"simsim")) is Login.BUSY
        assert await logins.check("alice", Secret(b"sesame")) is Login.ACCEPTED
        verdicts = await asyncio.gather(*flood)
        assert (verdicts.count(Login.REFUSED), verdicts.count(Login.BUSY)) == (5, 45)
        assert await logins.check("bob", Secret(b"simsim")) is Login.ACCEPTED

    asyncio.run(story())
    assert logins.waiting == 0
    logins.close()


def test_a_client_that_goes_away_gives_its_place_free(users: Path) -> None:
    logins = Logins(users, threads=1, waiting_max=1)

    async def story() -> None:
        gone = asyncio.ensure_future(logins.check("alice", Secret(b"x")))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        assert logins.waiting == 0
        assert await logins.check("alice", Secret(b"sesame")) is Login.ACCEPTED

    asyncio.run(story())
    logins.close()


def test_the_loop_goes_on_while_passwords_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "users.txt"
    set_password(path, "alice", Secret(b"sesame"), DEAR)
    logins = Logins(path, threads=1)

    async def story() -> int:
        checks = [asyncio.ensure_future(logins.check("alice", Secret(b"x"))) for _ in range(5)]
        turns = 0
        while not all(check.done() for check in checks):
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert asyncio.run(story()) > 100
    logins.close()


def test_the_time_does_not_tell_who_exists(tmp_path: Path) -> None:
    path = tmp_path / "users.txt"
    set_password(path, "alice", Secret(b"sesame"), DEAR)
    logins = Logins(path, threads=1)

    def processor_s(name: str) -> float:
        """What it costs: the time that an idle machine would take."""
        began = time.process_time()
        check(logins, name, b"wrong")
        return time.process_time() - began

    pairs = [(processor_s("alice"), processor_s("nobody")) for _ in range(9)]
    exists, exists_not = (min(times) for times in zip(*pairs, strict=True))
    assert 0.5 < exists / exists_not < 2
    logins.close()


def test_no_secret_stands_in_what_asyncio_says_of_a_slow_check(
    logins: Logins, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_debug(True)
        loop.slow_callback_duration = 0.0  # every callback is told, with its arguments
        checking = asyncio.ensure_future(logins.check("alice", Secret(b"sesame")))
        await asyncio.sleep(0)
        assert "sesame" not in repr(checking)
        await checking

    with caplog.at_level("DEBUG"):
        asyncio.run(story())
    assert caplog.records
    assert "sesame" not in caplog.text
