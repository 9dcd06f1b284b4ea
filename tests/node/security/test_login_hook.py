"""A service that is asked by HTTP: what its answers mean, and what happens when it gives none."""

import asyncio
from pathlib import Path

import pytest
from login_tokens import Issuer, service_running, write_keys

from overlane.core.units import MS, SECOND
from overlane.errors import ConfigError
from overlane.network.schema.logins import LoginHook, Tokens
from overlane.node.security.login_hook import HookCheck
from overlane.node.security.logins import Login, LoginClient, LoginResult, Logins
from overlane.node.security.password_hashes import Cost
from overlane.node.security.users import set_password
from overlane.secret import Secret

CLIENT = LoginClient("pump-7", "10.0.0.9:50123", "mqtt")


def log_in(logins: Logins, name: str, password: bytes = b"sesame", *, times: int = 1) -> list[Login]:
    async def ask() -> list[Login]:
        return [(await logins.log_in(name, Secret(password), CLIENT)).login for _ in range(times)]

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("status", "body", "login"),
    [
        (204, b"", Login.ACCEPTED),
        (200, b'{"result": "allow"}', Login.ACCEPTED),
        (200, b'{"result": "deny"}', Login.REFUSED),
        (401, b"", Login.REFUSED),
        (403, b"", Login.REFUSED),
        (404, b"", Login.REFUSED),
        (200, b"<html>", Login.UNAVAILABLE),
        (200, b"{}", Login.UNAVAILABLE),
        (200, b"[" * 60_000, Login.UNAVAILABLE),
        (200, b"x" * 100_000, Login.UNAVAILABLE),
        (500, b'{"result": "allow"}', Login.UNAVAILABLE),
        (302, b"", Login.UNAVAILABLE),
    ],
)
def test_only_a_clear_answer_decides(status: int, body: bytes, login: Login) -> None:
    with service_running() as (service, url):
        service.answers = [(status, body)]
        logins = Logins(None, hook=LoginHook(url=url, remember_ns=0))
        assert log_in(logins, "alice") == [login]
        assert service.asked == [
            {
                "user": "alice",
                "password": "sesame",
                "client_id": "pump-7",
                "address": "10.0.0.9:50123",
                "listener": "mqtt",
            }
        ]
        logins.close()


def test_who_was_accepted_is_accepted_for_a_while_without_asking() -> None:
    with service_running() as (service, url):
        logins = Logins(None, hook=LoginHook(url=url, remember_ns=60 * SECOND))
        assert log_in(logins, "alice", times=3) == [Login.ACCEPTED] * 3
        assert len(service.asked) == 1
        service.answers = [(403, b"")]
        assert log_in(logins, "alice", b"another") == [Login.REFUSED]
        assert log_in(logins, "bob") == [Login.REFUSED]
        logins.close()


def test_connections_are_kept_and_made_anew() -> None:
    with service_running() as (service, url):
        logins = Logins(None, hook=LoginHook(url=url, remember_ns=0))
        log_in(logins, "alice", times=20)
        assert len(service.asked) == 20
        assert service.connections <= 8
        logins.close()


def test_without_an_answer_the_client_may_come_again(caplog: pytest.LogCaptureFixture) -> None:
    with service_running() as (service, url):
        service.delay_s = 2.0
        slow = Logins(None, hook=LoginHook(url=url, timeout_ns=50 * MS))
        assert log_in(slow, "alice", times=2) == [Login.UNAVAILABLE] * 2
        slow.close()
    nobody = Logins(None, hook=LoginHook(url=url, timeout_ns=SECOND))
    assert log_in(nobody, "alice") == [Login.UNAVAILABLE]
    nobody.close()
    assert len([line for line in caplog.messages if "clients cannot log in" in line]) == 2  # once for each service


def test_a_password_that_is_no_text_is_refused_without_asking() -> None:
    with service_running() as (service, url):
        logins = Logins(None, hook=LoginHook(url=url))
        assert log_in(logins, "alice", b"\xff\xfe") == [Login.REFUSED]
        assert log_in(logins, "", b"sesame") == [Login.REFUSED]
        assert service.asked == []
        logins.close()


def test_authorities_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.pem"):
        HookCheck(LoginHook(url="https://localhost/", ca=str(tmp_path / "none.pem")))


def test_the_users_file_comes_first_then_tokens_then_the_service(tmp_path: Path) -> None:
    users, issuer = tmp_path / "users.txt", Issuer()
    set_password(users, "local", Secret(b"sesame"), Cost(memory_kib=8, times=1))
    tokens = Tokens(keys=str(write_keys(tmp_path / "keys.json", issuer)))
    with service_running() as (service, url):
        logins = Logins(users, jwt=tokens, hook=LoginHook(url=url, remember_ns=0))

        def result(name: str, password: bytes) -> LoginResult:
            return asyncio.run(logins.log_in(name, Secret(password), CLIENT))

        assert result("local", b"sesame").login is Login.ACCEPTED
        assert result("local", b"wrong").login is Login.REFUSED
        assert result("local", issuer.token("local")).login is Login.REFUSED
        assert result("", issuer.token("local")).login is Login.REFUSED
        assert result("alice", issuer.token("bob")).login is Login.REFUSED
        accepted = result("", issuer.token("bob", exp=4_102_444_800))
        assert accepted == LoginResult(Login.ACCEPTED, "bob", 4_102_444_800.0)
        assert service.asked == []
        assert result("carol", b"sesame") == LoginResult(Login.ACCEPTED, "carol")
        assert [one["user"] for one in service.asked] == ["carol"]
        logins.close()
