"""Reservations between brokers: connects the RSVP process of this broker with the core and with requests of clients.

    clients -- offer, ask --> RsvpAgent -- Send --> neighbour, over the control lane of the link
                                |-- Admitted, Refused, Interrupted --> clients
                                |-- trees of own flows --> the core's routes
                                |-- what links have promised --> the core's link queues

The process is created when it is first needed: by a client here, or by a message of a neighbour. It knows brokers by
their identities, and links by their rates in the configuration and their latencies in the map. State from a link is
removed with its connection. A message that violates RSVP is counted and otherwise ignored.
"""

import math
from collections import deque
from collections.abc import Callable, Hashable, Mapping

from overlane.core.broker import OverlayBroker
from overlane.core.events import Event, FlowKey, LinkReservation, SendToNeighbour, SetLinkReservations, SetReservedTree
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.core.wire.fragments import HEAD_BYTES
from overlane.core.wire.frame_codec import FRAME_BYTES_MAX, broker_id
from overlane.membership.neighbours import NeighbourConfig
from overlane.planning.reserve import TSpec
from overlane.pubsub.reservations.network import Denied, Granted, Interrupted, Listener
from overlane.pubsub.timers import Timer, Timers
from overlane.reservation import contract
from overlane.reservation.agent import RsvpAgent
from overlane.reservation.link_ledger import SHARE, LinkTerms
from overlane.reservation.rsvp import messages
from overlane.reservation.rsvp.objects import BadMessage, Session, Style, broker_address, broker_of, session_of
from overlane.reservation.rsvp.pcap import Captured, capture
from overlane.reservation.soft_state import ANSWER_NS
from overlane.turn.delays import Delays

RSVP_FIRST_BYTE = 0x10
"""Version 1 of RSVP, without flags: it tells its messages from others that neighbours exchange."""
CAPTURED_MAX = 2000
"""Messages that are remembered for packet captures."""
FRAGMENT_NS: Nanos = 2 * MS
"""Beside reservations no frame keeps a link busy for longer: it leaves in parts."""
FRAGMENT_BYTES_MIN, FRAGMENT_BYTES_MAX = 1_200, 66_000
"""Less is not worth a packet, more than a parcel of several messages is rarely sent."""
AHEAD_NS: Nanos = 5 * MS
"""So much of its time a link is given in advance, to keep it busy (`node.links.pacing`)."""


def fragment_bytes(rate: float) -> int:
    """The largest part of a frame that is sent at once over a link of so many bytes per second."""
    return min(FRAGMENT_BYTES_MAX, max(FRAGMENT_BYTES_MIN, int(rate * FRAGMENT_NS / SECOND)))


def ahead_bytes(rate: float) -> int:
    """What may be under way on such a link when a reserved parcel comes: what it was given ahead, and a part."""
    return math.ceil(rate * AHEAD_NS / SECOND) + fragment_bytes(rate) + HEAD_BYTES


def flow_number(session: Session) -> int:
    """How the core numbers the flow of a session."""
    return (int.from_bytes(session.address[8:]) >> 1) or 1


class RsvpNetwork:
    """A `pubsub.reservations.network.ReservationNetwork`."""

    def __init__(self, core: OverlayBroker, timers: Timers, tell: Callable[[Event, Nanos], None]) -> None:
        self._core = core
        self._timers = timers
        self._tell = tell
        self.listener: Listener = lambda _outcome, _now: None
        self.agent: RsvpAgent | None = None
        self.share = SHARE
        self.answer_ns: Nanos = ANSWER_NS
        self._neighbours: Mapping[str, NeighbourConfig] = {}
        self._names: dict[int, str] = {core.identity: core.name}
        self.links: dict[str, LinkTerms] = {}
        """Neighbours that the agent knows, with what it knows of their links."""
        self._map_seen = -1
        self._is_dirty = False
        self.trees: dict[int, tuple[frozenset[tuple[str, str]], frozenset[str]]] = {}
        self._told_links: dict[str, dict[FlowKey, LinkReservation]] = {}
        self._timer: Timer | None = None
        self._timer_at: Nanos = NEVER
        self.captured: deque[Captured] = deque(maxlen=CAPTURED_MAX)
        self.bad_messages = 0
        self.delays = Delays()

    # What clients here need

    def offer(self, topic_filter: str, tspec: TSpec, leaves: frozenset[str], now: Nanos) -> int:
        self._handle(contract.Offer(topic_filter, tspec), now)
        identities = {broker_id(name): name for name in leaves}
        self._names |= identities
        self._handle(contract.SetLeaves(topic_filter, frozenset(identities)), now)
        return flow_number(session_of(topic_filter))

    def withdraw(self, topic_filter: str, now: Nanos) -> None:
        self._handle(contract.Withdraw(topic_filter), now)

    def ask(
        self, request: str, topic_filter: str, tspec: TSpec, latency_s: float | None, style: str, now: Nanos
    ) -> None:
        self._handle(contract.Ask(request, topic_filter, tspec, latency_s, Style[style]), now)

    def release(self, request: str, now: Nanos) -> None:
        if self.agent is not None:
            self._handle(contract.Release(request), now)

    def reserved_rate(self, topic_filter: str) -> int:
        if self.agent is None:
            return 0
        wanted = session_of(topic_filter)
        return max(
            (
                rate
                for ledger in self.agent.ledgers.values()
                for (session, senders), rate in ledger
                if session == wanted
            ),
            default=0,
        )

    def watch_delay(self, topic_filter: str, bound_s: float | None) -> None:
        self.delays.watch(topic_filter, bound_s)

    def filters(self) -> dict[Session, str]:
        """Of all senders that this broker knows."""
        return {} if self.agent is None else {entry.session: entry.topic_filter for entry in self.agent.paths}

    # What happens to links

    def configure(self, neighbours: Mapping[str, NeighbourConfig], share: float, answer_ns: Nanos, now: Nanos) -> None:
        self._neighbours, self.share, self.answer_ns = neighbours, share, answer_ns
        if self.agent is not None:
            self.agent.answer_ns = answer_ns
            self._map_seen = -1
            self.follow(now)

    def all_terms(self) -> dict[str, LinkTerms]:
        """What the links of the configuration can do, whether they are up or not."""
        return {peer: self._terms(config, 0, self.links.get(peer)) for peer, config in self._neighbours.items()}

    def link_down(self, peer: str, now: Nanos) -> None:
        self._map_seen = -1
        if self.links.pop(peer, None) is not None:
            self._handle(contract.LinkDown(broker_id(peer)), now)

    def follow(self, now: Nanos) -> None:
        """Tell the agent of links that came, changed or went, if the map has changed."""
        if self.agent is None or self._map_seen == self._core.map_changes:
            return
        self._map_seen = self._core.map_changes
        claimed = self._core.claimed_links()
        topology: dict[int, dict[int, int]] = {}
        for (one, other), latency_us in claimed.items():
            start, end = broker_id(one), broker_id(other)
            self._names[start], self._names[end] = one, other
            topology.setdefault(start, {})[end] = latency_us
        me = self._core.name
        for peer, config in self._neighbours.items():
            own_us = claimed.get((me, peer))
            if own_us is None or not self._core.is_linked(peer):
                continue
            terms = self._terms(config, own_us, self.links.get(peer))
            if self.links.get(peer) != terms:
                self.links[peer] = terms
                self._names[broker_id(peer)] = peer
                self._handle(contract.LinkUp(broker_id(peer), terms), now)
        self._handle(contract.SetTopology(topology), now)

    def _terms(self, config: NeighbourConfig, latency_us: int, known: LinkTerms | None) -> LinkTerms:
        rate = None if config.rate_bps is None else config.rate_bps / 8
        # The least that was measured counts (RFC 2215, minimum path latency): more is queueing, which is in C and D.
        if known is not None and latency_us > known.latency_us - max(500, known.latency_us // 5):
            latency_us = known.latency_us  # every change of it is told down all paths
        return LinkTerms(rate, latency_us, self.share, FRAME_BYTES_MAX, None if rate is None else ahead_bytes(rate))

    # Messages

    def heard(self, peer: str, body: bytes, now: Nanos) -> None:
        """A message of RSVP from a neighbour."""
        try:
            message = messages.decode(body)
        except BadMessage:
            self.bad_messages += 1
            return
        self._capture(peer, self._core.name, body, now)
        self._make(now)
        if peer not in self.links and peer in self._neighbours:
            self._map_seen = -1
            self.follow(now)
        try:
            self._handle(contract.Received(broker_id(peer), message), now)
        except BadMessage:
            self.bad_messages += 1

    def _capture(self, sender: str, receiver: str, body: bytes, now: Nanos) -> None:
        addresses = broker_address(broker_id(sender)), broker_address(broker_id(receiver))
        self.captured.append(Captured(now, *addresses, body))

    def capture(self) -> bytes:
        """The latest messages, as the content of a file."""
        return capture(self.captured)

    def _make(self, now: Nanos) -> RsvpAgent:
        if self.agent is None:
            self.agent = RsvpAgent(self._core.identity, self._core.incarnation, now, self.answer_ns)
            self.follow(now)
        return self.agent

    def _handle(self, event: contract.Event, now: Nanos) -> None:
        agent = self._make(now)
        effects = agent.handle(event, now)
        self._is_dirty = True
        for effect in effects:
            match effect:
                case contract.Send(peer, message):
                    self._send(peer, message, now)
                case contract.Admitted(request, flowspec, bound_s):
                    self.listener(Granted(request, flowspec.rate, bound_s), now)
                case contract.ReservationRefused(request, reason, link, rate, latency_s):
                    bottleneck = None if link is None else (self.name_of(link[0]), self.name_of(link[1]))
                    self.listener(Denied(request, reason, bottleneck, rate, latency_s), now)
                case contract.Interrupted(request):
                    self.listener(Interrupted(request), now)
        self._rearm()
        self.settle(now)

    def _send(self, peer: int, message: messages.Message, now: Nanos) -> None:
        name = self._names.get(peer)
        if name is not None:
            body = messages.encode(message)
            self._capture(self._core.name, name, body, now)
            self._tell(SendToNeighbour(name, body), now)

    def name_of(self, identity: int) -> str:
        return self._names.get(identity, f"{identity:016x}")

    # Time

    def _rearm(self) -> None:
        if self.agent is None:
            return
        when = self.agent.next_deadline()
        if when != self._timer_at:
            self._timers.cancel(self._timer)
            self._timer_at = when
            self._timer = self._timers.at(when, self._tick)

    def _tick(self, now: Nanos) -> None:
        self._timer_at = NEVER
        self._handle(contract.Tick(), now)

    # What follows for routes and queues

    def settle(self, now: Nanos) -> None:
        """Let routes take the trees of own flows, and queues serve what links have promised."""
        agent = self.agent
        if agent is None or not self._is_dirty:
            return
        self._is_dirty = False
        self._settle_trees(agent, now)
        found = {peer: self._promises(agent, broker_id(peer)) for peer in self.links}
        for peer in self._told_links.keys() | found.keys():
            flows = found.get(peer, {})
            if self._told_links.get(peer, {}) != flows:
                self._tell(SetLinkReservations(peer, flows, self._fragment_bytes(peer)), now)
        self._told_links = {peer: flows for peer, flows in found.items() if flows}

    def _fragment_bytes(self, peer: str) -> int:
        terms = self.links.get(peer)
        return FRAME_BYTES_MAX if terms is None or terms.rate is None else fragment_bytes(terms.rate)

    def _settle_trees(self, agent: RsvpAgent, now: Nanos) -> None:
        trees: dict[int, tuple[frozenset[tuple[str, str]], frozenset[str]]] = {}
        for flow in agent.own_flows():
            links = frozenset(
                (self.name_of(parent), self.name_of(broker))
                for broker, parent in flow.parents.items()
                if parent is not None
            )
            leaves = frozenset(self.name_of(leaf) for leaf in flow.leaves if leaf in flow.parents)
            if leaves:
                trees[flow_number(flow.session)] = links, leaves
        for number in self.trees.keys() | trees.keys():
            links, leaves = trees.get(number, (frozenset(), frozenset()))
            if self.trees.get(number) != (links, leaves):
                self._tell(SetReservedTree(number, links, leaves), now)
        self.trees = trees

    def _promises(self, agent: RsvpAgent, peer: int) -> dict[FlowKey, LinkReservation]:
        """What flows have on the link to a neighbour: the rate, and a bucket for their bursts, which grow on the way
        (RFC 2212: b + C_sum + R D_sum)."""
        ledger = agent.ledgers.get(peer)
        found: dict[FlowKey, LinkReservation] = {}
        for (session, filters), rate in ledger or ():
            state = agent.reservations.sessions.get(session)
            request = None if state is None else state.requests.get((peer, filters))
            if request is None or not rate:
                continue
            for sender in request.senders:
                entry, origin = agent.paths.get(session, sender), broker_of(sender.address)
                if entry is not None and origin is not None:
                    group: Hashable = session, filters
                    grown = entry.adspec.c_sum + rate * entry.adspec.d_sum_us / 1e6
                    bucket = math.ceil(request.flowspec.tspec.bucket_bytes + min(grown, rate * 1.0))
                    found[origin, flow_number(session)] = LinkReservation(rate, bucket, group)
        return found


def is_rsvp(body: bytes) -> bool:
    return body[:1] == bytes((RSVP_FIRST_BYTE,))
