"""No client, neighbour or user of the admin API can harm others, whatever it sends.

`python bench/torture.py --only fuzz --seconds 600` goes on for longer, with other seeds.
"""

import select
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from clientpackets import Connect, Subscribe, conversation, text_of
from frames import LIFE, Neighbour, Parcel
from fuzzrun import fuzz
from target import Chain

from overlane.core.wire import parcel
from overlane.core.wire.parcel import FlowPart
from unread import unread_bytes, until_read

SEED = 14
SECONDS = 70.0


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    chain = Chain(tmp_path)
    chain.begin()
    yield chain
    chain.end()


def test_the_hostile_neighbour_is_taken_for_a_neighbour(chain: Chain) -> None:
    """What it sends gets as far as to clients of brokers behind the one that it is linked with."""
    with (
        socket.create_connection(("127.0.0.1", chain.mqtt_port("c")), 20.0) as line,
        closing(Neighbour(int(chain.member("b").overlay.rpartition(":")[2]))) as neighbour,
    ):
        line.sendall(conversation(4, Connect(text_of("reader")), [Subscribe((text_of("fuzz/#"),), 0)]))
        heard, sequence = b"", 0
        while b"fuzz/1hello" not in heard:
            content = parcel.pack_flow(FlowPart(LIFE, 1, sequence, 0, 0), LIFE)
            content += parcel.pack_messages((("fuzz/1",), (0,), (b"hello",)))
            neighbour.say(Parcel(0, sequence, 0, 1, content))
            sequence += 1
            assert sequence < 200, heard
            if select.select([line], [], [], 0.1)[0]:
                heard += line.recv(4_096)
    chain.check("said hello")


def test_what_was_sent_counts_as_read_when_the_other_side_has_read_it_or_is_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        line = socket.create_connection(server.getsockname())
        with line, server.accept()[0] as other:
            assert unread_bytes(line) == 0
            line.sendall(bytes(100_000))
            assert unread_bytes(line)
            assert not until_read(line, 0.05)
            other.recv(40_000, socket.MSG_WAITALL)
            assert unread_bytes(line)
            other.sendall(b"what we say does not matter")
            other.recv(60_000, socket.MSG_WAITALL)
            assert until_read(line, 20.0)
            line.sendall(b"more")
            other.close()
            with suppress(ConnectionResetError):
                assert until_read(line, 20.0)


@pytest.mark.slow
def test_nothing_that_is_sent_harms_others(tmp_path: Path) -> None:
    print("seed", SEED)
    print(fuzz(tmp_path, SEED, SECONDS))
