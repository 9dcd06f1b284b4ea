"""Signalling: how routes come into the brokers that carry them (RT_EST).

The source of a route describes a version of it whole: its links, its destinations, the latency still to go from
each broker. Each broker takes from it its own next hops and passes the description on to them. Acknowledgements
come back from the leaves: a broker acknowledges when all of its new next hops have. A second copy of the same
version, from another upstream neighbour, is acknowledged at once; this is what ends the waiting where links form a
cycle.

Versions live side by side: a parcel names the version it travels on, so parcels under way on an old version still
arrive while the new one is being set up, and a flow is never interrupted. The source need not wait for the
acknowledgement either: the description goes ahead of the parcels. Where it may not arrive before them, on a link that
loses or is suspect, or in time, parcels carry it along until the next hop has acknowledged.

Old versions go after a grace time; a route goes when its source tears it down or has not refreshed it for long
(`route_refresh`). What descriptions take is bounded (`route_budget`), and what does not concern a next hop is left out
(`route_parts`).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from overlane.core.routing.signalling.route_budget import BYTES_MAX, RouteBudget, size_of
from overlane.core.routing.signalling.route_messages import Established, Outbox, acknowledgement, key_of
from overlane.core.routing.signalling.route_parts import part_for
from overlane.core.units import MS, NEVER, SECOND, US, Nanos
from overlane.core.wire.control_messages import (
    Establish,
    EstablishReserved,
    Teardown,
    Unsendable,
    encode_checked,
)
from overlane.core.wire.frame_codec import Header, RouteName, broker_id, route

REFRESH_EVERY: Nanos = 30 * SECOND
EXPIRE_AFTER: Nanos = 95 * SECOND
GRACE: Nanos = 5 * SECOND
AGAIN_AFTER: Nanos = 500 * MS
"""How long a source waits for the acknowledgement before it sends the description once more."""
VERSIONS_KEPT = 8


@dataclass(slots=True)
class RouteEntry:
    """One version of a route, as this broker sees it."""

    here: str
    message: Establish
    name: RouteName
    key: bytes
    next_hops: tuple[str, ...]
    obsolete_hops: tuple[str, ...]
    deliver: bool
    ahead_ns: Nanos
    hops: int
    """Links from the source through here to the destination that is most of them away; at least one."""
    upstream: set[str] = field(default_factory=set)
    awaited: set[str] = field(default_factory=set)
    """New next hops whose acknowledgement is owed to the upstream neighbours."""
    unconfirmed: set[str] = field(default_factory=set)
    """Next hops that may not know this version yet: parcels to them carry the description along."""
    superseded_at: Nanos = NEVER
    refreshed: int = 0
    """The number of the last refresh that was passed on."""
    size_bytes: int = 0
    only_next_hop: str = ""
    """The neighbour that is all there is to it, where it only passes, or begins here."""
    flow: tuple[int, int] | None = None
    """The reserved flow that its parcels belong to: origin and number."""
    _spared: dict[str, bool] = field(default_factory=dict)
    _frames: dict[str, bytes] = field(default_factory=dict)
    _return_paths: dict[str, list[str]] = field(default_factory=dict)
    _ways_back: dict[tuple[int, int], str] = field(default_factory=dict)

    def route_frame(self, hop: str) -> bytes:
        """What goes ahead of a parcel to a next hop that may not know the route; empty if that would refuse it."""
        found = self._frames.get(hop)
        if found is None:
            try:
                found = route(encode_checked(part_for(self.message, hop)))
            except Unsendable:
                found = b""
            self._frames[hop] = found
        return found

    def return_path(self, hop: str) -> list[str]:
        """From the neighbour over which parcels came back to their source, against the links of the route; empty if it
        is none of the route's."""
        found = self._return_paths.get(hop)
        if found is None:
            found = self._return_paths[hop] = _return_path(self.message, self.here, hop)
        return found

    def ends_over(self, hop: str) -> tuple[int, int] | None:
        """The places of this broker and of the neighbour over which a parcel came; None if no return path begins so."""
        brokers = self.message.brokers
        return (brokers.index(self.here), brokers.index(hop)) if self.return_path(hop) else None

    def way_back(self, destination: int, last_hop: int) -> str:
        """Where what returns from a destination goes from here, against the path over its last hop; empty if that does
        not pass here. All brokers find the same path, since all have the same description."""
        ends = destination, last_hop
        found = self._ways_back.get(ends)
        if found is None:
            brokers = self.message.brokers
            path = [brokers[end] for end in ends if end < len(brokers) and brokers[end]]
            path = [path[0], *_return_path(self.message, *path)] if len(path) == len(ends) else []
            following = path.index(self.here) + 1 if self.here in path else len(path)
            found = self._ways_back[ends] = path[following] if following < len(path) else ""
        return found

    def spares(self, hop: str) -> bool:
        """Whether the route leads to all of its destinations without the link to this next hop, too."""
        known = self._spared.get(hop)
        if known is None:
            known = self._spared[hop] = hop in self.next_hops and _leads_without(self.message, self.here, hop)
        return known


@dataclass(slots=True)
class RouteState:
    incarnation: int
    versions: dict[int, RouteEntry] = field(default_factory=dict)
    newest: int = -1
    refreshed_at: Nanos = 0


class RouteTable:
    """The routes that pass this broker, or begin or end at it."""

    def __init__(self, me: str, bytes_max: int = BYTES_MAX) -> None:
        self._me = me
        self._budget = RouteBudget(broker_id(me), bytes_max)
        self._routes: dict[tuple[int, int], RouteState] = {}
        self.keyed: dict[bytes, RouteEntry] = {}
        """Every version of every route by the key that parcels carry."""
        self.changes = 0
        self._encrypted: set[str] = set()
        """Neighbours with encrypted links."""

    def set_encrypted(self, peer: str, is_encrypted: bool) -> None:
        """Routes that need encryption use the link to a neighbour from now on, or no more: the source is told by the
        map, and parcels may come sooner."""
        if (peer in self._encrypted) == is_encrypted:
            return
        (self._encrypted.add if is_encrypted else self._encrypted.discard)(peer)
        for state in self._routes.values():
            for entry in state.versions.values():
                if entry.message.encrypted:
                    _set_hops(entry, self._may_use(entry.message, _all_hops(entry.message, self._me)))

    def _may_use(self, message: Establish, hops: Iterable[str]) -> tuple[str, ...]:
        return tuple(hop for hop in hops if not message.encrypted or hop in self._encrypted)

    def __len__(self) -> int:
        return len(self._routes)

    def entry(self, origin: int, route: int, version: int) -> RouteEntry | None:
        state = self._routes.get((origin, route))
        return None if state is None else state.versions.get(version)

    def entry_of(self, header: Header) -> RouteEntry | None:
        return self.entry(header.origin, header.route, header.version)

    def newest(self) -> Iterator[tuple[tuple[int, int], RouteEntry]]:
        """The newest version of every route, by (origin, route)."""
        for key in sorted(self._routes):
            state = self._routes[key]
            if state.newest in state.versions:
                yield key, state.versions[state.newest]

    # Events

    def establish(self, sender: str | None, message: Establish, now: Nanos) -> tuple[Outbox, bool]:
        """A description came (our own if `sender` is None); what to send, and whether it is acknowledged whole."""
        key = broker_id(message.origin), message.route
        state = self._routes.get(key)
        is_new = state is None or state.incarnation != message.incarnation or message.version not in state.versions
        if is_new and not self._make_room(key, message):
            return [], False
        if state is None or state.incarnation < message.incarnation:
            if state is not None:
                self._forget(key)
            state = self._routes[key] = RouteState(message.incarnation)
        elif state.incarnation > message.incarnation or message.version < state.newest - VERSIONS_KEPT:
            return [], False
        state.refreshed_at = now
        entry = state.versions.get(message.version)
        if entry is None:
            if key_of(message) in self.keyed:
                return [], False  # another route has the same key: the next version will have its own
            entry = self._install(state, message, now)
            outbox: Outbox = _descriptions(entry, sender)
            outbox += [(hop, message) for hop in entry.obsolete_hops if hop != sender]
            if sender is not None:
                entry.awaited.discard(sender)
                entry.unconfirmed.discard(sender)
                entry.upstream.add(sender)
                if not entry.awaited:
                    outbox.append((sender, acknowledgement(message)))
            return outbox, not entry.awaited
        outbox = []
        if message.refresh > entry.message.refresh:
            entry.message = message
            outbox = _descriptions(entry, sender)
        if sender is not None:
            # Passed on already, so it can be acknowledged: waiting for those that wait for us would never end.
            entry.upstream.add(sender)
            outbox.append((sender, acknowledgement(message)))
        return outbox, not entry.awaited

    def lacks(self, origin: int, incarnation: int, route: int, version: int) -> bool:
        """Whether a version of a route is not known here, nor a later one."""
        state = self._routes.get((origin, route))
        if state is None or state.incarnation != incarnation:
            return state is None or state.incarnation < incarnation
        return version > state.newest

    def refresh(self, origin: int, incarnation: int, route: int, version: int, now: Nanos) -> RouteEntry | None:
        """Keep a route that its source goes on to use; returns its entry."""
        state = self._routes.get((origin, route))
        if state is None or state.incarnation != incarnation:
            return None
        state.refreshed_at = now
        return state.versions.get(version)

    def acknowledged(self, sender: str, message: Established) -> tuple[Outbox, bool]:
        """A next hop acknowledged; what to send, and whether a route of our own is now established."""
        state = self._routes.get((broker_id(message.origin), message.route))
        if state is None or state.incarnation != message.incarnation:
            return [], False
        entry = state.versions.get(message.version)
        if entry is None:
            return [], False
        entry.unconfirmed.discard(sender)
        if sender not in entry.awaited:
            return [], False
        entry.awaited.discard(sender)
        if entry.awaited:
            return [], False
        return [(hop, message) for hop in sorted(entry.upstream)], message.origin == self._me

    def tear_down(self, sender: str | None, message: Teardown) -> Outbox:
        key = broker_id(message.origin), message.route
        state = self._routes.get(key)
        if state is None or state.incarnation > message.incarnation:
            return []
        self._forget(key)
        hops = {hop for entry in state.versions.values() for hop in entry.next_hops}
        return [(hop, message) for hop in sorted(hops) if hop != sender]

    def origin_restarted(self, origin: str, incarnation: int) -> None:
        """Forget the routes of earlier incarnations of a broker."""
        self._forget_incarnations(origin, lambda known: known < incarnation)

    def hop_restarted(self, hop: str) -> None:
        """A neighbour has restarted and does not know the routes that it had acknowledged."""
        for state in self._routes.values():
            for entry in state.versions.values():
                if hop in entry.next_hops:
                    entry.unconfirmed.add(hop)

    def origin_proven(self, origin: str, incarnation: int) -> None:
        """Forget the routes of all other incarnations of a broker: they are over, or were invented."""
        self._forget_incarnations(origin, lambda known: known != incarnation)

    def sweep(self, now: Nanos) -> None:
        """Drop superseded versions after their grace time, and routes that are not refreshed."""
        for key, state in list(self._routes.items()):
            if now - state.refreshed_at > EXPIRE_AFTER:
                self._forget(key)
                continue
            for version, entry in list(state.versions.items()):
                if now - entry.superseded_at > GRACE:
                    del state.versions[version]
                    self._drop(entry)

    def _forget_incarnations(self, origin: str, is_over: Callable[[int], bool]) -> None:
        identity = broker_id(origin)
        for key in [key for key, state in self._routes.items() if key[0] == identity and is_over(state.incarnation)]:
            self._forget(key)

    def _forget(self, route: tuple[int, int]) -> None:
        for entry in self._routes.pop(route).versions.values():
            self._drop(entry)

    def _drop(self, entry: RouteEntry) -> None:
        del self.keyed[entry.key]
        self._budget.give_back(entry.name.origin, entry.size_bytes)

    def _make_room(self, route: tuple[int, int], message: Establish) -> bool:
        """Whether a description can be taken, if need be at the cost of who has most."""
        size, budget = size_of(message), self._budget
        if budget.has_room(size):
            return True
        while not budget.is_tidy(size):
            largest = budget.who_gives_way(route[0], size)
            if largest is None:
                break
            held = sorted((state.refreshed_at, key) for key, state in self._routes.items() if key[0] == largest)
            for _, key in held:
                self._forget(key)
                if budget.is_tidy(size) or budget.who_gives_way(route[0], size) != largest:
                    break
        return budget.has_room(size) or message.origin == self._me

    def _install(self, state: RouteState, message: Establish, now: Nanos) -> RouteEntry:
        brokers = message.brokers
        me = brokers.index(self._me) if self._me in brokers else -1
        kept, added, obsolete = (_hops(links, me, brokers) for links in (message.kept, message.added, message.obsolete))
        kept, added = [*self._may_use(message, kept)], [*self._may_use(message, added)]
        known = state.versions.get(state.newest)
        # Only new next hops must be waited for; the others carry the route already, if they acknowledged it.
        awaited = set(added) | {hop for hop in kept if known is None or hop in known.awaited}
        entry = RouteEntry(
            here=self._me,
            message=message,
            name=RouteName(
                message.version, broker_id(message.origin), message.incarnation, message.route, message.deadline_us
            ),
            key=key_of(message),
            next_hops=tuple(sorted({*kept, *added})),
            obsolete_hops=tuple(hop for hop in obsolete if hop not in kept and hop not in added),
            deliver=me in message.destinations,
            ahead_ns=message.ahead_us[me] * US if 0 <= me < len(message.ahead_us) else 0,
            hops=_hops_through(message, me),
            awaited=awaited,
            unconfirmed={*kept, *added},
            size_bytes=size_of(message),
        )
        self._budget.take(entry.name.origin, entry.size_bytes)
        if isinstance(message, EstablishReserved):
            entry.flow = entry.name.origin, message.reservation
        _set_hops(entry, entry.next_hops)
        if message.version > state.newest:
            if known is not None:
                known.superseded_at = now
            state.newest = message.version
        else:
            entry.superseded_at = now
        state.versions[message.version] = self.keyed[entry.key] = entry
        self.changes += 1
        return entry


def _set_hops(entry: RouteEntry, hops: tuple[str, ...]) -> None:
    entry.next_hops = hops
    entry.unconfirmed |= {*hops}
    is_cut_through = len(hops) == 1 and not entry.deliver and not isinstance(entry.message, EstablishReserved)
    entry.only_next_hop = hops[0] if is_cut_through else ""


def _all_hops(message: Establish, here: str) -> list[str]:
    me = message.brokers.index(here) if here in message.brokers else -1
    return sorted({*_hops(message.kept, me, message.brokers), *_hops(message.added, me, message.brokers)})


def links_of(message: Establish) -> tuple[tuple[str, str], ...]:
    """All links of this version of the route, from broker to broker."""
    brokers, ends = message.brokers, [*message.kept, *message.added]
    return tuple(sorted((brokers[a], brokers[b]) for a, b in zip(ends[::2], ends[1::2], strict=True)))


def reached_by(message: Establish, hops: Iterable[str]) -> set[str]:
    """The destinations that parcels reach over these next hops of the source."""
    ends: dict[int, list[int]] = {}
    links = [*message.kept, *message.added]
    for start, end in zip(links[::2], links[1::2], strict=True):
        ends.setdefault(start, []).append(end)
    found = {place for hop in hops for place in _steps(message.brokers.index(hop), ends)}
    return {message.brokers[place] for place in message.destinations if place in found}


def _hops(links: list[int], me: int, brokers: list[str]) -> list[str]:
    return [
        brokers[end] for start, end in zip(links[::2], links[1::2], strict=False) if start == me and end < len(brokers)
    ]


def _hops_through(message: Establish, me: int) -> int:
    links = [*message.kept, *message.added]
    ends: dict[int, list[int]] = {}
    for start, end in zip(links[::2], links[1::2], strict=False):
        ends.setdefault(start, []).append(end)
    ahead = _steps(me, ends)
    behind = _steps(message.brokers.index(message.origin), ends).get(me, 0)
    return max(1, behind + max((ahead.get(place, 0) for place in message.destinations), default=0))


def _return_path(message: Establish, here: str, hop: str) -> list[str]:
    brokers, ends = message.brokers, [*message.kept, *message.added]
    if here not in brokers or hop not in brokers:
        return []
    me, first, origin = brokers.index(here), brokers.index(hop), brokers.index(message.origin)
    links = list(zip(ends[::2], ends[1::2], strict=True))
    if (first, me) not in links:
        return []
    back: dict[int, list[int]] = {}
    for start, end in links:
        if me not in (start, end):
            back.setdefault(end, []).append(start)
    steps = _steps(first, back)
    if origin not in steps:
        return []
    # From the source outward, always to a broker that is one link nearer to the hop.
    path = [origin]
    while path[-1] != first:
        at = steps[path[-1]]
        path.append(next(end for end, starts in back.items() if path[-1] in starts and steps.get(end) == at - 1))
    return [brokers[place] for place in reversed(path)]


def _leads_without(message: Establish, here: str, hop: str) -> bool:
    brokers, links = message.brokers, [*message.kept, *message.added]
    left_out = brokers.index(here), brokers.index(hop)
    ends: dict[int, list[int]] = {}
    for link in zip(links[::2], links[1::2], strict=False):
        if link != left_out:
            ends.setdefault(link[0], []).append(link[1])
    reached = _steps(brokers.index(message.origin), ends)
    return all(place in reached for place in message.destinations)


def _steps(start: int, ends: dict[int, list[int]]) -> dict[int, int]:
    """How many links away from `start` everything is that it leads to."""
    steps = {start: 0}
    pending = [start]
    while pending:
        found = {end: steps[place] + 1 for place in pending for end in ends.get(place, ()) if end not in steps}
        steps |= found
        pending = list(found)
    return steps


def _descriptions(entry: RouteEntry, sender: str | None) -> Outbox:
    """To each next hop what concerns it."""
    return [(hop, part_for(entry.message, hop)) for hop in entry.next_hops if hop != sender]
