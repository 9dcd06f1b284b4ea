"""`overlane sub`: receive messages; print, count or time them.

Exit status: 0 done or interrupted, 1 the broker cannot be reached or rejects the request, 2 invalid options.
"""

import asyncio
import sys
from typing import Annotated

import msgspec
import typer
import uvloop
from rich.console import Console

from overlane.cli.client import client_options as common
from overlane.cli.simulation.traffic import Traffic
from overlane.cli.simulation.traffic_view import shown, summary
from overlane.client import Client, Message, Qos, Subscription, TopicQos
from overlane.client.clocks import now_ns
from overlane.client.qos import duration_ns
from overlane.core.units import NEVER

UNREAD_MAX = 10_000


def sub(
    address: common.Address,
    filters: Annotated[
        list[str], typer.Argument(metavar="FILTER...", help="Topic filters to subscribe to.", show_default=False)
    ],
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="Exit after N messages.")] = None,
    qos: common.QosLevel = None,
    show: Annotated[
        bool, typer.Option("--show", help="Print each message: topic and body, or JSON with --json.")
    ] = False,
    latency: Annotated[
        bool, typer.Option("--latency", help="Measure the latency of messages published with `overlane pub --stamp`.")
    ] = False,
    deadline: common.Deadline = None,
    reliability: common.ReliabilityClass = None,
    no_retained: Annotated[bool, typer.Option("--no-retained", help="Do not receive retained messages.")] = False,
    client_id: common.ClientId = None,
    user: common.User = None,
    password_file: common.PasswordFile = None,
    tls_ca: common.TlsCa = None,
    tls_certificate: common.TlsCertificate = None,
    tls_key: common.TlsKey = None,
    as_json: common.AsJson = False,
) -> None:
    """Subscribe to topics: print messages, or show their rate or latency."""
    with common.exit_on_client_error():
        level = TopicQos(deadline, reliability, None if qos is None else Qos(qos))
        client = common.client_at(address, client_id, user, password_file, tls_ca, tls_certificate, tls_key)
        receiver = Receiver(filters, level, no_retained, count, show, as_json, latency)
        uvloop.run(_run(client, receiver))
    receiver.print_summary()


class Receiver:
    """The options of one run, and what it has received."""

    def __init__(
        self,
        filters: list[str],
        level: TopicQos,
        no_retained: bool,
        count: int | None,
        show: bool,
        as_json: bool,
        latency: bool,
    ) -> None:
        self.filters = filters
        self.level = level
        self.no_retained = no_retained
        self.is_quiet = show or as_json
        self._left = count
        self._show = show
        self._as_json = as_json
        self._latency = latency
        self._retained = 0
        self._unstamped = 0
        self.traffic = Traffic(
            began=now_ns(),
            ended=now_ns(),
            deadline_ns=NEVER if level.deadline is None else duration_ns(level.deadline, "deadline"),
        )

    def receive(self, batch: list[Message]) -> bool:
        """True once `count` messages have been received."""
        # The measured time runs from the first message to the last.
        self.traffic.ended = now_ns()
        if not self.traffic.messages:
            self.traffic.began = self.traffic.ended
        if self._left is not None:
            batch = batch[: self._left]
            self._left -= len(batch)
        self.traffic.count(len(batch), sum(len(message.body) for message in batch))
        for message in batch:
            if message.retained:
                # The age of a retained message is not a latency.
                self._retained += 1
            elif self._latency:
                age_ns = message.age_ns
                if age_ns is None:
                    self._unstamped += 1
                else:
                    self.traffic.add_latency(age_ns)
        if self._show:
            for message in batch:
                sys.stdout.buffer.write(_as_json(message) if self._as_json else _as_line(message))
            sys.stdout.buffer.flush()
        return self._left == 0

    def print_summary(self) -> None:
        traffic = self.traffic
        if not self._as_json:
            notes = []
            if self._latency and self._unstamped:
                notes.append(f"{self._unstamped:,} messages had no time stamp: publish with `overlane pub --stamp`")
            # Standard output is for the messages if these are printed.
            summary(Console(stderr=self._show, highlight=False), traffic, "received", "latency", notes)
            return
        result = {
            "filters": self.filters,
            "received": traffic.messages,
            "bytes": traffic.size_bytes,
            "retained": self._retained,
            "seconds": traffic.seconds,
            "messages_per_second": traffic.messages_per_second,
            "latency_ms": traffic.latencies.percentiles_ms(),
            "timed": traffic.latencies.count,
            "in_time": traffic.in_time if traffic.deadline_ns < NEVER else None,
        }
        typer.echo(msgspec.json.encode(result), err=self._show)


async def _run(client: Client, receiver: Receiver) -> None:
    interrupted = common.interrupted()
    async with client:
        retained = "never" if receiver.no_retained else "always"
        subscription = client.subscribe(*receiver.filters, qos=receiver.level, retained=retained, unread_max=UNREAD_MAX)
        await subscription.ready()
        async with shown(receiver.traffic, "received", receiver.is_quiet):
            reading = asyncio.create_task(_read(subscription, receiver))
            stopping = asyncio.create_task(interrupted.wait())
            await asyncio.wait([reading, stopping], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if reading.done():
                reading.result()
            reading.cancel()
            await asyncio.wait([reading])


async def _read(subscription: Subscription, receiver: Receiver) -> None:
    async for batch in subscription.batches():
        if receiver.receive(batch):
            return


def _as_line(message: Message) -> bytes:
    return message.topic.encode() + b" " + message.body + b"\n"


def _as_json(message: Message) -> bytes:
    """The body as `text` if it is UTF-8, otherwise as `base64`."""
    fields: dict[str, object] = {"topic": message.topic, "qos": int(message.qos), "retained": message.retained}
    try:
        fields["text"] = message.body.decode()
    except UnicodeDecodeError:
        fields["base64"] = message.body
    if message.property_pairs:
        fields["properties"] = message.property_pairs
    if message.age_ns is not None:
        fields["age_ms"] = round(message.age_ns / 1_000_000, 4)
    return msgspec.json.encode(fields) + b"\n"
