"""The watch: brokers that answer, refuse, hang and talk nonsense, and a page that hears of all of them in time."""

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from time import monotonic, process_time
from typing import Any

import msgspec
import pytest
from glances import glance, link

from brokers import free_port
from overlane.adminapi.async_client import AsyncAdminClient
from overlane.adminapi.client import RequestFailed
from overlane.monitor.live_monitor import BROKERS_PER_S, LiveMonitor
from overlane.network import Broker, Network
from overlane.network.schema import Endpoint

WITHIN_S = 60.0

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A broker that is well, over one connection that stays."""
    body = msgspec.json.encode(glance(link("hangs", "failed")))
    while await reader.readuntil(b"\r\n\r\n"):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)


async def hanging(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def forgetful(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One that closes each connection after its answer, without a word of it before."""
    await reader.readuntil(b"\r\n\r\n")
    body = msgspec.json.encode(glance())
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)


async def babbling(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"220 mail.example.org ESMTP\r\n\r\n")


@asynccontextmanager
async def listening(talk: Talk) -> AsyncIterator[Endpoint]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    port = free_port()
    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield Endpoint("127.0.0.1", port)
    finally:
        server.close()


def test_a_broker_that_hangs_holds_up_nobody() -> None:
    async def story() -> None:
        async with listening(answering) as well, listening(hanging) as hangs:
            network = Network(brokers=(Broker(name="well", admin=well), Broker(name="hangs", admin=hangs)))
            watch = LiveMonitor(network, "test", None)
            running = asyncio.create_task(watch.run())
            gaps: list[float] = []
            before = monotonic()
            states: dict[str, str] = {}
            async with asyncio.timeout(WITHIN_S):
                async for piece in watch.lines():
                    gaps.append(monotonic() - before)
                    before = monotonic()
                    states |= states_in(piece)
                    if len(gaps) >= 8 and "well" in states:
                        break
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            assert states["well"] == "serving"
            assert watch.observer.picture.links["hangs|well"].state == "failed"
            assert watch.observer.picture.brokers["hangs"].state == "unknown"
            # Half of the looks at least did not wait for what takes three seconds.
            assert sorted(gaps)[len(gaps) // 2] < 3.0

    asyncio.run(story())


def test_two_hundred_brokers_and_a_thousand_links_are_followed() -> None:
    """What each look takes of the processor, with all these brokers in the same process, is less than its time."""
    count, around = 200, 5
    names = [f"broker-{number:03}" for number in range(count)]
    near = [step for step in range(-around, around + 1) if step]

    async def story() -> tuple[Counter[str], float]:
        async with AsyncExitStack() as stack, asyncio.timeout(WITHIN_S):
            brokers = []
            for at, name in enumerate(names):
                talk = partial(changing, [names[(at + step) % count] for step in near])
                brokers.append(Broker(name=name, admin=await stack.enter_async_context(listening(talk))))
            watch = LiveMonitor(Network(brokers=tuple(brokers)), "test", None)
            running = asyncio.create_task(watch.run())
            changed: Counter[str] = Counter()
            looks, before_s = 0, process_time()
            async for piece in watch.lines():
                looks += 1
                changed.update(name for line in piece.splitlines() for name in json.loads(line).get("links", {}))
                if len(changed) == count * around and min(changed.values()) >= 3:
                    break
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            assert {one.state for one in watch.observer.picture.brokers.values()} == {"serving"}
            return changed, (process_time() - before_s) / looks

    changed, took_s = asyncio.run(story())
    assert len(changed) == count * around
    assert took_s < count / BROKERS_PER_S


async def changing(peers: list[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A broker that is well, and whose links take another time whenever it is asked."""
    for turn in itertools.count():
        await reader.readuntil(b"\r\n\r\n")
        body = msgspec.json.encode(glance(*(link(peer, latency_ms=10.0 + turn % 7) for peer in peers)))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)


def states_in(piece: bytes) -> dict[str, str]:
    lines: list[Any] = [json.loads(line) for line in piece.splitlines()]
    return {name: one["state"] for line in lines for name, one in line.get("brokers", {}).items()}


def test_a_connection_that_the_broker_has_closed_meanwhile_is_opened_again() -> None:
    async def story() -> None:
        async with listening(forgetful) as at:
            source = AsyncAdminClient(at, None)
            for _ in range(3):
                assert (await source.snapshot(0)).broker.state == "serving"
            source.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("talk", "reason"), [(babbling, "not from a broker of this version"), (None, "connection refused")]
)
def test_what_does_not_answer_as_a_broker_does_is_told_why(talk: Talk | None, reason: str) -> None:
    async def story() -> None:
        if talk is None:
            with pytest.raises(RequestFailed, match=reason):
                await AsyncAdminClient(Endpoint("127.0.0.1", free_port()), None).snapshot(0)
            return
        async with listening(talk) as at:
            with pytest.raises(RequestFailed, match=reason):
                await AsyncAdminClient(at, None).snapshot(0)

    asyncio.run(story())


def test_a_page_that_does_not_read_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("overlane.monitor.live_monitor.UNREAD_MAX", 3)
    monkeypatch.setattr("overlane.monitor.live_monitor.POLL_S", 0.01)
    monkeypatch.setattr("overlane.monitor.live_monitor.PAUSE_S_MIN", 0.01)

    async def story() -> None:
        async with listening(answering) as at, asyncio.timeout(WITHIN_S):
            watch = LiveMonitor(Network(brokers=(Broker(name="well", admin=at),)), "test", None)
            lines = watch.lines()
            await anext(lines)
            running = asyncio.create_task(watch.run())
            while watch.pages:
                await asyncio.sleep(0.01)
            rest = [line async for line in lines]
            assert 1 <= len(rest) <= 3
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())
