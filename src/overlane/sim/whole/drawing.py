"""Brokers, clients and faults of a seed.

One to four brokers in a row, a ring or a star; two to four clients at each, of MQTT 3.1.1 and 5, all with persistent
sessions, which publish and subscribe with QoS 0 to 2. Some have a will, some a keep-alive, some are members of a shared
subscription, some publish retained messages and clear them, and some want these from a moment on. Besides, visitors
come: clients without a persistent session, that subscribe and leave.

Faults: a broker's process is killed, its power fails, its disk is slow, full or broken, a client's connection breaks, a
client disconnects or vanishes for a while or falls silent, a link is cut, slow or lossy. All of it is over after the
chaos.

Some seeds are tight: queues for clients are short, and publishers publish much at once. On some, disks are broken for
longer than a client has to answer.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from random import Random

from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.network import Broker, Link, Network, Simulation
from overlane.sim.random_streams import between, chance, one_of, some_of, stream
from overlane.sim.whole.broker import Pace
from overlane.sim.whole.habits import Habits

CHAOS_NS: Nanos = 4 * SECOND
"""Traffic and faults happen from zero until here; then everything heals."""
LONG_TROUBLE_NS: Nanos = 2_600 * MS
"""Clients that have not answered for two seconds are not waited for."""
TOPICS = 3
WILLS = "w/#"
RETAINED = "r/#"
SHARED = "$share/g/s/#"


class FaultKind(Enum):
    KILL = auto()
    POWER = auto()
    DISK_RESERVE = auto()
    DISK_FULL = auto()
    DISK_BROKEN = auto()
    CONNECTION = auto()
    AWAY = auto()
    VANISH = auto()
    SILENCE = auto()
    CUT = auto()
    SLOW = auto()
    LOSSY = auto()


@dataclass(frozen=True, slots=True)
class DrawnFault:
    """`whom`: a broker, a client, or the two ends of a link. It is over after `lasts_ns`.

    `waits_for_write`: a crash comes while something is written and not synced.
    """

    at_ns: Nanos
    kind: FaultKind
    whom: tuple[str, ...]
    lasts_ns: Nanos
    waits_for_write: bool = False


@dataclass(frozen=True, slots=True)
class DrawnSubscription:
    """`replays`: the client wants what is retained. It subscribes at `at_ns`."""

    topic_filter: str
    qos: int
    replays: bool = False
    at_ns: Nanos = -NEVER


@dataclass(frozen=True, slots=True)
class Publication:
    topic: str
    qos: int
    count: int
    is_retained: bool = False


@dataclass(frozen=True, slots=True)
class Person:
    """A client. A visitor is there from `visit_ns` for `stays_ns` only; it vanishes, or disconnects."""

    name: str
    broker: str
    latency_ns: Nanos
    subscriptions: tuple[DrawnSubscription, ...]
    publications: tuple[Publication, ...]
    habits: Habits = field(default_factory=Habits)
    visit_ns: Nanos = 0
    stays_ns: Nanos = 0
    vanishes: bool = False


@dataclass(frozen=True, slots=True)
class Drawn:
    seed: int
    network: Network
    paces: dict[str, Pace]
    clients: tuple[Person, ...]
    faults: tuple[DrawnFault, ...]
    is_tight: bool
    roles: dict[str, str] = field(default_factory=dict)
    """Of brokers that are not plain."""
    assignment: dict[int, str] = field(default_factory=dict)
    """Bundles and routing brokers, at the start."""


def draw(seed: int) -> Drawn:
    luck = stream(seed, "whole")
    names = [f"b{number}" for number in range(between(luck, 1, 4))]
    links = tuple(_links(luck, names))
    brokers = tuple(
        Broker(name=name, clock_offset_ns=between(luck, 0, 36_000) * SECOND, clock_drift_ppm=between(luck, -200, 200))
        for name in names
    )
    clients = tuple(_clients(luck, stream(seed, "habits"), names))
    visitors = tuple(_visitors(stream(seed, "visitors"), names))
    return Drawn(
        seed,
        Network(brokers=brokers, links=links, simulation=Simulation(duration_ns=CHAOS_NS, seed=seed)),
        {name: draw_pace(luck) for name in names},
        clients + visitors,
        tuple(sorted(_faults(seed, luck, names, links, clients), key=lambda fault: fault.at_ns)),
        chance(stream(seed, "tight"), 0.2),
    )


def _faults(
    seed: int, luck: Random, names: list[str], links: tuple[Link, ...], clients: tuple[Person, ...]
) -> Iterator[DrawnFault]:
    is_long = chance(stream(seed, "trouble"), 0.1)
    for fault in draw_faults(luck, names, links, clients):
        if is_long and fault.kind in (FaultKind.DISK_RESERVE, FaultKind.DISK_FULL, FaultKind.DISK_BROKEN):
            yield replace(fault, at_ns=fault.at_ns // 2, kind=FaultKind.DISK_BROKEN, lasts_ns=LONG_TROUBLE_NS)
        else:
            yield fault


def _links(luck: Random, names: list[str]) -> Iterator[Link]:
    ends = [(names[between(luck, 0, number - 1)], names[number]) for number in range(1, len(names))]
    if len(names) > 2 and chance(luck, 0.5) and (names[0], names[-1]) not in ends:
        ends.append((names[0], names[-1]))
    yield from draw_links(luck, ends)


def draw_links(luck: Random, ends: list[tuple[str, str]]) -> Iterator[Link]:
    for pair in ends:
        latency_ns = between(luck, 1, 30) * MS
        yield Link(
            ends=pair,
            latency_ns=latency_ns,
            jitter_ns=between(luck, 0, latency_ns // 5_000) * 1_000 if chance(luck, 0.5) else 0,
            loss=between(luck, 0, 30) / 1_000 if chance(luck, 0.3) else 0.0,
            rate_bps=one_of(luck, (2, 10)) * 1_000_000 if chance(luck, 0.2) else None,
            transport="stream" if chance(luck, 0.2) else "datagram",
        )


def draw_pace(luck: Random) -> Pace:
    slowest = one_of(luck, (1, 5, 40)) * MS
    return Pace(between(luck, 1, 500) * 1_000, (slowest // 5, slowest))


def _clients(luck: Random, habit: Random, names: list[str]) -> Iterator[Person]:
    """Each publishes on topics with one QoS per topic, since order holds for one QoS only."""
    number = 0
    for broker in names:
        for _ in range(between(luck, 2, 4)):
            number += 1
            name = f"c{number}"
            filters = some_of(luck, [f"t{index}/#" for index in range(TOPICS)], between(luck, 0, 3))
            topics = some_of(luck, [f"t{index}/{name}" for index in range(TOPICS)], between(luck, 0, 3))
            yield Person(
                name,
                broker,
                between(luck, 1, 20) * MS // 2,
                (*(DrawnSubscription(one, one_of(luck, (0, 1, 2, 2))) for one in filters), *_more_subscriptions(habit)),
                (
                    *(Publication(one, one_of(luck, (0, 1, 2, 2)), between(luck, 4, 16)) for one in topics),
                    *_more_publications(habit, name),
                ),
                _habits(habit),
            )


def _habits(luck: Random) -> Habits:
    is_v5 = chance(luck, 0.6)
    return Habits(
        is_v5,
        keep_alive_s=one_of(luck, (0, 1, 1)),
        will_qos=one_of(luck, (None, 1, 2, 2)),
        will_delay_s=one_of(luck, (0, 1)) if is_v5 else 0,
    )


def _more_subscriptions(luck: Random) -> Iterator[DrawnSubscription]:
    if chance(luck, 0.4):
        yield DrawnSubscription(WILLS, one_of(luck, (1, 2, 2)))
    if chance(luck, 0.4):
        yield DrawnSubscription(SHARED, one_of(luck, (1, 2, 2)))
    if chance(luck, 0.3):
        yield DrawnSubscription(RETAINED, one_of(luck, (0, 1, 2, 2)), replays=True, at_ns=between(luck, 0, 3_900) * MS)


def _more_publications(luck: Random, name: str) -> Iterator[Publication]:
    if chance(luck, 0.4):
        yield Publication(f"r/{name}", one_of(luck, (1, 2)), between(luck, 2, 10), is_retained=True)
    if chance(luck, 0.4):
        yield Publication(f"s/{name}", one_of(luck, (1, 2)), between(luck, 2, 10))


def _visitors(luck: Random, names: list[str]) -> Iterator[Person]:
    """They read what is retained, or are members of the shared subscription with QoS 1: what a member is sent with
    QoS 2 when its session ends goes to nobody else."""
    for number in range(between(luck, 0, 4)):
        wanted = DrawnSubscription(RETAINED, one_of(luck, (0, 1, 2)), replays=True)
        if chance(luck, 0.3):
            wanted = DrawnSubscription(SHARED, 1)
        yield Person(
            f"v{number}",
            one_of(luck, names),
            between(luck, 1, 20) * MS // 2,
            (wanted,),
            (),
            Habits(chance(luck, 0.6), is_passing=True),
            between(luck, 0, 3_500) * MS,
            between(luck, 100, 1_500) * MS,
            chance(luck, 0.5),
        )


def draw_faults(
    luck: Random, names: list[str], links: tuple[Link, ...], clients: tuple[Person, ...]
) -> Iterator[DrawnFault]:
    for _ in range(between(luck, 3, 12)):
        kind = one_of(luck, list(FaultKind))
        at_ns = between(luck, 100, CHAOS_NS // MS - 500) * MS
        lasts_ns = between(luck, 50, 1_500) * MS
        match kind:
            case FaultKind.VANISH | FaultKind.SILENCE:
                # Long enough for a delayed will, or a keep-alive, to run out.
                at_ns, lasts_ns = at_ns // 2, lasts_ns + SECOND
                yield DrawnFault(at_ns, kind, (one_of(luck, clients).name,), lasts_ns)
            case FaultKind.CONNECTION | FaultKind.AWAY:
                yield DrawnFault(at_ns, kind, (one_of(luck, clients).name,), lasts_ns)
            case FaultKind.CUT | FaultKind.SLOW | FaultKind.LOSSY:
                if links:
                    yield DrawnFault(at_ns, kind, one_of(luck, links).ends, lasts_ns)
            case _:
                yield DrawnFault(at_ns, kind, (one_of(luck, names),), lasts_ns, chance(luck, 0.7))
