"""Whole brokers in two tiers, whose bundles move: edges with clients, and routing brokers between them.

Edges are linked with all routing brokers, and with the others of their domain. Bundles move several times, all or some,
and some are assigned to nobody for a while. On half of the seeds they have standbys. Each broker hears of it at a time
of its own; one that is down takes it up when it starts again. All other faults are those of flat overlays, and what
must hold is the same.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random

import msgspec

from overlane.core.bundles import BUNDLES
from overlane.core.config import EDGE, ROUTING
from overlane.core.units import MS, Nanos
from overlane.membership.membership import membership_of
from overlane.network import Broker, Network, Simulation
from overlane.network.classes import policies, qos_table
from overlane.network.members import members_of
from overlane.pubsub.state import Settings
from overlane.sim.random_streams import between, chance, one_of, stream
from overlane.sim.soak.invariants import Broken
from overlane.sim.soak.running import SeedVerdict, run_each
from overlane.sim.whole.broker import WholeBroker
from overlane.sim.whole.drawing import CHAOS_NS, Drawn, draw, draw_faults, draw_links, draw_pace
from overlane.sim.whole.running import WholeWorld, run_world
from overlane.turn.reconfigure import Reconfigure

MOVES_MAX = 4
HEARD_WITHIN: Nanos = 600 * MS

Assignment = dict[int, str]


@dataclass(frozen=True, slots=True)
class Move:
    at_ns: Nanos
    assignment: Assignment
    standbys: Assignment = field(default_factory=dict)


def draw_tiers(seed: int) -> Drawn:
    """The clients of a flat overlay, at edges."""
    flat = draw(seed)
    luck = stream(seed, "tiers")
    edges = [broker.name for broker in flat.network.brokers]
    routers = [f"r{number}" for number in range(between(luck, 1, 3))]
    ends = [(edge, router) for edge in edges for router in routers]
    if len(edges) > 1 and chance(luck, 0.5):
        ends.append((edges[0], edges[1]))
    links = tuple(draw_links(luck, ends))
    brokers = (
        *flat.network.brokers,
        *(Broker(name=name, clock_offset_ns=between(luck, 0, 36_000) * 1_000 * MS) for name in routers),
    )
    faults = draw_faults(luck, [*edges, *routers], links, tuple(one for one in flat.clients if not one.visit_ns))
    return replace(
        flat,
        network=Network(brokers=brokers, links=links, simulation=Simulation(duration_ns=CHAOS_NS, seed=seed)),
        paces={**flat.paces, **{name: draw_pace(luck) for name in routers}},
        faults=tuple(sorted(faults, key=lambda fault: fault.at_ns)),
        roles={**dict.fromkeys(edges, EDGE), **dict.fromkeys(routers, ROUTING)},
        assignment=_whole(luck, routers) if chance(luck, 0.8) else {},
    )


def _whole(luck: Random, routers: list[str]) -> Assignment:
    if chance(luck, 0.5):
        return dict.fromkeys(range(BUNDLES), one_of(luck, routers))
    return {bundle: one_of(luck, routers) for bundle in range(BUNDLES)}


def draw_moves(drawn: Drawn) -> list[Move]:
    """The last leaves no bundle out."""
    luck = stream(drawn.seed, "moves")
    routers = [name for name, role in drawn.roles.items() if role == ROUTING]
    count = between(luck, 1, MOVES_MAX)
    standby_luck = stream(drawn.seed, "standbys")
    has_standbys = chance(standby_luck, 0.5)
    moves = []
    for number in range(1, count + 1):
        assignment = _whole(luck, routers)
        if number < count and chance(luck, 0.3):
            gone = one_of(luck, (0, 1))
            assignment = {bundle: name for bundle, name in assignment.items() if bundle % 2 != gone}
        standbys = _whole(standby_luck, routers) if has_standbys else {}
        moves.append(Move(CHAOS_NS * number // (count + 1), assignment, standbys))
    return moves


class TierWorld(WholeWorld):
    def __init__(self, drawn: Drawn, moves: Iterable[Move] | None = None) -> None:
        super().__init__(drawn)
        luck = stream(drawn.seed, "heard")
        members = members_of(drawn.network)
        self._membership = membership_of(
            [msgspec.structs.replace(one, role=drawn.roles.get(one.name, "plain")) for one in members.members],
            members.links,
        )
        for move in draw_moves(drawn) if moves is None else moves:
            for name in self.brokers:
                at_ns = move.at_ns + between(luck, 0, HEARD_WITHIN)
                self.engine.at(at_ns, lambda entry: self._hear(*entry), (name, move))

    def _hear(self, name: str, move: Move) -> None:
        settings = Settings(self.limits, qos=qos_table(self.drawn.network), policies=policies(self.drawn.network))
        self.brokers[name].reconfigure(Reconfigure(self._membership, settings, move.assignment, move.standbys))

    def not_converged(self) -> Broken | None:
        return owed_or_held(self.brokers)


def owed_or_held(brokers: Mapping[str, WholeBroker]) -> Broken | None:
    """In two tiers brokers do not know the same; but nobody owes anything, and no message waits."""
    for name, broker in brokers.items():
        core = broker.turn.core
        if owed := core.counters["retained_bytes"]:
            return Broken("every broker has what was published for it", f"{owed} bytes of {name} are not acknowledged")
        if held := core.counters["held_messages"]:
            return Broken("no message waits for ever", f"{held} messages are held at {name}")
    return None


def run_seed(seed: int) -> SeedVerdict:
    return run_world(TierWorld(draw_tiers(seed)), seed, "tiers")


def run_seeds(seeds: Iterable[int], jobs: int = 1) -> Iterator[SeedVerdict]:
    """The verdicts in the order of the seeds."""
    return run_each(run_seed, seeds, jobs)
