"""`overlane pipeline watch` with a real broker: who subscribes to alerts hears of a topic below its target, once."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mqtt5
import pyarrow.parquet as pq
import pytest

from overlane.pipeline.analysis import live_compliance
from overlane.pipeline.small_runs import SMALL_RUN_CONF
from overlane.telemetry.rows import DeliveryRow
from overlane.telemetry.schema import record_batch
from sparks import PARTS, need_java, pipeline, the_spark, unmarked
from watched import Caller, WatchedBroker, let_in

pytestmark = [PARTS, pytest.mark.slow]

WITHIN_S = 600.0
SECOND_NS = 10**9
MINUTE_S = 1_790_000_040
TARGET = 0.95
TOPIC = "ops/alerts"


def delivered(topic: str, at_s: float, in_time: bool) -> DeliveryRow:
    at_ns = int((MINUTE_S + at_s) * SECOND_NS)
    age_ns = 30_000_000 if in_time else 90_000_000
    return DeliveryRow(at_ns, topic, "west", age_ns, 60_000_000, in_time, False, "adaptive", 64, 1, ("west", "here"), 1)


def write(lake: Path, number: int, rows: list[DeliveryRow]) -> None:
    """As brokers do: under another name first."""
    day = lake / "deliveries" / "date=2026-09-21"
    day.mkdir(parents=True, exist_ok=True)
    batch = record_batch("deliveries", "here", 1, rows)
    with pq.ParquetWriter(day / f".{number}", batch.schema) as file:
        file.write_batch(batch)
    (day / f".{number}").rename(day / f"here-1-{number}.parquet")


@contextmanager
def watching(directory: Path, lake: Path, admin: str) -> Iterator[subprocess.Popen[bytes]]:
    brief = [word for item in SMALL_RUN_CONF.items() for word in ("--conf", "=".join(item))]
    command = pipeline("watch", "--lake", str(lake), "--out", str(directory), "--target", str(TARGET), *brief)
    wanted = ("--alerts", TOPIC, "--brokers", admin, "--lateness", "1 second")
    with (directory / "watch.log").open("wb") as log:
        process = subprocess.Popen([*command, *wanted], env=unmarked(), stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def heard(caller: Caller, process: subprocess.Popen[bytes], log: Path) -> tuple[str, Any]:
    """The next message, however long Spark takes."""
    until = time.monotonic() + WITHIN_S
    while True:
        try:
            packet = caller.read(mqtt5.PublishPacket)
        except TimeoutError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
        else:
            return packet.topic, json.loads(packet.payload or b"")


def test_subscribers_of_alerts_hear_once_of_a_topic_that_falls_below_its_target(tmp_path: Path) -> None:
    need_java()
    lake, out = tmp_path / "lake", tmp_path / "out"
    out.mkdir()
    write(lake, 1, [delivered("alarms", second, in_time=True) for second in range(60)])
    broker = WatchedBroker(tmp_path)
    broker.start()
    try:
        with let_in(broker.port, "operator") as operator:
            operator.subscribe(TOPIC)
            with watching(out, lake, broker.admin) as process:
                # A minute is told when a later one has begun: the first was well, the second is not, the third ends it.
                late = [delivered("alarms", 60 + second, in_time=second % 6 != 0) for second in range(60)]
                well = [delivered("reports", 60 + second, in_time=True) for second in range(60)]
                write(lake, 2, [*late, *well, delivered("reports", 150, in_time=True)])
                topic, alert = heard(operator, process, out / "watch.log")
                process.send_signal(signal.SIGINT)
                assert process.wait(WITHIN_S) == 0, (out / "watch.log").read_text()
        assert topic == TOPIC
        assert (alert["topic"], alert["minute_s"], alert["judged"], alert["target"]) == (
            "alarms",
            MINUTE_S + 60,
            60,
            TARGET,
        )
        assert alert["in_time_rate"] == pytest.approx(50 / 60)
        with let_in(broker.port, "operator") as operator:
            operator.subscribe(TOPIC)
            write(lake, 3, [delivered("reports", 240 + second, in_time=False) for second in range(30)])
            write(lake, 4, [delivered("alarms", 360, in_time=True)])
            reaching = {"brokers": broker.admin}
            live_compliance.await_queries(
                live_compliance.watch(
                    the_spark(), lake.as_uri(), out, TARGET, TOPIC, reaching, lateness="1 second", once=True
                )
            )
            again = json.loads(operator.read(mqtt5.PublishPacket).payload or b"")
            assert (again["topic"], again["minute_s"]) == ("reports", MINUTE_S + 240)
    finally:
        broker.kill()
    told = pq.read_table(out / "live" / "minutes").to_pylist()
    assert {(row["topic"], (row["minute_s"] - MINUTE_S) // 60, row["in_time"]) for row in told} >= {
        ("alarms", 0, 60),
        ("alarms", 1, 50),
        ("reports", 1, 60),
        ("reports", 4, 0),
    }
