"""Direct links: extra links from an edge to other edges, while a deadline is at risk through the routing tier.

The publishing edge decides: it alone knows both the deadlines of what it sends and how long the paths over routing
brokers take, as their links measure it and as confirmations show it (path_latency.py).

    idle -- at risk for RISK_FOR --> wanted -- the link is up --> open
    wanted -- not up after OPEN_WITHIN --> barred: that is told, and the link is wanted again after BARRED_FOR at most
    open -- safe for SAFE_FOR --> idle
    open -- not quicker than the tier for SAFE_FOR --> barred

A destination is *at risk* while the quickest path over the tier takes longer than the deadline, or there is none. It is
*safe* while that path takes at most SAFE_PART of the deadline, or nothing with a deadline is sent there. Between the
two nothing changes. At most LINKS_MAX links are wanted at once. Where more are at risk, those with the least deadline
for their path come first, and none of them takes the place of a link that is wanted already.

Nothing here reads a clock, opens links or knows addresses: an edge that cannot be dialled is one whose link does not
come up.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from overlane.core.units import MS, NEVER, SECOND, Nanos

RISK_FOR: Nanos = 500 * MS
OPEN_WITHIN: Nanos = 10 * SECOND
SAFE_FOR: Nanos = 30 * SECOND
SAFE_PART = 4, 5
BARRED_FOR: Nanos = 60 * SECOND
BARRED_FOR_MAX: Nanos = 3600 * SECOND
"""Each time that a link has been of no use, it is barred for twice as long."""
LINKS_MAX = 8


class Traffic(NamedTuple):
    """What is sent to one destination with a deadline."""

    deadline_ns: Nanos
    """The shortest."""
    tier_ns: Nanos
    """How long the quickest path over a routing broker takes; NEVER if there is none."""
    direct_ns: Nanos = NEVER
    """How long the direct link takes; NEVER if it is not up."""

    @property
    def is_at_risk(self) -> bool:
        return self.tier_ns > self.deadline_ns

    @property
    def is_safe(self) -> bool:
        return self.tier_ns * SAFE_PART[1] <= self.deadline_ns * SAFE_PART[0]


class DirectLinkState(Enum):
    IDLE = "idle"
    WANTED = "wanted"
    OPEN = "open"
    BARRED = "barred"


class Barred(NamedTuple):
    """A direct link is given up for a while."""

    peer: str
    reason: str


NOT_UP = "the link did not come up; perhaps the broker cannot be dialled"
NOT_QUICKER = "the link is not quicker than the path over the routing tier"


@dataclass(slots=True)
class _Link:
    state: DirectLinkState = DirectLinkState.IDLE
    since: Nanos = 0
    """When the state began; in IDLE, when the risk did."""
    turn_since: Nanos = NEVER
    """Since when there has been a reason to close the link."""
    failures: int = 0


class DirectLinks:
    def __init__(self) -> None:
        self._links: dict[str, _Link] = {}
        self.wake_at: Nanos = NEVER
        """When to review although no traffic has changed."""

    def wanted(self) -> tuple[str, ...]:
        return tuple(
            sorted(
                name
                for name, link in self._links.items()
                if link.state in (DirectLinkState.WANTED, DirectLinkState.OPEN)
            )
        )

    def state_of(self, peer: str) -> DirectLinkState:
        link = self._links.get(peer)
        return DirectLinkState.IDLE if link is None else link.state

    def review(self, traffic: Mapping[str, Traffic], now: Nanos) -> list[Barred]:
        """Follow what is sent now, by destination; which links are given up. `wanted` tells the others."""
        self.wake_at = NEVER
        barred: list[Barred] = []
        for peer in list(self._links):
            reason = self._follow(self._links[peer], traffic.get(peer), now)
            if reason:
                barred.append(Barred(peer, reason))
            if self._links[peer].state is DirectLinkState.IDLE and not self._is_at_risk(peer, traffic):
                del self._links[peer]
        self._open_some(traffic, now)
        return barred

    @staticmethod
    def _is_at_risk(peer: str, traffic: Mapping[str, Traffic]) -> bool:
        found = traffic.get(peer)
        return found is not None and found.is_at_risk

    def _follow(self, link: _Link, traffic: Traffic | None, now: Nanos) -> str:
        """Why the link is given up for a while, if it is."""
        is_up = traffic is not None and traffic.direct_ns < NEVER
        if link.state is DirectLinkState.BARRED and self._wait_for(link.since, _barred_for(link), now):
            link.state, link.since = DirectLinkState.IDLE, now
        if link.state is DirectLinkState.WANTED and is_up:
            link.state, link.since, link.turn_since = DirectLinkState.OPEN, now, NEVER
        elif link.state is DirectLinkState.OPEN and traffic is not None and not is_up:
            link.state, link.since, link.turn_since = DirectLinkState.WANTED, now, NEVER
        if link.state is DirectLinkState.WANTED and traffic is None:
            link.state, link.since = DirectLinkState.IDLE, now
        if link.state is DirectLinkState.WANTED and self._wait_for(link.since, OPEN_WITHIN, now):
            return self._bar(link, NOT_UP, now)
        if link.state not in (DirectLinkState.WANTED, DirectLinkState.OPEN):
            return ""
        is_useless = traffic is not None and is_up and traffic.direct_ns >= traffic.tier_ns
        if traffic is not None and not traffic.is_safe and not is_useless:
            link.turn_since = NEVER
            return ""
        if link.turn_since == NEVER:
            link.turn_since = now
        if not self._wait_for(link.turn_since, SAFE_FOR, now):
            return ""
        if is_useless and traffic is not None and not traffic.is_safe:
            return self._bar(link, NOT_QUICKER, now)
        link.state, link.since, link.failures = DirectLinkState.IDLE, now, 0
        return ""

    def _bar(self, link: _Link, reason: str, now: Nanos) -> str:
        link.state, link.since = DirectLinkState.BARRED, now
        link.failures += 1
        self._wait_for(link.since, _barred_for(link), now)
        return reason

    def _open_some(self, traffic: Mapping[str, Traffic], now: Nanos) -> None:
        room = LINKS_MAX - len(self.wanted())
        at_risk = [name for name in traffic if traffic[name].is_at_risk]
        for peer in sorted(at_risk, key=lambda name: (traffic[name].deadline_ns / traffic[name].tier_ns, name)):
            link = self._links.get(peer)
            if link is None:
                link = self._links[peer] = _Link(since=now)
            if link.state is DirectLinkState.IDLE and self._wait_for(link.since, RISK_FOR, now) and room > 0:
                link.state, link.since, link.turn_since = DirectLinkState.WANTED, now, NEVER
                self._wait_for(now, OPEN_WITHIN, now)
                room -= 1

    def _wait_for(self, since: Nanos, span: Nanos, now: Nanos) -> bool:
        """Whether a span of time has passed; if not, this is looked at again when it has."""
        if now >= since + span:
            return True
        self.wake_at = min(self.wake_at, since + span)
        return False


def _barred_for(link: _Link) -> Nanos:
    return min(BARRED_FOR_MAX, BARRED_FOR << min(link.failures, 16) - 1)
