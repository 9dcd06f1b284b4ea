"""Reservation messages: changes of a broker's state, and messages to neighbours and subscribers (RFC 2209, 2.2).

After every change of a session, the upstream requests are compared with the previous ones: only the difference is sent.
Then requests whose upstream requests are all confirmed are confirmed themselves, downstream or to subscribers.
"""

from overlane.planning.problem import NoSolution
from overlane.reservation.contract import Admitted, Broker, Effect, Interrupted, Link, Send
from overlane.reservation.flowspecs import bound_s, covers
from overlane.reservation.link_ledger import Filters, LinkLedger
from overlane.reservation.path_state import PathTable
from overlane.reservation.receivers import Asked, Receivers, local_requests, needs, refusal
from overlane.reservation.resv_state import REQUESTS_MAX, HopRequest, ResvTable, SessionState
from overlane.reservation.rsvp.intserv import FlowSpec
from overlane.reservation.rsvp.messages import Flow, PathErr, Resv, ResvConf, ResvErr, ResvTear
from overlane.reservation.rsvp.objects import (
    IN_PLACE,
    AdmissionValue,
    ErrorCode,
    ErrorSpec,
    Hop,
    Sender,
    Session,
    Style,
    Tree,
    TreeNode,
    broker_address,
)
from overlane.reservation.soft_state import BLOCKADE_NS, NEVER, RESTORE_NS, SoftState

CAUSES: dict[int, str] = {
    ErrorCode.ADMISSION: "a link has not enough rate left",
    ErrorCode.NO_PATH: "the path was lost",
    ErrorCode.NO_SENDER: "the publisher was lost",
    ErrorCode.CONFLICTING_STYLE: "others share the traffic in another style",
}


class ResvProcess:
    def __init__(
        self, me: Broker, paths: PathTable, ledgers: dict[Broker, LinkLedger], soft: SoftState, out: list[Effect]
    ) -> None:
        self._me = me
        self._hop = Hop(broker_address(me))
        self._paths = paths
        self._ledgers = ledgers
        self._soft = soft
        self._out = out
        self.table = ResvTable(paths, ledgers)
        self.receivers = Receivers()

    # What neighbours say

    def resv(self, peer: Broker, message: Resv, now: int) -> None:
        session = message.session
        expires_ns = self._soft.expiry(message.refresh_ms, now)
        for flow in message.flows:
            if flow.flowspec is not None:
                self._request(peer, message, flow, flow.flowspec, expires_ns)
        self.sync(session, now)

    def _request(self, peer: Broker, message: Resv, flow: Flow, flowspec: FlowSpec, expires_ns: int) -> None:
        session, style = message.session, message.style
        serving = self._paths.serving(session, peer)
        named = tuple(serving) if style is Style.WF else tuple(one for one in flow.senders if one in serving)
        refused = (0, 0)
        if not serving:
            refused = (ErrorCode.NO_PATH, 0)
        elif not named:
            refused = (ErrorCode.NO_SENDER, 0)
        elif len(self.table) >= REQUESTS_MAX:
            refused = (ErrorCode.ADMISSION, AdmissionValue.BANDWIDTH)
        elif self.table.state_for(session, style) is None:
            refused = (ErrorCode.CONFLICTING_STYLE, 0)
        else:
            request = self.table.put(session, peer, flowspec, named, expires_ns)
            if request is not None:
                request.wants_confirmation |= message.confirm is not None
                if request.confirmed == flowspec and message.confirm is not None:
                    self._confirm_hop(session, style, peer, request)
                return
            refused = (ErrorCode.ADMISSION, AdmissionValue.BANDWIDTH)
        filters = flow.senders if style is Style.FF else ()
        in_place = IN_PLACE if self._ledgers[peer].has((session, filters)) else 0
        error = ErrorSpec(self._hop.address, refused[0], refused[1], in_place)
        self._send_error(session, style, peer, flow, error, link_tree((self._me, peer)))

    def resv_tear(self, peer: Broker, message: ResvTear, now: int) -> None:
        for flow in message.flows:
            self.table.drop(message.session, peer, flow.senders if message.style is Style.FF else ())
        self.sync(message.session, now)

    def resv_conf(self, peer: Broker, message: ResvConf) -> None:
        state = self.table.sessions.get(message.session)
        if state is None or state.style is not message.style:
            return
        for flow in message.flows:
            upstream = state.upstream.get((peer, state.filters_of(flow.senders)))
            if upstream is not None and flow.flowspec is not None and covers(flow.flowspec, upstream.flowspec):
                upstream.is_confirmed |= set(upstream.senders) <= set(flow.senders) or state.style is Style.WF
        self._confirm(message.session, state)

    def resv_err(self, peer: Broker, message: ResvErr, now: int) -> None:
        """Tell those whose requests were refused upstream, and keep them from spoiling those of others."""
        session = message.session
        state = self.table.sessions.get(session)
        if state is None or state.style is not message.style:
            return
        link = link_of(message.tree)
        is_in_place = bool(message.error.flags & IN_PLACE)
        for flow in message.flows:
            filters = state.filters_of(flow.senders)
            if (peer, filters) not in state.upstream or flow.flowspec is None:
                continue
            state.upstream[peer, filters].is_confirmed = False
            for (hop, own_filters), request in list(state.requests.items()):
                if not self._is_behind(session, request, peer) or (state.style is Style.FF and own_filters != filters):
                    continue
                if not is_in_place:
                    request.confirmed = None
                # The rate of merged requests is that of the largest: the others are not at fault, and asked for anew.
                if request.flowspec.rate >= flow.flowspec.rate:
                    self._refused_upstream(session, state, hop, request, message.error, link, now)
        self.sync(session, now)

    def _refused_upstream(
        self,
        session: Session,
        state: SessionState,
        hop: Broker | None,
        request: HopRequest,
        error: ErrorSpec,
        link: Link | None,
        now: int,
    ) -> None:
        if request.confirmed is not None and covers(request.confirmed, request.flowspec):
            return  # it has what it needs; another one asked for more
        request.is_blockaded, request.blockaded_until_ns = True, now + BLOCKADE_NS
        if hop is None:
            self._local_refused(session, request, error, link, now)
        else:
            senders = () if state.style is Style.WF else request.senders
            flow = Flow(request.flowspec, senders)
            tree = None if link is None else link_tree(link)
            self._send_error(session, state.style, hop, flow, error, tree)

    def _is_behind(self, session: Session, request: HopRequest, peer: Broker) -> bool:
        """Whether messages for a request come from this neighbour."""
        entries = (self._paths.get(session, sender) for sender in request.senders)
        return any(entry is not None and entry.previous == peer for entry in entries)

    # What subscribers of this broker need

    def update_local(self, session: Session, now: int) -> None:
        """The requests of subscribers here, or the paths to here, have changed."""
        asked = self.receivers.of(session)
        serving = self._paths.serving(session, None)
        style = self.receivers.style_of(session)
        if style is not None and serving and self.table.state_for(session, style) is None:
            for one in asked:
                self._refuse(one, CAUSES[ErrorCode.CONFLICTING_STYLE])
            asked = []
        possible = []
        for one in asked:
            try:
                needs(one, serving)
                possible.append(one)
            except NoSolution as impossible:
                self._refuse(one, str(impossible))
        wanted = local_requests(possible, serving, style) if style is not None else {}
        state = self.table.sessions.get(session)
        for hop, filters in [] if state is None else list(state.requests):
            if hop is None and filters not in wanted:
                self.table.drop(session, None, filters)
        for flowspec, senders in wanted.values():
            self.table.put(session, None, flowspec, senders, NEVER)
        self.sync(session, now)

    def _local_refused(
        self, session: Session, request: HopRequest, error: ErrorSpec, link: Link | None, now: int
    ) -> None:
        """Ask the sender for another path, if no other subscriber here has what it needs on this one."""
        asked = self.receivers.of(session)
        reason = CAUSES.get(error.code, f"RSVP error {error.code}/{error.value}")
        if not error.flags & IN_PLACE:
            self._interrupt(asked, now)
        pending = [one for one in asked if not one.is_admitted]
        for one in pending:
            one.bottleneck, one.reason = link, reason
        entries = [self._paths.get(session, sender) for sender in request.senders]
        movable = [entry for entry in entries if entry is not None and entry.previous is not None and not entry.is_last]
        if len(pending) < len(asked) or not movable or link is None:
            for one in pending:
                self._refuse(one, reason)
            self.update_local(session, now)
            return
        for entry in movable:
            tree = link_tree(link, self._me)
            message = PathErr(session, error, entry.sender, entry.tspec, tree)
            if entry.previous is not None:
                self._out.append(Send(entry.previous, message))

    def _interrupt(self, asked: list[Asked], now: int) -> None:
        for one in asked:
            if one.is_admitted:
                self.receivers.interrupt(one, now + RESTORE_NS)
                self._out.append(Interrupted(one.ask.request))

    def _refuse(self, asked: Asked, reason: str) -> None:
        serving = self._paths.serving(asked.session, None)
        self._out.append(refusal(asked, serving, reason))
        self.receivers.remove(asked.ask.request)

    def give_up(self, now: int) -> None:
        """Refuse the requests whose time for an answer has passed."""
        late = [one for one in self.receivers.pending.values() if now >= one.deadline_ns]
        for one in late:
            if not self._paths.serving(one.session, None):
                self._refuse(one, one.reason or "no publisher advertises this topic filter, or no path leads to it")
            else:
                self._refuse(one, one.reason or "the path did not answer in time")
        for session in {one.session for one in late}:
            self.update_local(session, now)

    # What follows from both

    def sync(self, session: Session, now: int) -> None:
        """Ask upstream for what is needed now, and confirm what can be."""
        self.table.prune(session)
        state = self.table.sessions.get(session)
        if state is None:
            self._judge(session, now)
            return
        wanted = self.table.wanted(session)
        for key, had in list(state.upstream.items()):
            if key not in wanted:
                del state.upstream[key]
                self._send_upstream_tear(session, state, key[0], had.senders)
        for key, want in wanted.items():
            known = state.upstream.get(key)
            if known is None or (known.flowspec, known.senders) != (want.flowspec, want.senders):
                if known is not None and known.is_confirmed and set(want.senders) <= set(known.senders):
                    # Less than what was confirmed needs no other confirmation.
                    want.is_confirmed = covers(known.flowspec, want.flowspec)
                state.upstream[key] = want
                self.send_upstream(session, state, key[0], key[1])
        self._confirm(session, state)
        self._judge(session, now)
        self.table.forget_empty(session)

    def send_upstream(self, session: Session, state: SessionState, peer: Broker, filters: Filters) -> None:
        if peer not in self._ledgers:
            return
        upstream = state.upstream[peer, filters]
        confirm = None if upstream.is_confirmed else self._hop.address
        flow, scope = self._flow(state.style, upstream.flowspec, upstream.senders)
        message = Resv(session, self._hop, self._soft.refresh_ms, state.style, (flow,), confirm, scope)
        self._out.append(Send(peer, message))

    def _send_upstream_tear(
        self, session: Session, state: SessionState, peer: Broker, senders: tuple[Sender, ...]
    ) -> None:
        if peer in self._ledgers:
            flow, scope = self._flow(state.style, None, senders)
            self._out.append(Send(peer, ResvTear(session, self._hop, state.style, (flow,), scope)))

    def _flow(
        self, style: Style, flowspec: FlowSpec | None, senders: tuple[Sender, ...]
    ) -> tuple[Flow, tuple[bytes, ...]]:
        """With the scope that a wildcard needs."""
        if style is not Style.WF:
            return Flow(flowspec, senders), ()
        return Flow(flowspec), tuple(sorted({sender.address for sender in senders}))

    def _send_error(
        self, session: Session, style: Style, peer: Broker, flow: Flow, error: ErrorSpec, tree: Tree | None
    ) -> None:
        self._out.append(Send(peer, ResvErr(session, self._hop, error, style, (flow,), (), tree)))

    def _confirm(self, session: Session, state: SessionState) -> None:
        for (hop, _), request in state.requests.items():
            if request.is_blockaded or request.confirmed == request.flowspec:
                continue
            if self.table.is_covered(session, request):
                request.confirmed = request.flowspec
                if hop is not None and request.wants_confirmation:
                    self._confirm_hop(session, state.style, hop, request)
        self._tell_admitted(session, state)

    def _confirm_hop(self, session: Session, style: Style, hop: Broker, request: HopRequest) -> None:
        flow, _ = self._flow(style, request.flowspec, request.senders)
        error = ErrorSpec(self._hop.address, ErrorCode.CONFIRMATION)
        self._out.append(Send(hop, ResvConf(session, error, broker_address(hop), style, (flow,))))

    def _tell_admitted(self, session: Session, state: SessionState) -> None:
        serving = self._paths.serving(session, None)
        for asked in self.receivers.of(session):
            if asked.is_admitted or not serving:
                continue
            needed = self._needed(asked, session)
            if not self._has(state, needed):
                continue
            self.receivers.admit(asked)
            bounds = [bound_s(flowspec, serving[sender].adspec) for sender, flowspec in needed.items()]
            known = [bound for bound in bounds if bound is not None]
            largest = max(needed.values(), key=lambda flowspec: flowspec.rate)
            self._out.append(Admitted(asked.ask.request, largest, max(known, default=None)))

    def _judge(self, session: Session, now: int) -> None:
        """An admitted request has lost what was reserved for it."""
        state = self.table.sessions.get(session)
        lost = [
            asked
            for asked in self.receivers.of(session)
            if asked.is_admitted and (state is None or not self._has(state, self._needed(asked, session)))
        ]
        self._interrupt(lost, now)

    def _needed(self, asked: Asked, session: Session) -> dict[Sender, FlowSpec]:
        try:
            return needs(asked, self._paths.serving(session, None))
        except NoSolution:
            return {}

    def _has(self, state: SessionState, needed: dict[Sender, FlowSpec]) -> bool:
        """Whether what is confirmed for subscribers here is all that one of them needs."""
        if not needed:
            return False
        for sender, flowspec in needed.items():
            request = state.requests.get((None, state.filters_of((sender,))))
            if request is None or request.confirmed is None or not covers(request.confirmed, flowspec):
                return False
        return True


def link_tree(link: Link, leaf: Broker | None = None) -> Tree:
    """A link as errors name it: the broker in front of it, the one behind it, and the leaf that is concerned."""
    nodes = [TreeNode(link[0], None, False), TreeNode(link[1], 0, link[1] == leaf)]
    if leaf is not None and leaf not in link:
        nodes.append(TreeNode(leaf, 1, True))
    return Tree(tuple(nodes))


def link_of(tree: Tree | None) -> Link | None:
    if tree is None or len(tree.nodes) < 2:
        return None
    return tree.nodes[0].broker, tree.nodes[1].broker


def leaf_of(tree: Tree) -> Broker | None:
    return next((one.broker for one in tree.nodes if one.is_leaf), None)
