"""`overlane sub`: what is published, shown, counted, or timed.

Exit status: 0 done or interrupted, 1 the broker cannot be reached or refuses, 2 the request makes no sense.
"""

import asyncio
import sys
from typing import Annotated

import msgspec
import typer
import uvloop
from rich.console import Console

from overlane.cli import clientoptions as common
from overlane.cli.traffic import Traffic
from overlane.cli.traffic_view import shown, summary
from overlane.client import Client, Message, Qos, Subscription, TopicQos
from overlane.client.clocks import now_ns
from overlane.client.qos import duration_ns
from overlane.core.units import NEVER

UNREAD_MAX = 10_000


def sub(
    address: common.Address,
    filters: Annotated[list[str], typer.Argument(metavar="FILTER...", help="What to hear.", show_default=False)],
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="End after so many.")] = None,
    qos: common.Level = None,
    show: Annotated[
        bool, typer.Option("--show", help="Print every message: topic and body, or JSON with --json.")
    ] = False,
    latency: Annotated[
        bool, typer.Option("--latency", help="Tell how long messages of `overlane pub --stamp` took.")
    ] = False,
    deadline: common.Deadline = None,
    reliability: common.Sureness = None,
    no_retained: Annotated[bool, typer.Option("--no-retained", help="Leave out what was retained before.")] = False,
    client_id: common.ClientId = None,
    user: common.User = None,
    password_file: common.PasswordFile = None,
    tls_ca: common.TlsCa = None,
    tls_certificate: common.TlsCertificate = None,
    tls_key: common.TlsKey = None,
    as_json: common.AsJson = False,
) -> None:
    """Subscribe: show messages, or their rate, or how long they took."""
    with common.told():
        level = TopicQos(deadline, reliability, None if qos is None else Qos(qos))
        client = common.client_at(address, client_id, user, password_file, tls_ca, tls_certificate, tls_key)
        hearing = Hearing(filters, level, no_retained, count, show, as_json, latency)
        uvloop.run(_run(client, hearing))
    hearing.tell()


class Hearing:
    """One run: what to hear, and what was heard."""

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

    def hear(self, batch: list[Message]) -> bool:
        """True when that was all."""
        # Its time runs from the first message to the last, whatever silence is around them.
        self.traffic.ended = now_ns()
        if not self.traffic.messages:
            self.traffic.began = self.traffic.ended
        if self._left is not None:
            batch = batch[: self._left]
            self._left -= len(batch)
        self.traffic.count(len(batch), sum(len(message.body) for message in batch))
        for message in batch:
            if message.retained:
                # How long it has lain there tells nothing about how long it took.
                self._retained += 1
            elif self._latency:
                age_ns = message.age_ns
                if age_ns is None:
                    self._unstamped += 1
                else:
                    self.traffic.took(age_ns)
        if self._show:
            for message in batch:
                sys.stdout.buffer.write(_as_json(message) if self._as_json else _as_line(message))
            sys.stdout.buffer.flush()
        return self._left == 0

    def tell(self) -> None:
        traffic = self.traffic
        if not self._as_json:
            notes = []
            if self._latency and self._unstamped:
                notes.append(f"{self._unstamped:,} messages had no stamp: publish them with `overlane pub --stamp`")
            # Beside messages on standard output, the summary would be in the way.
            summary(Console(stderr=self._show, highlight=False), traffic, "received", "latency", notes)
            return
        told = {
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
        typer.echo(msgspec.json.encode(told), err=self._show)


async def _run(client: Client, hearing: Hearing) -> None:
    interrupted = common.interrupted()
    async with client:
        retained = "never" if hearing.no_retained else "always"
        subscription = client.subscribe(*hearing.filters, qos=hearing.level, retained=retained, unread_max=UNREAD_MAX)
        await subscription.ready()
        async with shown(hearing.traffic, "received", hearing.is_quiet):
            reading = asyncio.create_task(_read(subscription, hearing))
            stopping = asyncio.create_task(interrupted.wait())
            await asyncio.wait([reading, stopping], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if reading.done():
                reading.result()
            reading.cancel()
            await asyncio.wait([reading])


async def _read(subscription: Subscription, hearing: Hearing) -> None:
    async for batch in subscription.batches():
        if hearing.hear(batch):
            return


def _as_line(message: Message) -> bytes:
    return message.topic.encode() + b" " + message.body + b"\n"


def _as_json(message: Message) -> bytes:
    """A body that is text as `text`, another as `base64`."""
    told: dict[str, object] = {"topic": message.topic, "qos": int(message.qos), "retained": message.retained}
    try:
        told["text"] = message.body.decode()
    except UnicodeDecodeError:
        told["base64"] = message.body
    if message.property_pairs:
        told["properties"] = message.property_pairs
    if message.age_ns is not None:
        told["age_ms"] = round(message.age_ns / 1_000_000, 4)
    return msgspec.json.encode(told) + b"\n"
