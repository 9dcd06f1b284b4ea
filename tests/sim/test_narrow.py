"""A link that takes half of what is to go over it: as much as it takes is in time, whatever gave way."""

import pytest

from overlane.network import parse_network
from overlane.sim.world import World

SHIP = """
[simulation]
duration = "5s"
[brokers.harbour]
[brokers.ship]
[[links]]
ends = ["ship", "harbour"]
latency = "60ms"
rate = "400kbit"
queue = "32KiB"
back = { latency = "5ms", rate = "8Mbit" }
[topics."reports/#"]
deadline = "1s"
[topics."log/#"]
deadline = "1s"
history = 2
[[publishers]]
broker = "ship"
topic = "REPORTED"
rate = 100
size = "1000B"
[[subscribers]]
broker = "harbour"
topic = "REPORTED"
"""
IN_TIME_MAX = 0.5


def test_what_finds_no_room_at_its_source_holds_up_nothing_that_does() -> None:
    """A gap would: readers get messages in order, so what follows one waits for it as long as it may."""
    reports = World(parse_network(SHIP.replace("REPORTED", "reports/1"), "<test>")).run().topics["reports/#"]
    assert reports.published == 500
    assert reports.lost > 200
    assert reports.late <= 0.01 * reports.published, "until the rate of the link is known"
    assert reports.in_time >= 0.9 * IN_TIME_MAX * reports.published


def test_what_is_kept_as_history_keeps_its_name_although_it_found_no_room() -> None:
    topics = World(parse_network(SHIP.replace("REPORTED", "log/1"), "<test>")).run().topics
    assert (topics["log/#"].published, topics["log/#"].duplicates) == (500, 0)
    assert topics["log/#"].delivered > 200


ONSET = """
[simulation]
duration = "4s"
[brokers.seattle]
[brokers.denver]
[brokers.washington]
[[links]]
ends = ["seattle", "washington"]
latency = "30ms"
rate = "10Mbit"
transport = "TRANSPORT"
[[links]]
ends = ["seattle", "denver"]
latency = "15ms"
[[links]]
ends = ["denver", "washington"]
latency = "25ms"
[topics."alarms/#"]
deadline = "60ms"
[[publishers]]
broker = "seattle"
topic = "alarms/1"
rate = 100
start = "2s"
stop = "3s"
[[publishers]]
broker = "seattle"
topic = "bulk/1"
rate = 183
size = "8KiB"
start = "2s"
[[subscribers]]
broker = "washington"
topic = "#"
"""


@pytest.mark.parametrize("transport", ["datagram", "stream"])
def test_all_alarms_are_in_time_in_the_second_in_which_more_bulk_begins_than_the_link_takes(transport: str) -> None:
    topics = World(parse_network(ONSET.replace("TRANSPORT", transport), "<test>")).run().topics
    assert (topics["alarms/#"].published, topics["alarms/#"].in_time) == (100, 100)
