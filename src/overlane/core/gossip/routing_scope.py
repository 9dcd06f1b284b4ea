"""Routing scope: the filters that a routing broker receives from edges and sends to each of them.

Every edge sends its filters and the groups in which it publishes, of the bundles that this broker carries. An edge
receives the filters of others that can match the groups in which it publishes, and the adverts of edges with which it
shares a group, in either direction. Filters are indexed by group: the cost of a change depends on the affected filters
and edges, not on the number of edges.

`ScopeComplete` reports to an edge that the filters of a bundle are complete: all have been sent, and every edge that
this broker is linked with by configuration has sent all of its own filters (the bundle is *gathered*). This broker
waits for a disconnected edge up to GATHER_MAX; for one without known filters here up to GATHER_UNKNOWN_MAX, since edges
do not connect to routing brokers that they do not need. An edge that withdraws its filters of a bundle knows that
another broker carries it now, and sends them there: the bundle is no longer gathered, until this broker is informed of
the move as well.

Bundles for which this broker is the standby are treated like those that it carries, so that it has all filters when it
takes over.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from overlane.core.bundles import ANY, as_mask, decode_mask, encode_mask, groups_of
from overlane.core.gossip.interest import RemoteInterest
from overlane.core.gossip.link_interest import LinkInterest
from overlane.core.links.interest_transfer import Filters, part_end
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.core.wire.control_messages import ControlMessage, PublishScope, ScopeComplete, ScopedInterest
from overlane.core.wire.message_fields import BROKERS_MAX, PART_FILTERS_MAX
from overlane.errors import ProtocolViolation

GATHER_MAX: Nanos = 30 * SECOND
GATHER_UNKNOWN_MAX: Nanos = 5 * SECOND
"""The same for an edge that needs nothing here, as far as is known. One that runs and needs a bundle that is new here
tells so within a second."""
LINGER: Nanos = 10 * SECOND
"""How long two edges are told of each other after they have no group in common here any more: parcels may be under way,
and another routing broker may not have told them yet."""
AWAY_MAX: Nanos = 86_400 * SECOND
GROUPS_MAX = 1 << 18
"""Groups that are kept of one edge; more are ignored."""


@dataclass(slots=True)
class Edge:
    """What one edge has told, and what it has been told over the present connection."""

    teller: LinkInterest = field(default_factory=LinkInterest)
    is_connected: bool = False
    groups: dict[int, None] = field(default_factory=dict)
    unconfirmed: dict[int, None] = field(default_factory=dict)
    """Groups of before this connection that it has not told again."""
    serial: int = 0
    needed: dict[int, int] = field(default_factory=dict)
    """Groups of its filters, or ANY, with how many filters."""
    told: dict[str, set[str]] = field(default_factory=dict)
    """The filters that it has been told, by broker."""
    changed: dict[str, Filters] = field(default_factory=dict)
    """What may have to be told; without filters where only the bundles have changed for which a broker has spoken."""
    completed: tuple[int, int] = (-1, 0)
    """The serial and the bundles that it was last told to be complete."""
    partners: dict[str, int] = field(default_factory=dict)
    """Edges that it shares groups with, and how many times."""
    lingering: dict[str, Nanos] = field(default_factory=dict)
    """Edges that it shared groups with until lately."""
    away_since: Nanos = NEVER
    """When it was found to be neither connected nor expected any more."""

    @property
    def spoken_for(self) -> int:
        """The bundles of which it has told everything."""
        word = next(iter(self.teller.words.values()), None)
        return self.teller.complete if word is None else self.teller.complete & word.covers


class RoutingScope:
    """`on_news`: called with an edge that there is something to tell; `on_partner` with two that come to share a group,
    the first of which is to be told of the second, and with one twice where only its own links are to be told anew."""

    def __init__(
        self,
        me: str,
        remote: RemoteInterest,
        on_news: Callable[[str], None],
        on_partner: Callable[[str, str], None],
    ) -> None:
        self._me = me
        self._remote = remote
        self._on_news = on_news
        self._on_partner = on_partner
        self._edges: dict[str, Edge] = {}
        self._filters: dict[int, dict[tuple[str, str], None]] = {}
        """(broker, filter) by group, or ANY."""
        self._publishers: dict[int, dict[str, None]] = {}
        """Edges by the groups in which they publish."""
        self._all_publishers: dict[str, None] = {}
        self._any_needy: dict[str, None] = {}
        """Edges with filters that concern all groups."""
        self._askers: dict[str, dict[str, None]] = {}
        """By broker, edges that have asked for which bundles it has spoken."""
        self._expected: frozenset[str] = frozenset()
        self._carried = 0
        """The bundles that it carries or stands by for, as a mask."""
        self._carried_since: dict[int, Nanos] = {}
        self._gathered = 0
        self._gather_at: Nanos = NEVER
        self._awaited = ""
        """The edge that was last found to have told nothing: while it has not, no other need be looked at."""
        self._linger_until: Nanos = NEVER

    def configure(
        self,
        assignment: Mapping[int, str],
        neighbours: Collection[str],
        now: Nanos,
        standbys: Mapping[int, str] | None = None,
    ) -> None:
        """Which bundles this broker carries or stands by for, and which edges it is to be linked with."""
        self._expected = frozenset(neighbours)
        standbys = {} if standbys is None else standbys
        carried = [one for one, carrier in assignment.items() if self._me in (carrier, standbys.get(one))]
        lost = self._carried & ~as_mask(carried)
        self._carried = as_mask(carried)
        self._gathered &= self._carried
        self._carried_since = {bundle: self._carried_since.get(bundle, now) for bundle in carried}
        for name, edge in self._edges.items():
            if lost and edge.told:
                self._mention(name, edge, edge.told)  # this broker does not speak for them any more
        self._drop_gone(now)
        self._gather(now)

    def _drop_gone(self, now: Nanos) -> None:
        """Forget edges that are not linked with this broker any more: at once if they need nothing of it, and after a
        day if they went without saying so."""
        for name, edge in list(self._edges.items()):
            if edge.is_connected or name in self._expected:
                edge.away_since = NEVER
            elif edge.away_since == NEVER:
                edge.away_since = now
            if edge.away_since != NEVER and (
                now - edge.away_since >= AWAY_MAX or not (edge.groups or self._remote.held(name))
            ):
                self._drop(name)

    def _edge(self, name: str) -> Edge:
        found = self._edges.get(name)
        if found is None:
            found = self._edges[name] = Edge()
        return found

    # Connections

    def connected(self, name: str) -> None:
        edge = self._edge(name)
        edge.is_connected = True
        edge.teller.connected()
        edge.unconfirmed.update(edge.groups)
        edge.serial = 0
        self._forget_told(name, edge)
        edge.completed = -1, 0
        for group in edge.groups:
            self._tell_group(edge, name, group)

    def disconnected(self, name: str) -> None:
        edge = self._edges.get(name)
        if edge is not None:
            edge.is_connected = False
            self._forget_told(name, edge)

    def _forget_told(self, name: str, edge: Edge) -> None:
        for broker in edge.told:
            if (askers := self._askers.get(broker)) is not None:
                askers.pop(name, None)
                if not askers:
                    del self._askers[broker]
        edge.told, edge.changed = {}, {}

    def _drop(self, name: str) -> None:
        """An edge that is not linked with this broker any more uses none of its bundles."""
        for topic_filter in list(self._remote.held(name)):
            self._release(name, topic_filter)
        for group in list(self._edges[name].groups):
            self._unpublish(name, group)
        self._forget_told(name, self._edges[name])
        del self._edges[name]

    def forget(self, name: str) -> None:
        """It left for good."""
        if name in self._edges:
            self._drop(name)

    def restore(self) -> None:
        """What was restored from the store counts until the edge has told everything anew."""
        self._remote.hold_restored()
        for name in self._remote.held_brokers():
            edge = self._edge(name)
            for topic_filter in self._remote.held(name):
                self._enter(name, edge, topic_filter)
            edge.teller.take(ScopedInterest(name, b"", list(self._remote.held(name)), []))
            edge.teller.connected()

    # Hearing

    def hear(self, sender: str, message: ScopedInterest | PublishScope | ScopeComplete, now: Nanos) -> None:
        edge = self._edge(sender)
        spoken_before = edge.spoken_for
        match message:
            case ScopedInterest():
                self._hear_interest(sender, edge, message)
                self._take_back(spoken_before & ~edge.spoken_for, now)
            case PublishScope():
                self._hear_groups(sender, edge, message)
            case ScopeComplete(_, bundles):
                for name, topic_filter in list(edge.teller.completed(0, decode_mask(bundles))):
                    self._release(name, topic_filter)
                for group in edge.unconfirmed:
                    self._unpublish(sender, group)
                edge.unconfirmed = {}
                self._gather(now)
        if edge.spoken_for != spoken_before:
            for partner in {**edge.partners, **self._askers.get(sender, {})}:
                other = self._edges.get(partner)
                if other is not None and sender in other.told:
                    self._mention(partner, other, (sender,))

    def _mention(self, name: str, edge: Edge, brokers: Iterable[str]) -> None:
        """Tell an edge for which bundles these brokers have spoken."""
        for broker in brokers:
            edge.changed.setdefault(broker, {})
        edge.completed = -1, 0
        self._news(name, edge)

    def _hear_interest(self, sender: str, edge: Edge, message: ScopedInterest) -> None:
        if message.broker != sender:
            raise ProtocolViolation("an edge that tells what another broker needs")
        added, removed = edge.teller.take(message)
        for topic_filter in added:
            if self._remote.hold(sender, topic_filter):
                self._enter(sender, edge, topic_filter)
            else:
                edge.teller.words[sender].filters.pop(topic_filter, None)  # no room for it
        for topic_filter in removed:
            self._release(sender, topic_filter)
        if message.renewed:
            for topic_filter in sorted({*message.added} - {*added}):
                self._remote.renew(sender, topic_filter)

    def _enter(self, name: str, edge: Edge, topic_filter: str) -> None:
        """A filter counts from now on: tell those who publish what it may match."""
        group = _group(topic_filter)
        self._filters.setdefault(group, {})[name, topic_filter] = None
        count = edge.needed.get(group, 0)
        edge.needed[group] = count + 1
        publishers = self._all_publishers if group == ANY else self._publishers.get(group, {})
        if not count:
            if group == ANY:
                self._any_needy[name] = None
            for other in publishers:
                self._pair(name, other)
        for other in publishers:
            self._change(other, name, topic_filter)

    def _release(self, name: str, topic_filter: str) -> None:
        self._remote.release(name, topic_filter)
        edge, group = self._edges[name], _group(topic_filter)
        filters = self._filters.get(group, {})
        if (name, topic_filter) not in filters:
            return
        del filters[name, topic_filter]
        if not filters:
            del self._filters[group]
        publishers = self._all_publishers if group == ANY else self._publishers.get(group, {})
        edge.needed[group] -= 1
        for other in publishers:
            self._change(other, name, topic_filter)
        if not edge.needed[group]:
            del edge.needed[group]
            if group == ANY:
                del self._any_needy[name]
            for other in publishers:
                self._unpair(name, other)

    def _change(self, publisher: str, name: str, topic_filter: str) -> None:
        edge = self._edges[publisher]
        if publisher != name and edge.is_connected:
            edge.changed.setdefault(name, {})[topic_filter] = None
            self._news(publisher, edge)

    def _hear_groups(self, sender: str, edge: Edge, message: PublishScope) -> None:
        edge.serial = message.serial
        for group in message.added:
            edge.unconfirmed.pop(group, None)
            if group not in edge.groups and len(edge.groups) < GROUPS_MAX:
                self._publish(sender, edge, group)
                self._tell_group(edge, sender, group)
        for broker in message.asked:
            if len(edge.told) < BROKERS_MAX and broker != sender:
                edge.told.setdefault(broker, set())
                edge.changed.setdefault(broker, {})
                self._askers.setdefault(broker, {})[sender] = None
        for group in message.removed:
            edge.unconfirmed.pop(group, None)
            if group in edge.groups:
                self._unpublish(sender, group)
        self._news(sender, edge)

    def _publish(self, name: str, edge: Edge, group: int) -> None:
        if not edge.groups:
            self._all_publishers[name] = None
            for other in self._any_needy:
                self._pair(other, name)
        edge.groups[group] = None
        self._publishers.setdefault(group, {})[name] = None
        for other in {one: None for one, _ in self._filters.get(group, {})}:
            self._pair(other, name)

    def _tell_group(self, edge: Edge, name: str, group: int) -> None:
        """Let an edge know the filters that can match a group."""
        for place in (group, ANY):
            for broker, topic_filter in self._filters.get(place, {}):
                if broker != name:
                    edge.changed.setdefault(broker, {})[topic_filter] = None
        self._news(name, edge)

    def _unpublish(self, name: str, group: int) -> None:
        edge = self._edges[name]
        del edge.groups[group]
        publishers = self._publishers[group]
        del publishers[name]
        if not publishers:
            del self._publishers[group]
        gone = dict(self._filters.get(group, {}))
        for other in {one: None for one, _ in gone}:
            self._unpair(other, name)
        if not edge.groups:
            del self._all_publishers[name]
            gone.update(self._filters.get(ANY, {}))
            for other in self._any_needy:
                self._unpair(other, name)
        for broker, topic_filter in gone:
            self._change(name, broker, topic_filter)

    # Who is told of whom

    def _pair(self, one: str, other: str) -> None:
        if one == other:
            return
        for name, partner in ((one, other), (other, one)):
            partners = self._edge(name).partners
            partners[partner] = partners.get(partner, 0) + 1
            if partners[partner] == 1 and self._edges[name].lingering.pop(partner, None) is None:
                self._on_partner(name, partner)

    def _unpair(self, one: str, other: str) -> None:
        if one == other:
            return
        for name, partner in ((one, other), (other, one)):
            edge = self._edges[name]
            edge.partners[partner] -= 1
            if not edge.partners[partner]:
                del edge.partners[partner]
                edge.lingering[partner] = NEVER  # `tick` knows the time
                self._linger_until = -NEVER

    def partners(self, name: str) -> Iterable[str]:
        """The edges that an edge is told of."""
        edge = self._edges.get(name)
        return () if edge is None else (*edge.partners, *edge.lingering)

    # Telling

    def _news(self, name: str, edge: Edge) -> None:
        if edge.is_connected:
            self._on_news(name)

    def next_message(self, name: str) -> ControlMessage | None:
        edge = self._edges.get(name)
        if edge is None or not edge.is_connected:
            return None
        while edge.changed:
            broker = next(iter(edge.changed))
            if (interest := self._tell_some(name, edge, broker)) is not None:
                return interest
        state = edge.serial, self._gathered
        if edge.serial and edge.completed != state:
            edge.completed = state
            return ScopeComplete(edge.serial, encode_mask(self._gathered))
        return None

    def _tell_some(self, name: str, edge: Edge, broker: str) -> ScopedInterest | None:
        filters = edge.changed[broker]
        is_mention = not filters
        names = list(islice(filters, PART_FILTERS_MAX))
        told = edge.told.setdefault(broker, set())
        added, removed = [], []
        for topic_filter in names[: part_end(names, 0)]:
            del filters[topic_filter]
            group = _group(topic_filter)
            is_due = (broker, topic_filter) in self._filters.get(group, {}) and (
                bool(edge.groups) if group == ANY else group in edge.groups
            )
            if is_due and topic_filter not in told:
                told.add(topic_filter)
                added.append(topic_filter)
            elif not is_due and topic_filter in told:
                told.discard(topic_filter)
                removed.append(topic_filter)
        if not filters:
            del edge.changed[broker]
        other = self._edges.get(broker)
        covers = 0 if other is None else other.spoken_for & self._carried
        if not told and covers and name not in self._askers.get(broker, ()):
            del edge.told[broker]
        if not added and not removed and not is_mention:
            return None
        return ScopedInterest(broker, encode_mask(covers), sorted(added), sorted(removed))

    # Completeness

    def _gather(self, now: Nanos) -> None:
        """Which bundles are gathered: of which every edge has told all that it needs."""
        missing = self._carried & ~self._gathered
        self._gather_at = NEVER
        if not missing:
            return
        known, unknown = missing, missing
        """Of which edges that need something here have told everything, and of which the others have."""
        awaited = (self._awaited,) if self._awaited in self._expected else ()
        for name in (*awaited, *self._expected):
            edge = self._edges.get(name)
            if edge is not None and (edge.is_connected or edge.groups or self._remote.held(name)):
                known &= edge.spoken_for
                if not known:
                    self._awaited = name
                    break
            else:
                unknown &= 0 if edge is None else edge.spoken_for
        found = 0
        for bundle, since in self._carried_since.items():
            if not missing >> bundle & 1:
                continue
            wait = GATHER_MAX if not known >> bundle & 1 else 0 if unknown >> bundle & 1 else GATHER_UNKNOWN_MAX
            if now >= since + wait:
                found |= 1 << bundle
            else:
                self._gather_at = min(self._gather_at, since + wait)
        if found:
            self._gathered |= found
            for name, edge in self._edges.items():
                if edge.is_connected:
                    self._on_news(name)

    def _take_back(self, bundles: int, now: Nanos) -> None:
        """An edge speaks for these bundles elsewhere: what is told here of them is not everything any more."""
        bundles &= self._gathered
        if not bundles:
            return
        self._gathered &= ~bundles
        for bundle in self._carried_since:
            if bundles >> bundle & 1:
                self._carried_since[bundle] = now
        self._gather(now)
        for name, edge in self._edges.items():
            self._news(name, edge)

    def next_deadline(self) -> Nanos:
        return min(self._gather_at, self._linger_until)

    def tick(self, now: Nanos) -> None:
        if now >= self._gather_at:
            self._gather(now)
        if now >= self._linger_until:
            self._linger_until = NEVER
            for name, edge in self._edges.items():
                for partner, until in list(edge.lingering.items()):
                    if until == NEVER:
                        edge.lingering[partner] = until = now + LINGER
                    if until <= now:
                        del edge.lingering[partner]
                        self._on_partner(name, name)
                    else:
                        self._linger_until = min(self._linger_until, until)

    def size(self) -> dict[str, int]:
        """How much is kept, for people and tests."""
        return {
            "groups": sum(len(one.groups) for one in self._edges.values()),
            "held_filters": sum(map(len, self._filters.values())),
            "brokers": len(self._edges),
        }


def _group(topic_filter: str) -> int:
    """The group of a filter, or ANY also where it has none: such a filter is told to all."""
    group = groups_of(topic_filter)
    return ANY if group is None else group
