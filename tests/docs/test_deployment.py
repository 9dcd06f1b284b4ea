"""What is in deploy/ fits the broker: options, fields, and the metrics that alerts and panels are made of."""

import json
import re
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from docpages import PROJECT
from typer.main import get_command

from brokers import Overlane
from overlane.cli.main import app
from overlane.network.reading import read_network

DEPLOY = PROJECT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))


def script() -> ModuleType:
    spec = spec_from_file_location("write_dashboard", PROJECT / "scripts" / "write_dashboard.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def options_of_broker() -> set[str]:
    command: Any = get_command(app)
    parameters = command.get_command(command.make_context("overlane", [], resilient_parsing=True), "broker").params
    return {option for parameter in parameters for option in parameter.opts}


def unknown(words: list[str]) -> set[str]:
    """Options of a command line that `overlane broker` does not have."""
    return {word.partition("=")[0] for word in words if word.startswith("--")} - options_of_broker()


def test_the_files_of_monitoring_are_what_the_script_makes() -> None:
    made = script()
    folder = DEPLOY / "monitoring"
    assert (folder / made.RULES).read_text() == made.rules()
    assert (folder / made.DASHBOARD).read_text() == made.dashboard()
    assert [rule["alert"] for rule in yaml.safe_load(made.rules())["groups"][0]["rules"]] == [
        alert.name for alert in made.ALERTS
    ]
    assert len(json.loads(made.dashboard())["panels"]) == len(made.PANELS)


def test_a_running_broker_has_every_metric_that_alerts_and_panels_use(tmp_path: Path) -> None:
    made = script()
    broker = Overlane(tmp_path)
    broker.start()
    try:
        with urlopen(f"http://{broker.admin}/metrics", timeout=60) as response:
            exposition = response.read().decode()
    finally:
        broker.stop()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", exposition, re.MULTILINE))
    known = {f"{name}_bucket" if kind == "histogram" else name for name, kind in kinds.items()}
    expressions = " ".join(one.expression for one in (*made.ALERTS, *made.PANELS))
    used = set(re.findall(r"\b(?:overlane|process)_\w+", expressions))
    assert used - known == set()
    assert len(used) > 10


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_starts_a_broker_with_options_that_exist(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text()
    (command,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    assert command.startswith("/opt/overlane/bin/overlane broker ")
    assert unknown(command.split()) == set()
    if shutil.which("systemd-analyze") is not None:
        # The program is installed elsewhere here.
        copy = tmp_path / unit.name.replace("@", "@seattle")
        copy.write_text(text.replace("/opt/overlane/bin/overlane", sys.executable))
        done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
        assert unit.stem not in done.stderr, done.stderr


def test_containers_run_the_brokers_of_their_file_with_options_that_exist() -> None:
    composed = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text())
    network = read_network(DEPLOY / "docker" / "five-cities.toml")
    assert list(composed["services"]) == [broker.name for broker in network.brokers]
    for name, service in composed["services"].items():
        command = service["command"]
        assert command[:4] == ["broker", "/etc/overlane/network.toml", "--name", name]
        assert unknown(command) == set()
        assert f"{name}:/data" in service["volumes"]
    assert set(composed["volumes"]) == set(composed["services"])
    cities = read_network(PROJECT / "examples" / "five-cities.toml")
    assert network.links == cities.links
    assert network.topics == cities.topics


def test_the_image_gets_all_that_its_build_copies() -> None:
    image = (DEPLOY / "docker" / "Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (?!--from)(.*) \S+$", image, re.MULTILINE) for word in line.split()]
    assert [name for name in copied if not (PROJECT / name).exists()] == []
    allowed = (PROJECT / ".dockerignore").read_text().splitlines()
    assert [name for name in copied if f"!{name}" not in allowed] == []


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: manifest.stem)
def test_a_manifest_selects_its_own_pods_and_uses_options_that_exist(manifest: Path) -> None:
    settings = yaml.safe_load((DEPLOY / "kubernetes" / "config.yaml").read_text())["data"]
    for document in yaml.safe_load_all(manifest.read_text()):
        assert {"apiVersion", "kind", "metadata"} <= set(document)
        if document["kind"] != "StatefulSet":
            continue
        spec = document["spec"]
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"] == labels
        (container,) = spec["template"]["spec"]["containers"]
        arguments = container["args"]
        assert arguments[0] == "broker"
        assert unknown(arguments) == set()
        assert f"--role={labels['tier']}" in arguments
        given = {*settings, *(one["name"] for one in container["env"])}
        assert set(re.findall(r"\$\((\w+)\)", " ".join(arguments))) <= given
