"""Ten thousand idle clients cost little memory each, and nobody else anything."""

from pathlib import Path

import pytest
from idlers import Idlers, most, room_for
from stage import Bystanders, StrainedBroker, strained

from watched import let_in

pytestmark = pytest.mark.slow

WANTED = 10_000
BYTES_MAX = 5 * 1024
"""For one idle client; what the kernel keeps for its socket comes on top."""
SUBSCRIBED_BYTES_MAX = 6 * 1024
"""With a subscription, by which it has received a message."""


def test_ten_thousand_idle_clients_cost_little_and_hold_nobody_up(tmp_path: Path) -> None:
    count = most(WANTED)
    broker = StrainedBroker(tmp_path, "connections_per_second = 1000000\n")
    with strained(broker), Bystanders(broker.port) as bystanders, room_for(count):
        before, empty_bytes = bystanders.window_of(200), broker.memory_bytes
        idlers = Idlers(broker.port)
        try:
            idlers.come(count)
            each_bytes = (broker.memory_bytes - empty_bytes) / count
            assert broker.status()["connections"] == count + 2
            beside_them = bystanders.window_of(200)

            idlers.subscribe("all")
            with let_in(broker.port, "speaker") as speaker:
                speaker.publish("all", b"wake up", qos=0)
            idlers.hear(b"wake up")
            subscribed_bytes = (broker.memory_bytes - empty_bytes) / count
            bystanders.window()
            print(f"{count} idle clients: {each_bytes:.0f} bytes each, {subscribed_bytes:.0f} with a subscription")
            print(f"before {before}\nbeside {beside_them}")
            beside_them.judge(before)
            assert each_bytes < BYTES_MAX
            assert subscribed_bytes < SUBSCRIBED_BYTES_MAX
        finally:
            idlers.go(politely=True)
        broker.wait_for_status(lambda status: status["connections"] == 2, "all gone")


def test_ten_thousand_clients_that_vanish_at_once_leave_nothing_behind(tmp_path: Path) -> None:
    count = most(WANTED)
    broker = StrainedBroker(tmp_path, "connections_per_second = 1000000\n")
    with strained(broker), Bystanders(broker.port) as bystanders, room_for(count):
        before = bystanders.window_of(200)
        idlers = Idlers(broker.port)
        taken_bytes = []
        for _ in range(2):
            idlers.come(count)
            idlers.go(politely=False)
            broker.wait_for_status(lambda status: status["connections"] == 2 == status["sessions"], "all gone")
            taken_bytes.append(broker.memory_bytes)
        bystanders.window_of(100).judge(before)
        # What the first ten thousand have left is used again by the second.
        assert taken_bytes[1] < taken_bytes[0] * 1.2, taken_bytes
