"""Two DDS domains that cannot hear each other, with applications in processes of their own, joined by two brokers.

The domains are told apart by their ids. Domain ids of a test are its own, so that several can run at once.
"""

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from mqttinbox import MqttInbox, publish

from overlane.local_ports import free_ports
from overlays import RealOverlay, all_up
from waiting import eventually

pytest.importorskip("cyclonedds")
pytestmark = pytest.mark.slow

WITHIN_S = 90.0
FIRST = 20 + os.getpid() % 60 * 3
APP = Path(__file__).parent / "dds_app.py"
LOOPBACK = (
    "<CycloneDDS><Domain><General><Interfaces><NetworkInterface name='lo' multicast='false'/></Interfaces>"
    "<AllowMulticast>false</AllowMulticast></General><Discovery><ParticipantIndex>auto</ParticipantIndex>"
    "<MaxAutoParticipantIndex>20</MaxAutoParticipantIndex><Peers><Peer Address='127.0.0.1'/></Peers>"
    "<LeaseDuration>2s</LeaseDuration></Discovery></Domain></CycloneDDS>"
)
GATEWAYS = """
[[dds]]
name = "one"
broker = "a"
domain = {first}
topics = ["plant_*"]

[[dds]]
name = "two"
broker = "b"
domain = {second}
topics = ["plant_*"]

[[dds]]
name = "readable"
broker = "b"
domain = {third}
prefix = "json"
format = "json"
"""


UP = """
[brokers.one]
mqtt = "127.0.0.1:{mqtt}"
overlay = "127.0.0.1:{overlay}"
admin = "127.0.0.1:{admin}"
[telemetry]
enabled = false
[[dds]]
name = "states"
broker = "one"
domain = {domain}
topics = ["up_*"]
prefix = "up"
format = "json"
"""


class Process:
    def __init__(self, *words: str) -> None:
        environment = {**os.environ, "CYCLONEDDS_URI": LOOPBACK}
        self.process = subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        assert self.next().startswith("ready")

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.strip())

    def next(self) -> str:
        return self.lines.get(timeout=WITHIN_S)

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Site:
    def __init__(self, directory: Path) -> None:
        self.net = RealOverlay(directory, {"a-b": 'latency = "1ms"'})
        tables = GATEWAYS.format(first=FIRST, second=FIRST + 1, third=FIRST + 2)
        self.net.file.write_text(self.net.file.read_text() + tables)
        self.net.start()
        self.processes: list[Process] = []

    def gateway(self, name: str) -> Process:
        return self._begun("-m", "overlane", "gateway", str(self.net.file), "--name", name)

    def app(self, role: str, domain: int, topic: str) -> Process:
        return self._begun(str(APP), role, str(domain), topic)

    def _begun(self, *words: str) -> Process:
        self.processes.append(Process(*words))
        return self.processes[-1]

    def port(self, broker: str) -> int:
        return int(self.net[broker].mqtt.rpartition(":")[2])

    def end(self) -> None:
        for one in self.processes:
            with suppress(ProcessLookupError):
                one.kill()
        self.net.end()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    one = Site(tmp_path_factory.mktemp("dds"))
    for name in ("one", "two", "readable"):
        one.gateway(name)
    yield one
    one.end()


def test_two_domains_interoperate_and_a_route_ends_with_its_reader(site: Site) -> None:
    with (
        MqttInbox(site.port("a"), "dds/announce/+", qos=1) as announced,
        MqttInbox(site.port("a"), "dds/samples/#") as seen,
    ):
        writer = site.app("write", FIRST, "plant_temps")
        site.app("write", FIRST, "private").say("9 9.0")
        writer.say("1 20.5")
        eventually(lambda: any(b"plant_temps" in one.payload for one in announced.messages), "announced", WITHIN_S)
        assert not seen.messages, "nobody reads it elsewhere: local topics stay local"
        reader = site.app("read", FIRST + 1, "plant_temps")
        first = reader.next().split()
        assert first[:2] == ["1", "20.5"], "what was written before the reader came is there"
        writer.say("2 21.5")
        assert reader.next().split()[:2] == ["2", "21.5"]
        writer.say("dispose 2")
        assert reader.next() == "disposed 2"
        for number in range(10):
            writer.say(f"3 {number}.0")
        assert [reader.next().split()[1] for _ in range(10)] == [f"{number}.0" for number in range(10)]
        stamps = [int(dict(one.properties.UserProperty)["overlane-dds-time"]) for one in seen.messages]
        assert int(first[2]) in stamps, "the reader has the time at which it was written"
        assert not any(b"private" in one.payload for one in announced.messages)
        reader.kill()
        two_says = [one.payload for one in announced.messages if one.topic.endswith("/two")]
        assert b'"is_read":true' in two_says[-1]
        eventually(
            lambda: [one.payload for one in announced.messages if one.topic.endswith("/two")][-1] == b"{}",
            "the liveliness of the reader is lost",
            WITHIN_S,
        )
        count = len(seen.messages)
        writer.say("1 99.0")
        again = site.app("read", FIRST + 1, "plant_temps")
        # The writer keeps the latest of each instance for those who come late (its DurabilityService).
        assert {" ".join(again.next().split()[:2]) for _ in range(3)} == {"disposed 2", "3 9.0", "1 99.0"}
        assert len(seen.messages) > count


def test_overlane_up_runs_gateways_and_begins_them_anew_when_the_file_has_changed(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CYCLONEDDS_URI", LOOPBACK)
    file, (mqtt, overlay, admin) = tmp_path / "up.toml", free_ports(3)
    text = UP.format(mqtt=mqtt, overlay=overlay, admin=admin, domain=FIRST + 2)
    file.write_text(text)
    with (
        all_up(file, tmp_path) as up,
        MqttInbox(mqtt, "up/+", qos=1) as inbox,
        MqttInbox(mqtt, "new/+", qos=1) as other,
    ):
        writer = site.app("write", FIRST + 2, "up_states")
        writer.say("7 1.5")
        eventually(lambda: bool(inbox.messages), "a sample has come", WITHIN_S, up.log.read_text)
        assert inbox.messages[0].payload == b'{"id":7,"value":1.5,"unit":"C"}'
        file.write_text(text.replace('prefix = "up"', 'prefix = "new"'))
        up.reload()
        eventually(lambda: bool(other.messages), "under the new prefix", WITHIN_S, up.log.read_text)


def test_samples_are_json_for_mqtt_clients_and_back(site: Site) -> None:
    with MqttInbox(site.port("a"), "json/+", qos=1) as inbox:
        writer = site.app("write", FIRST + 2, "states")
        writer.say("7 1.5")
        eventually(lambda: bool(inbox.messages), "a sample has come", WITHIN_S)
        assert (inbox.messages[0].topic, inbox.messages[0].payload) == (
            "json/states",
            b'{"id":7,"value":1.5,"unit":"C"}',
        )
        reader = site.app("read", FIRST + 2, "commands")

        def is_there() -> bool:
            publish(site.port("a"), "json/commands", b'{"id": 4, "value": 2.5, "unit": "K"}')
            return not reader.lines.empty()

        eventually(is_there, "the command has come", WITHIN_S)
        assert reader.next().split()[:2] == ["4", "2.5"]
