"""The trial's side of its players: starts them beside their brokers, tells them when, and hears what came."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import monotonic_ns
from typing import TypeVar

import msgspec

from overlane.core.units import MS, Nanos
from overlane.errors import Unavailable
from overlane.network import Network
from overlane.testbed.ground import Ground
from overlane.testbed.players import Begin, End, Everything, HowMuch, News, Order, Reached, Recount, SoFar
from overlane.testbed.presence import is_for

A = TypeVar("A", SoFar, Everything)

REACH_S = 60.0
ANSWER_S = 30.0
GRACE_S = 5.0
HEAD_START_NS: Nanos = 300 * MS
"""What players get to hear of time zero before it comes."""
LINE_BYTES_MAX = 1 << 28


class Crew:
    def __init__(self, ground: Ground, file: Path, log: Path) -> None:
        self._ground = ground
        self._file = file
        self._log = log
        self._players: dict[str, Process] = {}
        self._decoder: msgspec.json.Decoder[News] = msgspec.json.Decoder(News)

    async def start(self) -> None:
        network = self._ground.network
        brokers = [one.broker for one in network.publishers] + [one.broker for one in network.subscribers]
        for broker in dict.fromkeys(brokers):
            argv = [sys.executable, "-m", "overlane.testbed.players", str(self._file), broker]
            with self._log.open("ab") as log:
                self._players[broker] = await asyncio.create_subprocess_exec(
                    *self._ground.command(broker, argv),
                    stdin=PIPE,
                    stdout=PIPE,
                    stderr=log,
                    start_new_session=True,
                    limit=LINE_BYTES_MAX,
                )

    async def reach(self) -> None:
        """Until every publisher reaches every subscriber who is there from the start; Unavailable if one does not."""
        missing = set(_reachable(self._ground.network))
        hearing = [asyncio.create_task(self._hear_reached(broker, missing)) for broker in self._players]
        try:
            async with asyncio.timeout(REACH_S):
                while missing:
                    done, _ = await asyncio.wait(hearing, return_when=asyncio.FIRST_COMPLETED, timeout=0.02)
                    for task in done:
                        task.result()
        except TimeoutError:
            network = self._ground.network
            subscriber, publisher = min(missing)
            who = f"{network.subscribers[subscriber].topic} at {network.subscribers[subscriber].broker}"
            topic = network.publishers[publisher].topic
            raise Unavailable(topic, f"does not reach the subscriber to {who} within {REACH_S:g} s") from None
        finally:
            for task in hearing:
                task.cancel()
            await asyncio.gather(*hearing, return_exceptions=True)

    async def _hear_reached(self, broker: str, missing: set[tuple[int, int]]) -> None:
        while True:
            match await self._hear(broker):
                case Reached(subscriber, publisher):
                    missing.discard((subscriber, publisher))
                case _:
                    raise AssertionError("nothing else was asked for")

    def begin(self, duration_ns: Nanos) -> Nanos:
        """Tell time zero, which is what this gives."""
        start_ns = monotonic_ns() + HEAD_START_NS
        for broker in self._players:
            self._say(broker, Begin(start_ns, duration_ns))
        return start_ns

    async def under_way(self) -> set[int]:
        """The publishers of whom somebody still waits for something, as far as counting can tell."""
        published: dict[int, int] = {}
        received: Counter[int] = Counter()
        for broker in self._players:
            self._say(broker, HowMuch())
            so_far = await self._answer(broker, SoFar)
            published |= so_far.published
            received.update(so_far.received)
        subscribers = Counter(publisher for _, publisher in _pairs(self._ground.network))
        return {one for one, count in published.items() if received[one] < count * subscribers[one]}

    async def recount(self) -> list[Everything]:
        """What each of them has seen so far. They go on."""
        for broker in self._players:
            self._say(broker, Recount())
        return [await self._answer(broker, Everything) for broker in self._players]

    async def everything(self) -> list[Everything]:
        """What each of them has seen. They end with that."""
        for broker in self._players:
            self._say(broker, End())
        return [await self._answer(broker, Everything) for broker in self._players]

    async def end(self) -> None:
        """They end when nobody speaks to them any more; who does not is killed."""
        for process in self._players.values():
            assert process.stdin is not None
            process.stdin.close()
        for process in self._players.values():
            try:
                await asyncio.wait_for(process.wait(), GRACE_S)
            except TimeoutError:
                process.kill()
                await process.wait()
        self._players.clear()

    def _say(self, broker: str, order: Order) -> None:
        stdin = self._players[broker].stdin
        assert stdin is not None
        stdin.write(msgspec.json.encode(order) + b"\n")

    async def _answer(self, broker: str, kind: type[A]) -> A:
        async with asyncio.timeout(ANSWER_S):
            while True:
                news = await self._hear(broker)
                if isinstance(news, kind):
                    return news

    async def _hear(self, broker: str) -> News:
        stdout = self._players[broker].stdout
        assert stdout is not None
        line = await stdout.readline()
        if not line:
            words = self._log.read_text(errors="replace").strip()
            raise Unavailable(f"the clients at {broker}", f"ended\n{words}".rstrip())
        return self._decoder.decode(line)


def _pairs(network: Network) -> Sequence[tuple[int, int]]:
    """Every subscriber with every publisher that it hears."""
    return [
        (number, other)
        for number, subscriber in enumerate(network.subscribers)
        for other, publisher in enumerate(network.publishers)
        if is_for(network, publisher, subscriber)
    ]


def _reachable(network: Network) -> Sequence[tuple[int, int]]:
    """Those of them where both are there from the start."""
    absent = network.absent_at_start()
    return [
        (number, other)
        for number, other in _pairs(network)
        if network.subscribers[number].start_ns == 0
        if network.subscribers[number].broker not in absent and network.publishers[other].broker not in absent
    ]
