"""A neighbour whose addresses change is dialled anew, and no connection that works is given up for nothing."""

import asyncio
from random import Random

from overlane.local_ports import free_ports
from overlane.membership.endpoint import Endpoint
from overlane.node.failures import Failures
from overlane.node.links.dialling.dialling import MOVED, Dialling

OLD, NEW = Endpoint("127.0.0.1", 1), Endpoint("127.0.0.1", 2)
PATIENCE_S = 30


class Calls:
    """Where the neighbour answers, and what was tried."""

    def __init__(self, answers: set[Endpoint]) -> None:
        self.answers = answers
        self.dialled: list[Endpoint] = []
        self.linked = asyncio.Event()
        self.closed: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.tried = asyncio.Event()
        self.dialling = Dialling(
            "a",
            lambda: 0,
            Random(1),
            Failures(),
            self._dial,
            lambda _: False,
            lambda *told: self.closed.put_nowait(told),
        )

    async def _dial(self, name: str, address: Endpoint) -> bool:
        self.dialled.append(address)
        self.tried.set()
        if address not in self.answers:
            raise ConnectionRefusedError("nobody")
        self.dialling.linked(name)
        self.linked.set()
        return True

    def set(self, *addresses: Endpoint, dialled_at: Endpoint | None = None) -> None:
        self.dialling.set("b", addresses, is_linked=dialled_at is not None, dialled_at=dialled_at)


def test_an_idle_neighbour_is_dialled_at_its_new_address() -> None:
    async def story() -> None:
        calls = Calls({NEW})
        calls.set(OLD)
        await asyncio.wait_for(calls.tried.wait(), PATIENCE_S)
        calls.set(NEW)
        await asyncio.wait_for(calls.linked.wait(), PATIENCE_S)
        assert calls.dialled[-1] == NEW
        assert OLD not in calls.dialled[calls.dialled.index(NEW) :]
        calls.dialling.end()

    asyncio.run(story())


def test_a_connection_to_an_address_that_is_gone_stays_until_the_new_one_answers() -> None:
    async def story() -> None:
        (port,) = free_ports(1)
        new = Endpoint("127.0.0.1", port)
        calls = Calls({OLD, new})
        calls.set(OLD)
        await asyncio.wait_for(calls.linked.wait(), PATIENCE_S)
        calls.set(new, dialled_at=OLD)
        while not calls.dialling._told_in_vain.get("b"):
            await asyncio.sleep(0.01)
        assert calls.closed.empty()
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port)
        assert await asyncio.wait_for(calls.closed.get(), PATIENCE_S) == ("b", MOVED)
        calls.linked.clear()
        calls.dialling.lost("b")
        await asyncio.wait_for(calls.linked.wait(), PATIENCE_S)
        assert calls.dialled == [OLD, new]
        calls.dialling.end()
        server.close()

    asyncio.run(story())


def test_a_connection_that_the_neighbour_has_dialled_stays_wherever_it_is_reached_now() -> None:
    async def story() -> None:
        calls = Calls({OLD})
        calls.set(OLD)
        await asyncio.wait_for(calls.linked.wait(), PATIENCE_S)
        calls.dialling.set("b", (NEW,), is_linked=True, dialled_at=None)
        assert not calls.dialling._following
        calls.dialling.end()

    asyncio.run(story())
