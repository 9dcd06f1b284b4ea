"""The scenarios of bench/adaptive.py: networks, flows with deadlines, and trouble, all drawn from a seed.

    abilene, geant   at times all links of one random broker lose 30 % for 1 to 5 s, then all is well for 2 to 12 s
    seattle          12 brokers, each joined to its nearest four; link latencies follow measured round-trip times, a
                     time slice every 2 s, a window of slices drawn from the seed; they begin as the first slice has
                     them

Flows go between random brokers that are far apart. A flow's deadline is 1.6 x the usual latency of its shortest path,
or 20 ms more than that if it is near.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import msgspec
import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra

from overlane.core.units import MS, SECOND, Nanos
from overlane.network import (
    Broker,
    Event,
    Heal,
    Link,
    Lossy,
    Network,
    Publisher,
    Simulation,
    Slow,
    Subscriber,
    Topic,
    read_network,
)

EXAMPLES = Path(__file__).parents[1] / "examples"

LOSS = 0.3
BURST_NS = 1 * SECOND, 5 * SECOND
CALM_NS = 2 * SECOND, 12 * SECOND
LINKS_MIN = 2
"""Both ends of a flow have so many links: where there is one way only, no routing can help."""
FAR = 0.5
"""Flows are between pairs that are farther apart than this share of all pairs."""
SLACK_RATIO, SLACK_MIN_NS = 1.6, 20 * MS

SLICE_NS = 2 * SECOND
NEIGHBOURS = 4
CHANGE_MIN = 0.1
"""A smaller change of a link's latency from one slice to the next is left out."""

Latencies = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Burst:
    """All links of a broker are bad for a while."""

    broker: str
    start_ns: Nanos
    stop_ns: Nanos


@dataclass(frozen=True)
class Scenario:
    name: str
    seed: int
    network: Network
    """With its trouble; `calm` is the same without."""
    calm: Network


def scenario(name: str, seed: int, flows: int, rate_hz: float, duration_ns: Nanos) -> Scenario:
    luck = Random(f"{name} {seed}")
    if name == "seattle":
        network, first, events = _seattle(luck, duration_ns)
    else:
        network = read_network(EXAMPLES / "networks" / f"{name}.toml")
        events = _losses(network, _bursts(network, luck, duration_ns))
    calm = _with_flows(network, luck, flows, rate_hz, duration_ns, seed)
    if name == "seattle":
        calm = msgspec.structs.replace(calm, links=first)
    return Scenario(name, seed, msgspec.structs.replace(calm, events=tuple(events)), calm)


# Trouble


def _bursts(network: Network, luck: Random, duration_ns: Nanos) -> Iterable[Burst]:
    at = luck.randrange(*CALM_NS)
    while at < duration_ns:
        stop = at + luck.randrange(*BURST_NS)
        yield Burst(luck.choice(network.brokers).name, at, min(stop, duration_ns))
        at = stop + luck.randrange(*CALM_NS)


def _losses(network: Network, bursts: Iterable[Burst]) -> list[Event]:
    events: list[Event] = []
    for burst in bursts:
        ends = [link.ends for link in network.links if burst.broker in link.ends]
        events += [Lossy(burst.start_ns, pair, LOSS) for pair in ends]
        events += [Heal(burst.stop_ns, pair) for pair in ends]
    return events


# Flows


def _with_flows(network: Network, luck: Random, flows: int, rate_hz: float, duration_ns: Nanos, seed: int) -> Network:
    distance = _distances(network)
    joined = [sum(broker.name in link.ends for link in network.links) for broker in network.brokers]
    places = [place for place, links in enumerate(joined) if links >= LINKS_MIN]
    pairs = sorted((distance[one, other], one, other) for one in places for other in places if one != other)
    far = pairs[int(FAR * len(pairs)) :]
    topics, publishers, subscribers = list[Topic](), list[Publisher](), list[Subscriber]()
    for number, (latency_ns, source, destination) in enumerate(luck.sample(far, min(flows, len(far)))):
        name = f"flow/{number}"
        deadline_ns = int(max(SLACK_RATIO * latency_ns, latency_ns + SLACK_MIN_NS))
        topics.append(Topic(filter=name, deadline_ns=deadline_ns))
        publishers.append(Publisher(broker=network.brokers[source].name, topic=name, rate_hz=rate_hz))
        subscribers.append(Subscriber(broker=network.brokers[destination].name, topic=name))
    return msgspec.structs.replace(
        network,
        topics=tuple(topics),
        publishers=tuple(publishers),
        subscribers=tuple(subscribers),
        simulation=Simulation(duration_ns=duration_ns, seed=seed),
    )


def _distances(network: Network) -> Latencies:
    """Nanoseconds over the quickest path, from each broker to each."""
    place = {broker.name: at for at, broker in enumerate(network.brokers)}
    direct = np.zeros((len(place), len(place)))
    for link in network.links:
        one, other = (place[end] for end in link.ends)
        direct[one, other] = direct[other, one] = link.latency_ns
    found: Latencies = dijkstra(csr_array(direct), directed=False)
    return found


# The measured latencies


def _seattle(luck: Random, duration_ns: Nanos) -> tuple[Network, tuple[Link, ...], list[Event]]:
    """With the usual latencies, the links as they are in the first slice, and how they change from then on."""
    with np.load(EXAMPLES / "data" / "seattle-rtt-12.npz") as data:
        rtt = data["rtt"].astype(np.float64)
    one_way_ns = (rtt + rtt.transpose(0, 2, 1)) / 4 * SECOND
    usual = np.median(one_way_ns, axis=0)
    names = [f"node-{number:02}" for number in range(len(usual))]
    ends = [(names[one], names[other]) for one, other in _nearest(usual)]
    network = Network(
        brokers=tuple(Broker(name=name) for name in names),
        links=tuple(
            Link(ends=pair, latency_ns=int(usual[place])) for pair, place in zip(ends, _nearest(usual), strict=True)
        ),
    )
    slices = min(len(one_way_ns), duration_ns // SLICE_NS)
    first = luck.randrange(len(one_way_ns) - slices + 1)
    events: list[Event] = []
    current = {place: one_way_ns[first][place] for place in _nearest(usual)}
    begun = tuple(
        Link(ends=pair, latency_ns=int(current[place])) for pair, place in zip(ends, _nearest(usual), strict=True)
    )
    for number in range(1, slices):
        for pair, place in zip(ends, _nearest(usual), strict=True):
            now = one_way_ns[first + number][place]
            if abs(now - current[place]) > CHANGE_MIN * current[place]:
                current[place] = now
                events.append(Slow(number * SLICE_NS, pair, int(now)))
    return network, begun, events


def _nearest(usual: Latencies) -> list[tuple[int, int]]:
    """Each broker joined to its nearest, more of them if that leaves the network in parts."""
    for count in range(NEIGHBOURS, len(usual)):
        near = np.argsort(usual + np.diag([np.inf] * len(usual)), axis=1, kind="stable")[:, :count]
        pairs = {(min(one, int(other)), max(one, int(other))) for one, row in enumerate(near) for other in row}
        joined = np.zeros_like(usual)
        for pair in pairs:
            joined[pair] = 1
        if connected_components(csr_array(joined), directed=False)[0] == 1:
            return sorted(pairs)
    raise ValueError("these brokers cannot be joined")
