"""Cost of strict order: the share in time of reliable topics with a deadline under faults, with `order = "strict"` and
with `order = "deadline"`, in the simulator.

    python bench/order.py

The results do not depend on the machine. Prints a table and writes bench/out/order.json.
"""

import json
import sys
from pathlib import Path

import msgspec

from overlane.core.units import MS, SECOND
from overlane.network import Crash, Cut, Heal, Network, Restart, Simulation, parse_network
from overlane.sim.story import link, network_of, topic
from overlane.sim.world import World

CITIES = Path(__file__).parent.parent / "examples" / "five-cities.toml"
OUT = Path(__file__).parent / "out" / "order.json"
DEADLINE_NS = 90 * MS
DURATION_NS = 20 * SECOND
LONGEST_NS = 600 * SECOND


def lossy(routing: str) -> Network:
    """Two hops, the first of which loses one message in ten."""
    return network_of(
        {("a", "b"): link(10 * MS, loss=0.1), ("b", "c"): 10 * MS},
        {"t": topic(DEADLINE_NS, routing=routing)},
        publishers=[("a", "t", 50)],
        subscribers=[("c", "t")],
        simulation=Simulation(duration_ns=DURATION_NS, seed=1),
    )


def failing() -> Network:
    """Two ways, of which the quicker is cut and the other loses its broker."""
    network = network_of(
        {("a", "b"): 10 * MS, ("b", "d"): 10 * MS, ("a", "c"): 15 * MS, ("c", "d"): 15 * MS},
        {"t": topic(DEADLINE_NS)},
        publishers=[("a", "t", 50)],
        subscribers=[("d", "t")],
        simulation=Simulation(duration_ns=DURATION_NS, seed=1),
    )
    events = [
        event
        for start in range(1, 18, 4)
        for event in (
            Cut(start * SECOND, ("b", "d")),
            Heal((start + 1) * SECOND, ("b", "d")),
            Crash((start + 2) * SECOND, "b"),
            Restart((start + 3) * SECOND, "b"),
        )
    ]
    return msgspec.structs.replace(network, events=tuple(events))


SCENARIOS = {
    "five cities: a slow link, a cut link, a killed broker": lambda: parse_network(CITIES.read_text()),
    "10 % loss, repaired on the hop (`adaptive`)": lambda: lossy("adaptive"),
    "10 % loss, not repaired on the hop (`single`)": lambda: lossy("single"),
    "two ways, links cut and a broker killed ten times": failing,
}


def measured(network: Network, order: str) -> tuple[float, float]:
    """The shares in time and out of order, of all expected deliveries."""
    topics = tuple(msgspec.structs.replace(one, reliability="reliable", order=order) for one in network.topics)
    duration_ns = min(LONGEST_NS, network.simulation.duration_ns)
    world = World(msgspec.structs.replace(network, topics=topics), duration_ns=duration_ns)
    world.run()
    rows = world.judge.rows.values()
    expected = sum(row.expected for row in rows)
    return sum(row.in_time for row in rows) / expected, sum(row.overtaken for row in rows) / expected


def main() -> None:
    say = sys.stdout.write
    say("| faults | strict: in time | out of order | deadline: in time | out of order |\n|---|---|---|---|---|\n")
    found: dict[str, list[float]] = {}
    for name, make in SCENARIOS.items():
        shares = found[name] = [share for order in ("strict", "deadline") for share in measured(make(), order)]
        say(f"| {name} | {' | '.join(f'{share:.1%}' for share in shares)} |\n")
        sys.stdout.flush()
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
