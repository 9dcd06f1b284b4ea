"""The last step of the demo: a host is lost for good, with its disk, and a subscriber of its broker misses nothing.

It has a domain of its own: a ZooKeeper server, a routing broker and two edges, each of which keeps copies of others.
The subscriber has a persistent session at the first edge and knows the addresses of both edges; orders are published at
the second. The process of the first edge is killed, and its data directory removed. The host that has a copy continues
the broker, and the subscriber goes on through the second edge.
"""

import asyncio
import os
import shutil
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from overlane.client import Client, connect
from overlane.coordination.asking import Asking, asking
from overlane.coordination.config_store import push_config
from overlane.coordination.ensemble.java import java_command, server_jars
from overlane.coordination.ensemble.running import run_ensemble
from overlane.coordination.zookeeper import Access
from overlane.errors import Unavailable
from overlane.extras import is_installed, missing_extra
from overlane.local_ports import HOST, free_ports
from overlane.recovery.replica_set import ReplicaSet, decode_set, replica_path

CONFIG = """
[recovery]
mirrors = 1
[telemetry]
enabled = false
"""
PATH = "/overlane/demo"
DOMAIN = "west"
LOST, KEPT, ROUTING = "west-1", "west-2", "routing-1"
TOPIC = "orders/west"
EVERY_S = 0.02
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class LostHost:
    acknowledged: int
    missing: int
    duplicates: int
    gap_s: float
    """The longest time without a message at the subscriber."""
    host: str
    """That continues the broker."""

    @property
    def is_lossless(self) -> bool:
        return not self.missing and not self.duplicates


def why_not() -> str | None:
    """Why this step cannot run here; None if it can."""
    if not is_installed("kazoo"):
        return missing_extra("kazoo", "coordination")
    try:
        java_command()
        server_jars()
    except Unavailable as error:
        return str(error)
    return None


class Site:
    """The servers and brokers of this step. They end when it does."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._brokers: dict[str, Process] = {}
        self._addresses: dict[str, str] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Site"]:
        """Until all brokers serve, and there is a copy of the edge that will be lost. Unavailable."""
        async with AsyncExitStack() as stack:
            self._access = Access(await stack.enter_async_context(self._zookeeper()), PATH)
            self._session = await stack.enter_async_context(asking(self._access, PATIENCE_S))
            await push_config(self._session, CONFIG, "overlane demo")
            stack.push_async_callback(self._end)
            for name, role in ((ROUTING, "routing"), (LOST, "edge"), (KEPT, "edge")):
                await self._start(name, role)
            await self._until(LOST, lambda found: bool(found.mirrors))
            yield self

    @asynccontextmanager
    async def _zookeeper(self) -> AsyncIterator[str]:
        addresses: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        folder = self._directory / "zookeeper"
        servers = asyncio.create_task(run_ensemble(folder, 1, addresses.set_result, lambda _: None))
        try:
            servers.add_done_callback(lambda _: addresses.cancel())  # nobody waits for servers that have ended
            try:
                found = await addresses
            except asyncio.CancelledError:
                if servers.done() and not servers.cancelled():
                    servers.result()
                raise
            yield found
        finally:
            servers.cancel()
            with suppress(asyncio.CancelledError, Unavailable):
                await servers

    async def _start(self, name: str, role: str) -> None:
        mqtt, overlay, admin = (f"{HOST}:{port}" for port in free_ports(3))
        self._addresses[name] = mqtt
        argv = [sys.executable, "-m", "overlane", "broker", "--name", name, "--role", role, "--domain", DOMAIN]
        argv += ["--zookeeper", self._access.hosts, "--path", PATH, "--data", str(self._directory / name)]
        argv += ["--mqtt", mqtt, "--overlay", overlay, "--admin", admin, "--supervised", "--log-level", "warning"]
        with (self._directory / f"{name}.log").open("ab") as log:
            self._brokers[name] = await asyncio.create_subprocess_exec(
                *argv, stdin=PIPE, stdout=log, stderr=log, start_new_session=True
            )

    async def continued_at(self) -> str:
        """The host that serves the broker whose own host is lost."""
        found = await self._until(LOST, lambda found: _primary_host(found) != LOST)
        return _primary_host(found)

    async def _until(self, broker: str, holds: Callable[[ReplicaSet], bool]) -> ReplicaSet:
        until = time.monotonic() + PATIENCE_S
        while True:
            found = await _replica_set(self._session, broker)
            if found is not None and holds(found):
                return found
            if time.monotonic() > until:
                raise Unavailable(broker, f"has no copy on another host after {PATIENCE_S:g} s")
            await asyncio.sleep(0.05)

    @property
    def addresses(self) -> tuple[str, str]:
        """Of the edge that will be lost, and of the other one."""
        return self._addresses[LOST], self._addresses[KEPT]

    async def lose_host(self) -> None:
        """The process, those that it has started, and the disk."""
        process = self._brokers.pop(LOST)
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await asyncio.to_thread(shutil.rmtree, self._directory / LOST)

    async def _end(self) -> None:
        for process in self._brokers.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def lose_host(directory: Path, seconds: float) -> LostHost:
    """Publish for so many seconds before the host is lost, and as many after it. Unavailable."""
    arrived: list[tuple[int, float]] = []
    async with Site(directory).running() as site:
        lost, kept = site.addresses
        reading = asyncio.Event()

        async def read() -> None:
            async with (
                connect(lost, kept, client_id="orders", session_expiry="1h", clean_start=False) as client,
                client.subscribe(TOPIC, qos=2) as messages,
            ):
                reading.set()
                async for message in messages:
                    arrived.append((int(message.body), time.monotonic()))

        reader = asyncio.create_task(read())
        try:
            await asyncio.wait_for(reading.wait(), PATIENCE_S)
            async with connect(kept) as writer:
                sent = await _publish(writer, 0, seconds)
                await site.lose_host()
                sent = await _publish(writer, sent, seconds)
            await _until_all(arrived, sent)
            host = await site.continued_at()
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
    times = [at for _, at in arrived]
    gap_s = max((later - earlier for earlier, later in pairwise(times)), default=0.0)
    numbers = {number for number, _ in arrived}
    return LostHost(sent, sent - len(numbers), len(arrived) - len(numbers), gap_s, host)


async def _publish(writer: Client, number: int, seconds: float) -> int:
    """Numbered messages, each acknowledged before the next; the number that comes next."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await writer.publish(TOPIC, str(number), qos=2)
        number += 1
        await asyncio.sleep(EVERY_S)
    return number


async def _until_all(arrived: list[tuple[int, float]], sent: int) -> None:
    """Until all have arrived, or time is up."""
    until = time.monotonic() + PATIENCE_S
    while len({number for number, _ in arrived}) < sent and time.monotonic() < until:
        await asyncio.sleep(0.05)


async def _replica_set(session: Asking, broker: str) -> ReplicaSet | None:
    path = replica_path(broker)
    node = await session.read(path)
    return None if node is None else decode_set(path, node.data)


def _primary_host(found: ReplicaSet) -> str:
    return next(copy.host for copy in found.in_sync if copy.storage == found.primary)
