"""Links: credit and drain, settlement, outcomes, windows, durable and shared subscriptions, queues, refusals."""

from typing import Any

import pytest
from peers import AmqpPeer, Bench

from overlane.amqp.codec import composites
from overlane.amqp.codec.encoding import binary, described, encode
from overlane.amqp.codec.framing import PROTOCOL, frame_of
from overlane.amqp.codec.performatives import (
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
)
from overlane.amqp.codec.types import Described, Symbol, UInt
from overlane.amqp.messages.sections import MessageProperties
from overlane.core.units import SECOND
from overlane.pubsub.access import Rule
from overlane.pubsub.counters import Drop

ACCEPTED = Accepted()


def error_of(frame: Detach | End | Close | Rejected) -> tuple[str, str | None]:
    assert isinstance(frame.error, Error)
    return frame.error.condition, frame.error.description


def ready(
    bench: Bench, container: str = "container", address: str = "t/#", credit: int = 100, **source: Any
) -> AmqpPeer:
    peer = bench.open(container)
    peer.begin()
    peer.attach_receiver(address, **source)
    if credit:
        peer.credit(credit)
    return peer


def sender(bench: Bench, address: str | None = "t/1", container: str = "sender", **target: Any) -> AmqpPeer:
    peer = bench.open(container)
    peer.begin()
    peer.attach_sender(address, **target)
    return peer


# Credit


def test_messages_are_sent_as_far_as_there_is_credit_and_in_order() -> None:
    bench = Bench()
    reader, writer = ready(bench, credit=3), sender(bench)
    for number in range(10):
        writer.transfer(b"%d" % number)
    got = reader.got()
    assert [one.message.payload for one in got] == [b"0", b"1", b"2"]
    reader.accept(*got)
    assert reader.payloads() == []
    reader.credit(2, count=3)
    assert reader.payloads() == [b"3", b"4"]


def test_a_drain_uses_the_credit_up() -> None:
    bench = Bench()
    reader, writer = ready(bench, credit=0), sender(bench)
    writer.transfer(b"one")
    reader.credit(5, drain=True)
    assert reader.payloads() == [b"one"]
    flow = reader.last(Flow)
    assert (flow.link_credit, flow.delivery_count, flow.drain) == (0, 5, True)
    writer.transfer(b"two")
    assert reader.payloads() == []
    reader.credit(1, count=5)
    assert reader.payloads() == [b"two"]


def test_an_echo_tells_the_state_of_a_link() -> None:
    bench = Bench()
    reader, writer = ready(bench, credit=1), sender(bench)
    for _ in range(3):
        writer.transfer(b"x")
    reader.credit(0, count=1, echo=True)
    flow = reader.last(Flow)
    assert (flow.delivery_count, flow.link_credit, flow.available) == (1, 0, 2)


def test_qos_0_waits_for_credit_up_to_the_limit_and_is_settled() -> None:
    bench = Bench(queue_bytes=2**20)
    reader, writer = ready(bench, credit=0), sender(bench)
    for number in range(50):
        writer.transfer(bytes((number,)) * 50_000, settled=True)
    reader.credit(1_000)
    got = reader.got()
    assert [one.message.payload[0] for one in got] == list(range(len(got)))
    assert 20 <= len(got) <= 22
    assert all(one.settled for one in got)
    assert bench.pubsub.state.counters.dropped[Drop.SLOW_CLIENT] == 50 - len(got)


def test_a_sender_gets_credit_for_what_may_be_in_flight_and_no_more() -> None:
    bench = Bench(in_flight=10)
    ready(bench, "reader", durable=2, expiry_policy=Symbol("never"))
    writer = sender(bench)
    assert writer.last(Flow).link_credit == 10
    bench.is_store_slow = True
    for sent in range(1, 11):
        writer.connection.acks_held = sent  # as the driver counts them
        writer.transfer(b"x")
    bench.commit()
    # While nothing was answered there was no more credit.
    assert writer.take(Flow) == []
    writer.connection.acks_held = 0
    assert writer.connection.has_more_to_say
    bench.server.writable(writer.connection, bench.now)
    bench.end_turn()
    assert writer.last(Flow).link_credit == 10


def test_a_message_without_credit_ends_the_link() -> None:
    bench = Bench(in_flight=1)
    writer = sender(bench)
    writer.send(
        b"".join(
            composites_frame(Transfer(0, number, bytes((number,)), 0, True), described(0x75, binary(b"x")))
            for number in range(3)
        )
    )
    assert error_of(writer.last(Detach))[0] == "amqp:link:transfer-limit-exceeded"
    writer.detach()
    assert writer.connection.is_open


def composites_frame(performative: object, payload: bytes = b"") -> bytes:
    from overlane.amqp.codec.framing import frame

    return frame(0, composites.write(performative) + payload)


# Settlement


def test_accepted_means_that_it_is_stored() -> None:
    bench = Bench()
    ready(bench, "reader", durable=2, expiry_policy=Symbol("never"))
    writer = sender(bench)
    bench.is_store_slow = True
    number = writer.transfer(b"x")
    assert writer.take(Disposition) == []
    bench.commit()
    assert writer.take(Disposition) == [Disposition(RECEIVER, number, None, True, ACCEPTED)]


def test_outcomes_of_messages_that_follow_each_other_are_one_frame() -> None:
    bench = Bench()
    writer = sender(bench)
    body = described(0x75, binary(b"x"))
    writer.send(*(composites_frame(Transfer(0, at, bytes((at,)), 0, False), body) for at in range(5)))
    assert writer.take(Disposition) == [Disposition(RECEIVER, 0, 4, True, ACCEPTED)]


def test_an_accepted_message_leaves_the_queue() -> None:
    bench = Bench()
    reader, writer = ready(bench, durable=2, expiry_policy=Symbol("never"), name="mine"), sender(bench)
    writer.transfer(b"one")
    reader.accept(*reader.got())
    reader.lose()
    again = ready(bench, durable=2, expiry_policy=Symbol("never"), name="mine")
    assert again.payloads() == []


def test_released_and_modified_messages_come_again_before_later_ones() -> None:
    bench = Bench()
    reader, writer = ready(bench, credit=2), sender(bench)
    for number in range(4):
        writer.transfer(b"%d" % number)
    first, second = reader.got()
    reader.accept(first, state=Released())
    reader.accept(second, state=Modified(delivery_failed=True))
    reader.credit(4, count=2)
    got = reader.got()
    assert [one.message.payload for one in got] == [b"0", b"1", b"2", b"3"]
    counts = [delivery_count(one.raw) for one in got]
    assert counts == [0, 1, 0, 0]


def delivery_count(raw: bytes) -> int:
    from overlane.amqp.messages import sections

    for one in sections.split(raw):
        if one.code == sections.HEADER:
            return sections.read_header(raw, one).delivery_count or 0
    return 0


@pytest.mark.parametrize("outcome", [Rejected(), Modified(True, True)])
def test_a_rejected_message_is_a_dead_letter(outcome: object) -> None:
    bench = Bench()
    dead = ready(bench, "undertaker", "$dead-letter/#")
    reader, writer = ready(bench), sender(bench)
    writer.transfer(b"poison")
    reader.accept(*reader.got(), state=outcome)
    (letter,) = dead.got()
    assert letter.message.payload == b"poison"
    assert ("overlane-reason", "rejected by the client") in letter.message.user_properties
    assert bench.pubsub.state.counters.dropped[Drop.REJECTED] == 1


def test_a_message_that_fails_too_often_is_a_dead_letter() -> None:
    bench = Bench(tries=3)
    reader, writer = ready(bench), sender(bench)
    writer.transfer(b"poison")
    for _ in range(3):
        reader.accept(*reader.got(), state=Modified(delivery_failed=True))
    assert reader.got() == []
    assert bench.pubsub.state.counters.dropped[Drop.TRIES] == 1


def test_settled_without_an_outcome_is_tried_again() -> None:
    bench = Bench()
    reader, writer = ready(bench), sender(bench)
    writer.transfer(b"x")
    (one,) = reader.got()
    reader.say(Disposition(RECEIVER, one.delivery_id, None, True))
    assert [delivery_count(again.raw) for again in reader.got()] == [1]


def test_a_client_that_does_not_settle_is_told_to_forget() -> None:
    bench = Bench()
    reader, writer = ready(bench), sender(bench)
    writer.transfer(b"x")
    (one,) = reader.got()
    reader.accept(one, settled=False)
    assert reader.take(Disposition) == [Disposition(SENDER, one.delivery_id, None, True, ACCEPTED)]


def test_a_range_of_any_size_settles_what_there_is() -> None:
    bench = Bench()
    reader, writer = ready(bench), sender(bench)
    for _ in range(5):
        writer.transfer(b"x")
    assert len(reader.got()) == 5
    reader.say(Disposition(RECEIVER, 0, 2**32 - 2, True, ACCEPTED))
    session = next(iter(reader.connection.channels.values()))
    assert session.unsettled == {}


# Messages in many frames, and windows


def test_large_messages_are_split_and_put_together() -> None:
    bench = Bench()
    reader = bench.open("reader", max_frame_size=512)
    reader.begin()
    reader.attach_receiver("t/#")
    reader.credit(10)
    writer = sender(bench)
    payload = bytes(range(256)) * 20
    raw = described(0x75, binary(payload))
    writer.say(Transfer(0, 0, b"tag", 0, False, True), raw[:100])
    writer.say(Transfer(0, None, None, None, None, True), raw[100:2_000])
    assert writer.connection.partial_bytes == 2_000
    writer.say(Transfer(0, 0, None, None, None, False), raw[2_000:])
    assert writer.connection.partial_bytes == 0
    assert reader.payloads() == [payload]


def test_an_aborted_message_is_forgotten() -> None:
    bench = Bench()
    reader, writer = ready(bench), sender(bench)
    writer.say(Transfer(0, 0, b"a", 0, False, True), b"xxx")
    writer.say(Transfer(0, 0, b"a", aborted=True))
    writer.say(Transfer(0, 1, b"b", 0, False), described(0x75, binary(b"whole")))
    assert reader.payloads() == [b"whole"]


def test_a_message_that_is_too_large_ends_the_link_before_it_is_whole() -> None:
    bench = Bench(packet_bytes=100_000)
    writer = sender(bench)
    assert writer.connection.framer.frame_bytes_max == 65_536
    for at in range(3):
        writer.say(Transfer(0, 0 if not at else None, b"a", 0, False, True), bytes(50_000))
    assert error_of(writer.last(Detach)) == ("amqp:link:message-size-exceeded", "a message of more than 100000 bytes")
    assert writer.connection.partial_bytes == 0


def test_messages_that_are_not_whole_are_limited_over_all_links() -> None:
    bench = Bench(packet_bytes=100_000)
    writer = sender(bench)
    for handle in range(1, 8):
        writer.attach_sender("t/1", handle)
    for handle in range(1, 8):
        writer.say(Transfer(handle, handle, b"a", 0, False, True), bytes(60_000))
    assert error_of(writer.last(Close))[0] == "amqp:resource-limit-exceeded"


def test_frames_wait_for_the_window_of_the_client() -> None:
    bench = Bench()
    reader = bench.open("reader")
    reader.begin(window=2)
    reader.attach_receiver("t/#")
    reader.say(Flow(0, 2, 0, 2**31 - 1, 0, 0, 100))
    writer = sender(bench)
    for number in range(5):
        writer.transfer(b"%d" % number)
    assert reader.payloads() == [b"0", b"1"]
    reader.say(Flow(2, 2, 0, 2**31 - 1))
    assert reader.payloads() == [b"2", b"3"]
    reader.say(Flow(4, 2, 0, 2**31 - 1))
    assert reader.payloads() == [b"4"]


def test_the_window_of_the_broker_is_opened_again() -> None:
    bench = Bench()
    writer = sender(bench)
    writer.take(Flow)
    for _ in range(1_100):
        writer.transfer(b"x", settled=True)
    assert any(flow.handle is None and flow.incoming_window == 2_048 for flow in writer.take(Flow))


# Topics


def test_retained_messages_come_on_attach_and_are_annotated() -> None:
    bench = Bench()
    writer = sender(bench)
    annotated = described(0x72, encode({Symbol("x-opt-retain"): True}))
    writer.transfer(b"", raw=annotated + described(0x75, binary(b"kept")))
    reader = ready(bench)
    (one,) = reader.got()
    assert one.message.payload == b"kept"
    assert one.message.retain
    writer.transfer(b"live")
    (one,) = reader.got()
    assert not one.message.retain


def test_the_anonymous_relay_sends_each_message_where_it_says() -> None:
    bench = Bench()
    reader, writer = ready(bench), sender(bench, None)
    for to in ("t/1", "topic://t/2", None, "t/#", "queue://t/3"):
        raw = composites.write(MessageProperties(to=to)) + described(0x75, binary((to or "").encode()))
        writer.transfer(b"", raw=raw)
    assert reader.payloads() == [b"t/1", b"topic://t/2", b"queue://t/3"]
    states = [one.state for one in writer.take(Disposition)]
    assert [type(one) for one in states] == [Accepted, Accepted, Rejected, Rejected, Accepted]


def test_a_dynamic_source_has_an_address_that_others_can_send_to() -> None:
    bench = Bench()
    reader = bench.open("asker")
    reader.begin()
    source = reader.attach_receiver(None, dynamic=True).source
    assert isinstance(source, Source)
    assert isinstance(source.address, str)
    assert source.address.startswith("temporary/seattle/")
    reader.credit(1)
    writer = sender(bench, source.address)
    writer.transfer(b"answer")
    assert reader.payloads() == [b"answer"]


def test_a_dynamic_target_has_an_address_too() -> None:
    bench = Bench()
    peer = bench.open("jms")
    peer.begin()
    target = peer.attach_sender(None, dynamic=True, capabilities=["temporary-queue"]).target
    assert isinstance(target, Target)
    assert isinstance(target.address, str)
    peer.attach_receiver(target.address, 1, capabilities=["temporary-queue"])
    peer.credit(1, 1)
    peer.transfer(b"x")
    assert peer.payloads() == [b"x"]


def test_a_bad_message_is_rejected_and_the_link_goes_on() -> None:
    bench = Bench()
    reader, writer = ready(bench), sender(bench)
    writer.transfer(b"", raw=b"\x40")
    writer.transfer(b"", raw=composites.write(MessageProperties(user_id=b"root")) + described(0x75, binary(b"")))
    writer.transfer(b"fine")
    first, second, third = writer.take(Disposition)
    assert isinstance(first.state, Rejected)
    assert error_of(first.state)[0] == "amqp:decode-error"
    assert isinstance(second.state, Rejected)
    assert error_of(second.state)[0] == "amqp:unauthorized-access"
    assert third.state == ACCEPTED
    assert reader.payloads() == [b"fine"]


# Durable subscriptions


def durable(bench: Bench, container: str = "jms", credit: int = 10) -> AmqpPeer:
    return ready(bench, container, durable=2, expiry_policy=Symbol("never"), name="news", credit=credit)


@pytest.mark.parametrize("how", ["lost", "detached", "crashed"])
def test_a_durable_subscription_is_kept_while_the_client_is_away(how: str) -> None:
    bench = Bench()
    reader = durable(bench)
    writer = sender(bench)
    writer.transfer(b"0")
    assert reader.payloads() == [b"0"]  # not settled
    if how == "crashed":
        bench.crash()
        writer = sender(bench)
    elif how == "lost":
        reader.lose()
    else:
        reader.detach(closed=False)
        assert reader.last(Detach).closed is False
        reader.lose()
    writer.transfer(b"1")
    got = durable(bench).got()
    assert [one.message.payload for one in got] == [b"0", b"1"]
    assert [delivery_count(one.raw) for one in got] == [1, 0]


def test_a_durable_subscription_ends_when_its_link_is_closed_or_its_time_is_over() -> None:
    bench = Bench(session_expiry_s_max=60)
    reader = durable(bench)
    reader.detach(closed=True)
    writer = sender(bench)
    writer.transfer(b"0")
    reader = durable(bench, "again")
    assert reader.payloads() == []
    reader.lose()
    bench.pass_time(61)
    writer = sender(bench, container="later")
    writer.transfer(b"1")
    assert durable(bench, "again").payloads() == []


def test_a_subscription_is_ended_by_name_as_jms_does() -> None:
    bench = Bench()
    durable(bench).lose()
    peer = bench.open("jms")
    peer.begin()
    peer.say(Attach("news", 3, RECEIVER, source=None, target=Target()))
    source = peer.last(Attach).source
    assert isinstance(source, Source)
    assert source.address == "t/#"
    peer.detach(3)
    assert peer.take(Detach) == [Detach(3, True)]
    assert "amqp/jms/news" not in bench.pubsub.state.sessions
    peer.say(Attach("news", 3, RECEIVER, source=None, target=Target()))
    assert peer.last(Attach).source is None
    assert error_of(peer.last(Detach))[0] == "amqp:not-found"


def test_a_link_of_the_same_name_steals_a_durable_subscription() -> None:
    bench = Bench()
    one = durable(bench)
    two = durable(bench)
    assert error_of(one.last(Detach))[0] == "amqp:link:stolen"
    sender(bench).transfer(b"x")
    assert (one.payloads(), two.payloads()) == ([], [b"x"])
    one.detach()
    assert one.connection.is_open


def test_links_of_the_same_name_without_durable_state_are_two() -> None:
    bench = Bench()
    one, two = ready(bench, "twin", name="same"), ready(bench, "twin", name="same")
    sender(bench).transfer(b"x")
    assert (one.payloads(), two.payloads()) == ([b"x"], [b"x"])


def test_a_durable_subscription_to_another_topic_begins_anew() -> None:
    bench = Bench()
    durable(bench).lose()
    sender(bench).transfer(b"old")
    reader = ready(bench, "jms", "u/#", durable=2, expiry_policy=Symbol("never"), name="news")
    sender(bench, "u/1", "other").transfer(b"new")
    assert reader.payloads() == [b"new"]


# Queues and shared subscriptions


def queue_reader(bench: Bench, container: str, credit: int = 10) -> AmqpPeer:
    return ready(bench, container, "queue://orders", credit=credit)


def test_a_queue_keeps_messages_until_somebody_comes() -> None:
    bench = Bench()
    sender(bench, "queue://orders").transfer(b"0")
    bench.crash()
    sender(bench, "orders", capabilities=["queue"]).transfer(b"1")
    reader = queue_reader(bench, "worker")
    assert reader.payloads() == [b"0", b"1"]


def test_consumers_of_a_queue_share_its_messages() -> None:
    bench = Bench()
    one, two = queue_reader(bench, "one"), queue_reader(bench, "two")
    writer = sender(bench, "queue://orders")
    for number in range(10):
        writer.transfer(b"%d" % number)
    first, second = one.payloads(), two.payloads()
    assert sorted(first + second) == [b"%d" % number for number in range(10)]
    assert len(first) == len(second) == 5


def test_a_consumer_without_credit_is_left_out() -> None:
    bench = Bench()
    one, two = queue_reader(bench, "one", credit=0), queue_reader(bench, "two")
    writer = sender(bench, "queue://orders")
    for number in range(6):
        writer.transfer(b"%d" % number)
    assert (one.payloads(), len(two.payloads())) == ([], 6)


@pytest.mark.parametrize("how", ["lost", "detached", "released"])
def test_what_a_consumer_does_not_settle_goes_to_another_one(how: str) -> None:
    bench = Bench()
    one = queue_reader(bench, "one")
    writer = sender(bench, "queue://orders")
    writer.transfer(b"x")
    got = one.got()
    two = queue_reader(bench, "two")
    if how == "lost":
        one.lose()
    elif how == "detached":
        one.detach()
    else:
        one.credit(0, count=1)
        one.accept(*got, state=Released())
    (again,) = two.got()
    assert (again.message.payload, delivery_count(again.raw)) == (b"x", 0 if how == "released" else 1)


def test_what_the_last_consumer_does_not_settle_waits_for_the_next_one() -> None:
    bench = Bench()
    one = queue_reader(bench, "one")
    sender(bench, "queue://orders").transfer(b"x")
    one.lose()
    (again,) = queue_reader(bench, "two").got()
    assert (again.message.payload, delivery_count(again.raw)) == (b"x", 1)


def test_a_queue_outlives_a_crash_with_what_was_not_settled() -> None:
    bench = Bench()
    reader = queue_reader(bench, "one")
    writer = sender(bench, "queue://orders")
    for number in range(4):
        writer.transfer(b"%d" % number)
    reader.accept(*reader.got()[:2])
    bench.crash()
    assert queue_reader(bench, "two").payloads() == [b"2", b"3"]


def test_a_consumer_cannot_take_from_a_queue_without_settling() -> None:
    bench = Bench()
    reader = bench.open("one")
    reader.begin()
    attach = reader.attach_receiver("queue://orders", mode=1)
    assert attach.snd_settle_mode == 0


def shared(bench: Bench, container: str, name: str, *capabilities: str, **source: Any) -> AmqpPeer:
    return ready(bench, container, name=name, capabilities=["shared", *capabilities], **source)


def test_consumers_of_a_shared_subscription_share_its_messages() -> None:
    bench = Bench()
    one = shared(bench, "one", "sub|global-volatile1", "global")
    two = shared(bench, "two", "sub|global-volatile2", "global")
    alone = shared(bench, "three", "sub")
    writer = sender(bench)
    for number in range(6):
        writer.transfer(b"%d" % number)
    assert [len(peer.payloads()) for peer in (one, two, alone)] == [3, 3, 6]
    one.lose()
    two.lose()
    assert "amqp-shared//sub" not in bench.pubsub.state.sessions


def test_a_durable_shared_subscription_is_kept_and_can_be_ended_by_name() -> None:
    bench = Bench()
    expiry: dict[str, Any] = {"durable": 2, "expiry_policy": Symbol("never")}
    shared(bench, "jms", "sub|1", **expiry).lose()
    sender(bench).transfer(b"x")
    reader = shared(bench, "jms", "sub|2", **expiry)
    assert reader.payloads() == [b"x"]
    reader.detach(closed=False)
    reader.say(Attach("sub", 3, RECEIVER, source=None, target=Target()))
    assert reader.last(Attach).source is not None
    reader.detach(3)
    assert not any(name.startswith("amqp-shared/") for name in bench.pubsub.state.sessions)


# Refusals


@pytest.mark.parametrize(
    ("source", "condition"),
    [
        (Source("t/#/x"), "amqp:invalid-field"),
        (Source(None), "amqp:invalid-field"),
        (Source(UInt(3)), "amqp:invalid-field"),
        (Source("x" * 5_000), "amqp:invalid-field"),
        (Source("queue://a/+"), "amqp:invalid-field"),
        (Source("queue://a", distribution_mode=Symbol("copy")), "amqp:not-implemented"),
        (Source("a", filter={Symbol("xpath"): Described(Symbol("apache.org:xquery-filter:string"), "/a")}),
         "amqp:not-implemented"),
        (Described(Symbol("unknown:source:list"), []), "amqp:not-implemented"),
    ],
)  # fmt: skip
def test_a_source_that_cannot_be_had_is_refused_with_a_reason(source: object, condition: str) -> None:
    bench = Bench()
    peer = bench.open()
    peer.begin()
    peer.say(Attach("link", 0, RECEIVER, source=source, target=Target()))
    assert peer.last(Attach).source is None
    assert error_of(peer.last(Detach))[0] == condition
    peer.detach()
    peer.attach_receiver("fine")
    assert peer.connection.is_open


@pytest.mark.parametrize(
    ("target", "condition"),
    [
        (Coordinator(), "amqp:not-implemented"),
        (None, "amqp:invalid-field"),
        (Target("t/#"), "amqp:invalid-field"),
        (Target("$SYS/x"), "amqp:unauthorized-access"),
        (Target(b"t"), "amqp:invalid-field"),
    ],
)
def test_a_target_that_cannot_be_had_is_refused_with_a_reason(target: object, condition: str) -> None:
    bench = Bench()
    peer = bench.open()
    peer.begin()
    peer.say(Attach("link", 0, SENDER, source=Source(), target=target, initial_delivery_count=0))
    attach = peer.last(Attach)
    assert (attach.role, attach.target) == (RECEIVER, None)
    assert error_of(peer.last(Detach))[0] == condition


def test_rights_are_those_of_the_user() -> None:
    rules = (Rule(user="alice", publish=("a/#",), subscribe=("b/#",)),)
    bench = Bench(users={"alice": b"x"}, anonymous=False, rules=rules)
    peer = bench.peer()
    peer.sasl("PLAIN", b"\0alice\0x")
    peer.send(PROTOCOL, frame_of(0, Open("here")))
    peer.begin()
    assert peer.attach_sender("b/1", 0).target is None
    assert peer.attach_sender("a/1", 1).target is not None
    assert peer.attach_receiver("a/1", 2).source is None
    assert peer.attach_receiver("b/#", 3).source is not None
    assert peer.attach_receiver("queue://a/1", 4).source is None
    assert {error_of(one)[0] for one in peer.take(Detach)} == {"amqp:unauthorized-access"}
    relay = peer.attach_sender(None, 5)
    assert relay.target is not None
    raw = composites.write(MessageProperties(to="b/1")) + described(0x75, binary(b"x"))
    peer.transfer(b"", 5, raw=raw)
    state = peer.last(Disposition).state
    assert isinstance(state, Rejected)
    assert error_of(state)[0] == "amqp:unauthorized-access"


def logged_in(bench: Bench, user: str, container: str) -> AmqpPeer:
    peer = bench.peer()
    peer.sasl("PLAIN", f"\0{user}\0x".encode())
    peer.send(PROTOCOL, frame_of(0, Open(container)))
    peer.begin()
    return peer


def test_a_user_gets_and_ends_no_durable_subscription_of_another_one() -> None:
    bench = Bench(users={"ann": b"x", "bob": b"x"}, anonymous=False)
    expiry: dict[str, Any] = {"durable": 2, "expiry_policy": Symbol("never")}
    logged_in(bench, "ann", "a/b").attach_receiver("t", 0, name="news", **expiry)
    bob = logged_in(bench, "bob", "a")
    assert bob.attach_receiver("t", 0, name="b/news", **expiry).source is None
    assert error_of(bob.last(Detach))[0] == "amqp:not-allowed"
    bench.peers[0].lose()
    assert bob.attach_receiver("t", 1, name="b/news", **expiry).source is None
    assert bob.attach_receiver("t", 2, name="b", **expiry).source is not None  # only the connection had this name
    bob.say(Attach("b/news", 3, RECEIVER, source=None, target=Target()))
    assert error_of(bob.last(Detach))[0] == "amqp:not-found"
    assert bench.pubsub.state.sessions["amqp/a/b/news"].user == "ann"


def test_a_link_does_not_take_over_the_session_of_a_connection() -> None:
    bench = Bench()
    bench.open("a/b")
    peer = bench.open("a")
    peer.begin()
    durable_source: dict[str, Any] = {"durable": 2, "expiry_policy": Symbol("never")}
    assert peer.attach_receiver("t", 0, name="b", **durable_source).source is None
    assert error_of(peer.last(Detach))[0] == "amqp:not-allowed"
    assert bench.pubsub.state.sessions["amqp/a/b"].consumer is bench.peers[0].connection


def test_a_shared_subscription_is_shown_only_to_those_who_may_subscribe_to_its_topic() -> None:
    rules = (Rule(user="ann", subscribe=("t/#",)), Rule(user="bob", subscribe=("b/#",)))
    bench = Bench(users={"ann": b"x", "bob": b"x"}, anonymous=False, rules=rules)
    capabilities = (Symbol("shared"), Symbol("global"))
    ann = logged_in(bench, "ann", "a")
    ann.attach_receiver("t/#", 0, name="sub", durable=2, expiry_policy=Symbol("never"), capabilities=capabilities)
    ann.lose()
    bob = logged_in(bench, "bob", "b")
    bob.say(Attach("sub", 3, RECEIVER, source=None, target=Target()))
    assert error_of(bob.last(Detach))[0] == "amqp:not-found"
    assert "amqp-shared//sub" in bench.pubsub.state.sessions
    again = logged_in(bench, "ann", "c")
    again.say(Attach("sub", 3, RECEIVER, source=None, target=Target()))
    assert again.last(Attach).source is not None


def test_a_client_that_breaks_the_rules_of_sessions_is_told_which() -> None:
    bench = Bench()
    peer = bench.open()
    peer.begin()
    peer.attach_receiver("t")
    peer.say(Attach("other", 0, RECEIVER, source=Source("u"), target=Target()))
    assert error_of(peer.last(End))[0] == "amqp:session:handle-in-use"
    peer.say(Flow(0, 1, 0, 1))  # on its way before the end
    peer.say(End())
    peer.begin()
    peer.say(Flow(0, 1, 0, 1, 7, 0, 1))
    assert error_of(peer.last(End))[0] == "amqp:session:unattached-handle"
    peer.say(Begin(None, 0, 1, 1), channel=32)
    assert error_of(peer.last(Close))[0] == "amqp:not-allowed"


def test_the_end_of_a_session_and_of_a_connection_are_answered() -> None:
    bench = Bench()
    peer = ready(bench)
    peer.say(End())
    assert peer.take(End) == [End()]
    peer.say(Close())
    assert peer.take(Close) == [Close()]
    assert bench.pubsub.state.sessions == {}


def test_an_operator_and_the_end_of_the_broker_close_with_a_reason() -> None:
    bench = Bench()
    one, two = ready(bench, "one"), ready(bench, "two")
    assert bench.pubsub.disconnect("amqp/one", bench.now)
    bench.end_turn()
    assert error_of(one.last(Close)) == ("amqp:connection:forced", "ended by an operator")
    bench.pubsub.drain(bench.now)
    bench.end_turn()
    assert error_of(two.last(Close))[0] == "amqp:connection:forced"
    two.lose()


def test_messages_expire() -> None:
    bench = Bench()
    reader, writer = ready(bench, credit=0), sender(bench)
    writer.transfer(b"", raw=described(0x70, encode([None, None, UInt(500)])) + described(0x75, binary(b"short")))
    raw = composites.write(MessageProperties(absolute_expiry_time=(bench.now + 5 * SECOND) // 10**6))
    writer.transfer(b"", raw=raw + described(0x75, binary(b"long")))
    bench.pass_time(1)
    reader.credit(5)
    (one,) = reader.got()
    assert (one.message.payload, one.message.ttl_ms) == (b"long", 4_000)
