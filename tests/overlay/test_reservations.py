"""Reservations of running brokers, asked for by clients that are not ours: Mosquitto's and paho."""

import json
import queue
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from overlays import RealOverlay, overlay
from waiting import eventually

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
LINK = 'latency = "1ms"\nrate = "10Mbit"'
LONG = 'latency = "80ms"\nrate = "10Mbit"\nemulate = true'
TABLES = """
[reservations]
answer = "20s"

[[advertisements]]
broker = "a"
filter = "plant/video"
size = 1000
period = "10ms"

[[advertisements]]
broker = "a"
filter = "plant/large"
size = 10000
period = "16ms"
"""
VIDEO = {"overlane-size": "1000", "overlane-period": "10ms"}
LARGE = {"overlane-size": "10000", "overlane-period": "16ms"}


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealOverlay]:
    """Two paths from a to c: over b, and over d, which is longer."""
    links = {"a-b": LINK, "b-c": LINK, "a-d": LONG, "c-d": LONG}
    with overlay(tmp_path_factory.mktemp("reservations"), links, TABLES) as found:
        # The map is there when everybody knows all links.
        eventually(lambda: _advertised(found, "c") is not None, "the advertisement known", PATIENCE_S, found.logs)
        yield found


def _advertised(net: RealOverlay, broker: str) -> object:
    """Whether a subscriber of the broker is admitted."""
    with subscriber(net, broker, "probe") as probe:
        return probe.ask("plant/video", VIDEO)[0] < 0x80 or None


class Subscriber:
    def __init__(self, net: RealOverlay, broker: str, name: str) -> None:
        self.paho = Client(CallbackAPIVersion.VERSION2, name, protocol=MQTTv5, reconnect_on_failure=False)
        self._answers: queue.Queue[tuple[int, dict[str, str]]] = queue.Queue()
        self._connected: queue.Queue[int] = queue.Queue()
        self.heard: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self.paho.on_connect = lambda *told: self._connected.put(told[3].value)
        self.paho.on_message = lambda _client, _data, message: self.heard.put((message.topic, bytes(message.payload)))
        self.paho.on_subscribe = self._on_subscribe
        host, port = net[broker].mqtt.split(":")
        self.paho.connect(host, int(port))
        self.paho.loop_start()
        assert self._connected.get(timeout=PATIENCE_S) == 0

    def _on_subscribe(self, _client: object, _data: object, _mid: int, codes: list[Any], properties: Any) -> None:
        told = {"reason": str(getattr(properties, "ReasonString", "")), **dict(getattr(properties, "UserProperty", []))}
        self._answers.put((codes[0].value, told))

    def ask(self, topic_filter: str, properties: dict[str, str]) -> tuple[int, dict[str, str]]:
        asked = Properties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
        asked.UserProperty = list(properties.items())
        self.paho.subscribe(topic_filter, 1, properties=asked if properties else None)
        return self._answers.get(timeout=PATIENCE_S)


@contextmanager
def subscriber(net: RealOverlay, broker: str, name: str) -> Iterator[Subscriber]:
    one = Subscriber(net, broker, name)
    try:
        yield one
    finally:
        one.paho.disconnect()
        one.paho.loop_stop()


def _reservations(net: RealOverlay, broker: str) -> Any:
    return net[broker].ask("/reservations")


def _promised(net: RealOverlay, broker: str, peer: str) -> int:
    return int(next(one["promised"] for one in _reservations(net, broker)["links"] if one["peer"] == peer))


def test_a_subscriber_is_admitted_with_a_bound_and_gets_messages_over_the_reserved_path(net: RealOverlay) -> None:
    with subscriber(net, "c", "reader") as reader, subscriber(net, "a", "writer") as writer:
        code, told = reader.ask("plant/video", {**VIDEO, "overlane-latency": "300ms"})
        assert (code, told["overlane-class"]) == (1, "guaranteed"), told
        assert float(told["overlane-bound"].removesuffix("ms")) <= 300
        reserved = int(told["overlane-reserved"])
        assert reserved >= 100_000
        # The same on every link of the path, and no other.
        shares = {one["peer"]: one["reserved"] for one in net["a"].ask("/links")["items"]}  # type: ignore[index]
        assert shares == {"b": pytest.approx(reserved / 1_250_000), "d": 0.0}
        assert [_promised(net, *link) for link in (("a", "b"), ("b", "c"), ("a", "d"))] == [reserved, reserved, 0]
        writer.paho.publish("plant/video", b"frame", 1)
        assert reader.heard.get(timeout=PATIENCE_S) == ("plant/video", b"frame")
        [held] = [one for one in _reservations(net, "c")["reservations"] if one["client"] == "reader"]
        assert (held["state"], held["service"], held["messages"]) == ("held", "guaranteed", 1)
    eventually(lambda: _promised(net, "a", "b") == 0, "released", PATIENCE_S, net.logs)
    assert _promised(net, "b", "c") == 0


def test_who_does_not_fit_the_short_path_takes_the_other_and_who_fits_none_is_told_why(net: RealOverlay) -> None:
    with subscriber(net, "c", "first") as first, subscriber(net, "b", "second") as second:
        assert first.ask("plant/large", LARGE)[0] == 1
        assert _promised(net, "a", "b") > 600_000
        # Over a-b there is no room for a latency that needs much; d is no way to b but over c.
        code, told = second.ask("plant/video", {**VIDEO, "overlane-latency": "15ms"})
        assert code == 0x97, told
        assert "overlane-nearest-latency" in told
        assert "plant/video" in told["reason"]
        # Who accepts less is given it, and told.
        less = {"overlane-latency": "15ms", "overlane-class-min": "best-effort"}
        code, told = second.ask("plant/video", {**VIDEO, **less})
        assert code == 1
        assert told["overlane-class"] in ("controlled-load", "best-effort")


def test_a_combination_that_makes_no_sense_is_refused_by_name(net: RealOverlay) -> None:
    with subscriber(net, "c", "nonsense") as one:
        code, told = one.ask("plant/video", {"overlane-latency": "60ms"})
        assert (code, told["reason"].split(":")[0]) == (0x83, "overlane-latency")


def test_mosquittos_clients_advertise_and_reserve(net: RealOverlay) -> None:
    (there, at), (here, to) = net["a"].mqtt.split(":"), net["c"].mqtt.split(":")
    publish = ["mosquitto_pub", "-q", "1", "-h", there, "-p", at]
    document = ["-t", "$overlane/advertise/plant/sound", "-m", '{"size": 100, "period_s": 0.1}']
    subprocess.run([*publish, "-r", *document], check=True, timeout=60)
    wanted = {"overlane-size": "100", "overlane-period": "100ms", "overlane-latency": "500ms"}
    asked = [word for name, value in wanted.items() for word in ("-D", "subscribe", "user-property", name, value)]
    command = ["mosquitto_sub", "-V", "5", "-d", "-h", here, "-p", to, "-t", "plant/sound", "-C", "1", "-W", "60"]
    reading = subprocess.Popen([*command, *asked], stdout=subprocess.PIPE, text=True)
    try:
        eventually(
            lambda: any(one["filter"] == "plant/sound" for one in _reservations(net, "c")["reservations"]),
            "admitted",
            PATIENCE_S,
            net.logs,
        )
        while reading.poll() is None:
            subprocess.run([*publish, "-t", "plant/sound", "-m", "ping"], check=True, timeout=60)
        heard = reading.communicate()[0].splitlines()
        assert "ping" in heard
        assert any(line.startswith("Subscribed (mid: 1): 0") for line in heard)
    finally:
        reading.kill()
        reading.wait()
    # One without payload takes it back.
    subprocess.run([*publish, "-r", "-n", "-t", "$overlane/advertise/plant/sound"], check=True, timeout=60)
    names = [one["filter"] for one in _reservations(net, "a")["advertised"]]
    assert sorted(names) == ["plant/large", "plant/video"]


def test_the_command_shows_who_has_what_over_which_path(net: RealOverlay, tmp_path: Path) -> None:
    overlane = [sys.executable, "-m", "overlane", "reservations", str(net.file)]
    with subscriber(net, "c", "shown") as one:
        assert one.ask("plant/video", {**VIDEO, "overlane-latency": "300ms"})[0] == 1
        shown = subprocess.run(overlane, capture_output=True, text=True, check=True, timeout=120).stdout
        [line] = [line for line in shown.splitlines() if "shown" in line]
        assert "guaranteed" in line
        assert "a -> b -> c" in line
        assert "held" in line
        found = json.loads(subprocess.run([*overlane, "--json"], capture_output=True, check=True, timeout=120).stdout)
        assert [one["broker"] for one in found["brokers"]] == ["a", "b", "c", "d"]
        problem = {"subscribers": [{"broker": "c", "topic": "plant/large", "size": 10_000, "period_s": 0.016}] * 2}
        file = tmp_path / "more.json"
        file.write_text(json.dumps(problem))
        command = [*overlane, "--what-if", str(file), "--json"]
        answer = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=120).stdout)
        assert [one["admitted"] for one in answer["subscribers"]] == [True, True]
        assert answer["subscribers"][0]["path"] == ["a", "b", "c"]


@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
def test_tshark_reads_what_running_brokers_say(net: RealOverlay, tmp_path: Path) -> None:
    with subscriber(net, "c", "captured") as one:
        assert one.ask("plant/video", {**VIDEO, "overlane-latency": "300ms"})[0] == 1
        assert one.ask("plant/large", {**LARGE, "overlane-latency": "10ms"})[0] == 0x97
    file = tmp_path / "running.pcap"
    overlane = [sys.executable, "-m", "overlane", "reservations", str(net.file), "--pcap", str(file)]
    subprocess.run(overlane, check=True, timeout=120)
    command = ["tshark", "-r", str(file), "-T", "fields", "-e", "rsvp.msg"]
    kinds = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.split()
    assert {"1", "2", "7"} <= set(kinds)  # Path, Resv, ResvConf
    whole = subprocess.run(["tshark", "-r", str(file), "-V"], capture_output=True, text=True, check=True, timeout=120)
    assert "Malformed" not in whole.stdout
    for told in ("Guaranteed Rate", "Token bucket rate", "Shared-Explicit", "ADSPEC"):
        assert told.lower() in whole.stdout.lower(), told
