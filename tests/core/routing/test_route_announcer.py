"""Route announcer: which routes of a source are described again, and which are refreshed by their numbers."""

from overlane.core.gossip.link_state import LinkStateTable
from overlane.core.qos import QosClass
from overlane.core.routing.route import Route
from overlane.core.routing.routes import RoutePlanner
from overlane.core.routing.signalling.route_announcer import RouteAnnouncer
from overlane.core.routing.signalling.route_establishment import AGAIN_AFTER, REFRESH_EVERY, RouteTable
from overlane.core.routing.signalling.route_messages import Established
from overlane.core.units import MS, SECOND, Nanos
from overlane.core.wire.control_messages import Advert, Establish, LinkClaim, RouteRefresh

NOW = 50 * SECOND


class SourceA:
    """Broker a, with a link to b, and c behind it."""

    def __init__(self, latency_ms: int = 10) -> None:
        table = LinkStateTable("a")
        for broker, peers in (("a", "b"), ("b", "ac"), ("c", "b")):
            claims = [LinkClaim(peer, 1_000 * latency_ms, 0, 0, 0, 0) for peer in peers]
            table.accept(Advert(broker, 1, 1, claims, {}, 0), NOW)
        self.announcer = RouteAnnouncer("a", 1, RoutePlanner("a", 1, table), RouteTable("a"))

    def open(self, destination: str, now: Nanos = NOW, *, acknowledged: bool = True) -> Route:
        announcer = self.announcer
        route = announcer.planner.route(QosClass(), (destination,))
        announcer.open(route, now)
        if acknowledged:
            announcer.routes.acknowledged("b", Established("a", 1, route.id, route.version))
            announcer.established(route.id, route.version)
        announcer.outbox.clear()
        return route

    def sent_at(self, now: Nanos) -> list[tuple[str, object]]:
        self.announcer.refresh(now)
        sent = list(self.announcer.outbox)
        self.announcer.outbox.clear()
        return [*sent]


def test_all_routes_that_are_due_or_soon_will_be_are_refreshed_by_one_message() -> None:
    source = SourceA()
    near = source.open("b")
    far = source.open("c", NOW + REFRESH_EVERY // 2)
    assert source.sent_at(NOW + REFRESH_EVERY - 1) == []
    due = NOW + REFRESH_EVERY
    assert source.sent_at(due) == [("b", RouteRefresh("a", 1, 1, {near.id: 1, far.id: 1}))]
    assert source.sent_at(due + REFRESH_EVERY - 1) == []
    assert source.sent_at(due + REFRESH_EVERY) == [("b", RouteRefresh("a", 1, 2, {near.id: 1, far.id: 1}))]


def test_the_acknowledgement_of_a_long_route_is_given_more_time_than_its_round_trip() -> None:
    source = SourceA(latency_ms=300)
    source.open("c", acknowledged=False)
    assert source.sent_at(NOW + 1_700 * MS) == []
    assert [hop for hop, _ in source.sent_at(NOW + 1_900 * MS)] == ["b"]
    slower_than_all = SourceA(latency_ms=60_000)
    slower_than_all.open("c", acknowledged=False)
    assert [hop for hop, _ in slower_than_all.sent_at(NOW + 5 * SECOND)] == ["b"]


def test_a_route_that_was_described_just_now_is_not_refreshed_with_the_others() -> None:
    source = SourceA()
    near = source.open("b")
    source.open("c", NOW + REFRESH_EVERY // 2 + 1)
    assert source.sent_at(NOW + REFRESH_EVERY) == [("b", RouteRefresh("a", 1, 1, {near.id: 1}))]


def test_a_route_that_was_not_acknowledged_is_described_again() -> None:
    source = SourceA()
    route = source.open("c", acknowledged=False)
    assert source.sent_at(NOW + AGAIN_AFTER - 1) == []
    ((hop, message),) = source.sent_at(NOW + AGAIN_AFTER)
    assert hop == "b"
    assert isinstance(message, Establish)
    assert (message.route, message.version, message.refresh) == (route.id, 1, 1)
