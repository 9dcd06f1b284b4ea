"""A new configuration is taken up whole by the inputs that follow in the same turn, or refused whole."""

from dataclasses import replace

import mqtt5
import pytest

from overlane.core.config import BrokerConfig
from overlane.core.events import Close, LinkUp
from overlane.core.qos import QosClass, QosTable
from overlane.core.units import SECOND, Nanos
from overlane.membership.endpoint import Endpoint
from overlane.membership.membership import Member, MemberLink, Membership
from overlane.membership.neighbours import NeighbourConfig
from overlane.mqtt.connection import Connection
from overlane.pubsub.cluster.cluster import overlay_table
from overlane.pubsub.contract.connection import Phase
from overlane.pubsub.contract.consumer import Peer
from overlane.pubsub.contract.questions import LoginVerdict
from overlane.pubsub.limits import Limits
from overlane.pubsub.state import Settings
from overlane.turn.assembly import assemble
from overlane.turn.reconfigure import Reconfigure, RestartNeeded
from overlane.turn.turn import Turn

NOW: Nanos = 1_000 * SECOND
AT = Endpoint("10.0.0.1", 7001)
ALONE = Membership((Member(name="here"),))
LINKED = Membership(
    (Member(name="here"), Member(name="peer", addresses=(AT,))), (MemberLink(ends=("here", "peer"), failure=0.1),)
)


def broker() -> Turn:
    settings = Settings()
    config = BrokerConfig("here", overlay_table(settings.qos))
    turn = assemble(config, settings, 1, (), NOW, lambda: "fresh", is_alone=True)
    turn.start(NOW)
    turn.end(NOW)
    return turn


def connect(turn: Turn) -> Connection:
    server = turn.server
    connection = server.connected(Peer("127.0.0.1:1"), NOW)
    server.receive(connection, mqtt5.ConnectPacket("c").write(), NOW)
    for _ in server.take_questions():
        server.authenticated(connection, LoginVerdict.IS_ANONYMOUS, NOW)
    return connection


def subscribe(turn: Turn) -> int:
    """The answer to a SUBSCRIBE for two filters, of a client that connects now."""
    server, connection = turn.server, connect(turn)
    filters = [mqtt5.TopicFilter("a"), mqtt5.TopicFilter("b")]
    server.receive(connection, mqtt5.SubscribePacket(1, filters).write(), NOW)
    chunks, _ = connection.taken()
    return b"".join(chunks)[-1]


def test_limits_and_classes_hold_in_the_same_turn() -> None:
    turn = broker()
    assert subscribe(turn) < 0x80
    urgent = QosClass(deadline_ns=SECOND)
    settings = Settings(Limits(subscriptions_per_client=1, brokers=20), qos=QosTable({"t": urgent}))
    turn.reconfigure(Reconfigure(ALONE, settings), NOW)
    assert subscribe(turn) >= 0x80
    assert turn.server.state.settings.qos.of("t") == turn.core.config.qos.of("t") == urgent
    assert turn.core.config.brokers_max == 20


def test_a_link_that_comes_is_for_the_driver_to_make_and_the_broker_is_no_longer_alone() -> None:
    turn = broker()
    changes = turn.reconfigure(Reconfigure(LINKED, Settings()), NOW)
    assert changes.set == {"peer": NeighbourConfig(addresses=(AT,), failure=0.1)}
    assert turn.core.config.named == {"here", "peer"}
    assert turn.core.needs_size()[0] > 0  # it wants what is retained elsewhere
    again = turn.reconfigure(Reconfigure(LINKED, Settings()), NOW)
    assert (again.gone, again.set) == ((), {})


def test_a_link_that_goes_is_closed_at_the_end_of_the_turn_and_the_neighbour_told_why() -> None:
    turn = broker()
    turn.reconfigure(Reconfigure(LINKED, Settings()), NOW)
    turn.handle(LinkUp("peer"), NOW)
    turn.end(NOW)
    changes = turn.reconfigure(Reconfigure(ALONE, Settings()), NOW)
    assert (changes.gone, changes.set) == (("peer",), {})
    (close,) = [effect for effect in turn.end(NOW).told if isinstance(effect, Close)]
    assert (close.peer, close.reason) == ("peer", "no longer a neighbour")
    assert b"no longer a neighbour" in close.last_words


@pytest.mark.parametrize("lowered", [Limits(in_flight=1), Limits(topic_aliases=0)])
def test_a_client_may_keep_to_the_limits_that_it_was_told_until_it_connects_again(lowered: Limits) -> None:
    turn = broker()
    before, publish = connect(turn), mqtt5.PublishPacket("t", b"", qos=mqtt5.QoS.EXACTLY_ONCE, packet_id=1)
    turn.server.receive(before, publish.write(), NOW)
    turn.reconfigure(Reconfigure(ALONE, Settings(lowered)), NOW)
    more = mqtt5.PublishPacket("t", b"", qos=mqtt5.QoS.EXACTLY_ONCE, packet_id=2, topic_alias=1)
    turn.server.receive(before, more.write(), NOW)
    assert before.phase is Phase.OPEN
    after = connect(turn)
    for packet in (publish, more):
        turn.server.receive(after, packet.write(), NOW)
    assert after.phase is Phase.CLOSED


def test_what_takes_a_restart_is_refused_whole() -> None:
    kept = QosTable({"t": QosClass(history=5)})
    turn = broker()
    before = turn.server.state.settings
    settings = replace(before, limits=Limits(brokers=20), qos=kept)
    with pytest.raises(RestartNeeded, match="here: history cannot change"):
        turn.reconfigure(Reconfigure(LINKED, settings), NOW)
    assert turn.core.config.brokers_max == 1024
    assert turn.server.state.settings is before
    assert turn.reconfigure(Reconfigure(ALONE, Settings()), NOW).gone == ()
