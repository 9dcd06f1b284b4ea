"""The invariants of an overlay, checked from outside the brokers.

- No reliable message is lost to a subscriber that was subscribed from the beginning.
- No subscriber receives a message twice.
- Order is kept per publisher and topic, as the judge defines it: without exception if it is strict.
- No loop: no more transmissions than a flood with repairs could need, and none once everything is delivered.
- No storm: brokers do not trigger each other without end.
- Every link queue stays within its limit, at every turn.
- No broker that forwards is suspected of not forwarding.
- After healing, all brokers have the same map and subscriptions and a path to each other, every route is
  established, new messages arrive exactly once, and late subscribers get the history that is kept for them.
"""

import msgspec

from overlane.core.events import PathSuspected
from overlane.core.topics import matches
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.network import Heal, Network, Slow
from overlane.network.schema import Ends
from overlane.sim.judge import Disorder, JudgedMessage
from overlane.sim.soak.drawing import HOSTILE, NO_DEADLINE_NS, VISITOR
from overlane.sim.world import World

MEASURED_WITHIN_NS: Nanos = 3 * SECOND
"""How long brokers may take to notice that a link has become faster."""

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
    for disorder in judge.disorders:
        if not _is_excused(disorder, world.plan.network):
            return Broken("order is kept", str(disorder))
    if world.watch.overfull:
        return Broken("every queue is within its bound", world.watch.overfull[0])
    if accused := _falsely_accused(world):
        return Broken("nobody is suspected who forwards", accused)
    sent, published = world.counter("messages_sent"), sum(row.published for row in judge.rows.values())
    if sent > published * 2 * len(world.links) * SENDS_PER_LINK_MAX:
        return Broken("no loop", f"{sent} transmissions of {published} messages over {len(world.links)} links")
    return None


def _falsely_accused(world: World) -> str:
    for verdict in world.run_log.path_verdicts:
        effect = verdict.effect
        if isinstance(effect, PathSuspected) and HOSTILE not in effect.hops:
            return f"{verdict.source} suspects {', '.join(effect.hops)} on {' -> '.join(effect.path)}"
    return ""


def _is_excused(disorder: Disorder, network: Network) -> bool:
    """Whether a link on the way had just become faster again, where order is not strict.

    What comes over it is younger than brokers think, as long as they add what they measured while it was slow. It is
    then held back for an earlier one no longer than its deadline seems to allow.
    """
    if disorder.is_strict:
        return False
    deadline_ns = min(topic.deadline_ns for topic in network.topics if matches(topic.filter, disorder.message.topic))
    since_eased = min(
        (disorder.arrived_at - at for at in _easings(network) if at <= disorder.arrived_at), default=NEVER
    )
    return deadline_ns < NO_DEADLINE_NS and since_eased < MEASURED_WITHIN_NS


def _easings(network: Network) -> list[Nanos]:
    """When links that were slow healed."""
    slow: set[Ends] = set()
    healed: list[Nanos] = []
    for event in network.events:
        if isinstance(event, Slow):
            slow.add(event.ends)
        elif isinstance(event, Heal) and (event.ends in slow or (event.ends is None and slow)):
            healed.append(event.at_ns)
            slow = slow - {event.ends} if event.ends else set()
    return healed


def nothing_lost(world: World) -> Broken | None:
    lost = _reliable_losses(world)
    return Broken("no reliable message is lost", f"{lost[0]}, the first of {len(lost)}") if lost else None


def _reliable_losses(world: World) -> list[JudgedMessage]:
    """What was lost of reliable topics between brokers that stay, for subscribers who were there from the beginning."""
    network = world.plan.network
    reliable = [topic.filter for topic in network.topics if topic.reliability == "reliable"]
    settled = {
        f"{spec.broker}.{index}"
        for index, spec in enumerate(network.subscribers)
        if spec.start_ns == 0 and spec.broker != VISITOR
    }
    visiting = {index for index, spec in enumerate(network.publishers) if spec.broker == VISITOR}
    return [
        message
        for row in reliable
        for message in world.judge.lost(row)
        if message.subscriber in settled and message.publisher not in visiting
    ]


def converged(world: World) -> Broken | None:
    """Whether all brokers agree on what there is, and their routes stand."""
    cores = {name: host.core for name, host in world.hosts.items() if host.is_alive and name != HOSTILE}
    digests = {name: core.map_digest() for name, core in cores.items()}
    first = next(iter(digests))
    others = [name for name in digests if digests[name] != digests[first]]
    if others:
        return Broken("all brokers see the same map", f"{', '.join(others)} see another one than {first}")
    there = [name for name, host in world.hosts.items() if host.is_open and name != HOSTILE]
    for name in there:
        # A map may be the same everywhere and lack a link that its ends have not announced yet.
        unreachable = [other for other in there if other != name and not cores[name].can_reach(other)]
        if unreachable:
            return Broken("every broker has a path to every other", f"{name} has none to {', '.join(unreachable)}")
    for name, core in cores.items():
        for route in core.routes():
            if not route.established:
                where = f"route {route.id} version {route.version} from {name} to {', '.join(route.destinations)}"
                return Broken("every route is established", where)
    return None
