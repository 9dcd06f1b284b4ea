"""Topics and filters are no longer than the overlay can carry under any name that a broker makes of them."""

import mqtt5
import pytest
from clients import Bench, Got

from overlane.core import limits
from overlane.core.events import PublishResult
from overlane.core.qos import QosClass
from overlane.core.units import NEVER, Nanos
from overlane.core.wire import frame_codec
from overlane.mqtt.handshake import TOPIC_BYTES_PROPERTY
from overlane.pubsub.cluster import names
from overlane.pubsub.cluster.names import GROUP_BYTES_MAX, TOPIC_BYTES_MAX
from overlane.pubsub.cluster.uplink import Alone
from overlane.pubsub.publishing.qos_override import QosOverride

VERSIONS = pytest.mark.parametrize("version", [4, 5])


class Recorded(Alone):
    """Other brokers; remembers every name that it is told."""

    is_alone = False

    def __init__(self) -> None:
        self.names: list[str] = []
        self.filters = 0, 0

    def needs_size(self) -> tuple[int, int]:
        return self.filters

    def carries(self, topic: str) -> bool:
        return not topic.startswith("$")

    def publish(
        self,
        topic: str,
        body: bytes,  # noqa: ARG002
        flags: int,  # noqa: ARG002
        qos: QosClass,  # noqa: ARG002
        now: Nanos,  # noqa: ARG002
        served: tuple[str, ...] = (),  # noqa: ARG002
    ) -> PublishResult:
        self.names.append(topic)
        return PublishResult.ACCEPTED

    def subscribe(self, subscriber: str, topic_filter: str, durable: bool, now: Nanos) -> None:  # noqa: ARG002
        self.names.append(topic_filter)


def test_every_name_made_of_the_longest_topic_fits_and_there_is_no_room_wasted() -> None:
    topic, group, broker = "t" * TOPIC_BYTES_MAX, "g" * GROUP_BYTES_MAX, "b" * frame_codec.NAME_BYTES_MAX
    made = [
        names.RETAINED + topic,
        names.DEAD_LETTERS + topic,
        names.share_name(group, broker, topic, topic),
        names.want_name(QosOverride(NEVER - 1, reliable=True), topic),
    ]
    assert max(map(len, made)) == limits.TOPIC_BYTES_MAX


@pytest.mark.parametrize("character", ["x", "ü", "水", "𝄞"])
@pytest.mark.parametrize("bytes_max", [100, 4_096, TOPIC_BYTES_MAX])
def test_lengths_are_counted_in_bytes(character: str, bytes_max: int) -> None:
    size = len(character.encode())
    longest = character * (bytes_max // size)
    assert [limits.fits(longest, bytes_max), limits.fits(longest + character, bytes_max)] == [True, False]


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("character", ["x", "水"])
def test_a_topic_that_is_too_long_is_refused_and_the_client_stays(qos: int, retain: bool, character: str) -> None:
    far = Recorded()
    bench = Bench(uplink=far, topic_bytes=300)
    alice, bob = bench.client("alice"), bench.client("bob")
    alice.subscribe("#")
    longest = character * (300 // len(character.encode()))
    assert bob.publish(longest + "y", b"1", qos=qos, retain=retain) == (0x90 if qos else None)
    assert bob.publish(longest, b"2", qos=qos, retain=retain) == (0 if qos else None)
    assert [got.payload for got in alice.got()] == [b"2"]
    assert all(len(name.encode()) <= 300 + len(names.RETAINED) for name in far.names)
    assert bob.is_open


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt_311_has_no_way_to_refuse_a_topic_but_to_close(qos: int) -> None:
    bench = Bench(topic_bytes=300)
    bob = bench.client("bob", 4, polite=False)
    bob.send(mqtt5.PublishPacket("x" * 301, b"", qos=mqtt5.QoS(qos), packet_id=1 if qos else None))
    assert not bob.is_open


def test_a_topic_behind_an_alias_is_refused_each_time() -> None:
    bob = Bench(topic_bytes=300).client("bob")
    for topic in ("x" * 301, ""):
        bob.send(mqtt5.PublishPacket(topic, b"", qos=mqtt5.QoS(1), packet_id=7, topic_alias=3))
        answer = bob.saw()[-1]
        assert isinstance(answer, mqtt5.PubAckPacket)
        assert answer.reason_code == 0x90


@VERSIONS
def test_filters_and_groups_that_are_too_long_are_refused_each_for_itself(version: int) -> None:
    far = Recorded()
    alice = Bench(uplink=far, topic_bytes=TOPIC_BYTES_MAX).client("alice", version)
    longest, group = "x" * TOPIC_BYTES_MAX, "g" * (limits.TOPIC_BYTES_MAX - TOPIC_BYTES_MAX - len("$share//"))
    group = group[:GROUP_BYTES_MAX]
    refused = 0x8F if version == 5 else 0x80
    for asked, answer in {
        longest: 0,
        longest + "x": refused,
        f"$share/g/{longest}": 0,
        f"$share/{group}/{longest}": 0,
        f"$share/g/{longest}x": refused,
        f"$share/{'g' * (GROUP_BYTES_MAX + 1)}/x": refused,
        f"$share/{'g' * GROUP_BYTES_MAX}/x": 0,
        f"$share/g/{'x' * (65_535 - len('$share/g/'))}": refused,
    }.items():
        assert alice.subscribe(asked) == [answer]
    assert max(len(name.encode()) for name in far.names) <= limits.TOPIC_BYTES_MAX


def test_a_wish_for_the_longest_filter_fits_too() -> None:
    far = Recorded()
    alice = Bench(uplink=far, topic_bytes=TOPIC_BYTES_MAX).client("alice")
    assert alice.subscribe("x" * TOPIC_BYTES_MAX, user_properties=[("overlane-deadline", "60ms")]) == [0]
    assert any(name.startswith(names.WANT) for name in far.names)
    assert max(map(len, far.names)) <= limits.TOPIC_BYTES_MAX


@VERSIONS
def test_a_will_on_a_topic_that_is_too_long_is_refused_at_connect(version: int) -> None:
    bench = Bench(topic_bytes=300)
    assert bench.client("bob", version, will=mqtt5.Will("x" * 300)).is_open
    assert not bench.client("eve", version, will=mqtt5.Will("x" * 301)).is_open
    assert bench.client("eve", 5, will=mqtt5.Will("x" * 301)).refusal == 0x90


def test_the_limit_is_told_where_mqtt_has_a_place_for_it() -> None:
    alice = Bench(topic_bytes=300).client("alice")
    assert alice.connack is not None
    assert (TOPIC_BYTES_PROPERTY, "300") in alice.connack.user_properties


def test_the_limit_is_not_told_to_a_client_that_takes_only_small_packets() -> None:
    # MQTT-3.2.2-20
    alice = Bench().client("alice", max_packet_size=30)
    assert alice.connack is not None
    assert alice.connack.user_properties == []


def test_a_broker_has_no_more_filters_than_the_others_keep() -> None:
    far = Recorded()
    bench = Bench(uplink=far, filters=1_000, filter_bytes=2**20)
    alice = bench.client("alice")
    far.filters = 998, 0
    assert alice.subscribe("a") == [0]
    far.filters = 999, 0
    assert alice.subscribe("b", "a") == [0x97, 0]
    far.filters = 0, 2**20
    assert alice.subscribe("c") == [0x97]
    far.filters = 0, 0
    assert alice.subscribe("c") == [0]


def test_records_of_an_earlier_version_that_are_too_long_are_set_aside_and_told() -> None:
    far = Recorded()
    bench = Bench(uplink=far, topic_bytes=65_535)  # as if there were no limit
    alice = bench.client("alice", expiry=3_600)
    longest = "x" * 65_530
    assert alice.subscribe(longest, "kept") == [0, 0]
    assert bench.client("bob").publish(longest, b"x", qos=1, retain=True) == 0
    assert bench.client("bob").publish("kept", b"x", qos=1, retain=True) == 0
    stored = dict(bench.store)
    far.names.clear()
    bench.crash()
    assert max(map(len, far.names), default=0) < 100
    assert bench.server.state.retained.get(longest) is None
    assert bench.server.state.retained.get("kept") is not None
    assert list(bench.server.state.sessions["alice"].subscriptions) == ["kept"]
    assert stored.keys() <= bench.store.keys() | {key for key in stored if key[0] == "mqtt.message@2"}
    told = [notice for notice in bench.server.take_notices()[0] if "quarantined" in str(notice)]
    assert len(told) == 2


def test_a_message_of_the_greatest_length_crosses_the_fast_lane_no_more_than_its_limit() -> None:
    bench = Bench(topic_bytes=64)
    alice, bob = bench.client("alice"), bench.client("bob")
    alice.subscribe("#")
    for _ in range(3):
        bob.publish("x" * 64, b"1")
        bob.publish("x" * 65, b"2")
    assert alice.got() == [Got("x" * 64, b"1")] * 3
