"""Brokers that run are killed under load: what was acknowledged arrives, once."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from overlane.client import connect
from overlays import RealOverlay, overlay
from waiting import eventually_async

SQUARE = {
    "a-b": 'latency = "2ms"\nemulate = true',
    "b-d": 'latency = "2ms"\nemulate = true',
    "a-c": 'latency = "3ms"\nemulate = true',
    "c-d": 'latency = "3ms"\nemulate = true',
}
EVERY_S = 0.01
SOME = 20


class Application:
    """A publisher at a and a subscriber at d, whose sessions are kept."""

    def __init__(self, net: RealOverlay, qos: int) -> None:
        self._net = net
        self._qos = qos
        self.acknowledged: list[int] = []
        self.heard: list[int] = []
        self._ending = asyncio.Event()
        self._is_reached = asyncio.Event()

    async def run(self, trouble: object) -> None:
        async with (
            connect(self._net["d"].mqtt, client_id="reader", session_expiry="10m", pause_max="500ms") as reader,
            connect(self._net["a"].mqtt, client_id="writer", session_expiry="10m", pause_max="500ms") as writer,
        ):
            messages = reader.subscribe("work/#", qos=self._qos)
            reading = asyncio.create_task(self._read(messages))
            while not self._is_reached.is_set():
                await writer.publish("work/probe", b"", qos=self._qos)
                await asyncio.sleep(0.05)
            writing = asyncio.create_task(self._write(writer))
            await trouble  # type: ignore[misc]
            self._ending.set()
            await writing
            await eventually_async(lambda: not self.lost, "all there", 30.0)
            reading.cancel()

    async def _write(self, writer: object) -> None:
        number = 0
        while not self._ending.is_set():
            await writer.publish("work/x", b"%d" % number, qos=self._qos)  # type: ignore[attr-defined]
            self.acknowledged.append(number)
            number += 1
            await asyncio.sleep(EVERY_S)

    async def _read(self, messages: object) -> None:
        async for message in messages:  # type: ignore[attr-defined]
            if message.topic == "work/probe":
                self._is_reached.set()
            else:
                self.heard.append(int(message.body))

    @property
    def lost(self) -> set[int]:
        return set(self.acknowledged) - set(self.heard)

    @property
    def repeated(self) -> list[int]:
        return [number for number, times in Counter(self.heard).items() if times > 1]


async def kill_and_restart(net: RealOverlay, name: str, application: Application) -> None:
    """In the middle of it: some messages are acknowledged before, and some after."""
    acknowledged = application.acknowledged
    await eventually_async(lambda: len(acknowledged) >= SOME, "at work", 60.0)
    net[name].kill()
    await asyncio.sleep(0.3)
    net[name].start()
    before = len(acknowledged)
    await eventually_async(lambda: len(acknowledged) >= before + SOME, "at work again", 60.0)


@pytest.mark.slow
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("victim", ["b", "d", "a"])
def test_nothing_acknowledged_is_lost_when_a_broker_is_killed(tmp_path: Path, victim: str, qos: int) -> None:
    with overlay(tmp_path, SQUARE) as net:
        application = Application(net, qos)
        asyncio.run(application.run(kill_and_restart(net, victim, application)))
        assert application.lost == set()
        in_order = list(dict.fromkeys(application.heard))
        assert in_order == sorted(in_order)
        assert application.repeated == []
