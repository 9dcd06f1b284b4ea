"""What waits for the disk has not been said: the server knows how many acknowledgements that holds back."""

import asyncio

import mqtt5

from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.mqtt.server import MqttServer
from overlane.pubsub.cluster.uplink import Alone
from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.limits import Limits
from overlane.pubsub.state import Settings
from overlane.turn.backpressure import TURN_MAX, Backpressure
from overlane.turn.client_link import READ_AHEAD_BYTES, ClientLink

IN_FLIGHT = 3


class Paper:
    """A pipe that keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.is_closed = False
        self.is_paused = False

    def write(self, data: bytes) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def can_write_eof(self) -> bool:
        return False

    def write_eof(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True


def test_a_client_may_not_publish_more_while_its_acknowledgements_wait_for_the_disk() -> None:
    def now() -> Nanos:
        return 0

    async def story() -> None:
        server = MqttServer("here", Settings(Limits(in_flight=IN_FLIGHT)), Alone(), lambda: "fresh", (), 0)
        paper = Paper()
        link = ClientLink(asyncio.get_running_loop(), server, now, lambda: None, paper, Peer("127.0.0.1"), 0)

        def end_turn(waits: bool) -> None:
            server.take_records()
            for connection in server.take_touched():
                chunks, _ = connection.taken()
                link.send(chunks, waits)

        def publish(count: int) -> None:
            for number in range(1, count + 1):
                link.received(mqtt5.PublishPacket("t", b"", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=number).write())

        link.received(mqtt5.ConnectPacket("bob").write())
        end_turn(waits=False)
        for _ in range(5):
            publish(IN_FLIGHT)
            end_turn(waits=False)
        publish(1)
        end_turn(waits=True)
        publish(IN_FLIGHT - 1)
        end_turn(waits=False)  # it waits behind the others all the same
        assert link.connection.acks_held == IN_FLIGHT
        link.release()
        assert link.connection.acks_held == 0
        publish(IN_FLIGHT)
        end_turn(waits=True)
        assert link.connection.closing is None
        before = len(paper.written)
        publish(1)
        end_turn(waits=False)
        link.release()
        assert paper.written[before:].startswith(b"\x40")
        assert b"\xe0" in paper.written[before:]
        assert b"\x93" in paper.written[before:]

    asyncio.run(story())


def test_the_time_in_which_a_client_had_to_stop_does_not_count_against_its_keep_alive() -> None:
    clock: list[Nanos] = [0]

    async def story() -> None:
        server = MqttServer("here", Settings(Limits()), Alone(), lambda: "fresh", (), 0)
        link = ClientLink(
            asyncio.get_running_loop(), server, lambda: clock[0], lambda: None, Paper(), Peer("127.0.0.1"), 0
        )
        link.received(mqtt5.ConnectPacket("bob", keep_alive=1).write())
        link.connection.stops_for, link.connection.stops_until_ns = "a way", SECOND
        link.received(mqtt5.PingReqPacket().write())
        clock[0] = 2 * SECOND  # it was a while until somebody looked
        link.go()
        server.tick(clock[0])
        assert link.connection.closing is None
        clock[0] = 4 * SECOND
        server.tick(clock[0])
        assert link.connection.closing is not None

    asyncio.run(story())


def test_the_time_in_which_connack_waits_for_the_disk_does_not_count_against_a_clients_keep_alive() -> None:
    clock: list[Nanos] = [0]

    async def story() -> None:
        server = MqttServer("here", Settings(Limits()), Alone(), lambda: "fresh", (), 0)
        loop, paper = asyncio.get_running_loop(), Paper()
        link = ClientLink(loop, server, lambda: clock[0], lambda: None, paper, Peer("127.0.0.1"), 0)
        link.received(mqtt5.ConnectPacket("bob", keep_alive=1, session_expiry_interval=60).write())
        server.take_records()
        for connection in server.take_touched():
            link.send(*connection.taken())
        assert len(paper.written) == 0
        for seconds in (2, 4, 6):
            clock[0] = seconds * SECOND
            server.tick(clock[0])
            assert link.connection.closing is None
        link.release()
        assert len(paper.written) > 0
        for milliseconds, is_over in ((7_400, False), (7_600, True)):
            clock[0] = milliseconds * MS
            server.tick(clock[0])
            assert (link.connection.closing is not None) is is_over

    asyncio.run(story())


def test_clients_wait_for_the_next_turn_when_others_have_filled_this_one() -> None:
    clock: list[Nanos] = [0]

    async def story() -> None:
        loop = asyncio.get_running_loop()
        server = MqttServer("here", Settings(Limits()), Alone(), lambda: "fresh", (), 0)
        lines = Backpressure(server.state.uplink)
        link = ClientLink(loop, server, lambda: clock[0], lambda: None, Paper(), Peer("127.0.0.1"), 0, lines)
        link.received(mqtt5.ConnectPacket("bob").write())
        server.take_records()
        lines.turn_until_ns = clock[0] + TURN_MAX
        clock[0] += TURN_MAX + 1
        link.received(mqtt5.PublishPacket("t", b"").write())
        assert server.counters.messages_in == 0
        await asyncio.sleep(0)
        assert server.counters.messages_in == 0
        lines.turn_until_ns = NEVER
        await asyncio.sleep(0)
        assert server.counters.messages_in == 1

    asyncio.run(story())


def test_a_client_that_rests_is_read_from_until_much_of_it_waits() -> None:
    """Its acknowledgements come through; where they may be behind what is not read, nobody blames it for them."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        server = MqttServer("here", Settings(Limits(messages_per_second=1)), Alone(), lambda: "fresh", (), 0)
        paper = Paper()
        link = ClientLink(loop, server, lambda: 0, lambda: None, paper, Peer("127.0.0.1"), 0)
        connection = link.connection
        link.received(mqtt5.ConnectPacket("bob").write())
        link.received(2 * mqtt5.PublishPacket("t", b"").write())
        assert connection.rests_until_ns > 0
        link.received(mqtt5.PublishPacket("t", b"").write() + mqtt5.PubAckPacket(1).write())
        assert (server.counters.messages_in, connection.waiting_bytes) == (2, 6)
        assert (paper.is_paused, connection.unanswerable_until_ns) == (False, 0)
        link.received(mqtt5.PublishPacket("t", bytes(READ_AHEAD_BYTES)).write())
        assert (paper.is_paused, connection.unanswerable_until_ns) == (True, NEVER)
        connection.rests_until_ns = 0
        link._rested()
        assert (server.counters.messages_in, connection.unanswerable_until_ns) == (4, 0)

    asyncio.run(story())
