# ruff: noqa: ARG002 - the methods of protocols
"""Requests of subscribers, against a network that answers as the test says."""

from dataclasses import dataclass, field

import pytest

from overlane.core.units import SECOND, Nanos
from overlane.planning.reserve import Profile, TSpec
from overlane.pubsub.cluster.uplink import Alone
from overlane.pubsub.reservations.network import Denied, Granted, Interrupted, Listener
from overlane.pubsub.reservations.request import BadReservation, ReservationRequest
from overlane.pubsub.reservations.service import Reservations
from overlane.pubsub.reservations.verdict import ReservationVerdict
from overlane.pubsub.timers import Timers

REQUEST = ReservationRequest(Profile(size=1000, period_s=0.1), 0.06, "guaranteed")
KEY = "client", "plant/video"


class Network:
    def __init__(self) -> None:
        self.asked: dict[str, tuple[str, float | None]] = {}
        self.offered: dict[str, frozenset[str]] = {}
        self.listener: Listener = lambda _outcome, _now: None

    def offer(self, topic_filter: str, tspec: TSpec, leaves: frozenset[str], now: Nanos) -> int:
        self.offered[topic_filter] = leaves
        return 7

    def withdraw(self, topic_filter: str, now: Nanos) -> None:
        del self.offered[topic_filter]

    def ask(
        self, request: str, topic_filter: str, tspec: TSpec, latency_s: float | None, style: str, now: Nanos
    ) -> None:
        self.asked[request] = topic_filter, latency_s

    def release(self, request: str, now: Nanos) -> None:
        self.asked.pop(request, None)

    def reserved_rate(self, topic_filter: str) -> int:
        return 0

    def watch_delay(self, topic_filter: str, bound_s: float | None) -> None:
        pass


@dataclass
class Announced(Alone):
    """The names that the broker announces to others."""

    names: set[str] = field(default_factory=set)

    def subscribe(self, subscriber: str, topic_filter: str, durable: bool, now: Nanos) -> None:
        self.names.add(topic_filter)

    def unsubscribe(self, subscriber: str, topic_filter: str, now: Nanos) -> None:
        self.names.remove(topic_filter)


class Bench:
    def __init__(self) -> None:
        self.now = 0
        self.uplink, self.timers, self.network = Announced(), Timers(), Network()
        self.told: list[tuple[str, bytes]] = []
        self.service = Reservations(
            self.uplink,
            self.network,
            self.timers,
            lambda: None,
            lambda topic, payload, _now: self.told.append((topic, payload)),
        )
        self.verdicts: list[ReservationVerdict] = []

    def hear(self, name: str, is_needed: bool = True, broker: str = "west") -> None:
        self.service.interest_changed(name, broker, is_needed, self.now)

    def ask(self, request: ReservationRequest = REQUEST, topic_filter: str = "plant/video") -> None:
        self.service.ask(*KEY, topic_filter, request, lambda verdict, _: self.verdicts.append(verdict), self.now)

    def answer(self, *outcomes: object) -> None:
        for question in list(self.network.asked):
            for make in outcomes:
                self.network.listener(make(question), self.now)  # type: ignore[operator]

    def wait(self, duration_ns: Nanos) -> None:
        self.now += duration_ns
        self.timers.run(self.now)


def grant(question: str) -> Granted:
    return Granted(question, 25_000, 0.055)


def deny(question: str) -> Denied:
    return Denied(question, "a link has not enough rate left", ("a", "b"), 1107.0, 0.2)


def test_routing_brokers_refuse_reservations_and_advertisements() -> None:
    bench = Bench()
    bench.uplink.is_routing = True
    with pytest.raises(BadReservation, match="at a routing broker; expected an edge"):
        bench.ask()
    with pytest.raises(BadReservation, match="at a routing broker; expected an edge"):
        bench.service.document("plant/video", b'{"size": 1000, "period_s": 0.01}', "client", False, 0)
    assert (bench.network.asked, bench.network.offered, bench.uplink.names) == ({}, {}, set())


def test_edges_refuse_filters_that_do_not_name_a_group_of_topics() -> None:
    bench = Bench()
    bench.uplink.is_edge = True
    with pytest.raises(BadReservation, match="wildcard in the first two levels of plant/#; expected none"):
        bench.service.ask("client", "plant/#", "plant/#", REQUEST, None, 0)
    with pytest.raises(BadReservation, match=r"first two levels of [+]/video"):
        bench.service.document("all", b'{"filter": "+/video", "size": 1000, "period_s": 0.01}', "client", False, 0)
    assert (bench.network.asked, bench.network.offered, bench.uplink.names) == ({}, {}, set())


def test_an_edge_looks_for_advertisements_for_as_long_as_somebody_asks() -> None:
    bench = Bench()
    bench.uplink.is_edge = True
    bench.ask()
    assert bench.uplink.names == {"$seek/plant/video"}
    bench.hear("$advertise/plant/video")
    assert bench.uplink.names == {"$seek/plant/video", "$reserve/plant/video"}
    bench.answer(deny)
    assert (bench.verdicts[0].service, bench.uplink.names) == (None, set())
    bench.ask()
    bench.service.release("client", "plant/video", 0)
    assert bench.uplink.names == set()


def test_a_subscriber_is_told_when_every_link_has_granted_it() -> None:
    bench = Bench()
    bench.hear("$advertise/plant/video")
    bench.ask()
    assert bench.verdicts == []
    assert bench.uplink.names == {"$reserve/plant/video"}
    assert list(bench.network.asked.values()) == [("plant/video", 0.06)]
    bench.answer(grant)
    assert bench.verdicts == [ReservationVerdict("guaranteed", 25_000, 0.055)]
    bench.service.release(*KEY, bench.now)
    assert not bench.network.asked
    assert not bench.uplink.names


def test_a_refusal_names_the_bottleneck_and_the_nearest_values() -> None:
    bench = Bench()
    bench.hear("$advertise/plant/video")
    bench.ask()
    bench.answer(deny)
    [verdict] = bench.verdicts
    assert not verdict.is_granted
    assert verdict.properties() == [
        ("overlane-bottleneck", "a-b"),
        ("overlane-nearest-rate", "1"),
        ("overlane-nearest-latency", "200ms"),
    ]
    assert not bench.network.asked
    assert not bench.uplink.names
    assert not bench.service.has(*KEY)


def test_who_accepts_less_is_given_less_and_told() -> None:
    bench = Bench()
    bench.hear("$advertise/plant/video")
    bench.ask(ReservationRequest(REQUEST.profile, 0.06, "best-effort"))
    bench.answer(deny)
    assert bench.verdicts == []
    assert list(bench.network.asked.values()) == [("plant/video", None)]
    bench.answer(deny)
    [verdict] = bench.verdicts
    assert (verdict.service, verdict.bottleneck) == ("best-effort", ("a", "b"))
    # It is tried again later, and told.
    bench.wait(30 * SECOND)
    bench.answer(grant)
    assert bench.told == [
        (
            "$overlane/reservations/client",
            b'{"filter":"plant/video","state":"admitted","class":"guaranteed","reserved":"25000","bound":"55ms"}',
        )
    ]


def test_without_an_advertisement_a_subscriber_waits_two_seconds() -> None:
    bench = Bench()
    bench.ask()
    bench.wait(2 * SECOND - 1)
    assert bench.verdicts == []
    bench.wait(1)
    assert bench.verdicts == [ReservationVerdict(None, reason="no publisher advertises this topic")]


def test_an_advertisement_that_comes_in_time_is_asked_for() -> None:
    bench = Bench()
    bench.ask()
    bench.wait(SECOND)
    bench.hear("$advertise/plant/video")
    bench.answer(grant)
    assert bench.verdicts[0].is_granted


def test_a_wildcard_asks_for_everything_that_is_advertised_below_it() -> None:
    bench = Bench()
    bench.hear("$advertise/plant/video")
    bench.hear("$advertise/plant/sound")
    bench.hear("$advertise/other")
    bench.ask(topic_filter="plant/+")
    assert sorted(one for one, _ in bench.network.asked.values()) == ["plant/sound", "plant/video"]
    first, second = bench.network.asked
    bench.network.listener(grant(first), 0)
    assert bench.verdicts == []
    bench.network.listener(grant(second), 0)
    assert bench.verdicts == [ReservationVerdict("guaranteed", 50_000, 0.055)]


def test_what_is_advertised_here_needs_no_link() -> None:
    bench = Bench()
    bench.service.document("plant/video", b'{"size": 1000, "period_s": 0.1}', "publisher", False, 0)
    bench.ask()
    assert bench.verdicts == [ReservationVerdict("guaranteed", None, 0.0)]
    assert not bench.network.asked


def test_what_is_lost_later_is_told_and_sought_again() -> None:
    bench = Bench()
    bench.hear("$advertise/plant/video")
    bench.ask()
    bench.answer(grant)
    bench.answer(Interrupted)
    bench.answer(deny)
    bench.wait(30 * SECOND)
    bench.answer(grant)
    states = [payload.split(b'"state":"')[1].split(b'"')[0] for _, payload in bench.told]
    assert states == [b"interrupted", b"lost", b"admitted"]


def test_a_publisher_that_is_gone_and_comes_back() -> None:
    bench = Bench()
    bench.hear("$advertise/plant/video")
    bench.ask()
    bench.answer(grant)
    bench.hear("$advertise/plant/video", is_needed=False)
    assert not bench.network.asked
    assert b"no publisher advertises" in bench.told[-1][1]
    bench.hear("$advertise/plant/video")
    bench.answer(grant)
    assert b'"state":"admitted"' in bench.told[-1][1]


def test_the_advertisements_of_a_client_end_some_time_after_its_connection() -> None:
    bench, is_back = Bench(), [False]
    bench.service.document("plant/video", b'{"size": 1000, "period_s": 0.1}', "publisher", False, 0)
    bench.hear("$reserve/plant/video")
    assert bench.network.offered == {"plant/video": frozenset({"west"})}
    assert bench.uplink.names == {"$advertise/plant/video"}
    bench.service.left("publisher", lambda: is_back[0], bench.now)
    bench.wait(9 * SECOND)
    assert bench.network.offered
    bench.wait(SECOND)
    assert not bench.network.offered
    assert not bench.uplink.names


def test_a_retained_advertisement_stays_until_it_is_taken_back() -> None:
    bench = Bench()
    bench.service.document("name", b'{"filter": "plant/#", "size": 1000, "period_s": 0.1}', "publisher", True, 0)
    bench.service.left("publisher", lambda: False, bench.now)
    bench.wait(20 * SECOND)
    assert list(bench.network.offered) == ["plant/#"]
    bench.service.document("name", b"", "another", True, bench.now)
    assert not bench.network.offered
