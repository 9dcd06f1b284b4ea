"""The publishers and subscribers of a network file as MQTT clients that run, and the tally of what they see.

A message carries its publisher, its number and when it was sent, by the clock that all processes of the machine share;
so its latency is from application to application. Reliable topics travel with QoS 1, others with QoS 0.
"""

import asyncio
import struct
from dataclasses import dataclass, field
from time import monotonic_ns

from overlane.client import Client, connect
from overlane.core.qos import QosClass
from overlane.core.topics import matches
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.errors import Unavailable
from overlane.network.schema import Publisher, Subscriber

REACH_S = 30.0

_STAMP = struct.Struct("!IQQ")
_PROBE = 0xFFFF_FFFF


@dataclass(slots=True)
class Row:
    """What is counted of the topics of one row of the report."""

    deadline_ns: Nanos
    published: int = 0
    expected: int = 0
    delivered: int = 0
    in_time: int = 0
    duplicates: int = 0
    latencies_ns: list[Nanos] = field(default_factory=list)


class Reader:
    """One subscriber: what it has got."""

    def __init__(self, described: Subscriber, rows: dict[int, Row]) -> None:
        self.described = described
        self._rows = rows
        self._seen: set[tuple[int, int]] = set()
        self.reached_by: set[int] = set()

    async def run(self, client: Client, qos: int) -> None:
        async for message in client.subscribe(self.described.topic, qos=qos):
            body = bytes(message.body)
            now = monotonic_ns()
            publisher, number, sent_ns = _STAMP.unpack_from(body)
            if number == _PROBE:
                self.reached_by.add(publisher)
                continue
            row = self._rows[publisher]
            if (publisher, number) in self._seen:
                row.duplicates += 1
                continue
            self._seen.add((publisher, number))
            row.delivered += 1
            row.in_time += now - sent_ns <= row.deadline_ns
            row.latencies_ns.append(now - sent_ns)


class Writer:
    """One publisher: a message every so often, whether or not the last was acknowledged."""

    def __init__(self, number: int, described: Publisher, row: Row, qos: QosClass, readers: list[Reader]) -> None:
        self._number = number
        self.described = described
        self._row = row
        self._qos = 1 if qos.reliable else 0
        self._readers = [one for one in readers if matches(one.described.topic, described.topic)]
        self._sending: set[asyncio.Task[None]] = set()

    async def reach(self, client: Client) -> None:
        """Until every subscriber of the topic is known to be one."""
        until = monotonic_ns() + int(REACH_S * SECOND)
        while any(self._number not in reader.reached_by for reader in self._readers):
            if monotonic_ns() > until:
                raise Unavailable(self.described.topic, f"does not reach its subscribers within {REACH_S:g} s")
            await self._send(client, _PROBE)
            await asyncio.sleep(0.1)

    async def run(self, client: Client, start_ns: Nanos, stop_ns: Nanos) -> None:
        interval_ns = int(SECOND / self.described.rate_hz)
        first_ns = start_ns + self.described.start_ns
        last_ns = min(stop_ns, start_ns + (self.described.stop_ns or NEVER))
        count = 0
        while (due_ns := first_ns + count * interval_ns) < last_ns:
            await asyncio.sleep(max(0, due_ns - monotonic_ns()) / SECOND)
            task = asyncio.create_task(self._send(client, count))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
            self._row.published += 1
            self._row.expected += len(self._readers)
            count += 1

    async def finish(self) -> None:
        await asyncio.gather(*self._sending, return_exceptions=True)

    async def _send(self, client: Client, number: int) -> None:
        stamp = _STAMP.pack(self._number, number, monotonic_ns())
        body = stamp + bytes(max(0, self.described.size_bytes - len(stamp)))
        await client.publish(self.described.topic, body, qos=self._qos)


def client_of(address: str, name: str) -> Client:
    return connect(address, client_id=name, session_expiry="10m", pause_max="300ms")
