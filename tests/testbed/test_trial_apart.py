"""A network file played in a wide area: brokers and clients at sites of their own, packets really delayed and lost."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from overlane.cli.main import app
from overlane.network import parse_network
from overlane.sim.report import Report
from overlane.sim.world import World
from overlane.testbed import namespaces
from overlane.testbed.trial import run_trial
from overlane.testbed.widearea import why_not

WHY_NOT = why_not()
needs_a_wide_area = pytest.mark.skipif(WHY_NOT is not None, reason=f"no wide area can be made here: {WHY_NOT}")
PATIENCE_S = 60.0

ORDERS = """
[topics."orders/#"]
deadline = "2s"
reliability = "reliable"
[[publishers]]
broker = "a"
topic = "orders/1"
rate = 20
[[subscribers]]
broker = "d"
topic = "orders/#"
"""

SQUARE = (
    """
[simulation]
duration = "5s"
[brokers.a]
[brokers.b]
[brokers.c]
[brokers.d]
[[links]]
ends = ["a", "b"]
latency = "5ms"
[[links]]
ends = ["b", "d"]
latency = "5ms"
back = { latency = "15ms" }
[[links]]
ends = ["a", "c"]
latency = "8ms"
jitter = "1ms"
[[links]]
ends = ["c", "d"]
latency = "8ms"
rate = "10Mbit"
queue = "64KiB"
[[events]]
at = "1s"
loss = ["a", "b"]
rate = 0.2
[[events]]
at = "2s"
heal = "all"
[[events]]
at = "2.5s"
crash = "b"
[[events]]
at = "4s"
restart = "b"
"""
    + ORDERS
)

ODD_SITES = (
    """
[simulation]
duration = "6s"
[brokers.a]
reach = []                      # behind NAT
[brokers.d.uplinks.fibre]
[brokers.d.uplinks.radio]
latency = "20ms"
rate = "5Mbit"
[[links]]
ends = ["a", "d"]
latency = "5ms"
[[events]]
at = "1s"
unplug = ["d", "fibre"]
[[events]]
at = "4s"
plug = ["d", "fibre"]
"""
    + ORDERS
)


def until(holds: Callable[[], bool]) -> bool:
    limit = time.monotonic() + PATIENCE_S
    while not holds() and time.monotonic() < limit:
        time.sleep(0.05)
    return holds()


@needs_a_wide_area
@pytest.mark.slow
@pytest.mark.parametrize(("text", "count"), [(SQUARE, 100), (ODD_SITES, 120)], ids=["square", "odd-sites"])
def test_nothing_reliable_is_lost_or_delivered_twice_whatever_happens_to_the_paths(text: str, count: int) -> None:
    network = parse_network(text)
    told: list[str] = []
    real = asyncio.run(run_trial(network, tell=lambda _, what: told.append(what)))
    simulated = World(network).run()
    for report in (real, simulated):
        topic = report.topics["orders/#"]
        assert (topic.published, topic.expected, topic.lost, topic.duplicates) == (count, count, 0, 0)
    assert len(told) == len(network.events)
    assert real.sent_per_message >= 1.0
    found, expected = (report.topics["orders/#"].latency_ms for report in (real, simulated))
    assert found is not None
    assert expected is not None
    assert found.p50 >= 9.0 if "brokers.b" in text else found.p50 >= 4.0
    assert not list(namespaces.DIRECTORY.glob(f"overlane-{os.getpid()}.*"))


def command(file: Path, *options: str) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-m", "overlane", "testbed", str(file), *options]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@needs_a_wide_area
@pytest.mark.slow
def test_the_command_prints_both_reports_in_the_simulators_form(tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    file.write_text(SQUARE)
    out, err = command(file, "--json", "--compare", "--duration", "2s").communicate(timeout=PATIENCE_S)
    printed = json.loads(out)
    assert printed.keys() == {"testbed", "simulated"}
    for report in printed.values():
        assert report.keys() == set(Report.__struct_fields__)
        assert report["topics"]["orders/#"]["published"] == 40
    assert "a - b loses 20.0%" in err


@needs_a_wide_area
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_a_trial_that_is_ended_in_the_middle(tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "network.toml"
    file.write_text(SQUARE)
    with command(file) as process:
        assert process.stderr is not None
        assert "loses" in process.stderr.readline()  # the first event: everything runs
        names = [path.name for path in namespaces.DIRECTORY.glob(f"overlane-{process.pid}.*")]
        assert len(names) == 4
        running = namespaces.processes_in(names)
        assert len(running) == 6  # four brokers, clients at two of them
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in err
    assert until(lambda: not list(namespaces.DIRECTORY.glob(f"overlane-{process.pid}.*")))
    assert until(lambda: not any(Path(f"/proc/{one}").exists() for one in running))
    left = 1 if number == signal.SIGKILL else 0
    temporary = Path(os.environ.get("TMPDIR", "/tmp"))
    assert len(list(temporary.glob(f"overlane-trial-{process.pid}-*"))) <= left


def test_without_root_the_command_says_what_to_do_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "network.toml"
    file.write_text(SQUARE)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    done = CliRunner().invoke(app, ["testbed", str(file)])
    assert done.exit_code == 1
    assert done.output.strip() == (
        "testbed: network namespaces need root; --emulate plays the file without, on the loopback"
    )
