"""A broker's life as an operator steers it: it starts, takes up a changed file, and ends without losing anything."""

import os
import re
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from zlib import crc32

import mqtt5
import pytest

from brokers import free_port
from overlane.node.security.tls import client_context
from overlane.node.security.users import set_password
from overlane.secret import Secret
from overlane.testbed.certificates import Authority, Identity
from waiting import WITHIN_S, eventually
from watched import Caller, WatchedBroker, let_in

pytestmark = pytest.mark.slow

Answer = mqtt5.ConnAckReasonCode
Done = mqtt5.PubAckReasonCode.SUCCESS
Unheard = mqtt5.PubAckReasonCode.NO_MATCHING_SUBSCRIBERS
Denied = mqtt5.PubAckReasonCode.NOT_AUTHORIZED

PASSWORD = b"sesame"


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[], WatchedBroker]]:
    made: list[WatchedBroker] = []

    def start() -> WatchedBroker:
        broker = WatchedBroker(tmp_path)
        made.append(broker)
        broker.start()
        return broker

    yield start
    for broker in made:
        broker.kill()


# The start


def test_a_damaged_record_is_put_aside_and_told_of_and_the_rest_is_served(make: Callable[[], WatchedBroker]) -> None:
    broker = make()
    with let_in(broker.port, "writer") as caller:
        for topic in ("kept/1", "kept/2"):
            assert caller.publish(topic, topic.encode(), retain=True) in (Done, Unheard)
    assert broker.terminate()() == 0
    with closing(sqlite3.connect(broker.directory / "data" / "broker.db")) as database, database:
        first = "SELECT min(id) FROM records WHERE kind = 'mqtt.retained'"
        database.execute(f"UPDATE records SET value = CAST(value || 'x' AS BLOB) WHERE id = ({first})")
    broker.start()
    with let_in(broker.port, "reader") as caller:
        caller.subscribe("kept/#")
        caller.send(mqtt5.PingReqPacket())
        assert caller.read(mqtt5.PublishPacket).topic == "kept/2"
        caller.read(mqtt5.PingRespPacket)
    assert broker.get("/status")["store"]["quarantined"] == 1
    assert "mqtt.retained" in broker.wait_for_log("quarantined a damaged record")


def test_records_of_other_releases_are_reported(make: Callable[[], WatchedBroker]) -> None:
    broker = make()
    assert broker.terminate()() == 0
    add = "INSERT INTO records (kind, key, value, crc) VALUES (?, ?, ?, ?)"
    with closing(sqlite3.connect(broker.directory / "data" / "broker.db")) as database, database:
        database.execute(add, ("later.kind", b"k", b"v", crc32(b"later.kindkv")))
    broker.start()
    assert broker.get("/status")["store"]["unknown"] == 1
    assert "overlane_store_unknown 1.0" in broker.request("/metrics").body.decode()
    assert broker.terminate()() == 0
    with closing(sqlite3.connect(broker.directory / "data" / "broker.db")) as database, database:
        assert database.execute("SELECT key, value FROM records WHERE kind = 'later.kind'").fetchall() == [(b"k", b"v")]
        database.execute(add, ("mqtt.session@2", b"k", b"v", crc32(b"mqtt.session@2kv")))
    with pytest.raises(AssertionError, match="the broker did not start"):
        broker.start()
    told = broker.wait_for_log("at most version 1: a newer release wrote them")
    assert "1 records of the kind mqtt.session in version 2" in told


def test_more_connections_than_are_allowed_in_a_second_are_closed_and_counted(tmp_path: Path) -> None:
    broker = WatchedBroker(tmp_path, "[limits]\nconnections_per_second = 1\n")
    broker.start()
    try:

        def is_refused() -> bool:
            with Caller(broker.port), Caller(broker.port):
                return bool(broker.get("/status")["refused"].get("connection rate"))

        def is_let_in() -> bool:
            try:
                let_in(broker.port, "patient").close()
            except (OSError, AssertionError):
                return False
            return True

        eventually(is_refused, "one too many is refused")
        eventually(is_let_in, "whoever comes again is let in")
    finally:
        broker.kill()


# The end


def test_on_sigterm_clients_are_told_to_go_elsewhere_and_the_status_is_0(make: Callable[[], WatchedBroker]) -> None:
    broker = make()
    callers = [let_in(broker.port, f"client-{number}") for number in range(20)]
    status = broker.terminate()
    for caller in callers:
        told = caller.read(mqtt5.DisconnectPacket)
        assert told.reason_code == mqtt5.DisconnectReasonCode.SERVER_SHUTTING_DOWN
        assert caller.is_closed()
    assert status() == 0


def test_what_was_queued_for_a_client_that_is_away_survives_the_end(make: Callable[[], WatchedBroker]) -> None:
    broker = make()
    with let_in(broker.port, "away", expiry_s=600) as caller:
        caller.subscribe("t", 1)
    eventually(lambda: broker.get("/clients/away")["client"]["connection"] is None)
    with let_in(broker.port, "writer") as writer:
        for number in range(100):
            writer.publish("t", b"%d" % number)
        status = broker.terminate()
        writer.read(mqtt5.DisconnectPacket)
    assert status() == 0
    broker.start()
    caller = Caller(broker.port)
    with caller:
        assert caller.connect("away", expiry_s=600).session_present
        found = [caller.read(mqtt5.PublishPacket) for _ in range(100)]
    assert [one.payload for one in found] == [b"%d" % number for number in range(100)]


def test_the_session_of_a_client_that_was_connected_at_the_end_survives_it(make: Callable[[], WatchedBroker]) -> None:
    broker = make()
    with let_in(broker.port, "there", expiry_s=600) as caller:
        caller.subscribe("t", 1)
        assert broker.terminate()() == 0
    broker.start()
    with let_in(broker.port, "writer") as writer:
        writer.publish("t", b"after")
    with Caller(broker.port) as caller:
        assert caller.connect("there", expiry_s=600).session_present
        assert caller.read(mqtt5.PublishPacket).payload == b"after"


def test_while_a_client_that_does_not_read_delays_the_end_the_broker_is_not_ready_and_lets_nobody_in(
    make: Callable[[], WatchedBroker],
) -> None:
    broker = make()
    with let_in(broker.port, "deaf") as deaf, let_in(broker.port, "writer") as writer:
        deaf.subscribe("t")
        for _ in range(40):
            writer.publish("t", b"x" * 200_000)
        assert broker.request("/ready").status == 200
        status = broker.terminate()

        def draining() -> bool:
            answer = broker.request("/ready")
            return answer.status == 503 and "the broker is shutting down" in answer.json["reasons"]

        eventually(draining, "not ready")
        assert broker.request("/health").status == 200
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", broker.port), WITHIN_S)
    assert status() == 0


# The start


def test_what_another_broker_has_taken_is_told_and_the_status_is_1(
    make: Callable[[], WatchedBroker], tmp_path: Path
) -> None:
    broker = make()
    second = WatchedBroker(tmp_path / "second")
    file = tmp_path / "second" / "network.toml"
    text = file.read_text()
    for told, own, taken in (
        (f"mqtt address {broker.address}: .*in use", second.address, broker.address),
        (f"admin address {broker.admin}: .*in use", second.admin, broker.admin),
        ("another", str(second.directory / "data"), str(broker.directory / "data")),
    ):
        file.write_text(text.replace(own, taken))
        command = [part.replace(own, taken) for part in second.command()]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
        assert ended.returncode == 1
        assert re.search(told, ended.stderr), ended.stderr
        assert "Traceback" not in ended.stderr


# A changed file


@pytest.fixture(scope="module")
def reloading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    """The same for all that follow: each says its own file."""
    broker = WatchedBroker(tmp_path_factory.mktemp("reloading"))
    set_password(broker.directory / "users.txt", "alice", Secret(PASSWORD))
    broker.start()
    yield broker
    broker.kill()


def say(broker: WatchedBroker, tables: str) -> None:
    broker.say(tables)
    assert "reloaded" in broker.reload()


def test_new_access_rules_hold_from_the_reload_on_for_clients_that_are_connected(reloading: WatchedBroker) -> None:
    say(reloading, '[[access]]\nuser = "anonymous"\npublish = ["a"]\nsubscribe = ["#"]\n')
    with let_in(reloading.port, "writer") as writer, let_in(reloading.port, "reader") as reader:
        reader.subscribe("#", 1)
        assert (writer.publish("a"), writer.publish("b")) == (Done, Denied)
        reader.read(mqtt5.PublishPacket)
        say(reloading, '[[access]]\nuser = "anonymous"\npublish = ["b", "c"]\nsubscribe = ["b"]\n')
        assert writer.publish("a") == Denied
        writer.publish("c", b"no longer for the reader")
        writer.publish("b", b"still for the reader")
        assert reader.read(mqtt5.PublishPacket).payload == b"still for the reader"


def test_a_wrong_file_changes_nothing_and_says_why(reloading: WatchedBroker) -> None:
    say(reloading, '[[access]]\nuser = "anonymous"\npublish = ["a"]\n')
    reloading.say('[[access]]\nuser = "anonymous"\npublish = ["b"]\n[limits]\nconections = 5\n')
    told = reloading.reload()
    assert "network.toml:" in told
    assert "did you mean connections?" in told
    with let_in(reloading.port, "writer") as writer:
        assert (writer.publish("a"), writer.publish("b")) == (Unheard, Denied)


def test_a_wrong_users_file_keeps_the_new_rules_out_too(reloading: WatchedBroker) -> None:
    security = '[security]\nusers = "users.txt"\nanonymous = true\n'
    say(reloading, security + '[[access]]\nuser = "anonymous"\npublish = ["a"]\n')
    users = reloading.directory / "users.txt"
    good = users.read_bytes()
    users.write_bytes(good + b"no hash at all\n")
    reloading.say(security + '[[access]]\nuser = "anonymous"\npublish = ["b"]\n')
    told = reloading.reload()
    users.write_bytes(good)
    assert "users.txt:2" in told
    with let_in(reloading.port, "writer") as writer:
        assert (writer.publish("a"), writer.publish("b")) == (Unheard, Denied)
    with let_in(reloading.port, "known", user="alice", password=PASSWORD):
        pass


def test_users_are_those_of_the_file_after_a_reload(reloading: WatchedBroker) -> None:
    say(reloading, '[security]\nusers = "users.txt"\n')
    with Caller(reloading.port) as caller:
        assert caller.connect("bob", "bob", PASSWORD).reason_code == Answer.BAD_USER_NAME_OR_PASSWORD
    set_password(reloading.directory / "users.txt", "bob", Secret(PASSWORD))
    reloading.reload()
    with let_in(reloading.port, "bob", user="bob", password=PASSWORD):
        pass


def test_a_users_file_can_come_into_the_file_and_leave_it(reloading: WatchedBroker) -> None:
    say(reloading, "")
    with let_in(reloading.port, "somebody"):
        pass
    say(reloading, '[security]\nusers = "users.txt"\nanonymous = false\n')
    with Caller(reloading.port) as caller:
        assert caller.connect("somebody").reason_code == Answer.NOT_AUTHORIZED
    with let_in(reloading.port, "alice", user="alice", password=PASSWORD):
        pass
    say(reloading, "")
    with let_in(reloading.port, "somebody"):
        pass


def test_limits_hold_from_the_reload_on(reloading: WatchedBroker) -> None:
    say(reloading, "[limits]\nsubscriptions_per_client = 1\n")
    with let_in(reloading.port, "greedy") as caller:
        assert int(caller.subscribe("a")) == 0
        assert caller.subscribe("b") == mqtt5.SubAckReasonCode.QUOTA_EXCEEDED


def test_the_admin_token_is_that_of_the_file_after_a_reload(reloading: WatchedBroker) -> None:
    say(reloading, "")
    assert reloading.request("/status").status == 200
    (reloading.directory / "admin.token").write_text("a-token-of-some-length")
    say(reloading, '[security]\nadmin_token = "admin.token"\n')
    assert reloading.request("/status").status == 401
    assert reloading.request("/status", Authorization="Bearer a-token-of-some-length").status == 200
    say(reloading, "")
    assert reloading.request("/status").status == 200


def test_what_takes_a_restart_is_told(reloading: WatchedBroker) -> None:
    say(reloading, "")
    border = '[[federation]]\nbroker = "here"\nleave = ["a/#"]\n[security]\noverlay_open = true\n'
    reloading.say(border, 'websocket = "127.0.0.1:9"\nfailure = 0.2\ndatagrams = false\n')
    reloading.reload()
    told = reloading.wait_for_log("changes that need a restart")
    assert "addresses, datagrams, [[federation]], failure of here, security of links" in told


# Certificates


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def put(identity: Identity, directory: Path) -> None:
    """Where the network file says that the broker's certificate is."""
    (directory / "server.pem").write_bytes(Path(identity.certificate).read_bytes())
    (directory / "server.key").write_bytes(Path(identity.key).read_bytes())


@pytest.fixture
def secure(authority: Authority, tmp_path: Path) -> Iterator[tuple[WatchedBroker, int]]:
    """For one test alone: what it asked to be read again may be read when it has ended."""
    port = free_port()
    put(authority.server("first"), tmp_path)
    broker = WatchedBroker(
        tmp_path,
        '[security]\ncertificate = "server.pem"\nkey = "server.key"\n',
        f'mqtt_tls = "127.0.0.1:{port}"\n',
    )
    broker.start()
    yield broker, port
    broker.kill()


def test_a_renewed_certificate_meets_new_clients_and_leaves_the_others_connected(
    secure: tuple[WatchedBroker, int], authority: Authority
) -> None:
    broker, port = secure
    trust = client_context(ca=authority.ca)
    with Caller(port, trust) as early:
        early.connect("early")
        early.subscribe("t", 1)
        put(authority.server("second"), broker.directory)
        broker.reload()
        with Caller(port, trust) as late:
            late.connect("late")
            assert late.certificate != early.certificate
            late.publish("t", b"hello")
        assert early.read(mqtt5.PublishPacket).payload == b"hello"


def test_nobody_stands_before_a_closed_door_while_certificates_are_renewed(
    secure: tuple[WatchedBroker, int], authority: Authority
) -> None:
    broker, port = secure
    trust = client_context(ca=authority.ca)
    for number in range(20):
        os.kill(broker.pid, signal.SIGHUP)
        with Caller(port, trust) as caller:
            assert caller.connect(f"client-{number}").reason_code == Answer.SUCCESS


def test_a_wrong_certificate_changes_nothing_and_says_why(
    secure: tuple[WatchedBroker, int], authority: Authority
) -> None:
    broker, port = secure
    (broker.directory / "server.pem").write_text("no certificate")
    assert "server.pem" in broker.reload()
    with Caller(port, client_context(ca=authority.ca)) as caller:
        assert caller.connect("still").reason_code == Answer.SUCCESS
