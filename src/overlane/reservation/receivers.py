"""The subscribers of this broker that asked for a reservation: what each needs of the network, and what became of it.

A request waits until everything upstream has confirmed it (admitted), or until it is known that this will not be, or
the time for an answer has passed (refused, and forgotten). When the path of an admitted one is lost, it waits again for
another.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from overlane.planning.reserve import RSpec, least_of
from overlane.reservation.contract import Ask, Link, ReservationRefused
from overlane.reservation.flowspecs import bound_s, merged, request_for
from overlane.reservation.path_state import PathEntry
from overlane.reservation.rsvp.intserv import FlowSpec, float_down
from overlane.reservation.rsvp.objects import Sender, Session, Style, session_of

REQUESTS_MAX = 4096


@dataclass(slots=True)
class Asked:
    ask: Ask
    session: Session
    deadline_ns: int
    is_admitted: bool = False
    bottleneck: Link | None = None
    reason: str = ""


class Receivers:
    def __init__(self) -> None:
        self.asked: dict[str, Asked] = {}
        self.pending: dict[str, Asked] = {}
        """Those that are not admitted, or not any more."""
        self._by_session: dict[Session, dict[str, Asked]] = {}

    def of(self, session: Session) -> list[Asked]:
        return list(self._by_session.get(session, {}).values())

    def style_of(self, session: Session) -> Style | None:
        return next((one.ask.style for one in self.of(session)), None)

    def add(self, ask: Ask, deadline_ns: int) -> Session:
        self.remove(ask.request)
        session = session_of(ask.topic_filter)
        asked = self.asked[ask.request] = self.pending[ask.request] = Asked(ask, session, deadline_ns)
        self._by_session.setdefault(session, {})[ask.request] = asked
        return session

    def remove(self, request: str) -> Session | None:
        asked = self.asked.pop(request, None)
        if asked is None:
            return None
        self.pending.pop(request, None)
        others = self._by_session[asked.session]
        del others[request]
        if not others:
            del self._by_session[asked.session]
        return asked.session

    def next_deadline(self) -> int | None:
        return min((asked.deadline_ns for asked in self.pending.values()), default=None)

    def admit(self, asked: Asked) -> None:
        asked.is_admitted, asked.bottleneck, asked.reason = True, None, ""
        self.pending.pop(asked.ask.request, None)

    def interrupt(self, asked: Asked, deadline_ns: int) -> None:
        asked.is_admitted, asked.deadline_ns = False, deadline_ns
        self.pending[asked.ask.request] = asked


def needs(asked: Asked, serving: Mapping[Sender, PathEntry]) -> dict[Sender, FlowSpec]:
    """What a request needs of the paths from each sender. Raises `NoSolution` if one of them is too slow."""
    ask = asked.ask
    return {
        sender: request_for(entry.tspec, ask.tspec, ask.latency_s, entry.adspec) for sender, entry in serving.items()
    }


def local_requests(
    asked: list[Asked], serving: Mapping[Sender, PathEntry], style: Style
) -> dict[tuple[Sender, ...], tuple[FlowSpec, tuple[Sender, ...]]]:
    """What all requests of a session need together, by filters: the flowspec, and its senders."""
    by_sender: dict[Sender, list[FlowSpec]] = {}
    for one in asked:
        for sender, flowspec in needs(one, serving).items():
            by_sender.setdefault(sender, []).append(flowspec)
    if not by_sender:
        return {}
    if style is Style.FF:
        return {(sender,): (merged(flowspecs), (sender,)) for sender, flowspecs in by_sender.items()}
    everything = merged(flowspec for flowspecs in by_sender.values() for flowspec in flowspecs)
    return {(): (everything, tuple(serving))}


def refusal(asked: Asked, serving: Mapping[Sender, PathEntry], reason: str) -> ReservationRefused:
    """With the nearest that the present paths could have given."""
    rates = [entry.adspec.bandwidth for entry in serving.values() if math.isfinite(entry.adspec.bandwidth)]
    nearest_rate = min(rates, default=None)
    return ReservationRefused(
        asked.ask.request, reason, asked.bottleneck, nearest_rate, _nearest_latency(asked, serving)
    )


def _nearest_latency(asked: Asked, serving: Mapping[Sender, PathEntry]) -> float | None:
    """The bound if everything that was left on the path were reserved; of several senders the longest."""
    if asked.ask.latency_s is None:
        return None
    found = []
    for entry in serving.values():
        tspec = least_of(entry.tspec, asked.ask.tspec)
        rate = float_down(min(entry.adspec.bandwidth, 1e12))
        if rate < tspec.rate:
            return None
        bound = bound_s(FlowSpec(tspec, RSpec(rate, 0.0)), entry.adspec)
        found.append(math.inf if bound is None else bound)
    return max(found, default=None)
