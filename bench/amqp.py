"""AMQP 1.0: Overlane's listener beside RabbitMQ with its AMQP 1.0 plugin, and between AMQP and MQTT, in one run.

    python bench/amqp.py [--seconds 4] [--rounds 3] [--rate 2000] [--only mqtt-amqp,amqp-mqtt]

One client sends messages of 100 bytes that are not settled to a topic, another one receives and accepts them: as fast
as the broker lets them, then at a constant rate for the latency. Systems alternate, round by round; medians count.
The load comes from processes of its own over raw sockets (`_amqp_load.py`). A system that is missing is left out.
Target: at least as many messages a second as RabbitMQ, and nothing lost.

Then one client of MQTT sends messages of QoS 1 and one of AMQP receives them, and the other way round, with Overlane.
The broker has one busy thread. Target: at least 20,000 messages a second, and nothing lost.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from multiprocessing import get_context
from pathlib import Path
from socket import socket
from statistics import median

from rich.console import Console
from rich.table import Table

from _amqp_load import read, write
from _mqtt_qos1_load import read_mqtt, write_mqtt
from _wan_rabbit import PROGRAM
from overlane.local_ports import free_ports

SIZE_BYTES = 100
START_WITHIN_S = 90
SETTLE_S = 1.0
TICKS = os.sysconf("SC_CLK_TCK")

Figures = dict[str, float]


@contextmanager
def overlane(directory: Path, port: int, mqtt: int) -> Iterator[int]:
    overlay, admin = free_ports(2)
    file = directory / "network.toml"
    file.write_text(
        f'[brokers.bench]\namqp = "127.0.0.1:{port}"\nmqtt = "127.0.0.1:{mqtt}"\noverlay = "127.0.0.1:{overlay}"\n'
        f'admin = "127.0.0.1:{admin}"\n[telemetry]\nenabled = false\n'
    )
    words = ["broker", str(file), "--name", "bench", "--data", str(directory / "data")]
    with _running([sys.executable, "-m", "overlane", *words], directory, {}, port) as process:
        yield process


@contextmanager
def rabbit(directory: Path, port: int, _: int) -> Iterator[int]:
    (directory / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{port}\nloopback_users.guest = false\ntcp_listen_options.nodelay = true\n"
    )
    (directory / "enabled_plugins").write_text("[rabbitmq_amqp1_0].\n")
    (directory / "home").mkdir()
    environment = {
        "HOME": str(directory / "home"),
        "RABBITMQ_NODENAME": f"bench{os.getpid()}@localhost",
        "RABBITMQ_DIST_PORT": str(free_ports(1)[0]),
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "logs"),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_FEATURE_FLAGS_FILE": str(directory / "feature_flags"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none",
    }
    with _running([str(PROGRAM)], directory, environment, port) as process:
        yield process


@contextmanager
def _running(command: list[str], directory: Path, environment: dict[str, str], port: int) -> Iterator[int]:
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **environment})
        try:
            until = time.monotonic() + START_WITHIN_S
            while not _answers(port):
                if process.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"{command[0]} did not start:\n{(directory / 'log').read_text()[-2000:]}")
                time.sleep(0.1)
            yield process.pid
        finally:
            process.terminate()
            process.wait(30)


def _answers(port: int) -> bool:
    with closing(socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def cpu_s(process: int) -> float:
    """Of the process and its children."""
    stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return (int(stat[11]) + int(stat[12])) / TICKS + sum(cpu_s(int(child)) for child in children)


SYSTEMS = {"Overlane": (overlane, "bench/1"), "RabbitMQ": (rabbit, "/topic/bench.1")}
PATHS = {
    "amqp": ("AMQP", True, True),
    "mqtt-amqp": ("MQTT to AMQP", False, True),
    "amqp-mqtt": ("AMQP to MQTT", True, False),
}
"""What the table says, and whether the writer and the reader speak AMQP."""


def measure(pool: ProcessPoolExecutor, name: str, path: str, seconds: float, rate: float) -> Figures:
    start, address = SYSTEMS[name]
    amqp, mqtt = free_ports(2)
    _, writes_amqp, reads_amqp = PATHS[path]
    write_one, to = (write, amqp) if writes_amqp else (write_mqtt, mqtt)
    read_one, source = (read, amqp) if reads_amqp else (read_mqtt, mqtt)
    with tempfile.TemporaryDirectory() as directory, start(Path(directory), amqp, mqtt) as process:
        time.sleep(SETTLE_S)
        before_s = cpu_s(process)
        reading = pool.submit(read_one, source, address, seconds + 2 * SETTLE_S, SIZE_BYTES)
        time.sleep(SETTLE_S)
        wrote = pool.submit(write_one, to, address, seconds, 0.0, SIZE_BYTES).result()
        got = reading.result()
        used_s = cpu_s(process) - before_s
        reading = pool.submit(read_one, source, address, seconds + 2 * SETTLE_S, SIZE_BYTES)
        time.sleep(SETTLE_S)
        paced = pool.submit(write_one, to, address, seconds, rate, SIZE_BYTES).result()
        late = reading.result()
    return {
        "rate": wrote["accepted"] / wrote["seconds"],
        "lost": wrote["accepted"] - got["got"] + paced["accepted"] - late["got"],
        "cpu_us": used_s * 1e6 / max(1.0, wrote["accepted"]),
        "p50_ms": late["p50_ms"],
        "p99_ms": late["p99_ms"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=2_000.0)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--only", default=",".join(PATHS))
    options = parser.parse_args()
    console = Console()
    names = [name for name in options.systems.split(",") if name != "RabbitMQ" or PROGRAM.exists()]
    rows = [(name, path) for path in options.only.split(",") for name in names if name == "Overlane" or path == "amqp"]
    found: dict[tuple[str, str], list[Figures]] = {row: [] for row in rows}
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        for _ in range(options.rounds):
            for row in rows:
                found[row].append(measure(pool, *row, options.seconds, options.rate))
    table = Table("system", "from and to", "messages/s", "CPU us/message", "p50 ms", "p99 ms", "lost")
    for (name, path), rounds in found.items():
        middle = {figure: median(one[figure] for one in rounds) for figure in rounds[0]}
        table.add_row(
            name,
            PATHS[path][0],
            f"{middle['rate']:,.0f}",
            f"{middle['cpu_us']:.1f}",
            f"{middle['p50_ms']:.2f}",
            f"{middle['p99_ms']:.2f}",
            f"{sum(one['lost'] for one in rounds):.0f}",
        )
    console.print(table)
    console.print(f"load of the machine: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
