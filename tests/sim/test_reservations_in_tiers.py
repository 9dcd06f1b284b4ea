"""Reservations in two tiers: from edge to edge over a routing broker, between brokers of the simulator."""

from overlane.core.bundles import BUNDLES
from overlane.core.units import MS, SECOND
from overlane.core.wire.frame_codec import broker_id
from overlane.network import Broker, Link, Network, Simulation
from overlane.planning.reserve import Profile
from overlane.pubsub.reservations.request import ReservationRequest
from overlane.pubsub.reservations.service import Reservations
from overlane.pubsub.reservations.verdict import ReservationVerdict
from overlane.sim.whole.broker import Pace
from overlane.sim.whole.drawing import CHAOS_NS, Drawn, DrawnSubscription, Person, Publication
from overlane.sim.whole.tiers import Move, TierWorld

EDGES, ROUTERS = ("e1", "e2", "e3"), ("r1", "r2")
TO_R1, TO_R2 = (dict.fromkeys(range(BUNDLES), name) for name in ROUTERS)
VIDEO = b'{"size": 1000, "period_s": 0.01}'
REQUEST = ReservationRequest(Profile(size=1000, period_s=0.01), 0.2, "guaranteed")
HUGE = ReservationRequest(Profile(size=100_000, period_s=0.01), None, "controlled-load")


class Tiers:
    """Three edges and two routing brokers; r1 carries all topics, and edges have links with both."""

    def __init__(self, *people: Person) -> None:
        links = tuple(
            Link(ends=(edge, router), latency_ns=5 * MS, rate_bps=10_000_000) for edge in EDGES for router in ROUTERS
        )
        brokers = tuple(Broker(name=name) for name in (*EDGES, *ROUTERS))
        network = Network(brokers=brokers, links=links, simulation=Simulation(duration_ns=CHAOS_NS, seed=1))
        roles = {**dict.fromkeys(EDGES, "edge"), **dict.fromkeys(ROUTERS, "routing")}
        paces = dict.fromkeys((*EDGES, *ROUTERS), Pace(200_000, (MS, 5 * MS)))
        drawn = Drawn(1, network, paces, people, (), False, roles, TO_R1)
        self.net = TierWorld(drawn, (Move(1 * SECOND, TO_R1, TO_R2),))
        self.net.start()
        self.net.engine.run_until(2 * SECOND)
        self.verdicts: list[ReservationVerdict] = []

    def run(self, duration_ns: int) -> None:
        self.net.engine.run_until(self.net.engine.now + duration_ns)

    def reservations(self, edge: str) -> Reservations:
        return self.net.brokers[edge].turn.server.pubsub.reservations

    def advertise(self, edge: str, topic: str) -> None:
        broker = self.net.brokers[edge]
        self.reservations(edge).document(topic, VIDEO, "writer", True, broker.now())
        broker._end_turn_soon()

    def ask(self, edge: str, topic: str, request: ReservationRequest = REQUEST) -> None:
        broker = self.net.brokers[edge]
        answer = lambda verdict, _now: self.verdicts.append(verdict)  # noqa: E731
        self.reservations(edge).ask("reader", topic, topic, request, answer, broker.now())
        broker._end_turn_soon()

    def promised(self, one: str, other: str) -> int:
        agent = self.net.brokers[one].turn.reserving.agent
        ledger = None if agent is None else agent.ledgers.get(broker_id(other))
        return 0 if ledger is None else ledger.promised

    def release(self, edge: str, topic: str) -> None:
        broker = self.net.brokers[edge]
        self.reservations(edge).release("reader", topic, broker.now())
        broker._end_turn_soon()


def test_a_subscriber_is_admitted_from_edge_to_edge_and_the_routing_broker_sets_the_rate_aside() -> None:
    tiers = Tiers()
    tiers.advertise("e1", "plant/line1/video")
    tiers.ask("e3", "plant/line1/video")
    tiers.run(2 * SECOND)
    [verdict] = tiers.verdicts
    assert verdict.service == "guaranteed", verdict
    assert verdict.bound_s is not None
    assert verdict.bound_s <= 0.2
    assert tiers.promised("e1", "r1") + tiers.promised("e1", "r2") == verdict.rate
    assert tiers.promised("r1", "e3") + tiers.promised("r2", "e3") == verdict.rate
    # An edge that has nothing to do with the topic hears nothing of it.
    assert tiers.reservations("e2").reserving.advertised == {}


def test_messages_within_the_profile_take_the_reserved_lane_of_both_links() -> None:
    writer = Person("writer", "e1", MS, (), (Publication("plant/line1/video", 1, 5),))
    reader = Person("reader", "e3", MS, (DrawnSubscription("plant/line1/video", 1),), ())
    tiers = Tiers(writer, reader)
    tiers.advertise("e1", "plant/line1/video")
    tiers.ask("e3", "plant/line1/video")
    tiers.net.engine.run_until(CHAOS_NS)
    assert [one.service for one in tiers.verdicts] == ["guaranteed"]
    assert tiers.net.judge.deliveries == 5
    router = next(one for one in ROUTERS if tiers.promised(one, "e3"))
    for sender, receiver in (("e1", router), (router, "e3")):
        [counters] = tiers.net.brokers[sender].turn.core.reserved_counters(receiver).values()
        assert counters.reserved_bytes > 0
        assert counters.excess_bytes == 0
    # This is what telemetry records of the flow.
    advertising = tiers.reservations("e1").advertising
    flow = advertising.flows["plant/line1/video"]
    assert advertising.network.reserved_rate("plant/line1/video") == tiers.verdicts[0].rate
    assert (flow.meter.messages, flow.excess_messages) == (flow.messages, 0)
    assert flow.link_bytes > flow.meter.payload_bytes > 0


def test_a_reservation_moves_to_the_standby_when_the_routing_broker_dies() -> None:
    tiers = Tiers()
    tiers.advertise("e1", "plant/line1/video")
    tiers.ask("e3", "plant/line1/video")
    tiers.run(2 * SECOND)
    first, second = sorted(ROUTERS, key=lambda one: -tiers.promised("e1", one))
    assert tiers.promised("e1", first)
    tiers.net.brokers[first].crash(loses_power=False)
    tiers.run(8 * SECOND)
    assert tiers.promised("e1", first) == 0
    assert tiers.promised("e1", second) == tiers.promised(second, "e3") == tiers.verdicts[0].rate
    [one] = tiers.reservations("e3").reserving.requests.values()
    assert one.state == "held"


def test_a_request_without_room_names_the_link_that_refused() -> None:
    tiers = Tiers()
    tiers.reservations("e1").document(
        "plant/line1/all", b'{"size": 100000, "period_s": 0.01}', "writer", True, tiers.net.brokers["e1"].now()
    )
    tiers.net.brokers["e1"]._end_turn_soon()
    tiers.ask("e3", "plant/line1/all", HUGE)
    tiers.run(3 * SECOND)
    [verdict] = tiers.verdicts
    assert verdict.service is None
    assert verdict.bottleneck is not None
    assert verdict.bottleneck[1] == "e3"
    assert verdict.bottleneck[0] in ROUTERS
    # It looks for advertisements no more.
    assert tiers.reservations("e3").reserving.requests == {}
    assert not tiers.net.brokers["e3"].turn.core.is_subscribed("$seek/plant/line1/all")


def test_what_is_released_is_free_at_the_routing_broker_within_seconds() -> None:
    tiers = Tiers()
    tiers.ask("e3", "plant/line1/video")  # before it is advertised
    tiers.run(SECOND)
    tiers.advertise("e1", "plant/line1/video")
    tiers.run(2 * SECOND)
    assert [one.service for one in tiers.verdicts] == ["guaranteed"]
    tiers.release("e3", "plant/line1/video")
    tiers.run(SECOND)
    links = [link for router in ROUTERS for link in (("e1", router), (router, "e3"))]
    assert [tiers.promised(*link) for link in links] == [0, 0, 0, 0]
