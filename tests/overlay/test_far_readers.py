"""Readers that fall behind what is published at another broker: nothing that was acknowledged is lost, and they are
waited for as long as they would be if they were at the publisher's broker."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest

from overlane.client import Client, connect
from overlane.client.subscription import Subscription
from overlays import Member, RealOverlay, overlay
from waiting import eventually_async

pytestmark = pytest.mark.slow

LINE = {"a-b": 'latency = "1ms"', "b-c": 'latency = "1ms"'}
QUEUE_MESSAGES = 200
TABLES = f"""
[limits]
queue_messages = {QUEUE_MESSAGES}
"""
PATIENCE_S = 90.0


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealOverlay]:
    with overlay(tmp_path_factory.mktemp("far"), LINE, TABLES, ("--no-sync",)) as net:
        yield net


def dropped(member: Member) -> int:
    answer = member.ask("/status")
    assert isinstance(answer, dict)
    found = answer["dropped"].get("queue full", 0)
    assert isinstance(found, int)
    return found


async def reached(speaker: Client, messages: Subscription, prefix: str) -> None:
    """Until what is published under the prefix comes to the reader; nothing else was published under it before."""
    probing = asyncio.create_task(_probe(speaker, prefix))
    async for message in messages:
        if message.topic == f"{prefix}/probe":
            break
    probing.cancel()
    with suppress(asyncio.CancelledError):
        await probing


async def _probe(speaker: Client, prefix: str) -> None:
    while True:
        await speaker.publish(f"{prefix}/probe", b"", qos=1)
        await asyncio.sleep(0.1)


def test_a_slow_reader_two_hops_away_gets_all_that_was_acknowledged_in_order(line: RealOverlay) -> None:
    each, publishers = 300, 6

    async def story() -> dict[str, list[int]]:
        heard: dict[str, list[int]] = {f"slow/{one}": [] for one in range(publishers)}
        before = dropped(line["c"])
        async with (
            connect(line["c"].mqtt, client_id="slow", session_expiry="60s") as there,
            connect(line["a"].mqtt) as here,
        ):
            messages = there.subscribe("slow/#", qos=1, unread_max=10)
            await reached(here, messages, "slow")

            async def read() -> None:
                async for message in messages:
                    if message.topic in heard:
                        heard[message.topic].append(int(bytes(message.body)))
                        await asyncio.sleep(0.001)

            reading = asyncio.create_task(read())
            bodies = [b"%d" % number for number in range(each)]
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*(here.publish_many(f"slow/{one}", bodies, qos=1) for one in range(publishers)))
            await eventually_async(lambda: sum(map(len, heard.values())) >= each * publishers, "all there", PATIENCE_S)
            reading.cancel()
        assert dropped(line["c"]) == before
        return heard

    assert asyncio.run(story()) == {f"slow/{one}": list(range(each)) for one in range(publishers)}


def test_a_session_that_is_away_with_its_queue_full_stops_no_publisher(line: RealOverlay) -> None:
    kept = {"client_id": "far-away", "session_expiry": "60s"}
    beyond = 3 * QUEUE_MESSAGES

    async def story() -> tuple[list[int], int]:
        before = dropped(line["c"])
        async with connect(line["c"].mqtt, **kept) as there, connect(line["a"].mqtt) as here:  # type: ignore[arg-type]
            await reached(here, there.subscribe("away/#", qos=1), "away")
        async with connect(line["a"].mqtt) as here, asyncio.timeout(PATIENCE_S):
            await here.publish_many("away/x", [b"%d" % number for number in range(beyond)], qos=1)
        await eventually_async(lambda: dropped(line["c"]) - before >= beyond - QUEUE_MESSAGES, "all there", PATIENCE_S)
        heard: list[int] = []
        async with connect(line["c"].mqtt, **kept) as there:  # type: ignore[arg-type]
            async for message in there.subscribe("away/#", qos=1):
                if message.topic == "away/x":
                    heard.append(int(bytes(message.body)))
                if heard and heard[-1] >= QUEUE_MESSAGES - 20:
                    break
        return heard, dropped(line["c"]) - before

    heard, lost = asyncio.run(story())
    assert heard == list(range(len(heard)))
    assert beyond - QUEUE_MESSAGES <= lost <= beyond - len(heard)


def test_a_reader_that_stops_acknowledging_holds_up_neither_its_neighbour_nor_for_ever_its_publisher(
    line: RealOverlay,
) -> None:
    each = 4 * QUEUE_MESSAGES

    async def story() -> list[int]:
        quick: list[int] = []
        async with (
            connect(line["c"].mqtt) as deaf,
            connect(line["c"].mqtt) as lively,
            connect(line["a"].mqtt) as one,
            connect(line["a"].mqtt) as other,
        ):
            unread = deaf.subscribe("deaf/#", qos=1, unread_max=10)
            await reached(one, unread, "deaf")
            messages = lively.subscribe("lively/#", qos=1)
            await reached(other, messages, "lively")

            async def read() -> None:
                async for message in messages:
                    if message.topic == "lively/x":
                        quick.append(int(bytes(message.body)))

            reading = asyncio.create_task(read())
            bodies = [b"%d" % number for number in range(each)]
            async with asyncio.timeout(PATIENCE_S):
                flooding = asyncio.create_task(one.publish_many("deaf/x", bodies, qos=1))
                await other.publish_many("lively/x", bodies, qos=1)
                await eventually_async(lambda: len(quick) >= each, "all there", PATIENCE_S)
                await flooding
            reading.cancel()
        return quick

    assert asyncio.run(story()) == list(range(each))
