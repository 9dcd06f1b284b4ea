"""A turn returns what is to be done, and what waits for which batch of records."""

import mqtt5
import pytest

from overlane.core.config import BrokerConfig
from overlane.core.qos import QosTable
from overlane.core.units import MS, SECOND, Nanos
from overlane.mqtt.connection import Connection
from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.contract.questions import LoginVerdict
from overlane.pubsub.delivery.window import ANSWER_WITHIN
from overlane.pubsub.publishing.mirrored import MirroredTopics
from overlane.pubsub.state import Settings
from overlane.turn.assembly import assemble
from overlane.turn.turn import Outcome, Records

NOW: Nanos = 1_000 * SECOND
AT_LEAST_ONCE = mqtt5.QoS.AT_LEAST_ONCE


class Rig:
    """One broker without neighbours, whose disk is the test."""

    def __init__(self, records: Records | None = None, settings: Settings | None = None) -> None:
        stored = [(table, key, value) for (table, key), value in (records or {}).items() if value is not None]
        self.turn = assemble(
            BrokerConfig("here", QosTable({})), settings or Settings(), 1, stored, NOW, lambda: "fresh", is_alone=True
        )
        self.turn.start(NOW)
        self.now = NOW
        self.turn.end(self.now)

    def connect(self, name: str) -> Connection:
        """A client with a persistent session."""
        server = self.turn.server
        connection = server.connected(Peer("127.0.0.1:1"), self.now)
        connect = mqtt5.ConnectPacket(name, clean_start=False, session_expiry_interval=1_000)
        server.receive(connection, connect.write(), self.now)
        for _ in server.take_questions():
            server.authenticated(connection, LoginVerdict.IS_ANONYMOUS, self.now)
        return connection

    def send(self, connection: Connection, packet: mqtt5.Packet) -> None:
        self.turn.server.receive(connection, packet.write(), self.now)

    def end(self) -> Outcome:
        self.now += MS
        return self.turn.end(self.now)

    def commit(self, outcome: Outcome) -> Outcome:
        assert outcome.records is not None
        self.now += MS
        return self.turn.committed(outcome.batch, self.now)

    def subscriber_and_publisher(self) -> tuple[Connection, Connection]:
        """Everything about them is on disk; the subscriber is away, so that what comes has to be stored."""
        reader, writer = self.connect("reader"), self.connect("writer")
        self.send(reader, mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("t", max_qos=AT_LEAST_ONCE)]))
        outcome = self.commit(self.end())
        while outcome.needs_turn:
            outcome = self.end()
        self.turn.server.lost(reader, self.now)
        while (outcome := self.end()).records is not None:
            self.commit(outcome)
        return reader, writer


def publish(number: int) -> mqtt5.PublishPacket:
    return mqtt5.PublishPacket("t", b"x", qos=AT_LEAST_ONCE, packet_id=number)


def waiting(outcome: Outcome, connection: Connection) -> bool:
    return any(one is connection and waits for one, _, waits in outcome.packets)


def test_an_acknowledgement_waits_for_the_batch_of_its_turn_and_is_released_by_its_commit() -> None:
    rig = Rig()
    _, writer = rig.subscriber_and_publisher()
    rig.send(writer, publish(1))
    outcome = rig.end()
    assert outcome.records
    assert waiting(outcome, writer)
    assert list(rig.commit(outcome).released) == [writer]


def test_what_rests_on_records_under_way_waits_for_them_though_its_own_turn_has_none() -> None:
    rig = Rig()
    _, writer = rig.subscriber_and_publisher()
    rig.send(writer, publish(1))
    first = rig.end()
    writer.waits = True
    rig.send(writer, mqtt5.PingReqPacket())
    second = rig.end()
    assert second.records is None
    assert waiting(second, writer)
    assert list(rig.commit(first).released) == [writer, writer]


def test_a_turn_without_records_is_durable_at_once() -> None:
    rig = Rig()
    _, writer = rig.subscriber_and_publisher()
    rig.send(writer, mqtt5.PingReqPacket())
    outcome = rig.end()
    assert outcome.records is None
    assert [(one, waits) for one, _, waits in outcome.packets] == [(writer, False)]
    assert rig.turn.is_quiet


def test_batches_are_committed_in_order_or_not_at_all() -> None:
    rig = Rig()
    _, writer = rig.subscriber_and_publisher()
    rig.send(writer, publish(1))
    first = rig.end()
    rig.send(writer, publish(2))
    second = rig.end()
    assert second.batch == first.batch + 1
    with pytest.raises(RuntimeError, match="out of order"):
        rig.turn.committed(second.batch, rig.now)
    rig.commit(first)
    rig.commit(second)
    assert rig.turn.batches_pending == 0


def test_who_waits_for_the_disk_is_told_when_all_turns_so_far_are_on_it() -> None:
    rig = Rig()
    _, writer = rig.subscriber_and_publisher()
    rig.send(writer, publish(1))
    first = rig.end()
    rig.send(writer, publish(2))
    rig.turn.when_written("second")
    second = rig.end()
    assert not rig.commit(first).written
    assert list(rig.commit(second).written) == ["second"]


def test_an_acknowledged_message_is_in_the_records_that_its_acknowledgement_waited_for() -> None:
    rig = Rig()
    stored: Records = {}
    reader, writer = rig.connect("reader"), rig.connect("writer")
    rig.send(reader, mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("t", max_qos=AT_LEAST_ONCE)]))
    rig.turn.server.lost(reader, rig.now)
    rig.send(writer, publish(1))
    outcome = rig.end()
    stored |= outcome.records or {}
    rig.commit(outcome)
    again = Rig(stored)
    reader = again.connect("reader")
    sent = [chunk for one, chunks, _ in again.end().packets if one is reader for chunk in chunks]
    assert publish(1).payload in b"".join(sent)


def test_a_reader_whose_message_waits_for_a_slow_disk_is_waited_for_until_it_could_have_answered() -> None:
    rig = Rig()
    rig.subscriber_and_publisher()
    reader, writer = rig.connect("reader"), rig.connect("writer")
    rig.commit(rig.end())
    rig.send(writer, publish(1))
    outcome = rig.end()
    assert waiting(outcome, reader)
    state, session = rig.turn.server.state, reader.session
    assert session is not None
    rig.now += 5 * SECOND
    assert state.awaits(session, rig.now)
    rig.commit(outcome)
    assert state.awaits(session, rig.now)
    rig.now += ANSWER_WITHIN
    assert not state.awaits(session, rig.now)
    rig.send(writer, publish(2))  # what others make the disk do is no excuse, if it is quick
    outcome = rig.end()
    assert not state.awaits(session, rig.now)
    rig.commit(outcome)
    assert not state.awaits(session, rig.now)


def test_a_batch_with_a_message_of_a_mirrored_topic_needs_a_mirror_and_others_do_not() -> None:
    rig = Rig(settings=Settings(mirrored=MirroredTopics({"#": True, "t": False})))
    _, writer = rig.subscriber_and_publisher()
    rig.send(writer, publish(1))
    assert not rig.end().needs_mirror
    mirrored = Rig(settings=Settings(mirrored=MirroredTopics({"t": True})))
    _, writer = mirrored.subscriber_and_publisher()
    mirrored.send(writer, publish(1))
    assert mirrored.end().needs_mirror
    mirrored.send(writer, mqtt5.PublishPacket("t", b"x"))
    assert not mirrored.end().needs_mirror


def test_a_mirrored_topic_is_refused_while_there_is_no_mirror_and_others_are_not() -> None:
    rig = Rig(settings=Settings(mirrored=MirroredTopics({"u": True})))
    _, writer = rig.subscriber_and_publisher()
    rig.turn.server.state.lacks_mirror = True
    rig.send(writer, mqtt5.PublishPacket("u", b"x", qos=AT_LEAST_ONCE, packet_id=1))
    rig.send(writer, publish(2))
    sent = b"".join(chunk for _, chunks, _ in rig.end().packets for chunk in chunks)
    codes = []
    while sent:
        packet, length = mqtt5.read(memoryview(sent))
        assert isinstance(packet, mqtt5.PubAckPacket)
        codes.append((packet.packet_id, packet.reason_code))
        sent = sent[length:]
    assert codes == [
        (1, mqtt5.PubAckReasonCode.QUOTA_EXCEEDED),
        (2, mqtt5.PubAckReasonCode.SUCCESS),
    ]
