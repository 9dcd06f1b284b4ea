"""Five cities under QoS 1 load from several publishers to several readers: a link is slowed and cut, brokers are killed
with -9, in between, where messages are read and where they are published, and come back.

Every message that was acknowledged arrives at every reader, in order, and once: also those that a killed broker had
accepted and not acknowledged, which are published again, and those that it had delivered, which are delivered again.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from overlane.client import Client, connect
from overlane.client.subscription import Subscription
from overlays import RealOverlay, overlay
from waiting import eventually_async

LINKS = {
    ("seattle", "denver"): 7,
    ("seattle", "losangeles"): 6,
    ("losangeles", "denver"): 5,
    ("losangeles", "orlando"): 12,
    ("losangeles", "washington"): 14,
    ("denver", "washington"): 10,
    ("denver", "orlando"): 10,
    ("orlando", "washington"): 5,
}
PUBLISHERS = ("seattle", "losangeles", "denver", "washington")
READERS = ("washington", "orlando", "seattle", "denver")
IN_FLIGHT = 5
EVERY_S = 0.02
SOME = 20
PATIENCE_S = 60.0
KEPT = {"session_expiry": "10m", "pause_max": "300ms"}


class Writer:
    """Publishes numbers, several at a time."""

    def __init__(self, city: str) -> None:
        self.city = city
        self.topic = f"work/{city}"
        self.begun = 0
        self.acknowledged: set[int] = set()

    async def write(self, client: Client, ending: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            while not ending.is_set():
                if self.begun - len(self.acknowledged) < IN_FLIGHT:
                    group.create_task(self._publish(client, self.begun))
                    self.begun += 1
                await asyncio.sleep(EVERY_S)

    async def _publish(self, client: Client, number: int) -> None:
        await client.publish(self.topic, b"%d" % number, qos=1)
        self.acknowledged.add(number)


class Reader:
    """Notes what comes of each topic."""

    def __init__(self, city: str) -> None:
        self.city = city
        self.is_reached_by: set[str] = set()
        self.heard: dict[str, list[int]] = {f"work/{publisher}": [] for publisher in PUBLISHERS}

    async def read(self, messages: Subscription) -> None:
        async for message in messages:
            if message.topic.startswith("probe/"):
                self.is_reached_by.add(message.topic.removeprefix("probe/"))
            else:
                self.heard[message.topic].append(int(message.body))


class Applications:
    def __init__(self, net: RealOverlay) -> None:
        self._net = net
        self.writers = [Writer(city) for city in PUBLISHERS]
        self.readers = [Reader(city) for city in READERS]

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """All are connected and reached, and publish until the end of the block; then until all is there."""
        async with AsyncExitStack() as stack:
            reading: list[asyncio.Task[None]] = []
            for reader in self.readers:
                client = await self._connected(stack, reader.city, "reader")
                messages = client.subscribe("work/#", "probe/#", qos=1)
                reading.append(asyncio.create_task(reader.read(messages)))
            clients = {writer: await self._connected(stack, writer.city, "writer") for writer in self.writers}
            while any(reader.is_reached_by < set(PUBLISHERS) for reader in self.readers):
                for writer, client in clients.items():
                    await client.publish(f"probe/{writer.city}", b"", qos=1)
                await asyncio.sleep(0.05)
            ending = asyncio.Event()
            writing = [asyncio.create_task(writer.write(client, ending)) for writer, client in clients.items()]
            yield
            ending.set()
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*writing)
            with suppress(AssertionError):
                await eventually_async(lambda: not self.lost(), "all there", PATIENCE_S)
            for task in reading:
                task.cancel()

    async def _connected(self, stack: AsyncExitStack, city: str, role: str) -> Client:
        address = self._net[city].mqtt
        return await stack.enter_async_context(connect(address, client_id=f"{role}-{city}", **KEPT))  # type: ignore[arg-type]

    async def progress(self) -> None:
        """Everybody has published some more, and everybody has heard from everybody."""
        begun = [len(writer.acknowledged) + SOME for writer in self.writers]
        await eventually_async(
            lambda: all(len(one.acknowledged) >= goal for one, goal in zip(self.writers, begun, strict=True)),
            "acknowledged",
            PATIENCE_S,
        )
        goals = [{topic: len(heard) + 1 for topic, heard in reader.heard.items()} for reader in self.readers]
        await eventually_async(
            lambda: all(
                len(reader.heard[topic]) >= goal
                for reader, some in zip(self.readers, goals, strict=True)
                for topic, goal in some.items()
            ),
            "heard",
            PATIENCE_S,
        )

    async def kill(self, *cities: str) -> None:
        """With -9, all at once; they come back."""
        for city in cities:
            self._net[city].kill()
        await asyncio.sleep(0.3)
        for city in cities:
            self._net[city].start()

    def lost(self) -> dict[tuple[str, str], set[int]]:
        """By publisher and reader."""
        return {
            (writer.city, reader.city): missing
            for writer in self.writers
            for reader in self.readers
            if (missing := writer.acknowledged - set(reader.heard[writer.topic]))
        }

    def repeated(self) -> dict[tuple[str, str], set[int]]:
        return {
            (writer.city, reader.city): again
            for writer in self.writers
            for reader in self.readers
            if (again := twice(reader.heard[writer.topic]))
        }

    def disordered(self) -> list[tuple[str, str]]:
        return [
            (topic, reader.city)
            for reader in self.readers
            for topic, heard in reader.heard.items()
            if (first := list(dict.fromkeys(heard))) != sorted(first)
        ]


def twice(heard: list[int]) -> set[int]:
    return {number for number, times in Counter(heard).items() if times > 1}


async def story(net: RealOverlay, applications: Applications) -> None:
    async with applications.at_work():
        await applications.progress()
        for city, neighbour in (("seattle", "denver"), ("denver", "seattle")):
            net[city].ask(f"/emulation/{neighbour}?latency=60ms", "PUT")
        await applications.progress()
        for city, neighbour in (("seattle", "denver"), ("denver", "seattle")):
            net[city].ask(f"/emulation/{neighbour}?cut=true", "PUT")
        await applications.progress()
        await applications.kill("losangeles")
        await applications.progress()
        for city, neighbour in (("seattle", "denver"), ("denver", "seattle")):
            net[city].ask(f"/emulation/{neighbour}", "DELETE")
        await applications.kill("denver", "washington")
        await applications.progress()
        await applications.kill("seattle")
        await applications.progress()


@pytest.mark.slow
def test_all_that_five_cities_have_acknowledged_arrives_once_and_in_order_whatever_is_killed(tmp_path: Path) -> None:
    links = {"-".join(ends): f'latency = "{latency_ms}ms"\nemulate = true' for ends, latency_ms in LINKS.items()}
    with overlay(tmp_path, links, options=("--chaos",)) as net:
        applications = Applications(net)
        asyncio.run(story(net, applications))
        assert applications.lost() == {}
        assert applications.repeated() == {}
        assert applications.disordered() == []
        assert all(len(writer.acknowledged) >= 6 * SOME for writer in applications.writers)
