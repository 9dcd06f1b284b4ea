"""`overlane pub`: publish one message, lines of standard input, or generated messages.

Exit status: 0 done or interrupted, 1 the broker cannot be reached or rejects the request, 2 invalid options.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec
import typer
import uvloop
from rich.console import Console

from overlane.cli.client import client_options as common
from overlane.cli.simulation.traffic import Traffic
from overlane.cli.simulation.traffic_view import shown, summary
from overlane.client import Client, InvalidRequest, Qos, TopicQos
from overlane.client.clocks import now_ns
from overlane.core.units import SECOND

IN_FLIGHT_MAX = 2_000
"""QoS 1 and 2 messages that may be unacknowledged."""
BATCH_MAX = 1_000
PACE_S = 0.001
STDIN = 0
STDIN_BYTES = 65_536


def pub(
    address: common.Address,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to publish on.", show_default=False)],
    text: Annotated[str | None, typer.Option("-m", "--message", metavar="TEXT", help="Message text.")] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the message.", show_default=False)
    ] = None,
    stdin_lines: Annotated[
        bool, typer.Option("--stdin-lines", help="Publish each line of standard input as a message.")
    ] = False,
    size: Annotated[int | None, typer.Option(min=0, metavar="BYTES", help="Generate messages of this size.")] = None,
    count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of messages (default: 1; with --size: unlimited).")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, metavar="N", help="Messages per second (default: unlimited).")
    ] = None,
    qos: common.QosLevel = None,
    retain: Annotated[bool, typer.Option("--retain", help="Retain the last message for later subscribers.")] = False,
    deadline: common.Deadline = None,
    reliability: common.ReliabilityClass = None,
    expiry: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Message expiry, such as 10m (default: none).")
    ] = None,
    stamp: Annotated[bool, typer.Option("--stamp", help="Add the publish time, for `overlane sub --latency`.")] = False,
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="User property; repeatable.")
    ] = None,
    client_id: common.ClientId = None,
    user: common.User = None,
    password_file: common.PasswordFile = None,
    tls_ca: common.TlsCa = None,
    tls_certificate: common.TlsCertificate = None,
    tls_key: common.TlsKey = None,
    as_json: common.AsJson = False,
) -> None:
    """Publish one message, lines of text, or generated messages at a given rate."""
    with common.exit_on_client_error():
        bodies = _bodies(text, file, stdin_lines, size, count)
        level = TopicQos(deadline, reliability, None if qos is None else Qos(qos))
        job = PublishJob(topic, bodies, rate, level, retain, expiry, stamp, tuple(map(_pair, properties or ())))
        client = common.client_at(address, client_id, user, password_file, tls_ca, tls_certificate, tls_key)
        is_quiet = as_json or (count is None and (text is not None or file is not None))
        traffic = uvloop.run(_run(client, job, is_quiet))
    if as_json:
        result = {
            "topic": topic,
            "published": traffic.messages,
            "bytes": traffic.size_bytes,
            "seconds": traffic.seconds,
            "messages_per_second": traffic.messages_per_second,
            "acknowledgement_ms": traffic.latencies.percentiles_ms(),
        }
        typer.echo(msgspec.json.encode(result))
    elif not is_quiet:
        summary(Console(highlight=False), traffic, "published", "acknowledged within", [])


@dataclass(frozen=True, slots=True)
class PublishJob:
    """What to publish, and how."""

    topic: str
    bodies: "Iterator[bytes] | AsyncIterator[list[bytes]]"
    rate: float | None
    qos: TopicQos
    retain: bool
    expiry: str | None
    stamp: bool
    properties: tuple[tuple[str, str], ...]


async def _run(client: Client, job: PublishJob, is_quiet: bool) -> Traffic:
    interrupted = common.interrupted()
    async with client:
        traffic = Traffic(began=now_ns())
        async with shown(traffic, "published", is_quiet):
            publishing = asyncio.create_task(_publish_all(client, job, traffic))
            stopping = asyncio.create_task(interrupted.wait())
            await asyncio.wait([publishing, stopping], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if publishing.done():
                publishing.result()
            publishing.cancel()
            await asyncio.wait([publishing])
        traffic.ended = now_ns()
    return traffic


async def _publish_all(client: Client, job: PublishJob, traffic: Traffic) -> None:
    are_single = job.rate is not None or job.stamp
    room = asyncio.Semaphore(IN_FLIGHT_MAX if are_single else IN_FLIGHT_MAX // BATCH_MAX)
    try:
        async with asyncio.TaskGroup() as group:
            async for batch in _batches(job):
                if job.qos.mqtt_level:
                    await room.acquire()
                    group.create_task(_acknowledged(client, job, batch, traffic, room))
                else:
                    await _publish(client, job, batch)
                    traffic.count(len(batch), sum(map(len, batch)))
                    await asyncio.sleep(0)
    except ExceptionGroup as several:
        # The first error says enough.
        raise several.exceptions[0] from None


async def _acknowledged(
    client: Client, job: PublishJob, batch: list[bytes], traffic: Traffic, room: asyncio.Semaphore
) -> None:
    began = now_ns()
    try:
        await _publish(client, job, batch)
    finally:
        room.release()
    if job.rate is not None:
        # Without a rate limit this would only measure the length of our own queue.
        traffic.add_latency(now_ns() - began)
    traffic.count(len(batch), sum(map(len, batch)))


async def _publish(client: Client, job: PublishJob, batch: list[bytes]) -> None:
    options = {"qos": job.qos, "retain": job.retain, "expiry": job.expiry, "properties": job.properties}
    if len(batch) > 1 and not job.stamp:
        await client.publish_many(job.topic, batch, **options)  # type: ignore[arg-type]
        return
    for body in batch:
        await client.publish(job.topic, body, stamp=job.stamp, **options)  # type: ignore[arg-type]


async def _batches(job: PublishJob) -> AsyncIterator[list[bytes]]:
    """The messages that are due according to the rate."""
    began = now_ns()
    published = 0
    async for batch in _chunks(job):
        while batch:
            due = len(batch)
            if job.rate is not None:
                due = int((now_ns() - began) / SECOND * job.rate) + 1 - published
            if due > 0:
                yield batch[:due]
                published += len(batch[:due])
                batch = batch[due:]
            elif job.rate is not None:
                await asyncio.sleep(max(PACE_S, published / job.rate - (now_ns() - began) / SECOND))


async def _chunks(job: PublishJob) -> AsyncIterator[list[bytes]]:
    size = 1 if job.stamp and job.qos.mqtt_level else BATCH_MAX
    if isinstance(job.bodies, AsyncIterator):
        async for lines in job.bodies:
            for start in range(0, len(lines), size):
                yield lines[start : start + size]
    else:
        while chunk := list(islice(job.bodies, size)):
            yield chunk


def _bodies(
    text: str | None, file: Path | None, stdin_lines: bool, size: int | None, count: int | None
) -> "Iterator[bytes] | AsyncIterator[list[bytes]]":
    given = sum((text is not None, file is not None, stdin_lines, size is not None))
    if given != 1:
        raise InvalidRequest(
            "give exactly one of -m TEXT, --file FILE, --stdin-lines, or --size N for generated messages"
        )
    if stdin_lines:
        if count is not None:
            raise InvalidRequest("--stdin-lines and --count exclude each other")
        return _lines()
    if size is not None:
        return _repeated(os.urandom(size), count)
    if file is not None:
        try:
            return _repeated(file.read_bytes(), count or 1)
        except OSError as error:
            raise InvalidRequest(f"{file}: cannot read the message: {error.strerror}") from None
    return _repeated((text or "").encode(errors="surrogateescape"), count or 1)


def _repeated(body: bytes, count: int | None) -> Iterator[bytes]:
    published = 0
    while count is None or published < count:
        yield body
        published += 1


async def _lines() -> AsyncIterator[list[bytes]]:
    """The lines of standard input, in batches as they arrive."""
    chunks: asyncio.Queue[bytes] = asyncio.Queue(1)
    loop = asyncio.get_running_loop()

    def read() -> None:
        with suppress(RuntimeError, CancelledError):  # the loop has ended
            while chunk := os.read(STDIN, STDIN_BYTES):
                asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
            asyncio.run_coroutine_threadsafe(chunks.put(b""), loop).result()

    # A daemon thread: its read cannot be interrupted, and Ctrl-C must not wait for it.
    threading.Thread(target=read, daemon=True).start()
    begun = b""
    while chunk := await chunks.get():
        *lines, begun = (begun + chunk).split(b"\n")
        yield [line.removesuffix(b"\r") for line in lines]
    if begun:
        yield [begun]


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidRequest(f"--property: got {text}; expected NAME=VALUE")
    return name, value
