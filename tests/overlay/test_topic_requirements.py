"""Requirements and policies of topics at brokers that run: the broker of the strongest publisher is killed, links are
encrypted or not."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from overlane.client import connect
from overlays import RealOverlay, overlay
from waiting import eventually_async

LINKS = {"a-c": 'latency = "2ms"', "b-c": 'latency = "2ms"'}
TOPICS = """
[topics."pump/#"]
liveliness = "3s"
ownership = "exclusive"
reliability = "reliable"

[topics."ward/#"]
reliability = "reliable"
encrypted = true
"""
EVERY_S = 0.1


async def publish_always(net: RealOverlay, broker: str, name: str, strength: int, sent: list[int]) -> None:
    async with connect(net[broker].mqtt, client_id=name) as client:
        while True:
            await client.publish("pump/1", f"{name} {len(sent)}".encode(), qos=1, strength=strength)
            sent.append(len(sent))
            await asyncio.sleep(EVERY_S)


async def ownership_moves(net: RealOverlay) -> None:
    heard: list[tuple[str, int, int]] = []
    """Who, which number, and how many the weaker one had published by then."""
    reports: list[Any] = []
    strong, weak = list[int](), list[int]()
    async with connect(net["c"].mqtt, client_id="reader") as reader:
        messages, liveliness = reader.subscribe("pump/#", qos=1), reader.liveliness("pump/#")

        async def read() -> None:
            async for message in messages:
                name, number = message.body.decode().split()
                heard.append((name, int(number), len(weak)))

        async def watch() -> None:
            async for report in liveliness:
                reports.append(report)

        await messages.ready()
        tasks = [
            asyncio.create_task(one)
            for one in (
                read(),
                watch(),
                publish_always(net, "a", "strong", 9, strong),
                publish_always(net, "b", "weak", 1, weak),
            )
        ]
        await eventually_async(lambda: [one for one, *_ in heard].count("strong") > 5 and len(weak) > 5, "both publish")
        net["a"].kill()
        await eventually_async(
            lambda: bool(heard) and heard[-1][0] == "weak" and len(heard) > 20, "the other takes over"
        )
        net["a"].start()
        await eventually_async(lambda: heard[-1][0] == "strong", "the strongest is back", 60.0)
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
    first_strong = next(at for at, one in enumerate(heard) if one[0] == "strong")
    switch = next(at for at in range(first_strong, len(heard)) if heard[at][0] == "weak")
    after = [one for one in heard[switch:] if one[0] == "weak"]
    numbers = [number for _, number, _ in after]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert numbers[0] <= heard[switch - 1][2], "what was published since the owner's last message is missing"
    assert any(not one.is_alive and one.publisher == "strong@a" and one.owner == "weak@b" for one in reports)
    assert any(one.is_alive and one.publisher == "strong@a" for one in reports[2:])


async def encryption_is_required(net: RealOverlay) -> None:
    async with connect(net["c"].mqtt, client_id="nurse") as nurse, connect(net["b"].mqtt, client_id="doctor") as doctor:
        messages = nurse.subscribe("ward/#", qos=1)
        await messages.ready()
        got: list[bytes] = []

        async def read() -> None:
            async for message in messages:
                got.append(message.body)

        reading = asyncio.create_task(read())

        def unmet() -> bool:
            routes: Any = net["b"].ask("/routes")
            return any(
                route["requires"] == {"encrypted": True} and route["unmet"] == {"c": "no path of encrypted links"}
                for route in routes["items"]
            )

        async def publish() -> None:
            while not await asyncio.to_thread(unmet):
                await doctor.publish("ward/1", b"secret", qos=1)
                await asyncio.sleep(EVERY_S)

        await asyncio.wait_for(publish(), 60)
        assert got == []
        assert "requirement not met to c: no path of encrypted links; nothing is sent there" in net["b"].log.read_text()
        text = net.file.read_text()
        net.file.write_text(text.replace('ends = ["b", "c"]', 'ends = ["b", "c"]\nencrypted = true'))
        for name in "bc":
            await asyncio.to_thread(net[name].reload)
        await eventually_async(lambda: b"secret" in got, "sent when the link is encrypted", 60.0)
        reading.cancel()


@pytest.mark.slow
def test_ownership_moves_when_the_broker_of_the_strongest_is_killed_and_encryption_is_kept_to(tmp_path: Path) -> None:
    with overlay(tmp_path, LINKS, TOPICS) as net:
        asyncio.run(ownership_moves(net))
        asyncio.run(encryption_is_required(net))
