"""The command that a host runs when it has continued a broker."""

import asyncio
import json
import logging
import sys
from pathlib import Path

import pytest

from overlane.node.recovery.takeover_hook import Taken, former_host, run_hook

TAKEN = Taken("west-1", 7, "west-2", "west-1", {"mqtt": "10.0.0.2:41883", "overlay": "10.0.0.2:47001"})


def python(program: str) -> tuple[str, ...]:
    return sys.executable, "-c", program


def test_it_gets_broker_epoch_hosts_and_addresses_in_its_environment(tmp_path: Path) -> None:
    file = tmp_path / "seen"
    program = f"import json, os; json.dump(dict(os.environ), open({str(file)!r}, 'w'))"
    assert asyncio.run(run_hook(python(program), TAKEN))
    expected = {
        "OVERLANE_BROKER": "west-1",
        "OVERLANE_EPOCH": "7",
        "OVERLANE_HOST": "west-2",
        "OVERLANE_FORMER_HOST": "west-1",
        "OVERLANE_MQTT": "10.0.0.2:41883",
        "OVERLANE_OVERLAY": "10.0.0.2:47001",
    }
    seen = json.loads(file.read_text())
    assert {name: seen[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("/no/such/command",), "No such file"),
        (python("print('no such address'); raise SystemExit(3)"), "status 3: no such address"),
        (python("import time; time.sleep(600)"), "did not end within 0.5 s"),
    ],
)
def test_a_failure_is_logged_and_nothing_else(
    command: tuple[str, ...], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "overlane.recovery"):
        assert not asyncio.run(run_hook(command, TAKEN, within_s=0.5 if "0.5" in told else 60.0))
    assert "on_takeover of west-1" in caplog.text
    assert told in caplog.text


@pytest.mark.parametrize(
    ("known", "primary", "found"),
    [
        ("", "west-1", "west-1"),
        ("", "here", "here"),
        ("west-1", "spare-1", "spare-1"),
        ("here", "west-1", "west-1"),
        ("west-1", "here", "west-1"),
    ],
)
def test_the_former_host_stays_known_when_this_one_is_the_primary_and_does_not_serve_yet(
    known: str, primary: str, found: str
) -> None:
    assert former_host(known, primary, "here") == found
