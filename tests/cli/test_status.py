"""Commands that ask running brokers: as tables for people, as JSON for programs, once or again and again."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mqtt5
import pytest
from typer.testing import CliRunner, Result

from brokers import free_port
from overlane.cli.main import app
from overlane.cli.tables import count, milliseconds, size, span
from waiting import eventually
from watched import let_in

BROKERS = ("here", "there")
ABSENT = "nowhere"


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two brokers of three run."""
    directory = tmp_path_factory.mktemp("network")
    file = directory / "network.toml"
    tables = [
        f'[brokers.{name}]\nmqtt = "127.0.0.1:{free_port()}"\noverlay = "127.0.0.1:{free_port()}"\n'
        f'admin = "127.0.0.1:{free_port()}"\n'
        for name in (*BROKERS, ABSENT)
    ]
    tables.append('[[links]]\nends = ["here", "there"]\nlatency = "5ms"\n')
    tables.append('[topics."alarms/#"]\ndeadline = "60ms"\n')
    file.write_text("".join(tables))
    running = [_start(file, name) for name in BROKERS]
    try:
        for process in running:
            assert process.stdout is not None
            said = ""
            while not said.startswith("linked"):
                said = process.stdout.readline()
                assert said, "the broker ended"
        _publish(file)
        yield file
    finally:
        for process in running:
            process.kill()
            process.wait()


def _start(file: Path, name: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "overlane", "broker", str(file), "--name", name, "--in-memory"]
    log = (file.parent / f"{name}.log").open("w")
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)


def _publish(file: Path) -> None:
    """A client there subscribes, and one here publishes until it has got something."""
    there = let_in(_port(file, "there"), "subscriber", expiry_s=600)
    there.subscribe("alarms/#")
    with let_in(_port(file, "here"), "publisher") as here:
        eventually(lambda: int(here.publish("alarms/1", b"x" * 100)) == 0, "the need is known here")
        there.read(mqtt5.PublishPacket)
    there.close()


def _port(file: Path, name: str) -> int:
    return int(_value(file, name, "mqtt").rpartition(":")[2])


def _value(file: Path, name: str, field: str) -> str:
    section = file.read_text().partition(f"[brokers.{name}]")[2]
    return section.partition(f'{field} = "')[2].partition('"')[0]


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def answers(*words: str) -> dict[str, Any]:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    return {one["broker"] or one["address"]: one for one in json.loads(result.stdout)["brokers"]}


def rows(output: str) -> dict[str, list[str]]:
    """Lines of a table by their first word."""
    return {words[0]: words for line in output.splitlines() if (words := line.split())}


def test_with_a_network_file_all_brokers_are_asked_and_those_that_do_not_answer_shown_as_such(network: Path) -> None:
    result = run("status", str(network))
    assert result.exit_code == 0
    found = rows(result.output)
    assert found["broker"][:3] == ["broker", "state", "up"]
    assert (found["here"][1], found["there"][1]) == ("ready", "ready")
    assert "nowhere does not answer: connection refused" in result.output
    assert "1/1" in found["here"]


def test_with_an_address_that_broker_is_asked(network: Path) -> None:
    result = run("status", _value(network, "here", "admin"))
    assert result.exit_code == 0
    assert list(rows(result.output)) == ["broker", "here"]


def test_json_has_every_answer_and_every_reason(network: Path) -> None:
    found = answers("status", str(network))
    assert found["here"]["answer"]["name"] == "here"
    assert found["there"]["answer"]["links_up"] == 1
    assert found["nowhere"] == {
        "broker": "nowhere",
        "address": _value(network, "nowhere", "admin"),
        "error": "connection refused",
    }


def test_a_client_is_disconnected_at_the_broker_that_has_it_and_its_session_deleted(network: Path) -> None:
    with let_in(_port(network, "here"), "unwanted", expiry_s=600) as caller:
        done = run("disconnect", "unwanted", str(network))
        assert (done.exit_code, done.stdout) == (0, "here: unwanted disconnected\n")
        caller.read(mqtt5.DisconnectPacket)
    done = run("disconnect", "unwanted", str(network))
    assert done.exit_code == 1
    assert "unwanted: no broker that answers has a connection of it" in done.output
    done = run("disconnect", "unwanted", str(network), "--session")
    assert (done.exit_code, done.stdout) == (0, "here: unwanted disconnected, its session deleted\n")
    assert run("disconnect", "unwanted", str(network), "--session").exit_code == 1


def test_clients_are_shown_with_those_that_are_away(network: Path) -> None:
    result = run("clients", str(network), "--filter", "subscr")
    assert result.exit_code == 0
    found = rows(result.output)["there"]
    assert found[:5] == ["there", "subscriber", "-", "away,", "ends"]
    assert "publisher" not in result.output


def test_topics_are_shown_with_their_deadlines(network: Path) -> None:
    found = rows(run("topics", str(network), "--filter", "alarms/+").output)["here"]
    assert found[:2] == ["here", "alarms/1"]
    assert "60.0" in found


def test_a_wrong_filter_is_refused_before_brokers_are_asked(network: Path) -> None:
    result = run("topics", str(network), "--filter", "a/#/b")
    assert result.exit_code == 2
    assert result.stderr == (
        "overlane: --filter: filter 'a/#/b': `#` is allowed only as the whole last level [OVL-102]\n"
    )


def test_retained_messages_are_those_of_clients(network: Path) -> None:
    assert answers("status", str(network))["there"]["answer"]["retained"]["messages"] == 0


def test_links_are_shown_from_both_ends(network: Path) -> None:
    found = answers("links", str(network))
    for name, peer in (("here", "there"), ("there", "here")):
        (link,) = found[name]["answer"]["items"]
        assert (link["peer"], link["state"]) == (peer, "up")
        assert link["latency_ms"] is not None
    assert rows(run("links", str(network)).output)["here"][1:3] == ["there", "up"]


def test_routes_are_shown_with_topics_paths_and_why(network: Path) -> None:
    (route,) = answers("routes", str(network))["here"]["answer"]["items"]
    assert route["paths"] == {"there": [["here", "there"]]}
    assert route["cause"]
    output = run("routes", str(network)).output
    assert "alarms/1" in output
    assert "here -> there" in output


@pytest.mark.parametrize("command", ["status", "clients", "topics", "links", "routes"])
def test_when_nobody_answers_the_status_is_1_and_the_reason_told(command: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    result = run(command, address)
    assert result.exit_code == 1
    assert result.stderr == f"{address} does not answer: connection refused\n"
    assert result.stdout == ""


@pytest.mark.parametrize("target", ["nonsense", "127.0.0.1", "127.0.0.1:99999", ":8001", "missing.toml"])
def test_what_is_neither_an_address_nor_a_file_is_refused(target: str) -> None:
    result = run("status", target)
    assert result.exit_code == 2
    assert target in result.stderr
    assert "Traceback" not in result.output


def test_a_token_file_that_cannot_be_read_is_refused(network: Path, tmp_path: Path) -> None:
    result = run("status", str(network), "--token-file", str(tmp_path / "none"))
    assert result.exit_code == 2
    assert str(tmp_path / "none") in result.stderr


def test_what_answers_but_is_no_broker_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.listen()
        child = subprocess.Popen(
            [sys.executable, "-m", "overlane", "status", f"127.0.0.1:{listener.getsockname()[1]}"],
            stderr=subprocess.PIPE,
            text=True,
        )
        connection, _ = listener.accept()
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        _, told = child.communicate(timeout=20)
        connection.close()
    assert child.returncode == 1
    assert "not from a broker of this version" in told


def test_watching_prints_json_line_by_line_until_it_is_interrupted(network: Path) -> None:
    command = [sys.executable, "-m", "overlane", "topics", str(network), "--watch", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        first, second = (json.loads(watching.stdout.readline()) for _ in range(2))
        watching.send_signal(signal.SIGINT)
        watching.stdout.read()
    assert watching.returncode == 0
    assert [one["broker"] for one in first["brokers"]] == [*BROKERS, ABSENT]
    assert first["brokers"][0]["answer"]["items"] == second["brokers"][0]["answer"]["items"]


def test_watching_on_a_terminal_draws_the_table_anew(network: Path) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "overlane", "status", str(network), "--watch"]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "200", "LINES": "50"}
    with subprocess.Popen(command, stdout=slave, stderr=slave, stdin=slave, env=environment) as watching:
        os.close(slave)
        shown = b""
        while shown.count(b"ready") < 4:  # two brokers, twice
            shown += os.read(master, 65_536)
        watching.send_signal(signal.SIGINT)
        try:
            while os.read(master, 65_536):
                pass
        except OSError:
            pass  # it has ended
    os.close(master)
    assert watching.returncode == 0
    assert b"Traceback" not in shown


def test_quantities_are_written_for_people() -> None:
    assert [count(number) for number in (0, 999.6, 1234567)] == ["0", "1 000", "1 234 567"]
    assert [size(number) for number in (0, 1023, 1024, 5 * 2**20, 3 * 2**40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "5.0 MiB",
        "3072.0 GiB",
    ]
    assert [span(seconds) for seconds in (0.4, 59, 90, 7200, 100_000)] == ["0 s", "59 s", "1.5 m", "2.0 h", "1.2 d"]
    assert [milliseconds(value) for value in (None, 1.25, 99.94, 250.0)] == ["-", "1.2 ms", "99.9 ms", "250 ms"]


def test_retained_messages_are_listed_and_removed_at_all_brokers(network: Path) -> None:
    with let_in(_port(network, "there"), "keeper") as caller:
        caller.publish("old/1", b"x", retain=True)
        caller.publish("old/2", b"x", retain=True)
    listed = ("retained", _value(network, "here", "admin"), "--filter", "old/#")
    eventually(lambda: "old/1" in (shown := run(*listed).output) and "old/2" in shown, "both are kept here too")
    done = run("retained", _value(network, "here", "admin"), "--filter", "old/#", "--remove")
    assert (done.exit_code, done.stdout) == (0, "removed 2 retained messages\n")
    elsewhere = ("retained", _value(network, "there", "admin"), "--filter", "old/#")
    eventually(lambda: "old/" not in run(*elsewhere).output, "they are removed there")
    for words in (("--remove",), ("--filter", "a#")):
        assert run("retained", str(network), *words).exit_code == 2
