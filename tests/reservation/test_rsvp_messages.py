"""RSVP messages as bytes: those of the RFCs, back again, and nothing else."""

import struct
from contextlib import suppress

import pytest
from any_messages import flowspecs, messages, tspecs
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from overlane.planning.reserve import RSpec, TSpec
from overlane.reservation.rsvp.intserv import AdSpec, FlowSpec, float_down, float_up, write_adspec, write_flowspec
from overlane.reservation.rsvp.messages import (
    MESSAGE_BYTES_MAX,
    Flow,
    Message,
    Path,
    Resv,
    checksum,
    decode,
    encode,
)
from overlane.reservation.rsvp.objects import (
    BadMessage,
    Hop,
    Sender,
    Session,
    Style,
    Tree,
    TreeNode,
    broker_address,
    broker_of,
    framed,
    session_of,
)

TSPEC = TSpec(10_000.0, 3000.0, 20_000.0, 100, 1000)
SENDER = Sender(bytes([10, 0, 0, 1]), 5)
SESSION = Session(bytes([224, 1, 1, 1]), 77)
PATH = Path(SESSION, Hop(bytes([10, 0, 0, 1]), 7), 30_000, SENDER, TSPEC, AdSpec(2, 1e6, 1234, 1500, 3000, 4000))
RESV = Resv(
    SESSION,
    Hop(bytes([10, 0, 0, 2]), 7),
    30_000,
    Style.FF,
    (Flow(FlowSpec(TSPEC, RSpec(15_000.0, 0.001)), (SENDER,)),),
)


def resealed(data: bytes) -> bytes:
    """Whole words, with the length and the checksum that fit."""
    data = data[: len(data) // 4 * 4]
    head = data[:2] + b"\0\0" + data[4:6] + struct.pack("!H", len(data))
    found = checksum(head + data[8:]) or 0xFFFF
    return head[:2] + struct.pack("!H", found) + head[4:] + data[8:]


def test_a_path_message_has_the_bytes_of_the_rfc() -> None:
    wire = encode(PATH)
    assert (wire[:2], wire[4:8], checksum(wire)) == (b"\x10\x01", b"\x40\0\0\xac", 0)
    assert wire[8:].hex(" ", -4) == (
        "000c0101 e0010101 1100004d "  # SESSION
        + "000c0301 0a000001 00000007 "  # RSVP_HOP
        + "00080501 00007530 "  # TIME_VALUES
        + "000c0b01 0a000001 00000005 "  # SENDER_TEMPLATE
        + "00240c02 00000007 01000006 7f000005 461c4000 453b8000 469c4000 00000064 000003e8 "
        + "00540d02 00000013 "  # ADSPEC
        + "01000008 04000001 00000002 06000001 49742400 08000001 000004d2 0a000001 000005dc "
        + "02000008 85000001 00000bb8 86000001 00000fa0 87000001 00000000 88000001 00000000 "
        + "05000000"
    )


def test_a_guaranteed_flowspec_has_the_bytes_of_the_rfc() -> None:
    flowspec = FlowSpec(TSPEC, RSpec(15_000.0, 0.001))
    assert write_flowspec(flowspec).hex(" ", -4) == (
        "00300902 0000000a 02000009 7f000005 461c4000 453b8000 469c4000 00000064 000003e8 82000002 466a6000 000003e8"
    )


def test_a_break_bit_is_the_highest_of_its_byte() -> None:
    body = write_adspec(AdSpec(0, 0.0, 0, 0, has_break=True, controlled_load_break=True))
    assert (body[9], body[45], body[81]) == (0x80, 0, 0x80)


@examples(150)
@given(messages())
def test_every_message_comes_back_as_it_was(message: Message) -> None:
    assert decode(encode(message)) == message


@given(tspecs(), st.floats(1, 1e12))
def test_a_rate_is_never_rounded_to_less_than_was_asked_for(tspec: TSpec, rate: float) -> None:
    assert float_up(rate) >= rate >= float_down(rate)
    assert float_up(tspec.rate) == float_down(tspec.rate) == tspec.rate


@examples(200)
@given(messages(), st.data())
def test_bytes_that_were_changed_are_refused_or_mean_a_message(message: Message, data: st.DataObject) -> None:
    wire = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(wire) - 1))
        wire[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del wire[data.draw(st.integers(8, len(wire))) :]
    changed = resealed(bytes(wire))
    with suppress(BadMessage):
        understood = decode(changed)
        assert decode(encode(understood)) == understood


@examples(150)
@given(st.binary(max_size=MESSAGE_BYTES_MAX + 8))
def test_any_bytes_are_refused_or_mean_a_message(data: bytes) -> None:
    with suppress(BadMessage):
        decode(data)
    if len(data) >= 8:
        with suppress(BadMessage):
            decode(resealed(bytes([0x10, 1 + data[1] % 7]) + data[2:]))


def changed(message: Message, at: int, to: bytes) -> bytes:
    wire = encode(message)
    return resealed(wire[:at] + to + wire[at + len(to) :])


@pytest.mark.parametrize(
    ("wire", "reason"),
    [
        (b"", "an RSVP message of 0 bytes"),
        (encode(PATH)[:-4], "claims"),
        (encode(PATH)[:-1] + b"\1", "wrong checksum"),
        (resealed(b"\x20" + encode(PATH)[1:]), "RSVP version 2; expected 1"),
        (resealed(b"\x10\x09" + encode(PATH)[2:]), "unknown type 9"),
        (changed(PATH, 8, b"\0\3"), "an RSVP object of 3 bytes"),
        (changed(PATH, 8, b"\0\0"), "an RSVP object of 0 bytes"),
        (changed(PATH, 8, b"\xff\xfc"), "an RSVP object of 65532 bytes"),
        (changed(PATH, 10, b"\x1e"), "unknown class 30"),
        (changed(PATH, 11, b"\x07"), "SESSION: unknown C-type 7"),
        (resealed(encode(PATH) + encode(PATH)[8:20]), "two RSVP objects of class 1"),
        (resealed(encode(PATH)[:8] + encode(PATH)[20:]), "without SESSION"),
        (resealed(encode(PATH) + framed(8, 1, bytes([0, 0, 0, 10]))), "out of place: STYLE"),
        (resealed(encode(PATH)[:-84]) + b"", ""),
        (changed(PATH, 68, struct.pack("!f", float("nan"))), "a rate out of range"),
        (changed(PATH, 68, struct.pack("!f", -1.0)), "a rate out of range"),
        (changed(PATH, 68, struct.pack("!f", 30_000.0)), "a rate out of range"),
        (changed(PATH, 72, struct.pack("!f", 1.0)), "a size out of range"),
        (changed(PATH, 80, struct.pack("!I", 0)), "a size out of range"),
        (changed(RESV, 44, bytes([0, 0, 0, 9])), "unknown options 0x9"),
        (resealed(encode(RESV)[:-12]), "flows that do not fit the style FF"),
    ],
)
def test_a_malformed_message_is_refused_with_its_fault(wire: bytes, reason: str) -> None:
    if not reason:  # without ADSPEC, which may be left out
        assert decode(wire) == Path(SESSION, PATH.hop, 30_000, SENDER, TSPEC)
        return
    with pytest.raises(BadMessage, match=reason):
        decode(wire)


def test_objects_of_unknown_classes_are_ignored_or_passed_on_as_their_class_says() -> None:
    wire = resealed(encode(PATH) + framed(0b10_000001, 1, b"1234") + framed(0b11_000001, 1, b"5678"))
    found = decode(wire)
    assert isinstance(found, Path)
    assert [(one.class_num, one.body) for one in found.passed_on] == [(0b11_000001, b"5678")]
    assert encode(found).endswith(b"\0\x08\xc1\x015678")


@pytest.mark.parametrize(
    "nodes",
    [
        (TreeNode(1, None, True), TreeNode(1, 0, True)),
        (TreeNode(1, None, True), TreeNode(2, 1, True)),
        (TreeNode(1, None, True), TreeNode(2, None, True)),
        (TreeNode(1, 0, True),),
    ],
)
def test_a_tree_with_a_cycle_or_two_roots_is_refused(nodes: tuple[TreeNode, ...]) -> None:
    path = Path(SESSION, PATH.hop, 1, SENDER, TSPEC, None, Tree(nodes))
    with pytest.raises(BadMessage, match="every broker once"):
        decode(encode(path))


def test_a_message_that_is_too_large_is_not_sent() -> None:
    flow = Flow(FlowSpec(TSPEC), (SENDER,))
    with pytest.raises(ValueError, match="at most 2047"):
        encode(Resv(SESSION, RESV.hop, 1, Style.FF, (flow,) * 64))


def test_no_two_brokers_have_one_address() -> None:
    assert broker_of(broker_address(2**64 - 1)) == 2**64 - 1
    assert broker_of(bytes(16)) is None
    assert session_of("a/#") != session_of("a/+")


@given(flowspecs())
def test_what_a_link_sets_aside_is_the_rate_of_the_rspec_or_of_the_bucket(flowspec: FlowSpec) -> None:
    assert flowspec.rate >= flowspec.tspec.rate
