"""A session that was exported and imported goes on as the original does; bytes that are none change nothing."""

import zlib
from collections.abc import Callable
from typing import Any

import mqtt5
import msgspec
import pytest
from clients import NEVER_S, Bench, Got
from hypothesis import given
from hypothesis import strategies as st
from mqtt_soak import Soak
from transplants import (
    CLIENTS,
    DEEDS,
    Deed,
    end_brief_sessions,
    end_connections,
    exports,
    finish,
    heard,
    new_bench,
    tell,
    transplanted,
)

from examples import examples
from overlane.pubsub.delivery.window import Window
from overlane.pubsub.sessions import transfer
from overlane.pubsub.sessions.session_export import (
    HEAD_BYTES,
    MAGIC,
    ExportedEntry,
    MalformedSession,
    decode_session,
    encode_session,
)
from overlane.pubsub.sessions.transfer import NotTransferable

deeds = st.builds(Deed, st.sampled_from(DEEDS), st.integers(0, CLIENTS - 1), st.integers(0, 11), st.integers(0, 5))
begins = [Deed("connect", who, 2, 1) for who in range(CLIENTS)] + [
    Deed("subscribe", who, 0, 2) for who in range(CLIENTS)
]


def compare(first: list[Deed], second: list[Deed]) -> None:
    bench = new_bench()
    tell(bench, begins + first)
    end_brief_sessions(bench)
    other = transplanted(bench)
    end_connections(bench)
    heard(bench)
    for deed in second:
        tell(bench, [deed])
        tell(other, [deed])
        assert heard(bench) == heard(other), deed
    finish(bench)
    finish(other)
    assert heard(bench) == heard(other)
    assert bench.tables() == other.tables()


@examples(150)
@given(st.lists(deeds, max_size=30), st.lists(deeds, max_size=15))
def test_an_imported_session_goes_on_as_the_original(first: list[Deed], second: list[Deed]) -> None:
    compare(first, second)


def test_a_message_that_was_queued_after_a_crash_is_marked_alike_after_another() -> None:
    connect = Deed("connect", 0, 0, 1)
    compare([connect, connect, Deed("drop", 1, 0, 0), Deed("crash", 0, 0, 0)], [Deed("crash", 0, 0, 0)])


def test_a_message_that_was_queued_after_the_move_of_a_connected_client_is_not_marked_as_sent_after_a_crash() -> None:
    connect = Deed("connect", 0, 0, 1)
    compare([connect], [connect, Deed("connect", 0, 0, 0), Deed("crash", 0, 0, 0)])


def test_the_will_of_a_session_that_is_not_moved_is_given_to_those_that_are() -> None:
    compare([Deed("connect", 0, 0, 1)], [])


@pytest.fixture
def _soak_stops_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Soak, "_heal", lambda _: None)
    monkeypatch.setattr(Soak, "_judge", lambda _: None)


@pytest.mark.usefixtures("_soak_stops_in_the_middle")
@pytest.mark.parametrize("steps", [40, 150, 400])
def test_sessions_of_a_soak_are_given_the_same_after_import(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqtt_soak.STEPS", steps)
    owed = 0
    for seed in range(12):
        soak = Soak(seed)
        soak.run()
        bench = soak.bench
        bench.server.store_is_failing(False)
        bench.commit()
        bench.is_store_slow, bench.is_healed = False, True
        exported = exports(bench)
        assert len(exported) == 7, f"seed {seed}"
        other = Bench()
        other.reconfigure(**msgspec.structs.asdict(bench.settings.limits))
        for data in exported.values():
            owed += len(decode_session(data).sent) + len(decode_session(data).waiting)
            other.server.pubsub.import_session(decode_session(data), other.now)
        other.end_turn()
        end_connections(bench)
        for client_id in exported:
            found = []
            for one in (bench, other):
                client = one.stranger(client_id, expiry=NEVER_S, clean=False)
                client.connect()
                found.append([repr(packet) for packet in client.saw()])
            assert found[0] == found[1], f"seed {seed}"
    assert owed > 20


# Sabotage: that the comparison would tell


def give_no_packet_identifiers_on(monkeypatch: pytest.MonkeyPatch) -> None:
    resume = Window.resume
    monkeypatch.setattr(
        Window, "resume", lambda self, sent, waiting, _, sent_up_to: resume(self, sent, waiting, 1, sent_up_to)
    )


def forget_what_was_received(monkeypatch: pytest.MonkeyPatch) -> None:
    exported = transfer.export_session
    monkeypatch.setattr(
        "overlane.pubsub.service.export_session",
        lambda *given: msgspec.structs.replace(exported(*given), received=()),
    )


def forget_what_was_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    resume = Window.resume
    monkeypatch.setattr(Window, "resume", lambda self, _, *rest: resume(self, [], *rest))


def forget_the_will(monkeypatch: pytest.MonkeyPatch) -> None:
    exported = transfer.export_session
    monkeypatch.setattr(
        "overlane.pubsub.service.export_session", lambda *given: msgspec.structs.replace(exported(*given), will=None)
    )


IN_FLIGHT = [Deed("manners", 1, 0, 0), Deed("publish", 0, 0, 2), Deed("publish", 0, 0, 1), Deed("answer", 1, 0, 0)]


@pytest.mark.parametrize(
    ("sabotage", "first", "second"),
    [
        (give_no_packet_identifiers_on, [], [Deed("connect", 0, 2, 0), Deed("connect", 1, 2, 0), *IN_FLIGHT]),
        (forget_what_was_received, [Deed("manners", 0, 0, 0), Deed("publish", 0, 0, 2)], []),
        (forget_what_was_in_flight, IN_FLIGHT, []),
        (forget_the_will, [], [Deed("wait", 0, 4, 0)]),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_transfer_that_leaves_something_out_is_found_out(
    sabotage: Callable[[pytest.MonkeyPatch], None],
    first: list[Deed],
    second: list[Deed],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = [Deed("publish", 0, 0, 1), *first]
    compare(first, second)
    sabotage(monkeypatch)
    with pytest.raises(AssertionError):
        compare(first, second)


# One thing at a time


def away(bench: Bench) -> bytes:
    """A session with a bit of everything, exported."""
    writer = bench.client("writer", expiry=60)
    writer.polite = False
    will = mqtt5.Will("wills", payload=b"gone", qos=mqtt5.QoS(1), will_delay_interval=30)
    reader = bench.client("reader", expiry=60, will=will, user_properties=[("overlane-once", "run")])
    reader.subscribe("t", qos=2, identifier=7, user_properties=[("overlane-deadline", "50ms")])
    reader.polite = False
    for number in range(5):
        writer.publish("t", b"%d" % number, qos=1 + number % 2, message_expiry_interval=600)
    reader.publish("own", b"once", qos=2)
    reader.drop()
    return exports(bench)["reader"]


def test_redelivery_has_the_same_identifiers_flags_and_order() -> None:
    data = away(Bench(in_flight=3))
    other = Bench(in_flight=3)
    other.server.pubsub.import_session(decode_session(data), other.now)
    reader = other.client("reader", expiry=60)
    assert reader.is_resumed
    publishes = reader.saw(mqtt5.PublishPacket)
    assert [(one.packet_id, one.payload, one.duplicate) for one in publishes] == [
        *((number + 2, b"%d" % number, True) for number in range(3)),
        *((number + 2, b"%d" % number, False) for number in range(3, 5)),
    ]
    assert reader.got()[0] == Got("t", b"0", 1, ids=(7,), dup=True, expiry=600)


def test_a_will_is_published_when_it_was_due_and_not_if_the_client_comes_back() -> None:
    bench = Bench()
    data = away(bench)
    for comes_back in (False, True):
        other = Bench()
        watcher = other.client("watcher")
        watcher.subscribe("wills", qos=1)
        other.server.pubsub.import_session(decode_session(data), other.now)
        other.end_turn()
        other.wait(29)
        assert watcher.got() == []
        if comes_back:
            other.client("reader", expiry=60)
        other.wait(2)
        assert watcher.got() == ([] if comes_back else [Got("wills", b"gone", 1)])


def test_a_will_that_is_due_is_published_with_the_import() -> None:
    bench, other = Bench(), Bench()
    will = mqtt5.Will("wills", payload=b"gone", qos=mqtt5.QoS(1))
    bench.client("mourned", expiry=60, will=will)
    watcher = other.client("watcher")
    watcher.subscribe("wills", qos=1)
    other.server.pubsub.import_session(decode_session(exports(bench)["mourned"]), other.now)
    other.settle()
    assert watcher.got() == [Got("wills", b"gone", 1)]


def test_an_imported_session_ends_when_it_would_have_and_leaves_nothing_behind() -> None:
    bench = Bench()
    data = away(bench)
    other = Bench()
    other.server.pubsub.import_session(decode_session(data), other.now)
    other.end_turn()
    other.wait(59)
    assert other.tables()["mqtt.session"] == 1
    other.wait(2)
    assert other.tables() == {}


def test_an_imported_session_survives_a_crash_of_its_new_broker() -> None:
    data = away(Bench(in_flight=3))
    other = Bench(in_flight=3)
    other.server.pubsub.import_session(decode_session(data), other.now)
    other.end_turn()
    other.crash()
    reader = other.client("reader", expiry=60)
    assert [(one.packet_id, one.duplicate) for one in reader.saw(mqtt5.PublishPacket)] == [
        *((number, True) for number in (2, 3, 4)),
        *((number, False) for number in (5, 6)),
    ]


def test_what_was_taken_once_is_not_taken_again_after_the_transfer() -> None:
    once: dict[str, Any] = {"user_properties": [("overlane-once", "run")]}
    bench, other = Bench(), Bench()
    bench.client("reader", expiry=60).subscribe("t", qos=1)
    bench.client("writer", expiry=60, **once).publish("t", b"first", qos=1)
    for data in exports(bench).values():
        other.server.pubsub.import_session(decode_session(data), other.now)
    other.end_turn()
    reader, writer = other.client("reader", expiry=60), other.client("writer", expiry=60, **once)
    again = mqtt5.PublishPacket("t", b"first", qos=mqtt5.QoS(1), packet_id=1, duplicate=True)
    writer.send(again)
    assert [one.packet_id for one in writer.saw(mqtt5.PubAckPacket)] == [1]
    writer.publish("t", b"second", qos=1)
    assert [one.payload for one in reader.got()] == [b"second"]


def test_exporting_changes_nothing() -> None:
    bench = Bench()
    first = away(bench)
    assert exports(bench)["reader"] == first
    assert bench.server.take_records() == []


def test_what_cannot_be_moved_is_refused_and_changes_nothing() -> None:
    bench = Bench()
    exported = decode_session(away(bench))
    pubsub, now = bench.server.pubsub, bench.now
    bench.client("passing")
    for client_id in ("passing", "nobody"):
        with pytest.raises(NotTransferable, match="no session of"):
            pubsub.export_session(client_id, now)
    before = bench.tables()
    with pytest.raises(NotTransferable, match="already"):
        pubsub.import_session(exported, now)
    another = msgspec.structs.replace(exported, client_id="another")
    pubsub.store_is_failing(True)
    with pytest.raises(NotTransferable, match="store"):
        pubsub.import_session(another, now)
    pubsub.store_is_failing(False)
    too_long = msgspec.structs.replace(exported.subscriptions[0], name="x" * 65_535)
    with pytest.raises(NotTransferable, match="the overlay carries at most"):
        pubsub.import_session(msgspec.structs.replace(another, subscriptions=(too_long,)), now)
    full = Bench(sessions=0)
    with pytest.raises(NotTransferable, match="more than 0 sessions"):
        full.server.pubsub.import_session(another, full.now)
    bench.end_turn()
    assert (bench.tables(), "another" in pubsub.state.sessions) == (before, False)


# Bytes


@given(st.data())
@examples(200)
def test_damaged_bytes_are_refused_with_a_reason(data: st.DataObject) -> None:
    sound = SOUND
    damaged = bytearray(sound)
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(sound) - 1))
        damaged[at] ^= data.draw(st.integers(1, 255))
    else:
        del damaged[data.draw(st.integers(0, len(sound) - 1)) :]
    with pytest.raises(MalformedSession):
        decode_session(bytes(damaged))


@given(st.data())
@examples(300)
def test_bytes_that_somebody_made_are_refused_or_imported_whole(data: st.DataObject) -> None:
    """Whatever the checksum is right for."""
    body = bytearray(SOUND[HEAD_BYTES:])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    made = SOUND[: HEAD_BYTES - 4] + zlib.crc32(bytes(body)).to_bytes(4) + bytes(body)
    bench = Bench(in_flight=3)
    try:
        exported = decode_session(made)
        bench.server.pubsub.import_session(exported, bench.now)
    except (MalformedSession, NotTransferable):
        assert bench.server.take_records() == []
        assert bench.server.pubsub.state.sessions == {}
        return
    bench.end_turn()
    again = bench.server.pubsub.export_session(exported.client_id, bench.now)
    assert decode_session(encode_session(again)) == again
    bench.crash()
    bench.client(exported.client_id, expiry=60)


def changed(**fields: object) -> bytes:
    return encode_session(msgspec.structs.replace(decode_session(SOUND), **fields))


def entry(**fields: object) -> ExportedEntry:
    return msgspec.structs.replace(decode_session(SOUND).sent[0], **fields)


SOUND = away(Bench(in_flight=3))


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (b"", "not an exported session"),
        (b"PK\3\4" + SOUND[4:], "not an exported session"),
        (MAGIC + b"\0\2" + SOUND[6:], "of version 2; this release reads version 1"),
        (SOUND + b"x", "checksum"),
        (changed(client_id=""), "length >= 1"),
        (changed(client_id="a\0b"), "null character"),
        (changed(expiry_s=0), ">= 1"),
        (changed(received=(0,)), ">= 1"),
        (changed(replays=(("u", ""),)), "a replay without its subscription"),
        (changed(subscriptions=decode_session(SOUND).subscriptions * 2), "a subscription twice"),
        (changed(next_sequence=2), "not given yet"),
        (changed(sent_up_to=1_000), "more sent than there was"),
        (changed(sent_up_to=1, headway=0), "more sent than the headway allows"),
        (changed(sent=(entry(), entry())), "a sequence number twice"),
        (changed(sent=(entry(stage=0),)), "in flight, but not sent"),
        (changed(sent=(entry(stage=2, qos=1),)), "QoS 1 that is released"),
        (changed(sent=(entry(stage=3),)), "Invalid enum value"),
        (changed(sent=(entry(sequence=1), entry(sequence=65_536)), next_sequence=70_000), "in flight twice"),
    ],
)
def test_what_is_no_exported_session_is_told(made: bytes, reason: str) -> None:
    with pytest.raises(MalformedSession, match=reason):
        decode_session(made)
