"""What a NATS client says, and what it and MQTT clients hear."""

import mqtt5
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from natsbench import NatsBench

from examples import examples
from overlane.core.units import SECOND
from overlane.nats.headers import write_headers
from overlane.pubsub.access import ANONYMOUS, Access, Rule
from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.contract.questions import Authenticate, AuthenticateKey, LoginVerdict
from overlane.pubsub.limits import Limits
from overlane.pubsub.properties import Properties
from overlane.pubsub.state import Settings

FAR = Peer("10.0.0.1:1", is_loopback=False, listener="nats")


def test_info_tells_what_a_client_has_to_know() -> None:
    client = NatsBench().connect(FAR, says_connect=False)
    told = {name: client.info[name] for name in ("proto", "headers", "max_payload", "auth_required", "server_name")}
    assert told == {"proto": 1, "headers": True, "max_payload": 2**20, "auth_required": True, "server_name": "here"}
    assert "jetstream" not in client.info


def test_messages_reach_every_subscription_that_matches_once_for_each() -> None:
    client = NatsBench().connect()
    client.say(b"SUB a.b 1\r\nSUB a.* 2\r\nSUB a.> 3\r\nSUB a.b 4\r\nSUB > 5\r\n")
    told = client.asked(b"PUB a.b 2\r\nhi\r\n")
    assert sorted(line.split()[2] for line in told.split(b"\r\n") if line.startswith(b"MSG")) == [
        b"1", b"2", b"3", b"4", b"5",
    ]  # fmt: skip
    assert client.asked(b"PUB a 0\r\n\r\n") == b"MSG a 5 0\r\n\r\n"


def test_the_end_of_a_subscription_is_at_once_or_after_so_many_messages() -> None:
    bench = NatsBench()
    client = bench.connect()
    client.say(b"SUB a 1\r\nSUB a 2\r\nUNSUB 2 2\r\nUNSUB 1\r\n")
    told = client.asked(b"PUB a 1\r\n1\r\n", b"PUB a 1\r\n2\r\n", b"PUB a 1\r\n3\r\n")
    assert told == b"MSG a 2 1\r\n1\r\nMSG a 2 1\r\n2\r\n"
    bench.wait(0.001)
    assert not bench.mqtt.state.subscriptions.filters()
    assert client.asked(b"UNSUB 2\r\nUNSUB 7\r\nPING\r\n") == b"PONG\r\n"


def test_a_queue_group_gives_each_message_to_one_member_and_mqtt_clients_are_members_too() -> None:
    bench = NatsBench()
    one, two = bench.connect(), bench.connect()
    one.say(b"SUB jobs.* workers 1\r\nSUB jobs.* workers 2\r\n")
    two.say(b"SUB jobs.* workers 1\r\n")
    worker = bench.mqtt_client("worker")
    worker.subscribe("$share/workers/jobs/+")
    publisher = bench.connect()
    for number in range(12):
        publisher.say(b"PUB jobs.%d 0\r\n\r\n" % number)
    counts = [one.heard().count(b"MSG"), two.heard().count(b"MSG"), len(worker.messages())]
    assert (sum(counts), min(counts)) == (12, 4)


def test_requests_are_answered_and_those_for_nobody_get_503() -> None:
    bench = NatsBench()
    client = bench.connect(headers=True, no_responders=True)
    service = bench.connect()
    service.say(b"SUB svc 9\r\n")
    client.say(b"SUB _INBOX.x.* 1\r\n")
    client.say(b"PUB svc _INBOX.x.1 2\r\nhi\r\n")
    assert service.heard() == b"MSG svc 9 _INBOX.x.1 2\r\nhi\r\n"
    service.say(b"PUB _INBOX.x.1 3\r\nyes\r\n")
    assert client.heard() == b"MSG _INBOX.x.1 1 3\r\nyes\r\n"
    nobody = b"HMSG _INBOX.x.2 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"
    assert client.asked(b"PUB none _INBOX.x.2 0\r\n\r\n") == nobody
    assert client.asked(b"PUB $JS.API.INFO _INBOX.x.2 0\r\n\r\n") == nobody
    service.say(b"SUB some.> 10\r\n")
    assert client.asked(b"PUB some _INBOX.x.2 0\r\n\r\n") == nobody
    assert client.asked(b"PUB some.one _INBOX.x.2 0\r\n\r\n") == b""
    silent = bench.connect()
    silent.say(b"SUB r 1\r\n")
    assert silent.asked(b"PUB none r 0\r\n\r\n") == b""


def test_an_mqtt_request_is_answered_by_a_nats_service_and_the_other_way_round() -> None:
    bench = NatsBench()
    service, asker = bench.connect(), bench.mqtt_client("asker")
    service.say(b"SUB svc.> 1\r\n")
    asker.subscribe("answers/1", "ask/mqtt")
    asker.publish(mqtt5.PublishPacket("svc/x", b"?", response_topic="answers/1"))
    assert service.heard() == b"MSG svc.x 1 answers.1 1\r\n?\r\n"
    service.say(b"PUB answers.1 1\r\n!\r\n")
    assert [(one.topic, one.payload) for one in asker.messages()] == [("answers/1", b"!")]
    service.say(b"PUB ask.mqtt back.to 0\r\n\r\n")
    assert [one.response_topic for one in asker.messages()] == ["back/to"]


def test_headers_are_user_properties_both_ways() -> None:
    bench = NatsBench()
    client, reader = bench.connect(headers=True), bench.mqtt_client("reader")
    reader.subscribe("t")
    client.say(b"SUB u 1\r\n")
    block = b"NATS/1.0\r\nA: 1\r\nA: 2\r\nContent-Type: text/plain\r\nNats-TTL: 60\r\n\r\n"
    client.say(b"HPUB t %d %d\r\n%bxy\r\n" % (len(block), len(block) + 2, block))
    [seen] = reader.messages()
    assert (seen.payload, seen.user_properties, seen.content_type) == (b"xy", [("A", "1"), ("A", "2")], "text/plain")
    assert seen.message_expiry_interval == 60
    reader.publish(mqtt5.PublishPacket("u", b"z", user_properties=[("a:b c", "x\r\ny")], correlation_data=b"\0\1"))
    told = client.heard()
    assert told.endswith(b"Mqtt-Correlation-Data: AAE=\r\na%3Ab%20c: x%0D%0Ay\r\n\r\nz\r\n")
    plain = bench.connect()
    plain.say(b"SUB u 1\r\n")
    reader.publish(mqtt5.PublishPacket("u", b"z", user_properties=[("a", "b")]))
    assert plain.heard() == b"MSG u 1 1\r\nz\r\n"
    assert plain.asked(b"HPUB u 12 12\r\nNATS/1.0\r\n\r\n\r\n") == b"-ERR 'message headers not supported'\r\n"
    assert write_headers(Properties(user_properties=(("nats-status", "503"),)), None) == b"NATS/1.0 503\r\n\r\n"


def test_a_client_without_echo_does_not_hear_itself() -> None:
    bench = NatsBench()
    quiet, other = bench.connect(echo=False), bench.connect()
    for one in (quiet, other):
        one.say(b"SUB t 1\r\n")
    assert (quiet.asked(b"PUB t 1\r\nx\r\n"), other.heard()) == (b"", b"MSG t 1 1\r\nx\r\n")
    other.say(b"PUB t 1\r\ny\r\n")
    assert quiet.heard() == b"MSG t 1 1\r\ny\r\n"


def test_a_verbose_client_is_told_ok_only_when_what_it_published_is_on_disk() -> None:
    bench = NatsBench()
    bench.mqtt_client("kept", expiry_s=100).subscribe("keep", qos=1)
    client = bench.connect(verbose=True)
    assert client.heard() == b"+OK\r\n"
    assert client.asked(b"SUB x 1\r\nUNSUB 1\r\nPING\r\n") == b"+OK\r\n+OK\r\nPONG\r\n"
    client.say(b"PUB keep 1\r\nx\r\n")
    assert (client.waiting, client.heard()) == ([True], b"+OK\r\n")
    client.say(b"PUB nobody 1\r\nx\r\n")
    assert (client.waiting, client.heard()) == ([False], b"+OK\r\n")


def test_a_message_that_cannot_be_stored_is_not_confirmed() -> None:
    bench = NatsBench()
    bench.mqtt_client("kept", expiry_s=100).subscribe("keep", qos=1)
    client = bench.connect(verbose=True)
    bench.mqtt.store_is_failing(True)
    assert client.asked(b"PUB keep 1\r\nx\r\n") == b"-ERR 'Message Not Stored'\r\n"
    assert client.is_closed


@pytest.mark.parametrize(
    ("options", "user", "password"),
    [({"user": "al", "pass": "s"}, "al", b"s"), ({"auth_token": "al:s:t"}, "al", b"s:t"), ({"user": "al"}, "al", b"")],
)
def test_a_client_is_let_in_by_a_password_or_a_token(options: dict[str, object], user: str, password: bytes) -> None:
    bench = NatsBench()
    client = bench.connect(FAR, **options)
    [question] = bench.questions
    assert isinstance(question, Authenticate)
    assert (question.user, question.password.reveal()) == (user, password)
    client.say(b"PING\r\n")
    assert client.heard() == b""
    bench.server.authenticated(client.connection, LoginVerdict.IS_USER, bench.now, user=user)
    bench.end_turn()
    session = client.connection.session
    assert (client.heard(), session and session.user) == (b"PONG\r\n", user)


def test_a_key_signs_the_nonce_of_info_and_the_verdict_names_the_user() -> None:
    bench = NatsBench()
    client = bench.connect(FAR, nkey="UKEY", sig="AAEC")
    [question] = bench.questions
    assert question == AuthenticateKey(client.connection, "UKEY", str(client.info["nonce"]).encode(), b"\0\1\2")
    bench.server.authenticated(client.connection, LoginVerdict.IS_USER, bench.now, user="bob")
    session = client.connection.session
    assert session is not None
    assert session.user == "bob"
    assert bench.connect().info["nonce"] != client.info["nonce"]


@pytest.mark.parametrize("verdict", [LoginVerdict.IS_NOT, LoginVerdict.IS_ANONYMOUS])
def test_who_is_not_let_in_is_told_so(verdict: LoginVerdict) -> None:
    bench = NatsBench()
    client = bench.connect(FAR, user="al")
    bench.server.authenticated(client.connection, verdict, bench.now)
    bench.end_turn()
    assert (client.heard(), client.is_closed) == (b"-ERR 'Authorization Violation'\r\n", True)
    for options in ({}, {"jwt": "x"}, {"nkey": "U", "sig": "!"}):
        assert bench.connect(FAR, **options).heard() == b"-ERR 'Authorization Violation'\r\n"


def test_rights_are_those_of_users_and_a_refusal_keeps_the_connection() -> None:
    rules = Access((Rule(user=ANONYMOUS, publish=("open/#",), subscribe=("open/#",)),))
    client = NatsBench(Settings(access=rules)).connect(verbose=True)
    assert client.asked(b"PUB shut.x 0\r\n\r\n") == b"-ERR 'Permissions Violation for Publish to \"shut.x\"'\r\n"
    assert client.asked(b"SUB shut.x 1\r\n") == b"-ERR 'Permissions Violation for Subscription to \"shut.x\"'\r\n"
    assert client.asked(b"SUB open.x 1\r\nPUB open.x 0\r\n\r\n") == b"+OK\r\nMSG open.x 1 0\r\n\r\n+OK\r\n"


def test_subjects_that_are_none_are_refused_and_the_connection_stays() -> None:
    client = NatsBench().connect()
    assert client.asked(b"PUB a..b 0\r\n\r\nPUB a.* 0\r\n\r\n") == 2 * b"-ERR 'Invalid Publish Subject'\r\n"
    assert client.asked(b"SUB a..b 1\r\nSUB a.>.b 2\r\nSUB $share.a.b 3\r\n") == 3 * b"-ERR 'Invalid Subject'\r\n"
    assert client.asked(b"PING\r\n") == b"PONG\r\n"


def test_more_subscriptions_than_allowed_are_refused() -> None:
    client = NatsBench(Settings(Limits(subscriptions_per_client=2))).connect()
    told = client.asked(b"SUB a 1\r\nSUB a 2\r\nSUB b 3\r\n")
    assert told == b"-ERR 'maximum subscriptions exceeded'\r\n"


def test_a_client_that_does_not_read_is_closed_as_a_slow_consumer() -> None:
    bench = NatsBench(Settings(Limits(queue_bytes=2**20)))
    slow, publisher = bench.connect(), bench.connect()
    slow.say(b"SUB t 1\r\n")
    payload = bytes(2**18)
    for _ in range(6):
        publisher.say(b"PUB t %d\r\n%b\r\n" % (len(payload), payload))
        slow.connection.unsent_bytes = slow.connection.bytes_out
        bench.now += 2 * SECOND
    assert slow.is_closed
    assert slow.heard().endswith(b"-ERR 'Slow Consumer'\r\n")
    assert not publisher.is_closed


def test_a_client_that_publishes_too_fast_rests() -> None:
    client = NatsBench(Settings(Limits(messages_per_second=1))).connect()
    client.say(3 * b"PUB t 0\r\n\r\n")
    assert client.connection.rests_until_ns == SECOND + 2 * SECOND


def test_shutting_down_and_an_operator_end_the_connection_with_a_reason() -> None:
    bench = NatsBench()
    one, two = bench.connect(), bench.connect()
    assert one.connection.session is not None
    assert bench.mqtt.disconnect(one.connection.session.client_id, bench.now)
    bench.end_turn()
    assert one.heard() == b"-ERR 'Connection Closed By Operator'\r\n"
    bench.mqtt.drain(bench.now)
    bench.end_turn()
    assert two.heard() == b"-ERR 'Server Shutdown'\r\n"
    assert bench.connect().heard() == b"-ERR 'Server Shutdown'\r\n"


SUBJECTS = st.sampled_from([b"a", b"a.b", b"a.c", b"b.c", b"a..b", b"$x"])
LINES = st.sampled_from(
    [b"A: b", b"A:b", b"A:  b ", b"Content-Type: t", b"Nats-TTL: 5", b"nats-status: 1", b"B: x y", b"C:", b"a"]
)
HEADERS = st.lists(LINES, max_size=3).map(lambda lines: b"\r\n".join([b"NATS/1.0", *lines, b"", b""]))
OPERATIONS = st.one_of(
    st.tuples(SUBJECTS, st.binary(max_size=5)).map(lambda one: b"PUB %b %d\r\n%b\r\n" % (one[0], len(one[1]), one[1])),
    SUBJECTS.map(lambda one: b"PUB %b r 1\r\nx\r\n" % one),
    SUBJECTS.map(lambda one: b"HPUB %b 12 13\r\nNATS/1.0\r\n\r\nx\r\n" % one),
    st.tuples(SUBJECTS, HEADERS).map(
        lambda one: b"HPUB %b %d %d\r\n%bx\r\n" % (one[0], len(one[1]), len(one[1]) + 1, one[1])
    ),
    st.tuples(st.sampled_from([b"a", b"a.>", b"a.*", b">", b"*.c", b"a.b q"]), st.integers(1, 4)).map(
        lambda one: b"SUB %b %d\r\n" % one
    ),
    st.tuples(st.integers(1, 4), st.integers(0, 3)).map(lambda one: b"UNSUB %d %d\r\n" % one),
    st.just(b"PING\r\n"),
)


@examples(200)
@example([(0, [b"SUB a 1\r\nSUB a 2\r\nSUB a.> 3\r\nSUB > 4\r\n"]), (1, 3 * [b"PUB a 0\r\n\r\n"])], True)
@example([(0, [b"SUB a 1\r\n"]), (1, 3 * [b"HPUB a 18 19\r\nNATS/1.0\r\nA: b\r\n\r\nx\r\n"])], True)
@example(
    [
        (1, 2 * [b"PUB a 0\r\n\r\n"]),
        (0, [b"SUB a 1\r\n"]),
        (1, 2 * [b"PUB a 0\r\n\r\n"]),
        (0, 3 * [b"PUB a 0\r\n\r\n"]),
    ],
    False,
)
@example([(1, [b"SUB a.b 2\r\n", 2 * b"PUB a.b 0\r\n\r\n", b"UNSUB 2 2\r\n", b"PUB a.b r 1\r\nx\r\n"])], False)
@given(st.lists(st.tuples(st.integers(0, 3), st.lists(OPERATIONS, min_size=1, max_size=6)), max_size=12), st.booleans())
def test_the_fast_path_changes_nothing_that_anybody_hears(said: list[tuple[int, list[bytes]]], echo: bool) -> None:
    def heard(is_fast: bool) -> list[object]:
        bench = NatsBench()
        if not is_fast:
            bench.server._fast_path.enter = lambda *_: None  # type: ignore[method-assign]
        clients = [bench.connect(headers=True, echo=echo), bench.connect(headers=True), bench.connect()]
        clients.append(bench.connect(verbose=True))
        reader = bench.mqtt_client("reader")
        reader.subscribe("b/#")
        for number, operations in said:
            clients[number].say(b"".join(operations))
            bench.wait(0.001)
        counters, stats = bench.mqtt.counters, bench.mqtt.state.topics
        counts = [counters.messages_in, counters.messages_out]
        topics = {topic: (one.messages, one.bytes) for topic, one in stats.items() if not topic.startswith("$SYS")}
        payloads = [(one.topic, one.payload) for one in reader.messages()]
        return [*(one.heard() for one in clients), *counts, topics, payloads]

    assert heard(is_fast=True) == heard(is_fast=False)
