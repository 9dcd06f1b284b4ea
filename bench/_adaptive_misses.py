"""Why messages were missed: whether any path would have been in time, and whether the source could have known.

A change (a burst of loss begins, a link becomes slower) is known to no broker before something sent over the link is
overdue, which takes the link's round trip, and to the source later by the latency of the way back. Messages that were
published until then, or were in transit when the change happened, can only be saved by existing redundancy.

    no way   no path was in time at that moment, by the true latencies
    onset    published before the source could know of a change on the route that was in use when the change came
    later    at any other time: a known fault, or one that the route met by moving into it

If links lose, a message may be missed without any of that: each copy and each retransmission was lost.
"""

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from _adaptive_scenarios import Latencies, Scenario
from overlane.core.units import SECOND, Nanos
from overlane.network import Lossy, Slow
from overlane.sim.judge import Judge
from overlane.sim.report import RouteChange

LOOK_BACK: Nanos = 2 * SECOND
"""A change is known everywhere after less than that."""


@dataclass
class Change:
    at_ns: Nanos
    before: Latencies
    after: Latencies
    touched: set[tuple[int, int]] = field(default_factory=set)
    """Links that became slower, or began to lose."""


def profile(judge: Judge, setting: Scenario, moves: tuple[RouteChange, ...]) -> dict[str, int]:
    """Missed messages by reason."""
    network = setting.calm
    place = {broker.name: at for at, broker in enumerate(network.brokers)}
    found = changes(setting, place)
    reasons = {}
    for publisher, subscriber, topic in zip(network.publishers, network.subscribers, network.topics, strict=True):
        routes = [
            (int(move.time_s * SECOND), {(place[one], place[other]) for one, other in move.links})
            for move in moves
            if topic.filter in move.topics and move.source == publisher.broker
        ]
        ends = place[publisher.broker], place[subscriber.broker]
        reasons[publisher.topic] = _Flow(*ends, topic.deadline_ns or 0, routes, found)
    missed = [*judge.lost(), *judge.late()]
    return dict(Counter(reasons[message.topic].reason(message.published_at) for message in missed))


def changes(setting: Scenario, place: dict[str, int]) -> list[Change]:
    """All that happens to the links, after a first entry that is how they begin."""
    now = np.zeros((len(place), len(place)))
    for link in setting.calm.links:
        one, other = (place[end] for end in link.ends)
        now[one, other] = now[other, one] = link.latency_ns
    found = [Change(0, now, now.copy())]
    for event in setting.network.events:
        if not isinstance(event, Slow | Lossy):
            continue
        if event.at_ns != found[-1].at_ns:
            found.append(Change(event.at_ns, found[-1].after, found[-1].after.copy()))
        change = found[-1]
        one, other = (place[end] for end in event.ends)
        if isinstance(event, Slow):
            change.after[one, other] = change.after[other, one] = event.latency_ns
        if isinstance(event, Lossy) or event.latency_ns > change.before[one, other]:
            change.touched |= {(one, other), (other, one)}
    return found


class _Flow:
    def __init__(
        self,
        source: int,
        destination: int,
        deadline_ns: Nanos,
        routes: list[tuple[Nanos, set[tuple[int, int]]]],
        found: list[Change],
    ) -> None:
        self._deadline_ns = deadline_ns
        self._times = [change.at_ns for change in found]
        self._in_time = [_from(source, change.after)[destination] <= deadline_ns for change in found]
        self._known = [_known_at(change, source, routes) for change in found]

    def reason(self, at: Nanos) -> str:
        last = bisect_right(self._times, at) - 1
        if not self._in_time[last]:
            return "no way"
        first = bisect_right(self._times, at - LOOK_BACK)
        until = bisect_right(self._times, at + self._deadline_ns)
        return "onset" if any(at < self._known[index] for index in range(first, until)) else "later"


def _known_at(change: Change, source: int, routes: list[tuple[Nanos, set[tuple[int, int]]]]) -> Nanos:
    """When the source can know that the route it uses is touched; at once if it is not."""
    links = next((links for at, links in reversed(routes) if at <= change.at_ns), set())
    back = _from(source, change.before)
    delays = [2 * change.before[link] + back[link[0]] for link in links & change.touched]
    return change.at_ns + int(min(delays, default=0))


def _from(source: int, latencies: Latencies) -> Latencies:
    distances: Latencies = dijkstra(csr_array(latencies), directed=False)
    row: Latencies = distances[source]
    return row
