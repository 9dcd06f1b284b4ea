"""Faults of the broker itself: an input that fails is isolated, anything else ends the process; nothing is lost or
repeated by it, and no broker claims to be ready that serves nobody."""

import http.client
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import mqtt5
import pytest

from brokers import free_port
from overlane.errors import Failure
from overlane.node import failures
from overlane.node.failures import EXIT_STATUS, SOURCES_MAX, WITHIN_S, Failures
from overlane.node.security.users import set_password
from overlane.secret import Secret
from overlays import Member, RealOverlay
from waiting import eventually
from watched import Caller, WatchedBroker, let_in

pytestmark = pytest.mark.slow

FAULTY = str(Path(__file__).parents[1] / "faulty.py")
IMPLEMENTATION_SPECIFIC_ERROR = 0x83
RESTART_WITHIN_S = 60.0


class FaultyBroker(WatchedBroker):
    def __init__(self, directory: Path, fault: str, tables: str = "", endpoints: str = "") -> None:
        super().__init__(directory, tables, endpoints)
        self._fault = fault
        self._armed = directory / "armed"

    def arm(self) -> None:
        """From now on the fault is there, once."""
        self._armed.touch()

    def disarm(self) -> None:
        self._armed.unlink()

    def command(self) -> list[str]:
        at = super().command()
        return [sys.executable, FAULTY, self._fault, str(self._armed), *at[at.index("broker") :]]

    def wait_for_end(self) -> int:
        """Its exit status, when it has ended by itself."""
        process, self._process = self._process, None
        assert process is not None
        return process.wait(20)

    @property
    def internal_errors(self) -> dict[str, int]:
        return dict(self.get("/status")["internal_errors"])

    @property
    def tracebacks(self) -> int:
        return self.log.count("Traceback")

    def ready_status(self) -> int:
        """0 if nobody answers."""
        try:
            return self.request("/ready").status
        except OSError:
            return 0


@contextmanager
def faulty(directory: Path, fault: str, tables: str = "") -> Iterator[FaultyBroker]:
    broker = FaultyBroker(directory, fault, tables)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


def delivered(caller: Caller, count: int) -> list[bytes]:
    """The payloads of so many messages, acknowledged to the end; there are no more than these."""
    payloads: dict[int, bytes] = {}
    done = 0
    while done < count:
        match caller.next():
            case mqtt5.PublishPacket(qos=mqtt5.QoS.EXACTLY_ONCE, packet_id=int(packet_id), payload=payload):
                payloads.setdefault(packet_id, payload)
                caller.send(mqtt5.PubRecPacket(packet_id))
            case mqtt5.PublishPacket(qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=int(packet_id), payload=payload):
                payloads[packet_id] = payload
                caller.send(mqtt5.PubAckPacket(packet_id))
                done += 1
            case mqtt5.PubRelPacket(packet_id=packet_id):
                caller.send(mqtt5.PubCompPacket(packet_id))
                done += 1
            case other:
                raise AssertionError(other)
    caller.send(mqtt5.PingReqPacket())
    caller.read(mqtt5.PingRespPacket)
    return list(payloads.values())


def published_once(caller: Caller, payload: bytes, packet_id: int, *, again: bool = False) -> None:
    """At QoS 2, to the end."""
    send_once(caller, payload, packet_id, again=again)
    assert caller.read(mqtt5.PubRecPacket).packet_id == packet_id
    caller.send(mqtt5.PubRelPacket(packet_id))
    assert caller.read(mqtt5.PubCompPacket).packet_id == packet_id


def send_once(caller: Caller, payload: bytes, packet_id: int, *, again: bool = False) -> None:
    caller.send(mqtt5.PublishPacket("t", payload, qos=mqtt5.QoS.EXACTLY_ONCE, packet_id=packet_id, duplicate=again))


def goes_on(broker: FaultyBroker, bystander: Caller) -> bool:
    """Whether a client that had to do with nothing is served, and the broker says so."""
    assert bystander.publish("bystander", b"x", qos=1) == mqtt5.PubAckReasonCode.NO_MATCHING_SUBSCRIBERS
    # On a busy machine it may be not ready for a moment, for another reason.
    eventually(lambda: broker.ready_status() == 200, "ready", said=lambda: broker.log)
    return bool(broker.get("/health") == {"alive": True})


# Isolated


def test_a_client_whose_packet_fails_is_told_so_and_nobody_else_notices(tmp_path: Path) -> None:
    with faulty(tmp_path, "packet") as broker, let_in(broker.port, "bystander") as bystander:
        for number in (1, 2):
            with let_in(broker.port, "culprit") as culprit:
                one = mqtt5.PublishPacket("t", b"sound", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=1)
                other = mqtt5.PublishPacket("poison", b"x", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=2)
                culprit.send(one, other)
                assert culprit.read(mqtt5.PubAckPacket).packet_id == 1  # what came before it is completed
                assert_closed_for_internal_error(culprit)
            assert goes_on(broker, bystander)
            assert broker.internal_errors == {"client": number}
        assert broker.tracebacks == 1
        assert b'overlane_internal_errors_total{of="client"} 2.0' in broker.request("/metrics").body


def test_a_client_whose_run_of_qos_1_fails_is_told_so_and_nothing_of_it_is_acknowledged(tmp_path: Path) -> None:
    with faulty(tmp_path, "run") as broker, let_in(broker.port, "bystander") as bystander:
        for number in (1, 2):
            with let_in(broker.port, "culprit") as culprit:
                culprit.send(mqtt5.PublishPacket("t", b"sound", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=1))
                assert culprit.read(mqtt5.PubAckPacket).packet_id == 1
                sound = mqtt5.PublishPacket("t", b"sound", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=2)
                poison = mqtt5.PublishPacket("t", b"poison", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=3)
                culprit.send(sound, poison)
                assert_closed_for_internal_error(culprit)
            assert goes_on(broker, bystander)
            assert broker.internal_errors == {"client": number}


def assert_closed_for_internal_error(culprit: Caller) -> None:
    goodbye = culprit.read(mqtt5.DisconnectPacket)
    assert int(goodbye.reason_code) == IMPLEMENTATION_SPECIFIC_ERROR
    assert goodbye.reason_str == "internal error of the broker"
    assert culprit.is_closed()


def test_a_client_whose_connect_fails_is_answered(tmp_path: Path) -> None:
    with faulty(tmp_path, "handshake") as broker, let_in(broker.port, "bystander") as bystander:
        with Caller(broker.port) as culprit:
            answer = culprit.connect("poison")
            assert answer.reason_code == mqtt5.ConnAckReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
            assert culprit.is_closed()
        with socket.create_connection(("127.0.0.1", broker.port), 20) as older:
            older.sendall(b"\x10\x12\x00\x04MQTT\x04\x02\x00\x00\x00\x06poison")
            assert older.recv(100) == b"\x20\x02\x00\x03"
        assert goes_on(broker, bystander)


def test_a_login_that_fails_closes_that_client_alone(tmp_path: Path) -> None:
    users = tmp_path / "users"
    set_password(users, "bob", Secret(b"a password"))
    tables = f'[security]\nusers = "{users}"\nanonymous = true\n'
    with faulty(tmp_path, "login", tables) as broker, let_in(broker.port, "bystander") as bystander:
        with Caller(broker.port) as culprit:
            answer = culprit.connect("culprit", "poison", b"x")
            assert answer.reason_code == mqtt5.ConnAckReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
        assert goes_on(broker, bystander)
        assert broker.internal_errors == {"login": 1}


def test_a_reader_to_which_sending_fails_gets_the_message_later_and_its_writer_is_answered(tmp_path: Path) -> None:
    with faulty(tmp_path, "sending") as broker, let_in(broker.port, "bystander") as bystander:
        readers = [let_in(broker.port, name, expiry_s=600) for name in ("first", "second")]
        for reader in readers:
            reader.subscribe("t", qos=2)
        broker.arm()
        with let_in(broker.port, "writer") as writer:
            published_once(writer, b"poison", 1)
            first, second = readers
            goodbye = next(one for one in (first.next(), second.next()) if isinstance(one, mqtt5.DisconnectPacket))
            assert int(goodbye.reason_code) == IMPLEMENTATION_SPECIFIC_ERROR
            published_once(writer, b"more", 2)
        got: dict[str, list[bytes]] = {}
        for name in ("first", "second"):
            with let_in(broker.port, name, expiry_s=600) as reader:
                got[name] = delivered(reader, 2)
        assert got == {"first": [b"poison", b"more"], "second": [b"poison", b"more"]}
        assert goes_on(broker, bystander)
        assert broker.internal_errors == {"delivery": 1}


def test_a_message_that_can_never_be_sent_to_a_reader_is_given_up_in_the_end(tmp_path: Path) -> None:
    with faulty(tmp_path, "sending always", "[limits]\ntries = 3\n") as broker:
        with let_in(broker.port, "reader", expiry_s=600) as reader:
            reader.subscribe("t", qos=1)
        with let_in(broker.port, "writer") as writer:
            writer.publish("t", b"poison")
            writer.publish("t", b"more")
        for _ in range(3):
            with let_in(broker.port, "reader", expiry_s=600) as reader:
                assert isinstance(reader.next(), mqtt5.DisconnectPacket)
        with let_in(broker.port, "reader", expiry_s=600) as reader:
            assert delivered(reader, 1) == [b"more"]
        assert broker.get("/status")["dropped"] == {"too many tries": 1}


def test_a_timer_that_fails_closes_the_client_it_is_for(tmp_path: Path) -> None:
    with faulty(tmp_path, "keep-alive") as broker, let_in(broker.port, "bystander") as bystander:
        with Caller(broker.port) as culprit:
            culprit.send(mqtt5.ConnectPacket("poison", keep_alive=1))
            culprit.read(mqtt5.ConnAckPacket)
            goodbye = culprit.read(mqtt5.DisconnectPacket)
            assert int(goodbye.reason_code) == IMPLEMENTATION_SPECIFIC_ERROR
        assert goes_on(broker, bystander)
        assert broker.internal_errors == {"timer": 1}


def test_a_client_that_cannot_be_written_to_is_cut_off(tmp_path: Path) -> None:
    with faulty(tmp_path, "write") as broker, let_in(broker.port, "bystander") as bystander:
        with let_in(broker.port, "reader") as reader, let_in(broker.port, "writer") as writer:
            reader.subscribe("t")
            writer.publish("t", b"poison", qos=0)
            assert reader.is_closed()
        assert goes_on(broker, bystander)
        assert broker.internal_errors == {"transport": 1}


def test_the_end_of_a_connection_that_fails_harms_nobody_else(tmp_path: Path) -> None:
    with faulty(tmp_path, "lost") as broker, let_in(broker.port, "bystander") as bystander:
        let_in(broker.port, "poison", expiry_s=600).close()
        eventually(lambda: broker.internal_errors == {"client": 1}, "counted", said=lambda: broker.log)
        let_in(broker.port, "poison", expiry_s=600).close()
        assert goes_on(broker, bystander)


def test_a_neighbour_whose_frame_fails_is_told_so_and_comes_back(tmp_path: Path) -> None:
    net = RealOverlay(tmp_path, {"a-b": 'latency = "1ms"'})
    receiver = FaultyMember(net, "b", "interest", tmp_path)
    try:
        net["a"].start()
        receiver.start()
        net.wait_until(lambda: "linked" in net["a"].log.read_text(), "linked")
        with let_in(port_of(net["a"].mqtt), "culprit") as culprit:
            culprit.subscribe("poison/#")
            net.wait_until(lambda: "closed by the neighbour: internal error" in net["a"].log.read_text(), "told why")
            with let_in(port_of(net["b"].mqtt), "bystander") as bystander:
                bystander.subscribe("here", qos=0)
                bystander.publish("here", b"x", qos=0)
                assert bystander.read(mqtt5.PublishPacket).payload == b"x"
        assert receiver.member.ask("/status")["internal_errors"]["neighbour"] >= 1  # type: ignore[index]
        assert receiver.member.ask("/ready") == {"ready": True, "reasons": []}
        assert receiver.member.log.read_text().count("Traceback") == 1
    finally:
        net["a"].kill()
        receiver.end()


@pytest.mark.parametrize("fault", ["pull", "datagram", "datagram timer"])
def test_a_link_whose_sending_or_datagrams_fail_is_closed_and_comes_back(tmp_path: Path, fault: str) -> None:
    net = RealOverlay(tmp_path, {"a-b": 'latency = "1ms"'}, '\n[topics."t"]\ndeadline = "500ms"\n')
    faulty_one = FaultyMember(net, "b", fault, tmp_path)
    member = faulty_one.member
    try:
        net["a"].start()
        faulty_one.start()
        net.wait_until(lambda: "linked" in net["a"].log.read_text(), "linked")
        net.wait_until(lambda: has_open_datagrams(member), "datagrams go both ways")
        with let_in(port_of(net["a"].mqtt), "reader") as reader, let_in(port_of(member.mqtt), "writer") as writer:
            reader.subscribe("t", qos=1)
            faulty_one.arm()
            net.wait_until(lambda: errors_of(member) == {"neighbour": 1}, "isolated")
            net.wait_until(lambda: net["a"].log.read_text().count("link to b is up") > 1, "linked again")
            eventually(
                lambda: writer.publish("t", b"x") == mqtt5.PubAckReasonCode.SUCCESS, "needed again", said=net.logs
            )
            assert reader.read(mqtt5.PublishPacket).payload == b"x"
        assert member.ask("/ready") == {"ready": True, "reasons": []}
        assert member.log.read_text().count("Traceback") == 1
    finally:
        net["a"].kill()
        faulty_one.end()


def test_an_exception_of_the_websocket_library_ends_that_connection_alone(tmp_path: Path) -> None:
    port = free_port()
    broker = FaultyBroker(tmp_path, "websocket", endpoints=f'websocket = "127.0.0.1:{port}"\n')
    broker.start()
    try:
        with let_in(broker.port, "bystander") as bystander:
            with socket.create_connection(("127.0.0.1", port), 20) as culprit:
                culprit.sendall(
                    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
                    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
                )
                assert culprit.recv(4096).startswith(b"HTTP/1.1 101")
                culprit.sendall(b"\x82\x86\0\0\0\0poison")
                with suppress(ConnectionResetError):
                    assert culprit.recv(4096) == b""
            assert goes_on(broker, bystander)
            assert broker.internal_errors == {"websocket": 1}
            assert broker.tracebacks == 1
    finally:
        broker.kill()


def test_a_will_that_fails_is_lost_and_nothing_else(tmp_path: Path) -> None:
    with faulty(tmp_path, "will") as broker, let_in(broker.port, "bystander") as bystander:
        bystander.subscribe("w", qos=1)
        for payload in (b"poison", b"sound"):
            with Caller(broker.port) as dying:
                will = mqtt5.Will(topic="w", payload=payload, qos=mqtt5.QoS.AT_LEAST_ONCE)
                dying.send(mqtt5.ConnectPacket("dying", will=will))
                dying.read(mqtt5.ConnAckPacket)
        got = bystander.read(mqtt5.PublishPacket)
        assert got.payload == b"sound"
        bystander.send(mqtt5.PubAckPacket(got.packet_id or 0))
        assert goes_on(broker, bystander)
        assert broker.internal_errors == {"will": 1}


# Not ready


def test_a_broker_whose_listener_is_closed_is_not_ready_and_says_why(tmp_path: Path) -> None:
    with faulty(tmp_path, "closed listener") as broker:
        eventually(lambda: broker.ready_status() == 200, "ready", said=lambda: broker.log)
        broker.arm()
        eventually(lambda: broker.ready_status() == 503, "not ready", said=lambda: broker.log)
        assert broker.request("/ready").json["reasons"] == ["the listener mqtt is closed"]
        assert broker.get("/health") == {"alive": True}


def test_a_broker_whose_store_does_not_answer_is_not_ready_until_it_does(tmp_path: Path) -> None:
    with faulty(tmp_path, "slow store") as broker:
        with let_in(broker.port, "reader", expiry_s=600) as reader:
            reader.subscribe("t", qos=1)
        broker.arm()
        with let_in(broker.port, "writer") as writer:
            writer.send(mqtt5.PublishPacket("t", b"x", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=1))
            eventually(lambda: broker.ready_status() == 503, "not ready", 40.0, lambda: broker.log)
            (reason,) = broker.request("/ready").json["reasons"]
            assert reason.startswith("the store has not answered for ")
            broker.disarm()
            assert writer.read(mqtt5.PubAckPacket).packet_id == 1
        eventually(lambda: broker.ready_status() == 200, "ready again", said=lambda: broker.log)


# Fatal


def test_an_admin_server_that_ends_by_a_fault_ends_the_process(tmp_path: Path) -> None:
    with faulty(tmp_path, "admin") as broker:
        broker.arm()
        assert broker.wait_for_end() == EXIT_STATUS
        assert "the server of the admin address has ended" in broker.log
        broker.start()
        eventually(lambda: broker.ready_status() == 200, "ready again", said=lambda: broker.log)


def test_a_half_delivered_message_of_qos_2_is_neither_lost_nor_repeated(tmp_path: Path) -> None:
    with faulty(tmp_path, "queueing") as broker:
        for name in ("first", "second"):
            with let_in(broker.port, name, expiry_s=600) as reader:
                reader.subscribe("t", qos=2)
        with let_in(broker.port, "writer", expiry_s=600) as writer:
            published_once(writer, b"before", 1)
            broker.arm()
            send_once(writer, b"poison", 2)
            assert broker.wait_for_end() == EXIT_STATUS
            assert writer.is_closed()
        assert broker.ready_status() == 0
        assert (
            "internal error, exiting with status 70: client: a QoS 2 message of writer has reached some" in broker.log
        )
        broker.start()
        with let_in(broker.port, "writer", expiry_s=600) as writer:
            published_once(writer, b"poison", 2, again=True)
            published_once(writer, b"after", 3)
        for name in ("first", "second"):
            with let_in(broker.port, name, expiry_s=600) as reader:
                assert delivered(reader, 3) == [b"before", b"poison", b"after"]


def test_a_message_of_qos_2_that_ends_the_broker_each_time_does_so_twice_and_is_refused_then(tmp_path: Path) -> None:
    with faulty(tmp_path, "queueing always") as broker:
        for name in ("first", "second"):
            with let_in(broker.port, name, expiry_s=600) as reader:
                reader.subscribe("t", qos=2)
        for is_again in (False, True):
            with let_in(broker.port, "writer", expiry_s=600) as writer:
                send_once(writer, b"poison", 1, again=is_again)
                assert broker.wait_for_end() == EXIT_STATUS
            broker.start()
        with let_in(broker.port, "writer", expiry_s=600) as writer:
            send_once(writer, b"poison", 1, again=True)
            answer = writer.read(mqtt5.PubRecPacket)
            assert int(answer.reason_code) == IMPLEMENTATION_SPECIFIC_ERROR
            published_once(writer, b"sound", 1)
            assert broker.get("/status")["refused"] == {"ended the broker before": 1}
        for name in ("first", "second"):
            with let_in(broker.port, name, expiry_s=600) as reader:
                assert delivered(reader, 1) == [b"sound"]


@pytest.mark.parametrize("fault", ["end of turn", "commit", "task", "callback"])
def test_a_fault_that_is_nobodys_ends_the_process_and_what_was_acknowledged_stays(tmp_path: Path, fault: str) -> None:
    # A neighbour that never comes: it has to be dialled.
    tables = (
        f'[brokers.away]\noverlay = "127.0.0.1:{free_port()}"\n[[links]]\nends = ["here", "away"]\nlatency = "1ms"\n'
    )
    with faulty(tmp_path, fault, tables) as broker:
        with let_in(broker.port, "reader", expiry_s=600) as reader:
            reader.subscribe("t", qos=2)
        with let_in(broker.port, "writer", expiry_s=600) as writer:
            published_once(writer, b"one", 1)
            broker.arm()
            send_once(writer, b"two", 2)
            assert broker.wait_for_end() == EXIT_STATUS
        assert "internal error, exiting with status 70" in broker.log
        assert broker.tracebacks == 1
        broker.start()
        with let_in(broker.port, "writer", expiry_s=600) as writer:
            published_once(writer, b"two", 2, again=True)
        with let_in(broker.port, "reader", expiry_s=600) as reader:
            assert delivered(reader, 2) == [b"one", b"two"]
            writer = let_in(broker.port, "writer", expiry_s=600)
            published_once(writer, b"three", 3)
            assert delivered(reader, 1) == [b"three"]


def test_a_reliable_parcel_that_was_half_taken_in_comes_again_after_the_restart(tmp_path: Path) -> None:
    net = RealOverlay(tmp_path, {"a-b": 'latency = "1ms"'})
    receiver = FaultyMember(net, "b", "parcel", tmp_path)
    try:
        net["a"].start()
        receiver.start()
        net.wait_until(lambda: "linked" in net["a"].log.read_text(), "linked")
        with let_in(port_of(net["b"].mqtt), "reader", expiry_s=600) as reader:
            reader.subscribe("t", qos=2)
        with let_in(port_of(net["a"].mqtt), "writer") as writer:
            payloads = [b"one", b"poison", b"three"]
            eventually(lambda: b"t" in subscriptions_known(net), "a knows what b needs", said=net.logs)
            for number, payload in enumerate(payloads, 1):
                if payload == b"poison":
                    receiver.arm()
                published_once(writer, payload, number)
            assert receiver.wait_for_end() == EXIT_STATUS
            receiver.start()
            with let_in_when_it_serves(port_of(net["b"].mqtt), "reader") as reader:
                assert delivered(reader, 3) == payloads
    finally:
        net["a"].kill()
        receiver.end()


def test_failures_of_many_different_clients_end_the_process(tmp_path: Path) -> None:
    with faulty(tmp_path, "packet") as broker:
        for number in range(SOURCES_MAX):
            caller = let_in(broker.port, f"client-{number}")
            caller.publish("t", b"poison", qos=0)
        assert broker.wait_for_end() == EXIT_STATUS
        assert f"{SOURCES_MAX} different inputs failed within 60 s" in broker.log


def test_a_broker_that_ends_no_turns_is_neither_ready_nor_alive_and_ends(tmp_path: Path) -> None:
    with faulty(tmp_path, "standstill") as broker:
        broker.arm()
        with Caller(broker.port):
            # On a busy machine it may be not ready before, for another reason.
            eventually(lambda: broker.request("/health").status == 503, "not alive", said=lambda: broker.log)
            assert broker.ready_status() == 503
            assert broker.request("/health").json == {"alive": False}
            assert broker.wait_for_end() == EXIT_STATUS


def test_all_up_starts_a_broker_again_that_ended_by_a_fault(tmp_path: Path) -> None:
    broker = FaultyBroker(tmp_path, "end of turn")
    command = [sys.executable, FAULTY, "end of turn", str(tmp_path / "armed"), "up", str(tmp_path / "network.toml")]
    log = tmp_path / "up.log"
    with log.open("wb") as out:
        up = subprocess.Popen([*command, "--data", str(tmp_path / "data")], stdout=out, stderr=out)
    try:
        eventually(lambda: broker.ready_status() == 200, "ready", RESTART_WITHIN_S, log.read_text)
        for times in (1, 2):
            name, payload = f"reader-{times}", f"{times}".encode()
            with let_in(broker.port, name, expiry_s=600) as reader:
                reader.subscribe("t", qos=2)
            with let_in(broker.port, "writer", expiry_s=600) as writer:
                broker.arm()
                send_once(writer, payload, times)
                eventually(lambda: broker.ready_status() != 200, "not ready", RESTART_WITHIN_S, log.read_text)
            eventually(lambda: broker.ready_status() == 200, "ready again", RESTART_WITHIN_S, log.read_text)
            with let_in(broker.port, "writer", expiry_s=600) as writer:
                published_once(writer, payload, times, again=True)
            with let_in(broker.port, name, expiry_s=600) as reader:
                assert delivered(reader, 1) == [payload]
        assert log.read_text().count("ended with status 70; starts again") == 2
    finally:
        up.terminate()
        up.wait(30)


# What is logged and when it is too much


def test_a_traceback_is_logged_once_for_each_place(caplog: pytest.LogCaptureFixture) -> None:
    found = Failures()
    for _ in range(3):
        found.isolated(Failure("client", "one", _raised("here")), 0.0)
    found.isolated(Failure("client", "one", _raised_elsewhere()), 0.0)
    assert [record.exc_info is not None for record in caplog.records] == [True, False, False, True]
    assert found.counts == {"client": 4}


def test_it_takes_failures_of_many_sources_in_a_short_time_to_end_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(Exception):
        pass

    def end() -> None:
        raise Ended

    monkeypatch.setattr(failures, "end_process", end)
    found = Failures()
    for number in range(5 * SOURCES_MAX):
        found.isolated(Failure("client", "one", _raised("")), number * 0.001)
    found = Failures()
    for number in range(5 * SOURCES_MAX):
        found.isolated(Failure("client", str(number), _raised("")), number * WITHIN_S / (SOURCES_MAX - 2))
    found = Failures()
    for number in range(SOURCES_MAX - 1):
        found.isolated(Failure("client", str(number), _raised("")), 0.0)
    with pytest.raises(Ended):
        found.isolated(Failure("client", "one more", _raised("")), 0.0)


def _raised(text: str) -> Exception:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def _raised_elsewhere() -> Exception:
    try:
        raise ValueError
    except ValueError as error:
        return error


# A broker of an overlay that has a fault


class FaultyMember:
    def __init__(self, net: RealOverlay, name: str, fault: str, directory: Path) -> None:
        self.member = net.members[name]
        self._armed = directory / "armed"
        self._command = [
            *(sys.executable, FAULTY, fault, str(self._armed), "broker", str(net.file), "--name", name),
            *("--data", str(directory / name)),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.member.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def arm(self) -> None:
        self._armed.touch()

    def wait_for_end(self) -> int:
        assert self._process is not None
        return self._process.wait(20)

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def errors_of(member: Member) -> object:
    answer = member.ask("/status")
    assert isinstance(answer, dict)
    return answer["internal_errors"]


def has_open_datagrams(member: Member) -> bool:
    answer = member.ask("/links")
    assert isinstance(answer, dict)
    return [(link["datagrams"] or {}).get("state") for link in answer["items"]] == ["open"]


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def subscriptions_known(net: RealOverlay) -> bytes:
    """What a broker shows of the routes it has: there is one as soon as it knows that the other needs something."""
    host, _, port = net["a"].admin.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    connection.request("GET", "/routes")
    return connection.getresponse().read()


def let_in_when_it_serves(port: int, client_id: str) -> Caller:
    def look() -> Caller | None:
        try:
            return let_in(port, client_id, expiry_s=600)
        except OSError:
            return None

    return eventually(look, "it serves", RESTART_WITHIN_S)
