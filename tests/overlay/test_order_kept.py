"""Three brokers under load on a topic with a deadline that faults make impossible to meet: a link is slowed and cut,
brokers are killed with -9. Messages of QoS 1 and of QoS 2 come in the order of their publication, however late."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from overlane.client import Client, connect
from overlane.client.subscription import Subscription
from overlays import RealOverlay, overlay
from waiting import eventually_async

LINKS = {"a-b": 5, "b-c": 5, "a-c": 8}
TABLES = """
[topics."timed/#"]
deadline = "30ms"
"""
LEVELS = (1, 2)
IN_FLIGHT = 8
EVERY_S = 0.01
SOME = 20
PATIENCE_S = 60.0


class Writer:
    """Publishes numbers on a topic of its own, several at a time."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.topic = f"timed/{level}"
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
        await client.publish(self.topic, b"%d" % number, qos=self.level)
        self.acknowledged.add(number)


async def read(messages: Subscription, heard: dict[str, list[int]]) -> None:
    async for message in messages:
        heard[message.topic].append(int(message.body))


async def story(net: RealOverlay, writers: list[Writer], heard: dict[str, list[int]]) -> None:
    kept = {"session_expiry": "10m", "pause_max": "300ms"}

    async def progress() -> None:
        goals = {writer: (len(writer.acknowledged) + SOME, len(heard[writer.topic]) + SOME) for writer in writers}
        await eventually_async(
            lambda: all(
                len(one.acknowledged) >= goal and len(heard[one.topic]) >= come for one, (goal, come) in goals.items()
            ),
            "some more of every topic",
            PATIENCE_S,
        )

    def emulate(method: str, how: str = "") -> None:
        for one, other in (("a", "c"), ("c", "a")):
            net[one].ask(f"/emulation/{other}{how}", method)

    async def kill(*names: str) -> None:
        for name in names:
            net[name].kill()
        await asyncio.sleep(0.2)
        for name in names:
            net[name].start()

    async with AsyncExitStack() as stack:
        reader = await stack.enter_async_context(connect(net["c"].mqtt, client_id="reader", **kept))  # type: ignore[arg-type]
        reading = asyncio.create_task(read(reader.subscribe("timed/#", qos=2), heard))
        client = await stack.enter_async_context(connect(net["a"].mqtt, client_id="writer", **kept))  # type: ignore[arg-type]
        for writer in writers:
            while not heard[writer.topic]:
                await client.publish(writer.topic, b"-1", qos=1)
                await asyncio.sleep(0.05)
        ending = asyncio.Event()
        writing = [asyncio.create_task(writer.write(client, ending)) for writer in writers]
        await progress()
        emulate("PUT", "?latency=80ms&loss=0.05")
        await progress()
        emulate("PUT", "?cut=true")
        await kill("b")
        await progress()
        emulate("DELETE")
        await kill("c")
        await progress()
        await kill("a")
        await progress()
        await kill("a", "c")
        await progress()
        ending.set()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*writing)
        await eventually_async(
            lambda: all(writer.acknowledged <= set(heard[writer.topic]) for writer in writers), "all there", PATIENCE_S
        )
        reading.cancel()


@pytest.mark.slow
def test_a_deadline_that_cannot_be_met_does_not_cost_the_order_of_qos_1_and_2(tmp_path: Path) -> None:
    links = {pair: f'latency = "{latency_ms}ms"\nemulate = true' for pair, latency_ms in LINKS.items()}
    writers = [Writer(level) for level in LEVELS]
    heard: dict[str, list[int]] = {writer.topic: [] for writer in writers}
    with overlay(tmp_path, links, TABLES, ("--chaos",)) as net:
        asyncio.run(story(net, writers, heard))
    for writer in writers:
        first = list(dict.fromkeys(heard[writer.topic]))
        assert first == sorted(first), writer.topic
        assert len(first) >= 6 * SOME
    twice = [number for number in heard["timed/2"] if number >= 0]
    assert len(twice) == len(set(twice))
