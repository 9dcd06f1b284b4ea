"""Gateways to Kafka, by the mock cluster of librdkafka."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from gatewayprocess import GatewayProcess, gateway_table, state_of
from kafkacluster import OFFSET_COMMIT, PRODUCE, WITHIN_S, KafkaCluster, read

from brokers import Overlane
from overlane.client import connect
from overlane.errors import ConfigError
from overlane.gateways.message import BridgedMessage
from overlane.gateways.sides.kafka.commits import CommitOrder, KafkaReceipt
from overlane.gateways.sides.kafka.records import message_of, record_of
from overlane.gateways.sides.kafka.settings import kafka_options
from overlane.network import parse_network
from overlane.network.sections.gateways import foreign_address

RULES = (
    'overlay = "plant/in/#"\nlocal = "from/#"\ndirection = "in"',
    'overlay = "plant/out/#"\nlocal = "to/#"\ndirection = "out"',
)


def test_an_offset_is_committed_when_everything_before_it_is_done() -> None:
    order = CommitOrder()
    for offset in (5, 6, 8):  # 7 was removed by compaction
        assert order.arrived(KafkaReceipt("t", 0, offset), 10)
    assert order.arrived(KafkaReceipt("t", 1, 5), 10)
    assert not order.arrived(KafkaReceipt("t", 0, 6), 10)
    assert (order.held, order.held_bytes) == (4, 40)
    assert order.done(KafkaReceipt("t", 0, 6)) is None
    assert order.done(KafkaReceipt("t", 1, 5)) == 6
    assert order.done(KafkaReceipt("t", 0, 5)) == 7
    assert order.done(KafkaReceipt("t", 0, 5)) is None
    assert order.done(KafkaReceipt("t", 0, 8)) == 9
    assert (order.held, order.held_bytes) == (0, 0)


def test_what_is_done_of_a_partition_that_was_taken_away_is_not_committed() -> None:
    order = CommitOrder()
    order.arrived(KafkaReceipt("t", 0, 5), 10)
    order.arrived(KafkaReceipt("t", 1, 5), 10)
    assert order.holds([("t", 0)])
    order.forget(("t", 0))
    assert not order.holds([("t", 0)])
    assert order.done(KafkaReceipt("t", 0, 5)) is None
    assert order.arrived(KafkaReceipt("t", 0, 4), 10)  # given back: it is read from the last commit
    assert order.done(KafkaReceipt("t", 0, 4)) == 5
    assert (order.held, order.held_bytes) == (1, 10)


@pytest.mark.parametrize(("name", "key"), [("t/hall/3", b"hall/3"), ("t/", b""), ("t", None), ("t//", b"/")])
def test_a_name_is_a_topic_and_a_key_and_back(name: str, key: bytes | None) -> None:
    record = record_of(BridgedMessage(name, b"x", content_type="text/plain", properties=(("a", "1"), ("a", "2"))))
    assert record is not None
    assert (record.topic, record.key, record.value) == ("t", key, b"x")
    again = message_of(record.topic, record.key, record.value, record.headers)
    assert again == BridgedMessage(name, b"x", content_type="text/plain", properties=(("a", "1"), ("a", "2")))


def test_keys_and_headers_that_are_no_text_do_not_end_a_record() -> None:
    message = message_of("t", b"\xff#", None, [("id", b"\x00\x01"), ("long", b"x" * 70_000), ("none", None)])
    assert message.topic == "t"
    assert message.body == b""
    assert message.properties == (("kafka-key", "/yM="), ("id", "base64:AAE="), ("none", ""))


def test_removing_a_retained_message_removes_the_key() -> None:
    record = record_of(BridgedMessage("t/1", b"", retain=True))
    assert record is not None
    assert record.value is None
    assert record_of(BridgedMessage("a b/1", b"")) is None


def test_a_rule_names_a_topic_of_kafka() -> None:
    for local in ('local = "#"', 'local = "two words/#"'):
        table = gateway_table("g", "kafka://k", f'overlay = "a/#"\n{local}')
        with pytest.raises(ConfigError, match="a filter that begins with a topic of Kafka"):
            parse_network(f"[brokers.here]\n{table}")
    table = gateway_table("g", "mqtt://k", RULES[0], more='sasl = "PLAIN"')
    with pytest.raises(ConfigError, match="nothing where to is no Kafka cluster"):
        parse_network(f"[brokers.here]\n{table}")


def test_login_and_tls_are_settings_of_the_client() -> None:
    more = 'user = "u"\npassword_file = "p"\nsasl = "SCRAM-SHA-512"\nca = "/ca.pem"'
    gateway = parse_network(f"[brokers.here]\n{gateway_table('g', 'kafkas://k,l:1', *RULES, more=more)}").gateways[0]
    options = kafka_options(gateway, foreign_address(gateway.to), "group", ["from/#"], b"secret")
    assert options.settings == {
        "bootstrap.servers": "k:9093,l:1",
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": "/ca.pem",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "u",
        "sasl.password": "secret",
    }
    assert (options.topics_in, options.probed) == (("from",), "from")


class Pair:
    def __init__(self, path: Path) -> None:
        self.cluster = KafkaCluster()
        self.ours = Overlane(path)
        self.gateways: dict[str, GatewayProcess] = {}

    def begin(self, *names: str) -> None:
        to = f"kafka://{self.cluster.servers}"
        tables = [gateway_table(name, to, *RULES, more='backlog_rate = "none"') for name in names]
        self.ours.say("\n".join(tables))
        self.ours.start()
        for name in names:
            self.gateways[name] = GatewayProcess(self.ours, name)
            self.gateways[name].start()

    def end(self) -> None:
        for gateway in self.gateways.values():
            gateway.kill()
        self.ours.kill()
        self.cluster.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    try:
        yield made
    finally:
        made.end()


async def until(pair: Pair, state: str, name: str = "g") -> None:
    async with asyncio.timeout(WITHIN_S):
        while (await state_of(pair.ours, name)).state != state:
            await asyncio.sleep(0.1)


@pytest.mark.slow
def test_records_cross_both_ways_and_the_place_is_kept_while_the_gateway_is_away(pair: Pair) -> None:
    pair.cluster.produce("from", "first", key=b"hall/1")
    pair.cluster.make_topic("to", 4)
    pair.begin("g")
    gateway = pair.gateways["g"]

    async def story() -> None:
        async with connect(pair.ours.address) as ours, ours.subscribe("plant/in/#", qos=1) as arrived:
            first = await asyncio.wait_for(anext(arrived), WITHIN_S)
            assert (first.topic, first.body) == ("plant/in/hall/1", b"first")
            async with asyncio.timeout(WITHIN_S):
                while (await state_of(pair.ours, "g")).inwards.passed < 1:
                    await asyncio.sleep(0.1)
            await asyncio.to_thread(gateway.stop)
            await asyncio.to_thread(pair.cluster.produce, "from", *map(str, range(5)), key=b"hall/1")
            for number in range(20):
                await ours.publish("plant/out/hall/2", str(number), qos=1, properties={"a": "b"})
            await asyncio.to_thread(gateway.start)
            came = [(await asyncio.wait_for(anext(arrived), WITHIN_S)).text for _ in range(5)]
            assert came == [str(number) for number in range(5)]
            with pair.cluster.reader("to") as consumer:
                records = await asyncio.to_thread(read, consumer, 20)
            assert [one.value() for one in records] == [str(number).encode() for number in range(20)]
            assert {one.key() for one in records} == {b"hall/2"}
            headers: Any = records[0].headers()
            assert headers == [("a", b"b"), ("overlane-via", b"g")]

    asyncio.run(story())


@pytest.mark.slow
def test_nothing_is_lost_while_the_cluster_is_down_refuses_and_the_gateway_is_killed(pair: Pair) -> None:
    pair.cluster.make_topic("to", 1)
    pair.cluster.make_topic("from", 1)
    pair.begin("g")
    count = 40

    async def story() -> None:
        await until(pair, "up")
        async with connect(pair.ours.address) as ours, ours.subscribe("plant/in/#", qos=1) as arrived:
            for number in range(count):
                await ours.publish("plant/out/1", str(number), qos=1)
                if number == 5:
                    pair.cluster.fail(PRODUCE, KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.REQUEST_TIMED_OUT)
                    pair.cluster.fail(OFFSET_COMMIT, KafkaError.NOT_COORDINATOR)
                if number == 10:
                    pair.cluster.down()
                    await until(pair, "connecting")
                if number == 20:
                    pair.gateways["g"].kill()
                    await asyncio.to_thread(pair.gateways["g"].start)
                    pair.cluster.up()
                    await until(pair, "up")
            await asyncio.to_thread(pair.cluster.produce, "from", *map(str, range(count)))
            came: list[str] = []
            async with asyncio.timeout(WITHIN_S):
                while len(set(came)) < count:
                    came.append((await anext(arrived)).text)
            assert list(dict.fromkeys(came)) == [str(number) for number in range(count)]
            stored: list[bytes | None] = []
            with pair.cluster.reader("to") as consumer:
                while len(set(stored)) < count:
                    stored += [one.value() for one in await asyncio.to_thread(read, consumer, 1)]
            assert list(dict.fromkeys(stored)) == [str(number).encode() for number in range(count)]

    asyncio.run(story())
