"""A client of the coordination service for single requests: of commands, and of a broker that reads its configuration.

One connection, requests that are awaited, and errors of the tree of `overlane.errors`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from overlane.coordination.contract import (
    Answer,
    Answered,
    Children,
    Connected,
    Event,
    Found,
    List,
    LoginRefused,
    Operation,
    Read,
    Reason,
    Rejected,
    Request,
    Sync,
    Transaction,
    Unknown,
    Znode,
)
from overlane.coordination.zookeeper import Access, ZooKeeper
from overlane.errors import Unavailable

PATIENCE_S = 10.0
IN_FLIGHT_MAX = 256


class CoordinationClient:
    def __init__(self, access: Access) -> None:
        self._hosts = access.hosts
        self._numbers = 0
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._connected = asyncio.Event()
        self._is_refused = False
        self._in_flight = asyncio.Semaphore(IN_FLIGHT_MAX)
        self.changed = asyncio.Event()
        """Set when a watch has told something."""
        self._service = ZooKeeper(access, self._heard)

    async def connected(self, patience_s: float | None = PATIENCE_S) -> None:
        """Unavailable after so long; None: never."""
        try:
            async with asyncio.timeout(patience_s):
                await self._connected.wait()
        except TimeoutError:
            raise Unavailable(f"ZooKeeper at {self._hosts}", f"no answer within {patience_s:.0f} s") from None
        if self._is_refused:
            raise Unavailable(f"ZooKeeper at {self._hosts}", "the login was refused: the user or the password is wrong")
        await self._ask(Sync())

    async def read(self, path: str) -> Znode | None:
        """Unavailable."""
        answer = await self._ask(Read(path))
        return answer.node if isinstance(answer, Found) else None

    async def names(self, parent: str) -> tuple[str, ...]:
        answer = await self._ask(List(parent))
        return answer.names if isinstance(answer, Children) else ()

    async def children(self, parent: str) -> dict[str, Znode]:
        """By name."""
        names = await self.names(parent)
        nodes = await asyncio.gather(*(self.read(f"{parent}/{name}") for name in names))
        return {name: node for name, node in zip(names, nodes, strict=True) if node is not None}

    async def change(self, *operations: Operation) -> Answer:
        """Unavailable if it is not allowed, or unknown whether it was carried out."""
        return await self._ask(Transaction(operations))

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._service.close)

    async def _ask(self, request: Request) -> Answer:
        async with self._in_flight:
            self._numbers += 1
            number = self._numbers
            future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            self._waiting[number] = future
            self._service.ask(number, request)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    answer: Answer = await future
            except TimeoutError:
                answer = Unknown()
            finally:
                self._waiting.pop(number, None)
        if isinstance(answer, Unknown):
            raise Unavailable(f"ZooKeeper at {self._hosts}", "the connection was lost")
        if isinstance(answer, Rejected) and answer.reason is Reason.REFUSED:
            raise Unavailable(f"ZooKeeper at {self._hosts}", "not allowed for this user")
        return answer

    def _heard(self, event: Event) -> None:
        match event:
            case Connected():
                self._connected.set()
            case LoginRefused():
                self._is_refused = True
                self._connected.set()
            case Answered(number, answer):
                if (future := self._waiting.get(number)) is not None and not future.done():
                    future.set_result(answer)
            case _:
                self.changed.set()


@asynccontextmanager
async def coordination_client(
    access: Access, patience_s: float | None = PATIENCE_S
) -> AsyncIterator[CoordinationClient]:
    """Unavailable."""
    session = CoordinationClient(access)
    try:
        await session.connected(patience_s)
        yield session
    finally:
        await session.close()
