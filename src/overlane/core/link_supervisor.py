"""Link supervisor: all links of this broker: connecting and closing, timers, sending, and what is advertised of them.

A link is closed if it stays silent, is dead or blocked, or never greets. Parcels that waited for it are sent around it
where their class allows that. What is measured on a link is advertised when it has changed significantly, together
with the time that each QoS class waits in this broker.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field

from overlane.core.events import Close, Effect, Lane, LinkChanged, NeighbourSaid
from overlane.core.gossip.gossip import Gossip
from overlane.core.gossip.link_state import differs
from overlane.core.gossip.network_map import MILLION
from overlane.core.links.link_health import LinkState
from overlane.core.links.link_queue import QueuedItem
from overlane.core.links.neighbour import HOP_ACK_AHEAD, Chunk, Neighbour, OutgoingParcel
from overlane.core.links.processing_latency import ProcessingLatency
from overlane.core.links.reserved_lane import ReservedLane
from overlane.core.links.signals import Signals
from overlane.core.routing.forwarding.forwarding import Forwarding
from overlane.core.routing.signalling.route_establishment import RouteTable
from overlane.core.units import MS, US, Nanos
from overlane.core.wire.control_messages import ControlMessage, ForNeighbour, LinkClaim
from overlane.core.wire.frame_codec import AGE_US_MAX, ParcelFlag, RouteName, aged
from overlane.core.wire.message_fields import CLAIMED_US_MAX
from overlane.errors import Failure

RISK_REMEMBERED = 20_000
"""Millionths: how likely a link that was in trouble lately is taken to fail a message."""
ASK_AFTER: Nanos = 1 * MS
"""How soon after a change of one link the others are probed: it may be the first of several changes."""
UNLINKED = "no longer a neighbour"
"""The reason that a neighbour is given whose link is gone from the configuration."""

LATENCY_HAIR_US = 1_000
"""A change of latency that `differs` ignores on every link."""

_TWO_US = 2 * US
_REPAIR = int(ParcelFlag.REPAIR)
_DATA = Lane.DATA


@dataclass(slots=True)
class SentCounters:
    parcel_bytes: int = 0
    control_bytes: int = 0
    parcels: int = 0
    messages: int = 0


@dataclass(slots=True)
class LinkSupervisor:
    me: str
    incarnation: int
    scheduling: str
    ping_interval_ns: Nanos
    queue_bytes_max: Callable[[str], int]
    failure: float
    link_failure: Mapping[str, float]
    neighbours: dict[str, Neighbour]
    gossip: Gossip
    routes: RouteTable
    forwarding: Forwarding
    encrypted: Set[str] = frozenset()
    """Neighbours whose links are encrypted by other means than TLS."""
    effects: list[Effect] = field(default_factory=list)
    sent: SentCounters = field(default_factory=SentCounters)
    instance: int = 0
    tier: int = 0
    """The name in greetings."""
    leaving: bool = False
    failure_override: float | None = None
    """The failure probability of this broker, if a plan gives one."""
    link_failure_override: Mapping[str, float] = field(default_factory=dict)
    """The same of links, by neighbour."""
    _with_tls: set[str] = field(default_factory=set)
    """Neighbours whose connections have TLS."""
    processing: ProcessingLatency = field(default_factory=ProcessingLatency)
    _has_new_failure_risk: bool = False
    _signals: Signals = field(default_factory=Signals)

    @property
    def unsendable(self) -> int:
        """Messages and parcels that were not sent since neighbours would refuse them."""
        return self._signals.unsendable

    @property
    def failures(self) -> list[Failure]:
        """Failures that were not reported yet; the caller that reports them clears the list."""
        return self._signals.failures

    # Connections

    def up(self, peer: str, now: Nanos, *, is_encrypted: bool = False) -> Neighbour:
        neighbour = self.neighbours.get(peer)
        if neighbour is None:
            bytes_max = self.queue_bytes_max(peer)
            neighbour = Neighbour(peer, self.scheduling, bytes_max, self.ping_interval_ns, self._signals)
            self.neighbours[peer] = neighbour
        elif neighbour.connected:
            # Both ends have dialled at once, and one of the two connections stays: this is no failure of the link.
            self._strand(neighbour, now, is_replaced=True)
        (self._with_tls.add if is_encrypted else self._with_tls.discard)(peer)
        self._note_encryption(neighbour)
        neighbour.connect(self.me, self.incarnation, now, self.instance, self.tier)
        return neighbour

    def _note_encryption(self, neighbour: Neighbour) -> None:
        is_encrypted = neighbour.name in self._with_tls or neighbour.name in self.encrypted
        if neighbour.is_encrypted != is_encrypted:
            neighbour.is_encrypted = is_encrypted
            neighbour.touch()
        self.routes.set_encrypted(neighbour.name, is_encrypted)

    def is_neighbour(self, peer: str) -> bool:
        return peer in self.neighbours

    def is_linked(self, peer: str) -> bool:
        """Whether there is a connection with this neighbour, and it has greeted."""
        neighbour = self.neighbours.get(peer)
        return neighbour is not None and neighbour.connected and neighbour.greeted

    def send_to(self, peer: str, body: bytes) -> None:
        if (neighbour := self.neighbours.get(peer)) is not None:
            neighbour.send(ForNeighbour(body))

    def down(self, peer: str, now: Nanos) -> None:
        neighbour = self.neighbours.get(peer)
        if neighbour is not None and neighbour.connected:
            self._strand(neighbour, now)

    def path_changed(self, peer: str, rtt_ns: Nanos, now: Nanos) -> None:
        """The link takes another path: it is the same link with another latency."""
        if (neighbour := self.neighbours.get(peer)) is not None and neighbour.greeted:
            neighbour.path_changed(rtt_ns, now)

    def standby_changed(self, peer: str, rtt_ns: Nanos) -> None:
        if (neighbour := self.neighbours.get(peer)) is not None:
            neighbour.health.standby_ns = rtt_ns

    def neighbour_said(self, peer: str, body: bytes) -> None:
        self.effects.append(NeighbourSaid(peer, body))

    def close(self, neighbour: Neighbour, reason: str, now: Nanos, *, is_name_taken: bool = False) -> None:
        farewell = neighbour.farewell(reason, is_name_taken=is_name_taken)
        self.effects.append(Close(neighbour.name, reason, farewell))
        self._strand(neighbour, now)

    def close_peer(self, peer: str, reason: str, now: Nanos) -> None:
        """As `close`, of a neighbour that may not be connected."""
        neighbour = self.neighbours.get(peer)
        if neighbour is not None and neighbour.connected:
            self.close(neighbour, reason, now)

    def tend(self, now: Nanos) -> bool:
        """Do what is due: pings, hop acknowledgements, repairs; close links that are dead or blocked. Whether one was
        closed."""
        is_closed = False
        if now < self.next_deadline():
            return is_closed
        for name in self._signals.due(now):
            neighbour = self.neighbours[name]
            if neighbour.connected and now >= neighbour.next_deadline():
                self._tend(neighbour, now)
                is_closed |= not neighbour.connected
        return is_closed

    def next_deadline(self) -> Nanos:
        signals = self._signals
        return signals.next_deadline() if signals.woken else signals.wake_at

    def _tend(self, neighbour: Neighbour, now: Nanos) -> None:
        before = neighbour.health.state
        for out in neighbour.tick(now):
            self._repair(neighbour, out, now)
        if neighbour.is_greeting_overdue(now):
            self.close(neighbour, "no greeting was received", now)
        elif neighbour.health.dead:
            self.close(neighbour, "nothing passes: three pings in a row were not answered", now)
        elif neighbour.is_blocked:
            self.close(neighbour, "blocked: it takes nothing more", now)
        elif before is LinkState.UP and neighbour.health.state is LinkState.SUSPECT:
            for out in neighbour.take_unacknowledged():
                self._repair(neighbour, out, now)

    def _repair(self, neighbour: Neighbour, out: OutgoingParcel, now: Nanos) -> None:
        self.forwarding.repair(out, neighbour.name, self.routes.entry_of(out.header), now)

    def _strand(self, neighbour: Neighbour, now: Nanos, *, is_replaced: bool = False) -> None:
        """The connection is gone: parcels that waited for it take a detour, if their class allows that."""
        losses = self.forwarding.losses
        unacknowledged, waiting = neighbour.disconnect(now, is_replaced=is_replaced)
        self.gossip.lost(neighbour.name)
        for out in unacknowledged:
            self._try_detour(neighbour, out, now)
        for out in waiting:
            if not self._try_detour(neighbour, out, now):
                losses.link_lost += losses.of_waiting(out)

    def _try_detour(self, neighbour: Neighbour, out: OutgoingParcel, now: Nanos) -> bool:
        if not out.header.flags & _REPAIR or out.hops:
            return False
        return self.forwarding.go_around(out, neighbour.name, self.routes.entry_of(out.header), now)

    def _lost_in_time(self, dropped: list[QueuedItem]) -> None:
        """Count items that can no longer be in time."""
        losses = self.forwarding.losses
        for one in dropped:
            losses.expired += losses.of_waiting(one.chunk)  # nothing but parcels is ever queued
        self.forwarding.note_dropped(dropped)

    # Sending

    def ready(self) -> list[str]:
        return sorted(self._signals.ready)

    def pull(self, peer: str, bytes_max: int, now: Nanos, in_buffer: int = 0) -> list[Chunk]:
        """What to send to a neighbour next, up to about so many bytes.

        `in_buffer`: how many bytes pulled before this moment lie in the driver's send buffer and have still to leave.
        """
        neighbour = self.neighbours[peer]
        if (lane := neighbour.queue.reserved) is not None:
            return self._pull_beside_reserved(neighbour, lane, bytes_max, now, in_buffer)
        has_sets = neighbour.has_scope_news or neighbour.transfers.is_active
        if neighbour.parked is not None and not (has_sets or neighbour.has_control) and bytes_max > 0:
            return [(_DATA, self._pull_parked(neighbour, neighbour.parked, now, in_buffer))]
        if not neighbour.connected:
            return []
        chunks: list[Chunk] = []
        room = bytes_max
        if neighbour.has_control:
            while room > 0 and (chunk := neighbour.pull_control()) is not None:
                chunks.append(chunk)
                room -= len(chunk[1])
                self.sent.control_bytes += len(chunk[1])
            if room > 0 and neighbour.parked is None and neighbour.queue.is_empty and not has_sets:
                self._signals.ready.discard(peer)
                return chunks
        if has_sets:
            room -= self._pull_sets(neighbour, chunks, min(room, 1))
        if room > 0 and neighbour.parked is not None:
            chunks.append((_DATA, self._pull_parked(neighbour, neighbour.parked, now, in_buffer)))
            if has_sets:
                self._signals.ready.add(peer)
            return chunks
        while room > 0:
            is_last = neighbour.queue.is_last
            out, data, dropped = neighbour.pull_parcel(now, in_buffer)
            if dropped:
                self._lost_in_time(dropped)
            if out is not None:
                self._count(out, data, now)
                data = self._with_hop_ack(neighbour, data, now)
                chunks.append((_DATA, data))
                room -= len(data)
            if out is None or is_last:
                self._signals.ready.discard(peer)
                break
        if has_sets:
            self._pull_sets(neighbour, chunks, room)
            self._signals.ready.add(peer)
        return chunks

    def _pull_beside_reserved(
        self, neighbour: Neighbour, lane: ReservedLane, bytes_max: int, now: Nanos, in_buffer: int
    ) -> list[Chunk]:
        """As `pull`, on a link with reservations: what is reserved goes first, and large frames leave in parts."""
        chunks: list[Chunk] = []
        if not neighbour.connected:
            return chunks
        neighbour.unpark()
        room = bytes_max - self._pull_parts(neighbour, lane, chunks, bytes_max, now, in_buffer, only_reserved=True)
        while room > 0 and (chunk := neighbour.pull_control()) is not None:
            chunks.append(chunk)
            room -= len(chunk[1])
            self.sent.control_bytes += len(chunk[1])
        room -= self._pull_sets(neighbour, chunks, min(room, 1))
        room -= self._pull_parts(neighbour, lane, chunks, room, now, in_buffer)
        room -= self._pull_sets(neighbour, chunks, room)
        if room > 0 and not neighbour.has_sets:
            self._signals.ready.discard(neighbour.name)
        if lane.is_unused:
            neighbour.queue.reserved = None
        return chunks

    def _pull_parts(
        self,
        neighbour: Neighbour,
        lane: ReservedLane,
        chunks: list[Chunk],
        room: int,
        now: Nanos,
        in_buffer: int,
        *,
        only_reserved: bool = False,
    ) -> int:
        """Parcels and parts of them, as many as have room; how many bytes they are."""
        pulled_bytes = 0
        while pulled_bytes < room and (lane.has_reserved or not only_reserved):
            out, data, dropped = neighbour.pull_part(lane, now, in_buffer)
            self._lost_in_time(dropped)
            if not data:
                break
            if out is None:
                self.sent.parcel_bytes += len(data)
            else:
                self._count(out, data, now)
            data = self._with_hop_ack(neighbour, data, now)
            chunks.append((_DATA, data))
            pulled_bytes += len(data)
        return pulled_bytes

    def _pull_sets(self, neighbour: Neighbour, chunks: list[Chunk], room: int) -> int:
        """Parts of sets of filters, as many as have room; how many bytes they are. One goes ahead of parcels, so that
        it gets through, and more behind them, so that they do too."""
        pulled_bytes = 0
        while pulled_bytes < room and neighbour.may_transfer:
            part: ControlMessage | None = self.gossip.next_part(neighbour) if neighbour.transfers.is_active else None
            if part is None:
                part = self.gossip.tiers.next_message(neighbour)
            if part is None:
                break
            if (chunk := neighbour.pull_message(part)) is not None:
                chunks.append(chunk)
                pulled_bytes += len(chunk[1])
        self.sent.control_bytes += pulled_bytes
        return pulled_bytes

    def pull_urgent(self, peer: str, bytes_max: int, now: Nanos, in_buffer: int = 0) -> list[Chunk]:
        """As `pull`, only of what has a deadline or measures the link: for a driver that can send it while the
        connection for everything else is blocked."""
        neighbour = self.neighbours[peer]
        chunks: list[Chunk] = []
        if not neighbour.connected:
            return chunks
        room = bytes_max
        while room > 0 and (probe := neighbour.pull_probe()) is not None:
            chunks.append((_DATA, probe))
            room -= len(probe)
            self.sent.control_bytes += len(probe)
        while room > 0:
            out, data, dropped = neighbour.pull_parcel(now, in_buffer, is_urgent=True)
            self._lost_in_time(dropped)
            if out is None:
                break
            self._count(out, data, now)
            data = self._with_hop_ack(neighbour, data, now)
            chunks.append((_DATA, data))
            room -= len(data)
        return chunks

    def _pull_parked(
        self, neighbour: Neighbour, parked: tuple[bytes, RouteName, int, int, Nanos], now: Nanos, in_buffer: int
    ) -> bytes:
        """The frame that was parked, with the age that it has now; nothing else waits."""
        frame, _, age_us, messages, entered_ns = parked
        size, sent = len(frame), self.sent
        neighbour.parked = None
        self._signals.ready.discard(neighbour.name)
        neighbour.queue.passed_by(size, now, in_buffer)
        sent.parcels += 1
        sent.parcel_bytes += size
        sent.messages += messages
        age_us += (now - entered_ns) // US
        frame = aged(frame, age_us if age_us < AGE_US_MAX else AGE_US_MAX)
        if neighbour.hop_acks.due_ns - now > HOP_ACK_AHEAD:
            return frame
        return self._with_hop_ack(neighbour, frame, now)

    def _with_hop_ack(self, neighbour: Neighbour, data: bytes, now: Nanos) -> bytes:
        if neighbour.hop_acks.due_ns - now > HOP_ACK_AHEAD:
            return data
        hop_ack = neighbour.pull_hop_ack(now)
        self.sent.control_bytes += len(hop_ack)
        return data + hop_ack

    def _count(self, out: OutgoingParcel, data: bytes, now: Nanos) -> None:
        sent, header = self.sent, out.header
        sent.parcels += 1
        sent.parcel_bytes += len(data)
        sent.messages += header.messages
        if (deadline_us := header.deadline_us) and not out.is_repair:
            self.processing.measured(deadline_us, (now - out.entered_ns) // US)

    # Advertising

    def set_links(
        self, failure: Mapping[str, float], gone: Iterable[str], now: Nanos, encrypted: Set[str] = frozenset()
    ) -> None:
        """Links may have come, changed or gone: those that are gone are closed."""
        self.link_failure, self.encrypted = failure, encrypted
        self._has_new_failure_risk = True
        for peer in sorted(gone):
            self.close_peer(peer, UNLINKED, now)
        for peer, neighbour in self.neighbours.items():
            neighbour.queue.resize(self.queue_bytes_max(peer))
            self._note_encryption(neighbour)

    def set_failure_risk(self, failure: float | None, links: Mapping[str, float]) -> None:
        """Set failure probabilities that override the configuration."""
        self.failure_override, self.link_failure_override = failure, dict(links)
        self._has_new_failure_risk = True

    def has_news(self) -> bool:
        """Whether there may be something to advertise."""
        return bool(self._signals.touched) or self.processing.has_news or self._has_new_failure_risk

    def advertise(self, now: Nanos) -> bool:
        """Advertise our links, if something significant has changed."""
        news = self._links_differ(now) or self.processing.has_news or self._has_new_failure_risk
        if not news and now < self.gossip.announce_at():
            return now >= self.gossip.next_deadline()
        self.processing.has_news = self._has_new_failure_risk = False
        if not self.leaving and self.gossip.must_wait_to_announce(now):
            return True  # an advert is made when it may be sent
        claims = {name: self._claim(self.neighbours[name], now) for name in sorted(self.neighbours)}
        links = [claim for claim in claims.values() if claim is not None]
        processing_us = self.processing.to_advertise()
        labelled = {str(deadline_us): us for deadline_us, us in processing_us.items()}
        failure = self.failure if self.failure_override is None else self.failure_override
        if self.gossip.announce(links, labelled, _millionths(failure), self.leaving, now):
            self.processing.advertised(processing_us)
            for name, claim in claims.items():
                self.neighbours[name].claimed = claim
        return True

    def leave(self, now: Nanos) -> None:
        self.leaving = True
        self.processing.has_news = True
        self.advertise(now)

    def _links_differ(self, now: Nanos) -> bool:
        news = is_trouble = False
        if not self._signals.touched:
            return news
        touched, self._signals.touched = self._signals.touched, {}
        for name in touched:
            neighbour = self.neighbours[name]
            state = neighbour.health.state
            if state is not neighbour.reported_state:
                neighbour.reported_state = state
                self.effects.append(LinkChanged(neighbour.name, state.name.lower()))
            said = neighbour.claimed
            if said is not None and self._is_as_said(neighbour, said, now):
                continue
            claim = self._claim(neighbour, now)
            if claim != said if claim is None or said is None else differs(said, claim):
                news = True
                is_trouble |= said is not None
        if is_trouble:
            # Trouble of one link often affects the whole broker, and an unused link is only checked by pings.
            for neighbour in self.neighbours.values():
                neighbour.ask(now + ASK_AFTER)
        return news

    def failure_of(self, peer: str) -> float:
        """How likely the link to a neighbour is down."""
        failure_override = self.link_failure_override.get(peer)
        return self.link_failure.get(peer, 0.0) if failure_override is None else failure_override

    def _is_as_said(self, neighbour: Neighbour, said: LinkClaim, now: Nanos) -> bool:
        """Whether a healthy link is as advertised, but for a hair of latency. Nearly all are, after nearly every probe:
        they need not be compared in full (`differs`)."""
        health = neighbour.health
        away_us = health.rtt_ns // _TWO_US - said.latency_us
        return (
            -LATENCY_HAIR_US <= away_us <= LATENCY_HAIR_US
            and not health.loss_millionths
            and not said.loss_millionths
            and health.state == said.state
            and now >= health.risky_until
            and not said.swing_us
            and now >= health.swings_until
            and neighbour.greeted
            and neighbour.is_encrypted == said.encrypted
            and not self.leaving
            and _millionths(self.failure_of(neighbour.name)) == said.risk_millionths
        )

    def _claim(self, neighbour: Neighbour, now: Nanos) -> LinkClaim | None:
        health = neighbour.health
        if not neighbour.greeted or not health.measured or self.leaving:
            return None
        remembered = RISK_REMEMBERED if now < health.risky_until else 0
        return LinkClaim(
            neighbour.name,
            min(health.latency_ns // US, CLAIMED_US_MAX),
            min(health.jitter_ns // US, CLAIMED_US_MAX),
            min(max(health.loss_millionths, remembered), MILLION),
            _millionths(self.failure_of(neighbour.name)),
            int(health.state),
            min(health.swing_ns // US, CLAIMED_US_MAX) if now < health.swings_until else 0,
            neighbour.is_encrypted,
        )


def _millionths(probability: float) -> int:
    return min(MILLION, max(0, int(probability * MILLION)))
