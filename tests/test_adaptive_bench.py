"""The parts of bench/adaptive.py: why a message was missed."""

import pytest

from overlane.core.units import MS, SECOND
from overlane.network import Broker, Event, Link, Lossy, Network, Publisher, Slow, Subscriber, Topic
from overlane.sim.engine import Engine
from overlane.sim.judge import Judge
from overlane.sim.report import RouteChange

pytestmark = pytest.mark.usefixtures("bench_folder")

DEADLINE = 60 * MS


def reasons(*events: Event, missed_ms: list[int]) -> dict[str, int]:
    """For messages from a over b to d, 40 ms away; another way leads over c and takes 44 ms."""
    from _adaptive_misses import profile
    from _adaptive_scenarios import Scenario

    calm = Network(
        brokers=tuple(Broker(name=name) for name in "abcd"),
        links=tuple(
            Link(ends=(ends[0], ends[1]), latency_ns=ms * MS)
            for ends, ms in {"ab": 10, "bd": 30, "ac": 12, "cd": 32}.items()
        ),
        topics=(Topic(filter="flow/0", deadline_ns=DEADLINE),),
        publishers=(Publisher(broker="a", topic="flow/0", rate_hz=100.0),),
        subscribers=(Subscriber(broker="d", topic="flow/0"),),
    )
    rough = Network(brokers=calm.brokers, links=calm.links, events=events)
    move = RouteChange(0.0, "a", ("flow/0",), ("d",), (("a", "b"), ("b", "d")), "first use", 40.0, None, None, None)
    engine = Engine(-10 * SECOND)
    judge = Judge(engine, {"flow/0": DEADLINE})
    judge.add_publisher("flow/0", "flow/0", DEADLINE)
    judge.add_subscriber("anna", "d", "flow/0")
    judge.subscribed("anna")
    for at_ms in missed_ms:
        engine.run_until(at_ms * MS)
        judge.published(0)
    return profile(judge, Scenario("square", 1, rough, calm), (move,))


@pytest.mark.parametrize("event", [Slow(5 * SECOND, ("b", "d"), 90 * MS), Lossy(5 * SECOND, ("b", "d"), 0.3)])
def test_until_a_round_trip_and_the_way_back_have_passed_nobody_can_know(event: Event) -> None:
    known_ms = 5_000 + 2 * 30 + 10
    assert reasons(event, missed_ms=[4_990, 5_000, known_ms - 1]) == {"onset": 3}
    assert reasons(event, missed_ms=[4_900, known_ms, 6_000]) == {"later": 3}


def test_what_happens_to_links_that_the_route_does_not_use_is_no_excuse() -> None:
    assert reasons(Slow(5 * SECOND, ("c", "d"), 90 * MS), missed_ms=[5_000]) == {"later": 1}


def test_a_link_that_becomes_quicker_is_no_excuse() -> None:
    assert reasons(Slow(5 * SECOND, ("b", "d"), 20 * MS), missed_ms=[5_000]) == {"later": 1}


def test_where_every_path_takes_longer_than_the_deadline_there_is_no_way() -> None:
    both = [Slow(5 * SECOND, ends, 90 * MS) for ends in (("b", "d"), ("c", "d"))]
    assert reasons(*both, missed_ms=[5_000, 6_000]) == {"no way": 2}
