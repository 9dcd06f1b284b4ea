"""The last step of the demo: a host is lost for good, with its disk, and a subscriber of its broker misses nothing.

It has a domain of its own: a ZooKeeper server, a routing broker and two edges, each of which keeps copies of others.
The subscriber has a persistent session at the first edge and knows the addresses of both edges; orders are published at
the second. The process of the first edge is killed, and its data directory removed. The host that has a copy continues
the broker, and the subscriber goes on through the second edge.
"""

import asyncio
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from overlane.client import Client, connect
from overlane.coordination.ensemble.java import java_command, server_jars
from overlane.errors import Unavailable
from overlane.extras import is_installed, missing_extra

LOST = "west-1"
"""The broker whose host is lost."""
TOPIC = "orders/west"
EVERY_S = 0.02
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class LostHost:
    acknowledged: int
    missing: int
    duplicates: int
    gap_s: float
    """The longest time without a message at the subscriber."""
    host: str
    """That continues the broker."""

    @property
    def is_lossless(self) -> bool:
        return not self.missing and not self.duplicates


def why_not() -> str | None:
    """Why this step cannot run here; None if it can."""
    if not is_installed("kazoo"):
        return missing_extra("kazoo", "coordination")
    try:
        java_command()
        server_jars()
    except Unavailable as error:
        return str(error)
    return None


async def lose_host(directory: Path, seconds: float) -> LostHost:
    """Publish for so many seconds before the host is lost, and as many after it. Unavailable."""
    from overlane.demo.mirrored_domain import Site  # needs kazoo

    arrived: list[tuple[int, float]] = []
    async with Site(directory).running() as site:
        lost, kept = site.addresses
        reading = asyncio.Event()

        async def read() -> None:
            async with (
                connect(lost, kept, client_id="orders", session_expiry="1h", clean_start=False) as client,
                client.subscribe(TOPIC, qos=2) as messages,
            ):
                reading.set()
                async for message in messages:
                    arrived.append((int(message.body), time.monotonic()))

        reader = asyncio.create_task(read())
        try:
            async with asyncio.timeout(PATIENCE_S):
                await reading.wait()
            async with connect(kept) as writer:
                sent = await _publish(writer, 0, seconds)
                await site.lose_host()
                sent = await _publish(writer, sent, seconds)
            await _until_all(arrived, sent)
            host = await site.continued_at()
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
    times = [at for _, at in arrived]
    gap_s = max((later - earlier for earlier, later in pairwise(times)), default=0.0)
    numbers = {number for number, _ in arrived}
    return LostHost(sent, sent - len(numbers), len(arrived) - len(numbers), gap_s, host)


async def _publish(writer: Client, number: int, seconds: float) -> int:
    """Numbered messages, each acknowledged before the next; the number that comes next."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await writer.publish(TOPIC, str(number), qos=2)
        number += 1
        await asyncio.sleep(EVERY_S)
    return number


async def _until_all(arrived: list[tuple[int, float]], sent: int) -> None:
    """Until all have arrived, or time is up."""
    until = time.monotonic() + PATIENCE_S
    while len({number for number, _ in arrived}) < sent and time.monotonic() < until:
        await asyncio.sleep(0.05)
