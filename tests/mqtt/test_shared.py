"""Shared subscriptions: each message to one member of the group, and what happens when members go."""

from collections import Counter

import mqtt5
from clients import Bench, Client, Got

from overlane.core.events import Deliver, PublishResult
from overlane.core.qos import QosClass
from overlane.core.units import NEVER, Nanos
from overlane.pubsub.access import Rule
from overlane.pubsub.cluster import envelope
from overlane.pubsub.cluster.names import share_name
from overlane.pubsub.cluster.uplink import Alone
from overlane.pubsub.counters import Drop
from overlane.pubsub.message import Message


def team(bench: Bench, *names: str, qos: int = 1, expiry: int = 60, group: str = "$share/g/t/#") -> list[Client]:
    members = [bench.client(name, expiry=expiry) for name in names]
    for member in members:
        assert member.subscribe(group, qos=qos) == [qos]
    return members


def payloads(client: Client) -> list[int]:
    return [int(got.payload) for got in client.got()]


def test_each_message_goes_to_one_member_and_they_take_turns() -> None:
    # MQTT-4.8.2-3, section 4.8.2
    bench = Bench()
    members = team(bench, "a", "b", "c", qos=2)
    bob = bench.client("bob")
    for number in range(30):
        bob.publish("t/1", b"%d" % number, qos=number % 3)
    got = [payloads(member) for member in members]
    assert sorted(number for each in got for number in each) == list(range(30))
    assert [len(each) for each in got] == [10, 10, 10]


def test_each_group_gets_a_copy_and_so_does_everybody_else() -> None:
    bench = Bench()
    first, second = team(bench, "a"), team(bench, "b", group="$share/other/t/#")
    alone = bench.client("alone")
    alone.subscribe("t/1")
    bench.client("bob").publish("t/1", b"7", qos=1)
    assert payloads(first[0]) == payloads(second[0]) == payloads(alone) == [7]


def test_groups_of_the_same_name_with_different_filters_are_different() -> None:
    bench = Bench()
    (a,), (b,) = team(bench, "a"), team(bench, "b", group="$share/g/t/1")
    bench.client("bob").publish("t/1", b"7", qos=1)
    assert payloads(a) == payloads(b) == [7]


def test_a_member_may_subscribe_by_itself_too() -> None:
    bench = Bench()
    (a,) = team(bench, "a")
    a.subscribe("t/1")
    bench.client("bob").publish("t/1", b"7")
    assert payloads(a) == [7, 7]


def test_the_quality_and_identifier_are_those_of_the_member() -> None:
    bench = Bench()
    a = bench.client("a")
    a.subscribe("$share/g/t", qos=1, identifier=9, as_published=True)
    bench.client("bob").publish("t", b"x", qos=2, retain=True)
    assert a.got() == [Got("t", b"x", qos=1, retain=True, ids=(9,))]


def test_a_new_member_gets_no_retained_messages() -> None:
    # MQTT 5, section 4.8.2 and 3.8.4
    bench = Bench()
    bench.client("bob").publish("t/1", b"x", qos=1, retain=True)
    (a,) = team(bench, "a")
    a.subscribe("$share/g/t/#", handling=0)
    assert a.got() == []


def test_a_subscription_made_again_keeps_the_member() -> None:
    bench = Bench()
    a, b = team(bench, "a", "b")
    a.subscribe("$share/g/t/#", qos=2)
    bob = bench.client("bob")
    for number in range(10):
        bob.publish("t/1", b"%d" % number, qos=2)
    assert Counter(got.qos for got in a.got()) == {2: 5}
    assert Counter(got.qos for got in b.got()) == {1: 5}


def test_the_only_member_may_subscribe_again() -> None:
    bench = Bench()
    (a,) = team(bench, "a")
    a.subscribe("$share/g/t/#", qos=0)
    bench.client("bob").publish("t/1", b"1", qos=1)
    assert a.got() == [Got("t/1", b"1")]


def test_members_that_are_there_come_before_those_that_are_away() -> None:
    bench = Bench()
    a, b = team(bench, "a", "b")
    a.drop()
    bob = bench.client("bob")
    for number in range(10):
        bob.publish("t/1", b"%d" % number, qos=number % 2)
    assert payloads(b) == list(range(10))
    a.reconnect()
    assert payloads(a) == []


def test_a_member_with_a_full_window_is_passed_over() -> None:
    bench = Bench()
    a, b = team(bench, "a", "b")
    a.polite = False
    a.drop()
    a.reconnect(receive_max=1)
    bob = bench.client("bob")
    for number in range(10):
        bob.publish("t/1", b"%d" % number, qos=1)
    assert len(a.got()) == 1
    assert len(b.got()) == 9


def test_when_all_are_away_messages_wait_for_one_of_them() -> None:
    bench = Bench()
    a, b = team(bench, "a", "b")
    a.drop()
    b.drop()
    bob = bench.client("bob")
    for number in range(10):
        assert bob.publish("t/1", b"%d" % number, qos=1) == 0
    a.reconnect()
    b.reconnect()
    assert sorted(payloads(a) + payloads(b)) == list(range(10))


def test_a_member_whose_queue_is_full_is_passed_over() -> None:
    bench = Bench(queue_messages=3)
    a, b = team(bench, "a", "b")
    a.drop()
    b.drop()
    bob = bench.client("bob")
    for number in range(7):
        bob.publish("t/1", b"%d" % number, qos=1)
    assert bench.server.counters.dropped[Drop.QUEUE_FULL] == 1
    a.reconnect()
    b.reconnect()
    assert sorted(payloads(a) + payloads(b)) == list(range(6))


def test_a_message_under_way_waits_for_its_member_to_come_back() -> None:
    # MQTT-4.8.2-4
    bench = Bench()
    a, b = team(bench, "a", "b", qos=2)
    a.polite = False
    bob = bench.client("bob")
    bob.publish("t/1", b"0", qos=2)
    bob.publish("t/1", b"1", qos=2)
    first = a.got() + b.got()
    assert len(first) == 2
    a.drop()
    a.polite = True
    a.reconnect()
    assert b.got() == []
    assert a.owed == {}


def test_what_a_member_that_leaves_for_good_has_not_acknowledged_goes_to_another() -> None:
    # MQTT 5, section 4.8.2: QoS 1 may, QoS 2 must not (MQTT-4.8.2-5)
    bench = Bench()
    a, b = team(bench, "a", "b", qos=2)
    a.polite = False
    bob = bench.client("bob")
    for number in range(8):
        bob.publish("t/1", b"%d" % number, qos=1 + number // 4)
    at_a, at_b = payloads(a), payloads(b)
    assert sorted(at_a + at_b) == list(range(8))
    a.disconnect(expiry=0)
    assert payloads(b) == [number for number in at_a if number < 4]
    assert bench.server.counters.dropped[Drop.SESSION_ENDED] == len([number for number in at_a if number >= 4])


def test_qos_2_messages_that_were_never_sent_go_to_another_member_when_a_session_expires() -> None:
    bench = Bench()
    (a,) = team(bench, "a", qos=2)
    a.drop()
    bob = bench.client("bob")
    for number in range(5):
        bob.publish("t/1", b"%d" % number, qos=2)
    b = bench.client("b", expiry=600)
    b.subscribe("$share/g/t/#", qos=2)
    bench.crash()
    b.reconnect()
    bench.wait(61)
    assert payloads(b) == list(range(5))
    assert "mqtt.queue@2" not in bench.tables()


def test_qos_2_messages_that_may_have_been_sent_before_a_crash_go_to_nobody_else() -> None:
    # MQTT-4.8.2-5
    bench = Bench()
    (a,) = team(bench, "a", qos=2)
    a.polite = False
    bench.client("bob").publish("t/1", b"0", qos=2)
    b = bench.client("b", expiry=600)
    b.subscribe("$share/g/t/#", qos=2)
    bench.crash()
    b.reconnect()
    bench.wait(61)
    assert payloads(b) == []
    assert bench.tables() == {"mqtt.session": 1, "mqtt.subscription": 1}


def test_messages_of_ordinary_subscriptions_do_not_go_to_others() -> None:
    bench = Bench()
    a, b = team(bench, "a", "b")
    a.subscribe("own", qos=1)
    a.drop()
    bench.client("bob").publish("own", b"1", qos=1)
    bench.wait(61)
    assert b.got() == []


def test_when_the_last_member_leaves_the_group_is_gone() -> None:
    bench = Bench()
    a, b = team(bench, "a", "b")
    a.unsubscribe("$share/g/t/#")
    b.drop()
    bench.wait(61)
    assert bench.client("bob").publish("t/1", b"", qos=1) == 0x10


def test_groups_survive_a_crash() -> None:
    bench = Bench()
    a, b = team(bench, "a", "b")
    bench.crash()
    a.reconnect()
    b.reconnect()
    bob = bench.client("bob")
    for number in range(10):
        bob.publish("t/1", b"%d" % number, qos=1)
    assert sorted(payloads(a) + payloads(b)) == list(range(10))


def test_only_members_that_may_have_a_message_are_chosen() -> None:
    rules = [
        Rule(user="anonymous", publish=("#",), subscribe=("t/open/#",)),
        Rule(user="trusted", subscribe=("t/#",)),
    ]
    bench = Bench(
        rules=[Rule(user="anonymous", subscribe=("#",)), Rule(user="*", subscribe=("#",))], users={"trusted": b"x"}
    )
    anybody = bench.client("anybody")
    trusted = bench.client("trusted", username="trusted", password=b"x")
    for member in (anybody, trusted):
        assert member.subscribe("$share/g/t/#", qos=1) == [1]
    bench.reconfigure(rules)
    bob = bench.client("bob")
    for number in range(10):
        bob.publish("t/secret", b"%d" % number, qos=number % 2)
    assert payloads(trusted) == list(range(10))
    assert payloads(anybody) == []


def test_the_right_to_subscribe_is_judged_by_the_filter_behind_the_group() -> None:
    bench = Bench(rules=[Rule(user="anonymous", subscribe=("t/#",))])
    assert bench.client("a").subscribe("$share/g/t/1", "$share/g/u", "$share/g/#") == [0, 0x87, 0x87]


def test_clients_of_3_1_1_may_share_too() -> None:
    bench = Bench()
    a, b = bench.client("a", 4), bench.client("b", 5)
    a.subscribe("$share/g/t")
    b.subscribe("$share/g/t")
    bob = bench.client("bob")
    for number in range(4):
        bob.publish("t", b"%d" % number)
    assert len(a.got()) == len(b.got()) == 2


def test_a_wills_message_is_shared_like_any_other() -> None:
    bench = Bench()
    a, b = team(bench, "a", "b")
    bob = bench.client("bob", will=mqtt5.Will("t/1", payload=b"1"))
    bob.drop()
    assert sorted(payloads(a) + payloads(b)) == [1]


class Denver(Alone):
    """A broker elsewhere, where the group has members, once it has told so."""

    is_alone = False

    def __init__(self) -> None:
        self.published: list[tuple[str, bool]] = []

    def can_reach(self, broker: str) -> bool:
        return broker == "denver"

    def publish(
        self,
        topic: str,
        body: bytes,  # noqa: ARG002
        flags: int,  # noqa: ARG002
        qos: QosClass,
        now: Nanos,  # noqa: ARG002
        served: tuple[str, ...] = (),  # noqa: ARG002
    ) -> PublishResult:
        self.published.append((topic, qos.reliable))
        return PublishResult.ACCEPTED


def test_what_the_last_member_here_has_not_acknowledged_goes_to_members_at_other_brokers() -> None:
    """Found by seed 10 of the soak of whole brokers."""
    denver = Denver()
    bench = Bench(uplink=denver)
    (a,) = team(bench, "a", expiry=0)
    a.polite = False
    bench.client("bob").publish("t/1", b"7", qos=1)
    bench.server.pubsub.interest_changed(share_name("g", "denver", "t/#", "t/#"), "denver", True, bench.now)
    a.drop()
    assert denver.published == [(share_name("g", "denver", "t/#", "t/1"), True)]
    assert not bench.server.state.counters.dropped[Drop.SESSION_ENDED]


def test_what_comes_for_the_group_after_its_last_member_here_has_gone_goes_on_to_another_broker() -> None:
    """Found by seed 16 of the soak of whole brokers."""
    denver = Denver()
    bench = Bench(uplink=denver)
    bench.server.pubsub.interest_changed(share_name("g", "denver", "t/#", "t/#"), "denver", True, bench.now)
    here = share_name("g", "seattle", "t/#", "t/1")
    for qos in (1, 2):
        flags, body = envelope.pack(Message("t/1", b"7", qos), bench.now)
        effect = Deliver([(here, flags, body)], {here: ()}, "orlando", 0, NEVER, reliable=True)
        assert bench.deliver(effect).is_taken
    assert denver.published == [(share_name("g", "denver", "t/#", "t/1"), True)] * 2
    assert not bench.server.state.counters.dropped[Drop.SESSION_ENDED]


def test_what_comes_for_the_group_when_it_has_no_members_anywhere_is_counted() -> None:
    denver = Denver()
    bench = Bench(uplink=denver)
    here = share_name("g", "seattle", "t/#", "t/1")
    flags, body = envelope.pack(Message("t/1", b"7", 1), bench.now)
    bench.deliver(Deliver([(here, flags, body)], {here: ()}, "orlando", 0, NEVER, reliable=True))
    assert denver.published == []
    assert bench.server.state.counters.dropped[Drop.SESSION_ENDED] == 1
