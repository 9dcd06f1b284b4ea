"""The order on a link that runs is decided at the last moment."""

import asyncio
from pathlib import Path

import pytest
from tunnels import Tunnel

from overlane.client import connect
from overlane.testbed.certificates import Authority
from overlays import RealOverlay, overlay
from waiting import eventually_async

pytestmark = pytest.mark.slow

BULK_BYTES = 16 * 1024
BULK_MESSAGES = 64
RATE_BPS = 4_000_000
CLASSES = '[topics."urgent/#"]\ndeadline = "{}"\n'


async def heard_before_the_urgent_one(net: RealOverlay) -> list[str]:
    """A megabyte of bulk from a to b, an urgent message after it, and what has come when that is there."""
    heard: list[str] = []
    async with connect(net["b"].mqtt) as there, connect(net["a"].mqtt) as here:
        messages = there.subscribe("bulk/#", "urgent/#")

        async def read() -> None:
            async for message in messages:
                heard.append(message.topic)

        reading = asyncio.create_task(read())
        while "urgent/probe" not in heard or "bulk/probe" not in heard:
            await here.publish("urgent/probe", b"")
            await here.publish("bulk/probe", b"")
            await asyncio.sleep(0.1)
        for _ in range(BULK_MESSAGES):
            await here.publish("bulk/x", bytes(BULK_BYTES))
        await eventually_async(lambda: "bulk/x" in heard, "bulk on its way")
        await here.publish("urgent/x", b"now")
        await eventually_async(lambda: "urgent/x" in heard, "the urgent one there", 30.0)
        before = list(heard)
        await eventually_async(lambda: heard.count("bulk/x") == BULK_MESSAGES, "all bulk there", 30.0)
        reading.cancel()
    return before


def test_an_urgent_message_overtakes_a_megabyte_of_bulk_on_a_slow_link(tmp_path: Path) -> None:
    slow = {"a-b": f'latency = "5ms"\nrate = "{RATE_BPS // 1_000_000}Mbit"\nqueue = "4MiB"\nemulate = true'}
    with overlay(tmp_path, slow, CLASSES.format("500ms")) as net:
        before = asyncio.run(heard_before_the_urgent_one(net))
    # A megabyte takes two seconds at 4 Mbit/s; the urgent one waits for no more than what has left already.
    assert before.count("bulk/x") <= BULK_MESSAGES // 4


@pytest.mark.parametrize("is_secure", [False, True])
def test_it_overtakes_what_waits_for_a_connection_that_takes_no_more_though_the_kernel_would(
    tmp_path: Path, is_secure: bool
) -> None:
    """No emulation, and no datagrams: only the order in which bytes are given to a real connection can help it. It has
    time enough not to be given up where the machine is slow."""
    slow = {"a-b": 'latency = "1ms"\nqueue = "4MiB"\ntransport = "stream"'}
    net = RealOverlay(tmp_path, slow, CLASSES.format("10s"))
    tunnel = Tunnel(net["b"].overlay, RATE_BPS)
    text = net.file.read_text()
    for name, reach in (("a", "[]"), ("b", f'["{tunnel.address}"]')):
        text = text.replace(net[name].table(), f"{net[name].table()}reach = {reach}\n")
    net.file.write_text(text)
    if is_secure:
        authority = Authority(tmp_path, "ours")
        for name in "ab":
            authority.broker(name)
        net.secure({"a": "ours", "b": "ours"})
    try:
        net.start()
        before = asyncio.run(heard_before_the_urgent_one(net))
    finally:
        net.end()
        tunnel.close()
    assert tunnel.count == 1
    assert before.count("bulk/x") <= BULK_MESSAGES // 4
