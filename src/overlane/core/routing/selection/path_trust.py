"""Path trust: whether what this source sends arrives, confirmed by the destinations.

A broker on a path can answer every ping and acknowledge every parcel hop by hop, and forward nothing. Only the
destination knows. So some parcels of each route request an end-to-end confirmation, which returns on the reverse of the
path that the parcel took.

  sample      a parcel that requests a confirmation. It is missed if none comes within a timeout that follows from the
              path's latency and from how long confirmations took; a later confirmation takes that back
  trail       the evidence about one path of one route: Page's test (CUSUM) of its samples, against the hypothesis that
              fewer than half of what the map's loss promises arrive. What the map explains (a suspect or lost link)
              does not count
  doubt       samples are missed: more follow, and a copy of each takes another path
  suspicion   the test has decided, for at least two seconds, while the same destination confirmed copies of the same
              route over another path. Without that contrast nobody is blamed: it may be the destination itself.
              Suspected are the links onward from brokers in between that are on the path and on none that works; for
              this route alone if other routes pass them. The planner avoids them if there is another path. Where
              parcels come to a last hop by several ways, answers return over one of them: what only that one
              has must work, or the blame is open
  probation   after a back-off that doubles with every relapse, copies of samples take the suspected path beside the
              trusted one. Enough confirmations in a row end the suspicion, one miss renews it

The first link of a path is this broker's own and is never suspected. Suspicions are not passed on to others: a liar
could accuse. What confirmations tell about a path's latency is in path_latency.py.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise
from math import log

from overlane.core.events import PathSuspected, PathTrusted
from overlane.core.gossip.link_state import LinkStateTable
from overlane.core.gossip.network_map import MILLION, NetworkMap
from overlane.core.routing.route import Route
from overlane.core.routing.selection.believed_maps import AVOIDED_US
from overlane.core.routing.selection.path_latency import PathLatency
from overlane.core.units import MS, NEVER, SECOND, US, Nanos

Link = tuple[str, str]
Path = tuple[str, ...]
"""Brokers, from this one to a destination."""

SAMPLE_EVERY: Nanos = 1 * SECOND
SAMPLE_IN_DOUBT: Nanos = 200 * MS
SAMPLE_SHARE = 8
"""A route to more destinations than this is sampled less often, because each answers."""
FRESH_SAMPLES = 3
"""The first samples of a new path are sent as frequently as in doubt."""
MARGIN: Nanos = 300 * MS
REMEMBERED: Nanos = 30 * SECOND
"""How long after a sample was sent a late confirmation still counts."""
SAMPLES_MAX = 4096
TRAILS_MAX = 4096
TRAIL_IDLE: Nanos = 120 * SECOND
WORKS = 0.9
"""A working path confirms this share of its samples, if its links claim no loss; a broken one half of it."""
DECIDED = 6.0
"""The logarithm of how much likelier the evidence is if the path does not work: four samples missed in a row."""
DECIDED_AFTER: Nanos = 2 * SECOND
"""Longer than the detection of a failed link takes."""
CONTRAST = 2
"""Samples that another path must confirm meanwhile."""
REGAINED = 5
"""Confirmations in a row that end a suspicion."""
BACKOFF_MIN: Nanos = 30 * SECOND
BACKOFF_MAX: Nanos = 3600 * SECOND


def onward_links(path: Path) -> frozenset[Link]:
    """The links of a path over which brokers in between forward."""
    return frozenset(pairwise(path[1:]))


@dataclass(slots=True)
class Trail:
    route: int
    path: Path
    links: frozenset[Link]
    """The links that it is evidence about."""
    score: float = 0.0
    bad_since: Nanos = NEVER
    """When the first sample was sent that counts against it."""
    confirmed: deque[Nanos] = field(default_factory=lambda: deque(maxlen=8))
    """When the samples that were confirmed last had been sent."""
    streak: int = 0
    """Confirmations since the last sample that was missed, and when the first of those samples was sent."""
    streak_since: Nanos = NEVER
    round_trip_ns: Nanos = 0
    variation_ns: Nanos = 0
    used_ns: Nanos = 0

    def works_since(self, when: Nanos) -> bool:
        return not self.score and sum(sent_ns >= when for sent_ns in self.confirmed) >= CONTRAST

    def hit(self, sent_ns: Nanos) -> None:
        self.score = max(0.0, self.score + log(0.5))
        if not self.score:
            self.bad_since = NEVER
        if not self.streak:
            self.streak_since = sent_ns
        self.streak += 1
        self.confirmed.append(sent_ns)

    def missed(self, weight: float, sent_ns: Nanos) -> None:
        self.score += weight
        self.bad_since = min(self.bad_since, sent_ns)
        self.streak = 0

    def measure(self, sample_ns: Nanos) -> None:
        """As TCP does (RFC 6298)."""
        if not self.round_trip_ns:
            self.round_trip_ns, self.variation_ns = sample_ns, sample_ns >> 1
        self.variation_ns += (abs(sample_ns - self.round_trip_ns) - self.variation_ns) >> 2
        self.round_trip_ns += (sample_ns - self.round_trip_ns) >> 3


@dataclass(slots=True)
class Sample:
    """A parcel that requested a confirmation, by destination and last hop."""

    sent_ns: Nanos
    age_us: int
    label: str
    awaited: dict[tuple[str, str], Trail]
    missed: dict[tuple[str, str], float] = field(default_factory=dict)
    """What each that was missed counted."""


@dataclass(slots=True)
class Suspicion:
    path: Path
    """The path that did not work."""
    links: frozenset[Link]
    routes: set[int] | None
    """None: every route avoids them."""
    since: Nanos
    strikes: int
    retry_at: Nanos
    incarnations: dict[str, int]
    """Incarnations of the brokers in question: a new incarnation is tried again."""

    @property
    def hops(self) -> tuple[str, ...]:
        return tuple(sorted({hop for hop, _ in self.links}))


class PathTrust:
    """It is the experience of the route planner."""

    def __init__(self, me: str, table: LinkStateTable) -> None:
        self._me = me
        self._table = table
        self.latency = PathLatency()
        self.suspicions: list[Suspicion] = []
        self.episodes = 0
        self.missed = 0
        """Samples that were not confirmed in time."""
        self._effects: list[PathSuspected | PathTrusted] = []
        self.wake_at: Nanos = NEVER
        self._news = 0
        self._trails: dict[tuple[int, Path], Trail] = {}
        self._samples: dict[int, Sample] = {}
        self._due: list[tuple[Nanos, int, str, str]] = []
        self._strikes: dict[Link, int] = {}
        self._strands: dict[int, tuple[int, dict[tuple[str, str], tuple[Path, frozenset[Link]]]]] = {}
        self._others: dict[Path, Path | None] = {}
        self._others_of = (-1, -1)

    @property
    def changes(self) -> int:
        return self._news + self.latency.changes

    @property
    def suspected(self) -> int:
        """How many links some route avoids."""
        return len({link for one in self.suspicions for link in one.links})

    @property
    def extra_us(self) -> Mapping[Link, int]:
        return self.latency.extra_us

    def avoided(self, route: int) -> frozenset[Link]:
        if not self.suspicions:
            return frozenset()
        return frozenset(
            link for one in self.suspicions if one.routes is None or route in one.routes for link in one.links
        )

    # Samples

    def sent(self, route: Route, number: int, age_us: int, now: Nanos) -> None:
        """A parcel with this number was sent along a route and requests a confirmation."""
        found = self._strands.get(route.id)
        if found is None or found[0] != route.version:
            found = self._strands[route.id] = route.version, _strands(self._me, route)
        trails = {ends: self._trail(route.id, path, links) for ends, (path, links) in found[1].items()}
        self._ask(number, Sample(now, age_us, route.qos.label, trails), now)
        is_pressing = any(trail.score or len(trail.confirmed) < FRESH_SAMPLES for trail in trails.values())
        is_pressing |= any(one.retry_at <= now for one in self._probed_by(route))
        share = 1 + len(route.destinations) // SAMPLE_SHARE
        route.sample_at = now + (SAMPLE_IN_DOUBT if is_pressing else SAMPLE_EVERY) * share

    def copied(self, route: int, path: Path, number: int, age_us: int, label: str, now: Nanos) -> None:
        """A parcel was sent along a path of its own, beside its route or again, and requests a confirmation."""
        trail = self._trail(route, path, onward_links(path))
        self._ask(number, Sample(now, age_us, label, {(path[-1], path[-2]): trail}), now)

    def copies(self, route: Route, now: Nanos) -> list[Path]:
        """The paths over which a copy of a sample on this route is to be sent."""
        paths: dict[Path, None] = {}
        found = self._strands.get(route.id)
        for path, _ in found[1].values() if found is not None else ():
            trail = self._trails.get((route.id, path))
            if trail is None or not trail.score or self._contrast(trail):
                continue
            if (other := self.other_path(path)) is not None:
                paths[other] = None
        for one in self._probed_by(route):
            if one.retry_at <= now and _is_sound(self._table.map, one.path):
                paths[one.path] = None
        return list(paths)

    def other_path(self, path: Path) -> Path | None:
        """The quickest path to the same destination that shares as little with this one as possible: no suspect."""
        if self._others_of != (self._table.changes, self._news):
            self._others_of, self._others = (self._table.changes, self._news), {}
        if path not in self._others:
            suspects = {link for one in self.suspicions for link in one.links}
            avoided = suspects.union(pairwise(path))
            found = self._table.map.slowed(dict.fromkeys(avoided, AVOIDED_US)).quickest_path(self._me, path[-1])
            is_other = found is not None and found[0] != path and suspects.isdisjoint(pairwise(found[0]))
            self._others[path] = found[0] if found is not None and is_other else None
        return self._others[path]

    def withdraw(self, numbers: Iterable[int]) -> None:
        """These samples were not sent."""
        for number in numbers:
            self._samples.pop(number, None)
        self._set_wake()

    def _probed_by(self, route: Route) -> Iterable[Suspicion]:
        return (
            one
            for one in self.suspicions
            if one.path[-1] in route.destinations and (one.routes is None or route.id in one.routes)
        )

    def _trail(self, route: int, path: Path, links: frozenset[Link]) -> Trail:
        trail = self._trails.get((route, path))
        if trail is None:
            if len(self._trails) >= TRAILS_MAX:
                del self._trails[next(iter(self._trails))]
            trail = self._trails[route, path] = Trail(route, path, links)
        return trail

    def _ask(self, number: int, sample: Sample, now: Nanos) -> None:
        if len(self._samples) >= SAMPLES_MAX:
            del self._samples[next(iter(self._samples))]
        self._samples[number] = sample
        for (destination, hop), trail in sample.awaited.items():
            trail.used_ns = now
            there_ns, back_ns = self._latency(trail.path, sample.label)
            wait_ns = max(there_ns + back_ns, trail.round_trip_ns + 4 * trail.variation_ns) + MARGIN
            heappush(self._due, (now + wait_ns, number, destination, hop))
        self._set_wake()

    def _latency(self, path: Path, label: str) -> tuple[Nanos, Nanos]:
        """Along a path and back, as its brokers claim."""
        network_map = self._table.map
        claims = network_map.claims
        there = sum(
            claims[link].latency_us * US + network_map.processing_ns(link[1], label)
            for link in pairwise(path)
            if link in claims
        )
        back = sum(claims[link].latency_us * US for link in pairwise(reversed(path)) if link in claims)
        return there, back

    # Evidence

    def confirmed(self, number: int, destination: str, hop: str, age_us: int, now: Nanos) -> None:
        """A destination confirmed a sample: the last hop, and the age on arrival."""
        sample = self._samples.get(number)
        trail = None if sample is None else sample.awaited.pop((destination, hop), None)
        if sample is None or trail is None:
            return
        round_trip_ns = now - sample.sent_ns
        trail.measure(round_trip_ns)
        late = sample.missed.pop((destination, hop), None)
        if late is not None:
            trail.score = max(0.0, trail.score - late)
        trail.hit(sample.sent_ns)
        if _is_sound(self._table.map, trail.path):
            there_ns, back_ns = self._latency(trail.path, sample.label)
            age_ns = min((age_us - sample.age_us) * US, round_trip_ns)
            self.latency.measured(trail.path, max(age_ns, (round_trip_ns + there_ns - back_ns) // 2), there_ns, now)
        if self.suspicions and trail.streak >= REGAINED:
            self._exonerate(trail)
        for other in list(self._trails.values()):
            if other.score >= DECIDED and other.route == trail.route and other.path[-1] == destination:
                self._judge(other, now)
        self._set_wake()

    def tick(self, now: Nanos) -> None:
        while self._due and self._due[0][0] <= now:
            _, number, destination, hop = heappop(self._due)
            sample = self._samples.get(number)
            trail = None if sample is None else sample.awaited.get((destination, hop))
            if sample is not None and trail is not None:
                self._miss(sample, trail, (destination, hop), now)
        self.latency.expire(now)
        self._set_wake()

    def _miss(self, sample: Sample, trail: Trail, ends: tuple[str, str], now: Nanos) -> None:
        if not _is_sound(self._table.map, trail.path):
            trail.score, trail.bad_since = 0.0, NEVER
            return  # the map explains it
        weight = _weight(self._table.map, trail.path)
        self.missed += 1
        sample.missed[ends] = weight
        trail.missed(weight, sample.sent_ns)
        for one in self.suspicions:
            if one.path == trail.path and sample.sent_ns >= one.retry_at:
                one.strikes += 1
                self._back_off(one, now)
        self._judge(trail, now)

    def _contrast(self, trail: Trail) -> list[Trail]:
        """Other paths of the same route to the same destination that have worked while this one did not."""
        return [
            other
            for other in self._trails.values()
            if other.route == trail.route
            and other.path != trail.path
            and other.path[-1] == trail.path[-1]
            and other.works_since(trail.bad_since)
        ]

    def _judge(self, trail: Trail, now: Nanos) -> None:
        if trail.score < DECIDED or now - trail.bad_since < DECIDED_AFTER:
            return
        if len(trail.path) == 2:
            return  # nobody is in between: what becomes of the link is known here
        contrast = self._contrast(trail)
        if not contrast:
            return
        blamed = trail.links - {link for other in contrast for link in other.links}
        passed = {
            link
            for other in self._trails.values()
            if other is not trail and other.works_since(trail.bad_since)
            for link in other.links
        }
        proven = passed.union(*(other.links for other in contrast))
        if not onward_links(trail.path) - trail.links <= proven:
            return  # parcels may have come another way, but the answers return over all of the path
        routes: set[int] | None = None
        if not blamed - passed:
            # Other routes over them work: they drop what belongs to this route, or what comes from here.
            routes, blamed = {trail.route}, blamed or frozenset(((trail.path[0], trail.path[1]),))
        else:
            blamed -= passed
        if blamed <= self.avoided(trail.route):
            return
        self._suspect(trail, blamed, routes, now)

    def _suspect(self, trail: Trail, links: frozenset[Link], routes: set[int] | None, now: Nanos) -> None:
        self._news += 1
        for one in self.suspicions:
            if one.links == links and one.routes is not None:
                one.routes = None if routes is None else one.routes | routes
                return
        strikes = 1 + max(self._strikes.get(link, 0) for link in links)
        one = Suspicion(trail.path, links, routes, now, strikes, NEVER, {})
        self._back_off(one, now)
        self.suspicions.append(one)
        self.episodes += 1
        self._effects.append(PathSuspected(trail.path[-1], trail.path, one.hops, tuple(sorted(links))))

    def _back_off(self, one: Suspicion, now: Nanos) -> None:
        one.retry_at = now + min(BACKOFF_MAX, BACKOFF_MIN << min(one.strikes - 1, 16))
        one.incarnations = self._incarnations(one)
        self._strikes |= dict.fromkeys(one.links, one.strikes)

    def _exonerate(self, trail: Trail) -> None:
        """A path has confirmed enough in a row: what it shares with suspects is not suspect any more."""
        for one in list(self.suspicions):
            if trail.streak_since < one.since or (one.routes is not None and trail.route not in one.routes):
                continue
            cleared = one.links if trail.path == one.path else one.links & trail.links
            if not cleared:
                continue
            self._news += 1
            for other in self._trails.values():
                if not cleared.isdisjoint(pairwise(other.path)):
                    other.score, other.bad_since = 0.0, NEVER
            if cleared == one.links:
                self._trust(one)
            else:
                one.links -= cleared

    def _trust(self, one: Suspicion) -> None:
        self.suspicions.remove(one)
        self._effects.append(PathTrusted(one.path[-1], one.path, one.hops))

    def take_effects(self) -> list[PathSuspected | PathTrusted]:
        effects, self._effects = self._effects, []
        return effects

    # Time

    def sweep(self, routes: Iterable[int], now: Nanos) -> None:
        """Forget what is of no use any more; check whether suspected brokers have restarted."""
        known = set(routes)
        self._trails = {key: one for key, one in self._trails.items() if now - one.used_ns < TRAIL_IDLE}
        self._strands = {route: one for route, one in self._strands.items() if route in known}
        self._samples = {key: one for key, one in self._samples.items() if now - one.sent_ns < REMEMBERED}
        on_map = {(advert.broker, claim.peer) for advert in self._table.adverts.values() for claim in advert.links}
        self._strikes = {link: strikes for link, strikes in self._strikes.items() if link in on_map}
        for one in list(self.suspicions):
            if not one.links <= on_map or (one.routes is not None and not one.routes & known):
                self._news += 1
                self._trust(one)
            elif one.retry_at > now and self._incarnations(one) != one.incarnations:
                one.retry_at = now
        self._set_wake()

    def _incarnations(self, one: Suspicion) -> dict[str, int]:
        return {hop: self._table.version_of(hop)[0] for hop in one.hops}

    def _set_wake(self) -> None:
        due = self._due
        while due:
            _, number, destination, hop = due[0]
            sample = self._samples.get(number)
            if sample is not None and (destination, hop) in sample.awaited:
                break
            heappop(due)
        self.wake_at = min(due[0][0] if due else NEVER, self.latency.expires_at)


def _is_sound(network_map: NetworkMap, path: Path) -> bool:
    """Whether no link of a path is missing or suspect on the map."""
    return all(link in network_map.claims and link not in network_map.suspects for link in pairwise(path))


def _weight(network_map: NetworkMap, path: Path) -> float:
    """The weight of a missed sample against a path, by the loss that its links claim."""
    works = WORKS
    for link in pairwise(path):
        claims = (network_map.claims[link], network_map.claims.get(link[::-1]))
        works *= 1.0 - max(claim.loss_millionths for claim in claims if claim is not None) / MILLION
    return log((1.0 - works / 2) / (1.0 - works))


def _strands(me: str, route: Route) -> dict[tuple[str, str], tuple[Path, frozenset[Link]]]:
    """Per destination and last hop of a route: a path that ends so, and the links that all such paths share."""
    into: dict[str, list[str]] = {}
    for start, end in sorted(route.plan.links):
        into.setdefault(end, []).append(start)
    found: dict[tuple[str, str], tuple[Path, frozenset[Link]]] = {}
    for destination in route.plan.latency_ns:
        for hop in into.get(destination, ()):
            if (destination, hop) in route.plan.links:
                continue  # it may have its copy from the destination, and does not send that back
            path = _back_to(me, hop, destination, into)
            if path is None:
                continue
            shared = {(hop, destination)} if hop != me else set()
            for start, end in reversed(list(pairwise(path[1:-1]))):
                if len(into[end]) > 1:
                    break
                shared.add((start, end))
            found[destination, hop] = path, frozenset(shared)
    return found


def _back_to(me: str, hop: str, destination: str, into: Mapping[str, list[str]]) -> Path | None:
    """The path of fewest links from here over `hop` to the destination."""
    onward = {hop: destination}
    pending = deque([hop])
    while pending:
        broker = pending.popleft()
        if broker == me:
            path = [me]
            while path[-1] != destination:
                path.append(onward[path[-1]])
            return tuple(path)
        for before in into.get(broker, ()):
            if before not in onward and before != destination:
                onward[before] = broker
                pending.append(before)
    return None
