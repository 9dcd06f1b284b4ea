"""Plain messages without a deadline: whoever publishes more than a link takes waits for it, and nothing is dropped."""

import asyncio
import socket
from collections.abc import Iterator

import pytest

from overlane.client import Client, connect
from overlane.client.subscription import Subscription
from overlays import RealOverlay, overlay
from waiting import eventually_async

pytestmark = pytest.mark.slow

SLOW = {"a-b": 'latency = "1ms"\nrate = "16Mbit"\nemulate = true'}
TABLES = """
[limits]
packet = "64KiB"
queue = "512KiB"
"""
BODY_BYTES = 4_000
PATIENCE_S = 90.0


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealOverlay]:
    with overlay(tmp_path_factory.mktemp("bulk"), SLOW, TABLES, ("--no-sync",)) as net:
        yield net


async def reached(speaker: Client, messages: Subscription, topic: str) -> None:
    heard = False
    while not heard:
        await speaker.publish(topic, b"probe")
        try:
            async with asyncio.timeout(0.2):
                await anext(messages)
                heard = True
        except TimeoutError:
            continue


async def flood(here: Client, messages: Subscription, topic: str, count: int) -> list[int]:
    """The numbers of the messages that came."""
    heard: list[int] = []

    async def read() -> None:
        async for message in messages:
            if bytes(message.body[:5]) != b"probe":
                heard.append(int(bytes(message.body[:8])))

    reading = asyncio.create_task(read())
    async with asyncio.timeout(PATIENCE_S):
        await here.publish_many(topic, (b"%08d" % number + bytes(BODY_BYTES) for number in range(count)))
    await eventually_async(lambda: bool(heard) and heard[-1] == count - 1, "the last one there", PATIENCE_S)
    reading.cancel()
    return heard


def test_all_of_a_flood_comes_over_a_slow_link_however_small_its_queue(pair: RealOverlay) -> None:
    async def story() -> list[int]:
        async with connect(pair["b"].mqtt) as there, connect(pair["a"].mqtt) as here:
            messages = there.subscribe("bulk")
            await reached(here, messages, "bulk")
            return await flood(here, messages, "bulk", 1_500)

    assert asyncio.run(story()) == list(range(1_500))


def test_a_subscriber_that_never_reads_costs_others_nothing(pair: RealOverlay) -> None:
    host, port = pair["b"].mqtt.split(":")

    async def story() -> list[int]:
        with socket.create_connection((host, int(port))) as deaf:
            deaf.sendall(b"\x10\x10\x00\x04MQTT\x04\x02\x00\x00\x00\x04deaf")
            assert deaf.recv(4) == b"\x20\x02\x00\x00"
            deaf.sendall(b"\x82\x08\x00\x01\x00\x03mix\x00")
            async with connect(pair["b"].mqtt) as there, connect(pair["a"].mqtt) as here:
                messages = there.subscribe("mix")
                await reached(here, messages, "mix")
                return await flood(here, messages, "mix", 3_000)

    assert asyncio.run(story()) == list(range(3_000))


def test_what_is_published_elsewhere_by_others_does_not_wait(pair: RealOverlay) -> None:
    async def story() -> bool:
        async with (
            connect(pair["b"].mqtt) as there,
            connect(pair["a"].mqtt) as here,
            connect(pair["a"].mqtt) as other,
            connect(pair["a"].mqtt) as near,
        ):
            messages, local = there.subscribe("much"), near.subscribe("local")
            await reached(here, messages, "much")
            flooding = asyncio.create_task(flood(here, messages, "much", 1_500))
            await local.ready()
            for number in range(20):
                await other.publish("local", b"%d" % number)
                async with asyncio.timeout(PATIENCE_S):
                    assert bytes((await anext(local)).body) == b"%d" % number
            is_before = not flooding.done()
            await flooding
            return is_before

    assert asyncio.run(story())
