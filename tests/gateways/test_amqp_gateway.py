"""Gateways to AMQP 1.0 brokers: RabbitMQ, a broker made with Qpid Proton, and a broker of Overlane."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from gatewayprocess import GatewayProcess, ProtonBroker, gateway_table, state_of
from proton_clients import proton
from rabbitmq import PROGRAM, RabbitMq

from brokers import Overlane, RunningBroker, free_port
from overlane.client import Subscription, connect

WITHIN_S = 60.0
IN = 'overlay = "plant/in/#"\nlocal = "from/#"\ndirection = "in"'
OUT = 'overlay = "plant/out/#"\nlocal = "to/#"\ndirection = "out"'
BOTH = 'overlay = "plant/both/#"\nlocal = "both/#"'


class Pair:
    def __init__(self, path: Path, foreign: RunningBroker, to: str) -> None:
        self.foreign = foreign
        self.to = to
        self.ours = Overlane(path / "ours")
        self.gateways: dict[str, GatewayProcess] = {}

    def begin(self, *rules: str, more: str = "", names: tuple[str, ...] = ("g",)) -> None:
        more += '\nbacklog_rate = "none"'
        self.ours.say("\n".join(gateway_table(name, self.to, *rules, more=more) for name in names))
        self.ours.start()
        for name in names:
            self.gateways[name] = GatewayProcess(self.ours, name)
            self.gateways[name].start()

    def end(self) -> None:
        for gateway in self.gateways.values():
            gateway.kill()
        self.ours.kill()
        self.foreign.kill()


async def until(pair: Pair, state: str, name: str = "g") -> None:
    async with asyncio.timeout(WITHIN_S):
        while (found := await state_of(pair.ours, name)).state != state:
            assert state == "connecting" or "refuse" not in found.foreign.last_error, found
            await asyncio.sleep(0.1)


async def texts(arrived: Subscription, count: int) -> list[str]:
    """Different ones, in the order in which they came first."""
    found: dict[str, None] = {}
    async with asyncio.timeout(WITHIN_S):
        while len(found) < count:
            found[(await anext(arrived)).text] = None
    return list(found)


# RabbitMQ


class Rabbit(Pair):
    def __init__(self, path: Path) -> None:
        rabbit = RabbitMq(path / "rabbit")
        super().__init__(path, rabbit, f"amqp://{rabbit.address}")

    def channel(self) -> Any:
        """Of AMQP 0.9.1."""
        pika = pytest.importorskip("pika")
        channel = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.foreign.port)).channel()
        channel.confirm_delivery()
        return channel


@pytest.mark.slow
@pytest.mark.skipif(not PROGRAM.exists(), reason="rabbitmq-server is not installed")
def test_messages_cross_to_and_from_a_queue_and_an_exchange_of_rabbitmq_across_its_restart(tmp_path: Path) -> None:
    pair = Rabbit(tmp_path)
    count = 60

    def bind() -> None:
        channel = pair.channel()
        for queue, key in (("overlane", "from.#"), ("overlane", "both.#"), ("reader", "to.#")):
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, "amq.topic", key)
        channel.connection.close()

    def publish(first: int, last: int) -> None:
        pika = pytest.importorskip("pika")
        channel = pair.channel()
        for number in range(first, last):
            about = pika.BasicProperties(delivery_mode=2, content_type="text/plain")
            channel.basic_publish("amq.topic", "from.hall.1", str(number).encode(), about)
        channel.connection.close()

    def read(wanted: int) -> list[tuple[str, bytes]]:
        channel = pair.channel()
        found: dict[bytes, tuple[str, bytes]] = {}
        for method, _, body in channel.consume("reader", inactivity_timeout=WITHIN_S):
            assert method is not None, sorted(found)
            found.setdefault(body, (method.routing_key, body))
            channel.basic_ack(method.delivery_tag)
            if len(found) == wanted:
                break
        channel.connection.close()
        return list(found.values())

    async def story() -> None:
        await until(pair, "up")
        async with connect(pair.ours.address) as ours, ours.subscribe("plant/in/#", qos=1) as arrived:
            await asyncio.to_thread(publish, 0, 1)
            first = await asyncio.wait_for(anext(arrived), WITHIN_S)
            assert (first.topic, first.text, first.content_type) == ("plant/in/hall/1", "0", "text/plain")
            for number in range(count):
                await ours.publish("plant/out/hall/2", str(number), qos=1, properties={"a": "b"})
                if number == count // 3:
                    pair.gateways["g"].kill()
                    await asyncio.to_thread(pair.gateways["g"].start)
                if number == count // 2:
                    await asyncio.to_thread(pair.foreign.stop)
                    await until(pair, "connecting")
            await asyncio.to_thread(pair.foreign.start)
            await asyncio.to_thread(publish, 1, count)
            assert (await texts(arrived, count - 1))[-1] == str(count - 1)
            records = await asyncio.to_thread(read, count)
            assert [body for _, body in records] == [str(number).encode() for number in range(count)]
            assert {key for key, _ in records} == {"to.hall.2"}
            # RabbitMQ 3 keeps properties of AMQP 1.0 for readers of AMQP 1.0, such as the gateway.
            await ours.publish("plant/both/1", b"", qos=1)
            async with asyncio.timeout(WITHIN_S):
                while (await state_of(pair.ours, "g")).inwards.looped < 1:
                    await asyncio.sleep(0.1)

    try:
        pair.foreign.start()
        bind()
        pair.begin(IN, OUT, BOTH, more='address = "/topic/{}"\nsyntax = "dots"\nqueue = "/amq/queue/overlane"')
        asyncio.run(story())
    finally:
        pair.end()


# A broker made with Qpid Proton


@pytest.mark.parametrize("has_relay", [True, False])
def test_messages_cross_by_the_relay_or_by_a_link_for_each_address(tmp_path: Path, has_relay: bool) -> None:
    proton("proton")
    foreign = ProtonBroker(tmp_path / "proton", has_relay=has_relay)
    pair = Pair(tmp_path, foreign, f"amqp://{foreign.address}")
    large = "x" * 300_000  # of several frames
    count = 250  # more than there are links

    async def story() -> None:
        await until(pair, "up")
        async with connect(pair.ours.address) as ours, ours.subscribe("plant/in/#", qos=1) as arrived:
            for number in range(count):
                await ours.publish(f"plant/out/{number % 230}", str(number), qos=1, properties={"a": "b"})
            await ours.publish("plant/out/last", large, qos=1, content_type="text/plain", response_topic="plant/in/1")
            # The broker sends back what it gets, from the address `from/...` instead of `to/...`.
            assert sorted(await texts(arrived, count), key=int) == [str(number) for number in range(count)]
            last = await asyncio.wait_for(anext(arrived), WITHIN_S)
            assert (last.topic, last.text, last.content_type) == ("plant/in/last", large, "text/plain")
            assert last.response_topic == "from/1"  # where the response comes in
            assert (await state_of(pair.ours, "g")).outwards.refused == 0

    try:
        foreign.start()
        pair.begin(IN, OUT, more='queue = "echo"')
        asyncio.run(story())
    finally:
        pair.end()


# A broker of Overlane, which has shared and durable subscriptions


@pytest.mark.slow
def test_two_gateways_share_a_durable_subscription_and_nothing_is_lost_when_all_are_killed(tmp_path: Path) -> None:
    foreign = Overlane(tmp_path / "foreign")
    port = free_port()
    foreign.say("", f'amqp = "127.0.0.1:{port}"')
    pair = Pair(tmp_path, foreign, f"amqp://127.0.0.1:{port}")
    count = 100

    async def story() -> None:
        for name in ("one", "two"):
            await until(pair, "up", name)
        async with (
            connect(foreign.address, client_id="there", session_expiry="1h") as there,
            there.subscribe("plant/+", qos=1) as heard,
            connect(pair.ours.address, client_id="here", session_expiry="1h") as ours,
            ours.subscribe("p/#", qos=1) as arrived,
        ):
            for number in range(count):
                await there.publish(f"plant/{number % 7}", f"there {number}", qos=1)
                await ours.publish(f"p/plant/{number % 7}", f"here {number}", qos=1)
                if number == count // 4:
                    pair.gateways["one"].kill()
                    await asyncio.to_thread(pair.gateways["one"].start)
                if number == count // 2:
                    await asyncio.to_thread(foreign.kill)
                    await asyncio.to_thread(foreign.start)
            everything = {f"{where} {number}" for where in ("here", "there") for number in range(count)}
            assert set(await texts(arrived, 2 * count)) == everything
            assert set(await texts(heard, 2 * count)) == everything

    try:
        foreign.start()
        pair.begin('overlay = "p/#"\nlocal = "#"', names=("one", "two"))
        asyncio.run(story())
    finally:
        pair.end()
