"""A consumer that is a list gets everything that an MQTT client would, through pubsub alone and without a packet."""

import subprocess
import sys

import pytest
from inmemory import Service, Taken

from overlane.core.events import PublishResult
from overlane.core.qos import QosClass
from overlane.core.units import SECOND, Nanos
from overlane.pubsub.access import Access, Rule
from overlane.pubsub.cluster.cluster import Cluster
from overlane.pubsub.cluster.uplink import Alone
from overlane.pubsub.contract.consumer import Ending
from overlane.pubsub.contract.refused import PublicationRefused, RequestFault, SubscriptionNotGranted
from overlane.pubsub.delivery.confirmations import UnexpectedConfirmation
from overlane.pubsub.limits import Limits
from overlane.pubsub.message import Message
from overlane.pubsub.properties import Properties
from overlane.pubsub.sessions.wills import Will
from overlane.pubsub.state import Settings
from overlane.pubsub.streams.log import Scope
from overlane.pubsub.subscriptions.subscribing import Unsubscribed


@pytest.fixture
def service() -> Service:
    return Service()


def test_pubsub_is_loaded_without_anything_of_mqtt() -> None:
    source = "import sys, overlane.pubsub.service; sys.exit(any('mqtt' in name for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", source], check=False).returncode == 0


def test_qos_0_goes_to_who_is_there(service: Service) -> None:
    reader, writer = service.connect("reader"), service.connect("writer")
    reader.subscribe("t/#")
    accepted = writer.publish("t/1", b"x")
    assert reader.take_all() == [Taken("t/1", b"x")]
    assert (accepted.has_receivers, accepted.is_stored) == (True, False)
    assert not writer.publish("u", b"x").has_receivers


def test_qos_1_is_owed_until_it_is_acknowledged(service: Service) -> None:
    reader, writer = service.connect("reader", receive_max=1), service.connect("writer")
    reader.subscribe("t", qos=1)
    writer.publish("t", b"1", qos=1, identifier=7)
    writer.publish("t", b"2", qos=1, identifier=8)
    assert reader.take_all() == [Taken("t", b"1", 1)]
    assert reader.acknowledge(reader.tags[0])
    assert reader.take_all() == [Taken("t", b"2", 1)]
    assert not reader.acknowledge(reader.tags[0])


def test_qos_2_is_received_released_and_forgotten(service: Service) -> None:
    reader, writer = service.connect("reader"), service.connect("writer")
    reader.subscribe("t", qos=2)
    writer.publish("t", b"x", qos=2, identifier=7)
    assert reader.take_all() == [Taken("t", b"x", 2)]
    tag = reader.tags[0]
    with pytest.raises(UnexpectedConfirmation):
        reader.acknowledge(tag)
    assert reader.receive(tag)
    assert reader.released == [tag]
    assert reader.forget(tag)
    assert len(reader.its.window) == 0


def test_a_publisher_that_repeats_a_qos_2_message_is_known_until_it_releases_it(service: Service) -> None:
    writer = service.connect("writer")
    publishing = service.pubsub.publishing
    writer.publish("t", b"x", qos=2, identifier=7)
    assert publishing.is_duplicate(writer.its, 2, 7, is_repeated=True)
    assert publishing.release(writer.its, 7)
    assert not publishing.is_duplicate(writer.its, 2, 7, is_repeated=True)
    assert not publishing.release(writer.its, 7)


def test_a_kept_session_gets_what_came_while_it_was_away_even_after_a_restart(service: Service) -> None:
    reader = service.connect("reader", expiry_s=60)
    reader.subscribe("t", qos=2)
    reader.leave()
    accepted = service.connect("writer").publish("t", b"x", qos=1, identifier=1)
    assert accepted.is_stored
    again = service.restarted()
    assert again.connect("reader", expiry_s=60).take_all() == [Taken("t", b"x", 1)]


def test_what_was_given_and_not_acknowledged_is_given_again_marked(service: Service) -> None:
    reader = service.connect("reader", expiry_s=60)
    reader.subscribe("t", qos=1)
    service.connect("writer").publish("t", b"x", qos=1, identifier=1)
    reader.leave()
    assert service.connect("reader", expiry_s=60).take_all() == [Taken("t", b"x", 1, again=True)]


def test_retained_messages_are_replayed_to_a_new_subscription(service: Service) -> None:
    writer = service.connect("writer")
    for number in range(3):
        writer.publish(f"t/{number}", b"x", qos=1, retain=True, identifier=1)
    reader = service.connect("reader")
    reader.subscribe("t/#", qos=1)
    assert reader.take_all() == [Taken(f"t/{number}", b"x", 1, retain=True) for number in range(3)]


def test_a_message_of_a_shared_subscription_goes_to_one_member(service: Service) -> None:
    members = [service.connect(name) for name in ("one", "other")]
    for member in members:
        member.subscribe("$share/workers/t", qos=1)
    writer = service.connect("writer")
    for number in range(4):
        writer.publish("t", b"%d" % number, qos=1, identifier=1)
    assert [len(member.taken) for member in members] == [2, 2]
    assert sorted(one.payload for member in members for one in member.taken) == [b"0", b"1", b"2", b"3"]


def test_a_will_is_published_when_its_client_is_lost_and_not_when_it_leaves(service: Service) -> None:
    reader = service.connect("reader")
    reader.subscribe("wills")
    will = Will(None, "wills", b"gone", 0, False, b"", [], None, delay_s=5)
    service.connect("a", expiry_s=60, will=will).leave()
    service.connect("b", expiry_s=60, will=will).leave(with_will=True)
    service.run(4 * SECOND)
    assert reader.take_all() == []
    service.run(2 * SECOND)
    assert reader.take_all() == [Taken("wills", b"gone")]


def test_properties_are_values(service: Service) -> None:
    sent = Properties("text/plain", "answers", b"\0id", is_text=True, user_properties=(("a", "b"), ("a", "c")))
    reader, writer = service.connect("reader"), service.connect("writer")
    reader.subscribe("t")
    writer.publish("t", b"x", properties=sent)
    writer.publish("t", b"y")
    assert reader.properties == [sent, Properties()]


def test_who_has_much_to_read_gets_no_more_of_qos_0_and_qos_1_waits() -> None:
    service = Service(limits=Limits(queue_bytes=2**20))
    reader, writer = service.connect("reader"), service.connect("writer")
    reader.subscribe("t", qos=1)
    reader.unread_bytes = 2 * 2**20
    writer.publish("t", b"0")
    writer.publish("t", b"1", qos=1, identifier=1)
    assert reader.take_all() == []
    reader.unread_bytes = 0
    service.pubsub.delivery.pump(reader.its, reader, service.now)
    assert reader.take_all() == [Taken("t", b"1", 1)]


def test_a_message_that_a_consumer_does_not_take_is_not_in_the_way_of_others(service: Service) -> None:
    reader, writer = service.connect("reader"), service.connect("writer")
    reader.subscribe("t", qos=1)
    reader.message_bytes_max = 1
    writer.publish("t", b"long", qos=1, identifier=1)
    writer.publish("t", b"x", qos=1, identifier=2)
    assert reader.take_all() == [Taken("t", b"x", 1)]


def test_what_finds_a_full_queue_becomes_a_dead_letter_with_client_and_reason() -> None:
    service = Service(limits=Limits(queue_messages=1))
    away = service.connect("away", expiry_s=60)
    away.subscribe("t", qos=1)
    away.leave()
    undertaker, writer = service.connect("undertaker"), service.connect("writer")
    undertaker.subscribe("$dead-letter/#")
    for number in range(2):
        writer.publish("t", b"%d" % number, qos=1, identifier=1)
    assert undertaker.take_all() == [Taken("$dead-letter/t", b"1")]
    told = (("overlane-client", "away"), ("overlane-reason", "queue full"))
    assert undertaker.properties[-1].user_properties == told


def test_another_connection_of_the_same_session_takes_it_over(service: Service) -> None:
    first = service.connect("reader")
    second = service.connect("reader")
    assert first.ended is Ending.TAKEN_OVER
    assert first.session is None
    assert second.its.consumer is second


def test_an_operator_and_the_end_of_the_broker_end_connections_with_a_reason(service: Service) -> None:
    one, other = service.connect("one"), service.connect("other")
    assert service.pubsub.disconnect("one", service.now)
    assert not service.pubsub.disconnect("one", service.now)
    service.pubsub.drain(service.now)
    assert (one.ended, other.ended) == (Ending.BY_OPERATOR, Ending.SHUTTING_DOWN)


def test_a_stream_logs_what_a_consumer_of_any_protocol_publishes(service: Service) -> None:
    log = service.pubsub.streams.create("log", "t/#", Scope.HERE, None, False, service.now)
    service.end_turn()
    service.connect("writer").publish("t/1", b"x", qos=1, identifier=1)
    found, _ = service.pubsub.streams.read(log, 0, 10, 10, 1_000, service.now)
    assert [(one.topic, one.payload, one.qos) for _, one in found] == [("t/1", b"x", 1)]


def test_refusals_are_faults_that_each_protocol_maps_to_its_own_codes(service: Service) -> None:
    rule = Rule(user="anonymous", publish=("open/#",), subscribe=("open/#",))
    service.pubsub.reconfigure(Settings(access=Access((rule,))))
    client = service.connect("client")
    with pytest.raises(PublicationRefused) as refused:
        client.publish("closed", b"x", qos=1, identifier=1)
    assert refused.value.fault is RequestFault.NOT_ALLOWED
    with pytest.raises(PublicationRefused) as refused:
        client.publish("open/1", b"x", properties=Properties(user_properties=(("overlane-deadline", "soon"),)))
    assert refused.value.fault is RequestFault.INVALID_OVERRIDE
    for name, fault in (("closed", RequestFault.NOT_ALLOWED), ("open/#/x", RequestFault.INVALID_TOPIC)):
        with pytest.raises(SubscriptionNotGranted) as not_granted:
            client.subscribe(name)
        assert not_granted.value.fault is fault
    service.pubsub.store_is_failing(True)
    kept = service.connect("kept")
    kept.its.expiry_s = 60
    with pytest.raises(SubscriptionNotGranted) as not_granted:
        kept.subscribe("open/1", qos=1)
    assert not_granted.value.fault is RequestFault.NO_ROOM


class Far(Alone):
    """Other brokers, which keep what is retained."""

    is_alone = False

    def __init__(self) -> None:
        self.retained: list[Message] = []

    def publish(
        self,
        topic: str,
        body: bytes,
        flags: int,
        qos: QosClass,  # noqa: ARG002
        now: Nanos,  # noqa: ARG002
        served: tuple[str, ...] = (),  # noqa: ARG002
    ) -> PublishResult:
        self.retained.append(Cluster.read_retained(topic, flags, body))
        return PublishResult.ACCEPTED


def test_a_retained_message_is_later_for_all_brokers_than_the_one_whose_place_it_takes() -> None:
    far = Far()
    service = Service(uplink=far)
    ahead = Message("t", b"of a broker whose clock is ahead", published_ns=1_000 * SECOND)
    service.pubsub.state.retained.keep_if_later(ahead)
    service.connect("writer").publish("t", b"new", qos=1, retain=True, identifier=1)
    assert [(one.payload, one.published_ns) for one in far.retained] == [(b"new", 1_000 * SECOND + 1)]
    kept = service.pubsub.state.retained.get("t")
    assert kept is not None
    assert kept.published_ns == far.retained[0].published_ns


def test_a_subscription_ends_once(service: Service) -> None:
    reader = service.connect("reader")
    reader.subscribe("t")
    assert [reader.unsubscribe("t") for _ in range(2)] == [Unsubscribed.ENDED, Unsubscribed.UNKNOWN]
    assert not service.connect("writer").publish("t", b"x").has_receivers
