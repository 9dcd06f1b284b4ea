"""Datagrams in a wide area, where packets are really lost: what they are worth, and that they pass NAT."""

import asyncio
import json
import sys
from functools import partial
from pathlib import Path

import pytest
from ground import needs_a_wide_area

from overlane.core.units import MS
from overlane.network import parse_network
from overlane.testbed.trial import run_trial
from overlane.testbed.wide_area import Conditions, Site, WideArea
from waiting import eventually

pytestmark = [needs_a_wide_area, pytest.mark.slow]

LOSSY = """
[simulation]
duration = "6s"
[brokers.a]
[brokers.b]
[brokers.c]
[[links]]
ends = ["a", "b"]
latency = "10ms"
loss = 0.3
transport = "{transport}"
[[links]]
ends = ["a", "c"]
latency = "6ms"
loss = 0.3
transport = "{transport}"
[[links]]
ends = ["c", "b"]
latency = "6ms"
loss = 0.3
transport = "{transport}"
[topics."alarms/#"]
deadline = "60ms"
[[publishers]]
broker = "a"
topic = "alarms/1"
rate = 50
[[subscribers]]
broker = "b"
topic = "alarms/#"
"""

BEHIND_NAT = """
[brokers.shore]
mqtt = "127.0.0.1:1883"
admin = "127.0.0.1:8001"
overlay = "{shore}:7001"
[brokers.ship]
mqtt = "127.0.0.1:1883"
admin = "127.0.0.1:8001"
overlay = "{ship}:7001"
reach = []
[[links]]
ends = ["shore", "ship"]
latency = "20ms"
[security]
overlay_open = true
"""


def test_where_packets_are_lost_many_more_messages_are_in_time_in_datagrams_than_over_a_connection() -> None:
    missed = {}
    for transport in ("datagram", "stream"):
        report = asyncio.run(run_trial(parse_network(LOSSY.format(transport=transport), "<test>")))
        topic = report.topics["alarms/#"]
        missed[transport] = 1 - topic.in_time / topic.expected
    print(missed)
    assert 2 * missed["datagram"] < missed["stream"]


def test_a_broker_behind_nat_has_datagrams_with_one_that_it_dials(tmp_path: Path) -> None:
    paths = {("shore", "ship"): Conditions(latency_ns=20 * MS)}
    with WideArea(["shore", Site("ship", is_behind_nat=True)], paths, is_urgent=False) as area:
        file = tmp_path / "network.toml"
        file.write_text(BEHIND_NAT.format(shore=area.address("shore"), ship=area.address("ship")))
        for name in ("shore", "ship"):
            words = [sys.executable, "-m", "overlane", "broker", str(file), "--name", name]
            area.start(name, [*words, "--data", str(tmp_path / name)], log=tmp_path / f"{name}.log")
        for name in ("shore", "ship"):
            eventually(partial(_is_open, area, name, tmp_path), "open", 60.0, partial(_logs, tmp_path))


def _is_open(area: WideArea, name: str, directory: Path) -> bool:
    return _state(area, name, directory) == "open"


def _logs(directory: Path) -> str:
    return "\n".join((directory / f"{one}.log").read_text() for one in ("shore", "ship"))


def _state(area: WideArea, name: str, directory: Path) -> str | None:
    """Of the datagrams of a broker's only link, as it tells at its own site."""
    answer = directory / f"{name}.json"
    asked = "import sys, urllib.request as r; sys.stdout.buffer.write(r.urlopen('http://127.0.0.1:8001/links').read())"
    answer.unlink(missing_ok=True)
    if area.start(name, [sys.executable, "-c", asked], log=answer).wait(30) != 0:
        return None
    links = json.loads(answer.read_text())["items"]
    assert len(links) <= 1
    return (links[0]["datagrams"] or {}).get("state") if links else None
