"""CONNECT: who is let in, with which session, and what the others are told."""

import mqtt5
import pytest
from clients import NEVER_S, Bench, Client, Got
from raw import connect, connect_311, packet, properties, text, u16

from overlane.core.units import SECOND
from overlane.pubsub.access import Rule
from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.contract.questions import LoginVerdict
from overlane.pubsub.counters import Refusal

ELSEWHERE = Peer("192.0.2.1", is_loopback=False)

VERSIONS = pytest.mark.parametrize("version", [4, 5])


@VERSIONS
def test_a_client_is_let_in_and_told_so(version: int) -> None:
    # MQTT-3.1.4-5, MQTT-3.2.0-1: CONNACK is the first packet
    alice = Bench().client("alice", version)
    assert alice.refusal == 0
    assert not alice.is_resumed
    assert alice.is_open


def test_a_client_of_mqtt_5_is_told_the_limits() -> None:
    # MQTT 5, section 3.2.2.3
    bench = Bench(in_flight=7, topic_aliases=3, packet_bytes=5_000)
    connack = bench.client("alice").connack
    assert connack is not None
    assert (connack.receive_max, connack.topic_alias_max, connack.max_packet_size) == (7, 3, 5_000)
    assert connack.retain_available
    assert connack.shared_subscription_available
    assert connack.wildcard_subscription_available
    assert connack.subscription_id_available
    assert (connack.server_keep_alive, connack.assigned_client_id, connack.session_expiry_interval) == (None,) * 3


# Client identifiers


def test_a_client_without_identifier_is_given_one_and_told() -> None:
    # MQTT-3.1.3-6, MQTT-3.1.3-7, MQTT-3.2.2-16
    bench = Bench()
    first, second = bench.client(""), bench.client("")
    assert first.connack is not None
    assert second.connack is not None
    assert first.connack.assigned_client_id == "assigned-1"
    assert second.connack.assigned_client_id == "assigned-2"


def test_a_client_of_mqtt_5_without_identifier_may_ask_for_a_session_that_is_kept() -> None:
    bench = Bench()
    alice = bench.client("", expiry=60)
    alice.subscribe("t", qos=1)
    alice.drop()
    bench.client("bob").publish("t", b"x", qos=1)
    alice.id = "assigned-1"
    alice.reconnect()
    assert alice.is_resumed
    assert alice.got() == [Got("t", b"x", qos=1)]


def test_a_clean_client_of_3_1_1_may_come_without_identifier() -> None:
    # MQTT-3.1.3-6 of 3.1.1
    bench = Bench()
    first, second = bench.client("", 4), bench.client("", 4)
    assert first.is_open
    assert second.is_open


def test_a_client_of_3_1_1_without_identifier_cannot_have_a_session_that_is_kept() -> None:
    # MQTT-3.1.3-8 of 3.1.1: return code 2
    alice = Bench().client("", 4, expiry=NEVER_S)
    assert alice.refusal == 0x85
    assert alice.is_closed


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("name", ["amqp-queue/orders", "amqp-shared//news", "amqp/container/link", "amqp/container"])
def test_an_identifier_that_is_the_name_of_an_amqp_session_is_refused(name: str, version: int) -> None:
    bench = Bench()
    held = bench.server.pubsub.sessions.claim(name, None, False, 60, bench.now).session
    held.is_operators = True
    client = bench.client(name, version, expiry=NEVER_S)
    assert client.refusal == 0x85
    assert client.is_closed
    assert bench.server.state.sessions[name] is held
    assert held.consumer is None


def test_an_overlong_identifier_is_refused() -> None:
    # MQTT-3.1.3-8
    alice = Bench().client("a" * 257)
    assert alice.refusal == 0x85
    assert Bench().client("ä" * 256).refusal == 0


# What is no MQTT


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="HTTP"),
        pytest.param(packet(0x30, text("t"), b"\0", b"x"), id="PUBLISH"),
        pytest.param(b"\xc0\x00", id="PINGREQ"),
        pytest.param(b"\xe0\x00", id="DISCONNECT"),
        pytest.param(b"\x00\x00", id="type 0"),
        pytest.param(connect_311(first=0x11), id="CONNECT with reserved bits"),
        pytest.param(packet(0x10, b"\0"), id="nothing in CONNECT"),
        pytest.param(b"\x10\xff\xff\xff\xff\x01", id="overlong length"),
    ],
)
def test_a_first_packet_that_is_no_connect_closes_the_connection_without_a_word(first: bytes) -> None:
    # MQTT-3.1.0-1; before its CONNECT nobody can be answered in a version of the protocol
    alice = Bench().stranger().open()
    alice.send(first)
    assert alice.is_closed
    assert alice.saw() == []


@pytest.mark.parametrize(
    "wrong",
    [
        connect(level=6),
        connect(level=3),
        connect_311(name="MQIsdp", level=4),
        connect_311(name="mqtt"),
        connect_311(level=0x85),
    ],
)
def test_a_version_that_is_not_spoken_is_answered_so_that_every_version_understands(wrong: bytes) -> None:
    # MQTT-3.1.2-1, MQTT-3.1.2-2
    bench = Bench()
    alice = bench.stranger("", 4).open()
    alice.send(wrong)
    assert alice.refusal == 0x84
    assert alice.is_closed


def test_mqtt_3_1_is_served_like_3_1_1() -> None:
    bench = Bench()
    alice = bench.stranger("alice", 4).open()
    alice.send(connect_311(name="MQIsdp", level=3))
    assert alice.refusal == 0
    alice.subscribe("t")
    bench.client("bob").publish("t", b"x")
    assert alice.got() == [Got("t", b"x")]


@pytest.mark.parametrize(
    ("reason", "wrong"),
    [
        pytest.param(0x81, connect(0x03), id="reserved flag, MQTT-3.1.2-3"),
        pytest.param(0x81, connect(0x1E), id="will of QoS 3, MQTT-3.1.2-12"),
        pytest.param(0x81, connect(0x0A), id="QoS without will, MQTT-3.1.2-11"),
        pytest.param(0x82, connect(0x02, b"\x21\0\0"), id="receive maximum 0"),
        pytest.param(0x82, connect(0x02, b"\x27\0\0\0\0"), id="packet size 0"),
        pytest.param(0x82, connect(0x02, b"\x11\0\0\0\1", b"\x11\0\0\0\1"), id="a property twice"),
        pytest.param(0x81, connect(0x02, b"\x23\0\1"), id="a property of PUBLISH"),
        pytest.param(0x82, connect(0x02, b"\x16" + text("x")), id="authentication data without method"),
        pytest.param(0x81, connect(0x02, rest=text(b"\xff")), id="no UTF-8"),
        pytest.param(0x90, connect(0x06, rest=text("c") + b"\0" + text("a/#") + text("")), id="will with wildcard"),
        pytest.param(0x81, connect(0x02, rest=text("c") + b"more"), id="bytes behind it"),
    ],
)
def test_a_wrong_connect_of_mqtt_5_is_refused_with_its_reason(reason: int, wrong: bytes) -> None:
    # MQTT-4.13.1-1, section 3.1.4
    alice = Bench().stranger().open()
    alice.send(wrong)
    assert alice.refusal == reason
    assert alice.is_closed


@pytest.mark.parametrize("wrong", [connect_311(0x03), connect_311(0x0A), connect_311(0x42), connect_311(0x1E)])
def test_a_wrong_connect_of_3_1_1_closes_the_connection(wrong: bytes) -> None:
    # MQTT-3.1.2-3, MQTT-3.1.2-22 of 3.1.1
    alice = Bench().stranger("", 4).open()
    alice.send(wrong)
    assert alice.is_closed
    assert alice.saw() == []


@VERSIONS
def test_a_second_connect_is_a_protocol_error(version: int) -> None:
    # MQTT-3.1.0-2
    bench = Bench()
    alice = bench.client("alice", version)
    alice.send(mqtt5.ConnectPacket("alice", clean_start=True))
    assert alice.is_closed
    assert alice.ended == (0x82 if version == 5 else None)


def test_a_second_connect_is_a_protocol_error_whatever_version_it_names() -> None:
    alice = Bench().client("alice")
    alice.send(connect_311())
    assert alice.ended == 0x82


def test_a_closed_connection_cannot_be_opened_again() -> None:
    bench = Bench()
    alice = bench.stranger("", 4).open()
    alice.send(connect()[:5])
    alice.send(b"\xff" * 100)
    assert alice.is_closed
    for piece in (connect()[:5], connect()[5:], connect()):
        bench.server.receive(alice.connection, piece, bench.now)
    bench.settle()
    assert alice.saw() == [alice.connack]
    assert bench.server.state.sessions == {}


def test_a_connect_may_come_byte_by_byte() -> None:
    bench = Bench()
    alice = bench.stranger("c").open()
    for byte in connect():
        alice.send(bytes((byte,)))
    assert alice.refusal == 0


def test_what_follows_connect_in_the_same_read_is_heard_too() -> None:
    # MQTT-3.1.4-6: a client need not wait for CONNACK
    bench = Bench()
    watcher = bench.client("watcher")
    watcher.subscribe("t")
    alice = bench.stranger("c").open()
    alice.send(connect(), mqtt5.PublishPacket("t", b"x"))
    assert watcher.got() == [Got("t", b"x")]


def test_a_packet_before_connect_is_no_larger_than_the_limit_for_strangers() -> None:
    bench = Bench(packet_bytes_before_connect=100)
    alice = bench.stranger().open()
    alice.send(connect(rest=text("c" * 100))[:20])
    assert alice.is_closed
    assert bench.server.counters.refused[Refusal.TOO_LARGE] == 1


def test_who_does_not_say_connect_in_time_is_closed() -> None:
    bench = Bench(connect_within_ns=10 * SECOND)
    slow = bench.stranger().open()
    bench.wait(9)
    slow.send(connect()[:4])
    assert slow.is_open
    bench.wait(1)
    assert slow.is_closed
    assert bench.server.counters.refused[Refusal.CONNECT_LATE] == 1


# Who it is


def test_a_stranger_from_elsewhere_must_say_who_it_is() -> None:
    bench = Bench(users={"alice": b"secret"})
    assert bench.client("a", peer=ELSEWHERE).refusal == 0x87
    assert bench.client("a", 4, peer=ELSEWHERE).refusal == 0x87
    assert bench.client("a", peer=ELSEWHERE, username="alice", password=b"secret").refusal == 0
    assert bench.client("b", 4, peer=ELSEWHERE, username="alice", password=b"secret").refusal == 0


def test_anonymous_clients_from_anywhere_can_be_allowed_and_those_from_here_forbidden() -> None:
    assert Bench(anonymous=True).client("a", peer=ELSEWHERE).refusal == 0
    assert Bench(anonymous=False).client("a").refusal == 0x87


@VERSIONS
def test_a_wrong_password_is_refused_even_where_anonymous_clients_are_not(version: int) -> None:
    # MQTT-3.1.4-2
    bench = Bench(users={"alice": b"secret"}, anonymous=True)
    alice = bench.client("a", version, username="alice", password=b"guess")
    assert alice.refusal == 0x86
    assert alice.is_closed
    assert bench.server.counters.refused[Refusal.CREDENTIALS] == 1


def test_a_certificate_says_who_the_client_is() -> None:
    bench = Bench(anonymous=False, rules=[Rule(user="carol", publish=("t",))])
    carol = bench.client("c", peer=Peer("192.0.2.1", is_loopback=False, certified="carol"))
    assert carol.refusal == 0
    assert carol.publish("t", b"", qos=1) == 0x10


def test_the_name_in_the_certificate_counts_and_no_other() -> None:
    bench = Bench(
        users={"admin": b"secret"}, rules=[Rule(user="carol", publish=("t",)), Rule(user="admin", publish=("#",))]
    )
    peer = Peer("192.0.2.1", is_loopback=False, certified="carol")
    carol = bench.client("c", peer=peer, username="admin", password=b"guess")
    assert carol.refusal == 0
    assert carol.publish("t", b"", qos=1) == 0x10
    assert carol.publish("u", b"", qos=1) == 0x87


def test_a_client_is_told_to_come_again_when_too_many_log_in_at_once() -> None:
    bench = Bench()
    bench.holds_verdicts = True
    alice = bench.client("a", username="alice", password=b"x")
    bench.answer(bench.questions.pop(), LoginVerdict.BUSY)
    bench.settle()
    assert alice.refusal == 0x89


def test_what_a_client_sends_while_it_is_checked_is_heard_afterwards() -> None:
    bench = Bench(users={"alice": b"secret"})
    watcher = bench.client("watcher")
    watcher.subscribe("t/#")
    bench.holds_verdicts = True
    alice = bench.client("a", username="alice", password=b"secret")
    for number in range(3):
        alice.send(mqtt5.PublishPacket(f"t/{number}", b"x" * 200))
    early = mqtt5.PublishPacket("t/cut", b"y").write()
    alice.send(early[:5])
    assert watcher.got() == []
    bench.answer(bench.questions.pop())
    bench.settle()
    alice.send(early[5:])
    assert [got.topic for got in watcher.got()] == ["t/0", "t/1", "t/2", "t/cut"]
    assert alice.connection.bytes_in == bench.server.counters.bytes_in - watcher.connection.bytes_in


def test_a_client_that_sends_too_much_while_it_is_checked_is_closed() -> None:
    bench = Bench(users={"alice": b"secret"}, packet_bytes=1_000)
    bench.holds_verdicts = True
    alice = bench.client("a", username="alice", password=b"secret")
    for _ in range(6):
        alice.send(mqtt5.PublishPacket("t", b"x" * 200))
    assert alice.refusal == 0x95
    assert alice.is_closed


def test_a_verdict_on_a_client_that_is_gone_changes_nothing() -> None:
    bench = Bench(users={"alice": b"secret"})
    bench.holds_verdicts = True
    alice = bench.client("a", username="alice", password=b"secret")
    alice.drop()
    bench.answer(bench.questions.pop())
    bench.settle()
    assert bench.server.state.sessions == {}


def test_enhanced_authentication_is_refused_politely() -> None:
    # MQTT-4.12.0-1
    alice = Bench().client("a", authentication_method="SCRAM-SHA-1", authentication_data=b"n,,n=user")
    assert alice.refusal == 0x8C
    assert alice.connack is not None
    assert "user name and password" in (alice.connack.reason_str or "")


def test_auth_without_a_method_agreed_on_is_a_protocol_error() -> None:
    # MQTT-4.12.0-7
    alice = Bench().client("a")
    alice.send(mqtt5.AuthPacket(authentication_method="SCRAM-SHA-1"))
    assert alice.ended == 0x82


# How many


@VERSIONS
def test_one_client_too_many_is_told_that_the_server_is_busy(version: int) -> None:
    bench = Bench(connections=2)
    first, second = bench.client("a"), bench.client("b")
    third = bench.client("c", version)
    assert third.refusal == (0x89 if version == 5 else 0x88)
    assert third.is_closed
    assert first.is_open
    assert second.is_open
    third.drop()
    first.drop()
    assert third.reconnect().refusal == 0
    assert bench.server.counters.refused[Refusal.CONNECTIONS] == 1


def test_no_more_sessions_are_kept_than_allowed() -> None:
    bench = Bench(sessions=2)
    first = bench.client("a", expiry=60)
    first.drop()
    bench.client("b", expiry=60)
    assert bench.client("c", expiry=60).refusal == 0x97
    assert bench.client("c", 4, expiry=NEVER_S).refusal == 0x88
    assert bench.client("c").refusal == 0
    assert first.reconnect().is_resumed
    first.disconnect(expiry=0)
    assert bench.server.counters.refused[Refusal.QUOTA] == 2


def test_far_too_many_connections_are_closed_at_once() -> None:
    bench = Bench(connections=2)
    crowd = [bench.stranger().open() for _ in range(100)]
    assert sum(one.is_open for one in crowd) == 2 + 64


# Taking over


@VERSIONS
def test_a_second_connection_with_the_same_identifier_takes_the_session_over(version: int) -> None:
    # MQTT-3.1.4-3
    bench = Bench()
    old = bench.client("alice", expiry=60)
    old.subscribe("t", qos=1)
    new = bench.client("alice", version, expiry=60)
    assert old.is_closed
    assert old.ended == 0x8E
    assert new.is_resumed
    bench.client("bob").publish("t", b"x", qos=1)
    assert new.got() == [Got("t", b"x", qos=1)]
    assert old.got() == []


def test_a_clean_take_over_starts_anew() -> None:
    # MQTT-3.1.2-4
    bench = Bench()
    old = bench.client("alice", expiry=60)
    old.subscribe("t")
    new = bench.client("alice", expiry=60, clean=True)
    assert old.ended == 0x8E
    assert not new.is_resumed
    bench.client("bob").publish("t", b"x")
    assert new.got() == []


def test_losing_the_old_connection_after_a_take_over_does_not_touch_the_new_one() -> None:
    bench = Bench()
    old = bench.client("alice", expiry=60)
    new = bench.client("alice", expiry=60)
    old.drop()
    new.subscribe("t")
    bench.client("bob").publish("t", b"x")
    assert new.got() == [Got("t", b"x")]


def test_another_user_gets_nothing_of_what_was_kept_for_the_first() -> None:
    bench = Bench(users={"alice": b"a", "mallory": b"m"})
    alice = bench.client("phone", expiry=60, username="alice", password=b"a")
    alice.subscribe("t", qos=1)
    alice.drop()
    bench.client("bob").publish("t", b"for alice", qos=1)
    mallory = bench.client("phone", expiry=60, username="mallory", password=b"m")
    assert not mallory.is_resumed
    assert mallory.got() == []


# Sessions and their expiry


def test_a_session_without_expiry_ends_with_its_connection() -> None:
    # MQTT 5, section 3.1.2.11.2
    bench = Bench()
    alice = bench.client("alice", expiry=0)
    alice.subscribe("t", qos=1)
    alice.drop()
    assert bench.server.state.sessions == {}
    alice.reconnect(clean=False)
    assert not alice.is_resumed


def test_a_session_lasts_for_its_expiry_interval_and_no_longer() -> None:
    # MQTT-3.1.2-23, MQTT-4.1.0-1, MQTT-4.1.0-2
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t", qos=1)
    alice.drop()
    bench.wait(59)
    alice.reconnect()
    assert alice.is_resumed
    alice.drop()
    bench.wait(60)
    assert bench.store == {}
    alice.reconnect()
    assert not alice.is_resumed


def test_a_session_that_ends_at_the_very_moment_its_client_comes_back_has_ended() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    alice.drop()
    bench.now += 60 * SECOND
    alice.reconnect()
    assert not alice.is_resumed
    assert alice.is_open
    bench.wait(100)
    assert alice.is_open


def test_a_connected_session_does_not_expire() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    alice.drop()
    bench.wait(30)
    alice.reconnect()
    alice.subscribe("t")
    bench.wait(1_000)
    bench.client("bob").publish("t", b"x")
    assert alice.got() == [Got("t", b"x")]


def test_a_clean_start_ends_the_session_before() -> None:
    # MQTT-3.1.2-4
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t", qos=1)
    alice.drop()
    bench.client("bob").publish("t", b"x", qos=1)
    alice.reconnect(clean=True)
    assert not alice.is_resumed
    assert alice.got() == []
    assert bench.tables() == {"mqtt.session": 1}


def test_no_session_is_kept_longer_than_the_limit_and_the_client_is_told() -> None:
    # MQTT-3.2.2-21 (session expiry interval of CONNACK)
    bench = Bench(session_expiry_s_max=100)
    alice = bench.client("alice", expiry=101)
    assert alice.connack is not None
    assert alice.connack.session_expiry_interval == 100
    alice.drop()
    bench.wait(100)
    assert bench.server.state.sessions == {}


def test_a_session_without_end_never_expires() -> None:
    bench = Bench(session_expiry_s_max=NEVER_S)
    alice = bench.client("alice", expiry=NEVER_S)
    alice.subscribe("t", qos=1)
    alice.drop()
    bench.now += 10 * 365 * 86_400 * SECOND
    bench.wait(1)
    bench.crash()
    assert alice.reconnect().is_resumed


def test_a_session_of_3_1_1_that_is_not_clean_is_kept() -> None:
    # MQTT-3.1.2-4, MQTT-3.1.2-5 of 3.1.1
    bench = Bench()
    alice = bench.client("alice", 4, expiry=NEVER_S)
    alice.subscribe("t", qos=1)
    alice.drop()
    bench.client("bob").publish("t", b"x", qos=1)
    alice.reconnect()
    assert alice.is_resumed
    assert alice.got() == [Got("t", b"x", qos=1)]


def test_a_session_may_go_from_one_version_to_the_other() -> None:
    bench = Bench()
    alice = bench.client("alice", 4, expiry=NEVER_S)
    alice.subscribe("t", qos=2)
    alice.drop()
    bench.client("bob").publish("t", b"x", qos=2, content_type="text/plain")
    newer = bench.client("alice", 5, expiry=60)
    assert newer.is_resumed
    assert newer.saw(mqtt5.PublishPacket)[0].content_type == "text/plain"


def test_the_expiry_may_be_changed_at_the_end() -> None:
    # MQTT 5, section 3.14.2.2.2
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    alice.disconnect(expiry=600)
    bench.wait(599)
    assert alice.reconnect().is_resumed
    alice.disconnect(expiry=0)
    assert bench.server.state.sessions == {}
    assert bench.store == {}


def test_the_expiry_cannot_be_changed_at_the_end_if_there_was_none_at_the_start() -> None:
    # MQTT-3.14.2-2, section 3.14.2.2.2: a protocol error
    alice = Bench().client("alice")
    alice.send(mqtt5.DisconnectPacket(session_expiry_interval=60))
    assert alice.ended == 0x82


def test_sessions_and_their_time_left_survive_a_crash() -> None:
    bench = Bench()
    away, there = bench.client("away", expiry=60), bench.client("there", expiry=60)
    away.drop()
    bench.wait(30)
    bench.crash()
    bench.wait(29)
    assert away.reconnect().is_resumed
    assert there.reconnect().is_resumed
    away.drop()
    there.drop()
    bench.wait(30)
    bench.crash()
    bench.wait(31)
    assert bench.server.state.sessions == {}
    assert bench.store == {}


def test_a_session_without_expiry_does_not_survive_a_crash() -> None:
    bench = Bench()
    alice = bench.client("alice")
    alice.subscribe("t", qos=1)
    bench.client("bob").publish("t", b"x", qos=1)
    assert bench.store == {}
    bench.crash()
    assert bench.server.state.sessions == {}


def test_a_kept_session_that_comes_back_to_stay_no_longer_ends_with_its_connection() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t", qos=1)
    alice.drop()
    alice.reconnect(expiry=0, clean=False)
    assert alice.is_resumed
    alice.subscribe("u", qos=1)
    alice.drop()
    assert bench.server.state.sessions == {}
    assert bench.store == {}


def test_a_kept_session_that_was_to_end_with_its_connection_does_not_survive_a_crash() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    alice.subscribe("t", qos=1)
    alice.drop()
    alice.reconnect(expiry=0, clean=False)
    bench.crash()
    alice.reconnect(expiry=60)
    assert not alice.is_resumed
    assert bench.tables() == {"mqtt.session": 1}


def test_the_client_is_not_told_of_a_session_before_it_is_on_disk() -> None:
    bench = Bench()
    bench.is_store_slow = True
    alice = bench.client("alice", expiry=60)
    assert alice.connack is None
    bench.commit()
    bench.settle()
    assert alice.refusal == 0


# Keep-alive


@VERSIONS
def test_a_client_that_is_silent_for_one_and_a_half_keep_alives_is_closed(version: int) -> None:
    # MQTT-3.1.2-22 of 5, MQTT-3.1.2-24 of 3.1.1
    bench = Bench()
    alice = bench.client("alice", version, keep_alive=10)
    bench.wait(14)
    alice.ping()
    bench.wait(14.9)
    assert alice.is_open
    bench.wait(0.1)
    assert alice.is_closed
    assert alice.ended == (0x8D if version == 5 else None)
    assert bench.server.counters.refused[Refusal.KEEP_ALIVE] == 1


def test_any_packet_counts_as_a_sign_of_life() -> None:
    bench = Bench()
    alice = bench.client("alice", keep_alive=10)
    for _ in range(10):
        bench.wait(14)
        alice.publish("t", b"x")
    assert alice.is_open


def test_a_ping_is_answered() -> None:
    # MQTT-3.12.4-1
    alice = Bench().client("alice")
    alice.saw()
    alice.ping()
    assert alice.saw() == [mqtt5.PingRespPacket()]


def test_a_client_without_keep_alive_may_be_silent_for_ever() -> None:
    bench = Bench()
    alice = bench.client("alice", keep_alive=0)
    bench.wait(100_000)
    assert alice.is_open


@pytest.mark.parametrize(("wanted", "told"), [(0, 30), (31, 30), (30, None), (20, None)])
def test_the_server_replaces_a_keep_alive_that_is_too_long(wanted: int, told: int | None) -> None:
    # MQTT-3.1.2-21, MQTT-3.2.2-22
    bench = Bench(keep_alive_s_max=30)
    alice = bench.client("alice", keep_alive=wanted)
    assert alice.connack is not None
    assert alice.connack.server_keep_alive == told
    bench.wait((told or wanted) * 1.5 - 1)
    assert alice.is_open
    bench.wait(1)
    assert alice.is_closed


def test_a_client_of_3_1_1_cannot_be_told_and_keeps_its_keep_alive() -> None:
    bench = Bench(keep_alive_s_max=30)
    alice = bench.client("alice", 4, keep_alive=100)
    bench.wait(140)
    assert alice.is_open


# Leaving


@VERSIONS
def test_a_goodbye_closes_the_connection(version: int) -> None:
    # MQTT-3.14.4-1, MQTT-3.14.4-2
    bench = Bench()
    alice = bench.client("alice", version)
    alice.saw()
    alice.send(mqtt5.DisconnectPacket(), mqtt5.PingReqPacket())
    assert alice.is_closed
    assert alice.saw() == []


def test_an_operator_can_end_a_connection_and_the_client_is_told() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=60)
    assert bench.server.disconnect("alice", bench.now)
    bench.settle()
    assert alice.ended == 0x98
    assert not bench.server.disconnect("alice", bench.now)
    assert not bench.server.disconnect("nobody", bench.now)
    assert alice.reconnect().is_resumed


def test_a_draining_server_sends_everybody_away_and_lets_nobody_in() -> None:
    bench = Bench()
    alice, bob = bench.client("alice", expiry=60), bench.client("bob", 4)
    waiting = bench.stranger().open()
    bench.server.drain(bench.now)
    bench.settle()
    assert alice.ended == 0x8B
    assert alice.is_closed
    assert bob.is_closed
    assert waiting.is_closed
    assert bench.client("carol").refusal == 0x88
    assert bench.client("dave", 4).refusal == 0x88
    bench.crash()
    assert alice.reconnect().is_resumed


def test_a_client_that_wants_no_explanations_gets_none() -> None:
    # MQTT-3.1.2-29
    bench = Bench(rules=[Rule(user="anonymous", publish=("t",))])
    alice = bench.client("alice", request_problem_info=False)
    alice.subscribe("secret")
    assert alice.saw(mqtt5.SubAckPacket)[0].reason_str is None
    alice.publish("secret", b"", qos=1)
    assert alice.saw(mqtt5.PubAckPacket)[0].reason_str is None
    wordy = bench.client("bob")
    wordy.subscribe("secret")
    assert "not allowed" in wordy.saw(mqtt5.SubAckPacket)[0].reason_str


# The size of what the server says


def test_no_packet_is_larger_than_the_client_takes() -> None:
    # MQTT-3.1.2-24, MQTT-3.2.2-19, MQTT-3.4.2-2, MQTT-3.5.2-2, MQTT-3.9.2-1, MQTT-3.14.2-3
    bench = Bench(rules=[Rule(user="anonymous")])
    alice = bench.client("alice", max_packet_size=20)
    assert alice.refusal == 0
    assert alice.subscribe("secret") == [0x87]
    assert alice.saw(mqtt5.SubAckPacket)[0].reason_str is None
    assert alice.publish("secret", b"", qos=1) == 0x87
    assert alice.publish("secret", b"", qos=2) == 0x87
    alice.send(b"\xf0\x00")
    assert alice.ended == 0x82
    assert alice.farewell is not None
    assert alice.farewell.reason_str is None


def test_a_refused_client_is_told_why_only_as_far_as_it_takes_it() -> None:
    alice = Bench().client("alice", max_packet_size=10, authentication_method="x")
    assert alice.refusal == 0x8C
    assert alice.connack is not None
    assert alice.connack.reason_str is None


def test_a_client_that_does_not_even_take_the_answer_is_not_let_in() -> None:
    bench = Bench()
    alice = bench.client("", max_packet_size=20, expiry=60)
    assert alice.refusal == 0x95
    assert bench.server.state.sessions == {}


def test_a_client_that_does_not_take_the_suback_is_told_so() -> None:
    alice = Bench().client("alice", max_packet_size=20)
    alice.send(
        packet(0x82, u16(1), properties(), *(text(str(number)) + b"\0" for number in range(20))),
    )
    assert alice.ended == 0x95


def test_a_connect_has_no_more_user_properties_than_allowed() -> None:
    bench = Bench(user_properties=2)
    pairs = [("a", "b")] * 3
    assert bench.client("alice", user_properties=pairs).refusal == 0x97
    assert bench.client("alice", will=mqtt5.Will("t", user_properties=pairs)).refusal == 0x97
    assert bench.client("alice", user_properties=pairs[:2]).refusal == 0


# What is left behind


def test_clients_that_come_and_go_leave_nothing_behind() -> None:
    bench = Bench()
    alice = bench.client("alice", expiry=86_400, keep_alive=60_000, will=mqtt5.Will("w", will_delay_interval=80_000))
    for _ in range(1_000):
        alice.drop()
        alice.reconnect()
    state = bench.server.state
    assert len(state.timers) < 10
    assert len(state.timers._heap) < 300
    assert len(state.connections) == 1
    assert len(state.sessions) == 1


# Bridges of Mosquitto


def bridge(bench: Bench, level: int = 0x84, name: str = "MQTT") -> Client:
    client = bench.stranger("bridge", 4)
    client.open()
    client.send(connect_311(rest=text("bridge"), name=name, level=level))
    return client


@pytest.mark.parametrize(("level", "name"), [(0x84, "MQTT"), (0x83, "MQIsdp")])
def test_a_bridge_gets_nothing_back_and_retained_messages_marked_as_such(level: int, name: str) -> None:
    bench = Bench()
    one = bridge(bench, level, name)
    assert one.refusal == 0
    one.subscribe("#", qos=1)
    one.publish("t", b"own", qos=1)
    bench.client("alice").publish("t", b"kept", qos=1, retain=True)
    assert [(got.payload, got.retain) for got in one.got()] == [(b"kept", True)]


@pytest.mark.parametrize(("level", "name"), [(0x85, "MQTT"), (0x86, "MQTT"), (0x84, "MQIsdp"), (0x80, "MQTT")])
def test_a_bridge_of_an_unknown_version_is_refused(level: int, name: str) -> None:
    assert bridge(Bench(), level, name).refusal == 0x84


def test_a_bridge_says_at_its_broker_whether_it_is_connected_and_nobody_else_says_it_for_it() -> None:
    bench = Bench(rules=[Rule(user="anonymous", publish=("a",), subscribe=("$SYS/#", "a"))])
    state = "$SYS/broker/connection/bridge/state"
    will = mqtt5.Will(state, payload=b"0", qos=mqtt5.QoS(1), retain=True)
    one = bench.client("bridge", 4, will=will)
    assert one.refusal == 0
    one.publish(state, b"1", qos=1, retain=True)
    bench.client("liar", 4).publish(state, b"2", qos=1, retain=True)
    reader = bench.client("reader")
    reader.subscribe(state)
    assert [got.payload for got in reader.got()] == [b"1"]
    one.drop()
    assert [got.payload for got in reader.got()] == [b"0"]
    assert bench.client("other", 4, will=will).refusal != 0
