"""Wills: said when a client is gone without a goodbye, and only then."""

from typing import Any

import mqtt5
import pytest
from clients import Bench, Client, Got

from overlane.core.events import PublishResult
from overlane.core.qos import QosClass
from overlane.core.units import SECOND, Nanos
from overlane.pubsub.access import Rule
from overlane.pubsub.cluster.uplink import Alone

VERSIONS = pytest.mark.parametrize("version", [4, 5])


def will(payload: bytes = b"gone", qos: int = 0, **given: Any) -> mqtt5.Will:
    return mqtt5.Will("w", payload=payload, qos=mqtt5.QoS(qos), **given)


def heir(bench: Bench) -> Client:
    client = bench.client("heir", expiry=1_000)
    client.subscribe("w", qos=2)
    return client


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_lost_connection_publishes_the_will(version: int, qos: int) -> None:
    # MQTT-3.1.2-8
    bench = Bench()
    alice = heir(bench)
    bob = bench.client("bob", version, will=will(qos=qos))
    assert alice.got() == []
    bob.drop()
    assert alice.got() == [Got("w", b"gone", qos=qos)]
    assert "mqtt.will" not in bench.tables()


@VERSIONS
def test_a_goodbye_takes_the_will_away(version: int) -> None:
    # MQTT-3.1.2-10, MQTT-3.14.4-3
    bench = Bench()
    alice = heir(bench)
    bench.client("bob", version, will=will()).disconnect()
    bench.wait(100)
    assert alice.got() == []
    assert "mqtt.will" not in bench.tables()


def test_a_goodbye_with_will_publishes_it() -> None:
    # MQTT 5, section 3.14.2.1: 0x04
    bench = Bench()
    alice = heir(bench)
    bench.client("bob", will=will()).disconnect(0x04)
    assert alice.got() == [Got("w", b"gone")]


def test_a_goodbye_for_any_other_reason_publishes_the_will() -> None:
    # MQTT 5, section 3.1.2.5: only 0x00 takes it away
    bench = Bench()
    alice = heir(bench)
    bench.client("bob", will=will()).disconnect(0x80)
    assert alice.got() == [Got("w", b"gone")]


@VERSIONS
def test_a_violation_publishes_the_will(version: int) -> None:
    bench = Bench()
    alice = heir(bench)
    bench.client("bob", version, will=will()).send(b"\xf0\x00")
    assert alice.got() == [Got("w", b"gone")]


@VERSIONS
def test_silence_publishes_the_will(version: int) -> None:
    bench = Bench()
    alice = heir(bench)
    bench.client("bob", version, will=will(), keep_alive=10)
    bench.wait(15)
    assert alice.got() == [Got("w", b"gone")]


def test_an_operator_who_ends_a_connection_publishes_the_will() -> None:
    bench = Bench()
    alice = heir(bench)
    bench.client("bob", will=will())
    bench.server.disconnect("bob", bench.now)
    bench.settle()
    assert alice.got() == [Got("w", b"gone")]


def test_the_will_of_a_refused_client_is_not_published() -> None:
    bench = Bench(users={"bob": b"secret"})
    alice = heir(bench)
    bench.client("bob", username="bob", password=b"guess", will=will())
    assert alice.got() == []
    assert "mqtt.will" not in bench.tables()


# The delay


def test_the_will_waits_for_its_delay() -> None:
    # MQTT-3.1.3-9 and section 3.1.3.2.2
    bench = Bench()
    alice = heir(bench)
    bench.client("bob", expiry=600, will=will(will_delay_interval=60)).drop()
    bench.wait(59.9)
    assert alice.got() == []
    bench.wait(0.1)
    assert alice.got() == [Got("w", b"gone")]
    bench.wait(1_000)
    assert alice.got() == []


def test_the_will_comes_no_later_than_the_session_ends() -> None:
    # MQTT-3.1.2-8
    bench = Bench()
    alice = heir(bench)
    bench.client("bob", expiry=60, will=will(will_delay_interval=600)).drop()
    bench.client("carol", will=will(b"no session", will_delay_interval=600)).drop()
    assert [got.payload for got in alice.got()] == [b"no session"]
    bench.wait(60)
    assert [got.payload for got in alice.got()] == [b"gone"]


def test_who_comes_back_in_time_takes_the_will_away() -> None:
    # MQTT-3.1.3-9
    bench = Bench()
    alice = heir(bench)
    bob = bench.client("bob", expiry=600, will=will(will_delay_interval=60))
    bob.drop()
    bench.wait(59)
    bob.reconnect(will=None)
    bench.wait(1_000)
    assert alice.got() == []
    bob.drop()
    bench.wait(1_000)
    assert alice.got() == []


def test_who_comes_back_with_a_new_will_has_only_that() -> None:
    bench = Bench()
    alice = heir(bench)
    bob = bench.client("bob", expiry=600, will=will(b"first", will_delay_interval=60))
    bob.drop()
    bench.wait(30)
    bob.reconnect(will=will(b"second", will_delay_interval=60))
    bench.wait(100)
    assert alice.got() == []
    bob.drop()
    bench.wait(60)
    assert [got.payload for got in alice.got()] == [b"second"]


def test_who_comes_back_to_a_clean_session_has_its_will_published() -> None:
    # MQTT 5, section 3.1.3.2.2: the session ends
    bench = Bench()
    alice = heir(bench)
    bob = bench.client("bob", expiry=600, will=will(will_delay_interval=60))
    bob.drop()
    bob.reconnect(clean=True, will=None)
    assert alice.got() == [Got("w", b"gone")]


def test_the_expiry_changed_at_the_end_holds_for_the_will() -> None:
    bench = Bench()
    alice = heir(bench)
    bench.client("bob", expiry=600, will=will(will_delay_interval=60)).disconnect(0x04, expiry=10)
    bench.wait(10)
    assert alice.got() == [Got("w", b"gone")]


# Taking over


def test_a_take_over_publishes_the_will_unless_the_session_goes_on_and_there_is_a_delay() -> None:
    # MQTT 5, section 3.1.4, step 1
    bench = Bench()
    alice = heir(bench)
    bench.client("bob", expiry=60, will=will(b"no delay"))
    bench.client("bob", expiry=60, will=will(b"delay", will_delay_interval=10))
    assert [got.payload for got in alice.got()] == [b"no delay"]
    bench.client("bob", expiry=60, will=will(b"delay, clean", will_delay_interval=10))
    assert alice.got() == []
    bench.client("bob", expiry=60, clean=True)
    assert [got.payload for got in alice.got()] == [b"delay, clean"]
    bench.wait(100)
    assert alice.got() == []


def test_a_take_over_in_3_1_1_publishes_the_will() -> None:
    bench = Bench()
    alice = heir(bench)
    bench.client("bob", 4, will=will())
    bench.client("bob", 4)
    assert alice.got() == [Got("w", b"gone")]


# What it is


def test_a_will_may_be_retained() -> None:
    # MQTT-3.1.2-14, MQTT-3.1.2-15
    bench = Bench()
    bench.client("bob", will=will(qos=1, retain=True)).drop()
    alice = heir(bench)
    assert alice.got() == [Got("w", b"gone", qos=1, retain=True)]


def test_a_will_has_its_properties_and_expires_after_it_is_published() -> None:
    # MQTT 5, section 3.1.3.2
    bench = Bench()
    alice = heir(bench)
    wish = will(
        payload_format_indicator=1,
        message_expiry_interval=100,
        content_type="text/plain",
        response_topic="r",
        correlation_data=b"c",
        user_properties=[("a", "1"), ("a", "2")],
        will_delay_interval=50,
        qos=1,
    )
    bench.client("bob", expiry=600, will=wish).drop()
    alice.drop()
    bench.wait(80)
    alice.reconnect()
    message = alice.saw(mqtt5.PublishPacket)[0]
    assert message.payload_format_indicator == 1
    assert message.content_type == "text/plain"
    assert message.response_topic == "r"
    assert message.correlation_data == b"c"
    assert message.user_properties == [("a", "1"), ("a", "2")]
    assert message.message_expiry_interval == 70


def test_a_will_may_be_empty() -> None:
    bench = Bench()
    alice = heir(bench)
    bench.client("bob", will=will(b"")).drop()
    assert alice.got() == [Got("w", b"")]


# Rights


def test_a_client_may_not_leave_a_will_where_it_may_not_publish() -> None:
    bench = Bench(rules=[Rule(user="anonymous", publish=("open",), subscribe=("#",))])
    assert bench.client("bob", will=will()).refusal == 0x87
    assert bench.client("bob", 4, will=will()).refusal == 0x87
    assert bench.client("bob", will=mqtt5.Will("$SYS/x")).refusal == 0x87
    assert bench.client("bob", will=mqtt5.Will("open")).refusal == 0


def test_a_will_whose_right_was_revoked_is_not_published() -> None:
    both = Rule(user="anonymous", publish=("#",), subscribe=("#",))
    bench = Bench(rules=[both])
    alice = heir(bench)
    bob = bench.client("bob", will=will())
    bench.reconfigure([Rule(user="anonymous", subscribe=("#",))])
    bob.drop()
    assert alice.got() == []


def test_a_will_with_too_many_levels_is_refused() -> None:
    assert Bench(filter_levels=3).client("bob", will=mqtt5.Will("a/b/c/d")).refusal == 0x90


# Crashes


def test_wills_of_all_who_were_connected_are_published_after_a_crash() -> None:
    bench = Bench()
    alice = heir(bench)
    bench.client("bob", will=will(b"bob"))
    bench.client("carol", expiry=60, will=will(b"carol"))
    bench.client("dave", expiry=60, will=will(b"dave", will_delay_interval=30))
    bench.client("eve", will=will(b"eve", qos=1, will_delay_interval=30))
    bench.client("frank", will=will(b"frank")).disconnect()
    bench.crash()
    alice.reconnect()
    # of QoS 0 to a client that is away: lost
    assert [got.payload for got in alice.got()] == [b"eve"]
    bench.wait(30)
    assert [got.payload for got in alice.got()] == [b"dave"]
    assert "mqtt.will" not in bench.tables()


def test_a_crash_does_not_prolong_the_delay() -> None:
    bench = Bench()
    alice = heir(bench)
    bench.client("bob", expiry=600, will=will(qos=1, will_delay_interval=60)).drop()
    bench.wait(40)
    bench.crash()
    alice.reconnect()
    bench.wait(19)
    assert alice.got() == []
    bench.wait(1)
    assert alice.got() == [Got("w", b"gone", qos=1)]


def test_a_will_that_became_due_while_the_broker_was_down_is_published_at_its_start() -> None:
    bench = Bench()
    alice = heir(bench)
    bench.client("bob", expiry=600, will=will(qos=1, will_delay_interval=60)).drop()
    bench.crash(restart=False)
    bench.now += 100 * SECOND
    bench.start()
    alice.reconnect()
    assert alice.got() == [Got("w", b"gone", qos=1)]


def test_a_will_is_published_once_even_if_the_broker_crashes_afterwards() -> None:
    bench = Bench()
    alice = heir(bench)
    bench.client("bob", will=will(qos=1)).drop()
    bench.crash()
    alice.reconnect()
    assert alice.got() == [Got("w", b"gone", qos=1)]


def test_a_client_is_let_in_when_its_will_is_on_disk() -> None:
    bench = Bench()
    bench.is_store_slow = True
    bob = bench.client("bob", will=will())
    assert bob.connack is None
    bench.commit()
    bench.settle()
    assert bob.refusal == 0


def test_a_draining_server_publishes_wills_for_those_who_come_back() -> None:
    bench = Bench()
    alice = heir(bench)
    bench.client("bob", will=will(qos=1))
    bench.server.drain(bench.now)
    bench.settle()
    bench.crash()
    alice.reconnect()
    assert alice.got() == [Got("w", b"gone", qos=1)]


def test_while_the_store_fails_wills_reach_those_who_are_there() -> None:
    bench = Bench()
    alice = heir(bench)
    plain = bench.client("plain")
    plain.subscribe("w", qos=1)
    bob = bench.client("bob", will=will(qos=1, retain=True))
    bench.server.store_is_failing(True)
    bench.is_store_slow = True
    bob.drop()
    assert plain.got() == [Got("w", b"gone", qos=1)]
    bench.server.store_is_failing(False)
    bench.is_store_slow = False
    bench.settle()
    assert alice.got() == [Got("w", b"gone", qos=1)]


class Elsewhere(Alone):
    """Another broker needs every topic; what is published for it, if it takes anything."""

    is_alone = False

    def __init__(self) -> None:
        self.published: list[tuple[str, bytes]] = []
        self.result = PublishResult.ACCEPTED

    def carries(self, topic: str) -> bool:
        return not topic.startswith("$")

    def publish(
        self,
        topic: str,
        body: bytes,
        flags: int,  # noqa: ARG002
        qos: QosClass,  # noqa: ARG002
        now: Nanos,  # noqa: ARG002
        served: tuple[str, ...] = (),  # noqa: ARG002
    ) -> PublishResult:
        if self.result is PublishResult.ACCEPTED:
            self.published.append((topic, body))
        return self.result

    def wills(self) -> list[bytes]:
        return [body[-5:] for topic, body in self.published if topic == "w"]


def test_a_will_that_cannot_be_published_outlives_a_crash() -> None:
    overlay = Elsewhere()
    bench = Bench(uplink=overlay)
    bob = bench.client("bob", will=will(b"will1", qos=1))
    overlay.result = PublishResult.BUSY
    bob.drop()
    assert bench.tables()["mqtt.will"] == 1
    overlay.result = PublishResult.ACCEPTED
    bench.crash()
    assert overlay.wills() == [b"will1"]
    bench.settle()
    assert "mqtt.will" not in bench.tables()


def test_wills_of_one_client_are_published_in_their_order_however_often_they_are_tried() -> None:
    """Found by seeds 3, 23 and 32 of the soak of whole brokers."""
    overlay = Elsewhere()
    bench = Bench(uplink=overlay)
    bob = bench.client("bob", will=will(b"will1", qos=1))
    overlay.result = PublishResult.BUSY
    bob.drop()
    bench.wait(0.5)
    bob.connect(will=will(b"will2", qos=1))
    overlay.result = PublishResult.ACCEPTED
    bob.drop()
    bench.wait(3)
    assert overlay.wills() == [b"will1", b"will2"]
    assert "mqtt.will" not in bench.tables()


def test_the_will_of_the_next_connection_is_stored_when_that_of_the_one_before_is_published() -> None:
    overlay = Elsewhere()
    bench = Bench(uplink=overlay)
    bob = bench.client("bob", will=will(b"will1", qos=1))
    overlay.result = PublishResult.BUSY
    bob.drop()
    bob.connect(will=will(b"will2", qos=1))
    overlay.result = PublishResult.ACCEPTED
    bench.wait(1)
    bench.crash()
    assert overlay.wills() == [b"will1", b"will2"]


def test_a_will_that_comes_while_the_store_fails_is_stored_when_it_works_again() -> None:
    bench = Bench()
    alice = heir(bench)
    bench.server.store_is_failing(True)
    bench.client("bob", will=will(qos=1))
    assert "mqtt.will" not in bench.tables()
    bench.server.store_is_failing(False)
    bench.wait(0)
    bench.crash()
    alice.reconnect()
    assert alice.got() == [Got("w", b"gone", qos=1)]


@pytest.mark.parametrize(("version", "wills"), [(4, [Got("w", b"gone", qos=1)]), (5, [])])
def test_a_refusal_that_ends_a_connection_of_3_1_1_publishes_the_will_whatever_the_client_says_after_it(
    version: int, wills: list[Got]
) -> None:
    bench = Bench()
    alice = bench.client("alice")
    alice.subscribe("w", qos=1)
    bob = bench.client("bob", version, expiry=60, will=will(qos=1))
    bench.server.store_is_failing(True)
    bench.is_store_slow = True
    bob.send(mqtt5.PublishPacket("t", b"refused", qos=mqtt5.QoS(2), packet_id=1), mqtt5.DisconnectPacket())
    assert alice.got() == wills
    bench.server.store_is_failing(False)
    bench.is_store_slow = False
    bench.settle()
    assert alice.got() == []
    assert "mqtt.will" not in bench.tables()
