"""Whole brokers whose configuration changes while they run: links come and go, QoS classes and limits change.

Each broker gets a new network at a time of its own, as after SIGHUP; one that is down gets it when it starts again. A
link exists if both brokers have it; if one has removed it, the other finds no connection.
"""

from dataclasses import dataclass

from overlane.core.units import MS, Nanos
from overlane.network import Link as LinkSpec
from overlane.network import Network
from overlane.network.classes import policies, qos_table
from overlane.network.members import members_of
from overlane.network.schema import Topic
from overlane.pubsub.limits import Limits
from overlane.pubsub.state import Settings
from overlane.sim.link import Link
from overlane.sim.random_streams import between, one_of, some_of, stream
from overlane.sim.whole.drawing import CHAOS_NS, Drawn
from overlane.sim.whole.running import WholeWorld
from overlane.turn.reconfigure import Reconfigure

CHANGES = 3
HEARD_WITHIN: Nanos = 200 * MS
CLASSES = (
    Topic(filter="t0/#", deadline_ns=200 * MS, routing="flood"),
    Topic(filter="t1/#", reliability="reliable", routing="single"),
    Topic(filter="t2/#", reliability="reliable", routing="multipath"),
)


@dataclass(frozen=True, slots=True)
class DrawnChange:
    """From then on the brokers are to be like this."""

    at_ns: Nanos
    network: Network
    limits: Limits


def draw_changes(drawn: Drawn, limits: Limits) -> list[DrawnChange]:
    """Some other links each time, and those of the beginning at last: so healing finds all brokers connected."""
    luck = stream(drawn.seed, "reconfigure")
    network = drawn.network
    names = [broker.name for broker in network.brokers]
    pairs = [(one, other) for number, one in enumerate(names) for other in names[number + 1 :]]
    known = {link.ends: link for link in network.links}
    changes = []
    for number in range(1, CHANGES + 1):
        ends = some_of(luck, pairs, between(luck, 0, len(pairs))) if pairs else []
        links = [known.get(pair) or LinkSpec(ends=pair, latency_ns=between(luck, 1, 30) * MS) for pair in ends]
        known |= {link.ends: link for link in links}
        topics = some_of(luck, CLASSES, between(luck, 0, len(CLASSES)))
        changed = Network(
            brokers=network.brokers,
            links=network.links if number == CHANGES else tuple(links),
            topics=tuple(topics),
            simulation=network.simulation,
        )
        in_flight = one_of(luck, (5, 10, 20))
        queue = limits.queue_messages * one_of(luck, (1, 2))
        fresh = Limits(queue_messages=queue, tries=limits.tries, in_flight=in_flight)
        changes.append(DrawnChange(CHAOS_NS * number // (CHANGES + 1), changed, fresh))
    return changes


def schedule(world: WholeWorld, changes: list[DrawnChange]) -> None:
    luck = stream(world.drawn.seed, "heard")
    for change in changes:
        for name in world.brokers:
            at_ns = change.at_ns + between(luck, 0, HEARD_WITHIN)
            world.engine.at(at_ns, lambda entry: reconfigure(world, *entry), (name, change))


def reconfigure(world: WholeWorld, name: str, change: DrawnChange) -> None:
    """One broker takes a change up."""
    for spec in change.network.links:
        if spec.ends not in world.links:
            _lay(world, spec)
    settings = Settings(change.limits, qos=qos_table(change.network), policies=policies(change.network))
    world.brokers[name].reconfigure(Reconfigure(members_of(change.network), settings))


def _lay(world: WholeWorld, spec: LinkSpec) -> None:
    """A link that no broker has in its configuration yet."""
    one, other = (world.brokers[end] for end in spec.ends)
    link = world.links[spec.ends] = Link(world.engine, spec, one, other, world.drawn.seed)
    for broker, peer in ((one, other), (other, one)):
        link.configure(broker.name, is_wanted=False)
        broker.links[peer.name] = link
