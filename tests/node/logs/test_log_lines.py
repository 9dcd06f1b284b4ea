"""Logs: a line per event that nobody can forge, flood or block, with nothing secret in it."""

import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mqtt5
import pytest

from overlane.core.units import SECOND
from overlane.node.logs.client_log import COMINGS_MAX, PERIOD, REFUSALS_MAX, ClientLog
from overlane.node.logs.lines import JsonLines, Repetition, TextLines, Writer, fields
from overlane.node.security.users import set_password
from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.counters import Refusal
from overlane.pubsub.notices import Connected, Left, Notice, RefusalNotice
from overlane.secret import Secret
from waiting import eventually
from watched import Caller, WatchedBroker, let_in

PASSWORD = b"sesame-open-up-7c1e"
WRONG = b"sesame-stay-shut-93aa"
TOKEN = "token-of-the-admin-51fd"
WRONG_TOKEN = "token-of-nobody-0b44"
PAYLOAD = b"payload-nobody-reads-2e6b"
WILL = b"last-will-and-payload-77d0"
SECRETS = [PASSWORD.decode(), WRONG.decode(), TOKEN, WRONG_TOKEN, PAYLOAD.decode(), WILL.decode(), "$argon2"]


def record(message: str, *args: object, exc_info: Any = None, **beside: Any) -> logging.LogRecord:
    made = logging.LogRecord("overlane.test", logging.INFO, "here.py", 1, message, args, exc_info)
    made.created = 1_772_366_400.123
    made.__dict__.update(fields(**beside))
    return made


# Lines


def test_a_line_of_text_has_time_level_name_event_and_fields() -> None:
    line = TextLines().format(record("connected", client="pump-7", resumed=False, messages=3, user=None))
    assert line == "2026-03-01T12:00:00.123Z info    overlane.test  connected  client=pump-7 resumed=false messages=3"


def test_a_line_of_json_has_the_same() -> None:
    line = json.loads(JsonLines().format(record("%s came", "it", client="pump-7", resumed=False)))
    assert line == {
        "time": "2026-03-01T12:00:00.123Z",
        "level": "info",
        "logger": "overlane.test",
        "event": "it came",
        "client": "pump-7",
        "resumed": False,
    }


@pytest.mark.parametrize("lines", [TextLines(), JsonLines()], ids=["text", "json"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\x1b[2K", "\u2028", "\x85", "\u202e", "\x00", "\udc80"])
def test_nothing_a_client_chose_can_end_a_line_or_hide_what_is_in_it(lines: logging.Formatter, end: str) -> None:
    name = f"me{end}2026-03-01T12:00:00.123Z info    overlane.client  connected  client=root"
    shown = lines.format(record("a name: %s", name, client=name)).encode(errors="backslashreplace").decode()
    assert len(shown.splitlines()) == 1 or isinstance(lines, JsonLines)
    assert "\n" not in shown
    assert end not in shown or isinstance(lines, JsonLines)


def test_a_field_with_blanks_or_quotes_is_quoted() -> None:
    line = TextLines().format(record("refused", why='says "no" = never'))
    assert line.endswith('why="says \\"no\\" = never"')


@pytest.mark.parametrize("lines", [TextLines(), JsonLines()], ids=["text", "json"])
def test_a_traceback_is_on_the_same_line(lines: logging.Formatter) -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        shown = lines.format(record("a defect", exc_info=sys.exc_info()))
    assert "ValueError: broken" in shown
    assert len(shown.splitlines()) == 1


def test_a_secret_shows_as_stars() -> None:
    assert "Secret(***)" in TextLines().format(record("%s", Secret(PASSWORD)))
    assert PASSWORD.decode() not in JsonLines().format(record("%r", Secret(PASSWORD)))


# Writing


def test_a_log_that_nobody_reads_blocks_nobody_and_tells_later_what_was_lost() -> None:
    reading, writing = os.pipe()
    writer = Writer(writing, TextLines(), lines_max=100)
    line = "x" * 1000
    for _ in range(2_000):  # far beyond what a pipe and the writer take together
        writer.write(line)
    lost = writer.lost
    assert lost > 0
    told = 0
    with os.fdopen(reading, "rb") as read:
        while told < lost:  # in parts, where the writer had begun to tell before the last were lost
            if b"log lines were dropped" in (text := read.readline()):
                told += int(text.rpartition(b"lines=")[2])
    writer.close()
    os.close(writing)
    assert told == lost


def test_closing_writes_what_is_left(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        writer = Writer(file.fileno(), TextLines())
        for number in range(1_000):
            writer.write(str(number))
        writer.close()
    assert (tmp_path / "log").read_text().split() == [str(number) for number in range(1_000)]


# Measure


def test_what_is_logged_again_and_again_at_one_place_is_held_and_counted() -> None:
    measure = Repetition(lines_max=3, period_ns=10**15)
    assert [measure.filter(record("same place")) for _ in range(5)] == [True, True, True, False, False]
    elsewhere = record("another place")
    elsewhere.lineno = 2
    assert measure.filter(elsewhere)


def test_errors_are_never_held() -> None:
    measure = Repetition(lines_max=1, period_ns=10**15)
    severe = record("broken")
    severe.levelno = logging.ERROR
    assert all(measure.filter(severe) for _ in range(5))


def test_the_next_line_tells_how_many_were_held(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0
    monkeypatch.setattr("overlane.node.logs.lines.monotonic_ns", lambda: now)
    measure = Repetition(lines_max=1, period_ns=SECOND)
    assert [measure.filter(record("again")) for _ in range(4)] == [True, False, False, False]
    now = SECOND
    late = record("again", peer="there")
    assert measure.filter(late)
    assert TextLines().format(late).endswith("again  peer=there held=3")


# What is told of clients


PEER = Peer("10.0.0.9:1234", is_loopback=False)


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, dict[str, object]]]:
    return [(one.levelname, one.getMessage(), getattr(one, "fields", {})) for one in caplog.records]


def test_who_comes_and_goes_is_told_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "overlane.client")
    notices: list[Notice] = [
        Connected("pump", "alice", PEER, "MQTT 5.0", True),
        Left("pump", PEER, "the connection broke"),
    ]
    ClientLog().write(notices, 0, 0)
    address = {"address": "10.0.0.9:1234"}
    assert told(caplog) == [
        (
            "INFO",
            "connected",
            {
                "client": "pump",
                "user": "alice",
                **address,
                "listener": "mqtt",
                "protocol": "MQTT",
                "version": "5.0",
                "resumed": True,
            },
        ),
        ("INFO", "left", {"client": "pump", **address, "why": "the connection broke"}),
    ]


def test_of_a_flood_of_refusals_few_are_told_and_the_rest_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "overlane.client")
    journal = ClientLog()
    flood: list[Notice] = [RefusalNotice(Refusal.MALFORMED, "no MQTT", None, PEER)] * 50
    for second in range(10):
        journal.write(flood, 0, second * SECOND)
        journal.tick(second * SECOND)
    journal.write([RefusalNotice(Refusal.DENIED, "not allowed", "pump", PEER)], 0, 9 * SECOND)
    assert len(told(caplog)) == REFUSALS_MAX + 1
    journal.tick(PERIOD)
    assert told(caplog)[-1] == (
        "WARNING",
        "refused, repeated",
        {"reason": "malformed", "count": 500 - REFUSALS_MAX},
    )


def test_a_storm_of_clients_that_come_and_go_is_bounded_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "overlane.client")
    journal = ClientLog()
    for _ in range(2 * COMINGS_MAX):
        journal.write([Connected("pump", None, PEER, "MQTT 3.1.1", False)], 0, 0)
    assert len(told(caplog)) == COMINGS_MAX


def test_what_did_not_fit_into_a_turn_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "overlane.client")
    journal = ClientLog()
    journal.write([Left("pump", PEER, "gone")], 7, 0)
    journal.tick(SECOND)
    assert told(caplog)[-1][2] == {"count": 7}


# A broker that runs


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    directory = tmp_path_factory.mktemp("logs")
    set_password(directory / "users.txt", "alice", Secret(PASSWORD))
    (directory / "admin.token").write_text(TOKEN)
    running = WatchedBroker(
        directory,
        '[security]\nusers = "users.txt"\nadmin_token = "admin.token"\n'
        '[[access]]\nuser = "*"\npublish = ["open/#"]\nsubscribe = ["open/#"]\n',
        options=("--log-format", "json", "--log-level", "debug"),
    )
    running.start()
    yield running
    running.kill()


def lines(broker: WatchedBroker, event: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in broker.log.splitlines() if line.startswith("{")]
    return [line for line in found if line["event"] == event]


def test_clients_are_logged_with_who_they_are_and_why_they_left(broker: WatchedBroker) -> None:
    with let_in(broker.port, "logged", user="alice", password=PASSWORD) as caller:
        caller.send(mqtt5.DisconnectPacket())
        assert caller.is_closed()
    broker.wait_for_log('"event":"left","client":"logged"')
    (came,) = [line for line in lines(broker, "connected") if line["client"] == "logged"]
    (left,) = [line for line in lines(broker, "left") if line["client"] == "logged"]
    assert (came["user"], came["version"], came["resumed"]) == ("alice", "5.0", False)
    assert left["why"] == "the client disconnected"


def test_nothing_secret_is_logged_whatever_clients_and_operators_do_at_any_level(broker: WatchedBroker) -> None:
    will = mqtt5.Will(topic="open/will", payload=WILL)
    with Caller(broker.port) as caller:
        caller.send(mqtt5.ConnectPacket("right", username="alice", password=PASSWORD, will=will))
        caller.read(mqtt5.ConnAckPacket)
        caller.publish("open/a", PAYLOAD, retain=True)
        caller.publish("closed/a", PAYLOAD)
        caller.write(b"\x30\x03\xff\xff" + PAYLOAD)  # a topic longer than its packet
        assert int(caller.read(mqtt5.DisconnectPacket).reason_code) >= 0x80
    with Caller(broker.port) as caller:
        answer = caller.connect("wrong", "alice", WRONG)
        assert answer.reason_code == mqtt5.ConnAckReasonCode.BAD_USER_NAME_OR_PASSWORD
    with Caller(broker.port) as caller:
        assert caller.connect("nobody", "mallory", WRONG).reason_code != mqtt5.ConnAckReasonCode.SUCCESS
    for broken in (b"\x10\xff\xff\xff\xff" + WRONG, b"\x10\x30\x00\x04MQTT\x05\xc2\x00\x3c\x00\xff" + WRONG, WRONG * 9):
        with Caller(broker.port) as caller:
            caller.write(broken)
            caller.close()
    assert broker.request("/status", Authorization=f"Bearer {WRONG_TOKEN}").status == 401
    assert broker.request("/status", Authorization=f"Bearer {TOKEN}").status == 200
    users = broker.directory / "users.txt"
    good = users.read_text()
    users.write_text(f"{good}bob{good[5:60]}\n")  # a hash that was cut off
    broker.reload()
    broker.wait_for_log("configuration unchanged")
    users.write_text(good)
    broker.reload()
    broker.wait_for_log("reloaded")
    log = broker.log
    assert [secret for secret in SECRETS if secret in log] == []
    assert lines(broker, "refused")


def test_a_flood_of_bad_clients_does_not_flood_the_log(broker: WatchedBroker) -> None:
    before = _refused(broker)
    for _ in range(200):
        with Caller(broker.port) as caller:
            caller.write(b"GET / HTTP/1.1\r\n\r\n")
    eventually(lambda: _refused(broker) >= before + 200, "two hundred are refused")
    protocol = [line for line in lines(broker, "refused") if line["reason"] == Refusal.PROTOCOL]
    assert 0 < len(protocol) <= 2 * REFUSALS_MAX  # the flood may have met the end of a period


def _refused(broker: WatchedBroker) -> int:
    refused = broker.request("/status", Authorization=f"Bearer {TOKEN}").json["refused"]
    return int(refused.get(Refusal.PROTOCOL, 0))
