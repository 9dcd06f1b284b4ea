"""Whatever a broker sends, its neighbours can read: at every limit, and one beyond."""

import random
from collections.abc import Callable

import pytest
from handwired import Frame, Overlay
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from overlane.core.broker import OverlayBroker
from overlane.core.config import BrokerConfig
from overlane.core.events import (
    Close,
    CloseLink,
    Lane,
    Leave,
    LinkUp,
    PublishResult,
    SetFailureRisk,
    Subscribe,
    Unsubscribe,
)
from overlane.core.limits import LABELS_MAX, TOPIC_BYTES_MAX
from overlane.core.qos import QosClass, QosTable
from overlane.core.units import MS, NEVER, SECOND, US, Nanos
from overlane.core.wire import control_messages as messages_module
from overlane.core.wire import frame_codec, route_answers
from overlane.core.wire.control_messages import (
    Advert,
    ControlMessage,
    InterestUpdate,
    LinkClaim,
    NumberedEstablish,
    decode,
    encode,
)
from overlane.core.wire.frame_codec import NO_ROUTE, FrameType
from overlane.core.wire.parcel import MESSAGE_BYTES_MAX, MESSAGES_MAX, unpack

LONGEST = "n" * frame_codec.NAME_BYTES_MAX
LINE = {f"a-{LONGEST}": 5, f"{LONGEST}-c": 5}


def read(data: bytes) -> list[object]:
    """All frames, as another broker reads them; ProtocolViolation or BadContent if it would refuse one."""
    frames, used = frame_codec.split(data)
    assert used == len(data)
    found: list[object] = []
    for kind, body in frames:
        match kind:
            case FrameType.HELLO:
                found.append(frame_codec.read_hello(body))
            case FrameType.PING | FrameType.PONG:
                found.append(frame_codec.read_token(body))
            case FrameType.HOP_ACK:
                found.append(frame_codec.read_hop_ack(body))
            case FrameType.CONTROL:
                found.append(decode(frame_codec.read_control(body)[1]))
            case FrameType.ESTABLISHED:
                found.append(route_answers.read_established(body))
            case FrameType.CONFIRMATION | FrameType.RECEIPT:
                found.append(route_answers.read_answer(kind, body))
            case FrameType.ROUTE:
                found.append(decode(body))
            case FrameType.PARCEL:
                header, rest = frame_codec.read_parcel(body, NO_ROUTE)
                found.append(unpack(bytes(rest), 0, header.messages))
            case FrameType.DETOUR:
                header, rest = frame_codec.read_long(frame_codec.read_detour(body).parcel)
                found.append(unpack(bytes(rest), 0, header.messages))
            case _:
                raise AssertionError(kind)
    return found


class Checked(Overlay):
    """Every frame is read when it is sent."""

    def _send(self, frame: Frame) -> None:
        read(frame[3])
        super()._send(frame)

    def assert_sound(self) -> None:
        assert not any(self.of(name, Close) for name in self.brokers)
        for broker in self.brokers.values():
            assert broker.counters["violations"] == 0
            assert broker.counters["unsendable_dropped"] == 0


CHARACTERS = st.sampled_from("xü水𝄞")
TEXTS = st.builds(
    lambda character, size, number: f"{number}/".ljust(max(3, size // len(character.encode())), character),
    CHARACTERS,
    st.sampled_from([1, 100, TOPIC_BYTES_MAX - 1, TOPIC_BYTES_MAX, TOPIC_BYTES_MAX + 1, 4 * TOPIC_BYTES_MAX]),
    st.integers(0, 5),
)
DEADLINES = st.sampled_from([1, US, 60 * MS, 3_600 * SECOND, (1 << 32) * US, (1 << 32) * US + 1, NEVER - 1, NEVER])
CLASSES = st.builds(QosClass, DEADLINES, st.booleans(), history=st.sampled_from([0, 1]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("subscribe"), TEXTS),
        st.tuples(st.just("unsubscribe"), TEXTS),
        st.tuples(st.just("send"), TEXTS, CLASSES, st.sampled_from([0, 1, 70_000, MESSAGE_BYTES_MAX])),
        st.tuples(st.just("many"), st.sampled_from([MESSAGES_MAX, MESSAGES_MAX + 1]), CLASSES),
        st.tuples(st.just("deadlines"), st.integers(1, 40)),
        st.tuples(st.just("foresee"), st.sampled_from([0.0, 1.0, 1.5, -0.5])),
        st.tuples(st.just("part"), TEXTS),
        st.tuples(st.just("restart")),
    ),
    max_size=8,
)


def act(net: Checked, step: tuple[object, ...]) -> None:
    a = net.brokers["a"]
    match step:
        case ("subscribe", str(topic_filter)):
            net.handle("c", Subscribe("s", topic_filter))
        case ("unsubscribe", str(topic_filter)):
            net.handle("c", Unsubscribe("s", topic_filter))
        case ("send", str(topic), QosClass() as qos, int(size)):
            carried = [a.send(topic, bytes(at), net.now, 0, qos) for at in (size, max(0, size - 4 * len(topic)))]
            if len(topic.encode()) > TOPIC_BYTES_MAX:
                assert carried == [PublishResult.TOO_LARGE] * 2
        case ("many", int(count), QosClass() as qos):
            for number in range(count):
                a.send(f"many/{number}", b"", net.now, 255, qos)
        case ("deadlines", int(count)):
            for number in range(count):
                a.send("many/0", b"x", net.now, 0, QosClass((50_000 + 997 * number) * US))
        case ("foresee", float(failure)):
            net.handle("a", SetFailureRisk(failure, {LONGEST: failure}))
        case ("part", str(reason)):
            net.handle("a", CloseLink(LONGEST, reason))
            net.join("a", LONGEST)
        case ("restart",):
            net.crash("c")
            net.restart("c")
    net.turn("a", [])
    net.run(30)


@examples(25)
@given(STEPS)
def test_whatever_is_asked_of_brokers_they_say_only_what_others_can_read(steps: list[tuple[object, ...]]) -> None:
    net = Checked(LINE)
    net.subscribe("c", "many/#")
    net.run(300)
    for step in steps:
        act(net, step)
    net.run(2_000)
    for name, broker in net.brokers.items():
        assert broker.counters["violations"] == 0, name
        assert broker.counters["unsendable_dropped"] == 0, name
    net.subscribe("c", "after")
    net.run(1_000)
    net.publish("a", "after", b"all")
    net.run(1_000)
    assert net.bodies("c")[-1:] == [b"all"]


# What waits long, under ever new deadlines


def test_thousands_of_deadlines_that_all_wait_long_fit_one_advert() -> None:
    now: Nanos = 1_000 * SECOND
    a = OverlayBroker(BrokerConfig("a", QosTable({})), 1, now=now)
    a.handle(LinkUp("b"), now)
    a.flush(now)
    say(a, frame_codec.hello("b", 2), now)
    told: list[ControlMessage] = [
        Advert("b", 2, 1, [LinkClaim("a", 1_000, 0, 0, 0, 0)], {}, 0),
        InterestUpdate("b", 2, 1, 0, ["t"], []),
    ]
    for number, message in enumerate(told):
        say(a, frame_codec.control(number, encode(message)), now)
    a.flush(now)
    adverts: list[Advert] = []
    luck = random.Random(7)
    for number in range(3_000):
        deadline_us = luck.randrange(1, 1 << luck.randrange(1, 33))
        a.send("t", b"x", now, 0, QosClass(deadline_us * US))
        if number % 50 == 49:
            a.flush(now)
            now += 9 * MS
            for _, data in a.pull("b", 1 << 30, now):
                for one in read(data):
                    if isinstance(one, Advert):
                        adverts.append(one)
                    if isinstance(one, int):  # a ping: the link lives
                        say(a, frame_codec.pong(one), now)
            a.handle(SetFailureRisk(luck.random(), {}), now)
    assert a.counters["unsendable_dropped"] == 0
    assert any(one.processing_us for one in adverts)
    assert max(len(one.processing_us) for one in adverts) <= LABELS_MAX


def say(broker: OverlayBroker, frame: bytes, now: Nanos) -> None:
    assert not any(isinstance(effect, Close) for effect in broker.receive("b", frame, now, Lane.CONTROL))


def test_latencies_beyond_all_measure_that_others_claim_are_carried_as_what_fits() -> None:
    net = Checked({"a-b": 5, "b-liar": 5}, {"t": QosClass(10 * MS)})
    net.run(1_000)
    life = net.brokers["liar"].incarnation
    slow = [LinkClaim("b", (1 << 40) - 1, 0, 0, 0, 0)]
    for message in (
        Advert("liar", life, 1_000, [*slow, LinkClaim("far", (1 << 40) - 1, 0, 0, 0, 0)], {}, 0),
        Advert("far", 1, 1, [LinkClaim("liar", (1 << 40) - 1, 0, 0, 0, 0)], {"10000": (1 << 63) - 1}, 0),
        InterestUpdate("far", 1, 1, 0, ["t"], []),
    ):
        net.brokers["liar"]._neighbours["b"].send(message)
    net.turn("liar", [])
    net.run(50)
    net.publish("a", "t", b"x")
    net.run(500)
    net.assert_sound()


def test_a_route_to_hundreds_of_brokers_is_described_in_words_that_all_can_read() -> None:
    net = Checked({"a-b": 5, "b-hub": 5})
    net.run(1_000)
    life = net.brokers["hub"].incarnation
    names = [f"{number:03}".ljust(frame_codec.NAME_BYTES_MAX, "x") for number in range(60)]
    hub = net.brokers["hub"]._neighbours["b"]
    hub.send(Advert("hub", life, 900, [LinkClaim(name, 1_000, 0, 0, 0, 0) for name in ["b", *names]], {}, 0))
    for name in names:
        hub.send(Advert(name, 1, 1, [LinkClaim("hub", 1_000, 0, 0, 0, 0)], {}, 0))
        hub.send(InterestUpdate(name, 1, 1, 0, ["t"], []))
    net.turn("hub", [])
    net.run(50)
    net.publish("a", "t", b"x")
    net.run(300)
    net.assert_sound()
    described = [one for frame in net.frames for one in read(frame[3]) if isinstance(one, NumberedEstablish)]
    assert described


# What slips through all the same


def beyond(net: Overlay) -> dict[str, Callable[[], object]]:
    neighbour = net.brokers["a"]._neighbours["b"]
    return {
        "a message beyond its limits": lambda: neighbour.send(InterestUpdate("a" * 65, 1, 1, 0, [], [])),
        "a number beyond 64 bits": lambda: neighbour.send(InterestUpdate("a", 1 << 70, 1, 0, [], [])),
        "half a character": lambda: neighbour.send(InterestUpdate("\ud800", 1, 1, 0, [], [])),
        "a message larger than a frame": lambda: neighbour.send(InterestUpdate("a", 1, 1, 0, ["x" * 65_535] * 40, [])),
    }


@pytest.mark.parametrize("what", ["message beyond its", "number beyond", "half a", "larger than a frame"])
def test_a_message_that_no_neighbour_could_read_is_left_out_counted_and_told(what: str) -> None:
    net = Checked({"a-b": 5})
    net.run(500)
    [send] = [send for name, send in beyond(net).items() if what in name]
    send()
    net.turn("a", [])
    net.run(500)
    assert net.brokers["a"].counters["unsendable_dropped"] == 1
    [failure] = net.brokers["a"].take_failures()
    assert (failure.kind, failure.source) == ("message", "b")
    assert not any(net.of(name, Close) for name in "ab")
    net.subscribe("b", "t")
    net.run(500)
    net.publish("a", "t", b"x")
    net.run(500)
    assert net.bodies("b") == [b"x"]


def test_a_parcel_that_no_neighbour_could_read_is_left_out_and_those_behind_it_go() -> None:
    net = Checked({"a-b": 5})
    net.subscribe("b", "t")
    net.run(1_000)
    a = net.brokers["a"]
    a.publish("t", b"first", net.now)
    a.publish("t", b"second", net.now)
    a.flush(net.now)
    neighbour = a._neighbours["b"]
    transmit, calls = neighbour._transmit, 0

    def faulty(*args: object) -> bytes:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ValueError("does not fit")
        return transmit(*args)  # type: ignore[arg-type]

    neighbour._transmit = faulty  # type: ignore[method-assign, assignment]
    net.turn("a", [])
    net.publish("a", "t", b"third")
    net.run(500)
    assert a.counters["unsendable_dropped"] == 1
    assert net.bodies("b")[-1] == b"third"
    assert not any(net.of(name, Close) for name in "ab")


def test_a_broker_that_leaves_says_so_in_words_that_all_can_read() -> None:
    net = Checked(LINE)
    net.run(500)
    net.handle("a", Leave())
    net.run(500)
    net.assert_sound()


def test_the_check_is_the_receivers_own() -> None:
    assert messages_module.encode_checked(InterestUpdate("a", 1, 1, 0, ["x"], [])) == encode(
        InterestUpdate("a", 1, 1, 0, ["x"], [])
    )
