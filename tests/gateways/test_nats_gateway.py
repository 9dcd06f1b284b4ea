"""Gateways to a real NATS server: core NATS, and JetStream across outages."""

import asyncio
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
from gatewayprocess import GatewayProcess, gateway_table, state_of

from brokers import Overlane, RunningBroker
from overlane.client import connect
from overlane.nats.subjects import filter_of, subjects_of

WITHIN_S = 30.0
NATS_SERVER = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")


class NatsServer(RunningBroker):
    def command(self) -> list[str]:
        assert NATS_SERVER is not None
        store = str(self.directory / "jetstream")
        return [NATS_SERVER, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", store]


class Pair:
    def __init__(self, path: Path) -> None:
        self.foreign = NatsServer(path / "nats")
        self.ours = Overlane(path / "overlane")
        self.gateways: list[GatewayProcess] = []

    def begin(self, *rules: str, more: str = "", names: tuple[str, ...] = ("g",)) -> None:
        self.ours.say("\n".join(gateway_table(name, self.to, *rules, more=more) for name in names))
        for name in names:
            self.gateways.append(GatewayProcess(self.ours, name))
            self.gateways[-1].start()

    @property
    def to(self) -> str:
        return f"nats://{self.foreign.address}"

    def end(self) -> None:
        for gateway in self.gateways:
            gateway.kill()
        self.ours.kill()
        self.foreign.kill()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    if NATS_SERVER is None:
        pytest.skip("nats-server is not installed")
    made = Pair(tmp_path)
    try:
        made.foreign.start()
        made.ours.start()
        yield made
    finally:
        made.end()


async def until_up(pair: Pair, name: str = "g") -> None:
    async with asyncio.timeout(WITHIN_S):
        while (await state_of(pair.ours, name)).state != "up":
            await asyncio.sleep(0.05)


def test_messages_cross_both_ways_once_through_two_gateways_with_their_headers(pair: Pair) -> None:
    pair.begin('overlay = "plant/#"\nlocal = "#"', names=("one", "two"))

    async def story() -> None:
        await until_up(pair, "one")
        await until_up(pair, "two")
        there = await nats.connect(pair.to)
        heard = await there.subscribe("hall.>")
        await there.flush()
        async with connect(pair.ours.address) as ours, ours.subscribe("plant/#", qos=1) as arrived:
            for number in range(10):
                await there.publish(f"hall.{number}", b"there", headers={"unit": "bar"})
            topics = []
            for _ in range(10):
                message = await asyncio.wait_for(anext(arrived), WITHIN_S)
                topics.append(message.topic)
                assert message.properties["unit"] == "bar"
            assert sorted(topics) == sorted(f"plant/hall/{number}" for number in range(10))
            await ours.publish("plant/hall/back", b"here", qos=1, properties={"a": "b"}, content_type="text/plain")
            subjects = [(await heard.next_msg(WITHIN_S)).subject for _ in range(10)]
            assert sorted(subjects) == sorted(f"hall.{number}" for number in range(10))
            back = await heard.next_msg(WITHIN_S)
            assert back.headers is not None
            assert (back.subject, back.data, back.headers["a"]) == ("hall.back", b"here", "b")
            assert back.headers["Content-Type"] == "text/plain"
            # What came back would be there before this.
            assert (await asyncio.wait_for(anext(arrived), WITHIN_S)).topic == "plant/hall/back"
            await there.publish("hall.last", b"")
            assert (await asyncio.wait_for(anext(arrived), WITHIN_S)).topic == "plant/hall/last"
        await there.close()

    asyncio.run(story())


@pytest.mark.slow
def test_with_a_stream_nothing_is_lost_while_the_gateway_is_killed_and_the_server_restarts(pair: Pair) -> None:
    rules = (
        'overlay = "in/#"\nlocal = "from/#"\ndirection = "in"',
        'overlay = "out/#"\nlocal = "to/#"\ndirection = "out"',
    )
    count = 100

    async def make_stream() -> None:
        there = await nats.connect(pair.to)
        await there.jetstream().add_stream(name="plant", subjects=["from.>", "to.>"])
        await there.close()

    async def story() -> None:
        await until_up(pair)
        there = await nats.connect(pair.to, max_reconnect_attempts=-1, reconnect_time_wait=0.1)
        stream = there.jetstream()
        async with (
            connect(pair.ours.address) as ours,
            ours.subscribe("in/#", qos=1) as arrived,
        ):
            for number in range(count):
                await ours.publish("out/1", str(number), qos=1)
                await stream.publish("from.1", str(number).encode())
                if number == count // 3:
                    pair.gateways[0].kill()
                    await asyncio.to_thread(pair.gateways[0].start)
                if number == 2 * count // 3:
                    await asyncio.to_thread(pair.foreign.stop)
                    await asyncio.to_thread(pair.foreign.start)
                    async with asyncio.timeout(WITHIN_S):
                        while not there.is_connected:
                            await asyncio.sleep(0.05)
            came: list[str] = []
            async with asyncio.timeout(2 * WITHIN_S):
                while len(set(came)) < count:
                    came.append((await anext(arrived)).text)
            stored: set[bytes] = set()
            reading = await stream.pull_subscribe("to.>", durable="reader")
            async with asyncio.timeout(2 * WITHIN_S):
                while len(stored) < count:
                    for message in await reading.fetch(50, timeout=WITHIN_S):
                        stored.add(message.data)
                        await message.ack()
        await there.close()

    asyncio.run(make_stream())
    pair.begin(*rules, more='stream = "plant"\nbacklog_rate = "none"')
    asyncio.run(story())


def test_a_filter_is_the_subjects_that_match_the_same_topics() -> None:
    assert subjects_of("a/+/b.c") == ("a.*.b%2Ec",)
    assert subjects_of("a/#") == ("a.>", "a")
    assert subjects_of("#") == (">",)
    assert filter_of(subjects_of("a/+/#")[0]) == "a/+/#"
