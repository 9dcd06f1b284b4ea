"""A random overlay with traffic and faults, drawn from a seed.

The result is an ordinary network: it can be written to a file, read and simulated like any other. Its last events undo
all faults: all links heal, every crashed broker restarts. In some seeds a broker joins or leaves meanwhile, and in some
there is a hostile broker at the edge (`hostile`). Deadlines range from what no path can meet to hours, which for a run
of seconds is no deadline; lifespans are longer than the run, so no reliable message may expire.
"""

from collections.abc import Iterator
from random import Random

from overlane.core.units import MS, SECOND, Nanos
from overlane.network import (
    Broker,
    Crash,
    Cut,
    Event,
    Heal,
    Join,
    Leave,
    Link,
    Lossy,
    Network,
    Partition,
    Publisher,
    Restart,
    Routing,
    Simulation,
    Slow,
    Subscriber,
    Topic,
)
from overlane.network.schema import ROUTINGS
from overlane.sim.random_streams import between, chance, one_of, share, some_of, stream

BROKERS_MIN = 5
BROKERS_MAX = 30
SETTLE_NS: Nanos = 6 * SECOND
CHAOS_NS: Nanos = 10 * SECOND
"""Faults happen from zero until here; then everything heals."""
TRAFFIC_NS: Nanos = CHAOS_NS + 1 * SECOND

VISITOR = "visitor"
"""A broker that joins or leaves while the others stay. It stands at the edge, so nobody is cut off without it."""

HOSTILE = "hostile"
"""A broker that breaks its word: see `hostile`. Nobody publishes or reads there."""
HOSTILE_SHARE = 0.1

NO_DEADLINE_NS: Nanos = 3_600 * SECOND


def draw(seed: int) -> Network:
    luck = stream(seed, "soak")
    # Squared, so that small overlays, which are quicker and break as readily, come more often.
    size = BROKERS_MIN + int(luck.random() * luck.random() * (BROKERS_MAX - BROKERS_MIN + 1))
    names = [f"b{number:02}" for number in range(size)]
    links = tuple(_links(luck, names))
    topics = tuple(_topics(luck, stream(seed, "order")))
    events = list(_events(luck, names, links))
    if chance(luck, 0.3):
        links += tuple(Link(ends=(name, VISITOR), latency_ns=10 * MS) for name in some_of(luck, names, 2))
        events += _comings_and_goings(luck)
        names.append(VISITOR)
    brokers = tuple(_brokers(luck, names))
    # From a stream of its own: all else is drawn as without it.
    hostile = stream(seed, HOSTILE)
    if chance(hostile, HOSTILE_SHARE):
        brokers += (Broker(name=HOSTILE),)
        ends = some_of(hostile, [name for name in names if name != VISITOR], 2)
        links += tuple(Link(ends=(name, HOSTILE), latency_ns=10 * MS) for name in ends)
    return Network(
        brokers=brokers,
        links=links,
        topics=topics,
        publishers=tuple(_publishers(luck, names, topics)),
        subscribers=tuple(_subscribers(luck, names, topics)),
        events=tuple(sorted(events, key=lambda event: event.at_ns)),
        simulation=Simulation(duration_ns=TRAFFIC_NS, seed=seed, settle_ns=SETTLE_NS),
    )


def _brokers(luck: Random, names: list[str]) -> Iterator[Broker]:
    for name in names:
        offset_ns = between(luck, -3_600, 36_000) * SECOND
        yield Broker(name=name, clock_offset_ns=offset_ns, clock_drift_ppm=between(luck, -200, 200))


def _links(luck: Random, names: list[str]) -> Iterator[Link]:
    """A random tree, and some more links across it."""
    joined = {(names[between(luck, 0, number - 1)], names[number]): None for number in range(1, len(names))}
    for _ in range(between(luck, 1, len(names))):
        one, other = sorted(some_of(luck, names, 2))
        joined[one, other] = None
    is_lossy, is_streaming, is_limited = chance(luck, 0.5), chance(luck, 0.2), chance(luck, 0.4)
    for ends in joined:
        latency_ns = between(luck, 1_000, 40_000) * 1_000
        yield Link(
            ends=ends,
            latency_ns=latency_ns,
            jitter_ns=between(luck, 0, latency_ns // 5_000) * 1_000 if chance(luck, 0.5) else 0,
            loss=between(luck, 0, 40) / 1_000 if is_lossy and chance(luck, 0.5) else 0.0,
            rate_bps=one_of(luck, (1, 2, 10, 100)) * 1_000_000 if is_limited and chance(luck, 0.5) else None,
            transport="stream" if is_streaming and chance(luck, 0.5) else "datagram",
        )


def _topics(luck: Random, order: Random) -> Iterator[Topic]:
    for number in range(between(luck, 2, 4)):
        yield Topic(
            filter=f"t{number}/#",
            deadline_ns=one_of(luck, (60 * MS, 150 * MS, 400 * MS, 2 * SECOND, NO_DEADLINE_NS)),
            reliability="reliable" if number == 0 or chance(luck, 0.6) else "best-effort",
            routing=_routing(luck),
            history=one_of(luck, (0, 0, 1, 5)),
            order="deadline" if chance(order, 0.2) else "strict",
        )


def _routing(luck: Random) -> Routing:
    return "adaptive" if chance(luck, 0.5) else one_of(luck, ROUTINGS)


def _publishers(luck: Random, names: list[str], topics: tuple[Topic, ...]) -> Iterator[Publisher]:
    for number in range(between(luck, 2, 5)):
        topic = topics[number % len(topics)]
        yield Publisher(
            broker=one_of(luck, names),
            topic=topic.filter.replace("#", str(number)),
            rate_hz=between(luck, 2, max(5, min(20, 160 // len(names)))),  # large overlays take long enough
            size_bytes=one_of(luck, (16, 64, 64, 300, 1_500)),
        )


def _subscribers(luck: Random, names: list[str], topics: tuple[Topic, ...]) -> Iterator[Subscriber]:
    for number in range(between(luck, 3, 8)):
        topic = topics[number % len(topics)]
        is_late = number >= len(topics) and chance(luck, 0.2)
        start_ns = between(luck, 1, 9_000) * MS if is_late else 0
        yield Subscriber(broker=one_of(luck, names), topic=topic.filter, start_ns=start_ns)


# Faults


def _events(luck: Random, names: list[str], links: tuple[Link, ...]) -> Iterator[Event]:
    up_again: dict[str, Nanos] = {}
    for _ in range(between(luck, 2, 7)):
        at_ns = between(luck, 0, CHAOS_NS // MS - 1_000) * MS
        kind = luck.random()
        if kind < 0.25:
            broker = one_of(luck, names)
            restart_ns = min(at_ns + between(luck, 100, 6_000) * MS, CHAOS_NS)
            if at_ns > up_again.get(broker, -1):
                up_again[broker] = restart_ns
                yield Crash(at_ns, broker)
                yield Restart(restart_ns, broker)
        elif kind < 0.35:
            yield Partition(at_ns, tuple(sorted(some_of(luck, names, between(luck, 1, len(names) // 2)))))
            if chance(luck, 0.7):
                yield Heal(min(at_ns + between(luck, 200, 6_000) * MS, CHAOS_NS), None)
        else:
            yield from _trouble(luck, one_of(luck, links), at_ns, kind)
    yield Heal(CHAOS_NS, None)


def _comings_and_goings(luck: Random) -> Iterator[Event]:
    first, second = between(luck, 500, 4_000) * MS, between(luck, 5_500, 9_000) * MS
    if chance(luck, 0.5):
        yield Join(first, VISITOR)
        if chance(luck, 0.5):
            yield Leave(second, VISITOR)
    else:
        yield Leave(first, VISITOR)
        if chance(luck, 0.5):
            yield Join(second, VISITOR)


def _trouble(luck: Random, link: Link, at_ns: Nanos, kind: float) -> Iterator[Event]:
    """Something happens to one link, and passes."""
    if kind < 0.55:
        yield Cut(at_ns, link.ends)
    elif kind < 0.7:
        yield Slow(at_ns, link.ends, link.latency_ns * between(luck, 2, 12))
    elif kind < 0.85:
        yield Lossy(at_ns, link.ends, round(share(luck, 0.1, 0.6), 2))
    else:
        for _ in range(between(luck, 2, 6)):  # it flaps
            yield Cut(at_ns, link.ends)
            at_ns += between(luck, 100, 900) * MS
            yield Heal(min(at_ns, CHAOS_NS), link.ends)
            at_ns += between(luck, 100, 900) * MS
            if at_ns >= CHAOS_NS:
                return
        return
    if chance(luck, 0.8):
        yield Heal(min(at_ns + between(luck, 200, 6_000) * MS, CHAOS_NS), link.ends)
