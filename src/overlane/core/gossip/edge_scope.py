"""Edge scope: the filters that an edge broker exchanges with routing brokers.

A bundle of topics is assigned to one routing broker, its carrier. An edge sends each carrier

  - the filters that its clients need, of the bundles that this one carries, and
  - the groups of topics in which its clients publish there,

and receives the filters of other edges that can match these groups. So its state and traffic grow with the activity of
its clients, not with the number of brokers.

    group:  unused -- first message --> waiting -- carrier says complete --> ready -- idle for minutes --> unused

Messages of a waiting group wait at the source (`flows/held_messages.py`). A ready group stays ready when its bundle
moves or its carrier is lost: other edges' filters are kept until newer ones are complete.

**Standbys.** A bundle may have a second routing broker that carries it next. It exchanges the same filters as the
carrier: when the carrier fails, messages use its known paths at once, and it answers for new groups.

**Make before break.** A filter that its bundle's carrier does not list is *doubtful* but still used. It is dropped when
that carrier's filters, with those of the broker that had it, are complete; or after a day. So no filter in use is lost.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from overlane.core.bundles import (
    ALL,
    ANY,
    BUNDLES,
    as_mask,
    bundle_of_group,
    encode_mask,
    group_of,
    groups_of,
    is_followed,
    is_scoped,
)
from overlane.core.events import Effect, ScopeChanged, ScopeDigest
from overlane.core.gossip.edge_telling import Group, Renewals, Telling
from overlane.core.gossip.interest import RemoteInterest
from overlane.core.gossip.link_interest import LinkInterest
from overlane.core.links.interest_transfer import Filters, part_end
from overlane.core.units import MS, NEVER, SECOND, Nanos
from overlane.core.wire.control_messages import ControlMessage, PublishScope, ScopeComplete, ScopedInterest
from overlane.core.wire.message_fields import BROKERS_MAX, GROUPS_TOLD_MAX, PAGE_MAX, PART_FILTERS_MAX

PERIOD: Nanos = 60 * SECOND
IDLE_PERIODS = 5
"""Publishing in a group ends when this many periods have passed without a message."""
GROUPS_MAX = 1 << 17
"""Groups in which one edge publishes; of more, those that were idle for longest end."""
DOUBT_MAX: Nanos = 86_400 * SECOND
DIGEST_GAP: Nanos = 50 * MS
"""Reports of a broker are written as often: a longer gap would make new subscriptions wait for nothing."""
NEW_FOR: Nanos = 1 * SECOND
"""How long a broker of whose needs was just told may be missing on the map."""


class EdgeScope:
    """`on_news` is called with a routing broker that there is something to tell."""

    def __init__(
        self, me: str, remote: RemoteInterest, on_news: Callable[[str], None], on_change: Callable[[], None]
    ) -> None:
        self._me = me
        self._remote = remote
        self._on_news = on_news
        self._on_change = on_change
        self._assignment: dict[int, str] = {}
        self._standbys: dict[int, str] = {}
        self._served: dict[str, int] = {}
        """By routing broker, the bundles that it carries or stands by for, as a mask."""
        self._needed: dict[int, Filters] = {}
        """The filters that clients here need, by bundle, or ANY."""
        self._groups: dict[int, Group] = {}
        self._in_bundle: dict[int, dict[int, None]] = {}
        """Groups in which clients publish, by bundle."""
        self._waiting: dict[int, None] = {}
        self._renewals = Renewals()
        self._tellings: dict[str, Telling] = {}
        self._tellers: dict[str, LinkInterest] = {}
        self._doubtful: dict[tuple[str, str], Nanos] = {}
        self.newcomers: dict[str, Nanos] = {}
        """Brokers of whose needs was told lately, and until when that is lately: the latest is the last."""
        self._period = 0
        self._period_ends: Nanos = NEVER
        self._digest = ScopeDigest()
        self._digest_told_at: Nanos = -NEVER
        self._has_digest_news = False

    # What clients do

    def need(self, topic_filter: str, is_needed: bool) -> None:
        """A client needs a filter, or none does any more."""
        group = groups_of(topic_filter)
        if is_followed(topic_filter) and group is not None and group != ANY:
            self._follow(group, 1 if is_needed else -1)
        if not is_scoped(topic_filter):
            return
        place = _place(topic_filter)
        filters = self._needed.setdefault(place, {})
        if is_needed:
            filters[topic_filter] = None
        else:
            filters.pop(topic_filter, None)
            if not filters:
                del self._needed[place]
            self._renewals.end(topic_filter)
        self._has_digest_news = True
        for one in self._servers_of(place):
            self._tell_filters(one, (topic_filter,))

    def renew(self, topic_filter: str) -> None:
        """Clients begin to need a filter, perhaps after a time without: routing brokers are to treat it as new."""
        if not is_scoped(topic_filter):
            return
        self._renewals.add(topic_filter)
        for one in self._servers_of(_place(topic_filter)):
            self._tell_filters(one, (topic_filter,))

    def must_wait(self, topic: str) -> bool:
        """A client publishes on a topic: whether the message has to wait for news of who needs it."""
        group = group_of(topic)
        if group is None:
            return False
        known = self._groups.get(group)
        if known is None:
            known = self._begin(group)
        known.period = self._period
        return not known.is_ready

    def _follow(self, group: int, change: int) -> None:
        """Be told of a group as if clients published there, for as long as a reservation concerns it."""
        known = self._groups.get(group) or self._begin(group)
        known.follows += change
        known.period = self._period

    def _begin(self, group: int) -> Group:
        if len(self._groups) >= GROUPS_MAX:
            self._end_idle(min(one.period for one in self._groups.values()))
            if len(self._groups) >= GROUPS_MAX:
                return Group(is_ready=True)  # for those who are known to need it
        known = self._groups[group] = Group()
        bundle = bundle_of_group(group)
        self._in_bundle.setdefault(bundle, {})[group] = None
        self._waiting[group] = None
        self._has_digest_news = True
        for one in self._servers_of(bundle):
            self._tell_groups(one, (group,))
        return known

    def _end_idle(self, until: int) -> bool:
        """End groups without a message since a period; whether there were any."""
        idle = [group for group, known in self._groups.items() if known.is_idle(until)]
        for group in idle:
            bundle = bundle_of_group(group)
            del self._groups[group], self._in_bundle[bundle][group]
            if not self._in_bundle[bundle]:
                del self._in_bundle[bundle]
            for one in self._servers_of(bundle):
                self._tell_groups(one, (group,))
        if idle:
            self._has_digest_news = True
            self._on_change()
        return bool(idle)

    def is_waiting(self, group: int) -> bool:
        return group in self._waiting

    # The assignment

    def assign(self, assignment: Mapping[int, str], now: Nanos, standbys: Mapping[int, str] | None = None) -> None:
        standbys = {} if standbys is None else standbys
        if assignment == self._assignment and standbys == self._standbys:
            return
        moved = [one for one in range(BUNDLES) if self._assignment.get(one) != assignment.get(one)]
        changed = {*moved, *(one for one in range(BUNDLES) if self._standbys.get(one) != standbys.get(one))}
        servers_before = {bundle: self._servers_of(bundle) for bundle in sorted(changed)}
        self._assignment = {bundle: assignment[bundle] for bundle in range(BUNDLES) if bundle in assignment}
        self._standbys = {bundle: standbys[bundle] for bundle in self._assignment if bundle in standbys}
        served_before, self._served = self._served, self._by_server()
        for one in sorted({*served_before, *self._served}):
            if (one in served_before) != (one in self._served):
                self._tell_filters(one, self._needed.get(ANY, ()))
            if served_before.get(one) != self._served.get(one):
                self._news(one)
        for bundle, before in servers_before.items():
            for one in sorted({*before} ^ {*self._servers_of(bundle)}):
                self._tell_filters(one, self._needed.get(bundle, ()))
                self._tell_groups(one, self._in_bundle.get(bundle, ()))
        if moved:
            self._doubt_moved(moved, now)
            self._settle_groups()

    def _by_server(self) -> dict[str, int]:
        masks: dict[str, int] = {}
        for assigned in (self._assignment, self._standbys):
            for bundle, name in assigned.items():
                masks[name] = masks.get(name, 0) | 1 << bundle
        return {name: masks[name] for name in sorted(masks)}

    def _doubt_moved(self, moved: Iterable[int], now: Nanos) -> None:
        """What former carriers have told of bundles that have moved is confirmed by their carriers of now, or not."""
        bundles = as_mask(moved)
        for broker in self._remote.held_brokers():
            for topic_filter in list(self._remote.held(broker)):
                group = groups_of(topic_filter)
                if group is None or group == ANY or bundles >> bundle_of_group(group) & 1:
                    self._consider(broker, topic_filter, now)

    def carrier_of(self, topic: str) -> str | None:
        group = group_of(topic)
        return None if group is None else self._assignment.get(bundle_of_group(group))

    def carriers(self) -> frozenset[str]:
        return frozenset(self._assignment.values())

    def _servers_of(self, place: int) -> tuple[str, ...]:
        """The routing brokers that are told of a bundle, its carrier first; for ANY, of some bundle."""
        if place == ANY:
            return tuple(self._served)
        carrier, standby = self._assignment.get(place), self._standbys.get(place)
        if carrier is None:
            return ()
        return (carrier,) if standby is None or standby == carrier else (carrier, standby)

    # Telling

    def connected(self, peer: str) -> None:
        """A connection with a routing broker begins: it has been told nothing, and will tell everything anew."""
        telling = self._tellings[peer] = Telling(is_connected=True)
        self._tellers.setdefault(peer, LinkInterest()).connected()
        for bundle in sorted({*self._needed, *self._in_bundle} - {ANY}):
            if peer in self._servers_of(bundle):
                telling.changed_filters.update(self._needed.get(bundle, {}))
                telling.changed_groups.update(self._in_bundle.get(bundle, {}))
        if peer in self._served:
            telling.changed_filters.update(self._needed.get(ANY, {}))
        for (broker, topic_filter), since in self._doubtful.items():
            self._doubt(broker, topic_filter, since)
        self._on_news(peer)

    def disconnected(self, peer: str) -> None:
        self._tellings.pop(peer, None)

    def _tell_filters(self, peer: str, filters: Iterable[str]) -> None:
        telling = self._tellings.get(peer)
        if telling is not None:
            telling.changed_filters.update(dict.fromkeys(filters))
            self._on_news(peer)

    def _tell_groups(self, peer: str, groups: Iterable[int]) -> None:
        telling = self._tellings.get(peer)
        if telling is not None:
            telling.changed_groups.update(dict.fromkeys(groups))
            self._on_news(peer)

    def _news(self, peer: str) -> None:
        if peer in self._tellings:
            self._on_news(peer)

    def next_message(self, peer: str) -> ControlMessage | None:
        """The next message for a routing broker; None if it has been told everything."""
        telling = self._tellings.get(peer)
        if telling is None:
            return None
        has_groups = telling.changed_groups or telling.to_ask
        if has_groups and (message := self._tell_some_groups(peer, telling)) is not None:
            return message
        covers = self._served.get(peer, 0)
        while telling.changed_filters or telling.covers != covers:
            if (interest := self._tell_some_filters(peer, telling, covers)) is not None:
                return interest
        if not telling.is_complete:
            telling.is_complete = True
            return ScopeComplete(0, encode_mask(covers))
        return None

    def _tell_some_groups(self, peer: str, telling: Telling) -> PublishScope | None:
        added: list[int] = []
        removed: list[int] = []
        while telling.changed_groups and len(added) < GROUPS_TOLD_MAX and len(removed) < GROUPS_TOLD_MAX:
            group = telling.changed_groups.popitem()[0]
            is_told = group in telling.groups
            is_due = group in self._groups and peer in self._servers_of(bundle_of_group(group))
            if is_due and not is_told:
                added.append(group)
            elif is_told and not is_due:
                removed.append(group)
        asked = list(islice(telling.to_ask, PAGE_MAX))
        if not added and not removed and not asked:
            return None
        telling.serial += 1
        for broker in asked:
            del telling.to_ask[broker]
            telling.asked.add(broker)
        for group in added:
            telling.groups[group] = telling.serial
        for group in removed:
            del telling.groups[group]
        return PublishScope(telling.serial, sorted(added), sorted(removed), sorted(asked))

    def _tell_some_filters(self, peer: str, telling: Telling, covers: int) -> ScopedInterest | None:
        names = list(islice(telling.changed_filters, PART_FILTERS_MAX))
        end = part_end(names, 0)
        added: list[str] = []
        removed: list[str] = []
        is_renewed = False
        for topic_filter in names[:end]:
            told = telling.filters.get(topic_filter)
            if self._is_due(topic_filter, peer):
                if told == (number := self._renewals.of(topic_filter)):
                    del telling.changed_filters[topic_filter]
                    continue
                is_news = self._renewals.is_news(topic_filter, peer)
                if added and is_news != is_renewed:
                    continue  # with the next message
                is_renewed = is_news
                telling.filters[topic_filter] = number
                added.append(topic_filter)
            elif told is not None:
                del telling.filters[topic_filter]
                removed.append(topic_filter)
            del telling.changed_filters[topic_filter]
        if telling.covers != covers:
            telling.covers, telling.is_complete = covers, False
        elif not added and not removed:
            return None
        return ScopedInterest(self._me, encode_mask(covers), sorted(added), sorted(removed), is_renewed)

    def _is_due(self, topic_filter: str, peer: str) -> bool:
        place = _place(topic_filter)
        is_server = peer in self._served if place == ANY else peer in self._servers_of(place)
        return is_server and self._is_needed(topic_filter)

    def _is_needed(self, topic_filter: str) -> bool:
        return topic_filter in self._needed.get(_place(topic_filter), ())

    # Hearing

    def hear(self, sender: str, message: ScopedInterest | ScopeComplete, now: Nanos) -> list[tuple[str, list[str]]]:
        """A routing broker tells of others' filters: which brokers newly need which."""
        teller = self._tellers.setdefault(sender, LinkInterest())
        match message:
            case ScopedInterest(broker=broker):
                if broker == self._me or (broker not in teller.words and len(teller.words) >= BROKERS_MAX):
                    return []
                added, removed = teller.take(message)
                fresh = [one for one in added if self._remote.hold(broker, one)]
                if added:
                    self.newcomers.pop(broker, None)
                    self.newcomers[broker] = now + NEW_FOR
                held = self._remote.held(broker)
                for topic_filter in message.added:
                    self._doubtful.pop((broker, topic_filter), None)
                    if topic_filter not in held:
                        teller.words[broker].filters.pop(topic_filter, None)  # there was no room for it
                for topic_filter in removed:
                    self._consider(broker, topic_filter, now, is_withdrawn=True)
                return [(broker, fresh)] if fresh else []
            case ScopeComplete(serial, bundles):
                for broker, topic_filter in list(teller.completed(serial, int.from_bytes(bundles, "little"))):
                    self._consider(broker, topic_filter, now)
                for broker, topic_filter in list(self._doubtful):
                    self._consider(broker, topic_filter, now)
                teller.prune()
                self._settle_groups()
        return []

    def _settle_groups(self) -> None:
        """Let go the messages of groups whose carriers, or their standbys, have told everything."""
        for group in list(self._waiting):
            if any(self._has_told_all(one, group) for one in self._servers_of(bundle_of_group(group))):
                del self._waiting[group]
                self._groups[group].is_ready = True
                self._on_change()

    def _has_told_all(self, peer: str, group: int) -> bool:
        """Whether a routing broker has told everything that others need of a group."""
        telling, teller = self._tellings.get(peer), self._tellers.get(peer)
        if telling is None or teller is None or not teller.complete >> bundle_of_group(group) & 1:
            return False
        serial = telling.groups.get(group)
        return serial is not None and serial <= teller.serial

    def _consider(self, broker: str, topic_filter: str, now: Nanos, is_withdrawn: bool = False) -> None:
        """Whether a filter of another broker still counts, which some routing broker does not tell, or no more."""
        if self._is_told(broker, topic_filter):
            self._doubtful.pop((broker, topic_filter), None)
        elif self._is_refuted(broker, topic_filter) or (is_withdrawn and not self._is_published(topic_filter)):
            self._doubtful.pop((broker, topic_filter), None)
            self._remote.release(broker, topic_filter)
        else:
            self._doubt(broker, topic_filter, now)

    def _doubt(self, broker: str, topic_filter: str, now: Nanos) -> None:
        """It still counts; ask who should know."""
        self._doubtful.setdefault((broker, topic_filter), now)
        group = groups_of(topic_filter)
        bundles: Iterable[int] = self._in_bundle
        if group is not None and group != ANY:
            bundles = (bundle_of_group(group),)
        for carrier in sorted({self._assignment.get(bundle, "") for bundle in bundles}):
            telling = self._tellings.get(carrier)
            if telling is not None and broker not in telling.asked and broker not in telling.to_ask:
                telling.to_ask[broker] = None
                self._on_news(carrier)

    def _is_told(self, broker: str, topic_filter: str) -> bool:
        """By one that is connected, or carries its topics."""
        group = groups_of(topic_filter)
        is_any = group is None or group == ANY
        carrier = "" if is_any else self._assignment.get(bundle_of_group(group or 0))
        return any(
            teller.tells(broker, topic_filter)
            and (name in self._tellings or (name in self._served if is_any else name == carrier))
            for name, teller in self._tellers.items()
        )

    def _is_refuted(self, broker: str, topic_filter: str) -> bool:
        """Whether the carriers of its topics have told everything, and have that broker's word, and do not tell it."""
        group = groups_of(topic_filter)
        bundles: Iterable[int] = self._in_bundle
        if group is not None and group != ANY:
            bundles = (bundle_of_group(group),)
        for bundle in bundles:
            teller = self._tellers.get(self._assignment.get(bundle, ""))
            if teller is None or not teller.covers(broker, bundle):
                return False
        return bool(bundles)

    def _is_published(self, topic_filter: str) -> bool:
        """Whether something is published here that could match it; if that begins, the filter is told anew."""
        group = groups_of(topic_filter)
        return bool(self._groups) if group is None or group == ANY else group in self._groups

    def doubt_restored(self, now: Nanos) -> None:
        """What was restored from the store has to be told again, by whomever."""
        self._remote.hold_restored()
        for broker in self._remote.held_brokers():
            for topic_filter in self._remote.held(broker):
                self._doubt(broker, topic_filter, now)

    def forget(self, broker: str) -> None:
        """It left for good."""
        self._renewals.forget(broker)
        for teller in self._tellers.values():
            teller.forget(broker)
        for one in [one for one in self._doubtful if one[0] == broker]:
            del self._doubtful[one]

    # Time

    def next_deadline(self) -> Nanos:
        when = min(self._period_ends, next(iter(self.newcomers.values()), NEVER))
        return min(when, self._digest_told_at + DIGEST_GAP) if self._has_digest_news else when

    def tick(self, now: Nanos) -> list[Effect]:
        if self._period_ends == NEVER:
            self._period_ends = now + PERIOD
        while self.newcomers and now >= self.newcomers[first := next(iter(self.newcomers))]:
            del self.newcomers[first]
        if now >= self._period_ends:
            self._period_ends = now + PERIOD
            self._period += 1
            if not self._end_idle(self._period - IDLE_PERIODS) and self._groups:
                self._on_change()  # whoever remembers where topics go asks again, which shows that they are in use
            self._renewals.period_ended(self._tellings, self._is_needed)
            for (broker, topic_filter), since in list(self._doubtful.items()):
                if now - since >= DOUBT_MAX:
                    del self._doubtful[broker, topic_filter]
                    self._remote.release(broker, topic_filter)
        if not self._has_digest_news or now < self._digest_told_at + DIGEST_GAP:
            return []
        self._has_digest_news = False
        digest = self.digest()
        if digest == self._digest:
            return []
        self._digest, self._digest_told_at = digest, now
        return [ScopeChanged(digest)]

    def digest(self) -> ScopeDigest:
        """The bundles that clients here use."""
        subscribed = ALL if ANY in self._needed else frozenset(self._needed)
        return ScopeDigest(frozenset(self._in_bundle), subscribed)

    def size(self) -> dict[str, int]:
        """How much is kept, for people and tests."""
        return {
            "groups": len(self._groups),
            "doubtful_filters": len(self._doubtful),
            "held_filters": sum(len(self._remote.held(one)) for one in self._remote.held_brokers()),
            "brokers": len(self._remote.held_brokers()),
        }


def _place(topic_filter: str) -> int:
    """The bundle of a filter, or ANY."""
    group = groups_of(topic_filter)
    return ANY if group is None or group == ANY else bundle_of_group(group)
