"""What the network file says of odd sites, told by messages of real brokers: paths that are not the same back, narrow
ones, several uplinks, NAT."""

import asyncio

import pytest
from ground import needs_a_wide_area

from overlane.network import parse_network
from overlane.sim.report import TopicReport
from overlane.sim.world import World
from overlane.testbed.trial import run_trial

pytestmark = [needs_a_wide_area, pytest.mark.slow]

HARBOUR = """
[simulation]
duration = "5s"
[brokers.harbour]
[brokers.island]
[brokers.ship]
[[links]]
ends = ["island", "harbour"]
latency = "60ms"
back = { latency = "5ms" }
[[links]]
ends = ["ship", "harbour"]
latency = "5ms"
rate = "400kbit"
queue = "32KiB"
back = { rate = "8Mbit" }
[topics."reports/#"]
deadline = "1s"
[topics."charts/#"]
deadline = "1s"
[[publishers]]
broker = "ship"
topic = "reports/1"
rate = 100
size = "1000B"
[[publishers]]
broker = "harbour"
topic = "charts/1"
rate = 100
size = "1000B"
[[publishers]]
broker = "island"
topic = "there/1"
rate = 20
[[publishers]]
broker = "harbour"
topic = "back/1"
rate = 20
[[subscribers]]
broker = "harbour"
topic = "reports/#"
[[subscribers]]
broker = "ship"
topic = "charts/#"
[[subscribers]]
broker = "harbour"
topic = "there/#"
[[subscribers]]
broker = "island"
topic = "back/#"
"""
SECONDS, DEADLINE_S, MESSAGE_BYTES, BYTES_PER_S = 5, 1, 1000, 400_000 // 8

FARM = """
[simulation]
duration = "5s"
[brokers.depot.uplinks.fibre]
[brokers.depot.uplinks.radio]
latency = "40ms"
[brokers.farm]
reach = []
[[links]]
ends = ["depot", "farm"]
latency = "5ms"
[topics."orders/#"]
deadline = "2s"
reliability = "reliable"
[[publishers]]
broker = "depot"
topic = "orders/1"
rate = 20
[[subscribers]]
broker = "farm"
topic = "orders/#"
[[events]]
at = "1s"
unplug = ["depot", "fibre"]
"""


def told(text: str) -> list[dict[str, TopicReport]]:
    """By real brokers, and by simulated ones."""
    network = parse_network(text, "<test>")
    return [asyncio.run(run_trial(network)).topics, World(network).run().topics]


def test_a_narrow_path_carries_no_more_than_its_rate_and_each_direction_of_a_path_has_its_own_latency() -> None:
    """More reports are to leave the ship than can. What comes the other way does not suffer for it."""
    for topics in told(HARBOUR):
        reports, charts, there, back = (topics[name] for name in ("reports/#", "charts/#", "there/#", "back/#"))
        assert charts.in_time >= 0.8 * charts.published
        assert reports.published == 100 * SECONDS
        assert 0 < reports.in_time <= (SECONDS + DEADLINE_S) * BYTES_PER_S / MESSAGE_BYTES
        assert (there.lost, back.lost) == (0, 0)
        assert there.latency_ms is not None
        assert back.latency_ms is not None
        assert there.latency_ms.p50 >= 60.0
        assert 5.0 <= back.latency_ms.p50 < 60.0


def test_a_site_that_lost_its_first_uplink_reaches_one_behind_nat_over_its_second() -> None:
    """The fibre never comes back, and the depot cannot dial the farm: the farm finds it at its other address."""
    for topics in told(FARM):
        orders = topics["orders/#"]
        assert (orders.published, orders.lost, orders.duplicates) == (100, 0, 0)
        assert orders.latency_ms is not None
        assert orders.latency_ms.p50 >= 5.0
        assert orders.latency_ms.p99 >= 45.0
