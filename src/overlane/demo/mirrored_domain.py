"""A domain with ZooKeeper, in which a host can be lost: the site of the demo's last step.

A ZooKeeper server, a routing broker and two edges, each of which keeps copies of others. It needs kazoo, and is
imported only where that is installed.
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
from pathlib import Path

from overlane.coordination.client import CoordinationClient, coordination_client
from overlane.coordination.config_store import push_config
from overlane.coordination.ensemble.running import run_ensemble
from overlane.coordination.zookeeper import Access
from overlane.demo.lost_host import LOST
from overlane.errors import Unavailable
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
KEPT, ROUTING = "west-2", "routing-1"
PATIENCE_S = 60.0


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
            self._session = await stack.enter_async_context(coordination_client(self._access, PATIENCE_S))
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


async def _replica_set(session: CoordinationClient, broker: str) -> ReplicaSet | None:
    path = replica_path(broker)
    node = await session.read(path)
    return None if node is None else decode_set(path, node.data)


def _primary_host(found: ReplicaSet) -> str:
    return next(copy.host for copy in found.in_sync if copy.storage == found.primary)
