"""Parcels on their way: repaired, led around trouble, dropped when they are of no use, and never doubled."""

import pytest
from handwired import Frame, Overlay
from msgspec import structs

from overlane.core.events import Close, DeadlineUnmeetable, Effect, LinkChanged, RouteEstablished, SetFailureRisk
from overlane.core.links.hop_acknowledgements import HOP_ACK_DELAY
from overlane.core.qos import QosClass, Routing
from overlane.core.units import MS, SECOND
from overlane.core.wire import frame_codec
from overlane.core.wire.control_messages import Receipt, decode
from overlane.core.wire.frame_codec import FrameType, ParcelFlag
from overlane.core.wire.route_answers import WayBack

DIAMOND = {"a-b": 10, "b-d": 10, "a-c": 15, "c-d": 15}


def overlay(deadline_ms: int, routing: str = "adaptive", links: dict[str, int] = DIAMOND) -> Overlay:
    net = Overlay(links, {"t": QosClass(deadline_ms * MS, routing=Routing(routing))})
    net.run(3_000)
    net.subscribe("d", "t")
    net.run(500)
    net.publish("a", "t", b"first")
    net.run(1_000)
    assert net.bodies("d") == [b"first"]
    return net


def parcels(net: Overlay, since: int) -> list[tuple[str, str]]:
    """The links that parcels were sent over."""
    return [frame[:2] for frame in net.frames[since:] if is_parcel(frame)]


def is_parcel(frame: Frame) -> bool:
    return any(kind in (FrameType.PARCEL, FrameType.DETOUR) for kind, _ in frame_codec.split(frame[3])[0])


def lose_next(net: Overlay, one: str, other: str, count: int) -> None:
    """The next parcels on this link are lost."""
    left = count

    def loses(frame: Frame) -> bool:
        nonlocal left
        if frame[:2] != (one, other) or not is_parcel(frame) or not left:
            return False
        left -= 1
        return True

    net.loses = loses


def test_a_parcel_lost_on_a_hop_is_sent_again_over_it_while_there_is_time() -> None:
    net = overlay(400)
    lose_next(net, "b", "d", 1)
    before = len(net.frames)
    net.publish("a", "t", b"x")
    net.run(400)
    assert net.bodies("d") == [b"first", b"x"]
    assert parcels(net, before) == [("a", "b"), ("b", "d"), ("b", "d")]


def test_where_the_link_is_not_likely_to_make_it_the_last_chance_also_goes_around() -> None:
    net = overlay(400)
    lose_next(net, "a", "b", 100)
    net.publish("a", "t", b"x")
    net.run(400)
    assert net.bodies("d") == [b"first", b"x"]
    assert net.brokers["a"].counters["detours"] >= 1


def test_where_another_copy_is_on_its_way_what_is_lost_does_not_go_around() -> None:
    net = overlay(60)
    net.handle("a", SetFailureRisk(None, {"b": 0.05, "c": 0.05}))
    net.run(1_000)
    net.publish("a", "t", b"both ways")
    net.run(400)
    lose_next(net, "a", "b", 1)
    before = len(net.frames)
    net.publish("a", "t", b"x")
    net.run(400)
    assert net.bodies("d") == [b"first", b"both ways", b"x"]
    assert {("a", "b"), ("a", "c"), ("c", "d")} <= set(parcels(net, before))
    assert net.brokers["a"].counters["detours"] == 0


def test_a_class_without_repair_loses_what_is_lost() -> None:
    net = overlay(400, "single")
    lose_next(net, "b", "d", 1)
    net.publish("a", "t", b"x")
    net.run(2_000)
    assert net.bodies("d") == [b"first"]


def test_a_copy_that_was_only_late_is_delivered_once() -> None:
    net = overlay(2_000)
    net.latency_ns["b", "d"] = 150 * MS
    net.publish("a", "t", b"x")
    net.run(3_000)
    assert net.bodies("d") == [b"first", b"x"]


def test_when_a_link_breaks_what_waited_for_a_notice_goes_around_at_once() -> None:
    net = overlay(100)
    net.publish("a", "t", b"x")
    net.run(5)
    net.cut("a", "b")
    net.run(50)
    assert net.bodies("d") == [b"first", b"x"]


def test_a_link_that_is_up_but_passes_nothing_is_noticed_suspected_and_closed() -> None:
    net = overlay(100)
    net.loses = lambda frame: set(frame[:2]) == {"a", "b"}
    net.run(400)
    assert LinkChanged("b", "suspect") in net.effects["a"]
    net.run(2_000)
    assert [close.peer for close in net.of("a", Close)] + [close.peer for close in net.of("b", Close)] in (["b"], ["a"])
    net.publish("a", "t", b"x")
    net.run(100)
    assert (net.bodies("d"), net.path("a")) == ([b"first", b"x"], [(("a", "c"), ("c", "d"))])


@pytest.mark.parametrize("routing", [routing.value for routing in Routing])
def test_an_unmeetable_deadline_is_reported_and_its_messages_travel_all_the_same(routing: str) -> None:
    net = Overlay(DIAMOND, {"t": QosClass(15 * MS, routing=Routing(routing))})
    net.run(3_000)
    net.subscribe("d", "t")
    net.run(500)
    net.publish("a", "t", b"x")
    net.run(500)
    assert net.bodies("d") == [b"x"]
    (reported, *_) = net.of("a", DeadlineUnmeetable)
    assert (reported.qos, reported.destination) == (net.qos.of("t"), "d")
    assert abs(reported.latency_ns - 20 * MS) < 2 * MS


def test_a_route_is_established_when_its_leaves_have_said_so() -> None:
    net = overlay(400)
    (route,) = net.brokers["a"].routes()
    assert route.established
    assert net.of("a", RouteEstablished) == [RouteEstablished(route.id, route.version)]


def test_two_copies_over_two_paths_are_one_delivery() -> None:
    net = Overlay(
        DIAMOND,
        {"t": QosClass(400 * MS, routing=Routing.MULTIPATH)},
        {"link_failure": dict.fromkeys("abcd", 0.01), "failure": 0.01},
    )
    net.run(3_000)
    net.subscribe("d", "t")
    net.run(500)
    before = len(net.frames)
    net.publish("a", "t", b"x")
    net.run(500)
    assert sorted(parcels(net, before)) == [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]
    assert (net.bodies("d"), net.brokers["d"].counters["duplicates_dropped"]) == ([b"x"], 1)


def test_with_two_paths_a_broken_link_loses_nothing() -> None:
    net = Overlay(
        DIAMOND,
        {"t": QosClass(400 * MS, routing=Routing.MULTIPATH)},
        {"link_failure": dict.fromkeys("abcd", 0.01), "failure": 0.01},
    )
    net.run(3_000)
    net.subscribe("d", "t")
    net.run(500)
    for number in range(100):
        net.publish("a", "t", b"%d" % number)
        net.run(5)
        if number == 50:
            net.cut("b", "d")
    net.run(1_000)
    assert net.bodies("d") == [b"%d" % number for number in range(100)]


def test_what_can_no_longer_be_in_time_is_dropped_and_not_carried() -> None:
    net = overlay(100, "single")
    broker = net.brokers["a"]
    broker.publish("t", b"late", net.now)
    broker.flush(net.now)
    net.now += 95 * MS
    before = broker.counters["expired_dropped"]
    assert not any(is_parcel(("a", "b", lane, data)) for lane, data in broker.pull("b", 1 << 20, net.now))
    assert broker.counters["expired_dropped"] == before + 1


def test_what_has_far_to_go_leaves_before_what_is_due_earlier_but_next_door() -> None:
    net = Overlay(
        {"a-b": 10, "b-c": 10, "c-d": 10}, {"near": QosClass(100 * MS, paths=1), "far": QosClass(200 * MS, paths=1)}
    )
    net.run(3_000)
    net.subscribe("b", "near")
    net.subscribe("d", "far")
    net.run(500)
    before = len(net.frames)
    a = net.brokers["a"]
    for topic in ("near", "far"):
        a.publish(topic, topic.encode(), net.now)
    net.turn("a", [])
    sent = [frame[3] for frame in net.frames[before:] if frame[:2] == ("a", "b") and is_parcel(frame)]
    assert [next(name for name in (b"near", b"far") if name in data) for data in sent] == [b"far", b"near"]


def test_a_blocked_link_holds_no_more_than_its_bound() -> None:
    net = Overlay({"a-b": 10}, {"t": QosClass(deadline_ns=SECOND)}, {"queue_bytes_max": 20_000})
    net.run(3_000)
    net.subscribe("b", "t")
    net.run(500)
    broker = net.brokers["a"]
    for _ in range(100):
        broker.publish("t", bytes(1_000), net.now)
        broker.flush(net.now)
        assert broker.queue_bytes("b") <= 20_000
    assert broker.counters["queue_full_dropped"] >= 80


def test_each_link_has_a_bound_of_its_own() -> None:
    config = {"queue_bytes_max": 20_000, "link_queue_bytes_max": {"c": 5_000}}
    net = Overlay({"a-b": 10, "a-c": 10}, {}, config)
    a = net.brokers["a"]
    assert (a.queue_bytes_max("b"), a.queue_bytes_max("c")) == (20_000, 5_000)
    net.run(3_000)
    net.subscribe("b", "t")
    net.subscribe("c", "u")
    net.run(500)
    for _ in range(100):
        for topic in "tu":
            a.publish(topic, bytes(1_000), net.now)
        a.flush(net.now)
    assert 15_000 < a.queue_bytes("b") <= 20_000
    assert 3_000 < a.queue_bytes("c") <= 5_000


def test_a_notice_that_is_nearly_due_goes_along_with_a_parcel() -> None:
    net = Overlay({"a-b": 10}, {"t": QosClass(2_000 * MS), "u": QosClass(2_000 * MS)})
    net.run(3_000)
    net.subscribe("b", "t")
    net.subscribe("a", "u")
    net.run(500)
    for broker, topic in (("a", "t"), ("b", "u")):
        net.publish(broker, topic, b"first")
    net.run(1_000)
    before = len(net.frames)
    net.publish("a", "t", b"x")
    net.run(10 + (HOP_ACK_DELAY - 10 * MS) // MS)
    net.publish("b", "u", b"y")
    net.run(100)
    kinds = [
        [kind for kind, _ in frame_codec.split(frame[3])[0]] for frame in net.frames[before:] if frame[:2] == ("b", "a")
    ]
    assert [FrameType.PARCEL, FrameType.HOP_ACK] in kinds
    assert [FrameType.HOP_ACK] not in kinds


@pytest.mark.parametrize(("deadline_ms", "is_prompt"), [(15, False), (18, True), (100, True), (2_000, False)])
def test_a_notice_at_once_is_asked_for_where_what_is_lost_can_be_sent_again_or_nearly_but_not_much_later(
    deadline_ms: int, is_prompt: bool
) -> None:
    net = Overlay({"a-b": 10}, {"t": QosClass(deadline_ms * MS)})
    net.run(3_000)
    net.subscribe("b", "t")
    net.run(500)
    before = len(net.frames)
    net.publish("a", "t", b"x")
    net.run(100)
    frames = [frame for _, _, _, data in net.frames[before:] for frame in frame_codec.split(data)[0]]
    flags = [body[0] for kind, body in frames if kind == FrameType.PARCEL]
    assert [bool(one & ParcelFlag.ACK_AT_ONCE) for one in flags] == [is_prompt]
    assert net.bodies("b") == [b"x"]


@pytest.mark.parametrize(("deadline_ms", "prompt"), [(18, [True, False, False, True]), (100, [True] * 4)])
def test_where_nothing_can_be_sent_again_in_time_some_parcels_ask_for_all(deadline_ms: int, prompt: list[bool]) -> None:
    net = Overlay({"a-b": 10}, {"t": QosClass(deadline_ms * MS)})
    net.run(3_000)
    net.subscribe("b", "t")
    net.run(500)
    before = len(net.frames)
    for _ in prompt:
        net.publish("a", "t", b"x")
        net.run(5)
    net.run(100)
    frames = [frame for _, _, _, data in net.frames[before:] for frame in frame_codec.split(data)[0]]
    assert [bool(body[0] & ParcelFlag.ACK_AT_ONCE) for kind, body in frames if kind == FrameType.PARCEL] == prompt
    assert net.bodies("b") == [b"x"] * 4


def test_notices_tell_of_several_parcels_at_once_where_nobody_is_in_a_hurry() -> None:
    net = Overlay({"a-b": 10}, {"t": QosClass(2_000 * MS)})
    net.run(3_000)
    net.subscribe("b", "t")
    net.run(500)
    before = len(net.frames)
    for _ in range(100):
        net.publish("a", "t", b"x")
        net.run(10)
    kinds = [kind for _, _, _, data in net.frames[before:] for kind, _ in frame_codec.split(data)[0]]
    assert kinds.count(FrameType.PARCEL) == 100
    assert 20 <= kinds.count(FrameType.HOP_ACK) <= 30
    pings = [
        frame
        for frame in net.frames[before:]
        if frame[0] == "a" and frame_codec.split(frame[3])[0][0][0] == FrameType.PING
    ]
    assert len(pings) <= 1


def test_an_idle_broker_sleeps_until_its_next_ping() -> None:
    net = overlay(400)
    turns = len(net.frames)
    net.run(30_000)
    per_link_and_second = (len(net.frames) - turns) / len(DIAMOND) / 30
    assert per_link_and_second <= 9
    assert all(broker.next_deadline() - net.now <= SECOND for broker in net.brokers.values())


def confirmations(net: Overlay, since: int) -> list[tuple[str, str, str]]:
    """The links that confirmations were sent over, and the kind of frame."""
    found = []
    for sender, receiver, _, data in net.frames[since:]:
        for kind, body in frame_codec.split(data)[0]:
            if kind == FrameType.CONFIRMATION:
                found.append((sender, receiver, "confirmation"))
            elif kind == FrameType.CONTROL:
                message = decode(frame_codec.read_control(body)[1])
                if isinstance(message, Receipt) and message.heard:
                    found.append((sender, receiver, "receipt"))
    return found


def test_a_confirmation_returns_from_broker_to_broker_against_the_route() -> None:
    net = overlay(400)
    net.run(1_000)
    since = len(net.frames)
    net.publish("a", "t", b"second")
    net.run(100)
    assert confirmations(net, since) == [("d", "b", "confirmation"), ("b", "a", "confirmation")]
    assert net.brokers["a"]._source.trust.missed == 0


def test_where_the_way_back_is_broken_a_confirmation_goes_on_as_a_receipt() -> None:
    net = overlay(400)
    net.run(1_000)
    since = len(net.frames)
    net.publish("a", "t", b"second")
    net.run(25)
    net.cut("a", "b")
    net.run(475)
    around = [("d", "b", "confirmation"), ("b", "d", "receipt"), ("d", "c", "receipt"), ("c", "a", "receipt")]
    assert set(around) <= set(confirmations(net, since))
    assert net.brokers["a"]._source.trust.missed == 0


def test_a_route_and_a_confirmation_that_only_pass_cause_no_upkeep() -> None:
    net = overlay(400, links={"a-b": 10, "b-d": 10})
    runs = 0
    upkeep = net.brokers["b"]._upkeep
    run = upkeep.run

    def counted(turn: int, now: int) -> list[Effect]:
        nonlocal runs
        runs += 1
        return run(turn, now)

    net.run(1_000)
    upkeep.run = counted  # type: ignore[method-assign]
    for number in range(20):
        net.publish("a", "t", b"%d" % number)
        net.run(200)
    assert len(net.bodies("d")) == 21
    assert runs <= 4, "sweeps alone"


def receipts(net: Overlay, since: int) -> list[tuple[str, str, list[str] | None]]:
    """The links that receipts were sent over, and the path that each names; None of those on a route."""
    found: list[tuple[str, str, list[str] | None]] = []
    for sender, receiver, _, data in net.frames[since:]:
        for kind, body in frame_codec.split(data)[0]:
            if kind == FrameType.RECEIPT:
                found.append((sender, receiver, None))
            elif kind == FrameType.CONTROL:
                message = decode(frame_codec.read_control(body)[1])
                if isinstance(message, Receipt) and not message.heard:
                    found.append((sender, receiver, message.path))
    return found


def reliable_overlay() -> Overlay:
    net = Overlay(DIAMOND, {"t": QosClass(reliable=True)})
    net.run(3_000)
    net.subscribe("d", "t")
    net.run(500)
    net.publish("a", "t", b"first")
    return net


def test_a_receipt_returns_on_the_route_of_its_parcels() -> None:
    net = reliable_overlay()
    net.run(50)
    assert net.bodies("d") == [b"first"]
    assert net.brokers["a"]._source.retained_bytes > 0
    net.run(950)
    assert receipts(net, 0) == [("d", "b", None), ("b", "a", None)]
    assert net.brokers["a"]._source.retained_bytes == 0


def test_where_the_way_back_is_broken_a_receipt_goes_on_the_quickest_way() -> None:
    net = reliable_overlay()
    net.run(75)
    net.cut("a", "b")
    net.run(400)
    found = receipts(net, 0)
    around: list[tuple[str, str, list[str] | None]] = [("d", "b", None), ("b", "d", []), ("d", "c", []), ("c", "a", [])]
    assert all(one in found for one in around)
    assert net.brokers["a"]._source.retained_bytes == 0


def test_where_readers_fall_behind_or_the_route_has_changed_a_receipt_is_a_message() -> None:
    net = reliable_overlay()
    net.run(1_000)
    forwarding = net.brokers["d"]._forwarding
    (entry,) = net.brokers["d"]._routes.keyed.values()
    way_back = WayBack(entry.key, *(entry.ends_over("b") or (0, 0)))
    told = Receipt("a", "d", 32, entry.name.incarnation, 1, 2, b"")
    since = len(net.frames)
    for changed in ({"behind": {"t": 50}}, {"held": b"\x01"}, {"incarnation": told.incarnation + 1}):
        forwarding.acknowledge(structs.replace(told, **changed), entry, way_back)
    forwarding.acknowledge(told, None, way_back)
    entry.superseded_at = net.now
    forwarding.acknowledge(told, entry, way_back)
    net.turn("d", [])
    assert receipts(net, since) == [("d", "b", [])] * 5


def test_a_receipt_names_its_way_only_where_that_is_not_the_quickest() -> None:
    net = reliable_overlay()
    net.run(1_000)
    since = len(net.frames)
    net.brokers["d"]._forwarding.post(Receipt("a", "d", 32, 1, 1, 1, b"", path=["b", "a"]))
    net.turn("d", [])
    net.run(100)
    assert receipts(net, since) == [("d", "b", []), ("b", "a", [])]
    since = len(net.frames)
    net.brokers["d"]._forwarding.post(Receipt("a", "d", 32, 1, 1, 1, b"", path=["c", "a"]))
    net.turn("d", [])
    net.run(100)
    assert receipts(net, since) == [("d", "c", ["a"]), ("c", "a", [])]
