"""`overlane pipeline run --apply`: what brokers have recorded becomes the plan by which the same brokers route."""

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from overlane.core.units import SECOND
from overlane.pipeline.analysis.reliability import OFTEN_DOWN
from overlane.telemetry.rows import LinkSample, QueueDepth, Row
from overlane.telemetry.schema import record_batch
from overlays import Member, RealOverlay, overlay
from sparks import GROUP, pipeline, the_address

pytestmark = [GROUP, pytest.mark.slow]

DIRECT, AROUND = [["a", "b"]], [["a", "c", "b"]]
LINKS = {"a-b": 'latency = "20ms"', "a-c": 'latency = "18ms"', "b-c": 'latency = "18ms"'}
TOPICS = '[topics."alarms/#"]\ndeadline = "500ms"\nrouting = "multipath"\npaths = 1\n'
"""The most resilient path and no other: a machine that is busy for a moment does not make it two."""
HISTORY_S = 3600
SHORT_S = 600
BAD_EVERY_S, BAD_FOR_S = 300, 30
"""The link a-b is down for 30 seconds of every five minutes."""
LIFE = 1
QUIET: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
WITHIN_S = 600.0
SETTLED_S = 120.0
"""Links that have come back are not trusted at once."""


@pytest.fixture
def net(tmp_path: Path) -> Iterator[RealOverlay]:
    """Brokers that record into a lake which has their last hour; alarms from a to b, ten a second."""
    write_history(tmp_path / "lake", int(time.time()))
    options = ("--emulate", "--telemetry", str(tmp_path / "lake"))
    with overlay(tmp_path, LINKS, TOPICS, options, is_recorded=True) as net, ExitStack() as stack:
        for words in (
            ("sub", net["b"].mqtt, "alarms/#"),
            ("pub", net["a"].mqtt, "alarms/1", "--size", "64", "--rate", "10"),
        ):
            command = [sys.executable, "-m", "overlane", *words]
            process = subprocess.Popen(command, **QUIET)
            stack.callback(process.wait)
            stack.callback(process.kill)
        net.wait_until(lambda: alarm_paths(net) == DIRECT, "on the quickest path")
        yield net


def write_history(lake: Path, until_s: int, seconds: int = HISTORY_S, is_well: bool = False) -> None:
    """As brokers record it: every link is well all the time, but, unless all is well, a-b fails again and again."""
    for broker in "abc":
        links: list[Row] = []
        queues: list[Row] = []
        for second in range(seconds):
            at_ns = (until_s - seconds + second) * SECOND
            queues.append(QueueDepth(at_ns, "clients", None, 0, 0, None))
            for peer in "abc".replace(broker, ""):
                is_down = not is_well and {broker, peer} == {"a", "b"} and second % BAD_EVERY_S < BAD_FOR_S
                state, latency_ns = ("failed", None) if is_down else ("up", 20_000_000)
                links.append(LinkSample(at_ns, SECOND, peer, state, latency_ns, None, None, 0, 0, 0, 100, 100))
        for table, rows in (("links", links), ("queues", queues)):
            day = lake / table / f"date={datetime.fromtimestamp(until_s - seconds, UTC).date()}"
            day.mkdir(parents=True, exist_ok=True)
            batch = record_batch(table, broker, LIFE, rows)
            with pq.ParquetWriter(day / f"{broker}-{LIFE}-1.parquet", batch.schema) as file:
                file.write_batch(batch)


def alarm_paths(net: RealOverlay) -> list[list[str]]:
    routes: Any = net["a"].ask("/routes")
    return [path for route in routes["items"] for path in route["paths"].get("b", []) if "alarms/1" in route["topics"]]


def done(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)


def plan(*words: object) -> subprocess.CompletedProcess[str]:
    return done([sys.executable, "-m", "overlane", "plan", *map(str, words)])


def run_and_apply(net: RealOverlay, lake: Path, out: str = "tables") -> subprocess.CompletedProcess[str]:
    places = ("--lake", str(lake), "--out", str(net.file.with_name(out)))
    return done(pipeline("run", *places, "--remote", the_address(), "--apply", str(net.file)))


def shown(net: RealOverlay) -> list[tuple[str, int, str]]:
    """Which version each broker says that it follows, and what that was made from, but for how long it is."""
    answers = json.loads(plan("show", net.file, "--json").stdout)["brokers"]
    plans = [(one["broker"], one["answer"]["plan"]) for one in answers]
    return [(name, followed["version"], re.sub("[0-9.]+", "some", followed["source"])) for name, followed in plans]


def is_answering(broker: Member) -> bool:
    try:
        return broker.ask("/health") is not None
    except OSError:
        return False


def test_routes_leave_a_link_for_its_recorded_history_unless_the_plan_made_of_it_is_stale(net: RealOverlay) -> None:
    lake, fetched = net.file.with_name("lake"), net.file.with_name("fetched")
    healthy = net.file.with_name("healthy")
    write_history(healthy, int(time.time()), SHORT_S, is_well=True)
    young = run_and_apply(net, healthy, "young")
    assert young.returncode == 0, young.stderr
    no_evidence: Any = net["a"].ask("/plan")
    assert (no_evidence["plan"]["links"], no_evidence["plan"]["brokers"]) == ([], {}), "ten minutes are no evidence"
    net.wait_until(lambda: alarm_paths(net) == DIRECT, "on the quickest path still", SETTLED_S)

    shutil.copytree(lake, fetched)
    by_hand = net.file.with_name("plan.json")
    trusting = {"made_ns": time.time_ns(), "source": "a hope", "links": [{"ends": ["a", "b"], "failure": 0.0}]}
    by_hand.write_text(json.dumps(trusting))
    assert plan("apply", by_hand, net.file).returncode == 0

    stale = plan("apply", net.file.with_name("young"), net.file)
    assert stale.returncode == 1, stale.stderr
    told = [f"{name} rejected it: it was made from older history than version 2" for name in "abc"]
    assert stale.stderr.splitlines()[-4:] == [*told, "no broker got the plan"]
    assert shown(net) == [(name, 2, "a hope") for name in "abc"]
    net.wait_until(lambda: alarm_paths(net) == DIRECT, "on the quickest path still", SETTLED_S)

    net["c"].stop()  # what a broker has recorded is in the lake when it ends
    shutil.copytree(lake, fetched, dirs_exist_ok=True)
    net["c"].start()
    net.wait_until(lambda: is_answering(net["c"]), "there again")
    applied = run_and_apply(net, fetched)
    assert applied.returncode == 0, applied.stderr
    assert applied.stdout.splitlines()[-1] == "3 brokers follow version 3"
    assert shown(net) == [(name, 3, "telemetry of some hours") for name in "abc"]
    net.wait_until(lambda: alarm_paths(net) == AROUND, "around the link that is often down", SETTLED_S)
    followed: Any = net["a"].ask("/plan")
    failures = {"-".join(link["ends"]): link["failure"] for link in followed["plan"]["links"]}
    assert failures["a-b"] == pytest.approx(BAD_FOR_S / BAD_EVERY_S, rel=0.2)
    # The end of c is the only failure of the others, unless the lake ends before it: little evidence, or none.
    others = [failures.get(link, 0.0) for link in ("a-c", "b-c")]
    assert max(others) < min(OFTEN_DOWN, failures["a-b"] / 5)
