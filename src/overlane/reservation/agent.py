"""Reservations at one broker: the RSVP process of RFC 2209 as a pure state machine.

Path state (`path_state.py`) contains the previous and next hops of a sender's messages; reservation state
(`resv_state.py`) the requests per link, and `resv_process.py` the processing of their messages; the ledgers
(`link_ledger.py`) the reserved rates of links; `senders.py` and `receivers.py` the offers and requests of publishers
and subscribers of this broker. This module dispatches events and messages, and forwards paths.

    effects = agent.handle(event, now)
    call agent.handle(Tick(), t) at t = agent.next_deadline()

A message that violates a rule raises `BadMessage` and changes nothing. State from a link is removed with it.
"""

import math
from dataclasses import replace
from typing import assert_never

from overlane.reservation.contract import (
    Ask,
    Broker,
    Effect,
    Event,
    Link,
    LinkDown,
    LinkUp,
    Offer,
    Received,
    Release,
    ReservationRefused,
    Send,
    SetLeaves,
    SetTopology,
    Tick,
    Topology,
    Withdraw,
)
from overlane.reservation.link_ledger import PACKET_BYTES_MAX, LinkLedger, LinkTerms, composed
from overlane.reservation.path_choice import branch
from overlane.reservation.path_state import PathEntry, PathTable, is_older
from overlane.reservation.receivers import REQUESTS_MAX
from overlane.reservation.resv_process import ResvProcess, leaf_of, link_of, link_tree
from overlane.reservation.resv_state import SessionState
from overlane.reservation.rsvp.intserv import AdSpec
from overlane.reservation.rsvp.messages import (
    Flow,
    Message,
    Path,
    PathErr,
    PathTear,
    Resv,
    ResvConf,
    ResvErr,
    ResvTear,
)
from overlane.reservation.rsvp.objects import (
    AdmissionValue,
    BadMessage,
    ErrorCode,
    ErrorSpec,
    Hop,
    Session,
    Style,
    broker_address,
    broker_of,
    session_of,
)
from overlane.reservation.senders import OwnFlow, Senders
from overlane.reservation.soft_state import ANSWER_NS, NEVER, REFRESH_MS, SECOND, SoftState

SWEEP_NS = 5 * SECOND
"""How often expired state is looked for."""
_NO_ROUTE = 5
"""RFC 3209, routing problem: no route available towards the destination."""


class RsvpAgent:
    def __init__(
        self, me: Broker, incarnation: int, now: int = 0, answer_ns: int = ANSWER_NS, refresh_ms: int = REFRESH_MS
    ) -> None:
        """`answer_ns`: how long a request may wait until it is admitted."""
        self.me = me
        self._address = broker_address(me)
        self.answer_ns = answer_ns
        self._soft = SoftState(me, refresh_ms)
        self._out: list[Effect] = []
        self.ledgers: dict[Broker, LinkLedger] = {}
        self.paths = PathTable()
        self._resv = ResvProcess(me, self.paths, self.ledgers, self._soft, self._out)
        self._senders = Senders(me, incarnation)
        self._refresh_at = self._soft.next_refresh(now)
        self._sweep_at = now + SWEEP_NS
        self.reservations = self._resv.table
        self.asked = self._resv.receivers.asked

    def handle(self, event: Event, now: int) -> list[Effect]:
        match event:
            case Offer(topic_filter, tspec):
                self._tell_own(self._senders.offer(topic_filter, tspec), now)
            case Withdraw(topic_filter):
                self._withdraw(topic_filter, now)
            case SetLeaves(topic_filter, leaves):
                flow = self._senders.get(session_of(topic_filter))
                if flow is not None and self._senders.set_leaves(flow, leaves, now):
                    self._tell_own(flow, now)
            case Ask():
                self._ask(event, now)
            case Release(request):
                session = self._resv.receivers.remove(request)
                if session is not None:
                    self._resv.update_local(session, now)
            case LinkUp(peer, terms):
                self._link_up(peer, terms, now)
            case LinkDown(peer):
                self._link_down(peer, now)
            case SetTopology(links):
                self._set_topology(links, now)
            case Received(peer, message):
                self._receive(peer, message, now)
            case Tick():
                self._tick(now)
            case _:
                assert_never(event)
        effects = self._out.copy()
        self._out.clear()
        return effects

    def own_flows(self) -> list[OwnFlow]:
        """What publishers of this broker advertise, with the trees of it."""
        return self._senders.all()

    def next_deadline(self) -> int:
        times = self._resv.receivers.next_deadline(), self._senders.next_deadline()
        return min(self._refresh_at, self._sweep_at, *(NEVER if one is None else one for one in times))

    # Publishers and subscribers of this broker

    def _tell_own(self, flow: OwnFlow, now: int) -> None:
        """Tell the tree of one of this broker's senders as if it had come in a Path message."""
        adspec = AdSpec(0, math.inf, 0, PACKET_BYTES_MAX)
        entry = PathEntry(flow.session, flow.sender, None, flow.topic_filter, flow.tspec, adspec, flow.tree(), NEVER)
        self._put_path(entry, now)

    def _withdraw(self, topic_filter: str, now: int) -> None:
        flow = self._senders.withdraw(topic_filter)
        entry = None if flow is None else self.paths.get(flow.session, flow.sender)
        if entry is not None:
            self._remove_path(entry, now)

    def _ask(self, ask: Ask, now: int) -> None:
        receivers = self._resv.receivers
        if len(receivers.asked) >= REQUESTS_MAX and ask.request not in receivers.asked:
            self._out.append(ReservationRefused(ask.request, f"more than {REQUESTS_MAX} requests at this broker"))
            return
        style = receivers.style_of(session_of(ask.topic_filter))
        if style is not None and style is not ask.style:
            self._out.append(
                ReservationRefused(ask.request, f"subscribers here share the traffic in style {style.name}")
            )
            return
        self._resv.update_local(receivers.add(ask, now + self.answer_ns), now)

    # Links

    def _link_up(self, peer: Broker, terms: LinkTerms, now: int) -> None:
        ledger = self.ledgers.get(peer)
        if ledger is None:
            self.ledgers[peer] = LinkLedger(terms)
        elif ledger.terms == terms:
            return
        else:
            self._preempt(peer, ledger, terms, now)
        for entry in self.paths:
            if peer in entry.children:
                self._send_path(entry, peer)

    def _preempt(self, peer: Broker, ledger: LinkLedger, terms: LinkTerms, now: int) -> None:
        """The link can do less: the latest reservations give way, and are told."""
        for key in ledger.change(terms):
            session, filters = key
            state = self.reservations.sessions.get(session)
            request = None if state is None else state.requests.pop((peer, filters), None)
            if state is not None and request is not None:
                error = ErrorSpec(self._address, ErrorCode.ADMISSION, AdmissionValue.BANDWIDTH)
                flow = Flow(request.flowspec, () if state.style is Style.WF else request.senders)
                tree = link_tree((self.me, peer))
                message = ResvErr(session, Hop(self._address), error, state.style, (flow,), (), tree)
                self._out.append(Send(peer, message))
            self._resv.sync(session, now)

    def _link_down(self, peer: Broker, now: int) -> None:
        if self.ledgers.pop(peer, None) is None:
            return
        for session, state in self.reservations:
            for hop, filters in list(state.requests):
                if hop == peer:
                    self.reservations.drop(session, hop, filters)
        for entry in self.paths:
            if entry.previous == peer:
                self._remove_path(entry, now)
            elif peer in entry.children:
                self._broken(entry, (self.me, peer), now)
                self._resv.sync(entry.session, now)

    def _broken(self, entry: PathEntry, link: Link, now: int) -> None:
        """Tell the sender that its tree takes a link that is down."""
        if entry.previous is None:
            flow = self._senders.get(entry.session)
            if flow is not None and self._senders.failed(flow, link, now):
                self._tell_own(flow, now)
        else:
            error = ErrorSpec(self._address, ErrorCode.ROUTING, _NO_ROUTE)
            message = PathErr(entry.session, error, entry.sender, entry.tspec, link_tree(link))
            self._out.append(Send(entry.previous, message))

    def _set_topology(self, links: Topology, now: int) -> None:
        for flow in self._senders.set_topology(links, now):
            self._tell_own(flow, now)

    # Messages

    def _receive(self, peer: Broker, message: Message, now: int) -> None:
        if peer not in self.ledgers:
            return  # of a connection that is no more
        match message:
            case Path() | PathTear() | Resv() | ResvTear() | ResvErr():
                if message.hop.address != broker_address(peer):
                    raise BadMessage("an RSVP message of another broker than the neighbour")
        match message:
            case Path():
                self._path(peer, message, now)
            case PathTear():
                entry = self.paths.get(message.session, message.sender)
                if entry is not None and entry.previous == peer:
                    self._remove_path(entry, now)
            case PathErr():
                self._path_err(peer, message, now)
            case Resv():
                self._resv.resv(peer, message, now)
            case ResvTear():
                self._resv.resv_tear(peer, message, now)
            case ResvErr():
                self._resv.resv_err(peer, message, now)
            case ResvConf():
                self._resv.resv_conf(peer, message)
            case _:
                assert_never(message)

    def _path(self, peer: Broker, message: Path, now: int) -> None:
        tree, topic_filter, adspec = message.tree, message.topic_filter, message.adspec
        if tree is None or topic_filter is None or adspec is None:
            raise BadMessage("a Path message without tree, topic filter or ADSPEC")
        if tree.nodes[0].broker != self.me or session_of(topic_filter) != message.session:
            raise BadMessage("a Path message whose tree or session is not what it says")
        if any(one.broker == peer for one in tree.nodes):
            raise BadMessage("a Path message whose tree leads back")
        if broker_of(message.sender.address) in (None, self.me):
            raise BadMessage("a Path message of a sender that is none")
        known = self.paths.get(message.session, message.sender)
        expires_ns = self._soft.expiry(message.refresh_ms, now)
        if known is None:
            if not self.paths.has_room(peer):
                return
        elif is_older(tree.attempt, known.tree.attempt) or (
            tree.attempt == known.tree.attempt and known.previous != peer
        ):
            return
        entry = PathEntry(
            message.session,
            message.sender,
            peer,
            topic_filter,
            message.tspec,
            adspec,
            tree,
            expires_ns,
            message.passed_on,
        )
        if known is not None and _is_same(known, entry):
            known.expires_ns, known.adspec = expires_ns, adspec
            return
        self._put_path(entry, now)

    def _put_path(self, entry: PathEntry, now: int) -> None:
        known = self.paths.get(entry.session, entry.sender)
        self.paths.put(entry)
        if known is not None:
            for gone in sorted(known.children.keys() - entry.children.keys()):
                self._send_tear(entry, gone)
            if known.tree.attempt != entry.tree.attempt:
                self._lift_blockade(entry)
        broken = [child for child in entry.children if child not in self.ledgers]
        for child in sorted(entry.children.keys() - set(broken)):
            self._send_path(entry, child)
        self._resv.update_local(entry.session, now)
        for child in broken:
            self._broken(entry, (self.me, child), now)

    def _lift_blockade(self, entry: PathEntry) -> None:
        """On another path a request may be admitted that was refused on the one before."""
        state = self.reservations.sessions.get(entry.session)
        for request in [] if state is None else state.requests.values():
            if entry.sender in request.senders:
                request.is_blockaded = False

    def _remove_path(self, entry: PathEntry, now: int) -> None:
        self.paths.remove(entry)
        for child in entry.children:
            self._send_tear(entry, child)
        self._resv.update_local(entry.session, now)

    def _path_err(self, peer: Broker, message: PathErr, now: int) -> None:
        entry = self.paths.get(message.session, message.sender)
        if entry is None or peer not in entry.children:
            return
        if entry.previous is not None:
            self._out.append(Send(entry.previous, message))
            return
        flow = self._senders.get(entry.session)
        tree = message.tree
        link = link_of(tree)
        if flow is None or tree is None or link is None:
            return
        leaf = leaf_of(tree)
        if leaf is None:
            changed = self._senders.failed(flow, link, now)
        else:
            changed = self._senders.refused(flow, leaf, link, now)
        if changed:
            self._tell_own(flow, now)

    def _send_path(self, entry: PathEntry, child: Broker) -> None:
        adspec = composed(entry.adspec, self.ledgers[child], entry.tspec.size_max_bytes)
        message = Path(
            entry.session,
            Hop(self._address),
            self._soft.refresh_ms,
            entry.sender,
            entry.tspec,
            adspec,
            branch(entry.tree, entry.children[child]),
            entry.topic_filter,
            entry.passed_on,
        )
        self._out.append(Send(child, message))

    def _send_tear(self, entry: PathEntry, child: Broker) -> None:
        if child in self.ledgers:
            self._out.append(Send(child, PathTear(entry.session, Hop(self._address), entry.sender)))

    # Time

    def _tick(self, now: int) -> None:
        if now >= self._sweep_at:
            self._sweep_at = now + SWEEP_NS
            self._sweep(now)
        self._resv.give_up(now)
        deadline = self._senders.next_deadline()
        if deadline is not None and now >= deadline:
            self._set_topology(self._senders.topology, now)
        if now >= self._refresh_at:
            self._refresh_at = self._soft.next_refresh(now)
            self._refresh(now)

    def _sweep(self, now: int) -> None:
        """Let state die that nobody has refreshed."""
        for entry in self.paths:
            if now >= entry.expires_ns:
                self._remove_path(entry, now)
        for session, state in self.reservations:
            self._expire(session, state, now)

    def _expire(self, session: Session, state: SessionState, now: int) -> None:
        changed = False
        for (hop, filters), request in list(state.requests.items()):
            if now >= request.expires_ns:
                self.reservations.drop(session, hop, filters)
                changed = True
            elif request.is_blockaded and now >= request.blockaded_until_ns:
                request.is_blockaded = False
                changed = True
        if changed:
            self._resv.sync(session, now)

    def _refresh(self, now: int) -> None:
        self._set_topology(self._senders.topology, now)
        for entry in self.paths:
            for child in entry.children:
                if child in self.ledgers:
                    self._send_path(entry, child)
        for session, state in self.reservations:
            for peer, filters in state.upstream:
                self._resv.send_upstream(session, state, peer, filters)


def _is_same(known: PathEntry, entry: PathEntry) -> bool:
    """Whether an entry only refreshes another: what is left on the path changes all the time."""
    return (
        replace(known.adspec, bandwidth=0.0) == replace(entry.adspec, bandwidth=0.0)
        and (known.previous, known.tree, known.tspec) == (entry.previous, entry.tree, entry.tspec)
        and known.passed_on == entry.passed_on
    )
