"""Two sites in network namespaces of their own, each with a DDS domain 0 that the other cannot hear, and a broker.

Applications of two implementations, Cyclone DDS and Dust DDS, are at different sites, and use DDS alone.
"""

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from overlane.core.units import MS
from overlane.testbed.wide_area import Conditions, WideArea, why_not
from waiting import eventually

pytest.importorskip("cyclonedds")
pytest.importorskip("dust_dds")
WHY_NOT = why_not()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(WHY_NOT is not None, reason=f"no wide area can be made here: {WHY_NOT}"),
]

WITHIN_S = 90.0
APP = Path(__file__).parent / "dds_counts.py"
LOCAL_NETWORK = (
    "ip link add dds0 type veth peer name dds1",
    "ip addr add 10.97.0.1/24 dev dds0",
    "ip link set dds0 up",
    "ip link set dds1 up",
    "ip route add 239.0.0.0/8 dev dds0",
)
"""Multicast stays in it: a site hears its own applications only."""
CYCLONE = (
    "<CycloneDDS><Domain><General><Interfaces><NetworkInterface name='dds0' multicast='true'/></Interfaces>"
    "<AllowMulticast>true</AllowMulticast></General></Domain></CycloneDDS>"
)
TABLES = """
[brokers.{site}]
mqtt = "127.0.0.1:1883"
overlay = "{address}:7001"
admin = "127.0.0.1:8001"
[[dds]]
name = "dds-{site}"
broker = "{site}"
topics = ["plant_*"]
"""
REST = """
[[links]]
ends = ["hall", "office"]
latency = "2ms"
[security]
overlay_secret = "{secret}"
[telemetry]
enabled = false
"""


class Application:
    def __init__(self, area: WideArea, site: str, command: list[str], log: Path) -> None:
        environment = {**os.environ, "CYCLONEDDS_URI": CYCLONE}
        self.process = area.start(site, command, environment, log, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        assert self.lines.get(timeout=WITHIN_S).startswith("ready"), log.read_text()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.decode().strip())

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()


def is_ready(log: Path) -> bool:
    return "ready" in log.read_text()


Begin = Callable[..., Application]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts an application at a site: `begin("hall", "dust", "write", "plant_counts")`."""
    near = Conditions(latency_ns=2 * MS)
    with WideArea(["hall", "office"], {("hall", "office"): near}, is_urgent=False) as area:
        secret, file = tmp_path / "secret", tmp_path / "network.toml"
        secret.write_text("a-secret-of-sixteen-bytes-or-more\n")
        secret.chmod(0o600)
        sites = [TABLES.format(site=site, address=area.address(site)) for site in ("hall", "office")]
        file.write_text("".join((*sites, REST.format(secret=secret))))
        overlane = [sys.executable, "-m", "overlane"]
        for site in ("hall", "office"):
            for command in LOCAL_NETWORK:
                subprocess.run(area.command(site, command.split()), check=True)
            words = ["broker", str(file), "--name", site, "--data", str(tmp_path / site), "--no-sync"]
            area.start(site, [*overlane, *words], log=tmp_path / f"{site}.log")
            log = tmp_path / f"{site}.log"
            eventually(partial(is_ready, log), f"{site} runs", WITHIN_S, log.read_text)
            gateway = [*overlane, "gateway", str(file), "--name", f"dds-{site}"]
            Application(area, site, gateway, tmp_path / f"dds-{site}.log")

        def application(site: str, *words: str) -> Application:
            return Application(area, site, [sys.executable, str(APP), *words], tmp_path / f"{site}-app.log")

        yield application


def crosses(writer: Application, reader: Application) -> None:
    """Until the route is there; then every sample of a reliable writer arrives, in order."""

    def is_there() -> bool:
        writer.say("0 0")
        return not reader.lines.empty()

    eventually(is_there, "a sample has crossed", WITHIN_S)
    for number in range(1, 51):
        writer.say(f"1 {number}")
    got: list[str] = []
    while not got or got[-1] != "1 50":
        got.append(reader.lines.get(timeout=WITHIN_S))
    assert [line for line in got if line != "0 0"] == [f"1 {number}" for number in range(1, 51)]


def test_two_implementations_interoperate_between_domains_that_cannot_hear_each_other(begin: Begin) -> None:
    reader, writer = begin("office", "cyclone", "read", "plant_counts"), begin("hall", "dust", "write", "plant_counts")
    alone = begin("office", "cyclone", "read", "private")
    begin("hall", "cyclone", "write", "private").say("9 9")
    crosses(writer, reader)
    back, there = begin("hall", "dust", "read", "plant_orders"), begin("office", "cyclone", "write", "plant_orders")
    crosses(there, back)
    assert alone.lines.empty(), "they cannot hear each other but by gateways"
