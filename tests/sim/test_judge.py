"""The judge, told by hand what was published and what arrived."""

from overlane.core.units import MS, NEVER, SECOND
from overlane.network import Broker, Network, Topic
from overlane.network.schema import Publisher
from overlane.sim.engine import Engine
from overlane.sim.judge import Judge
from overlane.sim.report import Latency, TopicReport, latency, sum_up
from overlane.sim.run_log import RunLog
from overlane.sim.setup import SimulationSetup

ANNA, BOB = 0, 1


class Court:
    """One publisher on alarms/1, Anna and Bob subscribed to alarms/#; times in milliseconds."""

    def __init__(self, deadline_ns: int = 60 * MS) -> None:
        self.engine = Engine(-10 * SECOND)
        self.judge = Judge(self.engine, {"alarms/#": deadline_ns})
        self.judge.add_publisher("alarms/1", "alarms/#", deadline_ns)
        self.judge.add_subscriber("anna", "x", "alarms/#")
        self.judge.add_subscriber("bob", "y", "alarms/#")
        self.judge.subscribed("anna")
        self.judge.subscribed("bob")

    def publish(self, *times_ms: int) -> None:
        for at in times_ms:
            self.engine.run_until(at * MS)
            self.judge.published(0)

    def arrive(self, at_ms: int, number: int, subscriber: int) -> None:
        self.engine.run_until(at_ms * MS)
        self.judge.arrived(0, number, subscriber)

    def row(self) -> TopicReport:
        return sum_up(self.judge, RunLog(self.engine, lambda _broker, _qos: ()), 0, 0.0).topics["alarms/#"]


def test_a_change_of_routes_concerns_topics_that_are_published_there() -> None:
    network = Network(
        brokers=(Broker(name="a"), Broker(name="b")),
        topics=tuple(Topic(filter=name, deadline_ns=60 * MS) for name in ("alarms/#", "doors/#")),
        publishers=(Publisher(broker="a", topic="doors/1", rate_hz=1.0),),
    )
    setup = SimulationSetup(network, None, None)
    qos = setup.qos_of("doors/1")
    assert setup.filters_affected("a", qos) == ("doors/#",)
    assert setup.filters_affected("b", qos) == ("alarms/#", "doors/#")  # nothing is published there: it may be either


def test_every_expected_delivery_is_in_time_late_or_lost() -> None:
    court = Court()
    court.publish(0, 10, 20)
    court.arrive(40, 0, ANNA)
    court.arrive(60, 0, BOB)
    court.arrive(70, 1, ANNA)
    court.arrive(71, 1, BOB)
    court.arrive(72, 2, ANNA)
    assert court.row() == TopicReport(
        published=3,
        expected=6,
        delivered=5,
        in_time=4,
        late=1,
        lost=1,
        duplicates=0,
        latency_ms=Latency(p50=60.0, p99=61.0, max=61.0),
    )
    assert [(message.number, message.subscriber) for message in court.judge.lost()] == [(2, "bob")]
    assert [(message.number, message.subscriber) for message in court.judge.late()] == [(1, "bob")]


def test_a_second_copy_is_a_duplicate_and_no_delivery() -> None:
    court = Court()
    court.publish(0)
    for at in (10, 11, 12):
        court.arrive(at, 0, ANNA)
    row = court.row()
    assert (row.delivered, row.duplicates, row.lost) == (1, 2, 1)
    assert str(court.judge.doubles[0]) == "message 0 of publisher 0 on alarms/1, published at 0.000 s, for anna"


def test_without_a_deadline_everything_that_arrives_is_in_time() -> None:
    court = Court(deadline_ns=NEVER)
    court.publish(0)
    court.arrive(50_000, 0, ANNA)
    assert (court.row().in_time, court.row().late) == (1, 0)


def test_who_is_not_subscribed_expects_nothing() -> None:
    court = Court()
    court.judge.unsubscribed("bob")
    court.publish(5_000)
    assert court.row().expected == 1


def test_around_the_beginning_and_the_end_of_a_subscription_a_message_counts_only_if_it_arrives() -> None:
    court = Court()
    court.publish(0)
    court.judge.add_subscriber("late", "x", "alarms/1")
    court.judge.subscribed("late")
    court.publish(500, 900, 2_000, 4_500)
    court.engine.run_until(5_000 * MS)
    court.judge.unsubscribed("late")
    for number in range(5):
        court.arrive(6_000, number, ANNA)
        court.arrive(6_000, number, BOB)
    court.arrive(6_000, 2, 2)
    row = court.row()
    assert (row.expected, row.delivered, row.lost) == (10 + 2, 10 + 1, 1)
    assert [(message.number, message.subscriber) for message in court.judge.lost()] == [(3, "late")]


def test_history_for_a_late_subscriber_is_neither_expected_nor_late() -> None:
    court = Court()
    court.publish(0)
    court.engine.run_until(10 * SECOND)
    court.judge.add_subscriber("late", "x", "#")
    court.judge.subscribed("late")
    court.arrive(11_000, 0, 2)
    row = court.row()
    assert (row.expected, row.delivered, row.late) == (2, 0, 0)
    assert court.judge.rows["alarms/#"].replayed == 1


def test_a_message_that_comes_after_a_younger_one_must_have_missed_its_deadline_or_nearly() -> None:
    court = Court()
    court.publish(0, 10, 20)
    court.arrive(50, 2, ANNA)
    court.arrive(55, 1, ANNA)
    court.arrive(58, 0, ANNA)
    assert [(disorder.message.number, disorder.younger) for disorder in court.judge.disorders] == [(1, 2)]


def test_without_a_deadline_order_is_strict() -> None:
    court = Court(deadline_ns=NEVER)
    court.publish(0, 10)
    court.arrive(20, 1, ANNA)
    court.arrive(90_000, 0, ANNA)
    assert len(court.judge.disorders) == 1


def test_the_digest_depends_on_every_delivery_and_its_time() -> None:
    def digest(at_ms: int, subscriber: int) -> str:
        court = Court()
        court.publish(0)
        court.arrive(at_ms, 0, subscriber)
        return court.judge.digest_of()

    assert digest(10, ANNA) == digest(10, ANNA)
    assert len({digest(10, ANNA), digest(11, ANNA), digest(10, BOB)}) == 3


def test_percentiles_are_latencies_that_occurred() -> None:
    assert latency([]) is None
    assert latency([5 * MS]) == Latency(5.0, 5.0, 5.0)
    assert latency([number * MS for number in range(200, 0, -1)]) == Latency(100.0, 198.0, 200.0)
