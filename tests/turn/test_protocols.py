"""Clients of several protocols at one broker: one service, one turn, one batch of records."""

import mqtt5
import pytest

from overlane.core.config import BrokerConfig
from overlane.core.qos import QosTable
from overlane.core.units import MS, SECOND, Nanos
from overlane.pubsub.contract.connection import ClientConnection
from overlane.pubsub.contract.consumer import Ending, Peer
from overlane.pubsub.contract.protocol import AnyServer
from overlane.pubsub.limits import Limits
from overlane.pubsub.state import Settings
from overlane.turn.assembly import assemble
from overlane.turn.protocols import MQTT, PROTOCOLS
from overlane.turn.turn import Outcome, Turn

NOW: Nanos = 1_000 * SECOND


def made() -> Turn:
    turn = assemble(BrokerConfig("here", QosTable({})), Settings(), 1, [], NOW, lambda: "fresh", is_alone=True)
    turn.start(NOW)
    turn.end(NOW)
    return turn


def sent(outcome: Outcome, connection: ClientConnection) -> tuple[bytes, bool]:
    """What is sent to it, and whether it waits for the records."""
    [(chunks, waits)] = [(chunks, waits) for one, chunks, waits in outcome.packets if one is connection]
    return b"".join(chunks), waits


def test_what_a_nats_client_is_told_waits_for_the_records_of_an_mqtt_session() -> None:
    turn = made()
    keeper = turn.server.connected(Peer("127.0.0.1:1"), NOW)
    said = (
        mqtt5.ConnectPacket("keeper", clean_start=False, session_expiry_interval=1_000),
        mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("t/#", max_qos=mqtt5.QoS.AT_LEAST_ONCE)]),
    )
    turn.server.receive(keeper, b"".join(one.write() for one in said), NOW)
    turn.committed(turn.end(NOW).batch, NOW)
    server = turn.protocol("nats")
    client = server.connected(Peer("127.0.0.1:2", listener="nats"), NOW)
    server.receive(client, b'CONNECT {"verbose":true}\r\n', NOW)
    told, waits = sent(turn.end(NOW), client)
    assert (told.startswith(b"INFO "), told.endswith(b"+OK\r\n"), waits) == (True, True, False)
    server.receive(client, b"PUB t.x 1\r\n1\r\n", NOW)
    outcome = turn.end(NOW + MS)
    assert (sent(outcome, client), sent(outcome, keeper)[1]) == ((b"+OK\r\n", True), True)
    assert outcome.records is not None
    released = turn.committed(outcome.batch, NOW + 2 * MS).released
    assert {*released} == {client, keeper}


def test_a_server_is_made_for_the_first_listener_of_its_protocol() -> None:
    turn = made()
    assert list(turn.protocols) == [MQTT]
    assert turn.protocol("nats") is turn.protocol("nats")
    assert turn.protocol(MQTT) is turn.server
    assert list(turn.protocols) == [MQTT, "nats"]


@pytest.mark.parametrize("name", [MQTT, *PROTOCOLS])
def test_every_protocol_keeps_the_contract_of_connections(name: str) -> None:
    """Counted, closed with a reason or without, gone: the state is as it was before."""
    turn = made()
    server: AnyServer = turn.protocol(name)
    connection = server.connected(Peer("127.0.0.1:1"), NOW)
    assert turn.pubsub.state.connections == {connection}
    assert connection.protocol
    assert (connection.waiting_bytes, connection.has_acknowledgements_ahead, connection.is_open) == (0, False, False)
    turn.end(NOW)
    connection.end(Ending.SHUTTING_DOWN, "closing time")
    connection.end(Ending.BY_OPERATOR, "too late")
    assert [one for one, _, _ in turn.end(NOW).packets] == [connection]
    assert connection.closing == "closing time"
    server.receive(connection, b"anything", NOW)
    server.lost(connection, NOW)
    assert not turn.pubsub.state.connections
    assert not turn.pubsub.state.failures


@pytest.mark.parametrize("name", [MQTT, *PROTOCOLS])
def test_every_protocol_turns_away_what_is_far_too_much(name: str) -> None:
    turn = made()
    turn.pubsub.reconfigure(Settings(Limits(connections=1)))
    server = turn.protocol(name)
    connections = [server.connected(Peer(f"127.0.0.1:{number}"), NOW) for number in range(66)]
    assert [number for number, one in enumerate(connections) if one.closing is not None] == [65]


@pytest.mark.parametrize("name", [MQTT, *PROTOCOLS])
def test_a_client_of_every_protocol_has_to_introduce_itself_in_time(name: str) -> None:
    turn = made()
    connection = turn.protocol(name).connected(Peer("127.0.0.1:1"), NOW)
    turn.end(NOW)
    turn.tick(NOW + Limits().connect_within_ns)
    assert connection.closing == ("no open in time" if name == "amqp" else "no CONNECT in time")
