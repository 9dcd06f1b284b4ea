"""Plans in a running overlay: given by the command, followed by the routes, kept, taken back, refused."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from overlays import RealOverlay, overlay

pytestmark = pytest.mark.slow

DIRECT = ["a", "b"]
AROUND = ["a", "c", "b"]


@pytest.fixture
def net(tmp_path: Path) -> Iterator[RealOverlay]:
    """Alarms from a to b, ten a second."""
    links = {"a-b": 'latency = "20ms"', "a-c": 'latency = "18ms"', "b-c": 'latency = "18ms"'}
    with overlay(tmp_path, links, '[topics."alarms/#"]\ndeadline = "500ms"\n', ("--emulate",)) as net:
        sub = start("sub", net["b"].mqtt, "alarms/#")
        pub = start("pub", net["a"].mqtt, "alarms/1", "--size", "64", "--rate", "10")
        try:
            net.wait_until(lambda: DIRECT in alarm_paths(net), "on the quickest path")
            yield net
        finally:
            for process in (sub, pub):
                process.kill()
                process.wait()


def start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "overlane", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def overlane(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "overlane", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def write_plan(net: RealOverlay, failure: float, made_ns: int | None = None) -> Path:
    made_ns = time.time_ns() if made_ns is None else made_ns
    file = net.file.with_name("plan.json")
    links = [{"ends": ["a", "b"], "failure": failure}]
    file.write_text(json.dumps({"made_ns": made_ns, "source": "a bad week", "links": links}))
    return file


def alarm_paths(net: RealOverlay) -> list[list[str]]:
    """None while the broker starts."""
    try:
        routes: Any = net["a"].ask("/routes")
    except OSError:
        return []
    return [path for route in routes["items"] for path in route["paths"].get("b", []) if "alarms/1" in route["topics"]]


def is_answering(net: RealOverlay, name: str) -> bool:
    try:
        return net[name].ask("/health") is not None
    except OSError:
        return False


def version_of(net: RealOverlay, name: str) -> int:
    plan: Any = net[name].ask("/plan")
    return int(plan["version"])


def test_routes_leave_a_link_of_bad_history_and_return_when_the_plan_is_taken_back(net: RealOverlay) -> None:
    applied = overlane("plan", "apply", write_plan(net, 0.05), net.file)
    assert (applied.returncode, applied.stdout) == (0, "3 brokers follow version 1\n")
    net.wait_until(lambda: AROUND in alarm_paths(net), "around the link")

    taken_back = overlane("plan", "rollback", net.file)
    assert (taken_back.returncode, taken_back.stdout) == (0, "no plan is followed\n")
    net.wait_until(lambda: alarm_paths(net) == [DIRECT], "on the quickest path alone again", within_s=120)


def test_a_plan_survives_kill_9_of_those_who_follow_it(net: RealOverlay) -> None:
    assert overlane("plan", "apply", write_plan(net, 0.05), net.file).returncode == 0
    for name in ("a", "b"):
        net[name].kill()
        net[name].start()
    net.wait_until(lambda: AROUND in alarm_paths(net), "around the link")
    net.wait_until(lambda: is_answering(net, "b"), "there again")
    assert [version_of(net, name) for name in "abc"] == [1, 1, 1]


def test_what_is_stale_malformed_or_for_nobody_changes_nothing(net: RealOverlay) -> None:
    made_ns = time.time_ns()
    assert overlane("plan", "apply", write_plan(net, 0.05, made_ns), net.file).returncode == 0
    stale = overlane("plan", "apply", write_plan(net, 0.0, made_ns - 1), net.file)
    assert stale.returncode == 1
    assert "older history than version 1" in stale.stderr
    future = overlane("plan", "apply", write_plan(net, 0.0, made_ns + 10**13), net.file)
    assert future.returncode == 1
    assert "a time in the past" in future.stderr
    file = write_plan(net, 0.0)
    file.write_text(file.read_text().replace('"failure": 0.0', '"failure": 7'))
    bad = overlane("plan", "apply", file, net.file)
    assert bad.returncode == 2
    assert "links[0].failure: found 7" in bad.stderr
    net["c"].kill()
    partly = overlane("plan", "apply", write_plan(net, 0.0), net.file)
    assert partly.returncode == 1
    assert "c does not answer" in partly.stderr
    assert [version_of(net, name) for name in "ab"] == [1, 1]
    assert overlane("plan", "apply", write_plan(net, 0.0), net.file, "--partial").returncode == 0
    assert [version_of(net, name) for name in "ab"] == [2, 2]


def test_a_plan_can_be_seen_and_compared_before_it_is_given(net: RealOverlay) -> None:
    assert overlane("plan", "apply", write_plan(net, 0.05), net.file).returncode == 0
    compared = overlane("plan", "diff", write_plan(net, 0.25), net.file, "--json")
    assert json.loads(compared.stdout) == [{"what": "link a-b, failure", "from": 0.05, "to": 0.25}]
    checked = overlane("plan", "apply", write_plan(net, 0.25), net.file, "--check")
    assert (checked.returncode, checked.stdout) == (0, "3 brokers would follow it as version 2\n")
    assert version_of(net, "a") == 1
    shown = overlane("plan", "show", net.file)
    assert shown.returncode == 0
    assert shown.stdout.count("a bad week") == 3
