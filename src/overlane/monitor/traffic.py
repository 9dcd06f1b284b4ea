"""Test traffic: a publisher at one broker and a subscriber at another, as normal MQTT clients.

Nothing is recorded here: the brokers count what arrives in time.
"""

import asyncio
from contextlib import suppress
from time import monotonic

from overlane.client import ClientError, Subscription, connect
from overlane.core.topics import BadTopic, check_topic
from overlane.errors import Unavailable
from overlane.network.endpoints import endpoints
from overlane.network.schema import Network

STREAMS_MAX = 10
SIZE_BYTES = 64
START_S = 5.0


class TestTraffic:
    def __init__(self, network: Network) -> None:
        self._at = {one.name: endpoints(network, one.name).mqtt.dialled() for one in network.brokers}
        self._running: dict[tuple[str, str, str], asyncio.Task[None]] = {}

    async def start(self, source: str, destination: str, topic: str, rate_hz: int) -> None:
        """From now on; one that runs between the same places on the same topic is replaced. Unavailable."""
        try:
            check_topic(topic)
        except BadTopic as bad:
            raise Unavailable("the test stream", str(bad)) from None
        key = source, destination, topic
        if len(self._running) >= STREAMS_MAX and key not in self._running:
            raise Unavailable("the test stream", f"there are {STREAMS_MAX} already")
        await self._end(self._running.pop(key, None))
        is_running = asyncio.get_running_loop().create_future()
        task = self._running[key] = asyncio.create_task(self._run(key, rate_hz, is_running))
        task.add_done_callback(lambda done: self._running.pop(key, None) if self._running.get(key) is done else None)
        try:
            async with asyncio.timeout(START_S):
                await asyncio.shield(is_running)
        except (TimeoutError, ClientError) as error:
            await self._end(task)
            raise Unavailable("the test stream", str(error) or "the brokers do not let it in") from None

    async def stop(self) -> int:
        """All of them; how many there were."""
        running, self._running = list(self._running.values()), {}
        for task in running:
            await self._end(task)
        return len(running)

    @staticmethod
    async def _end(task: asyncio.Task[None] | None) -> None:
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError, ClientError):
                await task

    async def _run(self, key: tuple[str, str, str], rate_hz: int, is_running: "asyncio.Future[None]") -> None:
        source, destination, topic = key
        try:
            async with (
                connect(str(self._at[destination])) as reader,
                connect(str(self._at[source])) as writer,
            ):
                messages = reader.subscribe(topic, qos=0)
                reading = asyncio.create_task(_read(messages))
                is_running.set_result(None)
                try:
                    due_s = monotonic()
                    while True:
                        await writer.publish(topic, bytes(SIZE_BYTES), qos=0)
                        due_s = max(due_s + 1 / rate_hz, monotonic() - 1)
                        await asyncio.sleep(max(0.0, due_s - monotonic()))
                finally:
                    reading.cancel()
        except ClientError as error:
            if not is_running.done():
                is_running.set_exception(error)


async def _read(messages: Subscription) -> None:
    async for _ in messages:
        pass
