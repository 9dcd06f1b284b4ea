"""Reservation state: requests of the next brokers, reserved rates, and requests to upstream brokers (RFC 2209).

A request comes from a next hop, a neighbour or this broker's own subscribers, for some senders of a session. It is
admitted by the ledger of the link to that neighbour, or refused without changing its earlier reservation. The admitted
requests for a sender are merged and sent upstream; requests of different styles are not merged but refused.

A request is confirmed when all upstream requests are: so a confirmation at a subscriber means that every link of the
path has reserved its rate. A request that was refused upstream is blockaded: upstream it counts only with its earlier
confirmed rate, so that it does not prevent the admission of smaller ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from overlane.reservation.contract import Broker
from overlane.reservation.flowspecs import covers, merged
from overlane.reservation.link_ledger import Filters, LinkLedger
from overlane.reservation.path_state import PathTable
from overlane.reservation.rsvp.intserv import FlowSpec
from overlane.reservation.rsvp.objects import Sender, Session, Style

REQUESTS_MAX = 8192


@dataclass(slots=True)
class HopRequest:
    """What one next hop asks for."""

    flowspec: FlowSpec
    senders: tuple[Sender, ...]
    """Those that messages come from over this hop, of those that were named."""
    expires_ns: int
    confirmed: FlowSpec | None = None
    """What everything upstream has set aside."""
    is_blockaded: bool = False
    blockaded_until_ns: int = 0
    wants_confirmation: bool = False

    @property
    def effective(self) -> FlowSpec | None:
        """What it counts as upstream."""
        return self.confirmed if self.is_blockaded else self.flowspec


@dataclass(slots=True)
class Upstream:
    """What was asked of the broker before this one."""

    flowspec: FlowSpec
    senders: tuple[Sender, ...]
    is_confirmed: bool = False


class SessionState:
    """The reservations of one session, all of one style."""

    def __init__(self, style: Style) -> None:
        self.style = style
        self.requests: dict[tuple[Broker | None, Filters], HopRequest] = {}
        self.upstream: dict[tuple[Broker, Filters], Upstream] = {}

    def filters_of(self, senders: tuple[Sender, ...]) -> Filters:
        return senders if self.style is Style.FF else ()


class ResvTable:
    def __init__(self, paths: PathTable, ledgers: dict[Broker, LinkLedger]) -> None:
        self._paths = paths
        self._ledgers = ledgers
        self.sessions: dict[Session, SessionState] = {}
        self._count = 0
        """Requests of all sessions."""

    def __iter__(self) -> Iterator[tuple[Session, SessionState]]:
        return iter(list(self.sessions.items()))

    def __len__(self) -> int:
        return self._count

    def state_for(self, session: Session, style: Style) -> SessionState | None:
        """The state of a session for a request of this style; None if there are requests of another style."""
        state = self.sessions.get(session)
        if state is None or not (state.requests or state.upstream):
            state = self.sessions[session] = SessionState(style)
        return state if state.style is style else None

    def put(
        self,
        session: Session,
        hop: Broker | None,
        flowspec: FlowSpec,
        senders: tuple[Sender, ...],
        expires_ns: int,
    ) -> HopRequest | None:
        """Admit what a hop asks for, or change it; None if the link has not enough left."""
        state = self.sessions[session]
        filters = state.filters_of(senders)
        if hop is not None and not self._ledgers[hop].admit((session, filters), flowspec.rate):
            return None
        request = state.requests.get((hop, filters))
        if request is None:
            request = state.requests[hop, filters] = HopRequest(flowspec, senders, expires_ns)
            self._count += 1
        elif request.flowspec != flowspec or request.senders != senders:
            had = request.confirmed
            # Less than it had is confirmed already; of more, what it had stays if the rest is refused.
            request.flowspec, request.is_blockaded = flowspec, False
            if had is not None and covers(had, flowspec) and set(senders) <= set(request.senders):
                request.confirmed = flowspec
            request.senders = senders
        request.expires_ns = expires_ns
        return request

    def drop(self, session: Session, hop: Broker | None, filters: Filters) -> None:
        state = self.sessions.get(session)
        if state is None or state.requests.pop((hop, filters), None) is None:
            return
        self._count -= 1
        if hop is not None and hop in self._ledgers:
            self._ledgers[hop].release((session, filters))

    def prune(self, session: Session) -> None:
        """Drop what is asked of senders whose messages no longer come over the hop that asks."""
        state = self.sessions.get(session)
        if state is None:
            return
        for (hop, filters), request in list(state.requests.items()):
            serving = self._paths.serving(session, hop)
            if state.style is Style.WF:
                request.senders = tuple(serving)
            else:
                request.senders = tuple(sender for sender in request.senders if sender in serving)
            if not request.senders:
                self.drop(session, hop, filters)

    def wanted(self, session: Session) -> dict[tuple[Broker, Filters], Upstream]:
        """What is to be asked upstream: by previous hop, the merged requests for the senders behind it."""
        state = self.sessions[session]
        by_hop: dict[tuple[Broker, Filters], tuple[list[FlowSpec], set[Sender]]] = {}
        for request in state.requests.values():
            flowspec = request.effective
            if flowspec is None:
                continue
            for sender in request.senders:
                entry = self._paths.get(session, sender)
                if entry is None or entry.previous is None:
                    continue
                key = entry.previous, state.filters_of((sender,))
                flowspecs, senders = by_hop.setdefault(key, ([], set()))
                flowspecs.append(flowspec)
                senders.add(sender)
        return {
            key: Upstream(merged(flowspecs), tuple(sorted(senders)))
            for key, (flowspecs, senders) in sorted(by_hop.items())
        }

    def is_covered(self, session: Session, request: HopRequest) -> bool:
        """Whether everything upstream of a request has set aside what it asks for."""
        state = self.sessions[session]
        for sender in request.senders:
            entry = self._paths.get(session, sender)
            if entry is None:
                return False
            if entry.previous is None:
                continue
            upstream = state.upstream.get((entry.previous, state.filters_of((sender,))))
            if upstream is None or not upstream.is_confirmed or sender not in upstream.senders:
                return False
            if not covers(upstream.flowspec, request.flowspec):
                return False
        return True

    def forget_empty(self, session: Session) -> None:
        state = self.sessions.get(session)
        if state is not None and not state.requests and not state.upstream:
            del self.sessions[session]
