"""Two tiers of real brokers and real ZooKeeper servers on this machine, a load of QoS 1, and what became of it."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import overlane.client
from overlane.coordination.client import coordination_client
from overlane.coordination.ensemble.layout import open_ensemble
from overlane.coordination.ensemble.running import mode_of
from overlane.coordination.reading import Overview, read_overview
from overlane.coordination.records import ROUTING, unpack
from overlane.coordination.zookeeper import Access
from overlane.core.bundles import BUNDLES
from overlane.local_ports import free_ports

CONFIG = """
[topics."load/#"]
reliability = "reliable"
[routing]
brokers_min = 2
brokers_max = 8
"""
OVERLANE = [sys.executable, "-m", "overlane"]
START_S = 120.0
EVERY_S = 0.02
HELP_S = 60.0


class Ensemble:
    """`overlane zookeeper` as a process; its servers by number."""

    def __init__(self, folder: Path, servers: int = 3) -> None:
        self._folder = folder
        self._servers = servers
        self._process: subprocess.Popen[str] | None = None
        self.addresses = ""

    def start(self) -> None:
        words = ["zookeeper", "--servers", str(self._servers), "--data", str(self._folder)]
        self._process = subprocess.Popen(
            [*OVERLANE, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        self.addresses = self._process.stdout.readline().strip()
        if not self.addresses:
            raise RuntimeError("the ensemble did not start")

    def stop(self) -> None:
        """All servers end."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(HELP_S)
            self._process = None

    def server_ids(self) -> dict[int, int]:
        """The processes of the servers, by their number."""
        assert self._process is not None
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                except OSError:
                    continue
                config = next((word for word in words if word.endswith("/zoo.cfg")), "")
                if config.startswith(str(self._folder)):
                    found[int(Path(config).parent.name)] = int(entry.name)
        return found

    async def leader(self) -> int:
        """The number of the server that leads the ensemble."""
        while True:
            for number, server in enumerate(open_ensemble(self._folder, self._servers).servers, 1):
                if await mode_of(server) == "leader":
                    return number
            await asyncio.sleep(0.1)


@dataclass
class Broker:
    name: str
    role: str
    domain: str
    ports: list[int]
    process: subprocess.Popen[bytes] | None = None
    former_life: int = 0
    """The number of the registration of a process that was killed: it stays until its session expires."""

    @property
    def mqtt(self) -> str:
        return f"127.0.0.1:{self.ports[0]}"

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)


@dataclass
class Tiers:
    folder: Path
    ensemble: Ensemble
    path: str = "/bench"
    brokers: dict[str, Broker] = field(default_factory=dict)

    def add(self, name: str, role: str, domain: str) -> Broker:
        broker = self.brokers[name] = Broker(name, role, domain, free_ports(3))
        self.start(broker)
        return broker

    def start(self, broker: Broker) -> None:
        mqtt, overlay, admin = (f"127.0.0.1:{port}" for port in broker.ports)
        words = ["broker", "--name", broker.name, "--role", broker.role, "--domain", broker.domain]
        words += ["--zookeeper", self.ensemble.addresses, "--path", self.path, "--mqtt", mqtt, "--overlay", overlay]
        words += ["--admin", admin, "--data", str(self.folder / broker.name), "--no-sync"]
        with (self.folder / f"{broker.name}.log").open("ab") as log:
            broker.process = subprocess.Popen([*OVERLANE, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self, broker: Broker) -> None:
        assert broker.process is not None
        broker.process.kill()
        broker.process.wait()
        broker.process = None

    def end(self) -> None:
        processes = [broker.process for broker in self.brokers.values() if broker.process is not None]
        for process in processes:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in processes:
            try:
                process.wait(HELP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    async def push(self, folder: Path, config: str = CONFIG) -> None:
        file = folder / "pushed.toml"
        file.write_text(config)
        words = ["config", "push", str(file), "--zookeeper", self.ensemble.addresses, "--path", self.path]
        process = await asyncio.create_subprocess_exec(*OVERLANE, *words, stdout=subprocess.DEVNULL)
        assert await process.wait() == 0

    async def overview(self) -> Overview:
        async with coordination_client(Access(self.ensemble.addresses, self.path)) as session:
            return await read_overview(session)

    async def lives(self) -> dict[str, int]:
        """The registrations of routing brokers, by the number of their creation."""
        async with coordination_client(Access(self.ensemble.addresses, self.path), START_S) as session:
            return {name: node.created for name, node in (await session.children(ROUTING)).items()}

    async def ready(self) -> None:
        """All brokers are registered, in their present lives; every bundle is assigned, and every edge is linked with
        the routing brokers of its bundles and their standbys: another fault finds the overlay whole."""
        until = time.monotonic() + START_S
        async with coordination_client(Access(self.ensemble.addresses, self.path), START_S) as session:
            while time.monotonic() < until:
                found = await read_overview(session)
                lives = {name: node.created for name, node in (await session.children(ROUTING)).items()}
                are_new = all(lives.get(one.name) != one.former_life for one in self.brokers.values())
                if set(self.brokers) <= set(found.brokers) and are_new and _is_redundant(found):
                    return
                await asyncio.sleep(0.2)
        raise RuntimeError(f"the brokers did not find each other:\n{self.logs()}")

    def logs(self, lines: int = 15) -> str:
        shown = []
        for log in sorted(self.folder.glob("*.log")):
            shown += [f"== {log.stem}", *log.read_text(errors="replace").splitlines()[-lines:]]
        return "\n".join(shown)


def _is_redundant(found: Overview) -> bool:
    if len(found.assigned) < BUNDLES:
        return False
    if sum(one.role == "routing" for one in found.brokers.values()) > 1 and not all(
        one.standby for one in found.assigned.values()
    ):
        return False
    for name, report in found.reports.items():
        if name in found.brokers and found.brokers[name].role == "edge":
            used = [found.assigned[bundle] for bundle in unpack(report.wants) | unpack(report.offers)]
            if not {one for bundle in used for one in (bundle.broker, bundle.standby) if one} <= set(report.latency_us):
                return False
    return True


@contextmanager
def two_tiers(folder: Path, ensemble: Ensemble, routing: int, edges: int, path: str = "/bench") -> Iterator[Tiers]:
    """Edges in two domains, alternately."""
    tiers = Tiers(folder, ensemble, path)
    try:
        asyncio.run(tiers.push(folder))
        for number in range(routing):
            tiers.add(f"routing-{number + 1}", "routing", "core")
        for number in range(edges):
            domain = ("west", "east")[number % 2]
            tiers.add(f"{domain}-{number // 2 + 1}", "edge", domain)
        asyncio.run(tiers.ready())
        yield tiers
    finally:
        tiers.end()


@dataclass
class Stream:
    """Messages of one topic, from an edge of one domain to one of the other."""

    topic: str
    source: Broker
    target: Broker
    acknowledged: set[int] = field(default_factory=set)
    arrived: list[tuple[int, float]] = field(default_factory=list)
    """Number and time."""

    def lost(self) -> set[int]:
        return self.acknowledged - {number for number, _ in self.arrived}

    def twice(self) -> int:
        return len(self.arrived) - len({number for number, _ in self.arrived})

    def gap_s(self, since_s: float, until_s: float) -> float:
        """The longest time without an arrival."""
        times = [since_s, *(at for _, at in self.arrived if since_s <= at <= until_s), until_s]
        return max(after - before for before, after in pairwise(times))


class Load:
    def __init__(self, tiers: Tiers, topics: int) -> None:
        west = [one for one in tiers.brokers.values() if one.domain == "west"]
        east = [one for one in tiers.brokers.values() if one.domain == "east"]
        self.streams = [
            Stream(f"load/topic-{number}/values", west[number % len(west)], east[number % len(east)])
            for number in range(topics)
        ]
        self._is_over = False
        self.pad(0, EVERY_S)

    def pad(self, padding_bytes: int, every_s: float) -> None:
        """How long messages are from now on, and how often each stream sends one."""
        self._padding = b" " + padding_bytes * b"x" if padding_bytes else b""
        self._every_s = every_s

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        ready = [asyncio.Event() for _ in self.streams]
        receiving = [asyncio.create_task(self._receive(*one)) for one in zip(self.streams, ready, strict=True)]
        await asyncio.gather(*(one.wait() for one in ready))
        sending = [asyncio.create_task(self._send(stream)) for stream in self.streams]
        try:
            await self.until_all_arrive()
            yield
        finally:
            self._is_over = True
            await asyncio.gather(*sending)
            await self._until_settled()
            for task in receiving:
                task.cancel()
            await asyncio.gather(*receiving, return_exceptions=True)

    async def until_all_arrive(self) -> None:
        """Every stream has brought something from now on."""
        before = [len(stream.arrived) for stream in self.streams]
        until = time.monotonic() + START_S
        while any(len(stream.arrived) <= count for stream, count in zip(self.streams, before, strict=True)):
            if time.monotonic() > until:
                silent = [
                    one.topic for one, count in zip(self.streams, before, strict=True) if len(one.arrived) <= count
                ]
                raise RuntimeError(f"nothing arrives of {silent}")
            await asyncio.sleep(0.05)

    async def _send(self, stream: Stream) -> None:
        async with overlane.client.connect(stream.source.mqtt) as client:
            number = 0
            while not self._is_over:
                await client.publish(stream.topic, str(number).encode() + self._padding, qos=1)
                stream.acknowledged.add(number)
                number += 1
                await asyncio.sleep(self._every_s)

    async def _receive(self, stream: Stream, ready: asyncio.Event) -> None:
        async with (
            overlane.client.connect(stream.target.mqtt) as client,
            client.subscribe(stream.topic, qos=1) as messages,
        ):
            ready.set()
            async for message in messages:
                stream.arrived.append((int(message.body.split()[0]), time.monotonic()))

    async def _until_settled(self) -> None:
        """What was acknowledged arrives, or does not for a long time."""
        until = time.monotonic() + HELP_S
        while any(stream.lost() for stream in self.streams) and time.monotonic() < until:
            await asyncio.sleep(0.1)
