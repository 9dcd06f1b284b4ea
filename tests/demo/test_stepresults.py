"""What became of the messages of one step."""

from dataclasses import replace

from overlane.core.units import MS, SECOND
from overlane.demo.step_results import busy_note, is_lossless, step_figures
from overlane.network import Broker, Link, Network, Publisher, Subscriber, Topic
from overlane.sim.setup import SimulationSetup
from overlane.testbed.trial_clients import Observations, Published, Received

NETWORK = Network(
    brokers=(Broker(name="a"), Broker(name="b")),
    links=(Link(ends=("a", "b"), latency_ns=MS),),
    topics=(Topic(filter="alarms/#", deadline_ns=50 * MS),),
    publishers=(Publisher(broker="a", topic="alarms/1", rate_hz=1),),
    subscribers=(Subscriber(broker="b", topic="alarms/#"), Subscriber(broker="b", topic="other/#")),
)
SEEN = [
    Observations([Published(0, [0, 1 * SECOND, 2 * SECOND, 3 * SECOND])], []),
    Observations([], [Received(0, 0, [0, 2, 1], [10 * MS, 60 * MS, 50 * MS], [2])]),
]


def test_messages_are_judged_by_when_they_were_published_and_how_long_they_took() -> None:
    (figures,) = step_figures(SimulationSetup(NETWORK, None, None), SEEN, 1 * SECOND, 4 * SECOND)
    assert (figures.topic, figures.deadline_ms, figures.expected) == ("alarms/1", 50.0, 3)
    assert (figures.in_time, figures.late, figures.missing, figures.duplicates) == (1, 1, 1, 1)
    assert (figures.p50_ms, figures.p99_ms) == (60.0, 60.0)
    assert figures.in_time_rate == 1 / 3
    (before,) = step_figures(SimulationSetup(NETWORK, None, None), SEEN, 0, 2 * SECOND)
    assert (before.expected, before.missing, before.duplicates) == (2, 0, 0)


def test_only_what_came_once_and_all_of_it_is_faithful() -> None:
    (figures,) = step_figures(SimulationSetup(NETWORK, None, None), SEEN, 0, 4 * SECOND)
    assert (figures.missing, figures.duplicates) == (1, 1)
    for missing, duplicates in [(0, 0), (1, 0), (0, 1)]:
        told = [replace(figures, missing=0, duplicates=0), replace(figures, missing=missing, duplicates=duplicates)]
        assert is_lossless(told) == (missing == duplicates == 0)
    assert is_lossless([])


def test_a_span_without_messages_misses_nothing() -> None:
    (figures,) = step_figures(SimulationSetup(NETWORK, None, None), SEEN, 10 * SECOND, 20 * SECOND)
    assert (figures.expected, figures.in_time_rate, figures.p99_ms) == (0, 1.0, 0.0)


def test_late_messages_without_a_fault_are_explained_on_a_busy_machine_alone() -> None:
    (late,) = step_figures(SimulationSetup(NETWORK, None, None), SEEN, 1 * SECOND, 4 * SECOND)
    in_time = replace(late, in_time=late.expected, late=0, missing=0)
    note = busy_note([in_time, late], load=18.6, processors=2)
    assert note is not None
    assert "load average 19, 2 processors" in note
    assert busy_note([in_time, late], load=2.0, processors=2) is None
    assert busy_note([in_time], load=18.6, processors=2) is None
