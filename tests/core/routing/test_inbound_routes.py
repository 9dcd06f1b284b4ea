"""Routes of other brokers that end at a broker, and what they tell of the way messages come."""

from handwired import Overlay

from overlane.core.qos import QosClass, Routing
from overlane.core.units import MS, NEVER
from overlane.telemetry.message_paths import MessagePaths

LINKS = {"a-b": 10, "b-c": 10, "a-d": 15, "d-c": 15}


def network(routing: Routing) -> Overlay:
    net = Overlay(LINKS, {"t": QosClass(deadline_ns=100 * MS, routing=routing), "u": QosClass(routing=routing)})
    net.run(3_000)
    net.subscribe("c", "#")
    net.run(500)
    net.publish("a", "t", b"x")
    net.publish("a", "u", b"x")
    net.run(500)
    return net


def test_a_destination_knows_the_links_and_deadlines_of_the_routes_that_end_at_it() -> None:
    net = network(Routing.SINGLE)
    found = {(view.origin, view.deadline_ns): view.links for view in net.brokers["c"].inbound_routes()}
    assert found == {("a", 100 * MS): (("a", "b"), ("b", "c")), ("a", NEVER): (("a", "b"), ("b", "c"))}
    assert net.brokers["a"].inbound_routes() == []
    assert net.brokers["b"].inbound_routes() == []


def test_the_way_of_a_message_is_known_where_its_route_is_one_path_and_follows_it_when_it_moves() -> None:
    net = network(Routing.SINGLE)
    ways = MessagePaths(net.brokers["c"])
    assert ways.path("a", 100 * MS) == ("a", "b", "c")
    assert ways.path("d", 100 * MS) is None
    net.cut("a", "b")
    net.run(3_000)
    net.publish("a", "t", b"x")
    net.run(500)
    assert ways.path("a", 100 * MS) == ("a", "d", "c")


def test_of_several_paths_none_is_claimed() -> None:
    net = network(Routing.FLOOD)
    assert MessagePaths(net.brokers["c"]).path("a", 100 * MS) is None
