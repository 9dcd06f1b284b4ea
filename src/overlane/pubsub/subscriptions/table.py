"""Subscriptions: which sessions receive a topic, and with which options.

A session subscribes to filters, with options for each. `SubscriptionTable.audience(topic)` returns who receives a
message on that topic: the receivers, each session once even if several of its filters match, and the shared groups,
each of which gives the message to one of its members. Results are cached until a subscription changes.

Overlapping subscriptions of one session are merged into one receiver: the highest QoS, all identifiers, and the retain
flag kept if any of them asks for it. If some of them have a content filter, which of them take a message is found out
for each one (`content_filters`). If some of them exclude the session's own messages (`no_local`), the receiver also
has the result of the others, for those messages.

Topics with the same receivers have the same `Audience` object, so that a run of messages on different topics can be
delivered as one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from overlane.core.topic_cache import TopicCache
from overlane.core.topics import FilterTrie, check_filter
from overlane.errors import OverlaneError
from overlane.pubsub.policies.policy import NO_REQUEST, Request
from overlane.pubsub.publishing.qos_override import NONE, QosOverride
from overlane.pubsub.reservations.request import ReservationRequest
from overlane.selectors import Selector

if TYPE_CHECKING:
    from overlane.pubsub.sessions.session import Session

SHARED = "$share/"


class BadFilter(OverlaneError, ValueError):
    """A shared subscription's name that MQTT does not allow."""

    error_code = "OVL-110"


def split_shared(name: str) -> tuple[str, str]:
    """The group ("" if it is not shared) and the filter of what a client subscribes to; BadTopic or BadFilter."""
    if not name.startswith(SHARED):
        check_filter(name)
        return "", name
    group, slash, topic_filter = name[len(SHARED) :].partition("/")
    if not group or not slash or "+" in group or "#" in group:
        raise BadFilter(f"{name!a}: a shared subscription is $share/GROUP/FILTER, without wildcards in GROUP")
    check_filter(topic_filter)
    return group, topic_filter


@dataclass(slots=True, eq=False)
class Subscription:
    """`name` is what the client calls it, with the group; `filter` what topics are matched against."""

    session: "Session"
    name: str
    group: str
    filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    identifier: int = 0
    override: QosOverride = NONE
    """What it asks for beyond what the file gives."""
    where: Selector | None = None
    """Its content filter."""
    reserve: ReservationRequest | None = None
    """The reservation that it asks for."""
    is_local: bool = False
    """Whether it needs nothing of other brokers, so that it is not announced to them."""
    is_standby: bool = False
    """Whether it gets only messages with an identity that are published at this broker (`content_filters`)."""
    request: Request = NO_REQUEST
    """What it requests of publishers."""


class Receiver:
    """A session that gets a topic: with which QoS at most, under which identifiers.

    `is_conditional`: it may get a message otherwise, or not at all (`content_filters`). `is_particular`: it does not
    get the bytes that others get.
    """

    __slots__ = (
        "choices",
        "identifiers",
        "is_conditional",
        "is_own",
        "is_particular",
        "of_own",
        "qos",
        "retain_as_published",
        "session",
    )

    def __init__(self, session: "Session", subscriptions: list[Subscription]) -> None:
        self.session = session
        is_selective = any(one.where is not None or one.is_standby for one in subscriptions)
        self.choices = tuple(subscriptions) if is_selective else ()
        """Its subscriptions, if some of them do not take every message."""
        self.qos = max(one.qos for one in subscriptions)
        self.identifiers = tuple(sorted(one.identifier for one in subscriptions if one.identifier))
        self.retain_as_published = any(one.retain_as_published for one in subscriptions)
        others = [one for one in subscriptions if not one.no_local]
        self.is_own = len(others) == len(subscriptions)
        """Whether the session's own messages are for it in the same way as those of others."""
        self.of_own = Receiver(session, others) if others and not self.is_own else None
        """How it gets its own messages where that differs; None: not at all."""
        self.is_conditional = bool(self.choices) or not self.is_own
        self.is_particular = bool(self.choices or self.identifiers)

    @property
    def shape(self) -> tuple[object, ...]:
        of_own = None if self.of_own is None else self.of_own.shape
        choices = tuple(map(id, self.choices))
        return id(self.session), self.qos, self.identifiers, self.retain_as_published, self.is_own, of_own, choices


class SharedGroup:
    """The members of one shared subscription take turns.

    A message goes to the next member that can be sent it now; if there is none, to the next that is there and has room
    for it in its queue; if there is none, to the next that has room and is away.
    """

    __slots__ = ("_turn", "filter", "members", "name")

    def __init__(self, name: str, topic_filter: str) -> None:
        self.name = name
        self.filter = topic_filter
        self.members: dict[Session, Subscription] = {}
        self._turn = 0

    @property
    def is_attended(self) -> bool:
        """Whether one of its members is there."""
        return any(session.consumer is not None for session in self.members)

    def choose(self, may: Callable[["Session"], bool], takes: Callable[["Session"], bool]) -> Subscription | None:
        """Whose turn it is, of those that may have the message, and rather one whose queue takes it."""
        members = list(self.members.values())
        self._turn += 1
        best, best_rank = None, 4
        for place in range(len(members)):
            one = members[(self._turn + place) % len(members)]
            session = one.session
            if not may(session):
                continue
            if session.consumer is not None and session.window.has_room:
                return one
            rank = 3 if not takes(session) else 2 if session.consumer is None else 1
            if rank < best_rank:
                best, best_rank = one, rank
        return best


class Audience:
    __slots__ = ("groups", "receivers")

    def __init__(self, receivers: tuple[Receiver, ...], groups: tuple[SharedGroup, ...]) -> None:
        self.receivers = receivers
        self.groups = groups


class SubscriptionTable:
    """`may_receive` is asked for every receiver of every topic when its audience is found."""

    def __init__(self, may_receive: Callable[["Session", str], bool]) -> None:
        self._may_receive = may_receive
        self._trie: FilterTrie[Subscription] = FilterTrie()
        self._groups: dict[tuple[str, str], SharedGroup] = {}
        self._holders: dict[tuple[str, str], int] = {}
        """How many subscribe to a filter in a group, "" for those who do so for themselves."""
        self._audiences: TopicCache[str, Audience] = TopicCache()
        self._alike: dict[tuple[object, ...], Audience] = {}
        self.changes = 0
        """Grows whenever an audience may have become another one."""

    def __len__(self) -> int:
        return len(self._trie)

    def filters(self) -> list[tuple[str, str]]:
        """The groups, "" for none, and filters with a subscription."""
        return list(self._holders)

    def add(self, subscription: Subscription) -> bool:
        """True if this is the first subscription to this filter, in this group if it is shared."""
        self.forget()
        self._trie.add(subscription.filter, subscription)
        key = subscription.group, subscription.filter
        if subscription.group:
            group = self._groups.setdefault(key, SharedGroup(*key))
            group.members[subscription.session] = subscription
        if subscription.is_local:
            return False
        count = self._holders.get(key, 0)
        self._holders[key] = count + 1
        return count == 0

    def remove(self, subscription: Subscription) -> bool:
        """True if this was the last subscription to this filter, in this group if it is shared."""
        self.forget()
        self._trie.remove(subscription.filter, subscription)
        key = subscription.group, subscription.filter
        if subscription.group:
            group = self._groups[key]
            if group.members.get(subscription.session) is subscription:  # and not one that stands in for it already
                del group.members[subscription.session]
            if not group.members:
                del self._groups[key]
        if subscription.is_local:
            return False
        self._holders[key] -= 1
        if self._holders[key]:
            return False
        del self._holders[key]
        return True

    def group(self, name: str, topic_filter: str) -> SharedGroup | None:
        return self._groups.get((name, topic_filter))

    def forget(self) -> None:
        """Audiences must be found anew."""
        self.changes += 1
        self._audiences.clear()
        self._alike.clear()

    def audience(self, topic: str) -> Audience:
        found = self._audiences.get(topic)
        if found is None:
            if self._audiences.make_room(topic):
                self.forget()
            found = self._audiences[topic] = self._find(topic)
        return found

    def _find(self, topic: str) -> Audience:
        by_session: dict[Session, list[Subscription]] = {}
        groups: dict[SharedGroup, None] = {}
        for subscription in self._trie.match(topic):
            if subscription.group:
                groups[self._groups[subscription.group, subscription.filter]] = None
            elif self._may_receive(subscription.session, topic):
                by_session.setdefault(subscription.session, []).append(subscription)
        receivers = tuple(Receiver(session, found) for session, found in by_session.items())
        shape = *(one.shape for one in receivers), *map(id, groups)
        return self._alike.setdefault(shape, Audience(receivers, tuple(groups)))
