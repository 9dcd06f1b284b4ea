"""Any bytes at all: nothing that a client sends raises, prints, or reaches anybody else but as MQTT.

`OVERLANE_FUZZ=100000 python -m pytest tests/mqtt/test_fuzz.py` looks for longer.
"""

import os

import mqtt5
import pytest
from any_packets import PACKETS, PACKETS_311, mutated
from clients import Bench, Client, Got
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from overlane.mqtt.codec import codec5, codec311
from overlane.mqtt.connection import Connection
from overlane.pubsub.contract.connection import Phase
from overlane.pubsub.contract.consumer import Peer

EXAMPLES = int(os.environ.get("OVERLANE_FUZZ", "150"))

WRITTEN = PACKETS.map(codec5.write)
WRITTEN_311 = PACKETS_311.map(codec311.write)
ANYTHING = st.binary(max_size=40) | WRITTEN | WRITTEN_311 | mutated(WRITTEN) | mutated(WRITTEN_311)


def bystanders(bench: Bench) -> list[Client]:
    """Clients whom it does not concern."""
    clients = [bench.client("bystander 5", 5, expiry=60), bench.client("bystander 4", 4)]
    for client in clients:
        client.subscribe("not/concerned", qos=2)
    return clients


def check(bench: Bench, clients: list[Client]) -> None:
    """They hear each other, and the server has kept its house in order."""
    for qos, client in enumerate(clients):
        client.publish("not/concerned", b"x", qos=qos)
    for client in clients:
        assert [got for got in client.got() if got.topic == "not/concerned"] == [
            Got("not/concerned", b"x", qos=qos) for qos in range(len(clients))
        ]
    state = bench.server.state
    for connection in state.connections:
        assert isinstance(connection, Connection)
        assert (connection.phase is Phase.OPEN) == (connection.session is not None)
        if connection.session is not None:
            assert connection.session.consumer is connection
    for session in state.sessions.values():
        waiting = sum(entry.message.size_bytes for entry in session.window)
        assert session.window.bytes == waiting
        assert session.consumer is not None or session.is_durable


@examples(EXAMPLES)
@given(st.sampled_from([4, 5]), st.lists(ANYTHING, min_size=1, max_size=8), st.lists(st.integers(1, 30), max_size=4))
def test_whatever_a_client_sends_concerns_nobody_else(version: int, sent: list[bytes], cuts: list[int]) -> None:
    bench = Bench(packet_bytes=20_000)
    clients = bystanders(bench)
    mallory = bench.client("mallory", version, expiry=60)
    mallory.polite = False
    for data in sent:
        if mallory.is_closed:
            mallory.reconnect()
        while cuts and data and mallory.is_open:
            cut = cuts.pop()
            mallory.send(data[:cut])
            data = data[cut:]
        if mallory.is_open:
            mallory.send(data)
    mallory.drop()
    check(bench, clients)


@examples(EXAMPLES)
@given(st.lists(ANYTHING, min_size=1, max_size=4))
def test_whatever_a_stranger_sends_concerns_nobody_else(sent: list[bytes]) -> None:
    bench = Bench(packet_bytes=20_000)
    clients = bystanders(bench)
    connection = bench.server.connected(Peer("192.0.2.1"), bench.now)
    for data in sent:
        bench.server.receive(connection, data, bench.now)
        bench.end_turn()
    check(bench, clients)


@examples(EXAMPLES)
@given(st.sampled_from([4, 5]), st.lists(WRITTEN | WRITTEN_311, min_size=1, max_size=12))
def test_whatever_a_client_has_said_the_server_starts_again_from_its_records(version: int, sent: list[bytes]) -> None:
    bench = Bench()
    clients = bystanders(bench)
    mallory = bench.client("mallory", version, expiry=60)
    mallory.polite = False
    for data in sent:
        if mallory.is_closed:
            mallory.reconnect()
        mallory.send(data)
    bench.crash()
    for client in clients:
        client.reconnect()
        client.subscribe("not/concerned", qos=2)
    check(bench, clients)
    mallory.reconnect(clean=True) if version == 5 else mallory.reconnect(expiry=0)
    mallory.disconnect()
    bench.wait(100)
    left = {table: count for table, count in bench.tables().items() if table != "mqtt.retained"}
    assert set(left) <= {"mqtt.session", "mqtt.subscription"}


def test_nothing_is_printed_on_the_way(capfd: pytest.CaptureFixture[str]) -> None:
    bench = Bench()
    for version in (4, 5):
        mallory = bench.client("mallory", version)
        mallory.send(mqtt5.PublishPacket("t", b"").write()[:-1] + b"\xff\xff")
        mallory.reconnect()
        mallory.send(b"\x82\x08\x00\x01\x00\x00\x02\xff\xfe\x00")
    assert capfd.readouterr() == ("", "")
