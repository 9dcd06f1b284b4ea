"""A broker that is killed again and again while clients that follow the protocol publish and subscribe."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

from faithful import Faithful, FaithfulPublisher, FaithfulSubscriber
from ledger import Ledger, balance, missing

from watched import WatchedBroker

PATIENCE_S = 120.0
LIMITS = '[limits]\nqueue_messages = 1000000\nqueue = "1GiB"\nconnections_per_second = 100000\n'
"""Whoever comes back later than others must not find its queue full: here only what is forgotten is counted."""
AT_ONCE = 0.2
"""The part of kills that come before anybody is back."""
TOPIC = "work"


class Killing:
    def __init__(self, broker: WatchedBroker, seed: int) -> None:
        self._broker = broker
        self._luck = Random(seed)
        port = broker.port
        self.publishers = [
            FaithfulPublisher(port, f"publisher-{qos}-{version}", version, f"{TOPIC}/{qos}/{version}", qos)
            for qos in (1, 2)
            for version in (4, 5)
        ]
        self.subscribers = [
            FaithfulSubscriber(port, f"subscriber-{qos}-{version}", version, f"{TOPIC}/#", qos)
            for qos in (1, 2)
            for version in (4, 5)
        ]
        self.keeper = FaithfulPublisher(port, "keeper", 5, "kept/number", 1, window=1, retain=True)
        self.kills = 0

    async def run(self, goes_on: Callable[[int], bool]) -> Ledger:
        """Kill as long as it goes on, told the number of kills; then let everything settle. What is left to judge."""
        everybody: list[Faithful] = [*self.subscribers, *self.publishers, self.keeper]
        async with asyncio.TaskGroup() as group:
            staying = [group.create_task(one.stay()) for one in self.subscribers]
            await self._until(lambda: all(one.is_subscribed for one in self.subscribers), "subscribed")
            staying += [group.create_task(one.stay()) for one in (*self.publishers, self.keeper)]
            while goes_on(self.kills):
                if self._luck.random() > AT_ONCE:
                    await self._until(lambda: all(one.is_connected for one in everybody), "all are back")
                    enough = self._acknowledged() + self._luck.randrange(1, 400)
                    await self._until(lambda enough=enough: self._acknowledged() > enough, "they go on")  # type: ignore[misc]
                    await asyncio.sleep(self._luck.random() * 0.05)
                self._broker.kill()
                self.kills += 1
                await asyncio.get_running_loop().run_in_executor(None, self._broker.start)
            for publisher in (*self.publishers, self.keeper):
                publisher.is_stopped = True
            await self._until(lambda: all(one.is_settled for one in (*self.publishers, self.keeper)), "settled")
            await self._until(lambda: not missing(self.publishers, self.subscribers), "nothing missing", give_up=False)
            async with asyncio.timeout(PATIENCE_S):
                while await self._queued():
                    await asyncio.sleep(0.1)
            for task in staying:
                task.cancel()
        return balance(self.publishers, self.subscribers)

    async def _queued(self) -> int:
        """What still waits for somebody, or for the end of an exchange."""
        status = await asyncio.get_running_loop().run_in_executor(None, self._broker.get, "/status")
        return int(status["queues"]["messages"])

    def _acknowledged(self) -> int:
        return sum(len(one.acknowledged) for one in self.publishers)

    async def _until(self, holds: Callable[[], bool], what: str, give_up: bool = True) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + PATIENCE_S
        while not holds():
            if loop.time() > until_s:
                assert not give_up, f"not {what} after {PATIENCE_S} s, and {self.kills} kills"
                return
            await asyncio.sleep(0.005)


def left_in(directory: Path) -> dict[str, int]:
    """How many records there are of each kind in the store of a broker that has ended."""
    with closing(sqlite3.connect(directory / "data" / "broker.db")) as store:
        return dict(store.execute("SELECT kind, count(*) FROM records GROUP BY kind"))
