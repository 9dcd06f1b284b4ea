"""Bytes that are almost MQTT, to a broker that runs: they concern nobody but those who send them."""

from pathlib import Path

import pytest
from fuzzing import Fuzzer
from stage import Bystanders, StrainedBroker, strained

REFUSALS = ("malformed", "protocol error", "packet too large")


@pytest.mark.parametrize(
    ("seed", "connections"),
    [(1, 150), pytest.param(2, 700, marks=pytest.mark.slow)],
    ids=["some strangers", "many strangers"],
)
def test_bad_bytes_end_in_clean_closes_and_are_counted_and_nobody_else_is_concerned(
    tmp_path: Path, seed: int, connections: int
) -> None:
    broker = StrainedBroker(tmp_path, 'connections_per_second = 100000\npacket = "64KiB"\n')
    with strained(broker), Bystanders(broker.port) as bystanders:
        before = bystanders.window_of(100)
        fuzzer = Fuzzer(broker.port, broker.websocket_port, seed)
        for number in range(connections):
            try:
                fuzzer.attack()
            except AssertionError as wrong:
                raise AssertionError(f"seed {seed}, connection {number}: {wrong}; sent {fuzzer.last}") from wrong
        bystanders.window().judge(before)
        refused = broker.wait_for_status(lambda status: status["clients"] == 2, "only the bystanders left")["refused"]
        assert sum(refused.get(why, 0) for why in REFUSALS) > connections // 4, (refused, fuzzer.outcomes)
        print(f"seed {seed}: {dict(fuzzer.outcomes)}, refused {refused}")
