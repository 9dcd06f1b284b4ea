"""The command `overlane simulate`, as people and programs use it."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from overlane.cli.main import app
from waiting import eventually

NETWORK = """
[simulation]
duration = "3s"
settle = "4s"
[brokers.a]
[brokers.b]
[brokers.c]
[[links]]
ends = ["a", "b"]
latency = "10ms"
jitter = "2ms"
[[links]]
ends = ["b", "c"]
latency = "10ms"
loss = 0.05
[[links]]
ends = ["a", "c"]
latency = "40ms"
[topics."alarms/#"]
deadline = "60ms"
reliability = "reliable"
[[publishers]]
broker = "a"
topic = "alarms/1"
rate = 50
[[publishers]]
broker = "b"
topic = "other"
rate = 10
[[subscribers]]
broker = "c"
topic = "alarms/#"
[[subscribers]]
broker = "c"
topic = "other"
[[events]]
at = "1s"
cut = ["b", "c"]
[[events]]
at = "2s"
heal = ["b", "c"]
"""

TOPIC_KEYS = ["published", "expected", "delivered", "in_time", "late", "lost", "duplicates", "latency_ms"]


@pytest.fixture
def network(tmp_path: Path) -> str:
    file = tmp_path / "network.toml"
    file.write_text(NETWORK)
    return str(file)


def invoke(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["simulate", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_the_report_has_the_promised_keys(network: str) -> None:
    status, output, _ = invoke(network, "--json")
    report = json.loads(output)
    assert status == 0
    assert list(report) == [
        "topics",
        "sent_per_message",
        "route_changes",
        "unmeetable",
        "control_bytes_per_broker_s",
        "digest",
    ]
    assert list(report["topics"]) == ["alarms/#", "other"]
    alarms = report["topics"]["alarms/#"]
    assert list(alarms) == TOPIC_KEYS
    assert list(alarms["latency_ms"]) == ["p50", "p99", "max"]
    assert alarms["published"] == alarms["expected"] == alarms["delivered"] == 150
    assert alarms["lost"] == alarms["duplicates"] == 0


def test_the_table_names_every_topic_and_tells_what_happened(network: str) -> None:
    status, output, _ = invoke(network)
    assert status == 0
    for words in ("alarms/#", "60 ms", "b - c is cut", "b - c heals", "digest"):
        assert words in output


def test_a_route_change_tells_when_why_and_how_long_after_the_fault(tmp_path: Path) -> None:
    network = tmp_path / "network.toml"
    network.write_text(NETWORK.replace("loss = 0.05\n", ""))
    changes = json.loads(invoke(str(network), "--json")[1])["route_changes"]
    first = next(change for change in changes if change["topics"] == ["alarms/#"])
    assert (first["source"], first["destinations"], first["cause"]) == ("a", ["c"], "first use")
    assert (first["links"], first["fault"]) == ([["a", "b"], ["b", "c"]], None)
    after = next(change for change in changes if change["fault"] == "b - c is cut" and change["source"] == "a")
    assert ["b", "c"] not in after["links"]
    assert "b-c" in after["cause"]
    assert 1 < after["time_s"] < 2
    assert after["since_fault_ms"] == pytest.approx(1000 * (after["time_s"] - 1))
    assert after["latency_ms"] == pytest.approx(40, abs=1)
    assert after["established_after_ms"] >= 2 * 40 - 1, "an answer from the destination takes a round trip"


def test_progress_is_shown_on_a_terminal_and_nowhere_else(network: str) -> None:
    terminal, ours = pty.openpty()
    arguments = [sys.executable, "-m", "overlane.cli.main", "simulate", network, "--json"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=ours, env={**os.environ, "TERM": "xterm"}) as run:
        os.close(ours)
        shown = b"".join(iter(lambda: _read(terminal), b"")).decode()
        assert run.stdout is not None
        assert json.load(run.stdout)["digest"]
    os.close(terminal)
    assert "simulating" in shown
    assert "%" in shown
    assert invoke(network, "--json")[2] == ""


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other end is closed
        return b""


@pytest.mark.slow
def test_the_same_file_and_seed_give_the_same_digest_under_any_hash_seed(network: str) -> None:
    digests = set()
    for hash_seed in ("0", "1", "4242"):
        run = subprocess.run(
            [sys.executable, "-m", "overlane.cli.main", "simulate", network, "--json"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        )
        digests.add(json.loads(run.stdout)["digest"])
    assert len(digests) == 1


def test_another_seed_gives_another_digest(network: str) -> None:
    digests = {json.loads(invoke(network, "--json", "--seed", seed)[1])["digest"] for seed in ("1", "1", "2")}
    assert len(digests) == 2


def test_the_duration_can_be_given(network: str) -> None:
    report = json.loads(invoke(network, "--json", "--duration", "1s")[1])
    assert report["topics"]["alarms/#"]["published"] == 50


def test_the_routing_of_all_topics_can_be_given(network: str) -> None:
    price = {
        mode: json.loads(invoke(network, "--json", "--routing", mode, "--duration", "1s")[1])["sent_per_message"]
        for mode in ("single", "flood")
    }
    assert price["single"] < price["flood"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no-such-file.toml"], "no-such-file.toml"),
        ([], "or --soak N is required"),
        (["x.toml", "--soak", "1"], "takes neither"),
        (["x.toml", "--duration", "5"], "--duration"),
        (["x.toml", "--routing", "sideways"], "--routing"),
        (["x.toml", "--scheduling", "never"], "--scheduling"),
    ],
)
def test_a_wrong_request_is_refused_with_its_reason(arguments: list[str], words: str) -> None:
    status, output, errors = invoke(*arguments)
    assert (status, output) == (2, "")
    assert words in errors


def test_a_wrong_file_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(NETWORK.replace('latency = "40ms"', 'latency = "soon"'))
    status, output, errors = invoke(str(file))
    assert (status, output) == (2, "")
    assert f"{file}:18: links[2].latency: found" in errors
    assert "Traceback" not in errors


def test_a_soak_of_one_seed_tells_how_it_went() -> None:
    status, output, _ = invoke("--soak", "1", "--seed", "3")
    assert status == 0, output
    assert "1 seeds, 2 runs" in output
    assert "0 runs with a violated invariant" in output


@pytest.mark.slow
@pytest.mark.parametrize("of", ["overlay", "brokers", "tiers", "coordinated", "domain"])
def test_a_soak_of_one_kind_leaves_the_others_out(of: str) -> None:
    status, output, _ = invoke("--soak", "1", "--soak-of", of, "--seed", "3")
    assert (status, output.split(" deliveries")[0].split(", ")[:2]) == (0, ["1 seeds", "1 runs"]), output


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupted_soak_tells_what_it_has_found_until_then(tmp_path: Path, jobs: int) -> None:
    words = ["simulate", "--soak", "100000", "--soak-of", "domain", "--jobs", str(jobs)]
    log = tmp_path / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "overlane", *words], stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        eventually(lambda: cpu_s(process.pid) > 3.0, "some seeds were run", 120)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.wait()
    said = log.read_text()
    assert re.search(r"100000 seeds, [0-9]+ runs, [0-9]+ deliveries, 0 runs with a violated invariant", said)
    assert "interrupted" in said
    assert "Traceback" not in said


def cpu_s(session: int) -> float:
    """The CPU time of all processes of a session."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")
