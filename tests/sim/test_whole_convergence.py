"""Brokers agree on subscriptions some time after a link has healed, and a run waits for it."""

from overlane.core.units import MS, SECOND, Nanos
from overlane.network import Broker, Link, Network, Simulation
from overlane.sim.whole.broker import Pace
from overlane.sim.whole.convergence import not_converged
from overlane.sim.whole.drawing import CHAOS_NS, Drawn, DrawnFault, DrawnSubscription, FaultKind, Person, Publication
from overlane.sim.whole.habits import Habits
from overlane.sim.whole.running import WholeWorld

SUBSCRIBED_NS: Nanos = SECOND
HEALED_NS: Nanos = SUBSCRIBED_NS + 800 * MS


def world() -> WholeWorld:
    """The link is cut when somebody at b1 subscribes: b0 hears of it when TCP sends again, some time after healing."""
    network = Network(
        brokers=(Broker(name="b0"), Broker(name="b1")),
        links=(Link(ends=("b0", "b1"), latency_ns=10 * MS),),
        simulation=Simulation(duration_ns=CHAOS_NS, seed=1),
    )
    clients = (
        Person("c1", "b0", MS, (), (Publication("r/c1", 2, 1),), Habits(is_v5=True)),
        Person("c2", "b1", MS, (DrawnSubscription("r/#", 2, at_ns=SUBSCRIBED_NS),), (), Habits(is_v5=True)),
    )
    cut_ns = SUBSCRIBED_NS - 100 * MS
    cut = DrawnFault(cut_ns, FaultKind.CUT, ("b0", "b1"), HEALED_NS - cut_ns)
    pace = Pace(100_000, (MS, 2 * MS))
    return WholeWorld(Drawn(1, network, {"b0": pace, "b1": pace}, clients, (cut,), is_tight=False))


def test_a_run_comes_to_rest_only_when_all_brokers_know_all_subscriptions() -> None:
    net = world()
    net.start()
    net.engine.run_until(HEALED_NS)
    assert net.judge.lost() is None
    broken = net.unsettled()
    assert broken is not None
    assert broken.invariant == "all brokers see the same map and subscriptions"
    assert net.rest() is None
    assert not_converged(net.brokers) is None
    assert net.engine.now > HEALED_NS + 500 * MS


def test_a_run_comes_to_rest_only_when_brokers_have_acknowledged_what_is_for_them() -> None:
    net = world()
    net.start()
    net.engine.run_until(CHAOS_NS)
    assert not_converged(net.brokers) is None
    net.clients["c1"].publish("elsewhere", 2, is_retained=True)
    net.engine.run_until(CHAOS_NS + 10 * MS)
    assert net.judge.lost() is None
    broken = net.unsettled()
    assert broken is not None
    assert broken.invariant == "every broker has what was published for it"
    assert net.rest() is None
