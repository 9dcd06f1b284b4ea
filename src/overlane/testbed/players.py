"""The publishers and subscribers at one broker as MQTT clients: a process of its own, where the broker is.

    connect -> publishers probe until every subscriber is known to be reached -> Begin -> traffic -> End -> what came

A message carries its publisher, its number and when it was sent, by the clock that all processes of the machine share;
so its latency is from application to application. Reliable topics travel with QoS 1, others with QoS 0.

As in the simulator, a publisher has a slot every 1/rate seconds, and slots that pass while its broker is away are left
out. The trial speaks on standard input and hears on standard output, a JSON value a line.
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
from overlane.sim.setup import Plan

PROBE_S = 0.1
_STAMP = struct.Struct("!IQQ")
_PROBE = 0xFFFF_FFFF


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """Time zero, and how long."""

    start_ns: Nanos
    duration_ns: Nanos


class HowMuch(msgspec.Struct, frozen=True, tag="how-much"):
    """How much has come?"""


class Recount(msgspec.Struct, frozen=True, tag="recount"):
    """Tell everything so far, and go on."""


class End(msgspec.Struct, frozen=True, tag="end"):
    """Tell everything, and end."""


class Reached(msgspec.Struct, frozen=True, tag="reached"):
    """A probe of this publisher has come to this subscriber."""

    subscriber: int
    publisher: int


class SoFar(msgspec.Struct, frozen=True, tag="so-far"):
    """How many messages of each publisher were published here, and how many have come here."""

    published: dict[int, int]
    received: dict[int, int]


class Written(msgspec.Struct, frozen=True):
    """When each message of a publisher was published, counted from time zero."""

    publisher: int
    times_ns: list[Nanos]


class Read(msgspec.Struct, frozen=True):
    """What a subscriber has got from a publisher: the numbers and latencies of messages, each once, and the numbers of
    those that came again."""

    subscriber: int
    publisher: int
    numbers: list[int]
    latencies_ns: list[Nanos]
    again: list[int]


class Everything(msgspec.Struct, frozen=True, tag="everything"):
    written: list[Written]
    read: list[Read]


Order: TypeAlias = Begin | HowMuch | Recount | End
News: TypeAlias = Reached | SoFar | Everything


def main() -> None:
    file, broker = sys.argv[1:]
    with suppress(KeyboardInterrupt):
        uvloop.run(_play(read_network(Path(file)), broker))


async def _play(network: Network, broker: str) -> None:
    plan = Plan(network, None, None)
    address = str(endpoints(network, broker).mqtt)
    readers = [Reader(number, one) for number, one in enumerate(network.subscribers) if one.broker == broker]
    writers = [
        Writer(number, one, 1 if plan.qos_of(one.topic).reliable else 0)
        for number, one in enumerate(network.publishers)
        if one.broker == broker
    ]
    begin: asyncio.Future[Begin] = asyncio.get_running_loop().create_future()
    everybody: list[Reader | Writer] = [*readers, *writers]
    tasks = [asyncio.create_task(one.run(address, begin)) for one in everybody]
    try:
        await _obey(begin, readers, writers)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _obey(begin: "asyncio.Future[Begin]", readers: "list[Reader]", writers: "list[Writer]") -> None:
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    decoder = msgspec.json.Decoder(Order)
    while line := await orders.readline():
        match decoder.decode(line):
            case Begin() as order:
                begin.set_result(order)
            case HowMuch():
                published = {writer.number: len(writer.times_ns) for writer in writers}
                received: Counter[int] = Counter()
                for reader in readers:
                    received.update({publisher: len(one.numbers) for publisher, one in reader.read.items()})
                _tell(SoFar(published, received))
            case Recount():
                _tell(_everything(readers, writers))
            case End():
                _tell(_everything(readers, writers))
                return


def _everything(readers: "list[Reader]", writers: "list[Writer]") -> Everything:
    read = [one for reader in readers for one in reader.read.values()]
    return Everything([Written(writer.number, writer.times_ns) for writer in writers], read)


def _tell(news: News) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(news) + b"\n")
    sys.stdout.buffer.flush()


async def _connected(address: str, name: str) -> Client:
    """Once the broker is there: one that joins later is not yet."""
    while True:
        with suppress(Unreachable):
            return await connect(address, client_id=name, session_expiry="10m", pause_max="300ms")
        await asyncio.sleep(PROBE_S)


async def _until(moment_ns: Nanos) -> None:
    await asyncio.sleep(max(0, moment_ns - monotonic_ns()) / SECOND)


class Reader:
    """One subscriber, from its start to its stop. One that starts at time zero is there before."""

    def __init__(self, number: int, described: Subscriber) -> None:
        self.number = number
        self._described = described
        self._reached: set[int] = set()
        self._seen: set[tuple[int, int]] = set()
        self.read: dict[int, Read] = {}

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
                _tell(Reached(self.number, publisher))
            return
        read = self.read.setdefault(publisher, Read(self.number, publisher, [], [], []))
        if (publisher, number) in self._seen:
            read.again.append(number)
        else:
            self._seen.add((publisher, number))
            read.numbers.append(number)
            read.latencies_ns.append(now - sent_ns)


class Writer:
    """One publisher: a message in every slot, whether or not the last was acknowledged."""

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
