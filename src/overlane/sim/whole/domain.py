"""Whole brokers of one domain, which share their clients: each client connects to any of them, and finds its session.

A client makes its session at one broker, and from then on connects to any that runs. All brokers are linked with each
other, and count as registered also while they are down: so no session is ever made anew. All other faults are those of
flat overlays, and what must hold is the same.

A connection that is passed on reaches the other broker without a detour: what is simulated is the lookup, not the bytes
on the way.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations

from overlane.core.units import MS
from overlane.network import Broker, Network, Simulation
from overlane.pubsub.sessions.domain import Domain, DomainPeer
from overlane.sim.random_streams import between, one_of, stream
from overlane.sim.soak.running import SeedVerdict, run_each
from overlane.sim.whole.broker import WholeBroker
from overlane.sim.whole.client import SimulatedClient
from overlane.sim.whole.drawing import CHAOS_NS, Drawn, Person, draw, draw_faults, draw_links, draw_pace
from overlane.sim.whole.running import WholeWorld, run_world

BROKERS_MIN = 2


def draw_domain(seed: int) -> Drawn:
    """The clients of a flat overlay, whose brokers are all linked with each other."""
    flat = draw(seed)
    luck = stream(seed, "domain")
    brokers = flat.network.brokers
    while len(brokers) < BROKERS_MIN:
        offset_ns = between(luck, 0, 36_000) * 1_000 * MS
        brokers = (*brokers, Broker(name=f"b{len(brokers)}", clock_offset_ns=offset_ns))
    names = [broker.name for broker in brokers]
    links = tuple(draw_links(luck, list(combinations(names, 2))))
    faults = draw_faults(luck, names, links, tuple(one for one in flat.clients if not one.visit_ns))
    return replace(
        flat,
        network=Network(brokers=brokers, links=links, simulation=Simulation(duration_ns=CHAOS_NS, seed=seed)),
        paces={name: flat.paces.get(name) or draw_pace(luck) for name in names},
        faults=tuple(sorted(faults, key=lambda fault: fault.at_ns)),
    )


class DomainWorld(WholeWorld):
    def __init__(self, drawn: Drawn) -> None:
        super().__init__(drawn)
        self._dialling = stream(drawn.seed, "dialling")
        self.passed_on = 0
        """Connections that were passed on."""
        for name, broker in self.brokers.items():
            peers = tuple(DomainPeer(other) for other in sorted(self.brokers) if other != name)
            broker.share_clients(Domain({}, peers), self._found)

    def _found(self, name: str) -> WholeBroker:
        self.passed_on += 1
        return self.brokers[name]

    def _broker_for(self, person: Person, client: SimulatedClient) -> WholeBroker:
        living = [broker for _, broker in sorted(self.brokers.items()) if broker.is_alive]
        if person.habits.is_passing or not client.has_session or not living:
            return self.brokers[person.broker]
        return one_of(self._dialling, living)


def run_seed(seed: int) -> SeedVerdict:
    return run_world(DomainWorld(draw_domain(seed)), seed, "domain")


def run_seeds(seeds: Iterable[int], jobs: int = 1) -> Iterator[SeedVerdict]:
    """The verdicts in the order of the seeds."""
    return run_each(run_seed, seeds, jobs)
