"""The order on a link that runs is decided at the last moment."""

import asyncio
from pathlib import Path

from overlane.client import connect
from overlays import overlay
from waiting import eventually_async

BULK_BYTES = 16 * 1024
BULK_MESSAGES = 64


def test_an_urgent_message_overtakes_a_megabyte_of_bulk_on_a_slow_link(tmp_path: Path) -> None:
    slow = {"a-b": 'latency = "5ms"\nrate = "4Mbit"\nqueue = "4MiB"\nemulate = true'}
    classes = '[topics."urgent/#"]\ndeadline = "500ms"\n'

    async def story() -> list[str]:
        heard: list[str] = []
        with overlay(tmp_path, slow, classes) as net:
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
                await eventually_async(lambda: "urgent/x" in heard, "the urgent one there")
                before = list(heard)
                await eventually_async(lambda: heard.count("bulk/x") == BULK_MESSAGES, "all bulk there", 30.0)
                reading.cancel()
        return before

    before = asyncio.run(story())
    # A megabyte takes two seconds at 4 Mbit/s; the urgent one waits for no more than what has left already.
    assert before.count("bulk/x") <= BULK_MESSAGES // 4
