"""Gateways to Kafka, by the mock cluster of librdkafka."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from gatewayprocess import GatewayProcess, gateway_table, state_of

from brokers import Overlane
from overlane.client import connect
from overlane.errors import ConfigError
from overlane.gateways.sides.kafka import CommitOrder, KafkaReceipt
from overlane.network import parse_network

WITHIN_S = 60.0


def test_an_offset_is_committed_when_everything_before_it_is_done() -> None:
    order = CommitOrder()
    for offset in (5, 6, 8):  # 7 was removed by compaction
        order.arrived(KafkaReceipt("t", 0, offset))
    order.arrived(KafkaReceipt("t", 1, 5))
    assert order.done(KafkaReceipt("t", 0, 6)) is None
    assert order.done(KafkaReceipt("t", 1, 5)) == 6
    assert order.done(KafkaReceipt("t", 0, 5)) == 7
    assert order.done(KafkaReceipt("t", 0, 8)) == 9
    assert order.held == 0


def test_a_rule_names_a_topic_of_kafka() -> None:
    table = gateway_table("g", "kafka://k", 'overlay = "a/#"\nlocal = "#"')
    with pytest.raises(ConfigError, match="a filter that begins with a topic of Kafka"):
        parse_network(f"[brokers.here]\n{table}")


@pytest.mark.slow
def test_records_cross_both_ways_and_the_place_is_kept_while_the_gateway_is_away(tmp_path: Path) -> None:
    cluster = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    found = next(iter(cluster.list_topics(timeout=WITHIN_S).brokers.values()))
    servers = f"{found.host}:{found.port}"
    broker = Overlane(tmp_path)
    broker.say(
        gateway_table(
            "g",
            f"kafka://{servers}",
            'overlay = "plant/in/#"\nlocal = "from/#"\ndirection = "in"',
            'overlay = "plant/out/#"\nlocal = "to/#"\ndirection = "out"',
        )
    )
    for topic in ("from", "to"):
        cluster.produce(topic, b"first", b"hall/1", headers={"unit": "bar"})
    assert cluster.flush(WITHIN_S) == 0
    broker.start()
    gateway = GatewayProcess(broker, "g")

    async def story() -> None:
        async with connect(broker.address) as ours, ours.subscribe("plant/in/#", qos=1) as arrived:
            await asyncio.to_thread(gateway.start)
            first = await asyncio.wait_for(anext(arrived), WITHIN_S)
            assert (first.topic, first.body, first.properties["unit"]) == ("plant/in/hall/1", b"first", "bar")
            async with asyncio.timeout(WITHIN_S):
                while (await state_of(broker, "g")).inwards.passed < 1:
                    await asyncio.sleep(0.1)
            await ours.publish("plant/out/hall/2", b"out", qos=1, properties={"a": "b"})
            record = await asyncio.to_thread(read, servers, "to", b"hall/2")
            assert record == (b"out", b"b")
            gateway.stop()
            for number in range(5):
                cluster.produce("from", str(number).encode(), b"hall/1")
            assert cluster.flush(WITHIN_S) == 0
            await ours.publish("plant/out/hall/3", b"meanwhile", qos=1)
            await asyncio.to_thread(gateway.start)
            came = [(await asyncio.wait_for(anext(arrived), WITHIN_S)).text for _ in range(5)]
            assert came == [str(number) for number in range(5)]
            assert (await asyncio.to_thread(read, servers, "to", b"hall/3"))[0] == b"meanwhile"

    try:
        asyncio.run(story())
    finally:
        gateway.kill()
        broker.kill()


def read(servers: str, topic: str, key: bytes) -> tuple[bytes, bytes]:
    """The record with this key, and its first header."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": f"reader-{key.hex()}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    until = time.monotonic() + WITHIN_S
    try:
        while time.monotonic() < until:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None and message.key() == key:
                headers: Any = message.headers() or [("", b"")]
                return message.value() or b"", headers[0][1]
    finally:
        consumer.close()
    raise AssertionError("no such record")
