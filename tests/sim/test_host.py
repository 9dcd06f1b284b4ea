"""The driver of a broker, with a fake broker in it."""

from fakes import FakeBroker

from overlane.core.events import (
    DeadlineUnmeetable,
    Deliver,
    DirectLinksWanted,
    LinkChanged,
    PathSuspected,
    PathTrusted,
    RequirementChanged,
    RouteChanged,
    RouteEstablished,
)
from overlane.core.units import MS, NEVER, SECOND
from overlane.network import Link as LinkSpec
from overlane.sim.clock import SkewedClock
from overlane.sim.engine import Engine
from overlane.sim.host import Core, Host
from overlane.sim.link import Link
from overlane.sim.traffic import SimulatedPublisher


class Notes:
    """Writes down who got what, and what was published."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.deliveries: list[tuple[int, str, tuple[str, ...]]] = []
        self.publications: list[int] = []

    def delivered(self, broker: str, effect: Deliver) -> None:
        self.deliveries += [(self._engine.now, broker, delivery.subscribers) for delivery in effect.deliveries]

    def published(self, _: int) -> None:
        self.publications.append(self._engine.now)

    def route_changed(self, broker: str, effect: RouteChanged) -> None: ...
    def route_established(self, broker: str, effect: RouteEstablished) -> None: ...
    def deadline_unmeetable(self, broker: str, effect: DeadlineUnmeetable) -> None: ...

    def requirement_changed(self, broker: str, effect: RequirementChanged) -> None: ...
    def link_changed(self, broker: str, effect: LinkChanged) -> None: ...

    def direct_links_wanted(self, broker: str, effect: DirectLinksWanted) -> None: ...
    def path_judged(self, broker: str, effect: PathSuspected | PathTrusted) -> None: ...
    def about_to_send(self, broker: str, core: Core, peers: list[str]) -> None: ...


def two_hosts(clock: SkewedClock | None = None) -> tuple[Engine, Host[FakeBroker], Host[FakeBroker], Notes]:
    engine = Engine()
    notes = Notes(engine)
    a, b = (Host(name, engine, clock or SkewedClock(), FakeBroker, notes) for name in "ab")
    link = Link(engine, LinkSpec(ends=("a", "b"), latency_ns=10 * MS), a, b, seed=1)
    a.links["b"] = b.links["a"] = link
    return engine, a, b, notes


def test_messages_travel_from_broker_to_broker() -> None:
    engine, a, b, notes = two_hosts()
    a.start()
    b.start()
    b.subscribe("bob", "t")
    engine.run_until(SECOND)
    a.publish("t", b"body")
    a.end_turn()
    engine.run_until(2 * SECOND)
    assert notes.deliveries == [(SECOND + 10 * MS, "b", ("bob",))]
    assert a.counters()["messages_sent"] == 1


def test_the_timer_comes_exactly_when_the_broker_asked_for_it() -> None:
    clock = SkewedClock(offset_ns=7, drift_ppm=200.0)
    engine, a, _, _ = two_hosts(clock)
    started = clock.read(engine.now)
    a.start()
    engine.run_until(SECOND)
    assert a.core.ticks == [started + 100 * MS * count for count in range(1, 11)]


def test_a_crash_loses_the_memory_and_a_restart_finds_the_store() -> None:
    engine, a, b, notes = two_hosts()
    a.start()
    b.start()
    b.subscribe("bob", "t")
    engine.run_until(SECOND)
    b.crash()
    assert not b.is_alive
    engine.run_until(2 * SECOND)
    b.start()
    assert (b.core.incarnation, b.core.subscribers) == (2, ["bob"])
    engine.run_until(10 * SECOND)
    a.publish("t", b"body")
    a.end_turn()
    engine.run_until(11 * SECOND)
    assert [(broker, names) for _, broker, names in notes.deliveries] == [("b", ("bob",))]


def test_counters_are_kept_over_crashes() -> None:
    engine, a, b, _ = two_hosts()
    a.start()
    b.start()
    for second in (1, 20):
        engine.run_until(second * SECOND)
        a.publish("t", bytes([second]))
        a.end_turn()
        a.crash()
        a.start()
    assert a.counters()["messages_sent"] == 2


def test_a_publisher_keeps_its_rate_and_its_phase() -> None:
    engine, a, _, notes = two_hosts()
    a.start()
    publisher = SimulatedPublisher(0, "t", 64, a, engine, notes)
    publisher.run(first=3 * MS, stop=SECOND, rate_hz=3.0)
    engine.run_until(2 * SECOND)
    assert notes.publications == [3 * MS, 3 * MS + 333_333_333, 3 * MS + 666_666_666]


def test_a_publisher_told_to_wait_tries_until_it_is_accepted_and_leaves_out_the_slots_that_passed() -> None:
    engine, a, _, notes = two_hosts()
    a.start()
    publisher = SimulatedPublisher(0, "t", 64, a, engine, notes)
    publisher.run(first=0, stop=SECOND, rate_hz=10.0)
    engine.run_until(150 * MS)
    a.core.is_busy = True
    engine.run_until(455 * MS)
    a.core.is_busy = False
    engine.run_until(SECOND)
    assert notes.publications == [at * MS for at in (0, 100, 460, 500, 600, 700, 800, 900)]


def test_a_publisher_is_silent_while_its_broker_is_down() -> None:
    engine, a, _, notes = two_hosts()
    a.start()
    publisher = SimulatedPublisher(0, "t", 64, a, engine, notes)
    publisher.run(first=0, stop=NEVER, rate_hz=10.0)
    engine.run_until(150 * MS)
    a.crash()
    engine.run_until(450 * MS)
    a.start()
    engine.run_until(550 * MS)
    assert notes.publications == [0, 100 * MS, 500 * MS]
