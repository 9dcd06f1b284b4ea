"""Broker admission: which of the brokers that neighbours announce are kept and passed on.

Any broker may pass on what others have said, so a neighbour can invent brokers by the thousand. A broker counts only
while it is connected: there is a path to it of links that both ends claim, from this broker or from one of its greeted
neighbours, whose own statements need no second witness.

    unknown -- advert, not connected --> waiting -- both ends claim a link --> admitted
    waiting -- 30 s, or no room in the share of the neighbour that announced it --> unknown
    admitted -- not connected for 30 s (200 s if trusted), or no room --> unknown

A waiting broker is not passed on and is on no map, and its interest is not kept. A liar can still announce an invented
network behind itself, since it may claim anything about its own links. Therefore the total is limited, and divided if
it does not suffice: from this broker outwards, each branch of the tree of shortest paths gets what it needs or an equal
share. Invented brokers are all in the branch of their inventor; the others have what they need as long as that is no
more than half of the total. Trusted brokers (named in the network file, or with a proven incarnation) always have room.

The interest of a broker outlasts its presence, because reliable messages are kept for it. For a broker that is not
trusted it is kept as long as the broker had been present, at least ten minutes and at most a week.

Nothing here reads a clock: the time is an argument. A survey costs as much as there are links. It is therefore made
only when a change of links may connect or part brokers, which one more link between two connected brokers does not, and
less often in large overlays.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field

from overlane.core.events import BrokersRefused
from overlane.core.gossip.link_state import FORGET_AFTER, LinkStateTable, gap_for
from overlane.core.links.link_health import LinkState
from overlane.core.units import NEVER, SECOND, Nanos
from overlane.core.wire.control_messages import Advert
from overlane.core.wire.message_fields import BROKERS_MAX

WAIT_MAX: Nanos = 30 * SECOND
"""How long a broker is remembered that is not connected, or not yet."""
REGAINED_AFTER: Nanos = WAIT_MAX // 2
NEEDS_KEPT_MIN: Nanos = 600 * SECOND
NEEDS_KEPT_MAX: Nanos = 7 * 86_400 * SECOND
LEFT_KEPT: Nanos = NEEDS_KEPT_MIN
"""That a broker left which is not trusted; who was away for longer has forgotten it without being told."""
LINKS_PER_PLACE = 16
"""A broker with more links than this takes the room of several."""
TELL_EVERY: Nanos = 10 * SECOND


@dataclass(frozen=True, slots=True)
class _Waiting:
    advert: Advert
    sender: str
    since: Nanos


@dataclass(slots=True)
class AdmissionSurvey:
    """What one look at all links has found."""

    admitted: list[tuple[str, Advert]] = field(default_factory=list)
    """Adverts that waited and count from now on, each with the neighbour that told it; nearest first."""
    regained: list[str] = field(default_factory=list)
    """Brokers that are connected again after so long that others may have forgotten them already."""
    forgotten: list[str] = field(default_factory=list)
    evicted: list[str] = field(default_factory=list)
    """Of those forgotten, for which there was no room: nothing is kept for them either."""


class BrokerAdmission:
    """`named`: the brokers of the network file. `is_proven` tells whether a broker has proved its proof."""

    def __init__(
        self,
        me: str,
        table: LinkStateTable,
        named: Collection[str] = (),
        brokers_max: int = BROKERS_MAX,
        is_proven: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._me = me
        self._table = table
        self._named = frozenset(named)
        self.brokers_max = min(brokers_max, BROKERS_MAX)
        self._is_proven = is_proven
        self._waiting: dict[str, _Waiting] = {}
        self._held: dict[str, int] = {}
        """Places taken by what waits, by the neighbour that told it."""
        self._ends: dict[str, frozenset[str]] = {}
        """Whom each broker, admitted or waiting, claims a working link with."""
        self._links = 0
        """How many these are in all."""
        self._roots: tuple[str, ...] = ()
        self._distance: dict[str, int] = {me: 0}
        self._lost_at: dict[str, Nanos] = {}
        """Since when an admitted broker is not connected."""
        self._present_since: dict[str, Nanos] = {}
        self._absent: dict[str, tuple[Nanos, Nanos]] = {}
        """Of brokers that need something and are away: since when, and how long they had been here."""
        self.is_dirty = True
        """Who is connected may have changed since the last survey."""
        self._surveyed_at: Nanos = -NEVER
        self._told_at: Nanos = -NEVER
        self._untold: dict[str, int] = {}
        self.refused = 0
        """Adverts for which there was no room."""

    def reconfigure(self, named: Collection[str], brokers_max: int) -> None:
        """Others are named, or more or fewer admitted, from now on."""
        self._named = frozenset(named)
        self.brokers_max = min(brokers_max, BROKERS_MAX)
        self.is_dirty = True

    # What is asked of it

    def is_trusted(self, broker: str) -> bool:
        return broker in self._named or self._is_proven(broker)

    def is_connected(self, broker: str) -> bool:
        """Whether there was a path of links that both ends claim, when that was last looked at."""
        return broker in self._distance

    def linked_elsewhere(self) -> list[str]:
        """Connected brokers that claim a link with a broker of our name and have none with this one."""
        linked = {self._me, *self._roots}
        return [name for name in self._distance if self._me in self._ends.get(name, ()) and name not in linked]

    def linked_with(self, broker: str) -> str | None:
        """A connected broker other than this one that has a link with another, as both say."""
        ends = self._ends.get(broker, frozenset()) - {self._me}
        return min((end for end in ends if end in self._distance and broker in self._ends.get(end, ())), default=None)

    def nearest_first(self, brokers: Iterable[str]) -> list[str]:
        """So that who is told of all of them finds each connected to those before."""
        distance = self._distance
        return sorted(brokers, key=lambda name: (distance.get(name, BROKERS_MAX), name))

    # Adverts

    def take_or_wait(self, sender: str, advert: Advert, is_needy: bool, now: Nanos) -> bool:
        """Whether an advert, which is news, is to be kept and passed on now. If not, it may wait for that."""
        broker = advert.broker
        if broker in self._table.adverts or broker == sender:
            return True
        if advert.left:
            return is_needy or self.is_trusted(broker) or self._admit_departure(sender)
        ends = _ends_of(advert)
        if any(broker in self._ends.get(end, ()) and end in self._distance for end in ends) and self._is_roomy():
            return True
        self._wait(sender, advert, ends, now)
        return False

    def took(self, advert: Advert, now: Nanos) -> None:
        """The table has an advert: what it says of links may connect or part others."""
        broker = advert.broker
        self._drop_waiting(broker)
        ends = frozenset() if advert.left else _ends_of(advert)
        before = self._ends.get(broker)
        if before == ends:
            return
        self._set_ends(broker, ends)
        changed = {end for end in (before or frozenset()) ^ ends if broker in self._ends.get(end, ())}
        if changed <= ends and self._joins(broker, changed):
            self._distance.setdefault(broker, 1 + min((self._distance[end] for end in changed), default=0))
            self._present_since.setdefault(broker, now)
        else:
            self.is_dirty = True

    def _joins(self, broker: str, linked: Set[str]) -> bool:
        """Whether new links of a broker, with these as both ends say, connect nobody but at most itself."""
        if not (linked <= self._distance.keys() and self._is_roomy()):
            return False
        return broker in self._distance or (bool(linked) and broker not in self._lost_at)

    def lost(self, broker: str) -> None:
        """The table has forgotten a broker for another reason."""
        self._forget(broker)

    def _wait(self, sender: str, advert: Advert, ends: frozenset[str], now: Nanos) -> None:
        broker = advert.broker
        if (known := self._waiting.get(broker)) is not None:
            if (known.advert.incarnation, known.advert.sequence) >= (advert.incarnation, advert.sequence):
                return
            self._drop_waiting(broker)
        places = _places(ends)
        if self._held.get(sender, 0) + places > self.brokers_max:
            self._refuse(sender)
            return
        self._waiting[broker] = _Waiting(advert, sender, now)
        self._held[sender] = self._held.get(sender, 0) + places
        self._set_ends(broker, ends)
        self.is_dirty = True

    def _drop_waiting(self, broker: str) -> None:
        waiting = self._waiting.pop(broker, None)
        if waiting is not None:
            self._held[waiting.sender] -= _places(self._drop_ends(broker))

    def _set_ends(self, broker: str, ends: frozenset[str]) -> None:
        self._links += len(ends) - len(self._ends.get(broker, ()))
        self._ends[broker] = ends

    def _drop_ends(self, broker: str) -> frozenset[str]:
        ends = self._ends.pop(broker, frozenset())
        self._links -= len(ends)
        return ends

    def _refuse(self, sender: str) -> None:
        self.refused += 1
        self._untold[sender] = self._untold.get(sender, 0) + 1

    def _is_roomy(self) -> bool:
        """Whether all have room, whatever the shape of the network is."""
        return len(self._table.adverts) + self._links // LINKS_PER_PLACE < self.brokers_max // 2

    def _admit_departure(self, sender: str) -> bool:
        departures = sum(1 for one in self._table.adverts.values() if one.left)
        if departures < self.brokers_max:
            return True
        self._refuse(sender)
        return False

    # Surveys

    def next_deadline(self) -> Nanos:
        if not self.is_dirty:
            return NEVER
        return self._surveyed_at + gap_for(self._links)

    def survey(self, greeted: tuple[str, ...], now: Nanos, *, is_sweep: bool = False) -> AdmissionSurvey:
        """Who is connected, if that may have changed and was not looked at just now. `greeted`: the neighbours that are
        here. A sweep also looks at what time alone has changed."""
        found = AdmissionSurvey()
        if greeted != self._roots:
            self._roots, self.is_dirty = greeted, True
        if is_sweep:
            self._sweep(found, now)
        if self.is_dirty and now >= self.next_deadline():
            self._look(found, now)
            self.is_dirty = False
            self._surveyed_at = now
        return found

    def _look(self, found: AdmissionSurvey, now: Nanos) -> None:
        order, parent = self._reached()
        kept = self._fitting(order, parent)
        distance: dict[str, int] = {}
        for name in order:
            waiting = self._waiting.get(name)
            if name not in kept:
                if waiting is not None:
                    self._drop_waiting(name)
                    self._refuse(waiting.sender)
                elif name in self._table.adverts:
                    self._refuse(_branch(name, parent))
                    self._table.forget(name, now)
                    self._forget(name)
                    found.forgotten.append(name)
                    found.evicted.append(name)
                continue
            above = parent[name]
            distance[name] = 0 if above is None else distance[above] + 1
            if now - self._lost_at.pop(name, now) > REGAINED_AFTER:
                found.regained.append(name)
            self._present_since.setdefault(name, now)
            if waiting is not None:
                found.admitted.append((waiting.sender, waiting.advert))
                self._drop_waiting(name)
                self._set_ends(name, _ends_of(waiting.advert))
        self._distance = distance
        for name, advert in self._table.adverts.items():
            if name not in distance and not advert.left:
                self._lost_at.setdefault(name, now)

    def _reached(self) -> tuple[list[str], dict[str, str | None]]:
        """All that are connected, nearest first, each with the one before it on a shortest path."""
        ends = self._ends
        order = [self._me]
        parent: dict[str, str | None] = {self._me: None}
        for root in self._roots:
            parent[root] = self._me
            order.append(root)
        for name in order:
            claimed = ends.get(name, frozenset())
            for other in sorted(claimed):
                if other not in parent and name in ends.get(other, ()):
                    parent[other] = name
                    order.append(other)
        return order, parent

    def _fitting(self, order: list[str], parent: Mapping[str, str | None]) -> Collection[str]:
        """Those of the connected brokers for which there is room."""
        takes = {name: 0 if self._is_certain(name) else _places(self._ends.get(name, frozenset())) for name in order}
        if sum(takes.values()) <= self.brokers_max:
            return parent.keys()
        wanted = dict(takes)
        branches: dict[str, list[str]] = {}
        for name in reversed(order):
            above = parent[name]
            if above is not None:
                wanted[above] += wanted[name]
                branches.setdefault(above, []).append(name)
        room = {self._me: self.brokers_max}
        kept = set()
        for name in order:
            left = room.get(name, 0) - takes[name]
            if left < 0:
                continue  # and so is all that is only behind it
            kept.add(name)
            waiting = sorted(branches.get(name, ()), key=lambda branch: (wanted[branch], branch))
            for place, branch in enumerate(waiting):
                share = min(wanted[branch], left // (len(waiting) - place))
                if share >= takes[branch]:
                    room[branch] = share
                    left -= share
        return kept

    def _is_certain(self, name: str) -> bool:
        return name == self._me or name in self._roots or self.is_trusted(name)

    def _sweep(self, found: AdmissionSurvey, now: Nanos) -> None:
        for name, waiting in list(self._waiting.items()):
            if now - waiting.since > WAIT_MAX:
                self._drop_waiting(name)
        for name, at in list(self._lost_at.items()):
            if name in self._table.adverts and now - at > (FORGET_AFTER if self.is_trusted(name) else WAIT_MAX):
                self._table.forget(name, now)
                self._forget(name)
                found.forgotten.append(name)
        for name in self._table.forget_silent(now):
            self._forget(name)
            found.forgotten.append(name)
        departures = [name for name, one in self._table.adverts.items() if one.left and not self.is_trusted(name)]
        for name in departures:
            if now - self._table.heard_at(name) > LEFT_KEPT:
                self._table.forget(name, now)
                self._forget(name)
                found.forgotten.append(name)
        self._held = {sender: places for sender, places in self._held.items() if places}

    def _forget(self, broker: str) -> None:
        self._drop_ends(broker)
        self._lost_at.pop(broker, None)
        self._distance.pop(broker, None)
        self.is_dirty = True

    # Needs of those who are away

    def expired_interest(self, needy: Iterable[str], now: Nanos) -> list[str]:
        """Of the brokers that need something, those that are away for so long that nothing is kept for them."""
        away = [name for name in needy if name not in self._distance and not self.is_trusted(name)]
        before, self._absent = self._absent, {}
        for name in away:
            known = before.get(name)
            if known is None:
                lost_at = self._lost_at.get(name, now)
                known = lost_at, max(0, lost_at - self._present_since.get(name, lost_at))
            self._absent[name] = known
        gone = [
            name
            for name, (since, stayed) in self._absent.items()
            if now - since > min(NEEDS_KEPT_MAX, max(NEEDS_KEPT_MIN, stayed))
        ]
        if (surplus := len(away) - len(gone) - self.brokers_max) > 0:
            rest = sorted(set(away) - set(gone), key=lambda name: (self._absent[name][1], name))
            gone += rest[:surplus]
        for name in gone:
            del self._absent[name]
        kept = self._distance.keys() | self._absent.keys()
        self._present_since = {name: at for name, at in self._present_since.items() if name in kept}
        return sorted(gone)

    # What operators are told

    def take_told(self, now: Nanos) -> list[BrokersRefused]:
        """Who tells of more brokers than there is room for, once in a while."""
        if not self._untold or now < self._told_at + TELL_EVERY:
            return []
        self._told_at = now
        untold, self._untold = self._untold, {}
        return [BrokersRefused(sender, count, self.brokers_max) for sender, count in sorted(untold.items())]


def _branch(name: str, parent: Mapping[str, str | None]) -> str:
    """The neighbour behind which a broker is."""
    above = parent[name]
    while above is not None and parent[above] is not None:
        name, above = above, parent[above]
    return name


def _ends_of(advert: Advert) -> frozenset[str]:
    return frozenset(link.peer for link in advert.links if link.state != LinkState.FAILED)


def _places(ends: frozenset[str]) -> int:
    return 1 + len(ends) // LINKS_PER_PLACE
