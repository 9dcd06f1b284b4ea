"""One domain of real brokers with mirrors, real ZooKeeper servers, and a load of QoS 1: what became of every message."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from _tiers import OVERLANE, START_S, Ensemble
from overlane.coordination.asking import asking
from overlane.coordination.records import MalformedRecord, decode_registration
from overlane.coordination.zookeeper import Access
from overlane.local_ports import free_ports
from overlane.recovery.replica_set import ReplicaSet, decode_set, replica_path

CONFIG = """
[recovery]
mirrors = {mirrors}
silence = "{silence}"
"""
HELP_S = 60.0


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
                [*OVERLANE, *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def signal(self, name: str, number: signal.Signals) -> None:
        """To the process of the host and all that it has started."""
        process = self.hosts[name].process
        assert process is not None
        for pid in (process.pid, *children_of(process.pid)):
            os.kill(pid, number)

    def lose(self, name: str, *, is_wiped: bool = True) -> None:
        """As a host that is lost with its disk."""
        host = self.hosts[name]
        assert host.process is not None
        self.signal(name, signal.SIGKILL)
        host.process.wait()
        host.process = None
        if is_wiped:
            shutil.rmtree(self.folder / name)

    def end(self) -> None:
        processes = [host.process for host in self.hosts.values() if host.process is not None]
        for process in processes:
            for pid in (process.pid, *children_of(process.pid)):
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
        async with asking(Access(self.ensemble.addresses, self.path), START_S) as session:
            node = await session.read(replica_path(broker))
        return None if node is None else decode_set(broker, node.data)

    async def until_set(self, broker: str, primary: str, mirrors: int) -> ReplicaSet:
        """It is served at this host, with so many mirrors."""
        until = time.monotonic() + START_S
        value = None
        async with asking(Access(self.ensemble.addresses, self.path), START_S) as session:
            while time.monotonic() < until:
                node = await session.read(replica_path(broker))
                value = None if node is None else decode_set(broker, node.data)
                if value is not None and len(value.mirrors) >= mirrors and host_of(value) == primary:
                    return value
                await asyncio.sleep(0.05)
        raise RuntimeError(f"{broker} is not at {primary} with {mirrors} mirrors: {value}\n{self.logs()}")

    async def address(self, broker: str, epoch: int = 0) -> str:
        """Where clients of a broker connect now, as of this epoch of its replica set or later."""
        until = time.monotonic() + START_S
        path = f"/brokers/edges/west/{broker}"
        async with asking(Access(self.ensemble.addresses, self.path), START_S) as session:
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


def host_of(value: ReplicaSet) -> str:
    return next(copy.host for copy in value.in_sync if copy.storage == value.primary)


def children_of(pid: int) -> list[int]:
    """All processes below one, as /proc has them."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(word) for word in task.read_text().split()]
        except OSError:
            continue
    return [one for child in found for one in (child, *children_of(child))]


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
) -> Iterator[Domain]:
    made = Domain(folder, ensemble, path, is_synced)
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
