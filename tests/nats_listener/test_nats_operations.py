"""Any bytes: the same however they are split, and whatever they are, one connection is harmed at most."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from natsbench import NatsBench

from examples import examples
from overlane.core.units import SECOND
from overlane.nats.operations import LINE_BYTES_MAX
from overlane.pubsub.limits import Limits
from overlane.pubsub.state import Settings

STORY = (
    b'CONNECT {"headers": true, "no_responders": true}\r\nPING\r\nSUB a.> 1\r\nsub a.* g 2\r\nUNSUB 1 3\r\n'
    b"PUB a.b 3\r\n\r\n\r\r\nPUB a.b r.s 0\r\n\r\n"
    b"HPUB a.c 23 26\r\nNATS/1.0\r\nName: x y\r\n\r\nabc\r\nPUB\ta.d\t1\r\nz\r\nPONG\r\n"
)
WORDS = st.sampled_from(
    b"PUB HPUB SUB UNSUB PING PONG CONNECT {} a.b * > 1 0 99999999999 -1 $SYS.x $share.a.b +OK".split(b" ")
) | st.sampled_from([b" ", b"\t", b"\r\n", b"NATS/1.0\r\n", b"\r\n\r\n", b"\xff", b'{"verbose":true}'])


def heard(*pieces: bytes) -> bytes:
    client = NatsBench().connect(says_connect=False)
    client.say(*pieces)
    return client.heard()


def test_the_story_is_understood() -> None:
    told = heard(STORY)
    assert told.startswith(b"PONG\r\nMSG a.b 1 3\r\n\r\n\r\r\n")
    assert b"HMSG a.c 1 23 26\r\nNATS/1.0\r\nName: x y\r\n\r\nabc\r\n" in told
    assert b"ERR" not in told


def test_it_is_the_same_split_at_every_byte() -> None:
    whole = heard(STORY)
    assert heard(*(STORY[at : at + 1] for at in range(len(STORY)))) == whole
    for at in range(len(STORY)):
        assert heard(STORY[:at], STORY[at:]) == whole


@examples(300)
@given(st.lists(WORDS | st.binary(max_size=5), max_size=30), st.lists(st.integers(1, 12), max_size=30))
@example([b"PUB a.b 2\r\nxxPUB"], [])
@example([b"\r\n"], [])
def test_garbage_ends_one_connection_and_leaves_the_others_alone(words: list[bytes], sizes: list[int]) -> None:
    bench = NatsBench()
    witness = bench.connect()
    witness.say(b"SUB w 1\r\n")
    client = bench.connect(says_connect=False)
    data = b"".join(words)
    for size in [*sizes, len(data)]:
        client.say(data[:size])
        data = data[size:]
    assert not bench.mqtt.state.failures
    assert b"-ERR" in client.heard() or not client.is_closed
    bench.wait(1)
    other = bench.connect()
    other.say(b"PUB w 2\r\nok\r\n")
    assert witness.heard().endswith(b"MSG w 1 2\r\nok\r\n")
    assert client.connection.waiting_bytes <= Limits().packet_bytes + LINE_BYTES_MAX


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"HELLO\r\n", "Unknown Protocol Operation"),
        (b"GET / HTTP/1.1\r\n", "Unknown Protocol Operation"),
        (b"x" * (LINE_BYTES_MAX + 2), "Maximum Control Line Exceeded"),
        (b"PUB a.b 1048577\r\n", "Maximum Payload Violation"),
        (b"PUB a.b 999999999\r\n", "Maximum Payload Violation"),
        (b"PUB a.b -1\r\n", "Parser Error"),
        (b"PUB a.b 1e3\r\n", "Parser Error"),
        (b"PUB a.b 2\r\nabcd\r\n", "Parser Error"),
        (b"PUB\r\n", "Parser Error"),
        (b"PUB a b c 1\r\nx\r\n", "Parser Error"),
        (b"SUB a\r\n", "Parser Error"),
        (b"UNSUB\r\n", "Parser Error"),
        (b"UNSUB 1 x\r\n", "Parser Error"),
        (b"HPUB a 5 3\r\nabc\r\n", "Parser Error"),
        (b"HPUB a 4 4\r\nabcd\r\n", "Parser Error"),
        (b"HPUB a 13 13\r\nNATS/1.0\r\n:\r\n\r\n", "Parser Error"),
        (b"PUB a b..c 1\r\nx\r\n", "Invalid Reply Subject"),
    ],
)
def test_what_is_wrong_is_told_and_the_connection_closed(said: bytes, error: str) -> None:
    client = NatsBench().connect(headers=True)
    assert (client.asked(said), client.is_closed) == (f"-ERR '{error}'\r\n".encode(), True)


def test_a_client_that_is_not_known_yet_cannot_make_the_broker_keep_much() -> None:
    client = NatsBench().connect(says_connect=False)
    assert client.asked(b"PUB a.b 5000\r\n") == b"-ERR 'Maximum Payload Violation'\r\n"


def test_who_does_not_introduce_itself_or_falls_silent_is_closed() -> None:
    bench = NatsBench(Settings(Limits(connect_within_ns=SECOND)))
    late, silent, alive = bench.connect(says_connect=False), bench.connect(), bench.connect()
    bench.wait(2)
    assert late.heard() == b"-ERR 'Authentication Timeout'\r\n"
    for _ in range(10):
        bench.wait(30)
        if b"PING" in alive.heard():
            alive.say(b"PONG\r\n")
    assert silent.heard() == b"PING\r\nPING\r\n-ERR 'Stale Connection'\r\n"
    assert not alive.is_closed
