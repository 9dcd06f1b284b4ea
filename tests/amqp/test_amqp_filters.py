"""Filters of a source: selectors, and no-local."""

from typing import Any

import pytest
from peers import AmqpPeer, Bench
from test_amqp_links import error_of, ready, sender

from overlane.amqp.codec import composites
from overlane.amqp.codec.encoding import binary, described, encode
from overlane.amqp.codec.performatives import Detach, Source
from overlane.amqp.codec.types import Described, Int, Symbol, ULong
from overlane.amqp.messages.sections import MessageProperties

DURABLE: dict[str, Any] = {"durable": 2, "expiry_policy": Symbol("never"), "name": "news"}
RETAINED = described(0x72, encode({Symbol("x-opt-retain"): True}))


def selecting(selector: str) -> dict[object, object]:
    return {Symbol("jms-selector"): Described(Symbol("apache.org:selector-filter:string"), selector)}


def test_a_selector_chooses_by_properties_of_their_own_types() -> None:
    bench = Bench()
    reader = ready(bench, filter=selecting("floor > 2 AND hot AND site LIKE 'lab%' AND JMSPriority >= 4"))
    writer = sender(bench)
    for floor, hot, site in ((3, True, "lab1"), (2, True, "lab1"), (3, False, "lab1"), (3, True, "hall")):
        raw = described(0x74, encode({"floor": Int(floor), "hot": hot, "site": site}))
        writer.transfer(b"", raw=raw + described(0x75, binary(b"%d" % floor)))
    writer.transfer(b"none")
    assert reader.payloads() == [b"3"]


def test_a_granted_selector_is_told_and_a_wrong_one_refused() -> None:
    bench = Bench()
    peer = bench.open()
    peer.begin()
    source = peer.attach_receiver("t", 0, filter=selecting("a = 1")).source
    assert isinstance(source, Source)
    assert source.filter == selecting("a = 1")
    assert peer.attach_receiver("t", 1, filter=selecting("a = = 1")).source is None
    condition, told = error_of(peer.last(Detach))
    assert condition == "amqp:invalid-field"
    assert "at character 5" in (told or "")
    assert peer.attach_receiver("queue://t", 2, filter=selecting("a = 1")).source is None
    assert peer.attach_receiver("t", 3, filter=selecting("a = 1"), capabilities=["shared"]).source is None


def test_a_durable_subscription_keeps_its_selector_over_a_crash() -> None:
    bench = Bench()
    kept: dict[str, Any] = {
        "durable": 2,
        "expiry_policy": Symbol("never"),
        "name": "news",
        "filter": selecting("JMSType = 'x'"),
    }
    ready(bench, "jms", **kept).lose()
    bench.crash()
    writer = sender(bench)
    for subject in ("x", "y"):
        raw = composites.write(MessageProperties(subject=subject)) + described(0x75, binary(subject.encode()))
        writer.transfer(b"", raw=raw)
    assert ready(bench, "jms", **kept).payloads() == [b"x"]


# No-local


def no_local(descriptor: object = Symbol("apache.org:no-local-filter:list")) -> dict[object, object]:
    return {Symbol("no-local"): Described(descriptor, [])}


def both(bench: Bench, container: str = "jms", **source: Any) -> AmqpPeer:
    """A client that reads t/# and writes t/1 over one connection."""
    peer = ready(bench, container, **source)
    peer.attach_sender("t/1", 1)
    return peer


@pytest.mark.parametrize("descriptor", [Symbol("apache.org:no-local-filter:list"), ULong(0x0000_468C_0000_0003)])
def test_no_local_leaves_out_what_its_own_connection_publishes(descriptor: object) -> None:
    bench = Bench()
    reader, writer = both(bench, filter=no_local(descriptor)), sender(bench)
    reader.transfer(b"own", 1)
    writer.transfer(b"other")
    assert reader.payloads() == [b"other"]


def test_no_local_is_of_one_link_and_not_of_its_connection() -> None:
    bench = Bench()
    reader = both(bench, filter=no_local())
    reader.attach_receiver("t/#", 2)
    reader.credit(10, 2)
    reader.transfer(b"own", 1)
    assert [(one.handle, one.message.payload) for one in reader.got()] == [(2, b"own")]


def test_no_local_and_a_selector_hold_together() -> None:
    bench = Bench()
    reader = both(bench, filter=no_local() | selecting("floor > 2"))
    writer = sender(bench)
    for peer, handle in ((reader, 1), (writer, 0)):
        for floor in (2, 3):
            raw = described(0x74, encode({"floor": Int(floor)})) + described(0x75, binary(b"%d" % floor))
            peer.transfer(b"", handle, raw=raw)
    assert reader.payloads() == [b"3"]


def test_a_granted_no_local_is_told_and_one_that_cannot_be_had_refused() -> None:
    bench = Bench()
    peer = bench.open()
    peer.begin()
    source = peer.attach_receiver("t", 0, filter=no_local()).source
    assert isinstance(source, Source)
    assert source.filter == no_local()
    refused: list[dict[str, Any]] = [
        {"address": "queue://t"},
        {"address": "t", "capabilities": ["queue"]},
        {"address": "t", "capabilities": ["shared"]},
    ]
    for handle, asked in enumerate(refused, 1):
        assert peer.attach_receiver(handle=handle, filter=no_local(), **asked).source is None
        assert error_of(peer.last(Detach))[0] == "amqp:not-implemented"


def test_retained_messages_of_the_connection_are_left_out_as_well() -> None:
    bench = Bench()
    peer = bench.open("jms")
    peer.begin()
    peer.attach_sender("t/own", 1)
    writer = sender(bench, "t/other")
    for one, handle, payload in ((peer, 1, b"own"), (writer, 0, b"other")):
        raw = RETAINED + described(0x75, binary(payload))
        one.transfer(b"", handle, raw=raw)
    peer.attach_receiver("t/#", 2, filter=no_local())
    peer.credit(10, 2)
    assert peer.payloads() == [b"other"]
    peer.attach_receiver("t/#", 3)
    peer.credit(10, 3)
    assert sorted(peer.payloads()) == [b"other", b"own"]


def test_a_durable_subscription_without_its_link_leaves_out_what_its_container_publishes() -> None:
    bench = Bench()
    reader = both(bench, filter=no_local(), **DURABLE)
    reader.detach(closed=False)
    reader.transfer(b"own", 1)
    sender(bench).transfer(b"other")
    assert ready(bench, "jms", filter=no_local(), **DURABLE).payloads() == [b"other"]


def test_a_durable_subscription_keeps_no_local_over_a_crash() -> None:
    bench = Bench()
    ready(bench, "jms", filter=no_local(), **DURABLE).lose()
    bench.crash()
    own = sender(bench, container="jms")
    own.transfer(b"own")
    sender(bench, container="other").transfer(b"other")
    own.lose()
    assert ready(bench, "jms", filter=no_local(), **DURABLE).payloads() == [b"other"]


@pytest.mark.parametrize("is_first_local", [False, True])
def test_a_durable_subscription_whose_no_local_has_changed_begins_anew(is_first_local: bool) -> None:
    bench = Bench()
    before, after = (None, no_local()) if is_first_local else (no_local(), None)
    ready(bench, "jms", filter=before, **DURABLE).lose()
    sender(bench).transfer(b"before")
    reader = ready(bench, "jms", filter=after, **DURABLE)
    reader.attach_sender("t/1", 1)
    reader.transfer(b"own", 1)
    assert reader.payloads() == ([] if is_first_local else [b"own"])
