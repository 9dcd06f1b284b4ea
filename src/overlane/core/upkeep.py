"""Upkeep: work of a broker that is due, and at the end of a turn with more than forwarded parcels.

It checks links, releases held parcels, creates receipts, sends changes of links and interest, and reviews routes; from
time to time it removes idle state. The order matters: later steps send the results of earlier ones in the same turn.
"""

from collections import deque

from overlane.core.events import Effect
from overlane.core.flows.sink import Sink
from overlane.core.flows.source import Source
from overlane.core.frame_dispatch import FrameDispatcher
from overlane.core.gossip.broker_admission import BrokerAdmission
from overlane.core.link_supervisor import LinkSupervisor
from overlane.core.routing.signalling.route_messages import send_all
from overlane.core.tier_role import TierRole
from overlane.core.units import SECOND, Nanos
from overlane.core.wire.control_messages import Receipt
from overlane.core.wire.route_answers import WayBack

SLOW_SWEEP: Nanos = 5 * SECOND


class Upkeep:
    def __init__(
        self,
        links: LinkSupervisor,
        admission: BrokerAdmission,
        source: Source,
        sink: Sink,
        dispatcher: FrameDispatcher,
        role: TierRole,
        now: Nanos,
    ) -> None:
        self._links = links
        self._gossip, self._routes = links.gossip, links.routes
        self._admission = admission
        self._table, self._remote = source.table, source.destinations.remote
        self._route_announcer = source.route_announcer
        self._source = source
        self._sink = sink
        self._dispatcher = dispatcher
        self._role = role
        self._next_sweep: Nanos = now + SLOW_SWEEP
        self._seen_changes = 0
        self.receipts: deque[tuple[int, Receipt, WayBack | None]] = deque()
        """Receipts to be sent when their turn is durable."""

    def send_receipts(self, turn: int) -> None:
        """The records of all turns up to this one are durable."""
        while self.receipts and self.receipts[0][0] <= turn:
            _, receipt, way_back = self.receipts.popleft()
            entry = None if way_back is None else self._routes.keyed.get(way_back.key)
            self._source.forwarding.acknowledge(receipt, entry, way_back)

    def next_deadline(self) -> Nanos:
        """Of everything that parcels and probes alone do not change."""
        return min(
            self._source.next_deadline(),
            self._gossip.next_deadline(),
            self._next_sweep,
            self._remote.sweep_at,
            self._role.next_deadline(),
        )

    def run(self, turn: int, now: Nanos) -> list[Effect]:
        """Do what is due. Returns what is not of the part that does it."""
        effects: list[Effect] = []
        self._links.tend(now)
        if now >= self._sink.inflows.wake_at:
            self._sink.release_due(now)
            self.receipts.extend((turn, *due) for due in self._sink.due_receipts(now))
            self._sink.inflows.set_wake()
        is_sweep = now >= self._next_sweep
        if is_sweep:
            self._next_sweep = now + SLOW_SWEEP
            effects += [*self._admission.take_told(now), *self._sink.refused.take_told()]
            self._sink.forget_idle(now)
            self._routes.sweep(now)
            self._dispatcher.drop_early(now)
            self._links.processing.decay()
        if self._gossip.own_name.pending:
            effects += self._gossip.own_name.take_effects()
        if now >= self._remote.sweep_at:
            self._remote.sweep(now)
        self._gossip.tell_interest()
        self._links.advertise(now)
        self._dispatcher.learn(self._gossip.settle(now, is_sweep=is_sweep), now)
        effects += self._role.tick(now)
        if self._seen_changes != self._table.changes:
            self._seen_changes = self._table.changes
            self._source.reachable_again(now)
            self._role.map_changed(now)
        self._source.review(now)
        effects += self._role.review_direct_links(now, is_sweep=is_sweep)
        self._source.tick(now)
        self.send_outbox(now)
        return effects

    def send_outbox(self, now: Nanos) -> None:
        """Send what the routes that begin here have to tell."""
        outbox = self._route_announcer.outbox
        if not outbox:
            return
        unsent = outbox.copy()
        outbox.clear()
        send_all(unsent, self._links.neighbours, now)
