"""The commands of launchers, and what makes a broker's load."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from overlane.cli.brokers.startup_report import StartupReport
from overlane.cli.brokers.two_tiers import _Tiers
from overlane.coordination.launching import launch_commands
from overlane.network.reading import read_network
from overlane.network.schema import RoutingTier
from overlane.node.coordination.launcher import Launcher
from overlane.node.coordination.load import LoadMeter
from waiting import eventually, eventually_async


def test_a_command_of_the_users_gets_the_number() -> None:
    assert launch_commands("command", 3, count_max=8, command=("scale", "--to")) == [["scale", "--to", "3"]]


def test_systemd_starts_the_first_instances_and_stops_the_others() -> None:
    assert launch_commands("systemd", 2, count_max=4, unit="routing@") == [
        ["systemctl", "start", "routing@1.service", "routing@2.service"],
        ["systemctl", "stop", "routing@3.service", "routing@4.service"],
    ]
    assert launch_commands("systemd", 1, count_max=1) == [["systemctl", "start", "overlane-routing@1.service"]]


def test_kubernetes_scales_a_resource() -> None:
    assert launch_commands("kubernetes", 5, count_max=8, resource="statefulset/routing", namespace="plant") == [
        ["kubectl", "scale", "statefulset/routing", "--replicas=5", "--namespace=plant"]
    ]


@pytest.mark.parametrize("launcher", [None, "local"])
def test_without_a_launcher_nothing_is_run(launcher: None) -> None:
    assert launch_commands(launcher, 5, count_max=8) == []


def test_the_load_is_the_greatest_of_processor_links_and_lag_and_follows_slowly() -> None:
    meter = LoadMeter()
    meter.measure(1.0, 0.0, 0, None, 0.0)
    for second in range(1, 100):
        meter.measure(1.0, 0.5 * second, 0, None, 0.01)
    assert meter.load == pytest.approx(0.5, abs=0.01)
    meter = LoadMeter()
    for second in range(100):
        meter.measure(1.0, 0.0, 1_000 * second, 10_000, 0.0)
    assert meter.load == pytest.approx(0.8, abs=0.01)
    meter = LoadMeter()
    for _ in range(100):
        meter.measure(1.0, 0.0, 0, None, 10.0)
    assert meter.load == pytest.approx(1.0, abs=0.01)


def test_small_changes_of_the_load_are_not_reported() -> None:
    meter = LoadMeter(load=0.30, reported=0.28)
    meter.measure(1.0, 0.0, 0, None, 0.0)
    meter.measure(1.0, 0.31, 0, None, 0.0)
    assert meter.reported == 0.28


def test_a_broker_of_a_file_alone_imports_neither_kazoo_nor_the_coordination() -> None:
    code = (
        "import sys, overlane.cli.brokers.broker, overlane.cli.brokers.up;"
        "print([one for one in sys.modules if one == 'kazoo' or one.startswith('overlane.coordination')])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout == "[]\n"


def test_the_leader_runs_the_command_with_the_number_that_it_wants_once_for_each(tmp_path: Path) -> None:
    told = tmp_path / "told"
    tier = RoutingTier(launcher="command", command=("sh", "-c", f'echo "$0" >> {told}'))

    async def want() -> None:
        launcher = Launcher(tier)
        for count in (2, 2, 3):
            launcher.want(count)
            async with asyncio.timeout(60):
                while not told.exists() or told.read_text().split()[-1:] != [str(count)]:
                    await asyncio.sleep(0.01)
        launcher.end()

    asyncio.run(want())
    assert told.read_text().split() == ["2", "3"]


def test_a_command_goes_on_when_the_leader_that_runs_it_ends(tmp_path: Path) -> None:
    began, may_end, ended = tmp_path / "began", tmp_path / "may-end", tmp_path / "ended"
    script = f"touch {began}; while ! [ -e {may_end} ]; do sleep 0.05; done; echo gone >&2; touch {ended}"
    tier = RoutingTier(launcher="command", command=("sh", "-c", script))

    async def lead_and_end() -> None:
        launcher = Launcher(tier)
        launcher.want(1)
        await eventually_async(began.exists, "it runs", 60)
        launcher.end()

    asyncio.run(lead_and_end())
    may_end.touch()
    eventually(ended.exists, "it has gone on", 60)


def test_a_command_that_fails_is_left_for_another_number_and_a_former_leader_launches_anew(tmp_path: Path) -> None:
    told = tmp_path / "told"
    tier = RoutingTier(launcher="command", command=("sh", "-c", f'echo "$0" >> {told}; [ "$0" != 2 ]'))

    def numbers() -> list[str]:
        return told.read_text().split() if told.exists() else []

    async def want() -> None:
        launcher = Launcher(tier)
        launcher.want(2)
        await eventually_async(lambda: numbers() == ["2"], "it fails", 60)
        launcher.want(3)
        await eventually_async(lambda: numbers() == ["2", "3"], "the next is not kept waiting", 20)
        launcher.deposed()
        launcher.want(3)
        await eventually_async(lambda: numbers() == ["2", "3", "3"], "it leads again", 20)
        launcher.end()

    asyncio.run(want())


def test_overlane_up_runs_as_many_routing_brokers_as_the_leader_wants(tmp_path: Path) -> None:
    file = Path(__file__).parents[2] / "examples" / "two-tiers.toml"
    report = StartupReport(print)
    tiers = _Tiers(file, read_network(file), None, tmp_path, [], print, report, print, None, is_chaotic=False)
    own = ["routing-1", "routing-2", "west-1", "west-2", "east-1"]
    assert tiers._names() == own
    tiers._wanted = 4
    assert tiers._names() == [*own, "routing-auto-1", "routing-auto-2"]
    tiers._wanted = 3
    assert tiers._names() == [*own, "routing-auto-1"]
