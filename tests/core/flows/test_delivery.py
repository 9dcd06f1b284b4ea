"""From publisher to subscriber: retention, resending, order, history, and what survives a crash."""

from itertools import pairwise

import pytest
from handwired import Frame, Overlay

from overlane.core.events import Deliver, PublishResult, RouteChanged, Subscribe
from overlane.core.flows.outflow import PARCELS
from overlane.core.qos import HISTORY_ALL, QosClass, Routing
from overlane.core.units import MS, SECOND
from overlane.core.wire import frame_codec
from overlane.core.wire.frame_codec import FrameType

LINE = {"a-b": 10, "b-c": 10}
RELIABLE = QosClass(reliable=True)


def overlay(links: dict[str, int] = LINE, **topics: QosClass) -> Overlay:
    net = Overlay(links, topics)
    net.run(3_000)
    return net


def parcels(frame: Frame) -> bool:
    """Whether a frame carries a parcel."""
    return any(kind in (FrameType.PARCEL, FrameType.DETOUR) for kind, _ in frame_codec.split(frame[3])[0])


def retained(net: Overlay, broker: str) -> int:
    """Parcels that a broker keeps in its store."""
    return sum(table == PARCELS for table, _ in net.store[broker])


# Best effort


def test_a_message_reaches_every_broker_with_a_matching_subscriber_and_each_subscriber_once() -> None:
    net = overlay()
    net.subscribe("c", "t/#", "s")
    net.subscribe("c", "t/1", "s")
    net.subscribe("b", "t/+", "u")
    net.subscribe("a", "t/1", "here")
    net.run(500)
    net.publish("a", "t/1", b"x")
    net.run(500)
    assert [net.got(name) for name in "abc"] == [
        [("t/1", b"x", ("here",))],
        [("t/1", b"x", ("u",))],
        [("t/1", b"x", ("s",))],
    ]


def test_a_broker_on_the_way_that_was_restarted_is_told_of_the_route_with_the_first_parcel() -> None:
    """Before the source, which is far away, hears of it."""
    net = overlay({"a-b": 200, "b-c": 1, "c-d": 1})
    net.subscribe("d", "t")
    net.run(2_000)
    net.publish("a", "t", b"before")
    net.run(1_000)
    assert net.bodies("d") == [b"before"]
    net.publish("a", "t", b"under way")
    net.run(100)
    net.crash("c")
    net.restart("c")
    net.run(400)
    assert net.bodies("d") == [b"before", b"under way"]
    assert net.brokers["c"].counters["unroutable_dropped"] == 0


def test_messages_of_one_turn_to_the_same_brokers_share_a_parcel() -> None:
    net = overlay()
    net.subscribe("c", "#")
    net.run(500)
    before = net.brokers["a"].counters["parcels_sent"]
    net.publish("a", "t", b"1", b"2", b"3")
    net.run(500)
    assert net.bodies("c") == [b"1", b"2", b"3"]
    assert net.brokers["a"].counters["parcels_sent"] - before == 1


def test_a_parcel_knows_its_age_without_any_common_clock() -> None:
    net = overlay()
    net.subscribe("c", "t")
    net.run(500)
    net.publish("a", "t", b"x")
    net.run(500)
    (deliver,) = net.of("c", Deliver)
    assert (deliver.origin, abs(deliver.age_ns - 20 * MS) < 2 * MS) == ("a", True)


def test_in_a_ring_everything_is_delivered_once_and_nothing_circles() -> None:
    net = overlay({"a-b": 10, "b-c": 10, "c-d": 10, "a-d": 10})
    for name in "abcd":
        net.subscribe(name, "t")
    net.run(500)
    before = len(net.frames)
    net.publish("a", "t", b"x")
    net.run(2_000)
    assert [net.bodies(name) for name in "abcd"] == [[b"x"]] * 4
    assert sum(map(parcels, net.frames[before:])) == 3


# Reliable


def test_a_reliable_parcel_is_kept_until_all_destinations_have_acknowledged_it() -> None:
    net = overlay(t=RELIABLE)
    for name in "bc":
        net.subscribe(name, "t")
    net.run(500)
    net.loses = lambda frame: frame[:2] == ("b", "c") and parcels(frame)
    net.publish("a", "t", b"x")
    assert retained(net, "a") == 1
    net.run(300)
    assert (net.bodies("b"), net.bodies("c"), retained(net, "a")) == ([b"x"], [], 1)
    net.loses = lambda _: False
    net.run(3_000)
    assert (net.bodies("b"), net.bodies("c"), retained(net, "a")) == ([b"x"], [b"x"], 0)
    assert net.brokers["a"].counters["retained_bytes"] == 0


def test_what_is_lost_is_resent_more_and_more_slowly() -> None:
    net = overlay(t=RELIABLE)
    net.subscribe("c", "t")
    net.run(500)
    sent: list[int] = []

    def loses(frame: Frame) -> bool:
        if frame[:2] == ("a", "b") and parcels(frame):
            sent.append(net.now)
            return True
        return False

    net.loses = loses
    net.publish("a", "t", b"x")
    net.run(60_000)
    gaps = [after - before for before, after in pairwise(sent)]
    assert len(sent) >= 5
    assert gaps[2:] == sorted(gaps[2:])
    assert max(gaps) <= 6 * SECOND
    net.loses = lambda _: False
    net.run(6_000)
    assert net.bodies("c") == [b"x"]


def test_a_backlog_goes_in_windows_and_not_all_at_once() -> None:
    net = overlay(t=RELIABLE)
    net.subscribe("c", "t")
    net.run(500)
    net.cut("b", "c")
    for number in range(400):
        net.publish("a", "t", b"%03d" % number + bytes(2_000))
        net.run(5)
    before = len(net.frames)
    net.join("b", "c")
    net.run(60)
    first = sum(len(frame[3]) for frame in net.frames[before:] if frame[:2] == ("a", "b") and parcels(frame))
    assert first < 400_000
    net.run(60_000)
    assert net.bodies("c") == [b"%03d" % number + bytes(2_000) for number in range(400)]
    assert retained(net, "a") == 0


def test_what_was_published_while_a_destination_was_away_arrives_in_order_when_it_returns() -> None:
    net = overlay(t=RELIABLE)
    net.subscribe("c", "t")
    net.run(500)
    net.crash("c")
    for number in range(20):
        net.publish("a", "t", b"%d" % number)
        net.run(50)
    net.restart("c")
    net.run(10_000)
    assert net.bodies("c") == [b"%d" % number for number in range(20)]
    assert retained(net, "a") == 0


def test_a_message_is_given_up_at_the_end_of_its_lifespan_and_later_ones_do_not_wait_for_it() -> None:
    net = overlay(t=QosClass(reliable=True, lifespan_ns=2 * SECOND))
    net.subscribe("c", "t")
    net.run(500)
    net.loses = lambda frame: frame[:2] == ("a", "b") and parcels(frame)
    net.publish("a", "t", b"lost")
    net.run(1_500)
    net.loses = lambda frame: frame[:2] == ("a", "b") and parcels(frame) and b"lost" in frame[3]
    net.publish("a", "t", b"next")
    net.run(400)
    assert net.bodies("c") == []
    net.run(5_000)
    assert (net.bodies("c"), retained(net, "a")) == ([b"next"], 0)


def test_a_message_whose_predecessor_in_another_flow_was_given_up_is_delivered_within_its_lifespan() -> None:
    net = overlay(t=QosClass(reliable=True, lifespan_ns=4 * SECOND))
    net.subscribe("c", "t")
    net.run(500)
    net.loses = lambda frame: parcels(frame) and b"first" in frame[3]
    net.publish("a", "t", b"first")
    net.run(2_000)
    net.subscribe("b", "t")
    net.run(500)
    net.publish("a", "t", b"second")
    net.run(10_000)
    assert (net.bodies("b"), net.bodies("c")) == ([b"second"], [b"second"])


def test_a_topic_keeps_its_order_while_its_subscribers_come_and_go() -> None:
    net = overlay(t=RELIABLE)
    net.subscribe("c", "t")
    net.run(500)
    dropped = 0

    def loses(frame: Frame) -> bool:
        nonlocal dropped
        dropped += parcels(frame)
        return parcels(frame) and dropped % 3 == 0

    net.loses = loses
    for number in range(60):
        if number % 10 == 4:
            net.subscribe("b", "t")
        elif number % 10 == 8:
            net.unsubscribe("b", "t")
        net.publish("a", "t", b"%d" % number)
        net.run(20)
    net.loses = lambda _: False
    net.run(30_000)
    assert net.bodies("c") == [b"%d" % number for number in range(60)]
    assert retained(net, "a") == 0


def test_reliable_traffic_pushes_back_on_its_publisher_when_nothing_more_can_be_kept() -> None:
    net = Overlay(LINE, {"t": RELIABLE}, {"retention_bytes_max": 10_000})
    net.run(3_000)
    net.subscribe("c", "t")
    net.run(500)
    net.cut("b", "c")
    answers = [net.brokers["a"].publish("t", bytes(1_000), net.now) for _ in range(12)]
    net.turn("a", [])
    accepted = answers.count(PublishResult.ACCEPTED)
    assert (8 <= accepted <= 10, set(answers[accepted:])) == (True, {PublishResult.BUSY})
    assert net.brokers["a"].publish("other", bytes(1_000), net.now) is PublishResult.ACCEPTED
    net.join("b", "c")
    net.run(5_000)
    assert len(net.bodies("c")) == accepted
    assert net.brokers["a"].publish("t", bytes(1_000), net.now) is PublishResult.ACCEPTED


def test_a_receipt_in_the_middle_of_a_turn_gives_back_no_more_room_than_it_frees() -> None:
    net = Overlay(LINE, {"t": RELIABLE}, {"retention_bytes_max": 10_000})
    net.run(3_000)
    net.subscribe("c", "t")
    net.run(500)
    late: list[Frame] = []

    def is_late(frame: Frame) -> bool:
        late.append(frame)
        return True

    net.loses = lambda frame: frame[:2] == ("b", "a") and is_late(frame)
    net.publish("a", "t", bytes(1_000))
    net.run(150)
    broker = net.brokers["a"]
    answers = [broker.publish("t", bytes(1_000), net.now) for _ in range(8)]
    assert set(answers) == {PublishResult.ACCEPTED}
    for sender, _, lane, data in late:
        broker.receive(sender, data, net.now, lane)
    answers = [broker.publish("t", bytes(1_000), net.now) for _ in range(10)]
    accepted = answers.count(PublishResult.ACCEPTED)
    assert (1 <= accepted <= 2, set(answers[accepted:])) == (True, {PublishResult.BUSY})


@pytest.mark.parametrize("topic", ["t", "t" * 60_000])
def test_whatever_is_accepted_fits_a_frame(topic: str) -> None:
    net = overlay()
    net.subscribe("c", "#")
    net.run(500)
    bodies = [bytes((1 << 20) - 8_192), bytes(60_000), b"x"]
    accepted = [body for body in bodies if net.brokers["a"].publish(topic, body, net.now) is PublishResult.ACCEPTED]
    net.turn("a", [])
    net.run(1_000)
    assert (net.bodies("c"), len(accepted) >= 2) == (accepted, True)
    assert net.brokers["a"].publish("t", bytes(1 << 20), net.now) is PublishResult.TOO_LARGE


def test_many_long_topics_in_one_turn_fit_their_frames() -> None:
    net = Overlay(LINE, {"#": RELIABLE})
    net.run(3_000)
    net.subscribe("c", "#")
    net.run(500)
    for number in range(2_000):
        net.brokers["a"].publish(f"{number:04}" + "/long" * 200, b"x", net.now)
    net.turn("a", [])
    net.run(30_000)
    assert len(net.bodies("c")) == 2_000


# What survives a crash


def test_a_source_that_crashed_resends_what_it_owes_under_the_old_name() -> None:
    net = overlay(t=RELIABLE)
    net.subscribe("c", "t")
    net.run(500)
    net.publish("a", "t", b"came")
    net.run(500)
    net.loses = lambda frame: frame[:2] == ("a", "b") and parcels(frame)
    net.publish("a", "t", b"owed")
    net.run(100)
    net.crash("a")
    net.loses = lambda _: False
    net.run(1_000)
    net.restart("a")
    net.publish("a", "t", b"new")
    net.run(10_000)
    assert (net.bodies("c"), retained(net, "a")) == ([b"came", b"owed", b"new"], 0)


def test_what_arrived_before_the_source_crashed_is_not_delivered_again() -> None:
    net = overlay(t=RELIABLE)
    net.subscribe("c", "t")
    net.run(500)
    net.publish("a", "t", b"x")
    net.run(25)
    assert (net.bodies("c"), retained(net, "a")) == ([b"x"], 1)
    net.crash("a")
    net.run(1_000)
    net.restart("a")
    net.run(10_000)
    assert (net.bodies("c"), retained(net, "a")) == ([b"x"], 0)


def test_what_was_delivered_before_the_destination_crashed_is_not_delivered_again() -> None:
    net = overlay(t=RELIABLE)
    net.subscribe("c", "t")
    net.run(500)
    net.publish("a", "t", b"1", b"2")
    net.run(25)
    assert (net.bodies("c"), retained(net, "a")) == ([b"1", b"2"], 1)
    net.crash("c")
    net.run(1_000)
    net.publish("a", "t", b"3")
    net.restart("c")
    net.run(10_000)
    assert (net.bodies("c"), retained(net, "a")) == ([b"1", b"2", b"3"], 0)


def test_durable_subscriptions_survive_a_crash_and_others_do_not() -> None:
    net = overlay()
    net.handle("c", Subscribe("kept", "t", durable=True))
    net.handle("c", Subscribe("\0kept", "t", durable=True))
    net.handle("c", Subscribe("gone", "t", durable=False))
    net.handle("c", Subscribe("ended", "t", durable=True))
    net.unsubscribe("c", "t", "ended")
    net.run(500)
    net.crash("c")
    net.run(500)
    net.restart("c")
    net.run(3_000)
    net.publish("a", "t", b"x")
    net.run(500)
    assert net.got("c") == [("t", b"x", ("\0kept", "kept"))]


def test_after_a_crash_a_source_keeps_for_those_it_has_not_met_again() -> None:
    net = overlay(t=RELIABLE)
    net.subscribe("c", "t")
    net.run(500)
    net.crash("a")
    net.cut("b", "c")
    net.restart("a")
    net.run(1_000)
    net.publish("a", "t", b"x")
    net.run(1_000)
    net.join("b", "c")
    net.run(5_000)
    assert net.bodies("c") == [b"x"]


def test_a_clock_that_went_back_over_a_crash_stops_nothing() -> None:
    net = overlay(t=RELIABLE)
    net.subscribe("c", "t")
    net.run(500)
    net.cut("b", "c")
    net.publish("a", "t", b"x")
    net.run(100)
    net.crash("a")
    for name in "bc":
        net.crash(name)
    net.now -= 3_600 * SECOND
    for name in "abc":
        net.restart(name)
    net.run(10_000)
    assert net.bodies("c") == [b"x"]


# History


def test_a_late_subscriber_elsewhere_gets_the_last_messages_once() -> None:
    net = overlay(t=QosClass(reliable=True, history=2))
    net.publish("a", "t", b"1", b"2", b"3")
    net.run(500)
    net.subscribe("c", "t")
    net.run(1_000)
    net.publish("a", "t", b"4")
    net.run(3_000)
    assert net.bodies("c") == [b"2", b"3", b"4"]


def test_a_late_subscriber_here_gets_the_last_messages_at_once() -> None:
    net = overlay(t=QosClass(history=2))
    net.publish("a", "t", b"1", b"2", b"3")
    net.subscribe("a", "t")
    assert net.got("a") == [("t", b"2", ("s",)), ("t", b"3", ("s",))]


def test_what_a_subscriber_got_alive_is_not_replayed_to_it_nor_to_the_others_twice() -> None:
    net = overlay(t=QosClass(reliable=True, history=3))
    net.subscribe("c", "t", "early")
    net.run(500)
    net.publish("a", "t", b"1")
    net.run(500)
    net.subscribe("c", "t/#", "late")
    net.run(500)
    net.subscribe("c", "+", "later")
    net.run(3_000)
    assert net.got("c") == [("t", b"1", ("early",)), ("t", b"1", ("late",)), ("t", b"1", ("later",))]


def test_everything_within_its_lifespan_is_kept_where_all_history_is_asked_for() -> None:
    net = overlay(t=QosClass(reliable=True, history=HISTORY_ALL, lifespan_ns=10 * SECOND))
    for number in range(20):
        net.publish("a", "t", b"%d" % number)
        net.run(1_000)
    net.subscribe("c", "t")
    net.run(2_000)
    assert net.bodies("c") == [b"%d" % number for number in range(11, 20)]


def test_history_survives_a_crash_of_its_source() -> None:
    net = overlay(t=QosClass(reliable=True, history=2))
    net.publish("a", "t", b"1", b"2", b"3")
    net.run(500)
    net.crash("a")
    net.run(500)
    net.restart("a")
    net.run(500)
    net.subscribe("c", "t")
    net.run(3_000)
    assert net.bodies("c") == [b"2", b"3"]


def test_a_restart_of_the_source_replays_nothing_to_those_who_have_it() -> None:
    net = overlay(t=QosClass(reliable=True, history=2))
    net.subscribe("c", "t")
    net.run(500)
    net.publish("a", "t", b"1", b"2", b"3")
    net.run(500)
    net.crash("a")
    net.run(500)
    net.restart("a")
    net.run(5_000)
    assert net.bodies("c") == [b"1", b"2", b"3"]


def test_who_unsubscribed_gets_nothing_of_the_past() -> None:
    net = overlay(t=QosClass(reliable=True, history=1))
    net.publish("a", "t", b"1")
    net.subscribe("c", "t")
    net.run(15)
    net.unsubscribe("c", "t")
    net.run(3_000)
    assert net.bodies("c") == []


# Routes that move under way


def test_parcels_under_way_on_an_old_version_still_arrive() -> None:
    net = overlay({"a-b": 10, "b-d": 10, "a-c": 30, "c-d": 30})
    net.subscribe("d", "t")
    net.run(500)
    net.publish("a", "t", b"warm")
    net.run(500)
    assert net.path("a") == [(("a", "b"), ("b", "d"))]
    for number in range(100):
        net.publish("a", "t", b"%d" % number)
        if number == 50:
            net.latency_ns["b", "d"] = 200 * MS
        net.run(20)
    net.run(3_000)
    assert len({change.version for change in net.of("a", RouteChanged)}) >= 2
    assert net.bodies("d") == [b"warm", *(b"%d" % number for number in range(100))]


def test_when_a_route_moves_what_it_may_have_lost_is_sent_again_at_once() -> None:
    net = overlay({"a-b": 10, "b-d": 10, "a-c": 15, "c-d": 15}, t=QosClass(reliable=True, routing=Routing.SINGLE))
    net.subscribe("d", "t")
    net.run(500)
    net.publish("a", "t", b"warm")
    net.run(1_000)
    net.publish("a", "t", b"x")
    net.run(5)
    net.cut("a", "b")
    net.run(60)
    assert net.bodies("d") == [b"warm", b"x"]


# Durable before it leaves


def test_a_reliable_message_leaves_its_broker_only_when_it_is_durable() -> None:
    net = overlay(t=RELIABLE, u=QosClass())
    net.subscribe("c", "#")
    net.run(500)
    a = net.brokers["a"]
    a.publish("t", b"durable", net.now)
    a.publish("u", b"plain", net.now)
    a.flush(net.now, turn=1)
    sent = pulled(net)
    assert (b"plain" in sent, b"durable" in sent) == (True, False)
    a.flush(net.now, turn=2)  # turns go on meanwhile
    assert b"durable" not in pulled(net)
    a.durable(1, net.now)
    assert b"durable" in pulled(net)


def test_a_message_is_acknowledged_only_when_its_arrival_is_durable() -> None:
    net = overlay({"a-b": 10}, t=RELIABLE)
    net.subscribe("b", "t")
    net.run(500)
    net.slow_disks.add("b")
    net.publish("a", "t", b"x")
    net.run(500)
    assert (retained(net, "a"), net.bodies("b")) == (1, [b"x"])
    net.slow_disks.clear()
    net.run(500)
    assert (retained(net, "a"), net.bodies("b")) == (0, [b"x"])


def pulled(net: Overlay) -> bytes:
    return b"".join(data for _, data in net.brokers["a"].pull("b", 1 << 20, net.now))


def test_what_is_past_its_time_is_swept_while_nothing_happens() -> None:
    """History that has expired and flows that are idle go without anything that gossip would tell."""
    net = Overlay({"a-b": 1}, {"t": QosClass(reliable=True, history=5, lifespan_ns=2 * SECOND)})
    net.subscribe("b", "t")
    net.run(1_000)
    net.publish("a", "t", b"x")
    net.run(1_000)
    assert any(table == "history" for table, _ in net.store["a"])
    net.run(20_000)
    assert not any(table == "history" for table, _ in net.store["a"])
