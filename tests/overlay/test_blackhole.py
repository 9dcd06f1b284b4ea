"""A broker that runs, answers pings and hop acknowledgements, and forwards nothing: nothing acknowledged is stuck. And
one that claims less latency than its links have: it is believed until messages have come late."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from overlane.client import Client, connect
from overlays import RealOverlay
from waiting import eventually_async

FIVE = {
    "a-b": 'latency = "5ms"\nemulate = true',
    "b-c": 'latency = "5ms"\nemulate = true',
    "a-d": 'latency = "40ms"\nemulate = true',
    "d-c": 'latency = "40ms"\nemulate = true',
    "b-e": 'latency = "2ms"\nemulate = true',
}
EVERY_S = 0.01
ARRIVES_WITHIN_S = 20.0
RETURNS_WITHIN_S = 60.0
SOME = 50

pytestmark = pytest.mark.slow


def route(net: RealOverlay, topic: str) -> dict[str, Any]:
    routes: Any = net["a"].ask("/routes")
    return next((route for route in routes["items"] if topic in route["topics"]), {})


def way(net: RealOverlay, topic: str) -> list[str]:
    paths: list[list[str]] = route(net, topic).get("paths", {}).get("c", [])
    return paths[0] if paths else []


def suspects(net: RealOverlay, topic: str) -> list[str]:
    found: list[str] = route(net, topic).get("suspects", [])
    return found


async def write(writer: Client, topic: str, qos: int, written: list[int], ending: asyncio.Event) -> None:
    while not ending.is_set():
        number = len(written)
        await writer.publish(topic, b"%d" % number, qos=qos)
        written.append(number)
        await asyncio.sleep(EVERY_S)


async def go_through_it(net: RealOverlay, sign: Path, qos: int) -> None:
    heard: list[int] = []
    written: list[int] = []
    ending = asyncio.Event()
    async with connect(net["c"].mqtt) as reader, connect(net["a"].mqtt) as writer:
        messages = reader.subscribe("work/#", qos=qos)

        async def read() -> None:
            async for message in messages:
                heard.append(int(message.body))

        reading = asyncio.create_task(read())
        writing = asyncio.create_task(write(writer, "work/x", qos, written, ending))
        await eventually_async(lambda: len(heard) >= SOME and way(net, "work/x") == ["a", "b", "c"], "at work", 60.0)
        sign.touch()
        await eventually_async(lambda: suspects(net, "work/x") == ["b"], "suspected", ARRIVES_WITHIN_S)
        await eventually_async(lambda: way(net, "work/x") == ["a", "d", "c"], "gone around", ARRIVES_WITHIN_S)
        so_far = len(written)
        await eventually_async(lambda: len(written) >= so_far + SOME, "written on", 60.0)
        if qos:
            await eventually_async(lambda: set(range(heard[0], so_far)) <= set(heard), "all there", ARRIVES_WITHIN_S)
        log = net["a"].log.read_text()
        told = "messages to c over b are acknowledged hop by hop but do not arrive; avoiding b"
        assert log.count(told) == 1
        # It is restarted, and works: copies of messages find that out before messages rely on it.
        sign.unlink()
        net["b"].kill()
        net["b"].start()
        await eventually_async(
            lambda: "messages to c over b arrive again" in net["a"].log.read_text(),
            "trusted",
            RETURNS_WITHIN_S,
        )
        await eventually_async(lambda: way(net, "work/x") == ["a", "b", "c"], "back", RETURNS_WITHIN_S)
        ending.set()
        await writing
        if qos:
            await eventually_async(lambda: set(written[heard[0] :]) <= set(heard), "all there", ARRIVES_WITHIN_S)
            assert heard == written[heard[0] :]  # none before it was known who reads
        reading.cancel()


@pytest.mark.parametrize("qos", [0, 1])
def test_what_a_broker_swallows_goes_around_it_and_comes_back_when_it_works_again(tmp_path: Path, qos: int) -> None:
    sign = tmp_path / "swallow"
    net = RealOverlay(tmp_path, FIVE)
    net["b"].program = (str(Path(__file__).with_name("blackhole.py")), str(sign))
    try:
        net.start()
        asyncio.run(go_through_it(net, sign, qos))
    finally:
        net.end()


SLOW = {**FIVE, "b-c": 'latency = "300ms"\nemulate = true'}
TIMELY = '[topics."work/#"]\ndeadline = "200ms"\n'
"""Enough for the way over d, on a busy machine too, and not for that over b."""


def is_up(net: RealOverlay, here: str, there: str) -> bool:
    links: Any = net[here].ask("/links")
    return any(one["peer"] == there and one["state"] == "up" for one in links["items"])


async def find_the_quicker_way(net: RealOverlay) -> None:
    """d comes when messages go over b already: by the claims that way is quicker, and stays so."""
    heard: list[int] = []
    written: list[int] = []
    ending = asyncio.Event()
    async with connect(net["c"].mqtt) as reader, connect(net["a"].mqtt) as writer:
        messages = reader.subscribe("work/#", qos=1)

        async def read() -> None:
            async for message in messages:
                heard.append(int(message.body))

        reading = asyncio.create_task(read())
        writing = asyncio.create_task(write(writer, "work/x", 1, written, ending))
        await eventually_async(lambda: way(net, "work/x") == ["a", "b", "c"] and bool(heard), "over b", 60.0)
        net["d"].start()
        await eventually_async(lambda: way(net, "work/x") == ["a", "d", "c"], "measured", 60.0)
        ending.set()
        await writing
        await eventually_async(lambda: set(range(heard[0], len(written))) <= set(heard), "all there", 60.0)
        reading.cancel()


def test_a_broker_that_claims_less_latency_than_its_links_have_is_left_for_a_quicker_one(tmp_path: Path) -> None:
    net = RealOverlay(tmp_path, SLOW, TIMELY)
    net["b"].program = (str(Path(__file__).with_name("understating.py")), "1000")
    try:
        for name in "abce":
            net[name].start()
        net.wait_until(lambda: all("ready  " in net[name].log.read_text() for name in "abce"), "ready")
        net.wait_until(lambda: is_up(net, "b", "c") and is_up(net, "a", "b"), "linked")
        asyncio.run(find_the_quicker_way(net))
        assert suspects(net, "work/x") == []
    finally:
        net.end()
