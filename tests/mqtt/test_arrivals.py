"""Messages from other brokers: who gets them, and that nothing a neighbour sends reaches a client but as MQTT."""

import mqtt5
import pytest
from any_packets import publishes
from clients import Bench, Client, Got
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from overlane.core.events import Deliver, PublishResult
from overlane.core.qos import Order, QosClass, QosTable
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.mqtt import runs
from overlane.mqtt.codec import writing
from overlane.pubsub.cluster import envelope
from overlane.pubsub.cluster.cluster import LOCAL_SUBSCRIBERS
from overlane.pubsub.cluster.uplink import Alone
from overlane.pubsub.counters import Drop, Refusal
from overlane.pubsub.message import Message


def brought(
    topic: str, flags: int, body: bytes, subscribers: tuple[str, ...] = (LOCAL_SUBSCRIBERS,), age_ns: int = 0
) -> Deliver:
    return Deliver([(topic, flags, body)], {topic: subscribers}, "denver", age_ns, NEVER)


def audience(bench: Bench) -> list[Client]:
    clients = [
        bench.client("old", 4),
        bench.client("new", 5),
        bench.client("small", 5, max_packet_size=60),
        bench.client("kept", 5, expiry=60),
    ]
    for number, client in enumerate(clients):
        client.subscribe("#", qos=number % 3, identifier=5 if number == 2 else None)
        client.subscribe("$share/g/#")
    return clients


@given(publishes(), st.integers(0, 100))
def test_a_message_is_the_same_after_its_way_over_the_overlay(packet: mqtt5.PublishPacket, left_s: int) -> None:
    message = Message(
        packet.topic or "t",
        packet.payload,
        int(packet.qos),
        packet.retain,
        writing.properties_of(packet),
        published_ns=5 * SECOND,
        expires_ns=NEVER if left_s == 0 else (5 + left_s) * SECOND,
    )
    arrived = envelope.unpack(message.topic, *envelope.pack(message, 5 * SECOND), 5 * SECOND)
    assert arrived.stored() == message.stored()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_from_elsewhere_reaches_every_subscriber_here(qos: int) -> None:
    bench = Bench()
    alice, old = bench.client("alice"), bench.client("old", 4)
    for client in (alice, old):
        client.subscribe("t/#", qos=2)
    message = Message("t/1", b"x", qos)
    bench.deliver(brought("t/1", *envelope.pack(message, bench.now)))
    assert alice.got() == old.got() == [Got("t/1", b"x", qos=qos)]


def test_the_age_of_a_message_counts_against_its_expiry() -> None:
    bench = Bench()
    alice = bench.client("alice")
    alice.subscribe("t")
    flags, body = envelope.pack(Message("t", b"x", expires_ns=bench.now + 10 * SECOND), bench.now)
    bench.deliver(brought("t", flags, body, age_ns=4 * SECOND))
    bench.deliver(brought("t", flags, body, age_ns=10 * SECOND))
    assert alice.got() == [Got("t", b"x", expiry=6)]


def test_what_is_for_some_clients_reaches_only_them() -> None:
    bench = Bench()
    alice, bob = bench.client("alice"), bench.client("bob")
    for client in (alice, bob):
        client.subscribe("t")
    bench.deliver(brought("t", 0, b"the past", ("alice",)))
    assert alice.got() == [Got("t", b"the past")]
    assert bob.got() == []


def test_a_client_that_does_not_want_its_own_messages_gets_those_from_elsewhere_whatever_a_broker_is_called() -> None:
    bench = Bench()
    alice = bench.client("denver")
    alice.subscribe("t", no_local=True)
    bench.deliver(brought("t", 0, b"x"))
    assert alice.got() == [Got("t", b"x")]


def test_a_run_that_says_another_number_than_it_has_is_refused() -> None:
    bench = Bench()
    alice = bench.client("alice")
    alice.subscribe("t")
    run = mqtt5.PublishPacket("t", b"x").write() * 7
    bench.deliver(brought("t", *runs.pack_run(run, 8, is_v5=True)))
    assert alice.got() == []
    bench.deliver(brought("t", *runs.pack_run(run, 7, is_v5=True)))
    assert len(alice.got()) == 7
    assert bench.server.counters.refused[Refusal.MALFORMED] == 1


class Far(Alone):
    """Other brokers need everything; remembers in which class it was to be carried."""

    is_alone = False

    def __init__(self) -> None:
        self.classes: list[QosClass] = []

    def carries(self, topic: str) -> bool:
        return not topic.startswith("$")

    def publish(
        self,
        topic: str,  # noqa: ARG002
        body: bytes,  # noqa: ARG002
        flags: int,  # noqa: ARG002
        qos: QosClass,
        now: Nanos,  # noqa: ARG002
        served: tuple[str, ...] = (),  # noqa: ARG002
    ) -> PublishResult:
        self.classes.append(qos)
        return PublishResult.ACCEPTED


@pytest.mark.parametrize(
    ("file", "asked", "carried"),
    [
        ((100, False), {}, (100, False)),
        ((100, False), {"overlane-deadline": "60ms"}, (60, False)),
        ((100, False), {"overlane-deadline": "400ms"}, (100, False)),
        ((100, False), {"overlane-reliability": "reliable"}, (100, True)),
        ((100, True), {"overlane-reliability": "best-effort"}, (100, True)),
        ((100, False), {"overlane-deadline": "1s", "overlane-reliability": "reliable"}, (100, True)),
    ],
)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_publisher_may_ask_for_more_than_the_file_gives_its_topic_and_never_for_less(
    file: tuple[int, bool], asked: dict[str, str], carried: tuple[int, bool], qos: int
) -> None:
    far = Far()
    bench = Bench(uplink=far, qos=QosTable({"t": QosClass(deadline_ns=file[0] * MS, reliable=file[1])}))
    bench.client("bob").publish("t", b"x", qos=qos, user_properties=list(asked.items()))
    # What is acknowledged to its publisher is reliable anyway.
    assert [(one.deadline_ns, one.reliable) for one in far.classes] == [(carried[0] * MS, carried[1] or qos > 0)]


@pytest.mark.parametrize("file", Order)
@pytest.mark.parametrize("asked", Order)
def test_a_publisher_may_ask_for_strict_order_where_the_topic_has_chosen_its_deadline(
    file: Order, asked: Order
) -> None:
    far = Far()
    bench = Bench(uplink=far, qos=QosTable({"t": QosClass(deadline_ns=100 * MS, order=file)}))
    bench.client("bob").publish("t", b"x", qos=1, user_properties=[("overlane-order", asked.value)])
    strict = Order.STRICT in (file, asked)
    assert [one.order for one in far.classes] == [Order.STRICT if strict else Order.DEADLINE]


@pytest.mark.parametrize("is_v5", [False, True])
def test_a_short_message_alone_is_carried_as_its_payload_and_reaches_clients_of_both_versions(is_v5: bool) -> None:
    bench = Bench()
    alice, bob = bench.client("alice"), bench.client("bob", version=4)
    for client in (alice, bob):
        client.subscribe("t")
    bench.deliver(brought("t", *runs.pack_lone(b"x" * 99, is_v5)))
    assert alice.got() == bob.got() == [Got("t", b"x" * 99)]
    bench.deliver(brought("t", *runs.pack_lone(b"", is_v5)))
    assert alice.got()[-1:] == bob.got()[-1:] == [Got("t", b"")]


def test_a_message_that_is_too_long_to_be_one_alone_is_refused() -> None:
    bench = Bench()
    alice = bench.client("alice")
    alice.subscribe("t")
    bench.deliver(brought("t", *runs.pack_lone(bytes(126), is_v5=False)))
    assert alice.got() == []
    assert bench.server.counters.refused[Refusal.MALFORMED] == 1


NAMES = st.sampled_from(
    ["t", "t/1", "a/#", "+", "", "x\0y", "$retained/t", "$retained/", "$share/g/seattle/00/t", "$share/g"]
)
RUNS = st.sampled_from(
    [
        mqtt5.PublishPacket("t", b"x").write(),
        b"\x30\x04\x00\x01tx",
        b"\x30\x84\x80\x00\x00\x01tx",
        b"\x30\x84\x00\x00\x01tx",
        b"\x31\x04\x00\x01tx",
        b"\xe0\x00",
        mqtt5.PublishPacket("t/u", b"x", content_type="y", correlation_data=b"\0").write(),
        mqtt5.PublishPacket("t", b"x", message_expiry_interval=3).write(),
        b"\x30\x07\x00\x01t\x02\x0b\x01x",
        b"\x30\x09\x00\x01t\x04\x03\x00\x01\xffx",
        b"\x30\x07\x00\x01#\x00xyz",
        b"\x30\x06\x00\x02$Sxy",
        b"\x30\x03\x00\x09t",
    ]
)
BODIES = (
    st.binary(max_size=30)
    | st.lists(RUNS, max_size=4).map(lambda runs: len(runs).to_bytes(4) + b"".join(runs))
    | publishes().map(lambda packet: envelope.pack(Message("t", b"x", encoded=writing.properties_of(packet)), 0)[1])
)


@examples(300)
@given(
    st.lists(
        st.tuples(NAMES | st.just(""), st.integers(0, 255) | st.sampled_from([0x10, 0x30]), BODIES),
        min_size=1,
        max_size=6,
    )
)
def test_whatever_a_neighbour_sends_clients_get_only_mqtt(sent: list[tuple[str, int, bytes]]) -> None:
    bench = Bench()
    clients = audience(bench)
    for topic, flags, body in sent:
        bench.deliver(brought(topic, flags, body))  # a client of the bench fails on what is not MQTT
    for client in clients:
        assert client.is_open
        assert all("#" not in got.topic and "+" not in got.topic for got in client.got())
    bench.crash()
    late = bench.client("late")
    late.subscribe("#", qos=2)
    assert late.is_open


def test_a_mixed_run_reaches_whoever_subscribes_to_its_topics_and_is_refused_whole_if_any_of_it_is_wrong() -> None:
    bench = Bench()
    old, new = bench.client("old", 4), bench.client("new")
    old.subscribe("a")
    new.subscribe("#", identifier=3)
    plain = [("a", b"1"), ("b", b"2"), ("b", b"3"), ("a", b"")]
    described = mqtt5.PublishPacket("a", b"5", content_type="x")
    run = b"".join(mqtt5.PublishPacket(*one).write() for one in plain) + described.write()
    bench.deliver(brought("", *runs.pack_run(run, 5, is_v5=True)))
    assert old.got() == [Got("a", b"1"), Got("a", b""), Got("a", b"5")]
    assert new.got() == [Got(topic, payload, ids=(3,)) for topic, payload in (*plain, ("a", b"5"))]
    wrong = [
        runs.pack_run(run, 4, is_v5=True),
        runs.pack_run(run[:-1], 5, is_v5=True),
    ]
    for flags, body in (*wrong, runs.pack_lone(b"x", is_v5=True), (0, b"x")):
        bench.deliver(brought("", flags, body))
        assert (old.got(), new.got()) == ([], [])
    assert bench.server.counters.refused[Refusal.MALFORMED] == 4


class Full(Alone):
    """Has no room for anything; other brokers need nothing but what is retained."""

    is_alone = False

    def __init__(self, answer: PublishResult) -> None:
        self.answer = answer

    def publish(
        self,
        topic: str,  # noqa: ARG002
        body: bytes,  # noqa: ARG002
        flags: int,  # noqa: ARG002
        qos: QosClass,  # noqa: ARG002
        now: Nanos,  # noqa: ARG002
        served: tuple[str, ...] = (),  # noqa: ARG002
    ) -> PublishResult:
        return self.answer


@pytest.mark.parametrize("answer", [PublishResult.BUSY, PublishResult.TOO_LARGE])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_retained_message_that_the_overlay_refuses_is_kept_nowhere_and_its_publisher_is_told(
    qos: int, answer: PublishResult
) -> None:
    uplink = Full(answer)
    bench = Bench(uplink=uplink)
    alice, bob, old = bench.client("alice"), bench.client("bob"), bench.client("old", 4)
    alice.subscribe("t", qos=2)
    assert bob.publish("t", b"x", qos=qos, retain=True) == 0x97
    assert alice.got() == []
    assert bench.client("late").subscribe("t") == [0]
    old.publish("t", b"x", qos=qos, retain=True)
    # 3.1.1 has no reason code: the client publishes it again over its next connection, where that may help.
    assert old.is_closed is (answer is PublishResult.BUSY)
    uplink.answer = PublishResult.ACCEPTED
    assert bob.publish("t", b"x", qos=qos, retain=True) == 0
    assert alice.got() == [Got("t", b"x", qos=qos)]


def test_what_nobody_waits_for_an_answer_to_is_kept_here_and_its_loss_elsewhere_is_counted() -> None:
    bench = Bench(uplink=Full(PublishResult.BUSY))
    bench.client("bob").publish("t", b"x", retain=True)
    late = bench.client("late")
    late.subscribe("t")
    assert late.got() == [Got("t", b"x", retain=True)]
    assert bench.server.counters.dropped[Drop.OVERLAY_FULL] == 1
