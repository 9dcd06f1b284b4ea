"""Whole brokers in two tiers with real coordination: clients, brokers, an ensemble with its weaknesses, and a leader.

Each broker takes part in the coordination (`coordination.participant`), derives its links from the data that it reads
(`coordination.view`), and reports unreachable routing brokers; the elected leader assigns bundles. Brokers, links and
clients have the faults of flat overlays. In addition, connections to the ensemble are cut, sessions expire, servers
crash or lag, all of them are down for a while, and routing brokers begin to leave and cancel it.

The same rules apply, and in addition: leaders write in the order of their epochs, no broker writes what others cannot
read, and after healing all agree on one leader and on an assignment to brokers that run.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto

from overlane.coordination.assignment.placement import fewest_topics, least_loaded
from overlane.coordination.contract import Create, Event, Replace, Transaction
from overlane.coordination.leader import AssignmentPolicy, Leader
from overlane.coordination.participant import (
    AssignmentChanged,
    ConfigChanged,
    Ignored,
    MembersChanged,
    NameTaken,
    Notice,
    Participant,
)
from overlane.coordination.reachability import Reachability
from overlane.coordination.records import (
    ASSIGNMENTS,
    BrokerRecord,
    ConfigRecord,
    ReportRecord,
    ShardRecord,
    decode,
    pack,
)
from overlane.coordination.view import Kept, OverlayView
from overlane.core.bundles import BUNDLES
from overlane.core.config import EDGE, ROUTING
from overlane.core.events import ScopeDigest
from overlane.core.links.link_health import LinkState
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.network import Broker, Network, Simulation
from overlane.network.classes import policies, qos_table
from overlane.network.reading import parse_network
from overlane.pubsub.state import Settings
from overlane.sim.random_streams import between, chance, one_of, stream
from overlane.sim.soak.invariants import Broken
from overlane.sim.soak.running import SeedVerdict, run_each
from overlane.sim.whole.drawing import CHAOS_NS, Drawn, DrawnFault, draw, draw_faults, draw_links, draw_pace
from overlane.sim.whole.ensemble import Connection, Ensemble
from overlane.sim.whole.running import WholeWorld, run_world
from overlane.sim.whole.tiers import owed_or_held
from overlane.turn.reconfigure import Reconfigure

BEATS_PER_REPORT = 10
TROUBLES_MAX = 10


class Trouble(Enum):
    CUT = auto()
    EXPIRE = auto()
    SERVER = auto()
    AWAY = auto()
    LAG = auto()
    LEAVE = auto()


@dataclass(frozen=True, slots=True)
class ServiceFault:
    at_ns: Nanos
    trouble: Trouble
    whom: str
    """A broker, or the number of a server."""
    lasts_ns: Nanos


def draw_coordinated(seed: int) -> Drawn:
    """The clients of a flat overlay, at edges of two domains; every link that there may be."""
    flat = draw(seed)
    luck = stream(seed, "coordinated")
    edges = [broker.name for broker in flat.network.brokers]
    routers = [f"r{number}" for number in range(between(luck, 2, 4))]
    ends = [(edge, router) for edge in edges for router in routers]
    if len(edges) > 1 and chance(luck, 0.5):
        ends.append((edges[0], edges[1]))  # they are of one domain
    links = tuple(draw_links(luck, ends))
    brokers = (*flat.network.brokers, *(Broker(name=name) for name in routers))
    faults = draw_faults(luck, [*edges, *routers], links, tuple(one for one in flat.clients if not one.visit_ns))
    return replace(
        flat,
        network=Network(brokers=brokers, links=links, simulation=Simulation(duration_ns=CHAOS_NS, seed=seed)),
        paces={**flat.paces, **{name: draw_pace(luck) for name in routers}},
        faults=tuple(sorted(faults, key=lambda fault: fault.at_ns)),
        roles={**dict.fromkeys(edges, EDGE), **dict.fromkeys(routers, ROUTING)},
    )


def draw_service_faults(drawn: Drawn) -> list[ServiceFault]:
    luck = stream(drawn.seed, "service")
    names = list(drawn.roles)
    routers = [name for name, role in drawn.roles.items() if role == ROUTING]
    found = []
    for _ in range(between(luck, 2, TROUBLES_MAX)):
        trouble = one_of(luck, list(Trouble))
        at_ns, lasts_ns = between(luck, 0, CHAOS_NS // MS - 500) * MS, between(luck, 50, 1_500) * MS
        match trouble:
            case Trouble.CUT | Trouble.EXPIRE:
                whom = one_of(luck, names)
            case Trouble.LEAVE:
                whom = one_of(luck, routers)
            case _:
                whom = str(between(luck, 0, 2))
        found.append(ServiceFault(at_ns, trouble, whom, lasts_ns))
    return found


class Member:
    """The part of one life of a broker in the coordination: `node.coordination.driver` in virtual time."""

    def __init__(self, world: "CoordinatedWorld", name: str, kept: Kept) -> None:
        self._world = world
        self._broker = world.brokers[name]
        self._engine = world.engine
        role = world.drawn.roles[name]
        record = BrokerRecord(world.domains[name], role, world.instances[name], ("127.0.0.1:7000",))  # type: ignore[arg-type]
        leader = Leader(world.policy) if role == ROUTING else None
        self.view = OverlayView(name, record, kept)
        self._settings = world.settings_of(kept.config)
        self.participant = Participant(name, record, leader)
        self._reachability = Reachability()
        self._digest = ScopeDigest()
        self.is_leaving = False
        self._beats = 0
        self._is_over = False
        self._wakes_at: Nanos = NEVER
        self._taken: Reconfigure | None = None
        self._is_due = False
        self.connection: Connection = world.ensemble.connect(self._heard)
        self._take_up()

    def start(self) -> None:
        """The broker runs."""
        self._broker.on_scope_changed = self._scope_changed
        self._scope_changed(self._broker.turn.core.scope_digest())
        self._engine.at(self._engine.now + self._world.beat_ns, self._beat)

    def die(self) -> None:
        self._is_over = True
        self.connection.abandon()

    def leave(self, is_leaving: bool) -> None:
        self.is_leaving = is_leaving
        self._report()

    def _scope_changed(self, digest: ScopeDigest) -> None:
        if not self._is_over:
            self._digest = digest
            self.view.use(digest.published | digest.subscribed, self._engine.now)
            self._report()
            self._go_on()
            self._take_up_soon()

    def _heard(self, event: Event) -> None:
        if not self._is_over:
            self._take(self.participant.handle(event, self._engine.now))
            self._ask()

    def _go_on(self) -> None:
        self._take(self.participant.tick(self._engine.now))
        self._ask()

    def _ask(self) -> None:
        for number, request in self.participant.requests.take():
            self.connection.ask(number, request)
        due = self.participant.next_deadline()
        if due < self._wakes_at:
            self._wakes_at = due = max(due, self._engine.now + MS)
            self._engine.at(due, self._wake, due)

    def _wake(self, due: Nanos) -> None:
        if due == self._wakes_at and not self._is_over:
            self._wakes_at = NEVER
            self._go_on()

    def _take(self, notices: list[Notice]) -> None:
        for notice in notices:
            match notice:
                case MembersChanged():
                    self.view.registered(self.participant.members, self._engine.now)
                case AssignmentChanged(assigned):
                    self.view.assign(dict(assigned), self._engine.now)
                case ConfigChanged(config):
                    self.view.config = config
                    self._settings = self._world.settings_of(config)
                case Ignored(path, reason):
                    self._world.complain("no broker writes what others cannot read", f"{path}: {reason}")
                case NameTaken(name):
                    self._world.complain("a broker that starts again may use its name", name)
                case _:
                    continue
        if notices:
            self._take_up_soon()

    def _take_up_soon(self) -> None:
        """Once for all that comes in one iteration of the event loop."""
        if not self._is_due:
            self._is_due = True
            self._engine.at(self._engine.now + self._broker.pace.turn_ns, self._take_up_now)

    def _take_up_now(self, _: None) -> None:
        self._is_due = False
        if not self._is_over:
            self._take_up()

    def _take_up(self) -> None:
        event = Reconfigure(
            self.view.membership(self._engine.now), self._settings, self.view.assignment, self.view.standbys
        )
        if event != self._taken:
            self._taken = event
            self._broker.reconfigure(event)

    def _beat(self, _: None) -> None:
        if self._is_over:
            return
        self._engine.at(self._engine.now + self._world.beat_ns, self._beat)
        self._beats += 1
        self.participant.suspect(self._reachability.look(self.view.needed(), self._is_up, self._engine.now))
        if self._beats % BEATS_PER_REPORT == 0:
            self._report()
            if self.view.next_deadline() <= self._engine.now:
                self._take_up()
        self._go_on()

    def _is_up(self, peer: str) -> bool:
        if not self._broker.links[peer].end_of(self._broker.name).is_up:
            return False
        return self._broker.turn.core.link_state(peer) is not LinkState.FAILED

    def _report(self) -> None:
        used = pack(self._digest.subscribed), pack(self._digest.published)
        self.participant.report(ReportRecord(0.1, *used, is_leaving=self.is_leaving))


class CoordinatedWorld(WholeWorld):
    def __init__(self, drawn: Drawn, faults: Iterable[ServiceFault] | None = None) -> None:
        super().__init__(drawn)
        luck = stream(drawn.seed, "ensemble")
        self.ensemble = Ensemble(self.engine, luck)
        self.ensemble.on_write = self._look_at_write
        self.policy = AssignmentPolicy(one_of(luck, (least_loaded, fewest_topics)))
        self.settings = Settings(self.limits, qos=qos_table(drawn.network), policies=policies(drawn.network))
        """Of brokers while no configuration has been pushed."""
        self.beat_ns: Nanos = 100 * MS
        linked = {link.ends for link in drawn.network.links}
        edges = [name for name, role in drawn.roles.items() if role == EDGE]
        self.domains = {name: "core" if role == ROUTING else name for name, role in drawn.roles.items()}
        if tuple(edges[:2]) in linked:
            self.domains[edges[1]] = edges[0]
        self.instances = {name: number for number, name in enumerate(drawn.roles, 1)}
        self.members: dict[str, Member] = {}
        self._complaint: Broken | None = None
        self._epoch = 0
        for fault in draw_service_faults(drawn) if faults is None else faults:
            self.engine.at(fault.at_ns, self._trouble, fault)

    def settings_of(self, config: ConfigRecord | None) -> Settings:
        """Of a broker that follows this configuration."""
        if config is None:
            return self.settings
        network = parse_network(config.text, "configuration in ZooKeeper", None, needs_brokers=False)
        return replace(self.settings, qos=qos_table(network))

    def complain(self, rule: str, told: str) -> None:
        if self._complaint is None:
            self._complaint = Broken(rule, f"{told} at {self.engine.now / SECOND:.3f} s")

    def start(self) -> None:
        for name in self.brokers:
            self.members[name] = Member(self, name, Kept())
        super().start()
        for member in self.members.values():
            member.start()

    # Faults of brokers

    def _crash(self, fault: DrawnFault, until_ns: Nanos) -> None:
        name = fault.whom[0]
        was_alive = self.brokers[name].is_alive
        super()._crash(fault, until_ns)
        if was_alive and not self.brokers[name].is_alive:
            self.members[name].die()

    def _start(self, name: str) -> None:
        if self.brokers[name].is_alive:
            return
        member = self.members[name] = Member(self, name, self.members[name].view.kept())
        super()._start(name)
        member.start()

    # Faults of the service

    def _trouble(self, fault: ServiceFault) -> None:
        until_ns = min(self.engine.now + fault.lasts_ns, CHAOS_NS)
        match fault.trouble:
            case Trouble.CUT:
                self.members[fault.whom].connection.cut()
            case Trouble.EXPIRE:
                self.members[fault.whom].connection.expire()
            case Trouble.SERVER:
                self.ensemble.stop(int(fault.whom))
                self.engine.at(until_ns, lambda _: self.ensemble.start(int(fault.whom)))
            case Trouble.AWAY:
                for number in range(len(self.ensemble.servers)):
                    self.ensemble.stop(number)
                self.engine.at(until_ns, lambda _: self.ensemble.heal())
            case Trouble.LAG:
                self.ensemble.servers[int(fault.whom)].extra_lag_ns = fault.lasts_ns // 2
            case Trouble.LEAVE:
                self.members[fault.whom].leave(is_leaving=True)
                self.engine.at(until_ns, lambda _: self.members[fault.whom].leave(is_leaving=False))

    def heal(self) -> None:
        self.ensemble.heal()
        super().heal()
        for member in self.members.values():
            member.leave(is_leaving=False)

    # What must hold

    def _look_at_write(self, transaction: Transaction) -> None:
        for one in transaction.operations:
            if isinstance(one, Create | Replace) and one.path.startswith(f"{ASSIGNMENTS}/"):
                epoch = decode(one.path, one.data, ShardRecord).epoch
                if epoch < self._epoch:
                    self.complain("leaders write in the order of their epochs", f"{epoch} after {self._epoch}")
                self._epoch = epoch

    def broken(self) -> Broken | None:
        return self._complaint or super().broken()

    def not_converged(self) -> Broken | None:
        return owed_or_held(self.brokers) or self._not_agreed()

    def _not_agreed(self) -> Broken | None:
        known = {name: member.participant for name, member in self.members.items()}
        leaders = [name for name, one in known.items() if one.is_leader]
        if len(leaders) != 1:
            return Broken("there is one leader", f"{leaders or 'nobody'} lead")
        assigned = known[leaders[0]].assigned
        for name, one in known.items():
            if one.assigned != assigned:
                return Broken("all brokers know the same assignment", f"{name} and {leaders[0]} differ")
        if len(assigned) < BUNDLES:
            return Broken("every bundle has a routing broker", f"{len(assigned)} of {BUNDLES} have one")
        without = [bundle for bundle, one in assigned.items() if one.standby in ("", one.broker)]
        if without:
            return Broken("every bundle has a standby", f"{len(without)} have none")
        return None


def run_seed(seed: int) -> SeedVerdict:
    return run_world(CoordinatedWorld(draw_coordinated(seed)), seed, "coordinated")


def run_seeds(seeds: Iterable[int], jobs: int = 1) -> Iterator[SeedVerdict]:
    """The verdicts in the order of the seeds."""
    return run_each(run_seed, seeds, jobs)
