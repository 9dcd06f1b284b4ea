"""`overlane pub`: publish one message, the lines of a file, or a stream of generated ones.

Exit status: 0 done or interrupted, 1 the broker cannot be reached or refuses, 2 the request makes no sense.
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

from overlane.cli import clientoptions as common
from overlane.cli.traffic import Traffic
from overlane.cli.traffic_view import shown, summary
from overlane.client import Client, InvalidRequest, Qos, TopicQos
from overlane.client.clocks import now_ns
from overlane.core.units import SECOND

UNDER_WAY_MAX = 2_000
"""Messages of QoS 1 and 2 that may wait for the broker's answer."""
BATCH_MAX = 1_000
PACE_S = 0.001
STDIN = 0
STDIN_BYTES = 65_536


def pub(
    address: common.Address,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where to publish.", show_default=False)],
    text: Annotated[str | None, typer.Option("-m", "--message", metavar="TEXT", help="The message.")] = None,
    file: Annotated[Path | None, typer.Option(metavar="FILE", help="Holds the message.", show_default=False)] = None,
    stdin_lines: Annotated[
        bool, typer.Option("--stdin-lines", help="Each line of standard input is a message.")
    ] = False,
    size: Annotated[int | None, typer.Option(min=0, metavar="BYTES", help="Generate messages of this size.")] = None,
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="How many; else 1, or without end.")] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, metavar="N", help="A second; else as fast as can be.")
    ] = None,
    qos: common.Level = None,
    retain: Annotated[
        bool, typer.Option("--retain", help="The broker keeps the last one for later subscribers.")
    ] = False,
    deadline: common.Deadline = None,
    reliability: common.Sureness = None,
    expiry: Annotated[str | None, typer.Option(metavar="DURATION", help="How long it is worth delivering.")] = None,
    stamp: Annotated[
        bool, typer.Option("--stamp", help="Let `overlane sub --latency` know when each was published.")
    ] = False,
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="A user property; may be repeated.")
    ] = None,
    client_id: common.ClientId = None,
    user: common.User = None,
    password_file: common.PasswordFile = None,
    tls_ca: common.TlsCa = None,
    tls_certificate: common.TlsCertificate = None,
    tls_key: common.TlsKey = None,
    as_json: common.AsJson = False,
) -> None:
    """Publish: one message, lines of text, or generated messages at a rate."""
    with common.told():
        bodies = _bodies(text, file, stdin_lines, size, count)
        level = TopicQos(deadline, reliability, None if qos is None else Qos(qos))
        plan = Plan(topic, bodies, rate, level, retain, expiry, stamp, tuple(map(_pair, properties or ())))
        client = common.client_at(address, client_id, user, password_file, tls_ca, tls_certificate, tls_key)
        is_quiet = as_json or (count is None and (text is not None or file is not None))
        traffic = uvloop.run(_run(client, plan, is_quiet))
    if as_json:
        told = {
            "topic": topic,
            "published": traffic.messages,
            "bytes": traffic.size_bytes,
            "seconds": traffic.seconds,
            "messages_per_second": traffic.messages_per_second,
            "acknowledgement_ms": traffic.latencies.percentiles_ms(),
        }
        typer.echo(msgspec.json.encode(told))
    elif not is_quiet:
        summary(Console(highlight=False), traffic, "published", "acknowledged within", [])


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be published, and how."""

    topic: str
    bodies: "Iterator[bytes] | AsyncIterator[list[bytes]]"
    rate: float | None
    qos: TopicQos
    retain: bool
    expiry: str | None
    stamp: bool
    properties: tuple[tuple[str, str], ...]


async def _run(client: Client, plan: Plan, is_quiet: bool) -> Traffic:
    interrupted = common.interrupted()
    async with client:
        traffic = Traffic(began=now_ns())
        async with shown(traffic, "published", is_quiet):
            publishing = asyncio.create_task(_publish_all(client, plan, traffic))
            stopping = asyncio.create_task(interrupted.wait())
            await asyncio.wait([publishing, stopping], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if publishing.done():
                publishing.result()
            publishing.cancel()
            await asyncio.wait([publishing])
        traffic.ended = now_ns()
    return traffic


async def _publish_all(client: Client, plan: Plan, traffic: Traffic) -> None:
    are_single = plan.rate is not None or plan.stamp
    room = asyncio.Semaphore(UNDER_WAY_MAX if are_single else UNDER_WAY_MAX // BATCH_MAX)
    try:
        async with asyncio.TaskGroup() as group:
            async for batch in _batches(plan):
                if plan.qos.mqtt_level:
                    await room.acquire()
                    group.create_task(_acknowledged(client, plan, batch, traffic, room))
                else:
                    await _publish(client, plan, batch)
                    traffic.count(len(batch), sum(map(len, batch)))
                    await asyncio.sleep(0)
    except ExceptionGroup as several:
        # One is enough to tell what is wrong.
        raise several.exceptions[0] from None


async def _acknowledged(
    client: Client, plan: Plan, batch: list[bytes], traffic: Traffic, room: asyncio.Semaphore
) -> None:
    began = now_ns()
    try:
        await _publish(client, plan, batch)
    finally:
        room.release()
    if plan.rate is not None:
        # As fast as can be, it would only tell how long the queue is.
        traffic.took(now_ns() - began)
    traffic.count(len(batch), sum(map(len, batch)))


async def _publish(client: Client, plan: Plan, batch: list[bytes]) -> None:
    said = {"qos": plan.qos, "retain": plan.retain, "expiry": plan.expiry, "properties": plan.properties}
    if len(batch) > 1 and not plan.stamp:
        await client.publish_many(plan.topic, batch, **said)  # type: ignore[arg-type]
        return
    for body in batch:
        await client.publish(plan.topic, body, stamp=plan.stamp, **said)  # type: ignore[arg-type]


async def _batches(plan: Plan) -> AsyncIterator[list[bytes]]:
    """What is due, in time with the rate."""
    began = now_ns()
    published = 0
    async for batch in _chunks(plan):
        while batch:
            due = len(batch)
            if plan.rate is not None:
                due = int((now_ns() - began) / SECOND * plan.rate) + 1 - published
            if due > 0:
                yield batch[:due]
                published += len(batch[:due])
                batch = batch[due:]
            elif plan.rate is not None:
                await asyncio.sleep(max(PACE_S, published / plan.rate - (now_ns() - began) / SECOND))


async def _chunks(plan: Plan) -> AsyncIterator[list[bytes]]:
    size = 1 if plan.stamp and plan.qos.mqtt_level else BATCH_MAX
    if isinstance(plan.bodies, AsyncIterator):
        async for lines in plan.bodies:
            for start in range(0, len(lines), size):
                yield lines[start : start + size]
    else:
        while chunk := list(islice(plan.bodies, size)):
            yield chunk


def _bodies(
    text: str | None, file: Path | None, stdin_lines: bool, size: int | None, count: int | None
) -> "Iterator[bytes] | AsyncIterator[list[bytes]]":
    given = sum((text is not None, file is not None, stdin_lines, size is not None))
    if given != 1:
        raise InvalidRequest(
            "say what to publish, in one way: -m TEXT, --file FILE, --stdin-lines, or --size N for generated messages"
        )
    if stdin_lines:
        if count is not None:
            raise InvalidRequest("--stdin-lines ends with its lines: leave out --count")
        return _lines()
    if size is not None:
        return _repeated(os.urandom(size), count)
    if file is not None:
        try:
            return _repeated(file.read_bytes(), count or 1)
        except OSError as error:
            raise InvalidRequest(f"{file}: the message cannot be read: {error.strerror}") from None
    return _repeated((text or "").encode(errors="surrogateescape"), count or 1)


def _repeated(body: bytes, count: int | None) -> Iterator[bytes]:
    published = 0
    while count is None or published < count:
        yield body
        published += 1


async def _lines() -> AsyncIterator[list[bytes]]:
    """The lines of standard input, as many at a time as there are."""
    chunks: asyncio.Queue[bytes] = asyncio.Queue(1)
    loop = asyncio.get_running_loop()

    def read() -> None:
        with suppress(RuntimeError, CancelledError):  # the loop has ended
            while chunk := os.read(STDIN, STDIN_BYTES):
                asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
            asyncio.run_coroutine_threadsafe(chunks.put(b""), loop).result()

    # A daemon that holds no lock: nothing can interrupt its waiting, and Ctrl-C must not wait for it.
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
        raise InvalidRequest(f"--property {text}: allowed is NAME=VALUE")
    return name, value
