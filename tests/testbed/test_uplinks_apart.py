"""Links with several paths, between real brokers in a wide area: an uplink is unplugged, an address changes."""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ground import needs_a_wide_area

from overlane.core.units import MS
from overlane.errors import Unavailable
from overlane.membership.endpoint import Endpoint
from overlane.network import parse_network
from overlane.testbed import namespaces
from overlane.testbed.environment import admin_request
from overlane.testbed.trial import run_trial
from overlane.testbed.wide_area import Conditions, Site, Uplink, WideArea
from waiting import eventually

pytestmark = [needs_a_wide_area, pytest.mark.slow]

WITHIN_S = 60.0
NAMES = ("office", "plant")
DOWN: dict[str, Any] = {"state": "down", "paths": []}
ADMIN = Endpoint("127.0.0.1", 8001)
_PLANT_END = {"office": "remote", "plant": "local"}

OFFICE_AND_PLANT = """
[brokers.office]
mqtt = "127.0.0.1:1883"
admin = "127.0.0.1:8001"
overlay = "0.0.0.0:7001"
reach = ["{office}:7001"]
[brokers.plant]
mqtt = "127.0.0.1:1883"
admin = "127.0.0.1:8001"
overlay = "0.0.0.0:7001"
reach = {reach}
{uplinks}
[[links]]
ends = ["office", "plant"]
latency = "10ms"
[topics."alarms/#"]
deadline = "200ms"
reliability = "reliable"
[security]
{security}
"""


class Brokers:
    def __init__(self, area: WideArea, directory: Path) -> None:
        self.area = area
        self._directory = directory

    def start(self, file: Path) -> None:
        for name in NAMES:
            words = [sys.executable, "-m", "overlane", "broker", str(file), "--name", name]
            log = self._directory / f"{name}.log"
            self.area.start(name, [*words, "--data", str(self._directory / name)], log=log)

    def link(self, name: str) -> dict[str, Any]:
        """The only one of this broker."""
        try:
            answer = admin_request(name, ADMIN, "GET", "/links", lambda: self.area.inside(name))
        except Unavailable:  # it starts
            return DOWN
        links: list[dict[str, Any]] = json.loads(answer)["items"]
        return links[0] if links else DOWN

    def paths(self, name: str) -> dict[str, str]:
        """The state of each path, by the address at the plant."""
        return {path[_PLANT_END[name]]: path["state"] for path in self.link(name)["paths"]}

    def connection(self, name: str) -> str | None:
        """The address at the plant that the connection takes."""
        return next((path[_PLANT_END[name]] for path in self.link(name)["paths"] if path["has_connection"]), None)

    def until_paths(self, expected: dict[str, str]) -> None:
        """Both ends see the paths so, by the address at the plant."""
        for name in NAMES:
            self.until(partial(self._has_paths, name, expected), f"{name}: {expected}")

    def _has_paths(self, name: str, expected: dict[str, str]) -> bool:
        return self.paths(name) == expected

    def has_lost_link(self) -> bool:
        """Whether one of them has logged that the link has failed since it came up."""
        logs = [self._log(name).partition("is up")[2] for name in NAMES]
        return any(words in log for log in logs for words in ("is failed", "lost:", "pings in a row"))

    def _log(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text()

    def until(self, holds: Callable[[], object], what: str) -> None:
        eventually(holds, what, WITHIN_S, self.logs)

    def logs(self) -> str:
        return "\n".join(f"{name}: {self.link(name)}\n{self._log(name)}" for name in NAMES)


@contextmanager
def running(directory: Path, *, reach: str, uplinks: str = "", secret: bool = True) -> Iterator[Brokers]:
    """The plant has a fibre and a radio uplink. The office dials where `reach` names addresses, otherwise the plant."""
    radio = Conditions(latency_ns=20 * MS)
    plant = Site("plant", (Uplink("fibre"), Uplink("radio", radio, radio)))
    with WideArea(["office", plant], {("office", "plant"): Conditions(latency_ns=10 * MS)}, is_urgent=False) as area:
        file, token = directory / "network.toml", directory / "secret"
        token.write_text("a-secret-of-sixteen-bytes-or-more\n")
        token.chmod(0o600)
        fibre, second = area.addresses("plant")
        file.write_text(
            OFFICE_AND_PLANT.format(
                office=area.address("office"),
                reach=reach.format(fibre=f"{fibre}:7001", radio=f"{second}:7001"),
                uplinks=uplinks,
                security=f'overlay_secret = "{token}"' if secret else "overlay_open = true",
            )
        )
        brokers = Brokers(area, directory)
        brokers.start(file)
        yield brokers


def test_a_link_takes_the_better_uplink_and_the_other_one_while_it_is_unplugged(tmp_path: Path) -> None:
    with running(tmp_path, reach='["{fibre}", "{radio}"]') as brokers:
        fibre, radio = brokers.area.addresses("plant")
        brokers.until_paths({fibre: "in_use", radio: "standby"})
        brokers.area.unplug("plant", "fibre")
        brokers.until_paths({fibre: "gone", radio: "in_use"})
        brokers.until(lambda: brokers.connection("office") == radio, "the connection has moved")
        brokers.area.plug_in("plant", "fibre")
        brokers.until_paths({fibre: "in_use", radio: "standby"})
        assert not brokers.has_lost_link(), brokers.logs()


def test_a_broker_that_dials_uses_the_interfaces_in_its_file(tmp_path: Path) -> None:
    uplinks = """uplinks = { fibre = { interface = "wan0" }, radio = { interface = "wan1" } }"""
    with running(tmp_path, reach="[]", uplinks=uplinks, secret=False) as brokers:
        fibre, radio = brokers.area.addresses("plant")
        brokers.until_paths({fibre: "in_use", radio: "standby"})
        brokers.area.unplug("plant", "fibre")
        brokers.until_paths({fibre: "gone", radio: "in_use"})


def test_a_path_that_swallows_everything_in_one_direction_is_left_though_the_kernel_reports_nothing(
    tmp_path: Path,
) -> None:
    with running(tmp_path, reach='["{fibre}", "{radio}"]') as brokers:
        fibre, radio = brokers.area.addresses("plant")
        brokers.until_paths({fibre: "in_use", radio: "standby"})
        namespaces.ip(["-n", brokers.area.namespace("plant")], ["route replace blackhole default table 101"])
        brokers.until_paths({fibre: "probing", radio: "in_use"})
        brokers.until(lambda: brokers.connection("office") == radio, "the connection has moved")
        assert not brokers.has_lost_link(), brokers.logs()


def test_a_broker_whose_address_changes_keeps_its_link(tmp_path: Path) -> None:
    with running(tmp_path, reach="[]") as brokers:
        old, new = brokers.area.addresses("plant")
        brokers.until(lambda: brokers.link("office")["state"] == "up", "linked")
        assert brokers.paths("plant") == brokers.paths("office") == {}
        namespaces.ip(["-n", brokers.area.namespace("plant")], [f"addr del {old}/32 dev wan0"])
        brokers.until_paths({new: "in_use"})
        brokers.until(lambda: brokers.connection("plant") == new, "the connection has moved")
        assert not brokers.has_lost_link(), brokers.logs()


UNPLUGGED = """
[simulation]
duration = "8s"
[brokers.office]
[brokers.plant.uplinks.fibre]
[brokers.plant.uplinks.radio]
latency = "20ms"
[[links]]
ends = ["office", "plant"]
latency = "10ms"
[topics."orders"]
reliability = "reliable"
[topics."alarms"]
deadline = "200ms"
reliability = "reliable"
[[publishers]]
broker = "office"
topic = "orders"
rate = 50
size = "4KiB"
[[publishers]]
broker = "office"
topic = "alarms"
rate = 50
[[subscribers]]
broker = "plant"
topic = "orders"
[[subscribers]]
broker = "plant"
topic = "alarms"
[[events]]
at = "2s"
unplug = ["plant", "fibre"]
[[events]]
at = "4s"
plug = ["plant", "fibre"]
"""


TRIALS = 3
SLOWEST_MS_MAX = 1_500.0
"""Without another path, what is sent when the uplink is unplugged takes more than two seconds."""


def test_nothing_is_lost_or_repeated_when_an_uplink_is_unplugged() -> None:
    """Latencies are of real time, and those of a busy machine: the best of a few trials counts. Losses count in all."""
    slowest_ms: list[float] = []
    while not slowest_ms or (min(slowest_ms) >= SLOWEST_MS_MAX and len(slowest_ms) < TRIALS):
        report = asyncio.run(run_trial(parse_network(UNPLUGGED, "<test>")))
        print(report.topics)
        assert {(topic.lost, topic.duplicates) for topic in report.topics.values()} == {(0, 0)}
        latencies = [topic.latency_ms for topic in report.topics.values() if topic.latency_ms is not None]
        assert len(latencies) == len(report.topics)
        slowest_ms.append(max(one.max for one in latencies))
    assert min(slowest_ms) < SLOWEST_MS_MAX
