"""The commands `overlane pub` and `overlane sub`, as people and programs use them."""

import asyncio
import itertools
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from brokers import Overlane, RunningBroker, free_port
from overlane.cli.main import app
from overlane.cli.simulation.traffic import LatencyHistogram, Traffic
from overlane.client import connect
from overlane.core.units import MS, SECOND
from overlane.node.security.users import set_password
from overlane.secret import Secret
from overlane.testbed.certificates import Authority

pytestmark = pytest.mark.slow

OVERLANE = [sys.executable, "-m", "overlane.cli.main"]
WITHIN_S = 60

_topics = itertools.count()


@pytest.fixture
def topic() -> str:
    """One that no other test uses."""
    return f"commands/{next(_topics)}"


def overlane(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
    run = subprocess.run([*OVERLANE, *arguments], input=stdin, capture_output=True, timeout=WITHIN_S, check=False)
    return run.returncode, run.stdout.decode(), run.stderr.decode()


@contextmanager
def subscribed(address: str, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A running `overlane sub` that has its subscription: a retained message has come through it."""
    marker = f"ready/{next(_topics)}"
    asyncio.run(_retain(address, marker, b"ready"))
    command = [*OVERLANE, "sub", address, marker, *arguments, "--show"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert b"ready" in process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()
        asyncio.run(_retain(address, marker, b""))


async def _retain(address: str, topic: str, body: bytes) -> None:
    async with connect(address) as client:
        await client.publish(topic, body, qos=1, retain=True)


def ended(process: "subprocess.Popen[bytes]") -> tuple[int, list[str], str]:
    output, errors = process.communicate(timeout=WITHIN_S)
    return process.returncode, output.decode(errors="replace").splitlines(), errors.decode()


def test_one_message_goes_from_pub_to_sub(our_broker: RunningBroker, topic: str) -> None:
    with subscribed(our_broker.address, f"{topic}/#", "--count", "2") as process:
        assert overlane("pub", our_broker.address, f"{topic}/a", "-m", "grüß dich", "--qos", "1") == (0, "", "")
        status, lines, errors = ended(process)
    assert (status, lines) == (0, [f"{topic}/a grüß dich"])
    assert "2 messages received" in errors


def test_messages_as_json_tell_everything(our_broker: RunningBroker, topic: str) -> None:
    with subscribed(our_broker.address, topic, "--count", "3", "--json", "--qos", "2") as process:
        said = ("--property", "colour=blue", "--deadline", "60ms", "--reliability", "reliable", "--stamp")
        overlane("pub", our_broker.address, topic, "-m", "text", *said)
        overlane("pub", our_broker.address, topic, "--stdin-lines", "--qos", "2", stdin=b"\xff\xfe\n")
        status, lines, errors = ended(process)
    first, second = map(json.loads, lines)
    assert status == 0
    assert first.pop("age_ms") >= 0
    properties = dict(first.pop("properties"))
    assert properties.pop("overlane-stamp")
    assert properties == {"overlane-deadline": "60ms", "overlane-reliability": "reliable", "colour": "blue"}
    assert first == {"topic": topic, "qos": 1, "retained": False, "text": "text"}
    assert second == {"topic": topic, "qos": 2, "retained": False, "base64": "//4="}
    assert json.loads(errors)["received"] == 3


def test_lines_of_standard_input_become_messages(our_broker: RunningBroker, topic: str) -> None:
    with subscribed(our_broker.address, topic, "--count", "4") as process:
        status, _, _ = overlane("pub", our_broker.address, topic, "--stdin-lines", stdin=b"one\ntwo\r\nthree")
        assert status == 0
        assert ended(process)[1] == [f"{topic} one", f"{topic} two", f"{topic} three"]


def test_a_file_becomes_a_message(our_broker: RunningBroker, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "message"
    file.write_bytes(b"from a file")
    with subscribed(our_broker.address, topic, "--count", "3") as process:
        overlane("pub", our_broker.address, topic, "--file", str(file), "--count", "2")
        assert ended(process)[1] == [f"{topic} from a file"] * 2


def test_latencies_are_told_with_the_share_in_time(our_broker: RunningBroker, topic: str) -> None:
    with subscribed(our_broker.address, topic, "--latency", "--deadline", "10s", "--count", "201", "--json") as process:
        publishing = ("--size", "64", "--count", "200", "--rate", "1000", "--stamp", "--qos", "1", "--json")
        status, output, errors = overlane("pub", our_broker.address, topic, *publishing)
        heard = json.loads(ended(process)[2])
    assert (status, errors) == (0, "")
    published = json.loads(output)
    assert (published["topic"], published["published"], published["bytes"]) == (topic, 200, 12_800)
    assert published["seconds"] >= 0.19
    assert list(published["acknowledgement_ms"]) == ["p50", "p99", "p999", "max"]
    assert (heard["received"], heard["timed"], heard["retained"], heard["in_time"]) == (201, 200, 1, 200)
    latency = heard["latency_ms"]
    assert 0 < latency["p50"] <= latency["p99"] <= latency["p999"] <= latency["max"] < 10_000


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_generated_messages_all_arrive(our_broker: RunningBroker, topic: str, qos: str) -> None:
    with subscribed(our_broker.address, topic, "--qos", qos, "--count", "2001", "--json") as process:
        status, output, _ = overlane("pub", our_broker.address, topic, "--size", "10", "--count", "2000", "--qos", qos)
        assert status == 0
        assert "2,000 messages published, 20 kB" in output
        status, lines, errors = ended(process)
    assert (status, len(lines), json.loads(errors)["received"]) == (0, 2000, 2001)


def test_an_interrupt_ends_both_with_a_summary(our_broker: RunningBroker, topic: str) -> None:
    for arguments, words in (
        (["pub", our_broker.address, topic, "--size", "64", "--rate", "200"], "messages published"),
        (["sub", our_broker.address, "#"], "messages received"),
    ):
        process = subprocess.Popen([*OVERLANE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            assert process.stderr is not None
            assert process.stderr.readline()  # the first line of its progress
            process.send_signal(signal.SIGINT)
            status, lines, errors = ended(process)
        finally:
            process.kill()
        assert status == 0
        assert words in lines[0]
        assert "Traceback" not in errors


def test_an_interrupt_does_not_wait_for_a_line_that_never_comes(our_broker: RunningBroker, topic: str) -> None:
    with subscribed(our_broker.address, topic) as heard:
        command = [*OVERLANE, "pub", our_broker.address, topic, "--stdin-lines"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdin is not None
        assert heard.stdout is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        assert b"first" in heard.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(WITHIN_S) == 0
        process.stdin.close()
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stderr.close()


def test_on_a_terminal_the_figures_are_live(our_broker: RunningBroker, topic: str) -> None:
    terminal, end = pty.openpty()
    command = [*OVERLANE, "pub", our_broker.address, topic, "--size", "64", "--rate", "500", "--count", "500"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(command, stdin=end, stdout=end, stderr=end, env=environment)
    os.close(end)
    shown = b""
    try:
        while data := os.read(terminal, 4096):
            shown += data
    except OSError:  # how a terminal says that the other side has closed it
        pass
    finally:
        os.close(terminal)
    assert process.wait(WITHIN_S) == 0
    assert shown.count(b" published") > 2
    assert b"500 messages published" in shown.replace(b"\x1b[1m", b"").replace(b"\x1b[0m", b"")


@pytest.mark.parametrize("command", [["pub", "{}", "a", "-m", "x"], ["sub", "{}", "a"]])
def test_a_broker_that_is_not_there_is_one_sentence(command: list[str]) -> None:
    address = f"127.0.0.1:{free_port()}"
    status, output, errors = overlane(*(word.format(address) for word in command))
    assert (status, output) == (1, "")
    assert errors == f"overlane: no connection: {address}: connection refused: nothing listens there [OVL-208]\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pub", "127.0.0.1", "a"], "give exactly one of"),
        (["pub", "127.0.0.1", "a", "-m", "x", "--size", "3"], "exactly one of"),
        (["pub", "127.0.0.1", "a", "--stdin-lines", "--count", "3"], "exclude each other"),
        (["pub", "127.0.0.1", "a", "--file", "no-such-file"], "no-such-file"),
        (["pub", "127.0.0.1", "a", "-m", "x", "--property", "nothing"], "NAME=VALUE"),
        (["pub", "127.0.0.1", "a", "-m", "x", "--deadline", "soon"], "60ms"),
        (["pub", "127.0.0.1", "a", "-m", "x", "--qos", "3"], "--qos"),
        (["pub", "no host", "a", "-m", "x"], "host:port"),
        (["pub", "127.0.0.1", "a", "-m", "x", "--password-file", "no-such-file"], "cannot read"),
        (["sub", "127.0.0.1", "a", "--tls-ca", "no-such-file"], "no-such-file"),
        (["sub", "127.0.0.1", "a", "--reliability", "very"], "--reliability"),
        (["sub", "127.0.0.1"], "FILTER"),
    ],
)
def test_a_wrong_request_is_refused_with_its_reason(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_a_wrong_topic_or_filter_is_refused_before_it_is_sent(our_broker: RunningBroker) -> None:
    for arguments in (["pub", our_broker.address, "a/#", "-m", "x"], ["sub", our_broker.address, "a/#/b"]):
        status, output, errors = overlane(*arguments)
        assert (status, output) == (2, "")
        assert errors.count("\n") == 1
        assert "`#` is allowed only" in errors


def test_users_passwords_and_tls_are_given_by_options(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    identity = authority.server()
    directory = tmp_path / "broker"
    directory.mkdir()
    set_password(str(directory / "users.txt"), "alice", Secret(b"wonderland"))
    (tmp_path / "right").write_text("wonderland\n")
    (tmp_path / "wrong").write_text("mirror\n")
    tables = f"""
        [security]
        users = "users.txt"
        anonymous = false
        certificate = "{identity.certificate}"
        key = "{identity.key}"
        [[access]]
        user = "alice"
        publish = ["open/#"]
    """
    address = f"localhost:{free_port()}"
    broker = Overlane(directory, tables, f'mqtt_tls = "{address.replace("localhost", "127.0.0.1")}"')
    broker.start()
    try:

        def publish(topic: str, password: str) -> tuple[int, str, str]:
            who = ("--user", "alice", "--password-file", str(tmp_path / password), "--tls-ca", str(authority.ca))
            return overlane("pub", address, topic, "-m", "hello", "--qos", "1", *who)

        assert publish("open/door", "right") == (0, "", "")
        status, _, errors = publish("open/door", "wrong")
        assert status == 1
        assert "bad user name or password (0x86)" in errors
        status, _, errors = publish("closed/door", "right")
        assert status == 1
        assert errors.startswith("overlane: message to closed/door: not authorized (0x87)")
        assert "wonderland" not in errors
    finally:
        broker.kill()


def test_percentiles_are_right_to_within_half_a_percent() -> None:
    latencies = LatencyHistogram()
    for number in range(1, 100_001):
        latencies.add(number * 1_000)
    for share, exact in ((0.5, 50 * MS), (0.99, 99 * MS), (0.999, 99_900_000)):
        assert abs(latencies.percentile_ns(share) - exact) <= 0.005 * exact
    percentiles = latencies.percentiles_ms()
    assert percentiles is not None
    assert percentiles["max"] == 100.0


def test_rates_are_those_since_they_were_asked_last() -> None:
    traffic = Traffic(began=0)
    traffic.count(100, 1_000)
    assert traffic.recent(SECOND) == (100, 1_000)
    traffic.count(10, 50)
    assert traffic.recent(3 * SECOND) == (5, 25)
    traffic.ended = 4 * SECOND
    assert traffic.messages_per_second == 27.5
