"""ZooKeeper is away for long, and brokers die and start again meanwhile: messages flow on, and everything reconciles.

Whole brokers in virtual time. Links are probed, and brokers look around, once a minute, so that days take seconds. The
suite runs some hours; any number of them by

    python tests/sim/test_zookeeper_away.py 26
"""

import sys
import time

import pytest

from overlane.coordination.contract import Create, Done, Replace, Transaction
from overlane.coordination.records import CONFIG, ConfigRecord, encode
from overlane.core.units import MS, SECOND, Nanos
from overlane.network import Broker, Link, Network, Simulation
from overlane.network.schema import Defaults
from overlane.sim.whole.broker import Pace
from overlane.sim.whole.coordinated import CoordinatedWorld
from overlane.sim.whole.drawing import CHAOS_NS, Drawn, DrawnFault, DrawnSubscription, FaultKind, Person, Publication

HOUR: Nanos = 3600 * SECOND
MINUTE: Nanos = 60 * SECOND
EDGES, ROUTERS = ("e1", "e2", "e3"), ("r1", "r2", "r3")
HOURS_IN_THE_SUITE = 4
BEFORE, AFTER = (f'[topics."t/#"]\nreliability = "{word}"\n' for word in ("best-effort", "reliable"))


def world() -> CoordinatedWorld:
    links = [Link(ends=(edge, router), latency_ns=5 * MS) for edge in EDGES for router in ROUTERS]
    network = Network(
        brokers=tuple(Broker(name=name) for name in (*EDGES, *ROUTERS)),
        links=tuple(links),
        simulation=Simulation(duration_ns=CHAOS_NS, seed=1),
        defaults=Defaults(ping_interval_ns=MINUTE),
    )
    roles = {**dict.fromkeys(EDGES, "edge"), **dict.fromkeys(ROUTERS, "routing")}
    people = (
        Person("writer", "e1", MS, (), (Publication("t/1", 1, 1),)),
        Person("reader", "e3", MS, (DrawnSubscription("t/#", 1), DrawnSubscription("u/#", 1)), ()),
    )
    paces = dict.fromkeys((*EDGES, *ROUTERS), Pace(200_000, (MS, 5 * MS)))
    return CoordinatedWorld(Drawn(1, network, paces, people, (), False, roles), ())


class Away:
    """An overlay whose ensemble is stopped."""

    def __init__(self) -> None:
        self.net = world()
        self.net.start()
        self.run(5 * SECOND)
        self.push(1, BEFORE)
        assert self.net.rest() is None
        self.net.beat_ns = MINUTE  # as rare as probes of links: nothing but time passes
        for number in range(3):
            self.net.ensemble.stop(number)

    def run(self, time_ns: Nanos) -> None:
        self.net.engine.run_until(self.net.engine.now + time_ns)

    def publish(self, topic: str) -> None:
        """It arrives within a minute."""
        before = self.net.judge.deliveries
        self.net.clients["writer"].publish(topic, 1)
        self.run(MINUTE)
        assert self.net.judge.deliveries == before + 1, topic

    def restart(self, name: str, after: Nanos = MINUTE) -> None:
        now = self.net.engine.now
        self.net._crash(DrawnFault(now, FaultKind.KILL, (name,), after), now + after)

    def push(self, version: int, text: str) -> None:
        """At the ensemble itself, whether it can be reached or not."""
        ensemble, data = self.net.ensemble, encode(ConfigRecord(version, text))
        operation = Create(CONFIG, data) if version == 1 else Replace(CONFIG, data)
        assert isinstance(ensemble.carry_out(ensemble.open_session(), Transaction((operation,))), Done)

    def is_reliable(self, name: str) -> bool:
        return self.net.brokers[name].turn.server.state.settings.qos.of("t/1").reliable

    def come_back(self) -> None:
        self.net.beat_ns = 100 * MS
        self.net.ensemble.heal()
        self.run(2 * MINUTE)  # the last beat that was planned before


def hours_pass(hours: int) -> None:
    """Every hour a broker restarts, the leader among them, and messages go on topics old and new."""
    away = Away()
    for hour in range(hours):
        away.restart((*ROUTERS, *EDGES)[hour % 6])
        away.run(5 * MINUTE)
        away.publish("t/1")
        away.publish(f"u/{hour}")
        away.run(HOUR - 7 * MINUTE)
    for name in (*EDGES, *ROUTERS):
        assert not away.is_reliable(name), name
    away.push(2, AFTER)  # the first thing that is there when ZooKeeper is back
    away.come_back()
    assert away.net.rest() is None
    assert away.net.probe() is None
    for name in (*EDGES, *ROUTERS):
        assert away.is_reliable(name), name


@pytest.mark.slow
def test_everything_reconciles_after_hours_without_zookeeper_in_which_all_brokers_have_restarted() -> None:
    hours_pass(HOURS_IN_THE_SUITE)


def test_messages_flow_on_where_a_routing_broker_dies_for_good_while_zookeeper_is_away() -> None:
    away = Away()
    victim = away.net.members["e1"].view.assignment[0]
    away.restart(victim, after=HOUR)
    away.run(5 * MINUTE)
    away.publish("t/1")
    away.publish("u/new")
    (other,) = set(EDGES) - {"e1", "e3"}
    away.restart(other)
    away.run(5 * MINUTE)
    away.come_back()
    assigned = away.net.members["e1"].view.assigned.values()
    assert victim not in {one.broker for one in assigned} | {one.standby for one in assigned}
    away.publish("u/newer")
    assert not away.net.brokers[victim].is_alive


if __name__ == "__main__":
    began = time.process_time()
    hours_pass(int(sys.argv[1]))
    sys.stdout.write(f"{sys.argv[1]} hours without ZooKeeper: {time.process_time() - began:.1f} s of processor time\n")
