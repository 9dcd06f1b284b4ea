"""Topics as streams of Spark, with real brokers: nothing is lost and nothing repeated, whatever is killed."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from brokers import free_port
from overlane.errors import ConfigError
from overlane.pipeline import register
from overlane.pipeline.streaming.stream_client import Credentials, StreamClient
from overlane.pipeline.streaming.stream_options import read_options
from sparks import PARTS, need_java, the_spark, unmarked
from watched import WatchedBroker, let_in

pytestmark = [PARTS, pytest.mark.slow]

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "sensor_average.py"
WITHIN_S = 600.0
TRIES = 8


class Pair:
    """Two brokers of one overlay."""

    def __init__(self, directory: Path) -> None:
        overlay = {name: f"127.0.0.1:{free_port()}" for name in ("west", "east")}
        self.mqtt = {name: free_port() for name in overlay}
        self.admin = {name: f"127.0.0.1:{free_port()}" for name in overlay}
        text = "".join(
            f'[brokers.{name}]\nmqtt = "127.0.0.1:{self.mqtt[name]}"\n'
            f'overlay = "{overlay[name]}"\nadmin = "{self.admin[name]}"\n'
            for name in overlay
        )
        self._directory = directory
        (directory / "network.toml").write_text(text + '[[links]]\nends = ["west", "east"]\nlatency = "1ms"\n')
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def addresses(self) -> str:
        return ",".join(self.admin.values())

    def start(self, name: str) -> None:
        command = [sys.executable, "-m", "overlane", "broker", str(self._directory / "network.toml"), "--name", name]
        with (self._directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [*command, "--data", str(self._directory / name)], stdout=log, stderr=log
            )

    def kill(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    def ask(self, name: str) -> StreamClient:
        return StreamClient(self.admin[name], Credentials(retry_s=120.0))

    def make(self, stream: str, topic_filter: str) -> None:
        for name in self.admin:
            self.ask(name).create(stream, topic_filter, "here", with_retained=False)

    def count(self, stream: str) -> int:
        return sum(self.ask(name).get(stream).next for name in self.admin)

    def messages(self, stream: str) -> Counter[tuple[str, bytes]]:
        found: Counter[tuple[str, bytes]] = Counter()
        for name in self.admin:
            view = self.ask(name).get(stream)
            page = self.ask(name).read(stream, view.since_ns, 0, view.next, 10_000)
            found.update((one.topic, one.payload) for one in page.messages)
        return found

    def wait_for(self, name: str) -> None:
        """Until it lets clients in."""
        until = time.monotonic() + WITHIN_S
        while not self._answers(name):
            assert time.monotonic() < until, (self._directory / f"{name}.log").read_text()
            time.sleep(0.02)

    def _answers(self, name: str) -> bool:
        with closing(socket.socket()) as probe:
            return probe.connect_ex(("127.0.0.1", self.mqtt[name])) == 0

    def publish(self, name: str, numbers: range) -> None:
        with let_in(self.mqtt[name], f"publisher-{name}") as caller:
            for number in numbers:
                caller.publish(f"in/{number % 7}", b"%d" % number)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    brokers = Pair(tmp_path)
    for name in brokers.admin:
        brokers.start(name)
    for name in brokers.admin:
        brokers.wait_for(name)
    yield brokers
    for name in brokers.admin:
        brokers.kill(name)


@contextmanager
def program(directory: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """With all its processes in a group of their own, which ends with it."""
    need_java()
    with (directory / "spark.log").open("wb") as log:
        running = subprocess.Popen(
            [sys.executable, *arguments], env=unmarked(), stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield running
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()


def said(directory: Path) -> str:
    return (directory / "spark.log").read_text()[-4_000:]


def came_late(directory: Path) -> bool:
    """Spark gives a process of Python ten seconds to start, which can be too few where much else goes on."""
    return "failed to connect back" in (directory / "spark.log").read_text()


def run_to_the_end(directory: Path, *arguments: str) -> None:
    """Again from the checkpoint where Spark has given up for want of time."""
    for _ in range(TRIES):
        with program(directory, *arguments) as running:
            if running.wait(WITHIN_S) == 0:
                return
            assert came_late(directory), said(directory)
    raise AssertionError(said(directory))


def test_a_query_that_is_killed_goes_on_from_its_checkpoint_without_loss_and_repetition(
    pair: Pair, tmp_path: Path
) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    pair.make("query", "in/#")
    pair.make("check", "out/#")
    pair.publish("west", range(200))
    pair.publish("east", range(200, 400))
    query = (str(HERE / "topic_query.py"), pair.addresses, checkpoint)
    for _ in range(TRIES):
        if pair.count("check") >= 100:
            break
        with program(tmp_path, *query, "for-ever") as running:
            until = time.monotonic() + WITHIN_S
            while pair.count("check") < 100 and running.poll() is None:
                assert time.monotonic() < until, said(tmp_path)
                time.sleep(0.02)
            assert running.poll() is None or came_late(tmp_path), said(tmp_path)
    assert 100 <= pair.count("check") < 400, "it was not killed in the middle, which would tell nothing"
    pair.kill("west")
    pair.start("west")
    pair.wait_for("west")
    pair.publish("west", range(400, 500))
    run_to_the_end(tmp_path, *query, "once")
    assert pair.messages("check") == {(f"out/in/{number % 7}", b"%d" % number): 1 for number in range(500)}


def test_the_average_of_a_sensor_is_a_topic(pair: Pair, tmp_path: Path) -> None:
    pair.make("sensor-average", "sensors/+")
    pair.make("check", "averages/#")
    with let_in(pair.mqtt["west"], "sensor") as sensor:
        for value in (b"20", b"22", b"no number"):
            sensor.publish("sensors/boiler", value)
        time.sleep(2.1)  # until the window is over: the time is that of the messages
        sensor.publish("sensors/other", b"1")
    options = ("--brokers", pair.addresses, "--checkpoint", str(tmp_path / "checkpoint"), "--once")
    run_to_the_end(tmp_path, str(EXAMPLE), *options, "--window", "1 second", "--patience", "0 seconds")
    found = [(topic, json.loads(payload)) for topic, payload in pair.messages("check").elements()]
    assert {topic for topic, _ in found} == {"averages/boiler"}
    assert sum(one["values"] for _, one in found) == 2
    assert sum(one["average"] * one["values"] for _, one in found) == 42


def test_a_table_is_written_to_topics_and_read_back(tmp_path: Path) -> None:
    spark = the_spark()
    register(spark)
    broker = WatchedBroker(tmp_path)
    broker.start()
    try:

        def read() -> Any:
            options = {"brokers": broker.admin, "stream": "table", "topic": "rows/#"}
            return spark.read.format("overlane").options(**options).load()

        assert read().count() == 0
        rows = spark.range(50).selectExpr("concat('rows/', id % 3) AS topic", "string(id) AS payload", "2 AS qos")
        rows.write.format("overlane").option("brokers", broker.admin).mode("append").save()
        found = read().selectExpr("topic", "string(payload) AS payload", "qos", "retain", "broker").collect()
        assert sorted(map(tuple, found)) == sorted(
            (f"rows/{number % 3}", str(number), 2, False, "here") for number in range(50)
        )
        assert read().count() == 50
    finally:
        broker.kill()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "brokers: found nothing, allowed is addresses"),
        ({"brokers": "a:1", "start": "yesterday"}, "start: found 'yesterday', allowed is earliest or latest"),
        ({"brokers": "a:1,b:1", "scope": "everywhere"}, "otherwise each message arrives several times"),
        ({"brokers": "a:1", "maxMessages": "0"}, "maxmessages: found '0', allowed is a whole number from 1"),
        ({"brokers": "a"}, "brokers: found 'a', allowed is addresses"),
        ({"brokers": "a:1,ftp://b:1"}, "allowed is addresses"),
        ({"brokers": "a:1", "stream": "a/b"}, "stream: found 'a/b', allowed is 1 to 100 letters"),
        ({"brokers": "a:1", "colour": "red"}, "colour: found an unknown option, allowed is brokers"),
    ],
)
def test_wrong_options_are_told(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_options(given)
    assert message in str(refused.value)


def test_several_brokers_are_read_by_what_is_published_at_each() -> None:
    assert read_options({"brokers": "a:1"}).scope == "everywhere"
    assert read_options({"brokers": "a:1, b:1"}).scope == "here"
