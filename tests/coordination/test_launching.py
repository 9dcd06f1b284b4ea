"""The commands of launchers, and what makes a broker's load."""

import subprocess
import sys

import pytest

from overlane.coordination.launching import launch_commands
from overlane.node.coordination.load import LoadMeter


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
