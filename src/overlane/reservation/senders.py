"""The senders of this broker: the trees of advertisements here, and other paths after a refusal.

A leaf whose reservation was refused at a link reports this (PathErr), and the sender attaches it over links that have
not refused it, as in RFC 4920 for tunnels. If there is no such path left it uses the best one again, marked as the
last, so that the leaf does not wait for more. A link that refused a leaf or failed is avoided for a while only.
"""

from dataclasses import dataclass, field

from overlane.planning.reserve import TSpec
from overlane.reservation.contract import Broker, Link, Topology
from overlane.reservation.flowspecs import on_wire
from overlane.reservation.path_choice import Parents, as_tree, attached, below, pruned
from overlane.reservation.rsvp.intserv import FlowSpec
from overlane.reservation.rsvp.objects import (
    TREE_NODES_MAX,
    Sender,
    Session,
    Tree,
    TreeNode,
    broker_address,
    session_of,
)

ATTEMPTS_MAX = 12
"""Paths that are tried for a leaf."""
AVOIDED_NS = 30 * 10**9
"""How long a link is avoided for a leaf that it has refused."""
FAILED_NS = 5 * 10**9
"""How long a link is avoided that has failed, and how long a leaf is told that it has its last path."""


@dataclass(slots=True)
class _Leaf:
    refused_by: dict[Link, int] = field(default_factory=dict)
    """Links to be avoided, and until when."""
    last_until: int | None = None
    """Set while it is told that there is no other path."""


@dataclass(slots=True)
class OwnFlow:
    session: Session
    sender: Sender
    topic_filter: str
    tspec: TSpec
    leaves: dict[Broker, _Leaf] = field(default_factory=dict)
    parents: dict[Broker, Broker | None] = field(default_factory=dict)
    attempt: int = 0
    told: tuple[TreeNode, ...] = ()

    def tree(self) -> Tree:
        last = [broker for broker, leaf in self.leaves.items() if leaf.last_until is not None]
        return as_tree(self.parents, self.leaves, last, self.attempt & 0xFFFF)


class Senders:
    def __init__(self, me: Broker, incarnation: int) -> None:
        self._me = me
        # A sender after a restart is another one: what is left of the first dies on its own.
        self._port = incarnation & 0xFFFF
        self.topology: Topology = {}
        self._failed: dict[Link, int] = {}
        self._flows: dict[Session, OwnFlow] = {}
        self._retry_at: int | None = None
        """When the first link is no longer avoided, or the first leaf has no longer its last path."""

    def get(self, session: Session) -> OwnFlow | None:
        return self._flows.get(session)

    def all(self) -> list[OwnFlow]:
        return list(self._flows.values())

    def offer(self, topic_filter: str, tspec: TSpec) -> OwnFlow:
        session = session_of(topic_filter)
        flow = self._flows.get(session)
        if flow is None:
            sender = Sender(broker_address(self._me), self._port)
            flow = self._flows[session] = OwnFlow(session, sender, topic_filter, tspec, {}, {self._me: None})
        flow.tspec = on_wire(FlowSpec(tspec)).tspec
        return flow

    def withdraw(self, topic_filter: str) -> OwnFlow | None:
        return self._flows.pop(session_of(topic_filter), None)

    def set_leaves(self, flow: OwnFlow, leaves: frozenset[Broker], now: int) -> bool:
        """Whether the tree is another one."""
        flow.leaves = {broker: flow.leaves.get(broker, _Leaf()) for broker in sorted(leaves - {self._me})}
        return self._grow(flow, flow.parents, now)

    def refused(self, flow: OwnFlow, leaf: Broker, link: Link, now: int) -> bool:
        """A link has no room for what a leaf asks for."""
        known = flow.leaves.get(leaf)
        if known is None or known.last_until is not None or leaf not in below(flow.parents, link):
            return False  # of an earlier tree, or nothing is left to try
        known.refused_by[link] = now + AVOIDED_NS
        self._move(flow, leaf, known, now)
        return self._note_change(flow)

    def failed(self, flow: OwnFlow, link: Link, now: int) -> bool:
        """A link of the tree does not work."""
        self._failed[link] = now + FAILED_NS
        self._retry_at = self._retry_at or now + FAILED_NS
        gone = below(flow.parents, link)
        return bool(gone) and self._grow(flow, _without(flow.parents, gone), now)

    def set_topology(self, topology: Topology, now: int) -> list[OwnFlow]:
        """The flows whose trees are others now."""
        self.topology = topology
        self._failed = {link: until for link, until in self._failed.items() if now < until}
        changed = []
        for flow in self._flows.values():
            kept = dict(flow.parents)
            for broker, parent in flow.parents.items():
                if parent is not None and broker not in topology.get(parent, {}):
                    kept = _without(kept, below(kept, (parent, broker)))
            for leaf in flow.leaves.values():
                if leaf.last_until is not None and now >= leaf.last_until:
                    leaf.last_until = None
            if self._grow(flow, kept, now):
                changed.append(flow)
        leaves = (leaf.last_until for flow in self._flows.values() for leaf in flow.leaves.values())
        times = [*self._failed.values(), *(until for until in leaves if until is not None)]
        self._retry_at = min(times, default=None)
        return changed

    def next_deadline(self) -> int | None:
        """When `set_topology` should be called again."""
        return self._retry_at

    def _move(self, flow: OwnFlow, leaf: Broker, known: _Leaf, now: int) -> None:
        bare = pruned(flow.parents, [broker for broker in flow.leaves if broker != leaf])
        if leaf not in bare:
            if len(known.refused_by) < ATTEMPTS_MAX:
                moved = self._attach(bare, leaf, known, now)
                if leaf in moved:
                    flow.parents = moved
                    return
            flow.parents = attached(self.topology, bare, leaf, self._failed)
        # Where other leaves are behind it, it stays: a tree has no second way in.
        known.last_until = now + FAILED_NS
        self._retry_at = self._retry_at or now + FAILED_NS

    def _attach(self, parents: Parents, leaf: Broker, known: _Leaf, now: int) -> dict[Broker, Broker | None]:
        known.refused_by = {link: until for link, until in known.refused_by.items() if now < until}
        found = attached(self.topology, parents, leaf, {*known.refused_by, *self._failed})
        return found if len(found) <= TREE_NODES_MAX else dict(parents)

    def _grow(self, flow: OwnFlow, parents: Parents, now: int) -> bool:
        """Leave out what leads to no leaf, and attach all leaves that are not reached."""
        found = pruned(parents, flow.leaves)
        for broker, leaf in flow.leaves.items():
            if broker not in found:
                leaf.last_until = None
                found = self._attach(found, broker, leaf, now)
        flow.parents = found
        return self._note_change(flow)

    def _note_change(self, flow: OwnFlow) -> bool:
        """Whether the tree is another than was told; it counts as told from now on."""
        nodes = flow.tree().nodes
        if nodes == flow.told:
            return False
        flow.told = nodes
        flow.attempt += 1
        return True


def _without(parents: Parents, gone: set[Broker]) -> dict[Broker, Broker | None]:
    return {broker: parent for broker, parent in parents.items() if broker not in gone}
