"""Brokers that run, and what somebody finds in their lake who knows nothing of them."""

import asyncio
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from lakes import counted, files, rows, table

from brokers import Overlane, RunningBroker, free_port
from overlane.client import connect
from overlane.core.units import MS, SECOND
from overlane.telemetry.journal import MAGIC, frames
from overlane.telemetry.rows import TABLES
from waiting import eventually

SOON = '[telemetry]\nfile_age = "100ms"\n'
"""A file for every second."""
WITHIN_S = 30.0


def lake_of(broker: RunningBroker) -> Path:
    return broker.directory / "data" / "telemetry"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Overlane]:
    made = Overlane(tmp_path / "broker", SOON)
    made.start()
    try:
        yield made
    finally:
        made.kill()


def kinds(lake: Path) -> list[str]:
    return [row["kind"] for row in rows(lake, "events")]


# What it takes


def test_a_broker_that_records_loads_neither_arrow_nor_pandas(broker: Overlane) -> None:
    eventually(lambda: files(lake_of(broker)), "a file", WITHIN_S)
    libraries = Path(f"/proc/{broker.process_id}/maps").read_text()
    assert [name for name in ("pyarrow", "pandas", "numpy") if name in libraries] == []


# Rates


async def publish_evenly(address: str, topic: str, rate_hz: int, seconds: int, qos: int) -> None:
    async with connect(address) as client:
        loop = asyncio.get_running_loop()
        start = loop.time()
        for number in range(rate_hz * seconds):
            await asyncio.sleep(max(0.0, start + number / rate_hz - loop.time()))
            await client.publish(topic, b"x" * 64, qos=qos)


async def traffic(address: str, is_told: Callable[[], bool]) -> None:
    """The subscriber stays until all is told: what goes out is counted by who is there at the end of a second."""
    async with connect(address) as client, client.subscribe("fast/#"):
        await asyncio.gather(
            publish_evenly(address, "fast/lane", 200, 5, 0),
            publish_evenly(address, "slow/lane", 40, 5, 1),
        )
        while not is_told():
            await asyncio.sleep(0.1)


@pytest.mark.slow
def test_rates_in_the_lake_are_the_rates_at_which_was_published(broker: Overlane) -> None:
    lake = lake_of(broker)

    def told() -> bool:
        return counted(lake, "topic_rates", lambda row: int(row["messages_in"])) == 1_200

    asyncio.run(asyncio.wait_for(traffic(broker.address, told), WITHIN_S))
    broker.stop()
    found = rows(lake_of(broker), "topic_rates")
    sums = Counter[tuple[str, str]]()
    for row in found:
        for column in ("messages_in", "messages_out", "messages_overlay"):
            sums[row["topic"], column] += row[column]
    assert sums["fast/lane", "messages_in"] == sums["fast/lane", "messages_out"] == 1_000
    assert (sums["slow/lane", "messages_in"], sums["slow/lane", "messages_out"]) == (200, 0)
    for topic, rate_hz in (("fast/lane", 200), ("slow/lane", 40)):
        rates_hz = [row["messages_in"] * SECOND / row["interval_ns"] for row in found if row["topic"] == topic]
        assert len(rates_hz) >= 5
        assert median(rates_hz) == pytest.approx(rate_hz, rel=0.25), rates_hz
    assert {row["broker"] for row in found} == {"here"}
    assert sum(row["bytes_in"] for row in found if row["topic"] == "slow/lane") == 200 * 64


def test_seconds_are_those_of_the_clock(broker: Overlane) -> None:
    eventually(lambda: len({row["at_ns"] for row in rows(lake_of(broker), "queues")}) >= 4, "four seconds", WITHIN_S)
    past_ns = [row["at_ns"] % SECOND for row in rows(lake_of(broker), "queues")]
    away_ns = sorted(min(ns, SECOND - ns) for ns in past_ns)  # a timer may come a hair too early
    assert away_ns[len(away_ns) // 2] < 200 * MS


def test_a_broker_that_ends_says_so_and_leaves_nothing_open(broker: Overlane) -> None:
    broker.stop()
    assert kinds(lake_of(broker)) == ["broker-started", "broker-stopped"]
    assert files(lake_of(broker) / ".open") == []


# Readers


@pytest.mark.slow
def test_who_reads_while_a_broker_writes_never_sees_half_a_file_and_sees_more_and_more(broker: Overlane) -> None:
    lake, counts = lake_of(broker), Counter[str]()
    publishing = threading.Thread(target=lambda: asyncio.run(publish_evenly(broker.address, "t", 100, 8, 0)))
    publishing.start()
    reads = 0

    def is_all_seen() -> bool:
        nonlocal reads
        for name in TABLES.values():
            seen = table(lake, name).num_rows
            assert seen >= counts[name], name
            counts[name] = seen
        reads += 1
        return not publishing.is_alive() and counts["topic_rates"] >= 4 and counts["queues"] >= 4 * 4

    eventually(is_all_seen, "files of several seconds", 2 * WITHIN_S, lambda: str(counts))
    publishing.join()
    assert reads > 10


# The end


def test_what_was_recorded_until_a_broker_was_killed_is_read_after_its_next_start(tmp_path: Path) -> None:
    killed = Overlane(tmp_path / "broker")  # its files would be finished long after its death
    killed.start()
    lake = lake_of(killed)
    try:
        eventually(lambda: journal_rows(lake) > 4, "some seconds in the journals", WITHIN_S)
        before = time.time_ns()
        killed.kill()
        assert rows(lake, "queues") == []
        killed.start()
        eventually(lambda: rows(lake, "queues"), "the rows of the life before", WITHIN_S)
        killed.stop()
    finally:
        killed.kill()
    lives = sorted({row["incarnation"] for row in rows(lake, "queues")})
    first = [row["at_ns"] for row in rows(lake, "queues") if row["incarnation"] == lives[0]]
    assert len(lives) == 2
    assert max(first) > before - 8 * SECOND
    assert kinds(lake) == ["broker-started", "broker-started", "broker-stopped"]
    assert all(name.endswith(".parquet") and not Path(name).name.startswith(".") for name in files(lake))


def journal_rows(lake: Path) -> int:
    count = 0
    for path in (lake / ".open").glob("queues.*"):
        with path.open("rb") as file:
            file.seek(len(MAGIC))
            count += sum(map(len, islice(frames(file), 1, None)))
    return count


@pytest.mark.slow
def test_a_broker_killed_over_and_over_never_leaves_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    broker = Overlane(tmp_path / "broker", SOON)
    lake = lake_of(broker)
    try:
        for life in range(1, 4):
            broker.start()
            eventually(
                lambda wanted=life: kinds(lake).count("broker-started") >= wanted,  # type: ignore[misc]
                "this life's first file",
                WITHIN_S,
            )
            broker.kill()
            for name in TABLES.values():
                table(lake, name)
    finally:
        broker.kill()


# Where, and whether


def test_telemetry_that_is_switched_off_leaves_no_trace(tmp_path: Path) -> None:
    broker = Overlane(tmp_path / "broker", "[telemetry]\nenabled = false\n")
    broker.start()
    broker.stop()
    assert not lake_of(broker).exists()


class Chosen(Overlane):
    """With options of its own."""

    def __init__(self, directory: Path, tables: str, *options: str) -> None:
        super().__init__(directory, tables)
        self._options = options

    def command(self) -> list[str]:
        python = super().command()
        return [*python[: python.index("--data")], *self._options]


def test_a_broker_in_memory_records_where_it_is_told_to(tmp_path: Path) -> None:
    broker = Chosen(tmp_path / "broker", SOON, "--in-memory", "--telemetry", str(tmp_path / "lake"))
    broker.start()
    broker.stop()
    assert kinds(tmp_path / "lake") == ["broker-started", "broker-stopped"]


@pytest.mark.parametrize(
    ("tables", "options", "told"),
    [
        (
            "[telemetry]\nenabled = true\n",
            ("--in-memory",),
            "telemetry.enabled: found true for a broker that has no directory, allowed is true with --data or"
            " --telemetry",
        ),
        ("", ("--in-memory", "--telemetry", "/dev/null/lake"), "telemetry in /dev/null/lake/.open: Not a directory"),
        ("", ("--in-memory", "--telemetry", "nowhere://lake"), "--telemetry nowhere://lake without --data"),
    ],
)
def test_where_nothing_can_be_recorded_the_broker_says_why(
    tmp_path: Path, tables: str, options: tuple[str, ...], told: str
) -> None:
    broker = Chosen(tmp_path / "broker", tables, *options)
    ended = subprocess.run(broker.command(), capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr


# An overlay


class Member(RunningBroker):
    """One broker of several, which share a lake."""

    def __init__(self, directory: Path, name: str, file: Path, lake: Path) -> None:
        super().__init__(directory / name)
        self._file, self._name, self._lake = file, name, lake

    def command(self) -> list[str]:
        data = ["--data", str(self.directory / "data"), "--telemetry", str(self._lake)]
        return [sys.executable, "-m", "overlane.cli.main", "broker", str(self._file), "--name", self._name, *data]


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[dict[str, Member]]:
    """a - b - c, and nothing else."""
    file = tmp_path / "net.toml"
    made = {name: Member(tmp_path, name, file, tmp_path / "lake") for name in "abc"}
    text = [SOON, '[topics."alarms/#"]\ndeadline = "500ms"\nrouting = "single"']
    for name, member in made.items():
        ports = f'overlay = "127.0.0.1:{free_port()}"\nadmin = "127.0.0.1:{free_port()}"'
        text.append(f'[brokers.{name}]\nmqtt = "{member.address}"\n{ports}')
    text += [f'[[links]]\nends = ["{one}", "{other}"]\nlatency = "1ms"' for one, other in ("ab", "bc")]
    file.write_text("\n".join(text))
    try:
        for member in made.values():
            member.start()
        yield made
    finally:
        for member in made.values():
            member.kill()


async def alarms(publisher: str, subscriber: str, count: int, is_told: Callable[[], bool]) -> None:
    async with connect(publisher) as near, connect(subscriber) as far, far.subscribe("alarms/#") as subscription:
        async for _ in subscription:  # the first that comes shows that there is a way
            break
        await near.publish_many("alarms/fire", [b"x"] * count, qos=1)
        got = 0
        async for message in subscription:
            got += message.topic == "alarms/fire"
            if got == count:
                break
        while not is_told():
            await asyncio.sleep(0.1)


async def alarms_once_there_is_a_way(chain: dict[str, Member], is_told: Callable[[], bool]) -> None:
    async def knock() -> None:
        async with connect(chain["a"].address) as near:
            while True:
                await near.publish("alarms/knock", b"")
                await asyncio.sleep(0.1)

    knocking = asyncio.create_task(knock())
    try:
        await asyncio.wait_for(alarms(chain["a"].address, chain["c"].address, 50, is_told), WITHIN_S)
    finally:
        knocking.cancel()


@pytest.mark.slow
def test_a_lake_of_several_brokers_tells_how_messages_crossed_them(chain: dict[str, Member], tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    asyncio.run(alarms_once_there_is_a_way(chain, lambda: bool(rows(lake, "interests"))))
    chain["b"].kill()
    eventually(lambda: failed(lake) >= {("a", "b"), ("c", "b")}, "both neighbours of b notice its end", WITHIN_S)
    for name in "ac":
        chain[name].stop()

    deliveries = [row for row in rows(lake, "deliveries") if row["topic"] == "alarms/fire"]
    assert sum(row["weight"] for row in deliveries) == 50
    for row in deliveries:
        assert (row["broker"], row["origin"], row["path"], row["hops"]) == ("c", "a", ["a", "b", "c"], 2)
        assert 0 < row["age_ns"] < 500 * MS
        assert (row["deadline_ns"], row["in_time"]) == (500 * MS, True)

    overlay = [row for row in rows(lake, "topic_rates") if row["topic"] == "alarms/fire" and row["broker"] == "c"]
    assert sum(row["messages_overlay"] for row in overlay) == 50

    links = rows(lake, "links")
    assert {(row["broker"], row["peer"]) for row in links} == {("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")}
    measured = [row for row in links if row["state"] == "up" and row["latency_ns"] is not None]
    assert measured
    assert any(row["bytes_out"] > 50 for row in measured)

    routes = [row for row in rows(lake, "events") if row["kind"] == "route" and row["broker"] == "a"]
    assert any(
        row["destinations"] == ["c"] and row["paths"] == [["a", "b", "c"]] and row["links"] == [["a", "b"], ["b", "c"]]
        for row in routes
    )
    interests = [(row["broker"], row["filter"], row["subscribers"]) for row in rows(lake, "interests")]
    assert interests[0] == ("c", "alarms/#", 1)


def failed(lake: Path) -> set[tuple[Any, Any]]:
    return {
        (row["broker"], row["peer"])
        for row in rows(lake, "events")
        if row["kind"] == "link" and row["state"] == "failed"
    }
