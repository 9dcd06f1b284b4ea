"""Links that Mosquitto carries: frames and windows, and two brokers that reach each other only through it."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import aiomqtt
import pytest
from gatewayprocess import ProtonBroker
from hypothesis import given
from hypothesis import strategies as st
from proton_clients import proton
from rabbitmq import PROGRAM as RABBITMQ
from rabbitmq import RabbitMq

from brokers import Overlane, RunningBroker, free_port, make_broker
from overlane.client import connect
from overlane.errors import ConfigError
from overlane.network import format_network, parse_network
from overlane.node.links.carrier.frames import (
    DATA_BYTES_MAX,
    NONCE_BYTES,
    WINDOW,
    CarriedConnection,
    CarrierFrame,
    FrameKind,
    FrameSeal,
)
from overlane.secret import Secret

WITHIN_S = 60.0
SECRET = Secret(b"a secret of the overlay")
NONCE = b"n" * NONCE_BYTES


@given(st.sampled_from(FrameKind), st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.binary(max_size=100))
def test_a_frame_is_opened_by_its_destination_alone(kind: FrameKind, number: int, sequence: int, data: bytes) -> None:
    frame = CarrierFrame(kind, number, sequence, data)
    sealed = FrameSeal(SECRET, "a", "b").seal(frame, NONCE)
    assert FrameSeal(SECRET, "a", "b").open(sealed) == frame
    assert FrameSeal(SECRET, "b", "a").open(sealed) is None
    assert FrameSeal(SECRET, "a", "c").open(sealed) is None
    assert FrameSeal(Secret(b"another secret than that"), "a", "b").open(sealed) is None
    assert FrameSeal(SECRET, "a", "b").open(sealed[:-1] + bytes((sealed[-1] ^ 1,))) is None


@given(st.binary(max_size=200) | st.just(b"x" * (DATA_BYTES_MAX + 100)))
def test_whatever_the_carrier_makes_up_is_refused(message: bytes) -> None:
    assert FrameSeal(SECRET, "a", "b").open(message) is None


def test_a_repeated_frame_is_dropped_and_a_gap_is_noticed() -> None:
    one = CarriedConnection()
    assert [one.arrived(number) for number in (1, 2, 2, 1, 4, 3)] == [True, True, False, False, None, True]


def test_no_more_than_the_window_is_under_way() -> None:
    one = CarriedConnection()
    while one.has_room:
        one.next_sequence()
    assert one.sent == WINDOW
    one.was_taken(WINDOW + 1)  # a lie
    assert not one.has_room
    one.was_taken(3)
    assert [one.next_sequence() for _ in range(3)][-1] == WINDOW + 3
    assert not one.has_room


FILE = """
[brokers.a]
[brokers.b]
[[links]]
ends = ["a", "b"]
latency = "5ms"
transport = "mqtt://10.0.0.5:1883/overlane"
"""


def test_a_carrier_needs_the_secret_of_the_overlay() -> None:
    with pytest.raises(ConfigError, match=r"links\[0\].transport: found .* allowed is a carrier only where"):
        parse_network(FILE)
    network = parse_network(FILE + '[security]\noverlay_secret = "secret"\n')
    assert network.links[0].carrier == "mqtt://10.0.0.5:1883/overlane"
    assert network.links[0].transport == "stream"
    assert parse_network(format_network(network)) == network
    amqp = parse_network(FILE.replace("mqtt://", "amqps://") + '[security]\noverlay_secret = "secret"\n')
    assert amqp.links[0].carrier == "amqps://10.0.0.5:1883/overlane"
    with pytest.raises(ConfigError, match="or an MQTT or AMQP broker that carries it"):
        parse_network(FILE.replace("mqtt://10.0.0.5:1883/overlane", "mqtt://10.0.0.5:1883"))


class Carried:
    """Two brokers with files of their own, each of which knows a wrong address of the other; and a carrier."""

    def __init__(self, path: Path, carrier: RunningBroker, transport: str) -> None:
        self.carrier = carrier
        self.ours = [Overlane(path / name) for name in ("first", "second")]
        (path / "secret").write_text("a-secret-that-is-long-enough")
        for broker, (me, other) in zip(self.ours, (("here", "there"), ("there", "here")), strict=True):
            file = path / broker.directory.name / "network.toml"
            own = file.read_text().replace("[brokers.here]", f"[brokers.{me}]")
            file.write_text(
                f"{own}\n[brokers.{other}]\n"
                f'mqtt = "127.0.0.1:{free_port()}"\noverlay = "127.0.0.1:{free_port()}"\n'
                f'admin = "127.0.0.1:{free_port()}"\n'
                f'[[links]]\nends = ["here", "there"]\nlatency = "1ms"\n'
                f'transport = "{transport}"\n'
                f'[security]\noverlay_secret = "{path}/secret"\n'
                '[topics."#"]\nreliability = "reliable"\n'
            )

    def start(self) -> None:
        self.carrier.start()
        self.ours[0].start()
        command = self.ours[1].command()
        command[command.index("here")] = "there"
        self.ours[1].command = lambda: command  # type: ignore[method-assign]
        self.ours[1].start()

    def end(self) -> None:
        for broker in (*self.ours, self.carrier):
            broker.kill()

    def link(self) -> dict[str, object]:
        with urlopen(f"http://{self.ours[0].admin}/links", timeout=30) as answer:
            found: dict[str, object] = json.load(answer)["items"][0]
        return found


@pytest.fixture
def carried(tmp_path: Path) -> Iterator[Carried]:
    carrier = make_broker("mosquitto", tmp_path / "carrier")
    made = Carried(tmp_path, carrier, f"mqtt://{carrier.address}/corp/overlane")
    try:
        made.start()
        yield made
    finally:
        made.end()


async def until_up(carried: Carried) -> None:
    async with asyncio.timeout(WITHIN_S):
        while (await asyncio.to_thread(carried.link))["state"] != "up":
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "kind",
    [
        "proton",
        "overlane",
        pytest.param("rabbitmq", marks=pytest.mark.skipif(not RABBITMQ.exists(), reason="RabbitMQ is not installed")),
    ],
)
@pytest.mark.slow
def test_a_link_is_carried_by_an_amqp_broker_and_mended_when_that_is_killed(kind: str, tmp_path: Path) -> None:
    carrier: RunningBroker
    prefix = "corp"
    if kind == "proton":
        proton("proton")
        carrier = ProtonBroker(tmp_path / "carrier", has_relay=False)
        port = carrier.port
    elif kind == "rabbitmq":
        carrier = RabbitMq(tmp_path / "carrier")
        port, prefix = carrier.port, "/topic/corp"
    else:
        port = free_port()
        carrier = Overlane(tmp_path / "carrier", endpoints=f'amqp = "127.0.0.1:{port}"')
    carried = Carried(tmp_path, carrier, f"amqp://127.0.0.1:{port}/{prefix}")

    async def story() -> None:
        await until_up(carried)
        async with (
            connect(carried.ours[0].address) as here,
            connect(carried.ours[1].address) as there,
            there.subscribe("t/#", qos=1) as arrived,
        ):
            large = b"plain text " * 5_000
            async with asyncio.timeout(WITHIN_S):
                while not arrived.unread:  # the first broker hears of the subscription over the link
                    await here.publish("t/1", large, qos=1)
                    await asyncio.sleep(0.1)
                assert (await anext(arrived)).body == large
            await asyncio.to_thread(carrier.kill)
            await here.publish("t/2", b"meanwhile", qos=1)
            await asyncio.to_thread(carrier.start)
            async with asyncio.timeout(WITHIN_S):
                while (await anext(arrived)).topic != "t/2":
                    pass

    try:
        carried.start()
        asyncio.run(story())
    finally:
        carried.end()


def test_a_link_is_carried_measured_and_mended_and_the_carrier_reads_nothing(carried: Carried) -> None:
    async def story() -> None:
        await until_up(carried)
        async with (
            connect(carried.ours[0].address) as here,
            connect(carried.ours[1].address) as there,
            there.subscribe("t/#", qos=1) as arrived,
        ):
            large = b"plain text " * 5_000
            async with asyncio.timeout(WITHIN_S), aiomqtt.Client("127.0.0.1", carried.carrier.port) as spy:
                await spy.subscribe("#")
                while not arrived.unread:  # the first broker hears of the subscription over the link
                    await here.publish("t/1", large, qos=1)
                    await asyncio.sleep(0.1)
                assert (await anext(arrived)).body == large
                async for message in spy.messages:
                    assert isinstance(message.payload, bytes)
                    assert b"plain text" not in message.payload
                    assert str(message.topic) in ("corp/overlane/here/there", "corp/overlane/there/here")
                    if len(message.payload) > 10_000:
                        break
            async with asyncio.timeout(WITHIN_S):
                while not (await asyncio.to_thread(carried.link)).get("latency_ms"):
                    await asyncio.sleep(0.05)
            await asyncio.to_thread(carried.carrier.kill)
            await here.publish("t/2", b"meanwhile", qos=1)
            await asyncio.to_thread(carried.carrier.start)
            async with asyncio.timeout(WITHIN_S):
                while (await anext(arrived)).topic != "t/2":
                    pass

    asyncio.run(story())
