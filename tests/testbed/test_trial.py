"""A network file played by real brokers, and by the simulator: the same story, the same form of report."""

import asyncio

import pytest
from orders import orders

from overlane.core.units import MS, SECOND
from overlane.errors import ConfigError
from overlane.network import Crash, Cut, Heal, Restart, Slow, parse_network
from overlane.sim.world import World
from overlane.testbed.trial import run_trial

SQUARE = orders(
    {("a", "b"): 5 * MS, ("b", "d"): 5 * MS, ("a", "c"): 8 * MS, ("c", "d"): 8 * MS},
    Slow(1 * SECOND, ("a", "b"), 100 * MS),
    Heal(2 * SECOND, ("a", "b")),
    Cut(3 * SECOND, ("a", "b")),
    Heal(4 * SECOND, ("a", "b")),
    Crash(4_500 * MS, "b"),
    Restart(5 * SECOND, "b"),
    duration_ns=6 * SECOND,
    deadline_ns=500 * MS,
    rate_hz=50,
)


@pytest.mark.slow
def test_real_brokers_and_simulated_ones_tell_the_same_of_what_arrives() -> None:
    told: list[tuple[float, str]] = []
    trial = run_trial(SQUARE, tell=lambda at_s, what: told.append((at_s, what)), emulate=True)
    reports = asyncio.run(trial), World(SQUARE).run(lambda _: None)
    real, simulated = (report.topics["orders/#"] for report in reports)
    for report in (real, simulated):
        assert (report.published, report.expected, report.lost, report.duplicates) == (300, 300, 0, 0)
        assert report.in_time + report.late == report.delivered == 300
    assert all(report.sent_per_message >= 2.0 for report in reports)
    assert all(report.control_bytes_per_broker_s > 0.0 for report in reports)
    assert all(change.source == "a" for report in reports for change in report.route_changes)
    assert real.latency_ms is not None
    assert simulated.latency_ms is not None
    # A real path takes what the simulator says, and what the machine adds.
    assert real.latency_ms.p50 >= simulated.latency_ms.p50 - 1.0
    assert told == [
        (1.0, "a - b slows down to 100 ms"),
        (2.0, "a - b heals"),
        (3.0, "a - b is cut"),
        (4.0, "a - b heals"),
        (4.5, "b crashes"),
        (5.0, "b restarts"),
    ]


def test_what_cannot_be_played_is_refused_before_anything_starts() -> None:
    network = parse_network('[brokers.a]\n[brokers.b]\n[[events]]\nat = "1s"\nleave = "a"\n')
    with pytest.raises(ConfigError, match="a broker that leaves"):
        asyncio.run(run_trial(network))
