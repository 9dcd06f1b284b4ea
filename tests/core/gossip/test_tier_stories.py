"""Two tiers on a simulated overlay: edges, routing brokers, and bundles that move between these."""

import pytest

from overlane.core.bundles import BUNDLES, bundle_of
from overlane.core.units import MS, SECOND
from overlane.core.wire.control_messages import Advert, LinkClaim
from overlane.sim.story import Story, topic

EDGES = ("e1", "e2", "e3", "e4")
"""The first two are of one domain."""
ROUTERS = ("r1", "r2")

TO_R1 = dict.fromkeys(range(BUNDLES), "r1")
TO_R2 = dict.fromkeys(range(BUNDLES), "r2")


def tiers(assignment: dict[int, str] | None = None) -> Story:
    links = {(edge, router): 10 * MS for edge in EDGES for router in ROUTERS}
    links["e1", "e2"] = 1 * MS
    roles = {**dict.fromkeys(EDGES, "edge"), **dict.fromkeys(ROUTERS, "routing")}
    return Story(
        links,
        {"plant/#": topic(reliability="reliable"), "other/#": topic(reliability="reliable"), "news/#": topic()},
        roles=roles,
        assignment=TO_R1 if assignment is None else assignment,
    )


def test_the_first_message_of_a_new_publisher_reaches_an_old_subscriber_elsewhere() -> None:
    net = tiers()
    net.subscribe("e4", "plant/line1/#")
    net.run(10 * SECOND)
    net.publish("e3", "plant/line1/x")
    net.run(1 * SECOND)
    assert net.delivered("plant/#") == 1
    assert net.lost("plant/#", patience=0) == 0


def test_best_effort_too() -> None:
    net = tiers()
    net.subscribe("e4", "news/#")
    net.run(10 * SECOND)
    net.publish("e3", "news/line1/x")
    net.run(1 * SECOND)
    assert net.delivered("news/#") == 1


def test_between_domains_there_are_two_hops() -> None:
    net = tiers()
    net.subscribe("e4", "plant/line1/#")
    net.start("e3", "plant/line1/x", 10)
    net.run(5 * SECOND)
    assert net.path("plant/#", "e3", "e4") == ["e3", "r1", "e4"]
    assert net.lost("plant/#") == 0


def test_topics_with_clients_in_one_domain_stay_there() -> None:
    net = tiers()
    net.subscribe("e2", "plant/line1/#")
    net.start("e1", "plant/line1/x", 10)
    net.run(5 * SECOND)
    assert net.path("plant/#", "e1", "e2") == ["e1", "e2"]
    assert net.lost("plant/#") == 0
    assert net.broker("r1").counters["parcels_sent"] == 0


@pytest.mark.parametrize("topic_filter", ["#", "+/line1/x", "plant/#"])
def test_a_subscriber_to_many_groups_gets_what_begins_later(topic_filter: str) -> None:
    net = tiers({bundle: ROUTERS[bundle % 2] for bundle in range(BUNDLES)})
    net.subscribe("e4", topic_filter)
    net.run(5 * SECOND)
    for number, name in enumerate(("plant/line1/x", "plant/line1/x", "plant/line1/x")):
        net.publish(EDGES[number], name)
        net.run(1 * SECOND)
    assert net.delivered("plant/#") == 3


def test_a_bundle_moves_under_traffic_and_nothing_is_lost_or_comes_twice() -> None:
    net = tiers()
    net.subscribe("e4", "plant/line1/#")
    net.subscribe("e2", "plant/#")
    net.start("e3", "plant/line1/x", 50)
    net.start("e1", "plant/line1/y", 50)
    net.run(3 * SECOND)
    for number in range(6):
        net.assign((TO_R2, TO_R1)[number % 2])
        net.run(3 * SECOND)
    net.silence()
    net.run(5 * SECOND)
    assert net.lost("plant/#") == 0
    assert net.duplicates("plant/#") == 0
    assert net.in_order()


@pytest.mark.parametrize("order", [("e3", "e4", "r1", "r2"), ("r2", "r1", "e4", "e3"), ("e4", "r1", "r2", "e3")])
def test_brokers_may_hear_of_a_move_one_after_the_other(order: tuple[str, ...]) -> None:
    net = tiers()
    net.subscribe("e4", "plant/line1/#")
    net.start("e3", "plant/line1/x", 50)
    net.run(3 * SECOND)
    for name in order:
        net.assign(TO_R2, name)
        net.run(4 * SECOND)
    net.silence()
    net.run(5 * SECOND)
    assert net.lost("plant/#") == 0
    assert net.duplicates("plant/#") == 0
    assert net.path("plant/#", "e3", "e4") == ["e3", "r2", "e4"]


def test_a_routing_broker_dies_and_its_bundles_move() -> None:
    net = tiers()
    net.subscribe("e4", "plant/line1/#")
    net.start("e3", "plant/line1/x", 50)
    net.run(3 * SECOND)
    net.crash("r1")
    net.run(2 * SECOND)
    net.assign(TO_R2)
    net.run(5 * SECOND)
    net.start("e1", "plant/line1/new", 10)
    net.run(40 * SECOND)
    net.silence()
    net.run(5 * SECOND)
    assert net.lost("plant/#") == 0
    assert net.duplicates("plant/#") == 0


def test_a_routing_broker_dies_and_its_standby_carries_on_before_anybody_has_decided_anything() -> None:
    net = tiers()
    net.assign(TO_R1, standbys=TO_R2)
    net.subscribe("e4", "plant/line1/#")
    net.start("e3", "plant/line1/x", 50)
    net.run(10 * SECOND)
    net.crash("r1")
    net.run(2 * SECOND)
    assert net.path("plant/#", "e3", "e4") == ["e3", "r2", "e4"]
    assert net.delivered("plant/#") > 550
    # A new publisher asks the standby who needs its topics, and a new subscriber tells it.
    net.subscribe("e2", "plant/line2/#")
    net.run(1 * SECOND)
    net.publish("e4", "plant/line2/x")
    net.run(1 * SECOND)
    net.silence()
    net.run(5 * SECOND)
    assert net.lost("plant/#", patience=0) == 0
    assert net.duplicates("plant/#") == 0


def test_an_edge_that_has_lost_its_link_with_the_carrier_alone_goes_on_over_the_standby() -> None:
    net = tiers()
    net.assign(TO_R1, standbys=TO_R2)
    net.subscribe("e4", "plant/line1/#")
    net.start("e3", "plant/line1/x", 50)
    net.run(5 * SECOND)
    net.cut("e3", "r1")
    net.run(5 * SECOND)
    assert net.path("plant/#", "e3", "e4") == ["e3", "r2", "e4"]
    net.publish("e3", "plant/line2/x")
    net.silence()
    net.run(5 * SECOND)
    assert net.lost("plant/#", patience=0) == 0


def test_a_subscriber_that_heard_of_a_move_first_is_not_missed_by_a_publisher_that_has_not() -> None:
    net = tiers()
    net.subscribe("e4", "plant/line1/#")
    net.run(3 * SECOND)
    net.assign(TO_R2, "e4")
    net.run(1 * SECOND)
    net.publish("e3", "plant/line1/x")  # its carrier is r1, as far as it and r1 know
    net.run(1 * SECOND)
    net.assign(TO_R2)
    net.run(3 * SECOND)
    assert net.delivered("plant/#") == 1


def test_an_edge_that_restarts_still_owes_what_it_had_accepted() -> None:
    net = tiers()
    net.subscribe("e4", "plant/line1/#")
    net.start("e3", "plant/line1/x", 50)
    net.run(3 * SECOND)
    net.crash("e4")
    net.run(3 * SECOND)
    net.crash("e3")
    net.run(1 * SECOND)
    net.restart("e3")
    net.run(3 * SECOND)
    net.restart("e4")
    net.silence()
    net.run(10 * SECOND)
    assert net.lost("plant/#") == 0
    assert net.duplicates("plant/#") == 0


def test_messages_wait_as_long_as_nothing_is_assigned() -> None:
    net = tiers({})
    net.subscribe("e4", "plant/line1/#")
    net.subscribe("e3", "plant/line1/#")
    net.run(1 * SECOND)
    net.publish("e3", "plant/line1/x", 5)
    net.run(20 * SECOND)
    assert net.delivered("plant/#") == 5  # those of the subscriber beside the publisher
    bundle = bundle_of("plant/line1/x")
    assert bundle is not None
    assert net.broker("e3").scope_digest().published == {bundle}
    assert net.broker("e4").scope_digest().subscribed == {bundle}
    net.crash("e3")
    net.restart("e3")
    net.run(5 * SECOND)
    net.assign({bundle: "r2"})
    net.run(5 * SECOND)
    assert net.delivered("plant/#") == 10
    assert net.duplicates("plant/#") == 0


def test_what_an_edge_does_not_need_is_not_told_to_it() -> None:
    net = tiers()
    for number in range(50):
        net.subscribe("e4", f"plant/line{number}/#")
    net.subscribe("e4", "other/line1")
    net.publish("e3", "plant/line7/x")
    net.run(5 * SECOND)
    assert net.broker("e3").scope_size() == {"groups": 1, "doubtful_filters": 0, "held_filters": 1, "brokers": 1}
    assert net.broker("e2").scope_size()["held_filters"] == 0
    assert net.broker("r1").scope_size()["held_filters"] == 51
    assert net.broker("r2").scope_size()["held_filters"] == 0


def test_a_subscription_that_ends_during_a_move_is_forgotten() -> None:
    net = tiers()
    subscriber = net.subscribe("e4", "plant/line1/#")
    net.start("e3", "plant/line1/x", 50)
    net.run(3 * SECOND)
    net.assign(TO_R2, "e4", "r1", "r2")
    net.run(1 * SECOND)
    net.unsubscribe(subscriber)
    net.run(1 * SECOND)
    net.assign(TO_R2)
    net.run(5 * SECOND)
    assert net.broker("e3").scope_size()["held_filters"] == 0


def test_an_edge_cannot_speak_for_another_broker() -> None:
    net = tiers()
    net.run(1 * SECOND)
    router, now = net.broker("r1"), net.now
    before = router.known_brokers()
    invented = Advert("invented", 1, 1, [LinkClaim("e3", 1_000, 0, 0, 0, 0)], {}, 0)
    linked = Advert("e3", 9, 1, [LinkClaim("invented", 1_000, 0, 0, 0, 0)], {}, 0)
    neighbour = router._neighbours["e3"]
    for message in (invented, linked):
        router._gossip.hear("e4", message, now)
    router._gossip.settle(now)
    assert router.known_brokers() == before
    assert neighbour.greeted
    assert router._table.version_of("e3")[0] == 1
