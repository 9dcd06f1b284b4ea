"""Messages that are larger than the queue of a link cross it, as everything does that a broker has accepted."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from overlane.client import connect
from overlane.membership.membership import LINK_QUEUE_BYTES
from overlays import RealOverlay

pytestmark = pytest.mark.slow

WITHIN_S = 60.0


class _Ending:
    def __init__(self, net: RealOverlay) -> None:
        self._net = net

    def close(self) -> None:
        self._net.end()


def test_a_message_larger_than_the_queues_of_links_reaches_a_broker_two_links_away(tmp_path: Path) -> None:
    net = RealOverlay(tmp_path, dict.fromkeys(("a-b", "b-c"), 'latency = "1ms"'))
    sizes = (LINK_QUEUE_BYTES - 100, LINK_QUEUE_BYTES + 100, 1_000_000)

    async def cross() -> list[int]:
        async with connect(net["c"].mqtt) as reader, connect(net["a"].mqtt) as writer:
            messages = reader.subscribe("t/#", qos=1)
            got: list[int] = []

            async def read() -> None:
                async for message in messages:
                    if message.topic == "t/large":
                        got.append(len(message.body))
                    else:
                        known.set()
                    if len(got) == len(sizes):
                        return

            known = asyncio.Event()
            reading = asyncio.create_task(read())
            while not known.is_set():  # until the subscription has reached the writer's broker
                await writer.publish("t/first", b"", qos=1)
                await asyncio.sleep(0.05)
            for size in sizes:
                await writer.publish("t/large", bytes(size), qos=1)
            await asyncio.wait_for(reading, WITHIN_S)
            return got

    with closing(_Ending(net)):
        net.start()
        assert asyncio.run(cross()) == list(sizes)
