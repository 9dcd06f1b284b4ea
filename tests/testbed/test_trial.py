"""A network file played by real brokers, and by the simulator: the same story, the same form of report."""

import asyncio

import pytest

from overlane.errors import ConfigError
from overlane.network import parse_network
from overlane.sim.world import World
from overlane.testbed.trial import run_trial

SQUARE = """
[simulation]
duration = "6s"
[brokers.a]
[brokers.b]
[brokers.c]
[brokers.d]
[[links]]
ends = ["a", "b"]
latency = "5ms"
[[links]]
ends = ["b", "d"]
latency = "5ms"
[[links]]
ends = ["a", "c"]
latency = "8ms"
[[links]]
ends = ["c", "d"]
latency = "8ms"
[topics."orders/#"]
deadline = "500ms"
reliability = "reliable"
[[publishers]]
broker = "a"
topic = "orders/1"
rate = 50
[[subscribers]]
broker = "d"
topic = "orders/#"
[[events]]
at = "1s"
slow = ["a", "b"]
latency = "100ms"
[[events]]
at = "2s"
heal = ["a", "b"]
[[events]]
at = "3s"
cut = ["a", "b"]
[[events]]
at = "4s"
heal = ["a", "b"]
[[events]]
at = "4.5s"
crash = "b"
[[events]]
at = "5s"
restart = "b"
"""


@pytest.mark.slow
def test_real_brokers_and_simulated_ones_tell_the_same_of_what_arrives() -> None:
    network = parse_network(SQUARE)
    told: list[tuple[float, str]] = []
    trial = run_trial(network, tell=lambda at_s, what: told.append((at_s, what)), emulate=True)
    reports = asyncio.run(trial), World(network).run(lambda _: None)
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
