"""One domain of real brokers with mirrors, and real ZooKeeper servers: hosts are lost, and clients go on elsewhere."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import overlane.client
from _priority import children_of
from _tiers import OVERLANE, START_S, Ensemble
from overlane.coordination.client import coordination_client
from overlane.coordination.records import MalformedRecord, decode_registration
from overlane.coordination.zookeeper import Access
from overlane.errors import Unavailable
from overlane.local_ports import free_ports
from overlane.recovery.hosts.host_records import HostRecord, decode_record
from overlane.recovery.replica_set import ReplicaSet, decode_set, replica_path

CONFIG = """
[recovery]
mirrors = {mirrors}
silence = "{silence}"
"""
HELP_S = 60.0

Found = TypeVar("Found")


@dataclass
class Host:
    name: str
    role: str
    ports: list[int]
    process: subprocess.Popen[bytes] | None = None


@dataclass
class Domain:
    folder: Path
    ensemble: Ensemble
    path: str = "/domain"
    is_synced: bool = False
    hosts: dict[str, Host] = field(default_factory=dict)
    directories: dict[str, Path] = field(default_factory=dict)
    """Working directories of hosts, which paths in the configuration are relative to; the present one by default."""

    def add(self, name: str, role: str = "edge") -> Host:
        host = self.hosts[name] = Host(name, role, free_ports(3))
        self.start(name)
        return host

    def start(self, name: str) -> None:
        host = self.hosts[name]
        mqtt, overlay, admin = (f"127.0.0.1:{port}" for port in host.ports)
        words = ["broker", "--name", name, "--role", host.role, "--domain", "west", "--path", self.path]
        words += ["--zookeeper", self.ensemble.addresses, "--mqtt", mqtt, "--overlay", overlay, "--admin", admin]
        words += ["--data", str(self.folder / name), *([] if self.is_synced else ["--no-sync"])]
        with (self.folder / f"{name}.log").open("ab") as log:
            host.process = subprocess.Popen(
                [*OVERLANE, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.directories.get(name),
            )

    def signal(self, name: str, number: signal.Signals) -> None:
        """To the process of the host and all that it has started."""
        process = self.hosts[name].process
        assert process is not None
        for pid in (process.pid, *children_of(process.pid)):
            with suppress(ProcessLookupError):  # one that goes on may end others at once
                os.kill(pid, number)

    def lose(self, *names: str, is_wiped: bool = True) -> None:
        """As hosts that are lost with their disks, at the same moment."""
        for name in names:
            self.signal(name, signal.SIGKILL)
        for name in names:
            host = self.hosts[name]
            assert host.process is not None
            host.process.wait()
            host.process = None
            if is_wiped:
                shutil.rmtree(self.folder / name)

    def end(self) -> None:
        processes = [host.process for host in self.hosts.values() if host.process is not None]
        for process in processes:
            for pid in (process.pid, *children_of(process.pid)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            process.terminate()
        for process in processes:
            try:
                process.wait(HELP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def push(self, text: str) -> None:
        file = self.folder / "pushed.toml"
        file.write_text(text)
        words = ["config", "push", str(file), "--zookeeper", self.ensemble.addresses, "--path", self.path]
        subprocess.run([*OVERLANE, *words], check=True, stdout=subprocess.DEVNULL, timeout=HELP_S)

    def logs(self, lines: int = 40) -> str:
        shown = []
        for name in sorted(self.hosts):
            text = (self.folder / f"{name}.log").read_text(errors="replace").splitlines()
            shown += [f"== {name}", *text[-lines:]]
        return "\n".join(shown)

    # What ZooKeeper says

    async def replica_set(self, broker: str) -> ReplicaSet | None:
        async with coordination_client(Access(self.ensemble.addresses, self.path), START_S) as session:
            node = await session.read(replica_path(broker))
        return None if node is None else decode_set(broker, node.data)

    async def until_set(self, broker: str, primary: str, mirrors: int) -> ReplicaSet:
        """It is served at this host, with so many mirrors."""

        def look(data: bytes) -> ReplicaSet | None:
            value = decode_set(broker, data)
            return value if len(value.mirrors) >= mirrors and value.primary_host == primary else None

        return await self._until(replica_path(broker), look, f"{broker} is not at {primary} with {mirrors} mirrors")

    async def until_host(self, name: str, score: float | None = None) -> None:
        """It is there, and takes copies; and has this score."""
        path = f"/hosts/west/{name}"

        def look(data: bytes) -> bool | None:
            return True if score is None or decode_record(path, data, HostRecord).score == score else None

        await self._until(path, look, f"{name} is not there")

    async def _until(self, path: str, look: Callable[[bytes], Found | None], wrong: str) -> Found:
        """What `look` makes of a znode, as soon as it is something. A connection that is lost on a busy machine is made
        again."""
        until = time.monotonic() + START_S
        node = None
        while True:
            try:
                async with coordination_client(Access(self.ensemble.addresses, self.path), START_S) as session:
                    while time.monotonic() < until:
                        node = await session.read(path)
                        if node is not None and (found := look(node.data)) is not None:
                            return found
                        await asyncio.sleep(0.05)
                raise RuntimeError(f"{wrong}: {node}\n{self.logs()}")
            except Unavailable:
                if time.monotonic() > until:
                    raise

    async def address(self, broker: str, epoch: int = 0) -> str:
        """Where clients of a broker connect now, as of this epoch of its replica set or later."""
        until = time.monotonic() + START_S
        path = f"/brokers/edges/west/{broker}"
        async with coordination_client(Access(self.ensemble.addresses, self.path), START_S) as session:
            while time.monotonic() < until:
                node = await session.read(path)
                try:
                    record = None if node is None else decode_registration(path, node.data)
                except MalformedRecord:
                    record = None
                if record is not None and record.epoch >= epoch:
                    return record.clients["mqtt"]
                await asyncio.sleep(0.02)
        raise RuntimeError(f"{broker} is not registered\n{self.logs()}")


@contextmanager
def domain(
    folder: Path,
    ensemble: Ensemble,
    names: tuple[str, ...],
    *,
    path: str = "/domain",
    mirrors: int = 1,
    silence: str = "5s",
    more: str = "",
    is_synced: bool = False,
    directories: dict[str, Path] | None = None,
) -> Iterator[Domain]:
    made = Domain(folder, ensemble, path, is_synced, directories=directories or {})
    try:
        made.push(CONFIG.format(mirrors=mirrors, silence=silence) + more)
        for name in names:
            made.add(name)
        yield made
    except BaseException:
        print(made.logs(), file=sys.stderr)
        raise
    finally:
        made.end()


class Forwarder:
    """One address for the clients of a broker, wherever it runs: what a balancer or a name would be."""

    def __init__(self, domain: Domain, broker: str) -> None:
        self._domain = domain
        self._broker = broker
        self._target = ""
        self._pipes: set[asyncio.Task[None]] = set()
        self.address = ""
        self.moved_at: list[float] = []
        """When the broker was seen at another address."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        self._target = await self._domain.address(self._broker)
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self.address = "{}:{}".format(*server.sockets[0].getsockname()[:2])
        following = asyncio.create_task(self._follow())
        try:
            yield self.address
        finally:
            following.cancel()
            server.close()
            for pipe in list(self._pipes):
                pipe.cancel()

    async def _follow(self) -> None:
        path = f"/brokers/edges/west/{self._broker}"
        async with coordination_client(Access(self._domain.ensemble.addresses, self._domain.path), START_S) as session:
            while True:
                node = await session.read(path)
                if node is not None and (at := decode_registration(path, node.data).clients["mqtt"]) != self._target:
                    self._target = at
                    self.moved_at.append(time.monotonic())
                    for pipe in list(self._pipes):
                        pipe.cancel()
                await asyncio.sleep(0.02)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            host, _, port = self._target.rpartition(":")
            to_reader, to_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        both = [asyncio.create_task(_pipe(*one)) for one in ((reader, to_writer), (to_reader, writer))]
        self._pipes.update(both)
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for task, end in zip(both, (to_writer, writer), strict=True):
            task.cancel()
            end.transport.abort()
            self._pipes.discard(task)


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()


class Load:
    """Publishers of QoS 1 and 2 and a persistent subscriber, at one address."""

    def __init__(self, address: str, name: str = "", in_flight: int = 4) -> None:
        """`name`: of the clients. Those of a whole domain are in one space."""
        self._address = address
        self._name = name
        self._in_flight = in_flight
        self._is_over = False
        self.acknowledged: dict[int, set[int]] = {1: set(), 2: set()}
        self.arrived: dict[int, list[tuple[int, float]]] = {1: [], 2: []}
        """By QoS: number and time."""

    def lost(self) -> dict[int, set[int]]:
        missing = {qos: self.acknowledged[qos] - {number for number, _ in self.arrived[qos]} for qos in (1, 2)}
        return {qos: numbers for qos, numbers in missing.items() if numbers}

    def twice(self, qos: int) -> int:
        return len(self.arrived[qos]) - len({number for number, _ in self.arrived[qos]})

    def first_after(self, moment: float) -> float:
        """Seconds until the next arrival of a message that was published after it; inf where none has come."""
        times = [at for arrived in self.arrived.values() for _, at in arrived if at > moment]
        return min(times, default=float("inf")) - moment

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Load"]:
        ready = asyncio.Event()
        receiving = asyncio.create_task(self._receive(ready))
        await ready.wait()
        sending = [asyncio.create_task(self._send(qos)) for qos in (1, 2)]
        try:
            await self.until_more(20)
            yield self
        finally:
            self._is_over = True
            await asyncio.gather(*sending)
            until = time.monotonic() + HELP_S
            while self.lost() and time.monotonic() < until:
                await asyncio.sleep(0.05)
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)

    async def until_more(self, count: int = 20) -> None:
        """So many messages of either QoS are acknowledged, and have arrived, from now on."""
        before = {qos: (len(self.acknowledged[qos]), len(self.arrived[qos])) for qos in (1, 2)}
        until = time.monotonic() + START_S
        while any(
            len(self.acknowledged[qos]) < acknowledged + count or len(self.arrived[qos]) < arrived + count
            for qos, (acknowledged, arrived) in before.items()
        ):
            if time.monotonic() > until:
                raise RuntimeError(f"nothing is acknowledged, or arrives: {before}")
            await asyncio.sleep(0.02)

    async def _send(self, qos: int) -> None:
        async with overlane.client.connect(self._address, client_id=f"{self._name}writer-{qos}", **_KEPT) as client:
            numbers = count()

            async def one_by_one() -> None:
                while not self._is_over:
                    number = next(numbers)
                    await client.publish(f"load/{self._name}{qos}", str(number), qos=qos)
                    self.acknowledged[qos].add(number)
                    await asyncio.sleep(0.05)

            await asyncio.gather(*(one_by_one() for _ in range(self._in_flight)))

    async def _receive(self, ready: asyncio.Event) -> None:
        async with (
            overlane.client.connect(self._address, client_id=f"{self._name}reader", **_KEPT) as client,
            client.subscribe(*(f"load/{self._name}{qos}" for qos in (1, 2)), qos=2) as messages,
        ):
            ready.set()
            async for message in messages:
                qos = int(message.topic[-1])
                self.arrived[qos].append((int(message.body), time.monotonic()))


_KEPT: dict[str, Any] = {"session_expiry": "1h", "clean_start": False, "pause_first": "20ms", "pause_max": "200ms"}
