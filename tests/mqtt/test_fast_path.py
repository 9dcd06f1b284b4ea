"""The fast path changes nothing: whatever clients send, cut into reads at any place, everybody gets what they would get
packet by packet without it."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import mqtt5
import pytest
from clients import Bench, Client, Got
from hypothesis import example, given
from hypothesis import strategies as st
from raw import packet, text

from examples import examples
from overlane.core.events import Deliver, PublishResult
from overlane.core.qos import QosClass
from overlane.core.units import NEVER, Nanos
from overlane.mqtt.codec import codec5, codec311
from overlane.mqtt.runs import end_of_alike
from overlane.pubsub.access import Rule
from overlane.pubsub.cluster.uplink import Alone

TOPICS = ["a", "a/b", "a/b/c", "b", "ü/☃", "long/" + "x" * 120, "longer/" + "y" * 260]
FILTERS = ["#", "a", "a/#", "a/+", "+", "b", "ü/#", "long/#", "longer/#", "$share/g/a/#", "$share/g/b"]
RULES = [
    [Rule(user="anonymous", publish=("#",), subscribe=("#",))],
    [Rule(user="anonymous", publish=("#",), subscribe=("a/#", "b"))],
    [Rule(user="anonymous", publish=("a/#", "ü/#"), subscribe=("#",))],
]
SENDERS = ["old sender", "new sender"]
RECEIVERS: dict[str, dict[str, Any]] = {
    "old": {"version": 4},
    "new": {"version": 5},
    "small": {"version": 5, "max_packet_size": 140},
    "aliases": {"version": 5, "topic_alias_max": 3},
    "kept": {"version": 5, "expiry": 60},
}
EVERYBODY = [*SENDERS, *RECEIVERS]
PROPERTIES: list[dict[str, Any]] = [
    {"content_type": "x"},
    {"topic_alias": 1},
    {"topic_alias": 2, "content_type": "x"},
    {"user_properties": [("a", "b")]},
    {"user_properties": [("a", "b")] * 3, "content_type": "y"},
    {"user_properties": [("overlane-reliability", "reliable")]},
    {"user_properties": [("overlane-deadline", "soon")]},
    {"correlation_data": b"\x00\xff" * 4, "response_topic": "a/b"},
    {"correlation_data": bytes(140)},
    {"payload_format_indicator": 1},
    {"message_expiry_interval": 9},
]
"""More or less plain."""
WRONG_PROPERTIES = [
    b"\x03\x00\x01x\x03\x00\x01x",
    b"\x03\x00\x01\xff",
    b"\x03\x00\x01\x00",
    b"\x03\x00\x09x",
    b"\x08\x00\x01#",
    b"\x08\x00\x00",
    b"\x26\x00\x01a",
    b"\x26\x00\x01a\x00\x02\xc3(",
    b"\x0b\x01",
    b"\x23\x00\x00",
    b"\x23\xff\xff",
]


# What may happen


@dataclass(frozen=True)
class Send:
    client: str
    packets: tuple[bytes, ...]
    cuts: tuple[int, ...] = field(default=())
    """Where the bytes are cut into reads."""


@dataclass(frozen=True)
class Subscribe:
    client: str
    filter: str
    qos: int
    identifier: int | None = None
    no_local: bool = False
    as_published: bool = False


@dataclass(frozen=True)
class Unsubscribe:
    client: str
    filter: str


@dataclass(frozen=True)
class Reconnect:
    client: str


@dataclass(frozen=True)
class Reconfigure:
    rules: int


Step = Send | Subscribe | Unsubscribe | Reconnect | Reconfigure


PAYLOADS = st.sampled_from([b"", b"x", b"yz", b"\x30\x05\x00\x01a", bytes(110), bytes(125), bytes(300)]) | st.binary(
    max_size=5
)


@st.composite
def packets(draw: st.DrawFn, version: int) -> list[bytes]:
    """Plain messages, often many alike in a row, and others among them."""
    kind = draw(st.integers(0, 9))
    topic, payload = draw(st.sampled_from(TOPICS)), draw(PAYLOADS)
    codec = codec5 if version == 5 else codec311
    if kind < 6:
        times = draw(st.sampled_from([1, 1, 2, 4, 5, 6, 7, 30]))
        return [codec.write(mqtt5.PublishPacket(topic, payload))] * times
    if kind == 6:
        return [codec.write(mqtt5.PublishPacket(topic, payload, retain=True))]
    if kind == 7:
        return [codec.write(mqtt5.PublishPacket(topic, payload, qos=mqtt5.QoS(1), packet_id=7))]
    if kind == 8 and version == 5:
        properties, times = draw(st.sampled_from(PROPERTIES)), draw(st.sampled_from([1, 1, 2, 7]))
        sent = [codec.write(mqtt5.PublishPacket(topic, payload, **properties))]
        if "topic_alias" in properties and draw(st.booleans()):
            sent.append(codec.write(mqtt5.PublishPacket("", payload, **properties)))
        return sent * times
    if kind == 9 and version == 5 and draw(st.booleans()):
        properties = draw(st.sampled_from(WRONG_PROPERTIES))
        return [packet(0x30, text(topic), bytes([len(properties)]), properties, payload)]
    wrong = [b"\xc0\x00", packet(0x30, text("a/#"), b"\0"), b"\x30\x03\x00\x05a", b"\x30\x81\x80\x80\x80\x01"]
    return [draw(st.sampled_from([b"\xc0\x00", b"\xc0\x00", *wrong]))]


@st.composite
def sends(draw: st.DrawFn) -> Send:
    client = draw(st.sampled_from(EVERYBODY))
    version = 4 if client.startswith("old") else 5
    sent = [one for some in draw(st.lists(packets(version), min_size=1, max_size=6)) for one in some]
    cuts = draw(st.lists(st.integers(0, sum(map(len, sent))), max_size=5).map(sorted))
    return Send(client, tuple(sent), tuple(cuts))


@st.composite
def subscribes(draw: st.DrawFn) -> Subscribe:
    client, name = draw(st.sampled_from(EVERYBODY)), draw(st.sampled_from(FILTERS))
    if client.startswith("old"):
        return Subscribe(client, name, draw(st.integers(0, 2)))
    return Subscribe(
        client,
        name,
        draw(st.integers(0, 2)),
        draw(st.sampled_from([None, None, 1, 200])),
        not name.startswith("$share") and draw(st.booleans()),
        draw(st.booleans()),
    )


STEPS: st.SearchStrategy[list[Step]] = st.lists(
    sends()
    | sends()
    | subscribes()
    | st.builds(Unsubscribe, st.sampled_from(EVERYBODY), st.sampled_from(FILTERS))
    | st.builds(Reconnect, st.sampled_from(EVERYBODY))
    | st.builds(Reconfigure, st.integers(0, len(RULES) - 1)),
    max_size=14,
)


# Two worlds


class World:
    """With the lane, bytes come cut at any place; without, packet by packet."""

    def __init__(self, has_lane: bool) -> None:
        self.has_lane = has_lane
        self.bench = Bench(has_lane=has_lane, rules=RULES[0])
        self.clients: dict[str, Client] = {
            "old sender": self.bench.client("old sender", 4),
            "new sender": self.bench.client("new sender", 5),
            **{name: self.bench.client(name, **wishes) for name, wishes in RECEIVERS.items()},
        }

    def take(self, step: Step) -> None:
        match step:
            case Send(name, sent, cuts):
                self._send(self._open(name), sent, cuts)
            case Subscribe(name, topic_filter, qos, identifier, no_local, as_published):
                self._open(name).subscribe(
                    topic_filter, qos=qos, identifier=identifier, no_local=no_local, as_published=as_published
                )
            case Unsubscribe(name, topic_filter):
                self._open(name).unsubscribe(topic_filter)
            case Reconnect(name):
                self.clients[name].reconnect()
            case Reconfigure(rules):
                self.bench.reconfigure(RULES[rules])

    def _open(self, name: str) -> Client:
        client = self.clients[name]
        return client if client.is_open else client.reconnect()

    def _send(self, client: Client, sent: tuple[bytes, ...], cuts: tuple[int, ...]) -> None:
        whole = b"".join(sent)
        edges = [0, *cuts, len(whole)]
        reads = [whole[start:end] for start, end in pairwise(edges)] if self.has_lane else sent
        for read in reads:
            self.bench.server.receive(client.connection, read, self.bench.now)
        self.bench.settle()

    def seen(self) -> dict[str, tuple[list[Got], bool]]:
        return {name: (client.got(), client.is_open) for name, client in self.clients.items()}

    def counted(self) -> tuple[Any, ...]:
        counters = self.bench.server.counters
        topics = {name: (stats.messages, stats.bytes) for name, stats in self.bench.server.state.topics.items()}
        return counters.messages_in, counters.messages_out, counters.dropped, counters.refused, topics


def plain(topic: str, payload: bytes, version: int = 5) -> bytes:
    message = mqtt5.PublishPacket(topic, payload)
    return codec5.write(message) if version == 5 else codec311.write(message)


@examples(400)
@given(STEPS)
@example(
    [
        Subscribe("small", "#", 0, 1),
        Send("new sender", (plain("long/" + "x" * 120, b"x"),) * 9),
        Send("old sender", (plain("a", b"x", 4),) * 9 + (plain("a", bytes(125), 4),) * 9, (1, 2, 50)),
    ]
)
@example([Subscribe("new", "#", 0), Send("new", (plain("a", b"x"),) * 20), Subscribe("new", "#", 0, None, True)])
def test_everybody_gets_the_same_with_and_without_the_lane_however_reads_are_cut(steps: list[Step]) -> None:
    lane, no_lane = World(has_lane=True), World(has_lane=False)
    for step in steps:
        lane.take(step)
        no_lane.take(step)
        assert lane.seen() == no_lane.seen()
    assert lane.counted() == no_lane.counted()


def test_a_length_of_more_bytes_than_it_needs_does_not_take_the_lane() -> None:
    # MQTT-1.5.5-1
    bench = Bench()
    alice, bob, old = bench.client("alice"), bench.client("bob"), bench.client("old", 4)
    alice.subscribe("t")
    bob.send(plain("t", b"x"))
    old.send(plain("t", b"x", 4))
    bob.send(b"\x30\x85\x00\x00\x01t\x00x")
    assert bob.ended == 0x81
    old.send(b"\x30\x84\x00\x00\x01tx" * 10)  # 3.1.1 has no rule against it
    assert old.is_open
    assert alice.got() == [Got("t", b"x")] * 12


def test_the_lane_is_used() -> None:
    bench = Bench()
    alice, bob = bench.client("alice"), bench.client("bob")
    alice.subscribe("t")
    run = mqtt5.PublishPacket("t", b"x").write()
    bob.send(run)
    alice.connection.taken()
    bob.send(run * 100, settle=False)
    assert alice.connection.out == [run * 100]


@examples(300)
@given(st.data())
def test_packets_are_alike_as_far_as_each_begins_like_the_first_and_is_whole(data: st.DataObject) -> None:
    # Few different bytes, so that a payload often looks like a head.
    head = data.draw(st.text("0a", min_size=2, max_size=6)).encode()
    payload_bytes = data.draw(st.integers(0, 4))
    payloads = st.text("0a", min_size=payload_bytes, max_size=payload_bytes).map(str.encode)
    size = len(head) + payload_bytes
    alike = b"".join(head + data.draw(payloads) for _ in range(data.draw(st.sampled_from([1, 2, 5, 20, 40, 100]))))
    more = data.draw(st.text("0a", max_size=40)).encode() * data.draw(st.sampled_from([1, 1, 20]))
    before = data.draw(st.binary(max_size=3))
    sent = before + alike + more
    far = len(before)
    while far + size <= len(sent) and sent.startswith(head, far):
        far += size
    assert end_of_alike(sent, len(before), len(before) + len(head), len(before) + size) == far


def test_what_the_lane_remembers_is_bounded_for_all_clients_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("overlane.mqtt.fast_path.ENTRIES_MAX", 500)
    bench = Bench()
    crowd = [bench.client(f"c{number}", 4 + number % 2) for number in range(12)]
    for client in crowd:
        for number in range(100):
            client.send(mqtt5.PublishPacket(f"t/{client.id}/{number}", b""))
    known = {id(client.connection.entries): len(client.connection.entries) for client in crowd}
    assert 0 < sum(known.values()) <= 500


def test_clients_with_the_same_rights_share_what_is_known_of_topics_and_others_do_not() -> None:
    bench = Bench(rules=[Rule(user="anonymous", publish=("all", "of/%c"), subscribe=("#",))])
    alice, bob, carol = bench.client("alice"), bench.client("bob"), bench.client("carol")
    carol.subscribe("#")
    alice.send(plain("of/alice", b"1"), plain("of/bob", b"2"))
    bob.send(plain("of/alice", b"3"), plain("of/bob", b"4"))
    assert carol.got() == [Got("of/alice", b"1"), Got("of/bob", b"4")]
    bench = Bench()
    alice, bob, carol = bench.client("alice"), bench.client("bob"), bench.client("carol")
    carol.subscribe("#")
    alice.send(plain("t", b"1"))
    assert alice.connection.entries
    bob.send(plain("t", b"2"))
    assert bob.connection.entries is alice.connection.entries
    assert carol.got() == [Got("t", b"1"), Got("t", b"2")]


# Two brokers


class Line(Alone):
    """An overlay of two brokers: what one carries, the other gets at once."""

    is_alone = False

    def __init__(self) -> None:
        self.far: Bench | None = None
        self.carried: list[tuple[str, int]] = []

    def carries(self, topic: str) -> bool:
        return not topic.startswith("$")

    def publish(
        self,
        topic: str,
        body: bytes,
        flags: int,
        qos: QosClass,  # noqa: ARG002
        now: Nanos,  # noqa: ARG002
        served: tuple[str, ...] = (),  # noqa: ARG002
    ) -> PublishResult:
        self.carried.append((topic, flags))
        if self.far is not None:
            self.far.deliver(Deliver([(topic, flags, body)], {topic: ("mqtt",)}, "near", 0, NEVER))
        return PublishResult.ACCEPTED


def far_subscribers(has_lane: bool, steps: list[Send]) -> tuple[list[list[Got]], int]:
    line = Line()
    line.far = far = Bench()
    near = Bench(uplink=line, has_lane=has_lane)
    old, new = far.client("old", 4), far.client("new", 5, max_packet_size=140)
    old.subscribe("#")
    new.subscribe("#", identifier=3)
    here = near.client("here")
    here.subscribe("#")
    senders = {"old": near.client("old sender", 4), "new": near.client("new sender", 5)}
    for step in steps:
        sender = senders["old" if step.client.startswith("old") else "new"]
        if sender.is_closed:
            sender.reconnect()
        if has_lane:
            sender.send(b"".join(step.packets))
        else:
            for one in step.packets:
                near.server.receive(sender.connection, one, near.now)
            near.settle()
        far.settle()
    return [client.got() for client in (old, new, here)], len(line.carried)


@examples(150)
@given(st.lists(sends(), max_size=6))
def test_other_brokers_get_the_same_with_and_without_the_lane(steps: list[Send]) -> None:
    with_lane, without = far_subscribers(True, steps), far_subscribers(False, steps)
    assert with_lane[0] == without[0]


def test_messages_with_plain_properties_and_with_aliases_take_the_lane() -> None:
    bench = Bench()
    alice, old, bob = bench.client("alice"), bench.client("old", 4), bench.client("bob")
    alice.subscribe("#", identifier=7)
    old.subscribe("#")
    described = mqtt5.PublishPacket("t", b"x", content_type="y", correlation_data=b"\0\1", user_properties=[("a", "b")])
    known, aliased = (mqtt5.PublishPacket(topic, b"z", topic_alias=1) for topic in ("u", ""))
    bob.send(plain("u", b"1"), plain("t", b"2"), known.write())
    alice.got(), old.got()
    packets = b"".join(one.write() for one in (described, aliased, described, aliased, aliased))
    bob.send(packets, settle=False)
    assert len(old.connection.out) == 2  # what has no alias, and what follows the first that has one
    bench.settle()
    assert old.got() == [Got("t", b"x"), Got("u", b"z"), Got("t", b"x"), Got("u", b"z"), Got("u", b"z")]
    assert [one.payload for one in alice.got()] == [b"x", b"z", b"x", b"z", b"z"]


def test_a_run_is_carried_as_one() -> None:
    steps = [Send("new", (plain("a", b"x"),) * 100)]
    assert far_subscribers(True, steps)[1] < 5
