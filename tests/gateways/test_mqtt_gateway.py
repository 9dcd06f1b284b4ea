"""Gateways to Mosquitto: topics both ways, names, loops, outages of each part, kill -9 under load."""

import asyncio
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiomqtt
import msgspec
import pytest
from gatewayprocess import GatewayProcess, gateway_table, state_of

from brokers import Overlane, RunningBroker, make_broker
from overlane.client import connect

WITHIN_S = 30.0


class Pair:
    """A broker of ours, Mosquitto, and the gateways between them."""

    def __init__(self, path: Path) -> None:
        self.foreign: RunningBroker = make_broker("mosquitto", path / "mosquitto")
        self.ours = Overlane(path / "overlane")
        self.gateways: dict[str, GatewayProcess] = {}

    def say(self, *tables: str) -> None:
        self.ours.say("\n".join(tables))

    @property
    def to(self) -> str:
        return f"mqtt://{self.foreign.address}"

    def begin(self, *names: str) -> None:
        for name in names:
            self.gateways[name] = GatewayProcess(self.ours, name)
            self.gateways[name].start()

    def end(self) -> None:
        for gateway in self.gateways.values():
            gateway.kill()
        self.ours.kill()
        self.foreign.kill()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    try:
        made.foreign.start()
        made.ours.start()
        yield made
    finally:
        made.end()


@asynccontextmanager
async def at_mosquitto(broker: RunningBroker, client_id: str = "there") -> AsyncIterator[aiomqtt.Client]:
    async with aiomqtt.Client(
        "127.0.0.1", broker.port, identifier=client_id, protocol=aiomqtt.ProtocolVersion.V5
    ) as client:
        yield client


async def until_up(pair: Pair, *names: str) -> None:
    async with asyncio.timeout(WITHIN_S):
        for name in names:
            while (await state_of(pair.ours, name)).state != "up":
                await asyncio.sleep(0.05)


BOTH = 'overlay = "plant/#"\nlocal = "#"'


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_messages_cross_both_ways_under_their_names_and_do_not_come_back(pair: Pair, version: str) -> None:
    pair.say(gateway_table("g", pair.to, BOTH, more=f'version = "{version}"'))
    pair.begin("g")

    async def story() -> None:
        await until_up(pair, "g")
        async with (
            connect(pair.ours.address) as ours,
            ours.subscribe("#", qos=1) as arrived,
            at_mosquitto(pair.foreign) as there,
        ):
            await there.subscribe("#", qos=1)
            await there.publish("press/1", b"from there", qos=1, retain=True)
            message = await asyncio.wait_for(anext(arrived), WITHIN_S)
            assert (message.topic, message.body) == ("plant/press/1", b"from there")
            await ours.publish("plant/press/2", b"from here", qos=1, properties={"unit": "bar"}, expiry="1h")
            seen = {}
            async with asyncio.timeout(WITHIN_S):
                async for one in there.messages:
                    seen[str(one.topic)] = one.payload
                    if len(seen) == 2:
                        break
            assert seen == {"press/1": b"from there", "press/2": b"from here"}
            if version == "5":
                assert ("unit", "bar") in (getattr(one.properties, "UserProperty", ()))
            # What went out would come back before this does.
            await there.publish("press/3", b"last", qos=1)
            assert (await asyncio.wait_for(anext(arrived), WITHIN_S)).topic == "plant/press/2"
            assert (await asyncio.wait_for(anext(arrived), WITHIN_S)).topic == "plant/press/3"
            async with asyncio.timeout(WITHIN_S):
                while (state := await state_of(pair.ours, "g")).inwards.passed < 2:
                    await asyncio.sleep(0.1)
            assert (state.inwards.passed, state.outwards.passed) == (2, 1)
            assert (state.inwards.looped, state.outwards.looped) == (0, 0)  # neither broker has given anything back

    asyncio.run(story())


def test_two_gateways_to_one_broker_pass_each_message_once(pair: Pair) -> None:
    pair.say(gateway_table("one", pair.to, BOTH), gateway_table("two", pair.to, BOTH))
    pair.begin("one", "two")

    async def story() -> None:
        await until_up(pair, "one", "two")
        async with (
            connect(pair.ours.address) as ours,
            ours.subscribe("plant/#", qos=1) as arrived,
            at_mosquitto(pair.foreign) as there,
        ):
            await there.subscribe("#", qos=1)
            for number in range(20):
                await there.publish(f"there/{number}", b"", qos=1)
                await ours.publish(f"plant/here/{number}", b"", qos=1)
            expected = {f"there/{number}" for number in range(20)} | {f"here/{number}" for number in range(20)}
            at_ours: list[str] = []
            at_theirs: list[str] = []
            async with asyncio.timeout(WITHIN_S):
                while len(at_ours) < 40:
                    at_ours.append((await anext(arrived)).topic.removeprefix("plant/"))
                async for one in there.messages:
                    at_theirs.append(str(one.topic))
                    if len(at_theirs) == 40:
                        break
                states = [await state_of(pair.ours, name) for name in ("one", "two")]
                while sum(one.inwards.passed for one in states) < 20 or sum(one.outwards.passed for one in states) < 20:
                    states = [await state_of(pair.ours, name) for name in ("one", "two")]
                    await asyncio.sleep(0.1)
            assert sorted(at_ours) == sorted(at_theirs) == sorted(expected)
            # What was on its way round would be there before these.
            await there.publish("last", b"", qos=1)
            await ours.publish("plant/final", b"", qos=1)
            rest = {(await asyncio.wait_for(anext(arrived), WITHIN_S)).topic for _ in range(2)}
            assert rest == {"plant/last", "plant/final"}

    asyncio.run(story())


def numbered(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_nothing_is_lost_while_gateway_and_brokers_fail_under_load(pair: Pair, version: str) -> None:
    pair.say(
        gateway_table(
            "g",
            pair.to,
            'overlay = "up/#"\nlocal = "from/#"\ndirection = "in"',
            'overlay = "down/#"\nlocal = "to/#"\ndirection = "out"',
            more=f'backlog_rate = "none"\nversion = "{version}"',
        )
    )
    pair.begin("g")
    count = 300

    async def publish_ours() -> None:
        async with connect(pair.ours.address, client_id="writer", session_expiry="1h") as ours:
            for text in numbered("o", count):
                await ours.publish("down/1", text, qos=1)
                await asyncio.sleep(0.005)

    async def publish_there() -> None:
        async with connect(pair.foreign.address, client_id="writer", session_expiry="1h") as there:
            for text in numbered("t", count):
                await there.publish("from/1", text, qos=1)
                await asyncio.sleep(0.005)

    async def read(address: str, topic: str, name: str, prefix: str) -> list[str]:
        texts: list[str] = []
        missing = set(numbered(prefix, count))
        async with (
            connect(address, client_id=name, session_expiry="1h") as client,
            client.subscribe(topic, qos=1) as arrived,
        ):
            async for message in arrived:
                texts.append(message.text)
                missing.discard(message.text)
                if not missing:
                    return texts
        raise AssertionError("the connection ended")

    async def fail() -> None:
        await asyncio.sleep(0.3)
        pair.gateways["g"].kill()
        await asyncio.to_thread(pair.gateways["g"].start)
        await asyncio.sleep(0.3)
        await asyncio.to_thread(pair.foreign.stop)
        await asyncio.to_thread(pair.foreign.start)
        await asyncio.sleep(0.3)
        await asyncio.to_thread(pair.ours.kill)
        await asyncio.to_thread(pair.ours.start)

    async def story() -> None:
        await until_up(pair, "g")
        async with asyncio.timeout(3 * WITHIN_S), asyncio.TaskGroup() as tasks:
            up = tasks.create_task(read(pair.ours.address, "up/#", "reader", "t"))
            down = tasks.create_task(read(pair.foreign.address, "to/#", "reader", "o"))
            await asyncio.sleep(0.2)
            tasks.create_task(publish_ours())
            tasks.create_task(publish_there())
            tasks.create_task(fail())
        for texts in (up.result(), down.result()):
            first = list(dict.fromkeys(texts))
            assert first == sorted(first, key=lambda text: int(text[1:]))  # repeated after a failure, never overtaken

    asyncio.run(story())


def shown(pair: Pair) -> list[str]:
    """The states that `overlane gateways` shows, and that metrics agree with."""
    words = [sys.executable, "-m", "overlane", "gateways", pair.ours.admin, "--json"]
    told = msgspec.json.decode(subprocess.run(words, capture_output=True, check=True, timeout=60).stdout)
    with urllib.request.urlopen(f"http://{pair.ours.admin}/metrics", timeout=60) as answer:
        metrics = answer.read().decode()
    states = [one["state"] for broker in told["brokers"] for one in broker["answer"]["items"]]
    assert f'overlane_gateway_up{{gateway="g"}} {float(states == ["up"])}' in metrics
    return states


def test_a_gateway_that_is_killed_or_cannot_reach_its_broker_says_so(pair: Pair) -> None:
    pair.say(gateway_table("g", pair.to, BOTH))
    os.kill(pair.ours.process_id, signal.SIGHUP)  # the broker reads of it
    pair.begin("g")

    async def until(state: str) -> None:
        async with asyncio.timeout(WITHIN_S):
            while (await state_of(pair.ours, "g")).state != state:
                await asyncio.sleep(0.05)

    async def story() -> None:
        await until("up")
        await asyncio.to_thread(pair.foreign.stop)
        await until("connecting")
        async with asyncio.timeout(WITHIN_S):
            while pair.foreign.address not in (said := await state_of(pair.ours, "g")).last_error:
                await asyncio.sleep(0.05)
        assert not said.foreign.is_connected
        assert said.overlay.is_connected
        await asyncio.to_thread(pair.foreign.start)
        await until("up")
        assert await asyncio.to_thread(shown, pair) == ["up"]
        pair.gateways["g"].kill()
        await until("down")
        assert await asyncio.to_thread(shown, pair) == ["down"]
        pair.gateways["g"].start()
        await until("up")
        pair.gateways["g"].stop()
        await until("down")
        assert (await state_of(pair.ours, "g")).last_error == "the gateway was ended"

    asyncio.run(story())
