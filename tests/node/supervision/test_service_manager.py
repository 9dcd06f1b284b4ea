"""systemd hears that a broker is ready and gets on; elsewhere nothing is sent."""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from brokers import Overlane
from overlane.node.supervision.service_manager import ServiceManager

WITHIN_S = 60.0


@contextmanager
def systemd(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(address)
        end.settimeout(WITHIN_S)
        yield end


def test_a_broker_says_that_it_is_ready_and_then_that_it_gets_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with systemd(str(tmp_path / "notify")) as end:
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "100000")
        broker = Overlane(tmp_path / "broker")
        broker.start()
        try:
            heard: list[str] = []
            while len(set(heard)) < 2 or heard[-1] != "WATCHDOG=1":
                heard.append(end.recv(1000).decode())
        finally:
            broker.stop()
    assert set(heard) == {"READY=1\nSTATUS=serves as here", "WATCHDOG=1"}


def test_a_broker_that_does_not_get_on_sends_no_sign_of_life(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    manager = ServiceManager({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "2000"})
    asked = 0

    def gets_on() -> bool:
        nonlocal asked
        asked += 1
        if asked == 5:
            raise asyncio.CancelledError
        return asked in (1, 3)

    manager.gets_on = gets_on
    with systemd(address) as end:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(manager.keep_alive())
        end.setblocking(False)
        assert [end.recv(100), end.recv(100)] == [b"WATCHDOG=1"] * 2
        with pytest.raises(BlockingIOError):
            end.recv(100)


def test_names_of_the_abstract_namespace_are_understood() -> None:
    name = f"overlane-test-{os.getpid()}"
    with systemd(f"\0{name}") as end:
        ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).ready("serves")
        assert end.recv(100) == b"READY=1\nSTATUS=serves"


@pytest.mark.parametrize(
    ("environment", "watchdog_s"),
    [
        ({}, 0.0),
        ({"WATCHDOG_USEC": "1000000"}, 0.0),
        ({"NOTIFY_SOCKET": "/s"}, 0.0),
        ({"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "1500000"}, 1.5),
        ({"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "1500000", "WATCHDOG_PID": "7"}, 1.5),
        ({"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "1500000", "WATCHDOG_PID": "8"}, 0.0),
        ({"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "soon"}, 0.0),
    ],
)
def test_the_environment_says_what_is_expected_and_children_do_not_inherit_it(
    environment: dict[str, str], watchdog_s: float
) -> None:
    assert ServiceManager(environment, pid=7).watchdog_s == watchdog_s
    assert environment == {}


def test_nobody_who_listens_is_no_error(tmp_path: Path) -> None:
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).ready("serves")
