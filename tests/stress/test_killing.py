"""Kill -9 in a loop under load: nothing that was acknowledged is lost, QoS 2 repeats nothing, and order is kept."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import mqtt5
import pytest
from killing import LIMITS, Killing, left_in
from stage import DEFECT

from watched import WatchedBroker, let_in

pytestmark = pytest.mark.slow

ROUNDS = 10


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[WatchedBroker]:
    broker = WatchedBroker(tmp_path, LIMITS)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


@pytest.mark.parametrize("seed", [1])
def test_a_broker_that_is_killed_again_and_again_forgets_nothing(broker: WatchedBroker, seed: int) -> None:
    killing = Killing(broker, seed)
    ledger = asyncio.run(killing.run(lambda kills: kills < ROUNDS))
    print(f"seed {seed}, {killing.kills} kills: {ledger}")
    assert ledger.is_clean, f"seed {seed}: {ledger}"
    assert ledger.acknowledged > 100 * ROUNDS / 2

    # What was retained last is at least as new as what was acknowledged last.
    with let_in(broker.port, "late") as late:
        late.subscribe("kept/#")
        assert int(late.read(mqtt5.PublishPacket).payload) >= max(killing.keeper.acknowledged)
    # Nothing is left behind of all that.
    assert broker.terminate()() == 0
    left = left_in(broker.directory)
    assert left.keys() == {"mqtt.session", "mqtt.subscription", "mqtt.retained", "store"}, left
    assert not DEFECT.search(broker.log)
