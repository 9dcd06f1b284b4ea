"""Messages of QoS 1 that come again although they were acknowledged: given to the application once, where the broker
has promised that its packet ids tell them from new ones."""

import mqtt5
import pytest
from conversation import Conversation, packet

from overlane.client.protocol import SessionSettings
from overlane.client.protocol.incoming import FINISHED_MAX
from overlane.pubsub.sessions.deduplication import PROPERTY

PROMISED = [(PROPERTY, "my-life")]


def connected(promise: list[tuple[str, str]] | None) -> Conversation:
    talk = Conversation(SessionSettings("me", run="my-life"))
    talk.connect(mqtt5.ConnAckPacket(user_properties=promise))
    return talk


def again(talk: Conversation, promise: list[tuple[str, str]] | None, session_present: bool = True) -> None:
    talk.protocol.lost()
    talk.connect(mqtt5.ConnAckPacket(session_present=session_present, user_properties=promise))
    talk.heard()


def given(talk: Conversation, *packets: mqtt5.PublishPacket) -> list[bytes]:
    """What reaches the application, which is done with it at once."""
    messages = talk.messages(*packets)
    for message in messages:
        talk.done(message)
    return [bytes(message.body) for message in messages]


def test_it_is_asked_for_with_the_name_of_this_life() -> None:
    talk = Conversation(SessionSettings("me", run="my-life"))
    talk.protocol.opened()
    (connect,) = talk.heard()
    assert isinstance(connect, mqtt5.ConnectPacket)
    assert connect.user_properties == PROMISED


def test_what_was_acknowledged_and_comes_again_is_acknowledged_again_and_not_given() -> None:
    talk = connected(PROMISED)
    assert given(talk, packet("t", b"x", 1, 7)) == [b"x"]
    again(talk, PROMISED)
    assert given(talk, packet("t", b"x", 1, 7, duplicate=True), packet("t", b"y", 1, 8)) == [b"y"]
    assert talk.heard() == [mqtt5.PubAckPacket(7), mqtt5.PubAckPacket(8)]


def test_its_acknowledgement_waits_for_those_before_it() -> None:
    talk = connected(PROMISED)
    (unread,) = talk.messages(packet("t", b"unread", 1, 6))
    (read,) = talk.messages(packet("t", b"x", 1, 7))
    again(talk, PROMISED)
    assert given(talk, packet("t", b"unread", 1, 6, duplicate=True), packet("t", b"x", 1, 7, duplicate=True)) == []
    talk.done(read)
    assert talk.heard() == []
    talk.done(unread)
    assert talk.heard() == [mqtt5.PubAckPacket(6), mqtt5.PubAckPacket(7)]


@pytest.mark.parametrize("promise", [None, [(PROPERTY, "the life of another")]])
def test_a_broker_that_has_promised_nothing_may_use_the_id_for_another_message(
    promise: list[tuple[str, str]] | None,
) -> None:
    talk = connected(promise)
    assert given(talk, packet("t", b"x", 1, 7)) == [b"x"]
    again(talk, promise)
    assert given(talk, packet("t", b"x", 1, 7, duplicate=True)) == [b"x"]


def test_what_a_broker_does_not_know_it_has_sent_is_recognised_too() -> None:
    talk = connected(PROMISED)
    assert given(talk, packet("t", b"x", 1, 7)) == [b"x"]
    again(talk, PROMISED)
    assert given(talk, packet("t", b"x", 1, 7)) == []


def test_nothing_is_recognised_when_the_session_was_lost() -> None:
    talk = connected(PROMISED)
    assert given(talk, packet("t", b"x", 1, 7)) == [b"x"]
    again(talk, PROMISED, session_present=False)
    assert given(talk, packet("t", b"x", 1, 7, duplicate=True)) == [b"x"]


def test_an_id_that_comes_round_again_is_a_new_message() -> None:
    talk = connected(PROMISED)
    for number in range(1, FINISHED_MAX + 2):
        given(talk, packet("t", b"", 1, number))
    assert given(talk, packet("t", b"latest", 1, FINISHED_MAX + 1), packet("t", b"round again", 1, 1)) == [
        b"round again"
    ]
