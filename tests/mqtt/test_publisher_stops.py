"""What finds no room on its way to other brokers is not taken in: whoever publishes it stops, and others go on."""

from collections.abc import Hashable

import mqtt5
import pytest
from clients import Bench, Client, Got

from overlane.core.events import PublishResult
from overlane.core.qos import QosClass, QosTable
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.mqtt import runs
from overlane.pubsub.cluster.uplink import Alone
from overlane.pubsub.delivery.window import ANSWER_WITHIN

FAR, NEAR, ALARM = "far", "near", "alarm"
URGENT = QosClass(deadline_ns=80 * MS)


class Narrow(Alone):
    """An overlay that needs two topics, and has room for so many messages."""

    is_alone = False

    def __init__(self) -> None:
        self.room = 0
        self.taken: list[tuple[str, int]] = []
        """The topic, and how many messages, of everything that was sent up."""

    @property
    def count(self) -> int:
        return sum(count for _, count in self.taken)

    def carries(self, topic: str) -> bool:
        return topic in (FAR, ALARM)

    def way_share(self, topic: str, qos: QosClass) -> float:  # noqa: ARG002
        return 0.0 if self.room > 0 else 1.0

    def way_of(self, topic: str, qos: QosClass) -> Hashable:  # noqa: ARG002
        return "way"

    def publish(
        self,
        topic: str,
        body: bytes,
        flags: int,
        qos: QosClass,  # noqa: ARG002
        now: Nanos,  # noqa: ARG002
        served: tuple[str, ...] = (),  # noqa: ARG002
    ) -> PublishResult:
        messages = runs.count(flags, body)
        self.room -= messages
        self.taken.append((topic, messages))
        return PublishResult.ACCEPTED


@pytest.fixture
def uplink() -> Narrow:
    return Narrow()


@pytest.fixture
def bench(uplink: Narrow) -> Bench:
    return Bench(uplink=uplink, qos=QosTable({ALARM: URGENT}))


def packets(*topics: str, retain: bool = False) -> bytes:
    return b"".join(
        mqtt5.PublishPacket(topic, bytes([number]), retain=retain).write() for number, topic in enumerate(topics)
    )


def say(bench: Bench, client: Client, data: bytes) -> None:
    bench.server.receive(client.connection, data, bench.now)
    bench.settle()


def go_on(bench: Bench, client: Client, *, passes: bool = False) -> None:
    client.connection.stops_for, client.connection.passes = None, passes
    say(bench, client, b"")


def known(bench: Bench, uplink: Narrow, client: Client) -> None:
    """The topics are known: their messages take the fast path from now on."""
    uplink.room = 10
    say(bench, client, packets(FAR, NEAR, ALARM))
    uplink.room, uplink.taken = 0, []


@pytest.mark.parametrize("is_known", [True, False], ids=["on the fast path", "beside it"])
def test_nothing_is_taken_in_for_a_shut_way_and_nothing_is_lost_of_it(
    bench: Bench, uplink: Narrow, is_known: bool
) -> None:
    writer = bench.client("writer")
    if is_known:
        known(bench, uplink, writer)
    say(bench, writer, packets(FAR, FAR, FAR))
    assert (writer.connection.stops_for, uplink.taken) == ("way", [])
    say(bench, writer, packets(FAR) + mqtt5.PingReqPacket().write())
    assert uplink.taken == []
    uplink.room = 100
    go_on(bench, writer)
    assert (writer.connection.stops_for, writer.connection.is_behind) == (None, False)
    assert uplink.count == 4


def test_what_stays_here_passes_until_something_for_the_shut_way_comes(bench: Bench, uplink: Narrow) -> None:
    reader, writer, other = bench.client("reader"), bench.client("writer"), bench.client("other")
    reader.subscribe(NEAR)
    for one in (writer, other):
        known(bench, uplink, one)
    reader.got()
    say(bench, writer, packets(NEAR, FAR, NEAR))
    assert reader.got() == [Got(NEAR, b"\0")]
    say(bench, other, packets(NEAR, NEAR))
    assert reader.got() == [Got(NEAR, b"\0"), Got(NEAR, b"\1")]
    uplink.room = 1
    go_on(bench, writer)
    assert (reader.got(), uplink.taken) == ([Got(NEAR, b"\2")], [(FAR, 1)])


def test_only_as_much_of_a_read_is_taken_in_as_there_is_room_for(bench: Bench, uplink: Narrow) -> None:
    writer = bench.client("writer")
    known(bench, uplink, writer)
    uplink.room = 1
    say(bench, writer, packets(FAR, NEAR, FAR, NEAR, FAR))
    assert (uplink.taken, writer.connection.is_behind) == ([(FAR, 1)], True)


def test_what_has_a_deadline_is_taken_in_and_its_publisher_stops_for_a_part_of_it(bench: Bench, uplink: Narrow) -> None:
    writer = bench.client("writer")
    known(bench, uplink, writer)
    say(bench, writer, packets(ALARM))
    assert uplink.taken == [(ALARM, 1)]
    assert writer.connection.stops_until_ns == bench.now + URGENT.deadline_ns // 8
    assert not writer.connection.waits_on


def test_reliable_messages_do_not_wait_for_a_shut_way(bench: Bench, uplink: Narrow) -> None:
    writer = bench.client("writer")
    writer.publish(FAR, b"x", qos=1)
    assert (uplink.taken, writer.connection.stops_for) == ([(FAR, 1)], None)


def test_one_that_has_waited_for_long_enough_is_heard_once(bench: Bench, uplink: Narrow) -> None:
    writer = bench.client("writer")
    known(bench, uplink, writer)
    say(bench, writer, packets(FAR, FAR))
    go_on(bench, writer, passes=True)
    assert uplink.count == 2
    say(bench, writer, packets(FAR))
    assert (uplink.count, writer.connection.stops_for) == (2, "way")


def test_a_packet_that_came_in_two_reads_waits_as_one(bench: Bench, uplink: Narrow) -> None:
    writer = bench.client("writer")
    known(bench, uplink, writer)
    data = packets(FAR, NEAR, FAR)
    say(bench, writer, data[:4])
    say(bench, writer, data[4:])
    assert (uplink.taken, writer.connection.is_behind) == ([], True)
    uplink.room = 10
    go_on(bench, writer)
    assert [topic for topic, _ in uplink.taken] == [FAR, FAR]


def test_what_a_client_said_is_not_lost_with_its_connection(bench: Bench, uplink: Narrow) -> None:
    writer = bench.client("writer")
    known(bench, uplink, writer)
    say(bench, writer, packets(FAR, FAR))
    bench.server.lost(writer.connection, bench.now)
    bench.end_turn()
    assert uplink.count == 2


def test_a_reader_that_is_not_read_from_is_waited_for(bench: Bench) -> None:
    both, writer = bench.client("both", polite=False), bench.client("writer")
    both.send(mqtt5.SubscribePacket(1, [mqtt5.TopicFilter(NEAR, max_qos=mqtt5.QoS.AT_LEAST_ONCE)]))
    writer.publish(NEAR, b"x", qos=1)
    both.connection.unanswerable_until_ns = NEVER
    session = both.connection.session
    bench.wait(5)
    assert session is not None
    assert bench.server.state.awaits(session, bench.now)
    both.connection.unanswerable_until_ns = bench.now  # it has as long as ever to answer from here on
    assert bench.server.state.awaits(session, bench.now)
    bench.wait(ANSWER_WITHIN / SECOND)
    assert not bench.server.state.awaits(session, bench.now)
