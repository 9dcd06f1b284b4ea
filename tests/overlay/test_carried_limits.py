"""What one client asks for at the limits of what brokers can carry costs neither its broker nor others anything."""

import asyncio
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from statistics import median

import mqtt5
import pytest
from fakeneighbour import answer_pings, greet

from overlane.client import connect
from overlane.core.limits import TOPIC_BYTES_MAX as CARRIED_BYTES_MAX
from overlane.core.wire import frame_codec
from overlane.core.wire.control_messages import InterestUpdate, encode
from overlane.pubsub.cluster.names import TOPIC_BYTES_MAX
from overlays import Member, RealOverlay
from unread import unread_bytes
from waiting import eventually
from watched import Caller

pytestmark = pytest.mark.slow

LINE = {"a-b": 'latency = "1ms"', "b-c": 'latency = "1ms"'}
WIDE = f"\n[limits]\ntopic_bytes = {TOPIC_BYTES_MAX}\n"


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealOverlay]:
    net = RealOverlay(tmp_path_factory.mktemp("line"), LINE, WIDE)
    try:
        net.start()
        yield net
    finally:
        net.end()


def caller(member: Member, name: str) -> Caller:
    client = Caller(int(member.mqtt.rpartition(":")[2]))
    client.connect(name)
    return client


def subscribe(client: Caller, *filters: str, **properties: str) -> list[int]:
    wishes = [(name.replace("_", "-"), value) for name, value in properties.items()]
    wanted = [mqtt5.TopicFilter(one, max_qos=mqtt5.QoS(0)) for one in filters]
    client.send(mqtt5.SubscribePacket(1, wanted, user_properties=wishes))
    return [int(code) for code in client.read(mqtt5.SubAckPacket).reason_codes]


def publish(client: Caller, topic: str, *, retain: bool = False, **properties: str) -> int:
    wishes = [(name.replace("_", "-"), value) for name, value in properties.items()]
    client.send(mqtt5.PublishPacket(topic, b"x", qos=mqtt5.QoS(1), packet_id=1, retain=retain, user_properties=wishes))
    return int(client.read(mqtt5.PubAckPacket).reason_code)


async def crosses(net: RealOverlay, topic: str) -> None:
    await crosses_from(net, "a", "c", topic)


async def crosses_from(net: RealOverlay, source: str, destination: str, topic: str) -> None:
    """A new subscriber at one broker gets what a new publisher at the other publishes."""
    async with connect(net[destination].mqtt) as there, connect(net[source].mqtt) as here:
        messages = there.subscribe(topic)
        got = asyncio.create_task(anext(aiter(messages)))
        while not got.done():
            await here.publish(topic, b"x", qos=1)
            await asyncio.wait([got], timeout=0.05)
        assert (await got).body == b"x"


def assert_nothing_broke(net: RealOverlay, topic: str) -> None:
    asyncio.run(crosses(net, topic))
    for member in net.members.values():
        assert member.is_running
        assert "Traceback" not in member.log.read_text()
        assert "is lost" not in member.log.read_text(), net.logs()


@pytest.mark.parametrize("bytes_more", range(65_530 - TOPIC_BYTES_MAX, 65_536 - TOPIC_BYTES_MAX))
def test_a_retained_message_on_a_topic_that_no_broker_could_pass_on_is_refused(
    line: RealOverlay, bytes_more: int
) -> None:
    with caller(line["a"], "writer") as writer:
        assert publish(writer, "x" * (TOPIC_BYTES_MAX + bytes_more), retain=True) == 0x90
        assert publish(writer, "short", retain=True) in (0, 0x10)
    assert_nothing_broke(line, f"retained/{bytes_more}")


def test_the_longest_topic_is_retained_and_shared_at_all_brokers(line: RealOverlay) -> None:
    topic = "t" * TOPIC_BYTES_MAX
    group = "g" * 200
    with caller(line["c"], "reader") as reader, caller(line["a"], "writer") as writer:
        assert subscribe(reader, f"$share/{group}/{topic}") == [0]
        line.wait_until(lambda: publish(writer, topic, retain=True) == 0, "needed at the other end")
        assert reader.read(mqtt5.PublishPacket).topic == topic
    with caller(line["c"], "late") as late:
        assert subscribe(late, topic) == [0]
        assert late.read(mqtt5.PublishPacket).topic == topic
    assert_nothing_broke(line, "longest")


def test_hundreds_of_deadlines_isolate_nobody(line: RealOverlay) -> None:
    with caller(line["c"], "reader") as reader, caller(line["a"], "writer") as writer:
        assert subscribe(reader, "deadlines/#", overlane_deadline="900ms") == [0]
        line.wait_until(lambda: publish(writer, "deadlines/0") == 0, "needed at the other end")
        for number in range(400):
            assert publish(writer, "deadlines/1", overlane_deadline=f"{20_000 + 97 * number}us") == 0
        answer = line["a"].ask("/routes")
        assert isinstance(answer, dict)
        assert len(answer["items"]) < 250
    with caller(line["c"], "wisher") as wisher:
        for number in range(300):
            assert subscribe(wisher, f"wishes/{number}", overlane_deadline=f"{30_000 + 89 * number}us") == [0]
    assert_nothing_broke(line, "deadlines/after")


def test_a_shared_filter_that_no_neighbour_could_read_is_refused_and_isolates_nobody(line: RealOverlay) -> None:
    with caller(line["a"], "reader") as reader:
        assert subscribe(reader, "$share/g/" + "x" * 65_526) == [0x8F]
        assert subscribe(reader, "$share/g/" + "x" * TOPIC_BYTES_MAX) == [0]
        assert subscribe(reader, "x" * (TOPIC_BYTES_MAX + 1), "x" * CARRIED_BYTES_MAX) == [0x8F, 0x8F]
        assert_nothing_broke(line, "shared")
        line["b"].kill()
        line["b"].start()
        line.wait_until(lambda: line["b"].log.read_text().count("linked") > 1, "linked again")
        asyncio.run(crosses(line, "shared/again"))


def long_filter(number: int) -> str:
    return f"{number}/".ljust(65_000, "x")


def test_hundreds_of_filters_as_long_as_can_be_reach_all_brokers_and_links_come_back(line: RealOverlay) -> None:
    with caller(line["a"], "hoarder") as hoarder, caller(line["c"], "writer") as writer:
        for number in range(0, 600, 10):
            assert subscribe(hoarder, *map(long_filter, range(number, number + 10))) == [0] * 10
        line.wait_until(lambda: publish(writer, long_filter(599)) == 0, "needed at the other end")
        assert publish(writer, long_filter(0)) == 0
        line["b"].kill()
        line["b"].start()
        line.wait_until(lambda: line["b"].log.read_text().count("link to a is up") > 1, "linked again")
        asyncio.run(crosses(line, "filters/again"))
        line["c"].kill()
        line["c"].start()
        line.wait_until(lambda: line["c"].log.read_text().count("linked") > 1, "linked again")
    with caller(line["c"], "writer") as writer:
        line.wait_until(lambda: publish(writer, long_filter(599)) == 0, "needed at the other end again")
    asyncio.run(crosses(line, "filters/after"))


POURED_FILTERS = 256
BATCH_BYTES_MAX = 3 * 2**18
"""One part, what may be told before it is on disk, one large read, and as much again for others."""
CPU_S_MAX = 0.010
"""Of the broker, between a message and its acknowledgement."""


@pytest.mark.parametrize(("parts", "filter_bytes"), [(160, 1_000), (160, 9)])
def test_filters_that_a_neighbour_pours_are_written_a_little_at_a_time_and_clients_between_them(
    tmp_path: Path, parts: int, filter_bytes: int
) -> None:
    net = RealOverlay(tmp_path, {"a-b": 'latency = "1ms"', "a-liar": 'latency = "1ms"'})
    del net.members["liar"]
    net.file.write_text(net.file.read_text() + '\n[[events]]\nat = "1h"\njoin = "liar"\n')
    note = tmp_path / "largest-batch"
    net["a"].program = (str(Path(__file__).with_name("batches.py")), str(note))
    try:
        net.start()
        with closing(greet(net["a"], "liar", "a")) as connection, caller(net["a"], "honest") as honest:
            connection.settimeout(60)
            connection.sendall(frame_codec.hello("liar", 1))
            answer_pings(connection)
            pouring = threading.Thread(target=pour, args=(connection, parts, filter_bytes))
            pouring.start()
            taken_s: list[float] = []
            while pouring.is_alive():
                before_s = cpu_s(net["a"])
                assert publish(honest, "honest", retain=True) in (0, 0x10)
                taken_s.append(cpu_s(net["a"]) - before_s)
            pouring.join()
        print(
            f"acknowledged {len(taken_s)}, each after {median(taken_s):.4f} s; largest batch {note.read_text()} bytes"
        )
        assert int(note.read_text()) < BATCH_BYTES_MAX
        assert len(taken_s) >= 20
        assert median(taken_s) < CPU_S_MAX
        assert "link to liar is failed" not in net["a"].log.read_text()
    finally:
        net.end()


def cpu_s(member: Member) -> float:
    """CPU time of a broker: unlike time, it does not depend on what else the machine does. clock_getcpuclockid(3)."""
    return time.clock_gettime(~member.process_id << 3 | 2)


def pour(connection: socket.socket, parts: int, filter_bytes: int) -> None:
    """A set of filters, all but its last part; until all of it has been read."""
    for part in range(parts):
        filters = [f"{part}/{number}/".ljust(filter_bytes, "x") for number in range(POURED_FILTERS)]
        connection.sendall(frame_codec.control(part, encode(InterestUpdate("liar", 1, 1, -1, filters, [], part, True))))
        # No more waits unread than of an honest neighbour, whose answers to pings are behind it.
        eventually(lambda: unread_bytes(connection) < 2**16, "read", 60.0)
    eventually(lambda: not unread_bytes(connection), "all is read", 60.0)


def test_a_neighbour_that_never_finishes_what_it_tells_costs_no_more_than_its_limit(tmp_path: Path) -> None:
    net = RealOverlay(tmp_path, {"a-b": 'latency = "1ms"', "a-liar": 'latency = "1ms"'})
    del net.members["liar"]
    net.file.write_text(net.file.read_text() + '\n[[events]]\nat = "1h"\njoin = "liar"\n')
    try:
        net.start()
        before = resident_bytes(net["a"])
        with closing(greet(net["a"], "liar", "a")) as connection:
            connection.settimeout(60)
            connection.sendall(frame_codec.hello("liar", 1))
            for part in range(400):
                filters = [f"{part}/{number}/".ljust(65_000, "x") for number in range(16)]
                message = InterestUpdate("liar", 1, 1, -1, filters, [], part, True)
                with suppress(ConnectionError):
                    connection.sendall(frame_codec.control(part, encode(message)))
            asyncio.run(crosses_from(net, "a", "b", "flood"))
            grown = resident_bytes(net["a"]) - before
        assert grown < 300 * 2**20
        asyncio.run(crosses_from(net, "b", "a", "flood/after"))
        assert "Traceback" not in net["a"].log.read_text()
    finally:
        net.end()


def resident_bytes(member: Member) -> int:
    pages = int(Path(f"/proc/{member.process_id}/statm").read_text().split()[1])
    return pages * resource.getpagesize()
