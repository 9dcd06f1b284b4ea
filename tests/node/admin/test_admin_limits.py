"""Strangers that are slow or many hold neither the admin address nor a broker: health is always answered."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from overlane.adminapi.http_server import BODY_S, HEAD_S, LOOK_EVERY_S
from overlane.node.admin.server import CONNECTIONS_MAX
from waiting import WITHIN_S, eventually
from watched import WatchedBroker

SLOW_HEAD = b"GET /status HTTP/1.1\r\nHost: localhost\r\n"
SLOW_BODY = b"PUT /plan HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
ANSWERED_WITHIN_S = 5.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    running = WatchedBroker(tmp_path_factory.mktemp("admin"))
    running.start()
    try:
        yield running
        assert "Traceback" not in running.log
        assert running.get("/status")["internal_errors"] == {}
    finally:
        running.kill()


def line(broker: WatchedBroker, said: bytes) -> socket.socket:
    host, _, port = broker.admin.rpartition(":")
    made = socket.create_connection((host, int(port)), WITHIN_S)
    made.sendall(said)
    return made


def is_closed(one: socket.socket) -> bool:
    """Whether nothing more comes; what came before is not looked at."""
    one.setblocking(False)
    try:
        while one.recv(65_536):
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        pass
    return True


def test_connections_that_never_say_what_they_want_keep_nobody_from_being_answered(broker: WatchedBroker) -> None:
    with ExitStack() as stack:
        for _ in range(2 * CONNECTIONS_MAX):
            stack.enter_context(line(broker, SLOW_HEAD))
        for path in ("/health", "/ready", "/status", "/metrics"):
            since = time.monotonic()
            assert broker.request(path).status == 200
            assert time.monotonic() - since < ANSWERED_WITHIN_S


def test_health_is_answered_while_all_places_are_taken_by_slow_requests(broker: WatchedBroker) -> None:
    with ExitStack() as stack:
        for _ in range(2 * CONNECTIONS_MAX):
            stack.enter_context(line(broker, SLOW_BODY))
        for path in ("/health", "/ready"):
            since = time.monotonic()
            assert broker.request(path).status == 200
            assert time.monotonic() - since < ANSWERED_WITHIN_S
        refused = broker.request("/status")
        assert (refused.status, refused.json) == (503, {"error": "too many connections"})
    eventually(lambda: broker.request("/status").status == 200, "room again", said=lambda: broker.log)


def test_a_body_that_is_not_sent_to_its_end_is_no_error_of_the_broker(broker: WatchedBroker) -> None:
    for _ in range(3):
        line(broker, SLOW_BODY).close()
    assert broker.get("/status")["internal_errors"] == {}
    assert "could not be answered" not in broker.log


@pytest.mark.slow
def test_heads_and_bodies_have_to_come_in_time(broker: WatchedBroker) -> None:
    whole = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with line(broker, SLOW_HEAD) as first, line(broker, whole + SLOW_HEAD) as second, line(broker, SLOW_BODY) as body:
        since = time.monotonic()
        for one in (first, second):
            eventually(lambda one=one: is_closed(one), "a slow head is closed", HEAD_S + 10 * LOOK_EVERY_S)  # type: ignore[misc]
        assert time.monotonic() - since > HEAD_S / 2
        body.settimeout(BODY_S + 10)
        assert body.recv(4096).startswith(b"HTTP/1.1 408 ")
        assert time.monotonic() - since > BODY_S - 1
