"""The load of bench/broker.py: it counts what arrives, and sees what is missing, repeated or not a message at all."""

import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("bench_folder")

PAYLOAD_BYTES = 64


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    broker, subscriber = socket.socketpair()
    with broker, subscriber:
        yield broker, subscriber


def _counted(
    broker: socket.socket, subscriber: socket.socket, numbers: list[int], cuts: random.Random
) -> tuple[int, int]:
    from _load import NUMBER
    from _tally import Tally
    from _wire import Mqtt

    form = Mqtt().delivered("plant/7", PAYLOAD_BYTES)
    tally = Tally(form)
    stream = b"".join(
        form.message[: form.payload_at] + NUMBER.pack(number) + bytes(PAYLOAD_BYTES - 8) for number in numbers
    )
    at = 0
    while at < len(stream):
        some = cuts.randrange(1, 60_000)
        broker.sendall(stream[at : at + some])
        at += some
        tally.read(subscriber)
    broker.shutdown(socket.SHUT_WR)
    while tally.read(subscriber):
        pass
    return tally.count, tally.disorder


def test_every_message_counts_once_however_the_stream_is_cut(pair: tuple[socket.socket, socket.socket]) -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    assert _counted(*pair, list(range(5_000)), random.Random(seed)) == (5_000, 0)


def test_messages_that_are_repeated_or_overtaken_are_seen(pair: tuple[socket.socket, socket.socket]) -> None:
    numbers = [*range(1_000), 999, 1_001, 1_000, *range(1_002, 3_000)]
    assert _counted(*pair, numbers, random.Random(1)) == (3_001, 2)


def test_what_a_server_asks_between_two_messages_is_answered_and_not_counted(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    from _load import NUMBER
    from _tally import Tally
    from _wire import Nats

    broker, subscriber = pair
    form = Nats().delivered("plant/7", PAYLOAD_BYTES)
    first, second = (
        form.message[: form.payload_at] + NUMBER.pack(number) + form.message[form.payload_at + 8 :] for number in (0, 1)
    )
    broker.sendall(first + b"PING\r\n" + second)
    tally = Tally(form, Nats().between)
    tally.read(subscriber)
    tally.check(subscriber)
    assert (tally.count, tally.disorder, broker.recv(100)) == (2, 0, b"PONG\r\n")


def test_something_else_than_the_messages_of_the_run_is_refused(pair: tuple[socket.socket, socket.socket]) -> None:
    from _tally import Tally
    from _wire import Mqtt

    broker, subscriber = pair
    form = Mqtt().delivered("plant/7", PAYLOAD_BYTES)
    broker.sendall(form.message + b"\xd0\x00" + form.message)
    tally = Tally(form)
    tally.read(subscriber)
    with pytest.raises(ValueError, match="something else"):
        tally.check(subscriber)


def test_without_a_broker_all_that_is_sent_arrives() -> None:
    from _broker_measures import latency, small
    from _peers import Nobody, Running, free_port
    from _turns import Extent

    alone = Running(free_port(), Nobody().load)
    stream = small(alone, Extent(0.2))
    assert (stream["lost"], stream["disorder"]) == (0, 0)
    assert stream["per_second"] > 0
    assert latency(alone, Extent(0.2))["p50_us"] > 0


def test_a_role_that_fails_says_why() -> None:
    from _crew import LoadFailed, perform
    from _load import SocketLoad
    from _peers import free_port
    from _wire import Mqtt

    with pytest.raises(LoadFailed, match="ConnectionRefusedError"):
        perform([SocketLoad(Mqtt()).flood(free_port(), "plant/7", PAYLOAD_BYTES)], 0, 0)


def test_a_checkout_of_another_version_runs_from_its_own_sources(tmp_path: Path) -> None:
    from _peers import Overlane

    other = Overlane("Overlane before", sources=tmp_path / "before" / "src")
    command = other.command(1883, tmp_path)
    assert command[:2] == ["env", f"PYTHONPATH={tmp_path / 'before' / 'src'}"]
    assert command[2:] == Overlane().command(1883, tmp_path)
