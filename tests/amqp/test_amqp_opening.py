"""How a client is let in: protocol headers, SASL, open, idle time-outs, and what is wrong with what comes first."""

import pytest
from peers import Bench

from overlane.amqp.codec.framing import PROTOCOL, SASL_PROTOCOL, frame_of
from overlane.amqp.codec.performatives import Begin, Close, Error, Open, SaslMechanisms, SaslOutcome
from overlane.amqp.codec.types import Symbol
from overlane.core.units import SECOND
from overlane.pubsub.counters import Refusal

SOLE = Symbol("sole-connection-for-container")


def test_a_client_without_sasl_is_let_in_where_it_needs_no_name() -> None:
    peer = Bench().open("here")
    assert peer.headers == [PROTOCOL]
    said = peer.last(Open)
    assert (said.container_id, said.idle_time_out, said.channel_max) == ("seattle", 60_000, 31)
    assert "ANONYMOUS-RELAY" in (said.offered_capabilities or ())


def test_a_client_without_sasl_is_told_to_use_it_where_it_needs_a_name() -> None:
    bench = Bench(anonymous=False)
    peer = bench.open("here")
    assert peer.headers == [SASL_PROTOCOL]
    assert peer.connection.closing is not None
    assert bench.pubsub.state.counters.refused[Refusal.PROTOCOL] == 1


@pytest.mark.parametrize(
    ("password", "code"),
    [(b"\0alice\0secret", 0), (b"alice\0alice\0secret", 0), (b"\0alice\0wrong", 1), (b"bob\0alice\0secret", 1)],
)
def test_plain_is_checked_against_the_users(password: bytes, code: int) -> None:
    bench = Bench(users={"alice": b"secret"}, anonymous=False)
    peer = bench.peer()
    peer.sasl("PLAIN", password)
    assert peer.take(SaslMechanisms) == [SaslMechanisms(("PLAIN",))]
    assert peer.last(SaslOutcome).code == code
    peer.send(PROTOCOL, frame_of(0, Open("here")))
    assert bool(peer.take(Open)) == (code == 0)
    assert peer.connection.user == "alice" or code


def test_what_lies_behind_a_login_waits_for_it() -> None:
    bench = Bench(users={"alice": b"secret"}, anonymous=False)
    peer = bench.peer()
    from overlane.amqp.codec.framing import SASL_FRAME
    from overlane.amqp.codec.performatives import SaslInit

    peer.send(
        SASL_PROTOCOL,
        frame_of(0, SaslInit("PLAIN", b"\0alice\0secret"), SASL_FRAME),
        PROTOCOL,
        frame_of(0, Open("here")),
        frame_of(0, Begin(None, 0, 1, 1)),
    )
    assert peer.headers == [SASL_PROTOCOL, PROTOCOL]
    assert len(peer.take(Begin)) == 1


def test_a_certificate_says_who_a_client_is() -> None:
    bench = Bench(users={}, anonymous=False)
    peer = bench.peer(certified="sensor-7")
    peer.sasl("EXTERNAL", b"")
    peer.send(PROTOCOL, frame_of(0, Open("here")))
    assert peer.take(SaslMechanisms) == [SaslMechanisms(("EXTERNAL", "PLAIN"))]
    assert peer.connection.user == "sensor-7"
    assert peer.connection.is_open


@pytest.mark.parametrize("mechanism", ["EXTERNAL", "ANONYMOUS", "SCRAM-SHA-256"])
def test_a_mechanism_that_is_not_offered_is_refused(mechanism: str) -> None:
    bench = Bench(anonymous=False)
    peer = bench.peer()
    peer.sasl(mechanism, b"")
    assert peer.last(SaslOutcome).code == 1
    assert peer.connection.closing is not None


def test_other_protocols_are_answered_with_one_that_is_spoken() -> None:
    for header in (b"AMQP\x02\x01\x00\x00", b"AMQP\x00\x00\x09\x01"):
        peer = Bench().peer()
        peer.send(header)
        assert peer.headers == [SASL_PROTOCOL]
        assert peer.connection.closing is not None
    peer = Bench().peer()
    peer.send(b"GET / HTTP/1.1\r\n")
    assert peer.connection.closing == "not AMQP"
    assert peer.headers == peer.frames == []


def test_who_does_not_introduce_itself_in_time_is_closed() -> None:
    bench = Bench()
    peer = bench.peer()
    peer.send(PROTOCOL)
    bench.pass_time(11)
    assert peer.connection.closing == "no open in time"
    assert bench.pubsub.state.counters.refused[Refusal.CONNECT_LATE] == 1


def test_a_container_can_be_the_only_one_of_its_name() -> None:
    bench = Bench()
    one = bench.open("jms", desired_capabilities=(SOLE,))
    assert SOLE in (one.last(Open).offered_capabilities or ())
    two = bench.open("jms", desired_capabilities=(SOLE,))
    error = two.last(Close).error
    assert isinstance(error, Error)
    assert error.condition == "amqp:invalid-field"
    assert error.info == {Symbol("invalid-field"): Symbol("container-id")}
    one.say(Close())
    assert bench.open("jms", desired_capabilities=(SOLE,)).connection.is_open


def test_connections_of_one_container_have_sessions_of_their_own() -> None:
    bench = Bench()
    one, two = bench.open("twin"), bench.open("twin")
    names = [peer.connection.session.client_id for peer in (one, two) if peer.connection.session is not None]
    assert names == ["amqp/twin", "amqp/twin#2"]


def test_a_client_that_wants_to_hear_something_does() -> None:
    bench = Bench()
    peer = bench.open("here", idle_time_out=1_000)
    bench.pass_time(2.1)
    assert peer.empty_frames == 4


def test_a_silent_client_is_closed_after_twice_what_it_was_told() -> None:
    bench = Bench()
    peer = bench.open("here")
    bench.pass_time(119)
    assert peer.connection.is_open
    peer.send(b"\x00\x00\x00\x08\x02\x00\x00\x00")
    bench.pass_time(119)
    assert peer.connection.is_open
    bench.pass_time(2)
    error = peer.last(Close).error
    assert isinstance(error, Error)
    assert error.condition == "amqp:resource-limit-exceeded"
    assert bench.now > 1_000 * SECOND


def test_limits_hold_before_a_client_is_known() -> None:
    bench = Bench(packet_bytes_before_connect=600)
    peer = bench.peer()
    peer.send(PROTOCOL, b"\x00\x00\x02\x59")
    assert peer.connection.closing == "a frame of 601 bytes; at most 600 are allowed"
    for wrong in ("", "x" * 257, "nul\0"):
        peer = bench.open(wrong)
        assert peer.take(Close)
    assert bench.open("small", max_frame_size=511).take(Close)


def test_more_connections_than_allowed_are_told_so() -> None:
    bench = Bench(connections=1)
    assert bench.open("one").connection.is_open
    error = bench.open("two").last(Close).error
    assert isinstance(error, Error)
    assert error.description == "more than 1 connections"
