"""Whole brokers with faults: exclusive ownership across them; and the trust of topics, by the same file, in the
simulator."""

from random import Random

import pytest

from overlane.core.units import MS, SECOND
from overlane.network import Broker, Link, Network, Simulation, Topic, parse_network
from overlane.sim.whole.broker import Pace
from overlane.sim.whole.drawing import CHAOS_NS, Drawn, DrawnFault, DrawnSubscription, FaultKind, Person, Publication
from overlane.sim.whole.habits import Habits
from overlane.sim.whole.message import SimulatedMessage
from overlane.sim.whole.running import WholeWorld
from overlane.sim.world import World

TOPIC = "t/1"
LEASE_NS = 700 * MS


def drawn(seed: int) -> Drawn:
    """Publishers at b0 and b1, a reader at b2. Of equally strong publishers the one with the smaller name is first."""
    random = Random(seed)
    names = ("b0", "b1", "b2")
    network = Network(
        brokers=tuple(Broker(name=name) for name in names),
        links=tuple(Link(ends=ends, latency_ns=10 * MS) for ends in (("b0", "b1"), ("b1", "b2"), ("b0", "b2"))),
        topics=(Topic(filter="t/#", liveliness_ns=LEASE_NS, ownership="exclusive", reliability="reliable"),),
        simulation=Simulation(duration_ns=CHAOS_NS, seed=seed),
    )
    clients = (
        Person("first", "b0", MS, (), (Publication(TOPIC, 1, 40),), Habits()),
        Person("second", "b1", MS, (), (Publication(TOPIC, 1, 40),), Habits()),
        Person(
            "reader",
            "b2",
            MS,
            (DrawnSubscription("t/#", 2), DrawnSubscription("$overlane/liveliness/#", 0)),
            (),
            Habits(),
        ),
    )
    kinds = (
        FaultKind.KILL,
        FaultKind.POWER,
        FaultKind.CUT,
        FaultKind.SLOW,
        FaultKind.LOSSY,
        FaultKind.VANISH,
        FaultKind.CONNECTION,
    )
    faults = []
    for _ in range(4):
        kind = random.choice(kinds)
        whom: tuple[str, ...] = (random.choice(("b0", "b1")),)
        if kind in (FaultKind.CUT, FaultKind.SLOW, FaultKind.LOSSY):
            whom = random.choice((("b0", "b1"), ("b1", "b2"), ("b0", "b2")))
        elif kind in (FaultKind.VANISH, FaultKind.CONNECTION):
            whom = (random.choice(("first", "second")),)
        faults.append(DrawnFault(random.randrange(CHAOS_NS), kind, whom, random.randrange(200, 1500) * MS))
    pace = Pace(100_000, (MS, 2 * MS))
    in_order = tuple(sorted(faults, key=lambda fault: fault.at_ns))
    return Drawn(seed, network, dict.fromkeys(names, pace), clients, in_order, is_tight=False)


@pytest.mark.parametrize("seed", range(6))
def test_one_owner_at_a_time_each_message_once_and_the_strongest_in_the_end(seed: int) -> None:
    world = WholeWorld(drawn(seed))
    got: list[SimulatedMessage] = []
    reader = world.clients["reader"]

    def tell(packet: object, _: int) -> None:
        topic, payload = packet.topic, bytes(packet.payload)  # type: ignore[attr-defined]
        if topic == TOPIC and (message := SimulatedMessage.read(topic, payload)) is not None:
            got.append(message)

    reader._tell = tell  # type: ignore[method-assign, assignment]
    world.start()
    world.engine.run_until(CHAOS_NS + 5 * SECOND)
    assert got, f"seed {seed}"
    assert len(got) == len(set(got)), f"seed {seed}: twice"
    for name in ("first", "second"):
        numbers = [message.number for message in got if message.publisher == name]
        assert numbers == sorted(numbers), f"seed {seed}: {name} out of order"
    # All is well again, and both were silent for longer than their lease.
    before = len(got)
    for _ in range(5):
        for name in ("first", "second"):
            world.clients[name].publish(TOPIC, 1)
        world.engine.run_until(world.engine.now + 100 * MS)
    late = [message.publisher for message in got[before:]]
    assert late.count("first") == 5, f"seed {seed}"
    assert late.index("first") <= 1, f"seed {seed}"
    assert "second" not in late[late.index("first") :], f"seed {seed}: {late}"
    # Then the broker of the owner is killed: the other one takes over, and nothing since the owner's last is missing.
    before, sent = len(got), world.clients["second"]._numbers[TOPIC]
    world.brokers["b0"].crash(loses_power=False)
    for _ in range(12):
        world.clients["second"].publish(TOPIC, 1)
        world.engine.run_until(world.engine.now + 100 * MS)
    world.engine.run_until(world.engine.now + SECOND)
    taken = [message.number for message in got[before:] if message.publisher == "second"]
    assert taken[-12:] == list(range(sent + 1, sent + 13)), f"seed {seed}"


TRUST = """
[brokers.a]
domain = "home"
[brokers.b]
domain = "east"
[brokers.c]
domain = "west"
[brokers.d]
domain = "home"
[[links]]
ends = ["a", "b"]
latency = "5ms"
[[links]]
ends = ["b", "d"]
latency = "5ms"
[[links]]
ends = ["a", "c"]
latency = "20ms"
encrypted = true
[[links]]
ends = ["c", "d"]
latency = "20ms"
encrypted = true
[topics."secret/#"]
deadline = "100ms"
reliability = "reliable"
encrypted = true
avoid = ["domain:east"]
[topics."open/#"]
deadline = "100ms"
[[publishers]]
broker = "a"
topic = "secret/1"
rate = 10
[[publishers]]
broker = "a"
topic = "open/1"
rate = 10
[[subscribers]]
broker = "d"
topic = "#"
[[events]]
at = "3s"
cut = ["a", "c"]
[[events]]
at = "6s"
heal = ["a", "c"]
[simulation]
duration = "10s"
"""


def test_trusted_topics_wait_for_their_path_in_the_simulator_while_others_go_on() -> None:
    world = World(parse_network(TRUST))
    world.run()
    moves = [move for move in world.run_log.route_moves if "secret/#" in move.topics]
    assert {link for move in moves for link in move.effect.links} == {("a", "c"), ("c", "d")}
    told = [(one.effect.unmet.requirement, one.effect.is_met) for one in world.run_log.requirements]
    assert set(told) == {("encrypted", False), ("encrypted", True), ("avoid", False), ("avoid", True)}
    rows = world.report().topics
    assert rows["open/#"].lost == rows["open/#"].late == 0
    assert rows["secret/#"].lost == 0
