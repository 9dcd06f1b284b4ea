"""Forwarding: parcels through this broker, and around broken links.

A parcel on a route goes to the next hops of its version, to each once: the duplicate window drops what has been here.
A parcel on a detour carries its own path and is only passed on until the end of it.

Repair: a parcel whose hop acknowledgement is overdue is lost on that hop, or late. While there is time for another
attempt after this one, it is sent again over the same link, which costs least. The last attempt uses everything that
can still be in time: the link and a detour around it, unless other copies avoid that link anyway. If a link is silent
or gone, its parcels take a detour at once, until the source has moved the route.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from msgspec import structs

from overlane.core.gossip.link_state import LinkStateTable
from overlane.core.links.latency_budgets import plan
from overlane.core.links.link_health import TROUBLE_LOSS, LinkState
from overlane.core.links.link_queue import QueuedItem
from overlane.core.links.neighbour import Neighbour, OutgoingParcel
from overlane.core.routing.forwarding.duplicate_window import DuplicateFilter
from overlane.core.routing.forwarding.message_losses import MessageLosses
from overlane.core.routing.signalling.route_establishment import RouteEntry
from overlane.core.units import NEVER, US, Nanos
from overlane.core.wire.control_messages import Receipt, arrived
from overlane.core.wire.frame_codec import (
    HOPS_MAX,
    Header,
    ParcelFlag,
    broker_id,
    needs_encryption,
    parcel_size,
)
from overlane.core.wire.message_fields import RECEIPT_HOPS_MAX
from overlane.core.wire.route_answers import Answer, Confirmation, RouteReceipt, WayBack, encode
from overlane.planning import paths

REPAIRS_MAX = 3
WAYS_SEARCHED = 4

_UP = LinkState.UP
_RELIABLE = int(ParcelFlag.RELIABLE)
_REPAIR = int(ParcelFlag.REPAIR)
_DIRECT = int(ParcelFlag.DIRECT)
_CONFIRM = int(ParcelFlag.CONFIRM)


@dataclass(slots=True)
class ForwardingCounters:
    duplicates_dropped: int = 0
    repairs: int = 0
    detours: int = 0


class Forwarding:
    def __init__(
        self,
        me: str,
        neighbours: dict[str, Neighbour],
        table: LinkStateTable,
        losses: MessageLosses | None = None,
        budget: Callable[[tuple[int, int]], Nanos] | None = None,
    ) -> None:
        """`budget`: the latency budget of a route's messages here; None: queues are not scheduled by budgets."""
        self._me = me
        self._identity = broker_id(me)
        self._neighbours = neighbours
        self._table = table
        self.duplicates = DuplicateFilter()
        self.counters = ForwardingCounters()
        self.losses = losses or MessageLosses()
        self.unsent_samples: list[int] = []
        """Numbers of parcels that asked to be confirmed and did not leave."""
        self._budget = budget
        self._detours: dict[tuple[str, str], tuple[str, ...] | None] = {}
        self._detours_of = -1
        self._ways: dict[str, tuple[str, ...]] = {}
        self._ways_of = -1

    # Along a route

    def forward(
        self,
        entry: RouteEntry,
        header: Header,
        rest: bytes | memoryview,
        entered_ns: Nanos,
        came_from: str | None,
        now: Nanos,
    ) -> bool:
        """To every next hop of this version of the route but the one it came from; False if no queue took it."""
        due_ns = _due(header, entry.ahead_ns, entered_ns)
        is_taken = False
        for hop in entry.next_hops:
            if hop == came_from:
                continue
            neighbour = self._neighbours.get(hop)
            describe = entry.route_frame if hop in entry.unconfirmed else None
            out = OutgoingParcel(
                header, rest, entered_ns, due_ns, entry.ahead_ns, entry.hops, (), 0, describe, REPAIRS_MAX
            )
            out.flow = entry.flow
            if neighbour is not None and not neighbour.connected:
                neighbour = None
            is_sound = neighbour is not None and neighbour.health.state is _UP
            goes_around = False
            if header.flags & _REPAIR and not is_sound and not _is_spared(neighbour, entry):
                goes_around = self.go_around(out, hop, entry, now)
                is_taken = True
            if neighbour is not None:
                out.is_copy = goes_around
                is_taken |= self._enqueue(neighbour, out, now)
            elif not goes_around:
                self.losses.unroutable += self.losses.of_parcel(header, rest)
        return is_taken

    # Along a path the parcel carries

    def send_on_path(
        self,
        path: tuple[str, ...],
        header: Header,
        rest: bytes | memoryview,
        entered_ns: Nanos,
        due_ns: Nanos,
        now: Nanos,
        *,
        is_copy: bool = False,
    ) -> bool:
        """From here along these brokers, the first of which is this one; False if the first link is not there."""
        neighbour = self._neighbours.get(path[1]) if 1 < len(path) <= HOPS_MAX else None
        if neighbour is None or not neighbour.connected or (needs_encryption(header) and not neighbour.is_encrypted):
            return False
        hops = tuple(map(broker_id, path[1:]))
        out = OutgoingParcel(header, rest, entered_ns, due_ns, 0, len(hops), hops=hops, repairs=1, is_repair=True)
        out.is_copy = is_copy
        self._enqueue(neighbour, out, now)
        return True

    def pass_on(
        self, hops: tuple[int, ...], position: int, header: Header, rest: memoryview, entered_ns: Nanos, now: Nanos
    ) -> None:
        """A detour that does not end here."""
        following = hops[position + 1]
        neighbour = next((one for one in self._neighbours.values() if one.identity == following), None)
        if neighbour is None or not neighbour.connected or (needs_encryption(header) and not neighbour.is_encrypted):
            self.losses.unroutable += self.losses.of_parcel(header, rest)
            return
        due_ns = _due(header, neighbour.health.latency_ns, entered_ns)
        out = OutgoingParcel(
            header, rest, entered_ns, due_ns, 0, len(hops), hops=hops, position=position + 1, repairs=1
        )
        self._enqueue(neighbour, out, now)

    # Repair

    def repair(self, out: OutgoingParcel, hop: str, entry: RouteEntry | None, now: Nanos) -> None:
        """The hop acknowledgement of a parcel is overdue: send it again, or around the link, as time allows."""
        header = out.header
        if not header.flags & _REPAIR or out.repairs <= 0 or out.due_ns >= NEVER:
            return
        neighbour = self._neighbours[hop]
        health = neighbour.health
        out.repairs -= 1
        out.is_repair = out.is_copy = True
        laxity = out.due_ns - now
        sound = neighbour.connected and health.state is LinkState.UP
        again = neighbour.connected and laxity >= 0
        another_chance = sound and out.repairs > 0 and laxity >= health.patience_ns
        if not (again and another_chance) and not out.hops and not _is_spared(neighbour, entry):
            self.go_around(out, hop, entry, now)
        if again:
            self.counters.repairs += 1
            self._enqueue(neighbour, out, now)

    def go_around(self, out: OutgoingParcel, hop: str, entry: RouteEntry | None, now: Nanos) -> bool:
        """Around the link to `hop`: directly to the only destination behind it, or to `hop` itself, if in time.

        False if there is no such path.
        """
        if entry is None or entry.message.confined:
            return False  # what may be used is for the source to decide; of a forgotten route nobody knows
        target, flags = hop, out.header.flags
        ahead_ns = out.ahead_ns
        if len(entry.message.destinations) == 1 and not entry.message.shared:
            target = entry.message.brokers[entry.message.destinations[0]]
            flags |= _DIRECT
            ahead_ns = 0
        elif (neighbour := self._neighbours.get(hop)) is not None:
            ahead_ns = max(0, ahead_ns - neighbour.health.latency_ns)
        detour = self._detour_around(target, hop)
        if detour is None:
            return False
        network = self._table.map.network(suspects=True)
        latency_ns = network.latency_ns([network.index(name) for name in detour]) + ahead_ns
        if out.header.deadline_us and _left(out, now) < latency_ns and not flags & _RELIABLE:
            return False
        self.counters.detours += 1
        header = out.header._replace(flags=flags)
        due_ns = out.due_ns + out.ahead_ns - latency_ns
        return self.send_on_path(detour, header, out.rest, out.entered_ns, due_ns, now, is_copy=out.is_copy)

    def takes(self, hop: str, size: int) -> bool:
        """Whether there is no reason for a reliable parcel to wait before the queue to a neighbour."""
        neighbour = self._neighbours.get(hop)
        return neighbour is None or neighbour.takes(size)

    def queue_share(self, hops: Iterable[str]) -> float:
        """How full the fullest queue to one of these neighbours is, of those that can be sent to: from 0 to 1."""
        found = (self._neighbours.get(hop) for hop in hops)
        return max(
            (one.queue.bytes / one.queue.bytes_max for one in found if one is not None and one.connected), default=0.0
        )

    def progress(self, hops: Iterable[str]) -> int:
        """How many bytes of parcels have left for these neighbours."""
        found = (self._neighbours.get(hop) for hop in hops)
        return sum(one.queue.left_bytes for one in found if one is not None)

    def post(self, receipt: Receipt) -> None:
        """Send a receipt on its way, along its path or, where that is broken, to the neighbour on the quickest one;
        another follows if there is none."""
        if receipt.path and receipt.sender == self._me and self._is_quickest(receipt.path):
            receipt = structs.replace(receipt, path=[])  # all brokers on it find it by their maps
        if receipt.path:
            neighbour = self._neighbours.get(receipt.path[0])
            if neighbour is not None and neighbour.connected:
                neighbour.send(structs.replace(receipt, path=receipt.path[1:]))
                return
            receipt = structs.replace(receipt, path=[])
        hop = self._next_hop(receipt.to)
        if hop is not None:
            self._neighbours[hop].send(receipt)

    def confirm(self, entry: RouteEntry, told: Answer) -> None:
        """Send a confirmation or receipt on its way back to the source of a route, against the path that its parcel
        took. Where that is broken, it goes on as a receipt the quickest way."""
        hop = entry.way_back(told.destination, told.last_hop)
        neighbour = self._neighbours.get(hop)
        if neighbour is not None and neighbour.connected:
            neighbour.send_frame(encode(told, neighbour.routes.number_of(told.key)))
        elif hop:
            self.post(as_receipt(entry, told))

    def acknowledge(self, receipt: Receipt, entry: RouteEntry | None, way_back: WayBack | None) -> None:
        """Send a receipt of this broker: on the route that its parcels came on, if that is still in use and there is
        nothing else to tell."""
        if (
            entry is None
            or way_back is None
            or entry.superseded_at < NEVER
            or entry.name.incarnation != receipt.incarnation
            or receipt.held
            or receipt.behind
        ):
            self.post(receipt)
        else:
            self.confirm(entry, RouteReceipt(*way_back, receipt.flow, receipt.next, receipt.beyond))

    def _next_hop(self, target: str) -> str | None:
        path = self._quickest(target)
        neighbour = self._neighbours.get(path[0]) if path else None
        return path[0] if neighbour is not None and neighbour.connected else None

    def _is_quickest(self, path: Sequence[str]) -> bool:
        return tuple(path) == self._quickest(path[-1])

    def _quickest(self, target: str) -> tuple[str, ...]:
        """The brokers to pass on the quickest way; none if there is no way."""
        if self._ways_of != self._table.changes:
            self._ways_of, self._ways = self._table.changes, {}
        way = self._ways.get(target)
        if way is None:
            found = self._table.map.quickest_path(self._me, target)
            way = self._ways[target] = () if found is None else found[0][1:]
        return way

    def _detour_around(self, target: str, hop: str) -> tuple[str, ...] | None:
        """The quickest path to the target that does not begin with the link to `hop`."""
        if self._detours_of != self._table.changes:
            self._detours_of, self._detours = self._table.changes, {}
        if (target, hop) in self._detours:
            return self._detours[target, hop]
        detour = None
        for suspects in (False, True):
            network = self._table.map.network(suspects=suspects)
            if self._me not in network or target not in network or target == self._me:
                continue
            source, end = network.index(self._me), network.index(target)
            for path in paths.k_shortest(network, source, end, WAYS_SEARCHED):
                names = network.named(path.brokers)
                first = self._neighbours.get(names[1])
                if names[1] != hop and first is not None and first.connected:
                    detour = tuple(names)
                    break
            if detour is not None:
                break
        self._detours[target, hop] = detour
        return detour

    def _enqueue(self, neighbour: Neighbour, out: OutgoingParcel, now: Nanos) -> bool:
        """Whether it found room."""
        header, due_ns = out.header, out.due_ns
        budget_ns = self._budget((header.origin, header.route)) if self._budget is not None else 0
        plan_ns = plan(due_ns, now, out.hop_count) if due_ns < NEVER else due_ns
        is_droppable = not header.flags & _RELIABLE
        if header.flags & _CONFIRM and header.origin != self._identity:
            # It tests whether the path works, not whether there is room on it, or time.
            is_droppable = False
        item = QueuedItem(out, parcel_size(header.flags, out.rest), now, due_ns, is_droppable, budget_ns, plan_ns)
        item.flow = out.flow
        gone = neighbour.enqueue(item, now)
        if not gone:
            return True
        self.lost_in_queue(gone)
        self.note_dropped(gone)
        return all(one is not item for one in gone)

    def lost_in_queue(self, gone: Iterable[QueuedItem]) -> None:
        """These had no room."""
        for one in gone:
            lost: OutgoingParcel = one.chunk  # nothing else is ever queued
            self.losses.queue_full += self.losses.of_waiting(lost)

    def note_dropped(self, gone: list[QueuedItem]) -> None:
        """These go nowhere from here. Nobody can confirm those of this broker's own that asked for it."""
        for one in gone:
            header: Header = one.chunk.header  # nothing else is ever queued
            if header.flags & _CONFIRM and header.origin == self._identity:
                self.unsent_samples.append(header.sequence)


def as_receipt(entry: RouteEntry, told: Answer) -> Receipt:
    """An answer on a route as the message to its source."""
    message = entry.message
    sender = message.brokers[told.destination]
    if isinstance(told, Confirmation):
        last_hop = message.brokers[told.last_hop]
        return arrived(message.origin, message.incarnation, sender, last_hop, told.sequence, told.age_us)
    return Receipt(message.origin, sender, RECEIPT_HOPS_MAX, message.incarnation, told.flow, told.next, told.beyond)


def _is_spared(neighbour: Neighbour | None, entry: RouteEntry | None) -> bool:
    """Whether a link need not be gone around: it may only lose, and other copies pass it by."""
    if neighbour is None or not neighbour.connected or entry is None:
        return False
    # What loses so much falls silent by chance, too.
    passes_some = neighbour.health.state is _UP or neighbour.health.loss_millionths >= TROUBLE_LOSS
    return passes_some and entry.spares(neighbour.name)


def _due(header: Header, ahead_ns: Nanos, entered_ns: Nanos) -> Nanos:
    """The latest moment to leave that is still in time."""
    if not header.deadline_us:
        return NEVER
    return entered_ns + (header.deadline_us - header.age_us) * US - ahead_ns


def _left(out: OutgoingParcel, now: Nanos) -> Nanos:
    """Until its deadline."""
    return (out.header.deadline_us - out.header.age_us) * US - (now - out.entered_ns)
