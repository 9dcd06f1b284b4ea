"""Reservations in small networks: what subscribers are told, and what links have promised.

1 --- 2 --- 3 --- 4         10,000 bytes/s may be reserved of each link, 8,000 of 2-3
       \\         /
        5 ----- 6           a longer way from 2 to 4
"""

from dataclasses import replace

import pytest
from invariants import left_over, overbooked, release_all, unkept

from overlane.planning.reserve import TSpec
from overlane.reservation.contract import Admitted, Ask, Interrupted, Offer, Received, ReservationRefused, Withdraw
from overlane.reservation.link_ledger import LinkTerms
from overlane.reservation.rsvp.messages import Message, Path, Resv, ResvErr, decode
from overlane.reservation.rsvp.objects import BadMessage, ErrorCode, Hop, Style, broker_address, session_of
from overlane.reservation.soft_state import SECOND
from overlane.sim.reservation_network import SimulatedReservations

TERMS = LinkTerms(10_000.0, 1000, 1.0, 1500)
LINE = [(1, 2, TERMS), (2, 3, replace(TERMS, rate=8000.0)), (3, 4, TERMS)]
DETOUR = [(2, 5, replace(TERMS, latency_us=5000)), (5, 6, TERMS), (6, 4, TERMS)]
MS = 1_000_000


def traffic(rate: float) -> TSpec:
    return TSpec(rate, 1000.0, rate, 1000, 1000)


def network(*, detour: bool = False) -> SimulatedReservations:
    return SimulatedReservations([*LINE, *(DETOUR if detour else [])])


def offered(net: SimulatedReservations, topic: str, rate: float, broker: int = 1) -> None:
    net.offer(broker, Offer(topic, traffic(rate)))


def asked(net: SimulatedReservations, request: str, topic: str, rate: float, broker: int = 4, **more: object) -> object:
    net.ask(broker, Ask(request, topic, traffic(rate), **more))  # type: ignore[arg-type]
    net.run(SECOND)
    return net.outcome.get(request)


def promised(net: SimulatedReservations) -> dict[tuple[int, int], int]:
    """What links have promised, where it is something."""
    return {
        (broker, peer): ledger.promised
        for broker, agent in net.agents.items()
        for peer, ledger in agent.ledgers.items()
        if ledger.promised
    }


def path_of(net: SimulatedReservations, topic: str, broker: int = 4) -> list[int]:
    found = [broker]
    while True:
        (entry,) = net.agents[found[0]].paths.of(session_of(topic)).values()
        if entry.previous is None:
            return found
        found.insert(0, entry.previous)


def test_every_link_of_the_path_sets_the_rate_aside_and_only_in_its_direction() -> None:
    net = network()
    offered(net, "video", 3000.0)
    assert isinstance(asked(net, "a", "video", 3000.0), Admitted)
    assert promised(net) == {(1, 2): 3000, (2, 3): 3000, (3, 4): 3000}


def test_a_request_that_a_link_has_no_room_for_is_refused_with_the_link_and_what_is_left() -> None:
    net = network()
    offered(net, "video", 6000.0)
    offered(net, "more", 3000.0)
    asked(net, "a", "video", 6000.0)
    found = asked(net, "b", "more", 3000.0)
    assert found == ReservationRefused("b", "a link has not enough rate left", (2, 3), 2000.0, None)
    assert promised(net) == {(1, 2): 6000, (2, 3): 6000, (3, 4): 6000}


def test_a_crowded_path_is_left_for_one_with_room() -> None:
    net = network(detour=True)
    offered(net, "video", 6000.0)
    offered(net, "more", 3000.0)
    asked(net, "a", "video", 6000.0)
    assert isinstance(asked(net, "b", "more", 3000.0), Admitted)
    assert path_of(net, "video") == [1, 2, 3, 4]
    assert path_of(net, "more") == [1, 2, 5, 6, 4]
    assert promised(net)[2, 5] == 3000
    assert promised(net)[2, 3] == 6000


def test_two_subscribers_of_one_topic_share_what_is_set_aside() -> None:
    net = network()
    offered(net, "video", 5000.0)
    asked(net, "a", "video", 2000.0, broker=3)
    assert isinstance(asked(net, "b", "video", 5000.0), Admitted)
    assert promised(net) == {(1, 2): 5000, (2, 3): 5000, (3, 4): 5000}
    net.release("b")
    net.run(SECOND)
    assert promised(net) == {(1, 2): 2000, (2, 3): 2000}


def test_a_large_request_does_not_keep_a_small_one_from_being_admitted() -> None:
    net = network()
    offered(net, "video", 9000.0)
    net.ask(4, Ask("large", "video", traffic(9000.0)))
    net.ask(3, Ask("small", "video", traffic(2000.0)))
    net.run(SECOND)
    assert isinstance(net.outcome["large"], ReservationRefused)
    assert isinstance(net.outcome["small"], Admitted)
    assert promised(net) == {(1, 2): 2000, (2, 3): 2000}


def test_a_refused_increase_leaves_what_others_at_the_broker_have() -> None:
    net = network()
    offered(net, "video", 9000.0)
    assert isinstance(asked(net, "small", "video", 2000.0), Admitted)
    assert isinstance(asked(net, "large", "video", 9000.0), ReservationRefused)
    assert isinstance(net.outcome["small"], Admitted)
    assert promised(net) == {(1, 2): 2000, (2, 3): 2000, (3, 4): 2000}
    assert unkept(net) == []


@pytest.mark.parametrize(
    ("style", "shared"), [(Style.FF, {(2, 3): 4000, (3, 4): 4000}), (Style.SE, {(2, 3): 2000, (3, 4): 2000})]
)
def test_senders_share_a_reservation_or_have_one_each_as_the_style_says(
    style: Style, shared: dict[tuple[int, int], int]
) -> None:
    net = network()
    offered(net, "video", 2000.0, broker=1)
    offered(net, "video", 2000.0, broker=2)
    assert isinstance(asked(net, "a", "video", 2000.0, style=style), Admitted)
    assert promised(net) == {(1, 2): 2000, **shared}


def test_a_wildcard_covers_senders_that_come_later() -> None:
    net = network()
    offered(net, "video", 2000.0, broker=2)
    asked(net, "a", "video", 2000.0, style=Style.WF)
    offered(net, "video", 2000.0, broker=1)
    net.run(SECOND)
    assert promised(net) == {(1, 2): 2000, (2, 3): 2000, (3, 4): 2000}


def test_styles_are_not_mixed() -> None:
    net = network()
    offered(net, "video", 2000.0)
    asked(net, "a", "video", 2000.0, style=Style.SE)
    assert isinstance(asked(net, "b", "video", 2000.0, broker=3, style=Style.FF), ReservationRefused)
    assert isinstance(net.outcome["a"], Admitted)


def test_a_latency_costs_rate_and_its_bound_is_told() -> None:
    net = network()
    offered(net, "alarms", 1000.0)
    found = asked(net, "a", "alarms", 1000.0, latency_s=1.5)
    assert isinstance(found, Admitted)
    assert found.flowspec.rspec is not None
    assert found.delay_bound_s is not None
    assert 1000.0 < found.flowspec.rspec.rate < 8000.0
    assert found.delay_bound_s <= 1.5


def test_a_latency_below_that_of_the_path_is_refused_with_what_could_be_had() -> None:
    net = network()
    offered(net, "alarms", 1000.0)
    found = asked(net, "a", "alarms", 1000.0, latency_s=0.1)
    assert isinstance(found, ReservationRefused)
    assert "no rate can shorten" in found.reason
    assert found.nearest_latency_s is not None
    assert found.nearest_latency_s > 0.4  # three packets of 1500 bytes in front of it
    nearer = asked(net, "b", "alarms", 1000.0, latency_s=found.nearest_latency_s + 1e-6)
    assert isinstance(nearer, Admitted)


def test_a_reservation_is_restored_on_another_path_when_a_link_fails() -> None:
    net = network(detour=True)
    offered(net, "video", 3000.0)
    asked(net, "a", "video", 3000.0)
    net.fail(3, 4)
    net.run(SECOND)
    assert isinstance(net.outcome["a"], Admitted)
    assert path_of(net, "video") == [1, 2, 5, 6, 4]
    assert (2, 3) not in promised(net)
    assert unkept(net) == []


def test_a_subscriber_is_told_when_no_other_path_admits_it() -> None:
    net = network()
    offered(net, "video", 3000.0)
    asked(net, "a", "video", 3000.0)
    net.fail(2, 3)
    net.run(SECOND)
    assert [type(one) for one in net.outcome.values()] == [Interrupted]
    assert promised(net) == {}
    net.run(10 * SECOND)
    assert [type(one) for one in net.outcome.values()] == [ReservationRefused]


def test_a_link_that_can_do_less_gives_up_the_latest_reservations() -> None:
    net = network(detour=True)
    for topic in ("first", "second"):
        offered(net, topic, 3000.0)
        asked(net, topic, topic, 3000.0)
    net.change(3, 4, replace(TERMS, rate=4000.0))
    net.run(SECOND)
    assert overbooked(net) == unkept(net) == []
    assert path_of(net, "first") == [1, 2, 3, 4]
    assert path_of(net, "second") == [1, 2, 5, 6, 4]


def test_everything_is_free_soon_after_the_last_subscriber_or_publisher_has_gone() -> None:
    net = network()
    offered(net, "video", 3000.0)
    asked(net, "a", "video", 3000.0)
    release_all(net, within_ns=100 * MS)
    assert left_over(net) == []
    asked(net, "b", "video", 3000.0)
    net.tell(1, Withdraw("video"))
    net.run(100 * MS)
    assert left_over(net) == []
    assert net.outcome["b"] == Interrupted("b")


def test_a_request_without_a_publisher_is_refused_when_its_time_has_passed() -> None:
    net = network()
    net.ask(4, Ask("a", "nothing", traffic(1000.0)))
    net.run(1900 * MS)
    assert "a" not in net.outcome
    net.run(200 * MS)
    found = net.outcome["a"]
    assert isinstance(found, ReservationRefused)
    assert "no publisher" in found.reason


def test_a_link_without_a_rate_promises_nothing() -> None:
    net = SimulatedReservations([(1, 2, replace(TERMS, rate=None))])
    offered(net, "video", 1000.0)
    found = asked(net, "a", "video", 1000.0, broker=2)
    assert isinstance(found, ReservationRefused)
    assert found.bottleneck == (1, 2)


def test_an_error_names_the_link_in_the_words_of_the_rfc() -> None:
    net = network()
    net.sent = []
    offered(net, "video", 9000.0)
    asked(net, "a", "video", 9000.0)
    errors = [one for one in map(decode, (sent.message for sent in net.sent)) if isinstance(one, ResvErr)]
    assert errors
    assert {(one.error.node, one.error.code, one.error.value) for one in errors} == {
        (broker_address(2), ErrorCode.ADMISSION, 2)
    }


def test_a_message_that_lies_about_its_sender_or_its_tree_changes_nothing() -> None:
    net = network()
    net.sent = []
    offered(net, "video", 3000.0)
    asked(net, "a", "video", 3000.0)
    before = promised(net)
    told = [decode(sent.message) for sent in net.sent]
    path = next(one for one in told if isinstance(one, Path) and one.hop.address == broker_address(2))
    resv = next(one for one in told if isinstance(one, Resv) and one.hop.address == broker_address(4))
    lies: list[Message] = [
        replace(path, hop=Hop(broker_address(4))),
        replace(path, topic_filter="another"),
        replace(path, tree=None),
        replace(path, sender=replace(path.sender, address=broker_address(3))),
        replace(resv, hop=Hop(broker_address(9))),
    ]
    for lie in lies:
        peer = 4 if isinstance(lie, Resv) else 2
        with pytest.raises(BadMessage):
            net.tell(3, Received(peer, lie))
    net.tell(3, Received(9, resv))  # no neighbour at all
    net.run(SECOND)
    assert promised(net) == before
    assert unkept(net) == []
