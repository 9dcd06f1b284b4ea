"""The publishers and subscribers of one broker in a trial, as MQTT clients in one process at the broker's site.

    connect -> publishers probe until every subscriber is reached -> Begin -> traffic -> End -> observations

A message carries its publisher, its number and its send time on the clock that all processes of the machine share, so
the latency is measured from application to application. Reliable topics use QoS 1, others QoS 0.

As in the simulator, a publisher has a slot every 1/rate seconds; slots while its broker is away are skipped. The trial
sends commands on standard input and receives messages on standard output, one JSON value per line.
"""

import asyncio
import struct
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from time import monotonic_ns
from typing import TypeAlias

import msgspec
import uvloop

from overlane.client import Client, Subscription, Unreachable, connect
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.network import Publisher, Subscriber, read_network
from overlane.network.endpoints import endpoints
from overlane.network.schema import Network
from overlane.sim.setup import SimulationSetup

PROBE_S = 0.1
_STAMP = struct.Struct("!IQQ")
_PROBE = 0xFFFF_FFFF


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """Time zero and duration."""

    start_ns: Nanos
    duration_ns: Nanos


class CountsRequest(msgspec.Struct, frozen=True, tag="how-much"):
    """Request for counts."""


class ObservationsRequest(msgspec.Struct, frozen=True, tag="recount"):
    """Request for the observations so far."""


class End(msgspec.Struct, frozen=True, tag="end"):
    """Request for all observations; the process then exits."""


class Reached(msgspec.Struct, frozen=True, tag="reached"):
    """A probe of this publisher has reached this subscriber."""

    subscriber: int
    publisher: int


class Counts(msgspec.Struct, frozen=True, tag="so-far"):
    """Messages published and received here, by publisher."""

    published: dict[int, int]
    received: dict[int, int]


class Published(msgspec.Struct, frozen=True):
    """The publish times of a publisher, relative to time zero."""

    publisher: int
    times_ns: list[Nanos]


class Received(msgspec.Struct, frozen=True):
    """What a subscriber received from a publisher: numbers and latencies of messages, and the numbers of duplicates."""

    subscriber: int
    publisher: int
    numbers: list[int]
    latencies_ns: list[Nanos]
    again: list[int]


class Observations(msgspec.Struct, frozen=True, tag="everything"):
    written: list[Published]
    read: list[Received]


Command: TypeAlias = Begin | CountsRequest | ObservationsRequest | End
ClientMessage: TypeAlias = Reached | Counts | Observations


def main() -> None:
    file, broker = sys.argv[1:]
    with suppress(KeyboardInterrupt):
        uvloop.run(_run(read_network(Path(file)), broker))


async def _run(network: Network, broker: str) -> None:
    plan = SimulationSetup(network, None, None)
    address = str(endpoints(network, broker).mqtt)
    readers = [SubscriberClient(number, one) for number, one in enumerate(network.subscribers) if one.broker == broker]
    writers = [
        PublisherClient(number, one, 1 if plan.qos_of(one.topic).reliable else 0)
        for number, one in enumerate(network.publishers)
        if one.broker == broker
    ]
    begin: asyncio.Future[Begin] = asyncio.get_running_loop().create_future()
    everybody: list[SubscriberClient | PublisherClient] = [*readers, *writers]
    tasks = [asyncio.create_task(one.run(address, begin)) for one in everybody]
    try:
        await _run_commands(begin, readers, writers)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run_commands(
    begin: "asyncio.Future[Begin]", readers: "list[SubscriberClient]", writers: "list[PublisherClient]"
) -> None:
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    decoder = msgspec.json.Decoder(Command)
    while line := await commands.readline():
        match decoder.decode(line):
            case Begin() as command:
                begin.set_result(command)
            case CountsRequest():
                published = {writer.number: len(writer.times_ns) for writer in writers}
                received: Counter[int] = Counter()
                for reader in readers:
                    received.update({publisher: len(one.numbers) for publisher, one in reader.read.items()})
                _send_message(Counts(published, received))
            case ObservationsRequest():
                _send_message(_everything(readers, writers))
            case End():
                _send_message(_everything(readers, writers))
                return


def _everything(readers: "list[SubscriberClient]", writers: "list[PublisherClient]") -> Observations:
    read = [one for reader in readers for one in reader.read.values()]
    return Observations([Published(writer.number, writer.times_ns) for writer in writers], read)


def _send_message(message: ClientMessage) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


async def _connected(address: str, name: str) -> Client:
    """Connect once the broker is running: it may join later."""
    while True:
        with suppress(Unreachable):
            return await connect(address, client_id=name, session_expiry="10m", pause_max="300ms")
        await asyncio.sleep(PROBE_S)


async def _until(moment_ns: Nanos) -> None:
    await asyncio.sleep(max(0, moment_ns - monotonic_ns()) / SECOND)


class SubscriberClient:
    """One subscriber, from its start to its stop. A start at time zero means: before the trial begins."""

    def __init__(self, number: int, described: Subscriber) -> None:
        self.number = number
        self._described = described
        self._reached: set[int] = set()
        self._seen: set[tuple[int, int]] = set()
        self.read: dict[int, Received] = {}

    async def run(self, address: str, begin: "asyncio.Future[Begin]") -> None:
        if self._described.start_ns:
            await _until((await begin).start_ns + self._described.start_ns)
        async with await _connected(address, f"subscriber-{self.number}") as client:
            subscription = client.subscribe(self._described.topic, qos=1)
            going = asyncio.create_task(self._go(subscription, begin))
            try:
                async for message in subscription:
                    self._got(bytes(message.body))
            finally:
                going.cancel()

    async def _go(self, subscription: Subscription, begin: "asyncio.Future[Begin]") -> None:
        if self._described.stop_ns is not None:
            await _until((await begin).start_ns + self._described.stop_ns)
            await subscription.unsubscribe()

    def _got(self, body: bytes) -> None:
        now = monotonic_ns()
        publisher, number, sent_ns = _STAMP.unpack_from(body)
        if number == _PROBE:
            if publisher not in self._reached:
                self._reached.add(publisher)
                _send_message(Reached(self.number, publisher))
            return
        read = self.read.setdefault(publisher, Received(self.number, publisher, [], [], []))
        if (publisher, number) in self._seen:
            read.again.append(number)
        else:
            self._seen.add((publisher, number))
            read.numbers.append(number)
            read.latencies_ns.append(now - sent_ns)


class PublisherClient:
    """One publisher: a message in every slot, whether or not the previous one was acknowledged."""

    def __init__(self, number: int, described: Publisher, qos: int) -> None:
        self.number = number
        self._described = described
        self._qos = qos
        self._sending: set[asyncio.Task[None]] = set()
        self.times_ns: list[Nanos] = []

    async def run(self, address: str, begin: "asyncio.Future[Begin]") -> None:
        async with await _connected(address, f"publisher-{self.number}") as client:
            await self._publish(client, begin)

    async def _publish(self, client: Client, begin: "asyncio.Future[Begin]") -> None:
        while not begin.done():
            await self._send(client, _PROBE)
            await asyncio.wait([begin], timeout=PROBE_S)
        start_ns, duration_ns = begin.result().start_ns, begin.result().duration_ns
        stop_ns = min(duration_ns, NEVER if self._described.stop_ns is None else self._described.stop_ns)
        slot = 0
        while (due_ns := self._described.start_ns + int(slot * SECOND / self._described.rate_hz)) < stop_ns:
            await _until(start_ns + due_ns)
            if client.connected:
                task = asyncio.create_task(self._send(client, len(self.times_ns)))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)
                self.times_ns.append(monotonic_ns() - start_ns)
            slot += 1
        await asyncio.gather(*self._sending, return_exceptions=True)

    async def _send(self, client: Client, number: int) -> None:
        stamp = _STAMP.pack(self.number, number, monotonic_ns())
        body = stamp + bytes(max(0, self._described.size_bytes - len(stamp)))
        await client.publish(self._described.topic, body, qos=self._qos)


if __name__ == "__main__":
    main()
