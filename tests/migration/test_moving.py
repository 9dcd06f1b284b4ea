"""Moving from a real Mosquitto, as docs/moving-from-mosquitto.md says: bridge, shadow, switch, retire."""

import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from brokers import MOSQUITTO, Overlane, RunningBroker, free_port
from waiting import eventually

pytestmark = pytest.mark.slow

WITHIN_S = 60.0


class Bridging(RunningBroker):
    """A Mosquitto with a bridge to another broker, as its users have it."""

    def __init__(self, directory: Path, address: str) -> None:
        super().__init__(directory)
        self._file = directory / "mosquitto.conf"
        self._file.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\nuser root\npersistence false\n"
            f"connection site\naddress {address}\ntopic # both 1\nrestart_timeout 1\n"
        )

    def command(self) -> list[str]:
        assert MOSQUITTO is not None
        return [MOSQUITTO, "-c", str(self._file)]


class Reader:
    """A client that has subscribed to everything, and what it got."""

    def __init__(self, port: int, *filters: str) -> None:
        self.got: list[tuple[str, bytes, bool]] = []
        self._lock = threading.Lock()
        self._subscribed = threading.Event()
        self.client = paho.Client(CallbackAPIVersion.VERSION2)
        self.client.on_message = self._heard
        self.client.on_subscribe = lambda *_: self._subscribed.set()
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        self.client.subscribe([(one, 1) for one in filters or ("#",)])
        assert self._subscribed.wait(WITHIN_S)

    def _heard(self, _client: paho.Client, _userdata: object, message: paho.MQTTMessage) -> None:
        with self._lock:
            self.got.append((message.topic, bytes(message.payload), message.retain))

    def of(self, topic: str) -> list[bytes]:
        with self._lock:
            return [payload for name, payload, _ in self.got if name == topic]

    def wait_for(self, topic: str) -> None:
        eventually(lambda: self.of(topic), f"{topic} has come", WITHIN_S)

    def end(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Overlane]:
    (tmp_path / "overlane").mkdir()
    broker = Overlane(tmp_path / "overlane")
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def there(tmp_path: Path, here: Overlane) -> Iterator[Bridging]:
    if MOSQUITTO is None:
        pytest.skip("mosquitto is not installed")
    (tmp_path / "mosquitto").mkdir()
    broker = Bridging(tmp_path / "mosquitto", here.address)
    broker.start()
    yield broker
    broker.kill()


def publish(port: int, topic: str, payload: str, *, retain: bool = False) -> None:
    more = ["-r"] if retain else []
    subprocess.run(["mosquitto_pub", "-p", str(port), "-t", topic, "-m", payload, "-q", "1", *more], check=True)


@pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="mosquitto-clients is not installed")
def test_a_bridge_of_mosquitto_brings_everything_both_ways_once_and_the_old_broker_can_go(
    here: Overlane, there: Bridging
) -> None:
    state = Reader(here.port, "$SYS/broker/connection/#")
    eventually(lambda: b"1" in [payload for _, payload, _ in state.got], "the bridge is connected", WITHIN_S)
    new, old = Reader(here.port), Reader(there.port)
    publish(there.port, "from/old", "1")
    publish(here.port, "from/new", "2")
    publish(there.port, "kept/old", "3", retain=True)
    publish(here.port, "kept/new", "4", retain=True)
    topics = {"from/old": b"1", "from/new": b"2", "kept/old": b"3", "kept/new": b"4"}
    for reader in (new, old):
        for topic, payload in topics.items():
            reader.wait_for(topic)
            assert reader.of(topic) == [payload]
    # The last message of each side has come to both: whatever came back would have come before it.
    publish(there.port, "end/old", "5")
    publish(here.port, "end/new", "6")
    for reader in (new, old):
        reader.wait_for("end/old")
        reader.wait_for("end/new")
        assert {topic: reader.of(topic) for topic in topics} == {topic: [payload] for topic, payload in topics.items()}
    old.end()
    there.stop()
    eventually(lambda: b"0" in [payload for _, payload, _ in state.got], "the bridge has gone", WITHIN_S)
    late = Reader(here.port, "kept/#")
    eventually(lambda: len(late.got) == 2, "what was kept is here", WITHIN_S)
    assert sorted(late.got) == [("kept/new", b"4", True), ("kept/old", b"3", True)]
    for reader in (new, late, state):
        reader.end()


def test_a_broker_with_the_files_of_mosquitto_lets_the_same_clients_in(tmp_path: Path) -> None:
    """The configuration is taken over by `overlane init --mosquitto`, and the broker started with it."""
    from test_mosquitto import init, mosquitto_passwd

    port, passwd = free_port(), tmp_path / "passwd"
    mosquitto_passwd("-c", "-b", passwd, "alice", "sesame")
    (tmp_path / "acl").write_text("user alice\ntopic write sensors/alice\ntopic read #\n")
    conf = tmp_path / "mosquitto.conf"
    conf.write_text(f"listener {port} 127.0.0.1\npassword_file {passwd}\nacl_file {tmp_path / 'acl'}\n")
    made = init(tmp_path / "plant.toml", "--brokers", "here", "--mosquitto", conf)
    assert made.exit_code == 0, made.output
    broker = Overlane(tmp_path)
    text = (tmp_path / "plant.toml").read_text().replace(f"127.0.0.1:{port}", broker.address)
    head = f'overlay = "127.0.0.1:{free_port()}"\nadmin = "{broker.admin}"\n'
    (tmp_path / "network.toml").write_text(text.replace("[brokers.here]\n", f"[brokers.here]\n{head}"))
    broker.start()
    try:
        assert refused_by(broker.port, "alice", "wrong")
        assert refused_by(broker.port, "bob", "sesame")
        assert not refused_by(broker.port, "alice", "sesame")
    finally:
        broker.kill()


def refused_by(port: int, user: str, password: str) -> bool:
    words = ["mosquitto_pub", "-p", str(port), "-u", user, "-P", password, "-t", "sensors/alice", "-m", "x", "-q", "1"]
    return subprocess.run(words, capture_output=True, check=False).returncode != 0
