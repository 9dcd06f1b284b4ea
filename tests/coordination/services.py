"""Coordination services for tests: one in memory, and a real ensemble of three ZooKeeper servers."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from overlane.coordination.contract import (
    Answer,
    Answered,
    Connected,
    Deliver,
    Event,
    Request,
    Service,
    Suspended,
    Transaction,
)
from overlane.coordination.ensemble.java import java_command, server_jars
from overlane.coordination.in_memory import InMemoryClient, InMemoryEnsemble
from overlane.coordination.zookeeper import Access, ZooKeeper
from overlane.errors import Unavailable

WAIT_S = 60.0


def has_zookeeper() -> bool:
    try:
        java_command()
        server_jars()
    except Unavailable:
        return False
    return True


@contextmanager
def running_ensemble(folder: Path, servers: int = 3) -> Iterator[str]:
    """`overlane zookeeper`, as a user runs it; its addresses."""
    command = [sys.executable, "-m", "overlane", "zookeeper", "--servers", str(servers), "--data", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ, text=True) as process:
        try:
            assert process.stdout is not None
            addresses = process.stdout.readline().strip()
            assert addresses, "the ensemble has ended"
            yield addresses
        finally:
            process.terminate()
            process.wait(WAIT_S)


class Client:
    """A client of a service, for tests: asks and waits for answers and events."""

    def __init__(self, connect: Callable[[Deliver], Service]) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.connections: list[Connected] = []
        self._answers: dict[int, asyncio.Future[Answer]] = {}
        self._numbers = 0
        self.service = connect(self._take)

    def _take(self, event: Event) -> None:
        if isinstance(event, Answered):
            self._answers.pop(event.request).set_result(event.answer)
        else:
            self.events.put_nowait(event)

    async def ask(self, request: Request) -> Answer:
        self._numbers += 1
        waiting = self._answers[self._numbers] = asyncio.get_running_loop().create_future()
        self.service.ask(self._numbers, request)
        return await asyncio.wait_for(waiting, WAIT_S)

    async def change(self, *operations: object) -> Answer:
        return await self.ask(Transaction(operations))  # type: ignore[arg-type]

    async def event(self) -> Event:
        return await asyncio.wait_for(self.events.get(), WAIT_S)

    async def connected(self) -> Connected:
        while True:
            event = await self.event()
            if isinstance(event, Connected):
                return event
            assert isinstance(event, Suspended)


class Provider(Protocol):
    """Gives clients of one service, whose paths are those of one test."""

    async def client(self) -> Client: ...

    def expire(self, client: Client) -> None:
        """End its session behind its back."""
        ...

    async def close(self) -> None: ...


class InMemoryProvider:
    def __init__(self) -> None:
        self._ensemble = InMemoryEnsemble()

    async def client(self) -> Client:
        client = Client(self._ensemble.connect)
        await client.connected()
        return client

    def expire(self, client: Client) -> None:
        service = client.service
        assert isinstance(service, InMemoryClient)
        service.cut_off()
        self._ensemble.expire(service.session)
        service.reconnect()

    async def close(self) -> None:
        pass


class ZooKeeperProvider:
    def __init__(self, addresses: str, root: str) -> None:
        self._access = Access(addresses, root)
        self._clients: list[Client] = []

    def unconnected(self, deliver: Deliver) -> Service:
        return ZooKeeper(self._access, deliver)

    async def client(self) -> Client:
        client = Client(self.unconnected)
        self._clients.append(client)
        await client.connected()
        return client

    def expire(self, client: Client) -> None:
        """A second connection with the same session that is closed ends the session."""
        from kazoo.client import KazooClient

        service = client.service
        assert isinstance(service, ZooKeeper)
        other = KazooClient(self._access.hosts, client_id=service._client.client_id)
        other.start(timeout=WAIT_S)
        other.stop()
        other.close()

    async def close(self) -> None:
        for client in self._clients:
            await asyncio.to_thread(client.service.close)
