"""The client's protocol as tables: what the broker says, and what the client answers and tells."""

import hypothesis.strategies as st
import mqtt5
import pytest
from conversation import Conversation, packet, publication
from hypothesis import given

from overlane.client.errors import InvalidRequest
from overlane.client.protocol import (
    Connected,
    ConnectionFailed,
    ConnectRefused,
    PublicationAccepted,
    PublicationExpired,
    PublicationRejected,
    ServerDisconnected,
    SessionSettings,
    Subscribed,
    SubscriptionRefused,
    Unsubscribed,
    WantedSubscription,
)
from overlane.client.protocol.packet_ids import IDS_MAX, PacketIds
from overlane.client.qos import Qos
from overlane.core.units import NEVER, SECOND
from overlane.mqtt.codec import codec5

SubAck = mqtt5.SubAckReasonCode


def connected(settings: SessionSettings | None = None, answer: mqtt5.ConnAckPacket | None = None) -> Conversation:
    conversation = Conversation(settings)
    conversation.connect(answer)
    return conversation


# The connection


def test_it_introduces_itself_and_is_online_when_the_broker_agrees() -> None:
    talk = Conversation(SessionSettings("me", user="alice", password=b"secret", session_expiry_s=60))
    talk.protocol.opened()
    (connect,) = talk.heard()
    assert connect == mqtt5.ConnectPacket(
        "me",
        username="alice",
        password=b"secret",
        clean_start=True,
        keep_alive=30,
        session_expiry_interval=60,
        receive_max=1000,
        max_packet_size=16 * 1024 * 1024,
    )
    assert not talk.protocol.online
    assert talk.say(mqtt5.ConnAckPacket()) == [Connected(session_present=False)]
    assert talk.protocol.online


def test_a_clean_start_is_asked_for_only_the_first_time() -> None:
    talk = connected()
    talk.protocol.lost()
    talk.protocol.opened()
    (connect,) = talk.heard()
    assert isinstance(connect, mqtt5.ConnectPacket)
    assert not connect.clean_start


def test_a_refusal_is_told_with_code_and_words() -> None:
    talk = Conversation()
    answer = mqtt5.ConnAckPacket(reason_code=mqtt5.ConnAckReasonCode.NOT_AUTHORIZED, reason_str="not you")
    assert talk.connect(answer) == [ConnectRefused(0x87, "not you")]
    assert not talk.protocol.online


def test_other_brokers_of_the_domain_are_told_and_so_is_the_one_that_has_the_session() -> None:
    talk = Conversation(SessionSettings("me", redirect=True))
    named = [("overlane-alternative", f"host-{number}:1883") for number in range(20)]
    answer = mqtt5.ConnAckPacket(user_properties=[("other", "x"), *named])
    assert talk.connect(answer) == [Connected(False, tuple(f"host-{number}:1883" for number in range(16)))]
    talk.protocol.lost()
    talk.protocol.opened()
    (connect,) = talk.heard()
    assert isinstance(connect, mqtt5.ConnectPacket)
    assert connect.user_properties == [("overlane-redirect", "yes")]
    elsewhere = mqtt5.ConnAckPacket(
        reason_code=mqtt5.ConnAckReasonCode.USE_ANOTHER_SERVER, server_reference="host-1:1883"
    )
    assert talk.say(elsewhere) == [ConnectRefused(0x9C, "", "host-1:1883")]
    talk.protocol.lost()
    talk.protocol.opened(is_redirected=False)
    (again,) = talk.heard()
    assert isinstance(again, mqtt5.ConnectPacket)
    assert again.user_properties == []


def test_a_dismissal_is_told_with_code_and_words() -> None:
    talk = connected()
    goodbye = mqtt5.DisconnectPacket(
        reason_code=mqtt5.DisconnectReasonCode.SERVER_SHUTTING_DOWN, reason_str="back at noon"
    )
    assert talk.say(goodbye) == [ServerDisconnected(0x8B, "back at noon")]
    assert not talk.protocol.online


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x00\x00", "type 0"),
        (b"\xff\xff\xff\xff\xff", "four bytes"),
        (codec5.write(mqtt5.PingReqPacket()), "PingReqPacket from a broker"),
        (codec5.write(mqtt5.ConnAckPacket()), "at the wrong time"),
        (codec5.write(mqtt5.SubAckPacket(9, [SubAck.GRANTED_QOS_AT_MOST_ONCE])), "not asked"),
        (b"\x30\xff\xff\xff\x7f", "bytes"),
    ],
)
def test_a_broker_that_breaks_the_rules_is_told_so_and_left(data: bytes, words: str) -> None:
    talk = connected()
    (broken,) = talk.protocol.receive(data, talk.now)
    assert isinstance(broken, ConnectionFailed)
    assert broken.is_violation
    assert words in broken.reason
    (goodbye,) = talk.heard()
    assert isinstance(goodbye, mqtt5.DisconnectPacket)
    assert int(goodbye.reason_code) in (0x81, 0x82, 0x95)
    assert not talk.protocol.online


def test_messages_before_the_brokers_answer_break_the_rules() -> None:
    talk = Conversation()
    talk.protocol.opened()
    assert talk.say(packet("a", b"")) == [ConnectionFailed("PUBLISH before CONNACK", is_violation=True)]


def test_bytes_may_come_one_by_one() -> None:
    talk = connected()
    data = codec5.write(packet("a", b"x")) + codec5.write(packet("b", b"y"))
    arrived = [event for byte in data for event in talk.protocol.receive(bytes([byte]), talk.now)]
    assert [(message.topic, message.body) for message in arrived] == [("a", b"x"), ("b", b"y")]  # type: ignore[union-attr]


def test_taking_leave_ends_the_session_only_if_that_is_wanted() -> None:
    for end_session, expiry_s in ((True, 0), (False, None)):
        talk = connected(SessionSettings("me", session_expiry_s=60))
        talk.protocol.disconnect(end_session)
        assert talk.heard() == [mqtt5.DisconnectPacket(session_expiry_interval=expiry_s)]


BROKER_PACKETS: list[mqtt5.Packet] = [
    mqtt5.ConnAckPacket(session_present=True, receive_max=3, reason_str="welcome"),
    packet("a/b", b"body", 1, 7),
    packet("a/b", b"body", 2, 7, duplicate=True),
    mqtt5.PublishPacket("a", b"", subscription_ids=[1], user_properties=[("name", "value")]),
    mqtt5.PubAckPacket(1),
    mqtt5.PubRecPacket(2, reason_code=mqtt5.PubRecReasonCode.QUOTA_EXCEEDED, reason_str="no"),
    mqtt5.PubRelPacket(7),
    mqtt5.PubCompPacket(2),
    mqtt5.SubAckPacket(3, [SubAck.GRANTED_QOS_EXACTLY_ONCE]),
    mqtt5.UnsubAckPacket(4, [mqtt5.UnsubAckReasonCode.SUCCESS]),
    mqtt5.PingRespPacket(),
    mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode.SERVER_BUSY),
    mqtt5.ConnectPacket("you"),
]


@given(
    packets=st.lists(st.sampled_from(BROKER_PACKETS), max_size=12),
    damage=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
    noise=st.binary(max_size=40),
    chunk=st.integers(1, 200),
    is_connected=st.booleans(),
)
def test_whatever_a_broker_says_ends_in_events_and_never_in_an_exception(
    packets: list[mqtt5.Packet], damage: list[tuple[int, int]], noise: bytes, chunk: int, is_connected: bool
) -> None:
    talk = Conversation()
    for qos in (1, 2):
        talk.protocol.publish(publication("a", b"x", qos), talk.now)
    talk.protocol.subscribe(1, WantedSubscription(("a",)))
    if is_connected:
        talk.connect()
    else:
        talk.protocol.opened()
    data = bytearray(b"".join(map(codec5.write, packets)) + noise)
    for place, value in damage:
        if place < len(data):
            data[place] = value
    for start in range(0, len(data), chunk):
        talk.protocol.receive(bytes(data[start : start + chunk]), talk.now)
    talk.heard()


# Keep-alive


def test_it_asks_after_half_the_interval_and_gives_up_after_the_other_half() -> None:
    talk = connected(SessionSettings("me", keep_alive_s=30))
    talk.now = talk.protocol.next_deadline
    assert talk.now == 1_015 * SECOND
    assert talk.protocol.tick(talk.now) == []
    assert talk.heard() == [mqtt5.PingReqPacket()]
    assert talk.protocol.next_deadline == 1_030 * SECOND
    assert talk.protocol.tick(1_030 * SECOND) == [ConnectionFailed("the broker has been silent for too long", False)]


def test_an_answer_keeps_the_connection_alive() -> None:
    talk = connected(SessionSettings("me", keep_alive_s=30))
    for _ in range(10):
        talk.now = talk.protocol.next_deadline
        assert talk.protocol.tick(talk.now) == []
        assert talk.heard() == [mqtt5.PingReqPacket()]
        assert talk.say(mqtt5.PingRespPacket()) == []


def test_silence_proves_nothing_while_nobody_listens_but_pings_go_on() -> None:
    talk = connected(SessionSettings("me", keep_alive_s=30))
    talk.protocol.listening(False, talk.now)
    pings = 0
    while talk.now < 1_200 * SECOND:
        talk.now = talk.protocol.next_deadline
        assert talk.protocol.tick(talk.now) == []
        pings += len(talk.heard())
    assert pings == 14
    talk.protocol.listening(True, talk.now)
    assert talk.protocol.next_deadline == talk.now + 15 * SECOND


def test_the_brokers_keep_alive_goes_before_ours() -> None:
    assert connected(answer=mqtt5.ConnAckPacket(server_keep_alive=10)).protocol.next_deadline == 1_005 * SECOND
    assert connected(SessionSettings("me", keep_alive_s=0)).protocol.next_deadline >= NEVER


# Publishing


def test_qos_0_leaves_at_once_and_needs_no_answer() -> None:
    talk = connected()
    _, events = talk.protocol.publish(publication("a", b"x"), talk.now)
    assert events == []
    assert talk.heard() == [packet("a", b"x")]
    assert talk.protocol.unanswered == 0


def test_qos_1_is_accepted_with_puback() -> None:
    talk = connected()
    sending, _ = talk.protocol.publish(publication("a", b"x", qos=1), talk.now)
    assert talk.heard() == [packet("a", b"x", qos=1, packet_id=1)]
    assert talk.protocol.unanswered == 1
    assert talk.say(mqtt5.PubAckPacket(1)) == [PublicationAccepted(sending)]
    assert talk.protocol.unanswered == 0


def test_qos_2_is_accepted_with_pubcomp() -> None:
    talk = connected()
    sending, _ = talk.protocol.publish(publication("a", b"x", qos=2), talk.now)
    assert talk.heard() == [packet("a", b"x", qos=2, packet_id=1)]
    assert talk.say(mqtt5.PubRecPacket(1)) == []
    assert talk.heard() == [mqtt5.PubRelPacket(1)]
    assert talk.say(mqtt5.PubCompPacket(1)) == [PublicationAccepted(sending)]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_refused_message_is_told_with_its_reason(qos: int) -> None:
    talk = connected()
    sending, _ = talk.protocol.publish(publication("a", b"x", qos), talk.now)
    answer: mqtt5.Packet = mqtt5.PubAckPacket(
        1, reason_code=mqtt5.PubAckReasonCode.QUOTA_EXCEEDED, reason_str="no room"
    )
    if qos == 2:
        answer = mqtt5.PubRecPacket(1, reason_code=mqtt5.PubRecReasonCode.QUOTA_EXCEEDED, reason_str="no room")
    assert talk.say(answer) == [PublicationRejected(sending, 0x97, "no room")]
    assert talk.protocol.unanswered == 0


def test_no_matching_subscribers_is_no_refusal() -> None:
    talk = connected()
    sending, _ = talk.protocol.publish(publication("a", b"x", qos=1), talk.now)
    answer = mqtt5.PubAckPacket(1, reason_code=mqtt5.PubAckReasonCode.NO_MATCHING_SUBSCRIBERS)
    assert talk.say(answer) == [PublicationAccepted(sending)]


@pytest.mark.parametrize("qos", [1, 2])
def test_what_the_broker_says_about_a_message_that_it_accepts_is_kept(qos: int) -> None:
    talk = connected()
    sending, _ = talk.protocol.publish(publication("a", b"x", qos), talk.now)
    told = "a may not leave for denver"
    if qos == 1:
        answers: list[mqtt5.Packet] = [mqtt5.PubAckPacket(1, reason_str=told)]
    else:
        answers = [mqtt5.PubRecPacket(1, reason_str=told), mqtt5.PubCompPacket(1)]
    assert talk.say(*answers) == [PublicationAccepted(sending, told)]


def test_no_more_is_in_flight_than_the_broker_allows_and_the_order_is_kept() -> None:
    talk = connected(answer=mqtt5.ConnAckPacket(receive_max=2))
    for number in range(4):
        talk.protocol.publish(publication("a", b"%d" % number, qos=1), talk.now)
    talk.protocol.publish(publication("a", b"last"), talk.now)
    assert talk.heard() == [packet("a", b"0", 1, 1), packet("a", b"1", 1, 2)]
    talk.say(mqtt5.PubAckPacket(1))
    assert talk.heard() == [packet("a", b"2", 1, 3)]
    talk.say(mqtt5.PubAckPacket(3), mqtt5.PubAckPacket(2))
    assert talk.heard() == [packet("a", b"3", 1, 4), packet("a", b"last")]


def test_publications_wait_while_the_line_is_full() -> None:
    talk = connected()
    talk.protocol.writable(False, talk.now)
    talk.protocol.publish(publication("a", b"x"), talk.now)
    assert talk.heard() == []
    assert (talk.protocol.waiting, talk.protocol.waiting_bytes) == (1, 2)
    talk.protocol.writable(True, talk.now)
    assert talk.heard() == [packet("a", b"x")]
    assert (talk.protocol.waiting, talk.protocol.waiting_bytes) == (0, 0)


def test_a_resumed_session_gets_what_was_not_acknowledged_again_in_its_old_order_as_duplicates() -> None:
    talk = connected(SessionSettings("me", session_expiry_s=60))
    for number, qos in enumerate((1, 2, 2, 1)):
        talk.protocol.publish(publication("a", b"%d" % number, qos), talk.now)
    talk.heard()
    talk.say(mqtt5.PubRecPacket(3))
    talk.reconnect(session_present=True)
    assert talk.heard() == [
        packet("a", b"0", 1, 1, duplicate=True),
        packet("a", b"1", 2, 2, duplicate=True),
        mqtt5.PubRelPacket(3),
        packet("a", b"3", 1, 4, duplicate=True),
    ]


def test_what_is_sent_again_keeps_to_the_new_window_and_goes_before_what_is_new() -> None:
    talk = connected(SessionSettings("me", session_expiry_s=60))
    for number in range(3):
        talk.protocol.publish(publication("a", b"%d" % number, qos=1), talk.now)
    talk.protocol.lost()
    talk.protocol.publish(publication("a", b"new", qos=1), talk.now)
    talk.connect(mqtt5.ConnAckPacket(session_present=True, receive_max=2))
    assert talk.heard() == [packet("a", b"0", 1, 1, duplicate=True), packet("a", b"1", 1, 2, duplicate=True)]
    talk.say(mqtt5.PubAckPacket(1))
    assert talk.heard() == [packet("a", b"2", 1, 3, duplicate=True)]
    talk.say(mqtt5.PubAckPacket(2))
    assert talk.heard() == [packet("a", b"new", 1, 4)]


def test_without_a_session_what_the_broker_may_not_have_is_published_anew_and_what_it_confirmed_is_done() -> None:
    talk = connected()
    sendings = [talk.protocol.publish(publication("a", b"%d" % qos, qos), talk.now)[0] for qos in (1, 2, 2)]
    talk.say(mqtt5.PubRecPacket(2))
    talk.heard()
    assert talk.reconnect(session_present=False) == [PublicationAccepted(sendings[1]), Connected(session_present=False)]
    again = talk.heard()
    assert again == [packet("a", b"1", 1, 4), packet("a", b"2", 2, 5)]


def test_a_withdrawn_message_is_not_sent_if_it_has_not_been() -> None:
    talk = Conversation()
    kept, _ = talk.protocol.publish(publication("a", b"kept", qos=1), talk.now)
    withdrawn, _ = talk.protocol.publish(publication("a", b"withdrawn", qos=1), talk.now)
    talk.protocol.withdraw(withdrawn)
    assert (talk.protocol.waiting, talk.protocol.waiting_bytes) == (1, 5)
    talk.connect()
    assert talk.heard() == [packet("a", b"kept", 1, 1)]
    assert talk.say(mqtt5.PubAckPacket(1)) == [PublicationAccepted(kept)]


def test_a_message_withdrawn_in_flight_is_forgotten_with_a_lost_session() -> None:
    talk = connected()
    sending, _ = talk.protocol.publish(publication("a", b"x", qos=1), talk.now)
    talk.heard()
    talk.protocol.withdraw(sending)
    talk.reconnect(session_present=False)
    assert talk.heard() == []


def test_a_message_loses_of_its_expiry_what_it_waited_and_is_given_up_when_nothing_is_left() -> None:
    talk = Conversation()
    short, _ = talk.protocol.publish(publication("a", b"short", qos=1, expiry_s=5), talk.now)
    talk.protocol.publish(publication("a", b"long", qos=1, expiry_s=60), talk.now)
    talk.now += 7 * SECOND
    assert PublicationExpired(short) in talk.connect()
    (sent,) = talk.heard()
    assert isinstance(sent, mqtt5.PublishPacket)
    assert (sent.payload, sent.message_expiry_interval) == (b"long", 53)


@pytest.mark.parametrize(
    ("answer", "message", "code"),
    [
        (mqtt5.ConnAckPacket(max_packet_size=100), publication("a", b"x" * 100, qos=1), 0x95),
        (mqtt5.ConnAckPacket(max_qos=mqtt5.QoS.AT_LEAST_ONCE), publication("a", b"", qos=2), 0x9B),
        (mqtt5.ConnAckPacket(retain_available=False), publication("a", b"", retain=True), 0x9A),
    ],
)
def test_what_the_broker_does_not_take_is_not_sent_to_it(
    answer: mqtt5.ConnAckPacket, message: object, code: int
) -> None:
    talk = connected(answer=answer)
    _, events = talk.protocol.publish(message, talk.now)  # type: ignore[arg-type]
    assert [event.code for event in events if isinstance(event, PublicationRejected)] == [code]
    assert talk.heard() == []


def test_in_an_inherited_session_a_packet_id_is_freed_before_its_first_use_for_qos_2() -> None:
    talk = Conversation(SessionSettings("me", clean_start=False, session_expiry_s=60))
    talk.connect(mqtt5.ConnAckPacket(session_present=True))
    sending, _ = talk.protocol.publish(publication("a", b"x", qos=2), talk.now)
    assert talk.heard() == [mqtt5.PubRelPacket(1), packet("a", b"x", 2, 1)]
    unknown = mqtt5.PubCompPacket(1, reason_code=mqtt5.PubCompReasonCode.PACKET_ID_NOT_FOUND)
    assert talk.say(unknown, mqtt5.PubRecPacket(1)) == []
    assert talk.heard() == [mqtt5.PubRelPacket(1)]
    assert talk.say(mqtt5.PubCompPacket(1)) == [PublicationAccepted(sending)]


def test_answers_that_come_too_late_are_harmless() -> None:
    talk = connected()
    assert talk.say(mqtt5.PubAckPacket(7), mqtt5.PubCompPacket(8)) == []
    assert talk.say(mqtt5.PubRecPacket(9)) == []
    code = mqtt5.PubRelReasonCode.PACKET_ID_NOT_FOUND
    assert talk.heard() == [mqtt5.PubRelPacket(9, reason_code=code)]


def test_packet_ids_go_round_and_skip_those_in_use() -> None:
    ids = PacketIds()
    taken = [ids.take() for _ in range(IDS_MAX)]
    assert taken == list(range(1, IDS_MAX + 1))
    with pytest.raises(InvalidRequest):
        ids.take()
    ids.give_back(5)
    ids.give_back(9)
    assert [ids.take(), ids.take()] == [5, 9]


# Receiving


def test_a_message_is_acknowledged_when_the_application_is_done_with_it() -> None:
    talk = connected()
    (first,) = talk.messages(packet("a", b"1", 1, 11))
    assert talk.heard() == []
    talk.done(first)
    assert talk.heard() == [mqtt5.PubAckPacket(11)]


def test_acknowledgements_leave_in_the_order_of_arrival() -> None:
    talk = connected()
    first, second, third = talk.messages(packet("a", b"1", 1, 1), packet("b", b"2", 2, 2), packet("a", b"3", 1, 3))
    talk.done(third)
    talk.done(second)
    assert talk.heard() == []
    talk.done(first)
    assert talk.heard() == [mqtt5.PubAckPacket(1), mqtt5.PubRecPacket(2), mqtt5.PubAckPacket(3)]


def test_a_message_with_two_readers_is_acknowledged_when_both_are_done() -> None:
    talk = connected()
    (message,) = talk.messages(packet("a", b"1", 1, 1))
    message.read_by(2)
    talk.done(message)
    assert talk.heard() == []
    talk.done(message)
    assert talk.heard() == [mqtt5.PubAckPacket(1)]


def test_qos_2_comes_once_until_it_is_released() -> None:
    talk = connected()
    (message,) = talk.messages(packet("a", b"1", 2, 1))
    talk.done(message)
    assert talk.messages(packet("a", b"1", 2, 1, duplicate=True)) == []
    assert talk.heard() == [mqtt5.PubRecPacket(1), mqtt5.PubRecPacket(1)]
    talk.say(mqtt5.PubRelPacket(1))
    assert talk.heard() == [mqtt5.PubCompPacket(1)]
    (another,) = talk.messages(packet("a", b"2", 2, 1))
    assert another.body == b"2"


def test_a_release_of_what_is_not_known_is_answered_so() -> None:
    talk = connected()
    talk.say(mqtt5.PubRelPacket(1))
    code = mqtt5.PubCompReasonCode.PACKET_ID_NOT_FOUND
    assert talk.heard() == [mqtt5.PubCompPacket(1, reason_code=code)]


@pytest.mark.parametrize("qos", [1, 2])
def test_what_the_application_has_is_not_given_to_it_again_after_a_lost_connection(qos: int) -> None:
    talk = connected(SessionSettings("me", session_expiry_s=60))
    first, second = talk.messages(packet("a", b"1", qos, 1), packet("a", b"2", qos, 2))
    talk.protocol.lost()
    talk.done(first)
    talk.connect(mqtt5.ConnAckPacket(session_present=True))
    assert talk.heard() == []
    again = packet("a", b"1", qos, 1, duplicate=True), packet("a", b"2", qos, 2, duplicate=True)
    assert talk.messages(*again) == []
    ack = mqtt5.PubAckPacket if qos == 1 else mqtt5.PubRecPacket
    assert talk.heard() == [ack(1)]
    talk.done(second)
    assert talk.heard() == [ack(2)]


def test_an_old_packet_id_on_a_new_message_is_a_new_message() -> None:
    talk = connected(SessionSettings("me", session_expiry_s=60))
    talk.messages(packet("a", b"old", 1, 1))
    talk.reconnect(session_present=True)
    (fresh,) = talk.messages(packet("a", b"new", 1, 1, duplicate=True))
    assert fresh.body == b"new"


def test_what_was_owed_in_a_lost_session_is_owed_no_more() -> None:
    talk = connected(SessionSettings("me", session_expiry_s=60))
    (old,) = talk.messages(packet("a", b"old", 1, 1))
    talk.reconnect(session_present=False)
    (new,) = talk.messages(packet("a", b"new", 1, 1))
    talk.done(old)
    assert talk.heard() == []
    talk.done(new)
    assert talk.heard() == [mqtt5.PubAckPacket(1)]


def test_a_broker_that_sends_more_than_was_agreed_is_let_be() -> None:
    talk = connected(SessionSettings("me", receive_max=2))
    arrived = talk.messages(*(packet("a", b"", 1, packet_id) for packet_id in range(1, 6)))
    for message in arrived:
        talk.done(message)
    assert talk.heard() == [mqtt5.PubAckPacket(packet_id) for packet_id in range(1, 6)]


# Subscribing


def subscribe_packet(packet_id: int, identifier: int | None, *filters: str, qos: int = 0) -> mqtt5.SubscribePacket:
    wanted = [
        mqtt5.TopicFilter(topic_filter, max_qos=mqtt5.QoS(qos), retain_as_published=False) for topic_filter in filters
    ]
    return mqtt5.SubscribePacket(packet_id, wanted, subscription_id=identifier)


def test_a_subscription_is_asked_for_with_its_number_and_told_when_granted() -> None:
    talk = connected()
    talk.protocol.subscribe(
        7, WantedSubscription(("a/#", "b"), Qos.AT_LEAST_ONCE, properties=(("overlane-deadline", "50ms"),))
    )
    (asked,) = talk.heard()
    assert isinstance(asked, mqtt5.SubscribePacket)
    assert [wanted.pattern for wanted in asked.topic_filters] == ["a/#", "b"]
    assert (asked.subscription_id, asked.user_properties) == (7, [("overlane-deadline", "50ms")])
    assert talk.protocol.unanswered == 1
    granted = mqtt5.SubAckPacket(1, [SubAck.GRANTED_QOS_AT_LEAST_ONCE, SubAck.GRANTED_QOS_AT_MOST_ONCE])
    assert talk.say(granted) == [Subscribed(7)]
    assert talk.protocol.unanswered == 0


def test_a_broker_without_identifiers_is_asked_without() -> None:
    talk = connected(answer=mqtt5.ConnAckPacket(subscription_id_available=False))
    talk.protocol.subscribe(1, WantedSubscription(("a",)))
    assert talk.heard() == [subscribe_packet(1, None, "a")]


def test_a_subscription_refused_in_part_is_refused_as_a_whole() -> None:
    talk = connected()
    talk.protocol.subscribe(1, WantedSubscription(("a", "b")))
    talk.heard()
    answer = mqtt5.SubAckPacket(1, [SubAck.GRANTED_QOS_AT_MOST_ONCE, SubAck.NOT_AUTHORIZED], reason_str="b is secret")
    assert talk.say(answer) == [SubscriptionRefused(1, "b", 0x87, "b is secret")]
    assert talk.heard() == [mqtt5.UnsubscribePacket(2, ["a", "b"])]


def test_subscriptions_are_renewed_only_when_the_session_is_lost() -> None:
    talk = connected(SessionSettings("me", session_expiry_s=60))
    talk.protocol.subscribe(1, WantedSubscription(("a",)))
    talk.say(mqtt5.SubAckPacket(1, [SubAck.GRANTED_QOS_AT_MOST_ONCE]))
    talk.heard()
    talk.reconnect(session_present=True)
    assert talk.heard() == []
    talk.reconnect(session_present=False)
    assert talk.heard() == [subscribe_packet(2, 1, "a")]


def test_what_was_asked_and_not_answered_is_asked_again() -> None:
    talk = connected(SessionSettings("me", session_expiry_s=60))
    for number, name in enumerate(("a", "b"), 1):
        talk.protocol.subscribe(number, WantedSubscription((name,)))
    talk.say(mqtt5.SubAckPacket(1, [SubAck.GRANTED_QOS_AT_MOST_ONCE]))
    talk.protocol.unsubscribe(1)
    talk.protocol.lost()
    talk.protocol.subscribe(3, WantedSubscription(("c",)))
    talk.heard()
    talk.connect(mqtt5.ConnAckPacket(session_present=True))
    assert talk.heard() == [
        mqtt5.UnsubscribePacket(4, ["a"]),
        subscribe_packet(5, 2, "b"),
        subscribe_packet(6, 3, "c"),
    ]
    assert talk.say(mqtt5.UnsubAckPacket(4, [mqtt5.UnsubAckReasonCode.SUCCESS])) == [Unsubscribed(1)]


def test_what_is_left_to_the_session_is_neither_ended_nor_renewed() -> None:
    talk = connected(SessionSettings("me", session_expiry_s=60))
    talk.protocol.subscribe(1, WantedSubscription(("a",)))
    talk.say(mqtt5.SubAckPacket(1, [SubAck.GRANTED_QOS_AT_MOST_ONCE]))
    talk.heard()
    talk.protocol.forget(1)
    assert talk.heard() == []
    talk.reconnect(session_present=False)
    assert talk.heard() == []
