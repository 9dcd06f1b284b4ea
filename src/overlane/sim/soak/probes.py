"""Probes: checks after all faults have healed, by new messages and new subscribers.

A new message must arrive if it is reliable, or if its deadline leaves ample time for the path. A new subscriber must
get the last messages of every reliable topic with a history, however many faults there were when they were published.
"""

from collections.abc import Mapping
from heapq import heappop, heappush

from overlane.core.topics import matches
from overlane.core.units import NEVER, Nanos
from overlane.network import Network, Subscriber
from overlane.sim.random_streams import one_of, stream
from overlane.sim.soak.drawing import HOSTILE, VISITOR
from overlane.sim.soak.invariants import Broken
from overlane.sim.world import World


def fresh_lost(world: World, sources: Mapping[int, str]) -> Broken | None:
    """A message of one of these publishers, given with their brokers, that has not arrived everywhere."""
    for message in world.judge.lost():
        source = sources.get(message.publisher)
        destination = message.subscriber.rpartition(".")[0]
        row = world.plan.row_of(message.topic)
        if HOSTILE in world.hosts and not world.plan.classes[row].reliable:
            continue  # of best effort the first may be lost before it is known over whom
        if source is not None and is_meetable(world.plan.network, row, source, destination):
            return Broken("fresh messages arrive after healing", f"{message} at {destination}, from {source}")
    return None


def add_newcomers(world: World) -> dict[str, str]:
    """A late subscriber for every reliable topic that keeps a history; their names and filters."""
    luck = stream(world.seed, "newcomers")
    stayers = [name for name in world.hosts if name not in (VISITOR, HOSTILE)]
    return {
        world.subscribers.add(
            Subscriber(broker=one_of(luck, stayers), topic=topic.filter, start_ns=world.engine.now)
        ): topic.filter
        for topic in world.plan.network.topics
        if topic.reliability == "reliable" and topic.history
    }


def history_lost(world: World, newcomers: Mapping[str, str]) -> Broken | None:
    """A message that a late subscriber was due and has not got."""
    for name, topic_filter in newcomers.items():
        for source, topic in sorted({(spec.broker, spec.topic) for spec in world.plan.network.publishers}):
            if matches(topic_filter, topic) and world.hosts[source].is_open:
                kept = world.plan.classes[topic_filter].history
                for publisher, number in _latest(world, topic, kept):
                    if not world.judge.has(name, publisher, number):
                        what = f"message {number} of publisher {publisher} on {topic} for {name}"
                        return Broken("late subscribers get the history", what)
    return None


def _latest(world: World, topic: str, count: int) -> list[tuple[int, int]]:
    """The publishers and numbers of the last messages on a topic; probes are younger than all others."""
    messages = [
        (publisher.index, number)
        for publisher in world.publishers
        if publisher.topic == topic
        for number in range(publisher.accepted)
    ]
    return messages[-count:]


def is_meetable(network: Network, topic_filter: str, source: str, destination: str) -> bool:
    """Whether even a best-effort message must arrive while all is well: its deadline leaves ample time for the way."""
    topic = next(topic for topic in network.topics if topic.filter == topic_filter)
    if topic.reliability == "reliable":
        return True
    return topic.deadline_ns >= 3 * _distance(network, source, destination)


def _distance(network: Network, source: str, destination: str) -> Nanos:
    """The least latency from source to destination over the links as the file has them."""
    neighbours: dict[str, list[tuple[str, Nanos]]] = {broker.name: [] for broker in network.brokers}
    for link in network.links:
        one, other = link.ends
        neighbours[one].append((other, link.latency_ns + link.jitter_ns))
        neighbours[other].append((one, link.latency_ns + link.jitter_ns))
    distances: dict[str, Nanos] = {}
    frontier = [(0, source)]
    while frontier:
        distance, here = heappop(frontier)
        if here not in distances:
            distances[here] = distance
            for there, step in neighbours[here]:
                heappush(frontier, (distance + step, there))
    return distances.get(destination, NEVER)
