"""Link risks: the probability that a message does not pass a link in time, estimated from the map.

Hops repair what they have time for, so the same loss matters to a class with little slack and not to one with much. A
claim describes the past of a link. The rest is inferred:

  burst          loss is measured while it grows: a link in trouble is taken for no better than a bad burst
  stricken       if a link of a broker begins to lose or falls silent, its others often do too: until they have been
  broker         probed they are doubtful, unless the trouble is more likely at the other end
  unsettled      after recent trouble, more may begin anywhere; it counts if there is no time for repair. If the latency
                 of one link in ten rose lately, that of any other may rise as much
  history        a link that is often down is not relied on alone, however good it is now
"""

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass
from functools import lru_cache

from overlane.core.gossip.network_map import MAPS_KEPT, MILLION, NetworkMap
from overlane.core.links.hop_acknowledgements import HOP_ACK_DELAY
from overlane.core.links.link_health import TROUBLE_LOSS
from overlane.core.qos import Routing
from overlane.core.units import MS, US, Nanos
from overlane.core.wire.control_messages import LinkClaim

Link = tuple[str, str]

LOSS_MIN = 0.01
"""Less loss than this is left to hop-by-hop repair."""
LOSES_MIN = 0.05
"""Less than this may be the memory of loss that has ended."""
TROUBLE_MIN = 0.0005
BURST_LOSS = 0.25
SUSPECT_RISK = 0.9999
"""A link is called suspect when it is nearly certain that it passes nothing, or nothing in time."""
SUSPECT_AMID_LOSS_RISK = 0.5
"""The same where it or another link of its brokers loses: it may have lost a few probes in a row."""
STRICKEN_LOSS = 0.05
UNREPAIRED_RISK = 0.02
"""How likely a message fails where trouble may begin at once and leaves no time for a repair: on a link whose latency
lately rose by a good part of the slack, and on one too slow to be sent over again while the map is unsettled."""
OFTEN_DOWN = 0.01
"""A link that is down more than this part of the time is at risk at any time."""
SWING_RATIO = 3
"""By how much more than other links lately the latency of a link may rise. That it rose itself says no more: measured
links that did are no likelier to rise again than others are."""
UNSETTLED_SHARE = 10
"""Of so many links one must have risen in latency lately, and never one alone, for the others to be expected to."""
RETRIES_MAX = 6
PROMPT_SLACK: Nanos = 150 * MS
"""With less slack than this, hop acknowledgements are requested at once, so that there is time for a repair."""


@dataclass(frozen=True, slots=True)
class Caution:
    """How much redundancy a kind of routing uses against risks."""

    target: float
    """Where a link of the quickest path loses, redundancy is added until messages arrive in time so likely."""
    target_silent: float
    """The same where none does, but one is silent."""
    gain_min: float
    """A way around must add this much to the probability of arrival, one more so much for each of its links."""
    gain_silent: float
    """The same where no link of the quickest path loses."""
    standing: int
    """How many paths stand where trouble has not begun, but may; 1 if that does not count."""
    shared: float = 0.0
    """How likely all that passes a broker fails at once, where one of its links is in trouble or may get into it."""


CAUTION = {
    Routing.ADAPTIVE: Caution(0.9999, 0.99, 0.0001, 0.001, 2, 0.01),
    Routing.THRIFTY: Caution(0.85, 0.85, 0.05, 0.05, 1),
}


class Risks:
    def __init__(self, network_map: NetworkMap, unsettled: bool = False, fresh: Set[Link] | None = None) -> None:
        """`unsettled`: there was loss somewhere lately. `fresh`: links whose trouble began just now; None: all."""
        signs = _signs(network_map)
        self._map = network_map
        self._unsettled = unsettled
        self._losing = signs.losing
        self._noted = signs.noted
        self._swing_us = signs.swing_us
        bad = signs.in_trouble
        self._stricken = _stricken(bad if fresh is None else [link for link in bad if link in fresh])

    @property
    def links(self) -> Set[Link]:
        """All links of the map."""
        return self._map.claims.keys()

    def knows(self, link: Link) -> bool:
        return link in self._map.claims

    def loses(self, link: Link, slack_ns: Nanos) -> bool:
        """Whether a link, or another of one of its brokers, loses now, and there is no time to repair it."""
        claim = self._map.claims.get(link)
        lossy = claim is not None and claim.loss_millionths >= LOSES_MIN * MILLION and link not in self._map.suspects
        return (lossy or not self._losing.isdisjoint(link)) and self.failing_now(link, slack_ns) > 0

    def at_risk(self, links: Set[Link]) -> Set[Link]:
        """Those of the links of a map that may fail a message; of the others `failing` is 0, whatever the slack."""
        if self._unsettled or self._swing_us:
            return links
        found = links & self._noted
        if self._stricken:
            found |= {link for link in links if not self._stricken.isdisjoint(link)}
        return found

    def failing(self, link: Link, slack_ns: Nanos, caution: Caution) -> float:
        """How likely a message fails on a link, where the way over it leaves so much slack; 0 if hardly ever."""
        failing = self.failing_now(link, slack_ns)
        if caution.standing > 1 and self.knows(link) and self._may_begin(link, slack_ns):
            failing = max(failing, UNREPAIRED_RISK)
        if caution.standing > 1 and self.is_often_down(link):
            failing = max(failing, self._map.failure(link))
        return failing

    def is_often_down(self, link: Link) -> bool:
        """Whether it is often down, by its history."""
        return self._map.failure(link) >= OFTEN_DOWN

    def failing_now(self, link: Link, slack_ns: Nanos) -> float:
        """The same by present and recent trouble only, without expected trouble."""
        claim = self._map.claims.get(link)
        if claim is None:
            return 1.0
        if link in self._map.suspects:
            return SUSPECT_RISK if self._losing.isdisjoint(link) else SUSPECT_AMID_LOSS_RISK
        loss = claim.loss_millionths / MILLION
        if not self._stricken.isdisjoint(link):
            loss = max(loss, STRICKEN_LOSS)
        return _unrepaired(claim, loss, slack_ns)

    def swings(self, link: Link, slack_ns: Nanos) -> bool:
        """Whether its latency may rise beyond the slack, by what it or others lately did."""
        claim = self._map.claims.get(link)
        return claim is not None and max(claim.swing_us, SWING_RATIO * self._swing_us) * US > max(0, slack_ns)

    def _may_begin(self, link: Link, slack_ns: Nanos) -> bool:
        if self.swings(link, slack_ns):
            return True
        return self._unsettled and slack_ns < _retry_ns(self._map.claims[link], slack_ns)

    def missing(self, link: Link, slack_ns: Nanos) -> float:
        """The probability that a link takes longer than on the map, and too long."""
        claim = self._map.claims.get(link)
        if claim is None or slack_ns < 0:
            return 1.0
        doubt_ns = max(1000, claim.latency_us // 5) * US
        return max(0.0, 0.5 * (1 - slack_ns / doubt_ns))


@dataclass(frozen=True, slots=True)
class _Signs:
    """What follows from a map alone; brokers with the same map share it."""

    losing: Set[str]
    """Brokers with a link that loses."""
    swing_us: int
    in_trouble: list[Link]
    noted: Set[Link]
    """Links that are suspect, lose, are often down, or whose latency rose lately."""


@lru_cache(MAPS_KEPT)
def _signs(network_map: NetworkMap) -> _Signs:
    losing = {
        broker for link, claim in network_map.claims.items() if claim.loss_millionths >= TROUBLE_LOSS for broker in link
    }
    return _Signs(losing, _usual_swing_us(network_map), _in_trouble(network_map), _noted(network_map))


def in_trouble(network_map: NetworkMap) -> list[Link]:
    """The links that lose now, or are suspect."""
    return _signs(network_map).in_trouble


def _in_trouble(network_map: NetworkMap) -> list[Link]:
    return [
        link
        for link, claim in network_map.claims.items()
        if claim.loss_millionths >= TROUBLE_LOSS or link in network_map.suspects
    ]


def _noted(network_map: NetworkMap) -> Set[Link]:
    return {
        link
        for link, claim in network_map.claims.items()
        if claim.loss_millionths >= LOSS_MIN * MILLION or claim.swing_us or network_map.failure(link) >= OFTEN_DOWN
    }.union(network_map.suspects)


def _stricken(bad: list[Link]) -> set[str]:
    """Brokers that have a link in trouble, unless the broker at its other end has more of them."""
    count = Counter(broker for link in bad for broker in link)
    return {broker for link in bad for broker in link if count[broker] == max(count[end] for end in link)}


def _usual_swing_us(network_map: NetworkMap) -> int:
    """The rise in latency that one link in ten has lately seen."""
    swings: dict[Link, int] = {}
    for (one, other), claim in network_map.claims.items():
        link = (one, other) if one < other else (other, one)
        swings[link] = max(claim.swing_us, swings.get(link, 0))
    rank = max(1, len(swings) // UNSETTLED_SHARE)
    return sorted(swings.values(), reverse=True)[rank] if rank < len(swings) else 0


def _unrepaired(claim: LinkClaim, loss: float, slack_ns: Nanos) -> float:
    if loss < LOSS_MIN:
        return 0.0
    if claim.loss_millionths >= TROUBLE_LOSS:
        loss = max(loss, BURST_LOSS)
    retries = max(0, min(RETRIES_MAX, slack_ns // (2 * _retry_ns(claim, slack_ns))))
    failing = loss ** (1 + retries)
    return failing if failing >= TROUBLE_MIN else 0.0


def _retry_ns(claim: LinkClaim, slack_ns: Nanos) -> Nanos:
    """How long it takes until a parcel that was lost on this link arrives after repair."""
    retry_ns = 2 * claim.latency_us * US + 4 * claim.jitter_us * US + 5 * MS
    return retry_ns + HOP_ACK_DELAY if slack_ns >= PROMPT_SLACK else retry_ns
