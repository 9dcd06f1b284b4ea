"""A network file played in a wide area: brokers and clients at sites of their own, packets really delayed and lost."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ground import needs_a_wide_area
from orders import orders
from typer.testing import CliRunner

from overlane.cli.main import app
from overlane.core.units import MS, SECOND
from overlane.network import Broker, Crash, Heal, Lossy, Network, Restart, format_network
from overlane.network.schema import Back, Plug, Unplug, Uplink
from overlane.sim.report import Report
from overlane.sim.story import link
from overlane.sim.world import World
from overlane.testbed import namespaces
from overlane.testbed.trial import run_trial
from waiting import eventually

PATIENCE_S = 60.0

SQUARE = orders(
    {
        ("a", "b"): 5 * MS,
        ("b", "d"): link(5 * MS, back=Back(latency_ns=15 * MS)),
        ("a", "c"): link(8 * MS, jitter_ns=1 * MS),
        ("c", "d"): link(8 * MS, rate_bps=10_000_000, queue_bytes=64 * 1024),
    },
    Lossy(1 * SECOND, ("a", "b"), 0.2),
    Heal(2 * SECOND, None),
    Crash(2_500 * MS, "b"),
    Restart(4 * SECOND, "b"),
    duration_ns=5 * SECOND,
    deadline_ns=2 * SECOND,
    rate_hz=20,
)
ODD_SITES = orders(
    {("a", "d"): 5 * MS},
    Unplug(1 * SECOND, "d", "fibre"),
    Plug(4 * SECOND, "d", "fibre"),
    duration_ns=6 * SECOND,
    deadline_ns=2 * SECOND,
    rate_hz=20,
    brokers={
        "a": Broker(name="a", reach=()),  # behind NAT
        "d": Broker(
            name="d", uplinks=(Uplink(name="fibre"), Uplink(name="radio", latency_ns=20 * MS, rate_bps=5_000_000))
        ),
    },
)


@needs_a_wide_area
@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "count", "quickest_ms"), [(SQUARE, 100, 9.0), (ODD_SITES, 120, 4.0)], ids=["square", "odd-sites"]
)
def test_nothing_reliable_is_lost_or_delivered_twice_whatever_happens_to_the_paths(
    network: Network, count: int, quickest_ms: float
) -> None:
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
    assert found.p50 >= quickest_ms
    assert not list(namespaces.DIRECTORY.glob(f"overlane-{os.getpid()}.*"))


def command(file: Path, *options: str) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-m", "overlane", "testbed", str(file), *options]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@needs_a_wide_area
@pytest.mark.slow
def test_the_command_prints_both_reports_in_the_simulators_form(tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    file.write_text(format_network(SQUARE))
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
    file.write_text(format_network(SQUARE))
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
    eventually(
        lambda: not list(namespaces.DIRECTORY.glob(f"overlane-{process.pid}.*")), "no namespace is left", PATIENCE_S
    )
    eventually(lambda: not any(Path(f"/proc/{one}").exists() for one in running), "no process is left", PATIENCE_S)
    left = 1 if number == signal.SIGKILL else 0
    temporary = Path(os.environ.get("TMPDIR", "/tmp"))
    assert len(list(temporary.glob(f"overlane-trial-{process.pid}-*"))) <= left


def test_without_root_the_command_says_what_to_do_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "network.toml"
    file.write_text(format_network(SQUARE))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    done = CliRunner().invoke(app, ["testbed", str(file)])
    assert done.exit_code == 1
    assert done.output.strip() == (
        "overlane: testbed: network namespaces need root; with --emulate it runs on loopback without root [OVL-201]"
    )
