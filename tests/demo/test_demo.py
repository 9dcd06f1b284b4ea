"""The demo, as a newcomer runs it: it tells its story, loses nothing, and leaves nothing behind."""

import json
import os
import re
import signal
import subprocess
import sys
from importlib.resources import as_file, files
from pathlib import Path
from urllib.request import urlopen

import pytest
from unprivileged import place_of_nobody, without_root

from brokers import free_port
from overlane.core.units import MS, SECOND
from overlane.demo.steps import STEPS
from overlane.network import Broker, read_network
from waiting import eventually

CAP_DAC_READ_SEARCH = 2
"""Its number in the masks of Linux."""
DEMO = [sys.executable, "-m", "overlane", "demo", "--no-pipeline"]


@pytest.mark.slow
def test_without_root_it_tells_every_step_loses_nothing_and_leaves_nothing_behind() -> None:
    with place_of_nobody() as place:
        environment = {**os.environ, "HOME": str(place), "TMPDIR": str(place), "COLUMNS": "200"}
        command = without_root(*DEMO, "--step", "3")
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert list(place.iterdir()) == []
    assert done.returncode == 0, done.stdout + done.stderr
    assert "http://127.0.0.1:" in done.stdout
    names = [*(step.name for step in STEPS), "lost host"]
    for number, name in enumerate(names, 1):
        assert f"{number}/{len(names)}  {name}" in done.stdout
    assert "alarms/fire was rerouted after" in done.stdout
    told = re.findall(r"([\d.]+)% in time of (\d+), within \d+ ms; late \d+, in flight \d+, duplicates 0;", done.stdout)
    assert len(told) == 2 * len(STEPS)
    assert all(0 <= float(share) <= 100 and int(count) > 0 for share, count in told)
    assert "No acknowledged message was lost, none was duplicated." in done.stdout
    assert re.search(r"west-1 goes on at the host of (west-2|routing-1)", done.stdout)
    sent = re.search(r"(\d+) of (\d+) acknowledged messages arrived; duplicates 0; longest gap \d+ ms", done.stdout)
    assert sent is not None
    assert sent[1] == sent[2] != "0"


def test_who_runs_it_without_root_may_neither_make_interfaces_nor_write_where_others_do() -> None:
    told = subprocess.run(without_root("cat", "/proc/self/status"), capture_output=True, text=True, check=True).stdout
    status = dict(line.split(":", 1) for line in told.splitlines())
    assert "0" not in status["Uid"].split()
    assert int(status["CapEff"], 16) & ~(1 << CAP_DAC_READ_SEARCH) == 0


def test_a_strict_and_a_relaxed_topic_are_published_and_both_must_arrive() -> None:
    with as_file(files("overlane.demo") / "five-cities.toml") as file:
        network = read_network(file)
    strict, relaxed = sorted(network.topics, key=lambda topic: topic.deadline_ns or 0)
    assert (strict.deadline_ns, relaxed.deadline_ns) == (100 * MS, SECOND)
    assert [topic.reliability for topic in network.topics] == ["reliable", "reliable"]
    for made in (network.publishers, network.subscribers):
        assert [one.topic.partition("/")[0] for one in made] == ["alarms", "reports"]


@pytest.mark.slow
def test_it_can_be_ended_at_any_time_and_takes_everything_down(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen([*DEMO, "--stay"], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while "normal" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    process.stdout.close()
    assert list(tmp_path.iterdir()) == []
    eventually(lambda: not _mentioning(str(tmp_path)), "no process of it runs", 30)


@pytest.mark.slow
def test_it_stays_when_it_is_told_to_with_its_page_and_messages_that_flow(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    options = ["--stay", "--step", "2", "--port", str(free_port())]
    with subprocess.Popen([*DEMO, *options], env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = next(line for line in process.stdout if line.startswith("Still running."))
        found = re.search(r"Monitor: (\S+)   Network file: (\S+)", said)
        assert found is not None
        address, file = found.groups()
        with urlopen(address, timeout=60) as page:
            assert b"<title>Overlane</title>" in page.read()
        brokers = {broker.name: broker for broker in read_network(Path(file)).brokers}
        assert len(brokers) == 5
        before = _messages_in(brokers["seattle"])
        eventually(lambda: _messages_in(brokers["seattle"]) > before, "messages flow", 30)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert list(tmp_path.iterdir()) == []


def _messages_in(broker: Broker) -> int:
    with urlopen(f"http://{broker.admin}/status", timeout=30) as answer:
        return int(json.load(answer)["traffic"]["messages_in"])


def _mentioning(text: str) -> list[str]:
    """The processes with this in their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text in entry.read_text():
                found.append(entry.parent.name)
        except OSError:
            continue
    return found
