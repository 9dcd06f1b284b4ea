"""Kill -9 in a loop under load: nothing that was acknowledged is lost, QoS 2 repeats nothing, and order is kept."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random

import mqtt5
import pytest
from killing import LIMITS, Killing, left_in
from pahos import VERSIONS, PersistentPaho
from stage import DEFECT

from waiting import WITHIN_S, eventually
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


@pytest.mark.parametrize(("name", "qos"), [("3.1.1", 1), ("5", 2)])
def test_paho_gets_through_the_deaths_of_its_broker(broker: WatchedBroker, name: str, qos: int) -> None:
    luck = Random(qos)
    publisher = PersistentPaho(broker.port, "publisher", VERSIONS[name], "work/x", qos)
    subscriber = PersistentPaho(broker.port, "subscriber", VERSIONS[name], "work/#", qos)
    subscriber.is_subscriber = True
    with subscriber, publisher:
        assert subscriber.is_ready.wait(WITHIN_S)
        assert publisher.is_ready.wait(WITHIN_S)
        for _ in range(3):
            enough = publisher.acknowledged + luck.randrange(20, 200)

            def has_enough(enough: int = enough) -> bool:
                while publisher.published - publisher.acknowledged < 50:
                    publisher.publish()
                return publisher.acknowledged >= enough

            eventually(has_enough, "acknowledged")
            for client in (publisher, subscriber):
                client.may_return.clear()
            broker.kill()
            broker.start()
            for client in (publisher, subscriber):
                client.may_return.set()
        eventually(lambda: publisher.acknowledged == publisher.published, "all is acknowledged")
        eventually(lambda: set(subscriber.heard) == set(range(publisher.published)), "all is heard")
    assert (publisher.sessions_lost, subscriber.sessions_lost) == (0, 0)
    first = list(dict.fromkeys(subscriber.heard))
    assert first == sorted(first)
    if qos == 2:
        assert subscriber.heard == first
    print(f"{publisher.published} published, {len(subscriber.heard)} heard, {subscriber.connections} connections")
