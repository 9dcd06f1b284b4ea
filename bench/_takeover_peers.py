"""The peers of bench/takeover.py: three servers that keep every message three times, one of which is lost.

NATS has a JetStream stream of three replicas and a durable consumer, RabbitMQ a quorum queue of three members. Both
tell which server leads. The clients are connected to that one, and know the addresses of all: their broker is lost, as
that of Overlane's clients is. Each client detects a silent server as soon as its library allows.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import nats
import nats.errors
import pika
import pika.exceptions
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig
from pika.adapters.utils.connection_workflow import AMQPConnectorException

from _peers import NatsServer
from _wan_rabbit import PROGRAM
from _wire import HOST
from overlane.errors import Unavailable
from overlane.local_ports import free_ports

SERVERS = 3
STARTS_WITHIN_S = 120.0
RETRY_S = 0.02
ANSWER_S = 0.5
"""How long a publisher waits for an acknowledgement before it publishes again."""

ERLANG = "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none -kernel net_ticktime 2"
"""Schedulers that do not spin, since all share one machine; a silent server is noticed after 2 s instead of 60."""

NATS_FAILED = (nats.errors.Error, OSError, asyncio.TimeoutError)
RABBIT_FAILED = (pika.exceptions.AMQPError, AMQPConnectorException, OSError)

Got = Callable[[int], object]
"""Called with the number of each message that arrives."""


class Peer(Protocol):
    name: str

    def missing(self) -> str | None:
        """What is not installed."""

    def start(self, directory: Path) -> None:
        """Until all servers serve, and the queue is there."""

    def leader(self) -> int:
        """The process that leads the queue: the one to be lost."""

    async def run(self, got: Got, sent: "Sent", until: asyncio.Event) -> None:
        """Publish numbered messages and read them, until the event is set."""

    def end(self) -> None: ...


class Sent:
    """What was published: one number after the other, each until it is acknowledged."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self.published_at: dict[int, float] = {}
        """When each was published first."""
        self.acknowledged: set[int] = set()

    def next(self) -> int:
        number = len(self.published_at)
        self.published_at[number] = time.monotonic()
        return number


class Servers:
    """Processes that are ended in the end, also those that were stopped by SIGSTOP."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []

    def run(self, command: list[str], log: Path, environment: dict[str, str] | None = None) -> None:
        with log.open("wb") as output:
            made = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(environment or {})},
            )
        self.processes.append(made)

    def end(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


async def _ignore(_: Exception) -> None:
    """Lost connections are expected; the library would print them."""


class NatsJetStream:
    name = "NATS JetStream, 3 replicas"

    def __init__(self) -> None:
        self._servers = Servers()
        self._ports = free_ports(2 * SERVERS)
        self._leader = 0

    def missing(self) -> str | None:
        return NatsServer().missing()

    def start(self, directory: Path) -> None:
        routes = ", ".join(f"nats://{HOST}:{port}" for port in self._ports[SERVERS:])
        for number in range(SERVERS):
            own = directory / str(number)
            own.mkdir(parents=True)
            config = own / "nats.conf"
            config.write_text(
                f"server_name: s{number}\nlisten: {HOST}:{self._ports[number]}\n"
                f'jetstream {{ store_dir: "{own}/js", sync_interval: always }}\n'  # Overlane and RabbitMQ sync too
                f"cluster {{ name: takeover, listen: {HOST}:{self._ports[SERVERS + number]}, routes: [{routes}] }}\n"
            )
            self._servers.run([NatsServer().program(), "-c", str(config)], own / "log")
        asyncio.run(self._prepare())

    async def _prepare(self) -> None:
        until = time.monotonic() + STARTS_WITHIN_S
        while True:
            try:
                await self._make_stream()
                return
            except NATS_FAILED as error:
                if time.monotonic() > until:
                    raise Unavailable("nats-server", str(error)) from None
                await asyncio.sleep(0.2)

    async def _make_stream(self) -> None:
        connection = await nats.connect(self._urls(), connect_timeout=1, allow_reconnect=False, error_cb=_ignore)
        try:
            stream = connection.jetstream()
            made = await stream.add_stream(StreamConfig("takeover", subjects=["takeover"], num_replicas=SERVERS))
            durable = ConsumerConfig("reader", ack_policy=AckPolicy.EXPLICIT, ack_wait=1.0, num_replicas=SERVERS)
            await stream.add_consumer("takeover", durable)
            leader = made.cluster.leader if made.cluster is not None else None
            self._leader = int((leader or "s0").removeprefix("s"))
        finally:
            await connection.close()

    def _urls(self) -> list[str]:
        """That of the leader first."""
        ports = self._ports[:SERVERS]
        return [f"nats://{HOST}:{port}" for port in ports[self._leader :] + ports[: self._leader]]

    def leader(self) -> int:
        return self._servers.processes[self._leader].pid

    async def run(self, got: Got, sent: Sent, until: asyncio.Event) -> None:
        options = {
            "dont_randomize": True,
            "reconnect_time_wait": RETRY_S,
            "max_reconnect_attempts": -1,
            "connect_timeout": 1,
            "ping_interval": 0.3,  # so that a silent server is noticed after 0.9 s, as Overlane's is
            "max_outstanding_pings": 2,
            "error_cb": _ignore,
        }
        writer = await nats.connect(self._urls(), **options)
        reader = await nats.connect(self._urls(), **options)
        reading = asyncio.create_task(self._read(reader, got))
        try:
            await self._write(writer, sent, until)
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading
            for connection in (writer, reader):
                with suppress(*NATS_FAILED):
                    await asyncio.wait_for(connection.close(), 2)

    @staticmethod
    async def _read(connection: Client, got: Got) -> None:
        stream = connection.jetstream()
        while True:
            try:
                pull = await stream.pull_subscribe_bind("reader", "takeover")
                while True:
                    for message in await pull.fetch(20, timeout=ANSWER_S):
                        got(int(message.data[:12]))
                        await message.ack()
            except NATS_FAILED:
                await asyncio.sleep(RETRY_S)

    @staticmethod
    async def _write(connection: Client, sent: Sent, until: asyncio.Event) -> None:
        stream = connection.jetstream()
        while not until.is_set():
            number = sent.next()
            while not until.is_set():
                try:
                    await stream.publish("takeover", b"%012d" % number + bytes(52), timeout=ANSWER_S)
                except NATS_FAILED:
                    await asyncio.sleep(RETRY_S)
                else:
                    sent.acknowledged.add(number)
                    break
            await asyncio.sleep(sent.interval_s)

    def end(self) -> None:
        self._servers.end()


class RabbitQuorum:
    name = "RabbitMQ quorum queue, 3 members"

    def __init__(self) -> None:
        self._servers = Servers()
        self._ports = free_ports(2 * SERVERS)
        self._leader = 0
        self._tag = f"takeover{os.getpid()}"
        self._environments: list[dict[str, str]] = []

    def missing(self) -> str | None:
        if PROGRAM.exists():
            return None
        return "rabbitmq-server is not installed: apt-get install --no-install-recommends rabbitmq-server"

    def start(self, directory: Path) -> None:
        home = directory / "home"
        home.mkdir(parents=True)
        for number in range(SERVERS):
            own = directory / str(number)
            own.mkdir()
            (own / "rabbitmq.conf").write_text(f"listeners.tcp.1 = {HOST}:{self._ports[number]}\n")
            (own / "enabled_plugins").write_text("[].\n")
            environment = {
                "HOME": str(home),  # the servers of a cluster share the cookie in it
                "RABBITMQ_NODENAME": self._node(number),
                "RABBITMQ_DIST_PORT": str(self._ports[SERVERS + number]),
                "RABBITMQ_CONFIG_FILE": str(own / "rabbitmq"),
                "RABBITMQ_ENABLED_PLUGINS_FILE": str(own / "enabled_plugins"),
                "RABBITMQ_MNESIA_BASE": str(own / "mnesia"),
                "RABBITMQ_LOG_BASE": str(own / "logs"),
                "RABBITMQ_LOGS": "-",
                "RABBITMQ_FEATURE_FLAGS_FILE": str(own / "feature_flags"),
                "RABBITMQ_PID_FILE": str(own / "pid"),
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG,
            }
            self._environments.append(environment)
            self._servers.run([str(PROGRAM)], own / "log", environment)
            self._control(number, "wait", environment["RABBITMQ_PID_FILE"], "--timeout", str(int(STARTS_WITHIN_S)))
            if number:
                for words in (["stop_app"], ["join_cluster", self._node(0)], ["start_app"]):
                    self._control(number, *words)
        with self._connect() as connection:
            arguments = {"x-queue-type": "quorum", "x-quorum-initial-group-size": SERVERS}
            connection.channel().queue_declare("takeover", durable=True, arguments=arguments)
        told = json.loads(self._control(0, "--formatter", "json", "list_queues", "name", "leader"))
        self._leader = [self._node(number) for number in range(SERVERS)].index(told[0]["leader"])

    def _node(self, number: int) -> str:
        return f"{self._tag}-{number}@localhost"

    def _control(self, number: int, *words: str) -> str:
        control = shutil.which("rabbitmqctl", path=str(PROGRAM.parent)) or "rabbitmqctl"
        command = [control, "-n", self._node(number), "--quiet", *words]
        environment = {**os.environ, **self._environments[number]}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=180)
        if done.returncode:
            raise Unavailable("rabbitmqctl", (done.stderr or done.stdout).strip()[-300:])
        return done.stdout

    def _connect(self) -> "pika.BlockingConnection":
        """To the first of all servers that answers, the leader of the start before the others."""
        ports = self._ports[:SERVERS]
        for port in ports[self._leader :] + ports[: self._leader]:
            parameters = pika.ConnectionParameters(
                HOST,
                port,
                heartbeat=1,
                blocked_connection_timeout=1,
                socket_timeout=1,
                stack_timeout=2,
                connection_attempts=1,
            )
            with suppress(*RABBIT_FAILED):
                return pika.BlockingConnection(parameters)
        raise ConnectionError("no server answers")

    def leader(self) -> int:
        """The Erlang machine: the process that was started is a script that waits for it."""
        return int((Path(self._environments[self._leader]["RABBITMQ_PID_FILE"])).read_text())

    async def run(self, got: Got, sent: Sent, until: asyncio.Event) -> None:
        ended = threading.Event()
        reading = asyncio.to_thread(self._read, got, ended)
        writing = asyncio.to_thread(self._write, sent, ended)
        both = asyncio.gather(reading, writing)
        await until.wait()
        ended.set()
        await both

    def _read(self, got: Got, ended: threading.Event) -> None:
        while not ended.is_set():
            try:
                with self._connect() as connection:
                    channel = connection.channel()
                    channel.basic_qos(prefetch_count=50)
                    for method, _, body in channel.consume("takeover", inactivity_timeout=0.1):
                        if method is not None:
                            got(int(body[:12]))
                            channel.basic_ack(method.delivery_tag)
                        if ended.is_set():
                            break
            except RABBIT_FAILED:
                time.sleep(RETRY_S)

    def _write(self, sent: Sent, ended: threading.Event) -> None:
        number = sent.next()
        durable = pika.BasicProperties(delivery_mode=2)
        while not ended.is_set():
            try:
                with self._connect() as connection:
                    channel = connection.channel()
                    channel.confirm_delivery()
                    while not ended.is_set():
                        channel.basic_publish("", "takeover", b"%012d" % number + bytes(52), durable)
                        sent.acknowledged.add(number)
                        connection.sleep(sent.interval_s)
                        number = sent.next()
            except RABBIT_FAILED:
                time.sleep(RETRY_S)

    def end(self) -> None:
        for environment in self._environments:
            with suppress(OSError, ValueError):
                os.kill(int(Path(environment["RABBITMQ_PID_FILE"]).read_text()), signal.SIGKILL)
        self._servers.end()


PEERS: tuple[type[Peer], ...] = (NatsJetStream, RabbitQuorum)
