"""Gossip: everybody hears everything once, and who was away catches up."""

from collections import Counter

from handwired import Overlay

from overlane.core.events import Lane, Leave, Subscribe
from overlane.core.gossip.link_state import FORGET_AFTER
from overlane.core.qos import QosClass
from overlane.core.units import MS
from overlane.core.wire import frame_codec
from overlane.core.wire.control_messages import Advert, ControlMessage, GossipSummary, InterestUpdate, decode

RING = {"a-b": 10, "b-c": 10, "a-c": 10}
LINE = {"a-b": 10, "b-c": 10, "c-d": 10}


def messages(net: Overlay, since: int = 0) -> list[tuple[str, str, ControlMessage]]:
    """The control messages that were sent: from, to, what."""
    found = []
    for sender, receiver, lane, data in net.frames[since:]:
        if lane is Lane.CONTROL:
            for kind, body in frame_codec.split(data)[0]:
                if kind == frame_codec.FrameType.CONTROL:
                    found.append((sender, receiver, decode(frame_codec.read_control(body)[1])))
    return found


def settled(links: dict[str, int], **topics: QosClass) -> Overlay:
    net = Overlay(links, topics)
    net.run(3_000)
    return net


def test_new_neighbours_tell_each_other_everything_and_all_draw_the_same_map() -> None:
    net = settled(RING)
    assert len(net.digests()) == 1
    routes = {name: broker.map_digest() for name, broker in net.brokers.items()}
    assert len(set(routes.values())) == 1


def test_a_change_of_interest_goes_over_each_link_at_most_once_each_way() -> None:
    net = settled(RING)
    before = len(net.frames)
    net.subscribe("a", "t/#")
    net.run(1_000)
    told = [(sender, receiver) for sender, receiver, one in messages(net, before) if isinstance(one, InterestUpdate)]
    assert sorted(told) == [("a", "b"), ("a", "c"), ("b", "c"), ("c", "b")]
    assert len(net.digests()) == 1


def test_in_quiet_times_nothing_is_told_twice() -> None:
    net = settled(LINE)
    before = len(net.frames)
    net.run(30_000)
    assert messages(net, before) == []


def test_a_broken_link_is_known_everywhere() -> None:
    net = settled({"a-b": 10, "b-c": 10, "c-d": 10, "a-d": 10})
    whole = net.digests()
    net.cut("a", "b")
    net.run(500)
    assert len(net.digests()) == 1
    assert net.digests() != whole


def test_a_broker_that_was_away_catches_up_by_its_neighbour_alone() -> None:
    net = settled(LINE)
    net.cut("a", "b")
    net.run(1_000)
    for number in range(5):
        net.subscribe("d", f"t/{number}")
        net.run(100)
    net.unsubscribe("d", "t/0")
    net.run(1_000)
    before = len(net.frames)
    net.join("a", "b")
    net.run(2_000)
    assert len(net.digests()) == 1
    to_a = [one for _, receiver, one in messages(net, before) if receiver == "a" and isinstance(one, InterestUpdate)]
    assert to_a == [
        InterestUpdate("d", net.brokers["d"].incarnation, 6, -1, [f"t/{number}" for number in range(1, 5)], [])
    ]


def test_a_new_neighbour_is_sent_only_what_it_lacks() -> None:
    net = settled(LINE)
    net.subscribe("d", "t")
    net.run(1_000)
    net.cut("a", "b")
    net.join("a", "b")
    before = len(net.frames)
    net.run(15)
    told = Counter(type(one) for _, _, one in messages(net, before))
    assert told[InterestUpdate] == 0
    assert told[GossipSummary] == 2
    assert all(one.broker in "ab" for _, _, one in messages(net, before) if isinstance(one, Advert))


def test_the_halves_of_a_divided_overlay_agree_again_once_joined() -> None:
    net = settled(LINE)
    net.cut("b", "c")
    net.subscribe("a", "left")
    net.subscribe("d", "right")
    net.run(5_000)
    assert len(net.digests()) == 2
    net.join("b", "c")
    net.run(5_000)
    assert len(net.digests()) == 1
    net.publish("a", "right", b"over")
    net.run(100)
    assert net.bodies("d") == [b"over"]


def test_a_restarted_broker_is_believed_although_its_numbers_begin_anew() -> None:
    net = settled(LINE)
    for number in range(5):
        net.subscribe("d", f"t/{number}")
        net.run(1_000)
    net.crash("d")
    net.run(1_000)
    net.restart("d")
    net.unsubscribe("d", "t/0")
    net.run(5_000)
    assert len(net.digests()) == 1
    net.publish("a", "t/0", b"no")
    net.publish("a", "t/1", b"yes")
    net.run(1_000)
    assert net.bodies("d") == [b"yes"]


def test_a_broker_that_leaves_is_gone_from_every_map_and_nothing_is_kept_for_it() -> None:
    net = settled(LINE, t=QosClass(reliable=True))
    net.subscribe("d", "t")
    net.run(500)
    net.cut("c", "d")
    net.publish("a", "t", b"kept")
    net.run(500)
    assert net.brokers["a"].counters["retained_bytes"] > 0
    net.join("c", "d")
    net.loses = lambda frame: frame[2] is Lane.DATA
    net.handle("d", Leave())
    net.run(100)
    assert net.brokers["a"].counters["retained_bytes"] == 0
    net.publish("a", "t", b"for nobody")
    assert net.brokers["a"].counters["retained_bytes"] == 0
    del net.brokers["d"]
    assert len(net.digests()) == 1


def test_a_broker_away_when_another_left_hears_of_it_even_long_after() -> None:
    net = settled(LINE, t=QosClass(reliable=True))
    net.subscribe("d", "t")
    net.run(500)
    net.cut("a", "b")
    net.run(500)
    net.handle("d", Leave())
    net.run(100)
    net.crash("d")
    net.run(2 * FORGET_AFTER // MS)
    net.join("a", "b")
    net.run(5_000)
    net.publish("a", "t", b"for nobody")
    assert net.brokers["a"].counters["retained_bytes"] == 0


def test_more_filters_than_fit_a_frame_reach_a_new_neighbour() -> None:
    net = Overlay({"a-b": 10})
    net.cut("a", "b")
    long = "level/" * 60
    for number in range(4_000):
        net.brokers["a"].handle(Subscribe("s", f"{long}{number}", durable=False), net.now)
    net.turn("a", [])
    net.join("a", "b")
    net.run(1_000)
    assert len(net.digests()) == 1
    net.publish("b", f"{long}3999", b"x")
    net.run(100)
    assert net.bodies("a") == [b"x"]
