"""QoS 1 once: what a client that asks for it may rely on when the broker dies."""

from typing import Any

import mqtt5
import pytest
from clients import Bench, Client, Got

from overlane.pubsub.sessions.deduplication import PROPERTY, RUN_CHARS_MAX


def asking(run: str = "first-life") -> dict[str, Any]:
    return {"expiry": 60, "user_properties": [(PROPERTY, run)]}


def with_reader(in_flight: int = 100) -> tuple[Bench, Client]:
    """A bench, and a client away from it whose session gets all that is published."""
    bench = Bench(in_flight=in_flight)
    reader = bench.client("reader", expiry=60)
    reader.subscribe("#", qos=1)
    reader.drop()
    return bench, reader


def publish(client: Client, packet_id: int, payload: bytes, is_repeated: bool = False) -> None:
    client.send(mqtt5.PublishPacket("t", payload, qos=mqtt5.QoS(1), packet_id=packet_id, duplicate=is_repeated))


def payloads(reader: Client) -> list[bytes]:
    reader.reconnect()
    return [got.payload for got in reader.got()]


def test_what_was_accepted_before_a_crash_and_comes_again_is_acknowledged_and_delivered_once() -> None:
    bench, reader = with_reader()
    writer = bench.client("writer", **asking())
    publish(writer, 1, b"x")
    bench.crash()
    writer.reconnect()
    publish(writer, 1, b"x", is_repeated=True)
    assert mqtt5.PubAckPacket(1) in writer.saw()
    assert payloads(reader) == [b"x"]


def test_who_does_not_ask_gets_what_mqtt_promises() -> None:
    bench, reader = with_reader()
    writer = bench.client("writer", expiry=60)
    publish(writer, 1, b"x")
    bench.crash()
    writer.reconnect()
    publish(writer, 1, b"x", is_repeated=True)
    assert payloads(reader) == [b"x", b"x"]
    assert "mqtt.once" not in bench.tables()


def test_what_was_not_on_disk_before_a_crash_is_accepted_when_it_comes_again() -> None:
    bench, reader = with_reader()
    writer = bench.client("writer", **asking())
    bench.is_store_slow = True
    publish(writer, 1, b"x")
    bench.crash()
    bench.is_store_slow = False
    writer.reconnect()
    publish(writer, 1, b"x", is_repeated=True)
    assert payloads(reader) == [b"x"]


def test_a_message_that_is_not_marked_as_repeated_is_another_one() -> None:
    bench, reader = with_reader()
    writer = bench.client("writer", **asking())
    publish(writer, 1, b"x")
    bench.crash()
    writer.reconnect()
    publish(writer, 1, b"x")
    assert payloads(reader) == [b"x", b"x"]


@pytest.mark.parametrize("later", [asking("second-life"), {"user_properties": None}])
def test_another_life_of_the_client_has_identifiers_of_its_own(later: dict[str, Any]) -> None:
    bench, reader = with_reader()
    writer = bench.client("writer", **asking())
    publish(writer, 1, b"x")
    bench.crash()
    writer.reconnect(**later)
    publish(writer, 1, b"y", is_repeated=True)
    assert payloads(reader) == [b"x", b"y"]


def test_no_more_is_remembered_than_can_be_in_flight_and_that_is_the_latest() -> None:
    bench, reader = with_reader(in_flight=3)
    writer = bench.client("writer", **asking())
    for packet_id in range(1, 11):
        publish(writer, packet_id, b"%d" % packet_id)
    assert bench.tables()["mqtt.once"] == 3
    bench.crash()
    writer.reconnect()
    for packet_id in (8, 9, 10):
        publish(writer, packet_id, b"%d" % packet_id, is_repeated=True)
    publish(writer, 1, b"1", is_repeated=True)
    assert payloads(reader) == [*(b"%d" % packet_id for packet_id in range(1, 11)), b"1"]


def test_less_is_remembered_after_the_limit_was_lowered() -> None:
    bench, _ = with_reader(in_flight=5)
    writer = bench.client("writer", **asking())
    for packet_id in range(1, 6):
        publish(writer, packet_id, b"")
    bench.reconfigure(in_flight=2)
    writer.reconnect()
    assert bench.tables()["mqtt.once"] == 2


def test_nothing_is_left_of_it_when_the_session_ends() -> None:
    bench, reader = with_reader()
    writer = bench.client("writer", **asking())
    publish(writer, 1, b"x")
    reader.reconnect(**asking("reading"))
    publish(writer, 2, b"y")
    assert bench.tables()["mqtt.once"] > 2
    bench.crash()
    for client in (writer, reader):
        client.reconnect()
        client.disconnect(expiry=0)
    assert bench.tables() == {}


@pytest.mark.parametrize(("wishes", "is_asked"), [(asking(), True), ({"expiry": 60}, False)])
def test_identifiers_of_what_is_delivered_are_not_used_anew_after_a_crash_where_that_was_asked_for(
    wishes: dict[str, Any], is_asked: bool
) -> None:
    bench = Bench()
    reader = bench.client("reader", **wishes)
    reader.subscribe("t", qos=1)
    seen: list[int] = []
    for _ in range(3):
        bench.client("writer").publish("t", b"x", qos=1)
        seen += ids(reader)
        bench.crash()
        reader.reconnect()
    assert len(seen) == 3
    assert (len(set(seen)) == 3) == is_asked


def ids(reader: Client) -> list[int]:
    """Packet identifiers of the messages that have come."""
    return [packet.packet_id or 0 for packet in reader.saw() if isinstance(packet, mqtt5.PublishPacket)]


def test_identifiers_that_were_given_while_the_client_was_away_after_a_crash_are_not_used_anew_either() -> None:
    bench = Bench()
    reader = bench.client("reader", **asking())
    reader.subscribe("t", qos=1)
    bench.client("writer").publish("t", b"x", qos=1)
    seen = ids(reader)
    for _ in range(2):
        bench.crash()
        bench.client("writer").publish("t", b"x", qos=1)
        reader.reconnect()
        seen += ids(reader)
    assert len(seen) == len(set(seen)) == 3


def test_identifiers_that_were_given_before_the_client_asked_are_not_used_anew_either() -> None:
    bench = Bench()
    reader = bench.client("reader", expiry=60)
    reader.subscribe("t", qos=1)
    bench.client("writer").publish("t", b"x", qos=1)
    seen = ids(reader)
    reader.reconnect(**asking())
    bench.crash()
    bench.client("writer").publish("t", b"x", qos=1)
    reader.reconnect()
    seen += ids(reader)
    assert len(seen) == len(set(seen)) == 2


@pytest.mark.parametrize(
    ("wishes", "answer"),
    [
        (asking(), [(PROPERTY, "first-life")]),
        ({"expiry": 60}, []),
        ({**asking(), "expiry": 0}, []),
        (asking("x" * (RUN_CHARS_MAX + 1)), []),
    ],
)
def test_it_is_promised_to_those_who_ask_and_have_a_session_that_is_kept(
    wishes: dict[str, Any], answer: list[tuple[str, str]]
) -> None:
    client = Bench().client("me", **wishes)
    assert client.connack is not None
    assert [one for one in client.connack.user_properties if one[0] == PROPERTY] == answer


def test_messages_that_nothing_is_kept_of_cost_no_record() -> None:
    bench = Bench()
    listener = bench.client("listener")
    listener.subscribe("t", qos=1)
    writer = bench.client("writer", **asking())
    publish(writer, 1, b"x")
    assert listener.got() == [Got("t", b"x", qos=1)]
    assert "mqtt.once" not in bench.tables()
