"""What must hold whatever happens to an overlay, checked from outside the brokers.

- No reliable message is lost to a subscriber who was there from the beginning.
- No subscriber gets a message twice.
- Order is kept per publisher and topic, as the judge defines it.
- No loop: no more transmissions than a flood with repairs could need, and none once everything is delivered.
- No storm: brokers do not set each other off without end.
- Every link queue keeps within its bound, at every turn.
- After healing, all brokers see the same map and subscriptions, every route is established, and fresh messages arrive
  exactly once.
"""

from heapq import heappop, heappush

import msgspec

from overlane.core.units import NEVER, Nanos
from overlane.network import Network
from overlane.sim.judge import Message
from overlane.sim.world import World

SENDS_PER_LINK_MAX = 4
"""How often a message may cross a link in one direction, repairs and resends included, on average over all messages."""


class Broken(msgspec.Struct, frozen=True):
    """An invariant that did not hold, and the first thing that shows it."""

    invariant: str
    detail: str


def nothing_forbidden(world: World) -> Broken | None:
    """What must hold at any time."""
    judge = world.judge
    if judge.doubles:
        return Broken("nothing is delivered twice", str(judge.doubles[0]))
    if judge.disorders:
        return Broken("order is kept", str(judge.disorders[0]))
    if world.watch.overfull:
        return Broken("every queue is within its bound", world.watch.overfull[0])
    sent, published = world.counter("messages_sent"), sum(row.published for row in judge.rows.values())
    if sent > published * 2 * len(world.links) * SENDS_PER_LINK_MAX:
        return Broken("no loop", f"{sent} transmissions of {published} messages over {len(world.links)} links")
    return None


def nothing_lost(world: World) -> Broken | None:
    lost = _reliable_losses(world)
    return Broken("no reliable message is lost", f"{lost[0]}, the first of {len(lost)}") if lost else None


def _reliable_losses(world: World) -> list[Message]:
    network = world.plan.network
    reliable = [topic.filter for topic in network.topics if topic.reliability == "reliable"]
    settled = {f"{spec.broker}.{index}" for index, spec in enumerate(network.subscribers) if spec.start_ns == 0}
    return [message for row in reliable for message in world.judge.lost(row) if message.subscriber in settled]


def converged(world: World) -> Broken | None:
    """Whether all brokers agree on what there is, and their routes stand."""
    digests = {name: host.core.map_digest() for name, host in world.hosts.items()}
    first = next(iter(digests))
    others = [name for name in digests if digests[name] != digests[first]]
    if others:
        return Broken("all brokers see the same map", f"{', '.join(others)} see another one than {first}")
    for name, host in world.hosts.items():
        for route in host.core.routes():
            if not route.established:
                where = f"route {route.id} version {route.version} from {name} to {', '.join(route.destinations)}"
                return Broken("every route is established", where)
    return None


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
