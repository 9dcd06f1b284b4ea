"""The client processes of a trial: starts them beside their brokers, synchronises them, and collects results."""

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
from overlane.testbed.environment import Environment
from overlane.testbed.presence import is_for
from overlane.testbed.trial_clients import (
    Begin,
    ClientMessage,
    Command,
    Counts,
    CountsRequest,
    End,
    Observations,
    ObservationsRequest,
    Reached,
)

A = TypeVar("A", Counts, Observations)

REACH_S = 60.0
ANSWER_S = 30.0
GRACE_S = 5.0
HEAD_START_NS: Nanos = 300 * MS
"""Time between the announcement of time zero and time zero."""
LINE_BYTES_MAX = 1 << 28


class ClientProcesses:
    def __init__(self, environment: Environment, file: Path, log: Path) -> None:
        self._environment = environment
        self._file = file
        self._log = log
        self._processes: dict[str, Process] = {}
        self._decoder: msgspec.json.Decoder[ClientMessage] = msgspec.json.Decoder(ClientMessage)

    async def start(self) -> None:
        network = self._environment.network
        brokers = [one.broker for one in network.publishers] + [one.broker for one in network.subscribers]
        for broker in dict.fromkeys(brokers):
            argv = [sys.executable, "-m", "overlane.testbed.trial_clients", str(self._file), broker]
            with self._log.open("ab") as log:
                self._processes[broker] = await asyncio.create_subprocess_exec(
                    *self._environment.command(broker, argv),
                    stdin=PIPE,
                    stdout=PIPE,
                    stderr=log,
                    start_new_session=True,
                    limit=LINE_BYTES_MAX,
                )

    async def wait_until_reached(self) -> None:
        """Wait until every publisher reaches every initial subscriber; Unavailable if one does not."""
        missing = set(_reachable(self._environment.network))
        receiving = [asyncio.create_task(self._receive_reached(broker, missing)) for broker in self._processes]
        try:
            async with asyncio.timeout(REACH_S):
                while missing:
                    done, _ = await asyncio.wait(receiving, return_when=asyncio.FIRST_COMPLETED, timeout=0.02)
                    for task in done:
                        task.result()
        except TimeoutError:
            network = self._environment.network
            subscriber, publisher = min(missing)
            who = f"{network.subscribers[subscriber].topic} at {network.subscribers[subscriber].broker}"
            topic = network.publishers[publisher].topic
            raise Unavailable(topic, f"does not reach the subscriber of {who} within {REACH_S:g} s") from None
        finally:
            for task in receiving:
                task.cancel()
            await asyncio.gather(*receiving, return_exceptions=True)

    async def _receive_reached(self, broker: str, missing: set[tuple[int, int]]) -> None:
        while True:
            match await self._receive(broker):
                case Reached(subscriber, publisher):
                    missing.discard((subscriber, publisher))
                case _:
                    raise AssertionError("unexpected message from a client process")

    def begin(self, duration_ns: Nanos) -> Nanos:
        """Announce time zero; returns it."""
        start_ns = monotonic_ns() + HEAD_START_NS
        for broker in self._processes:
            self._send(broker, Begin(start_ns, duration_ns))
        return start_ns

    async def publishers_pending(self) -> set[int]:
        """Publishers with undelivered messages, judged by counts."""
        published: dict[int, int] = {}
        received: Counter[int] = Counter()
        for broker in self._processes:
            self._send(broker, CountsRequest())
            counts = await self._answer(broker, Counts)
            published |= counts.published
            received.update(counts.received)
        subscribers = Counter(publisher for _, publisher in _pairs(self._environment.network))
        return {one for one, count in published.items() if received[one] < count * subscribers[one]}

    async def observations(self) -> list[Observations]:
        """The observations of all clients so far."""
        for broker in self._processes:
            self._send(broker, ObservationsRequest())
        return [await self._answer(broker, Observations) for broker in self._processes]

    async def final_observations(self) -> list[Observations]:
        """The observations of all clients, which then exit."""
        for broker in self._processes:
            self._send(broker, End())
        return [await self._answer(broker, Observations) for broker in self._processes]

    async def end(self) -> None:
        """Close their input, which makes them exit; kill those that do not."""
        for process in self._processes.values():
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes.values():
            try:
                async with asyncio.timeout(GRACE_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        self._processes.clear()

    def _send(self, broker: str, command: Command) -> None:
        stdin = self._processes[broker].stdin
        assert stdin is not None
        stdin.write(msgspec.json.encode(command) + b"\n")

    async def _answer(self, broker: str, kind: type[A]) -> A:
        async with asyncio.timeout(ANSWER_S):
            while True:
                message = await self._receive(broker)
                if isinstance(message, kind):
                    return message

    async def _receive(self, broker: str) -> ClientMessage:
        stdout = self._processes[broker].stdout
        assert stdout is not None
        line = await stdout.readline()
        if not line:
            words = self._log.read_text(errors="replace").strip()
            raise Unavailable(f"the clients at {broker}", f"ended\n{words}".rstrip())
        return self._decoder.decode(line)


def _pairs(network: Network) -> Sequence[tuple[int, int]]:
    """Pairs of subscriber and publisher with matching topics."""
    return [
        (number, other)
        for number, subscriber in enumerate(network.subscribers)
        for other, publisher in enumerate(network.publishers)
        if is_for(network, publisher, subscriber)
    ]


def _reachable(network: Network) -> Sequence[tuple[int, int]]:
    """Those pairs where both are present from the start."""
    absent = network.absent_at_start()
    return [
        (number, other)
        for number, other in _pairs(network)
        if network.subscribers[number].start_ns == 0
        if network.subscribers[number].broker not in absent and network.publishers[other].broker not in absent
    ]
