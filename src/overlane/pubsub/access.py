"""Access: who may publish and receive which topics.

Without rules, every connected client may do everything. With rules, only what some rule allows, so that a forgotten
rule denies and never grants. A client has the rights of all rules for its user, except what one of them denies: the
order of rules does not matter.

The patterns of a rule are topic filters in which the level `%u` stands for the user name of the client and `%c` for its
client id. A name that contains `+`, `#` or `/` would change the meaning of the filter, and one that begins with `$` as
the first level would match the topics of the server: for such a client the pattern allows nothing, and denies it for
all names.

A client may subscribe if one pattern covers its whole filter, and each message is checked again by its own topic on
delivery, since rights can change during a session. Topics that begin with `$` belong to the server: they can be read if
a pattern names them literally, and no client publishes to them but the state of a bridge.

Rules never change here: new rules are a new `Access`. So the rights of each user, of each client if patterns contain
`%c`, and the results per topic can be cached. Client ids and topics are chosen by clients, so the caches are bounded; a
full one is emptied.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, count
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from overlane.core.topics import BadTopic, FilterTrie, check_filter, covers, matches, overlaps

ANY_USER = "*"
"""The rule's user that means every client that has logged in."""

ANONYMOUS = "anonymous"
"""The rule's user that means every client that has not. A user who logs in under this name is none of them."""

USERS_REMEMBERED_MAX = 4_096
CLIENTS_REMEMBERED_MAX = 32_768
VERDICTS_REMEMBERED_MAX = 65_536
TOPIC_CHARS_REMEMBERED_MAX = 200
"""A longer topic is judged anew each time: the bound on verdicts would not bound their bytes otherwise."""

SCANNED_MAX = 8
"""Up to so many filters are tried one by one, which is faster and smaller than a tree of them."""


BRIDGE_STATE = "$SYS/broker/connection/{client}/state"
GATEWAY_STATES = "$overlane/gateways/"
GATEWAY_STATE = GATEWAY_STATES + "{name}"
GATEWAY_CLIENT = "gateway-{name}"


def is_own_bridge_state(topic: str, client_id: str) -> bool:
    """Whether a bridge says there whether it is connected, as those of Mosquitto do, or a gateway: allowed to every
    client, and for this broker alone."""
    if not topic.startswith("$"):
        return False
    name = topic.removeprefix(GATEWAY_STATES)
    return topic == BRIDGE_STATE.format(client=client_id) or (
        name != topic and client_id == GATEWAY_CLIENT.format(name=name)
    )


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    user: str
    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    deny_publish: tuple[str, ...] = ()
    deny_subscribe: tuple[str, ...] = ()


def check_pattern(pattern: str) -> None:
    """BadTopic if it is no filter, or has `%u` or `%c` otherwise than as a whole level."""
    check_filter(pattern)
    for level in pattern.split("/"):
        if level not in ("%u", "%c") and ("%u" in level or "%c" in level):
            raise BadTopic(f"pattern {pattern[:60]!a}: `%u` and `%c` are allowed only as a whole level")


class _Filters:
    """Filters of which one has to match."""

    __slots__ = ("_filters", "_trie")

    def __init__(self, filters: Iterable[str]) -> None:
        self._filters = tuple(dict.fromkeys(filters))
        self._trie: FilterTrie[None] | None = None
        if len(self._filters) > SCANNED_MAX:
            self._trie = FilterTrie()
            for topic_filter in self._filters:
                self._trie.add(topic_filter, None)

    def match(self, topic: str) -> bool:
        if self._trie is not None:
            return bool(self._trie.match(topic))
        return any(matches(topic_filter, topic) for topic_filter in self._filters)

    def cover(self, narrow: str) -> bool:
        return any(covers(wide, narrow) for wide in self._filters)

    def overlap(self, other: str) -> bool:
        return any(overlaps(one, other) for one in self._filters)


_Verdicts: TypeAlias = dict[tuple[int, str], bool]


class _Action:
    """One thing a client may do, publish or receive, with what its user may and what this client alone may."""

    __slots__ = ("_denied", "_filters", "_number", "_verdicts")

    def __init__(
        self, number: int, filters: tuple[_Filters, ...], denied: tuple[_Filters, ...], verdicts: _Verdicts
    ) -> None:
        self._number = number  # never another's, so that no verdict is taken for one of a forgotten client
        self._filters = filters
        self._denied = denied
        self._verdicts = verdicts

    def allowed(self, topic: str) -> bool:
        asked = (self._number, topic)
        verdict = self._verdicts.get(asked)
        if verdict is None:
            verdict = any(filters.match(topic) for filters in self._filters)
            verdict = verdict and not any(filters.match(topic) for filters in self._denied)
            if len(topic) <= TOPIC_CHARS_REMEMBERED_MAX:
                _remember(self._verdicts, asked, verdict, VERDICTS_REMEMBERED_MAX)
        return verdict

    def covers(self, topic_filter: str) -> bool:
        """Whether it is allowed as a whole, and not denied as a whole: what is denied in part is not delivered."""
        is_allowed = any(filters.cover(topic_filter) for filters in self._filters)
        return is_allowed and not any(filters.cover(topic_filter) for filters in self._denied)

    def covers_all(self, topic_filter: str) -> bool:
        """Whether it is allowed as a whole, and nothing of it is denied."""
        is_allowed = any(filters.cover(topic_filter) for filters in self._filters)
        return is_allowed and not any(filters.overlap(topic_filter) for filters in self._denied)


class Rights:
    """What one client may do. Topics and filters have to be well formed; the filter of a shared subscription is the
    part behind the group's name."""

    __slots__ = ("_publish", "_receive")

    def __init__(self, publish: _Action | None, receive: _Action | None) -> None:
        self._publish = publish  # None where there are no rules
        self._receive = receive

    @property
    def everything(self) -> bool:
        """Whether there are no rules; then only topics that begin with `$` are denied to publishers."""
        return self._receive is None

    def may_publish(self, topic: str) -> bool:
        return not topic.startswith("$") and (self._publish is None or self._publish.allowed(topic))

    def may_advertise(self, topic_filter: str) -> bool:
        """Whether it may publish on all topics that the filter matches."""
        return not topic_filter.startswith("$") and (self._publish is None or self._publish.covers_all(topic_filter))

    def may_subscribe(self, topic_filter: str) -> bool:
        return self._receive is None or self._receive.covers(topic_filter)

    def may_receive(self, topic: str) -> bool:
        return self._receive is None or self._receive.allowed(topic)


class _Patterns(NamedTuple):
    """Of one list of all rules for a user: filters for any of its clients, and patterns that differ from client to
    client."""

    filters: _Filters
    by_client: tuple[str, ...]
    denies: bool

    def of(self, user: str | None, client: str) -> tuple[_Filters, ...]:
        if not self.by_client:
            return (self.filters,)
        return self.filters, _Filters(_filled(self.by_client, user, client, widens=self.denies))


class _User(NamedTuple):
    """What a user may with any client, and where it differs from client to client: what is allowed to publish and to
    receive, and what is denied."""

    rights: Rights
    lists: tuple[_Patterns, _Patterns, _Patterns, _Patterns]

    @property
    def is_same_for_all_clients(self) -> bool:
        return not any(one.by_client for one in self.lists)


class Access:
    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.rules = tuple(rules)
        self._everything = Rights(None, None) if not self.rules else None
        self._users: dict[str | None, _User] = {}
        self._clients: dict[tuple[str | None, str], Rights] = {}
        self._verdicts: _Verdicts = {}
        self._numbers = count()

    def may_publish(self, user: str | None, client: str, topic: str) -> bool:
        return self.rights(user, client).may_publish(topic)

    def may_advertise(self, user: str | None, client: str, topic_filter: str) -> bool:
        return self.rights(user, client).may_advertise(topic_filter)

    def may_subscribe(self, user: str | None, client: str, topic_filter: str) -> bool:
        return self.rights(user, client).may_subscribe(topic_filter)

    def may_receive(self, user: str | None, client: str, topic: str) -> bool:
        return self.rights(user, client).may_receive(topic)

    def rights(self, user: str | None, client: str) -> Rights:
        """What a client may do; the user None has not logged in. They may be kept as long as these rules hold."""
        if self._everything is not None:
            return self._everything
        known = self._users.get(user)
        if known is None:
            known = self._of_user(user)
            _remember(self._users, user, known, USERS_REMEMBERED_MAX)
        if known.is_same_for_all_clients:
            return known.rights
        rights = self._clients.get((user, client))
        if rights is None:
            rights = self._rights(*(one.of(user, client) for one in known.lists))
            _remember(self._clients, (user, client), rights, CLIENTS_REMEMBERED_MAX)
        return rights

    def _of_user(self, user: str | None) -> _User:
        rules = [rule for rule in self.rules if _is_for(rule, user)]

        def patterns(given: Iterable[tuple[str, ...]], *, denies: bool = False) -> _Patterns:
            for_all, by_client = _divided(chain.from_iterable(given))
            return _Patterns(_Filters(_filled(for_all, user, None, widens=denies)), by_client, denies)

        lists = (
            patterns(rule.publish for rule in rules),
            patterns(rule.subscribe for rule in rules),
            patterns((rule.deny_publish for rule in rules), denies=True),
            patterns((rule.deny_subscribe for rule in rules), denies=True),
        )
        return _User(self._rights(*((one.filters,) for one in lists)), lists)

    def _rights(
        self,
        publish: tuple[_Filters, ...],
        subscribe: tuple[_Filters, ...],
        deny_publish: tuple[_Filters, ...],
        deny_subscribe: tuple[_Filters, ...],
    ) -> Rights:
        return Rights(
            _Action(next(self._numbers), publish, deny_publish, self._verdicts),
            _Action(next(self._numbers), subscribe, deny_subscribe, self._verdicts),
        )


def _is_for(rule: Rule, user: str | None) -> bool:
    if rule.user in (ANONYMOUS, ""):
        return user is None
    return user is not None and rule.user in (ANY_USER, user)


def _divided(patterns: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The patterns that are the same for all clients of a user, and the others."""
    given = tuple(patterns)
    by_client = tuple(pattern for pattern in given if "%c" in pattern.split("/"))
    return tuple(pattern for pattern in given if pattern not in by_client), by_client


def _filled(patterns: Iterable[str], user: str | None, client: str | None, *, widens: bool) -> Iterator[str]:
    """The filters that the patterns mean for a client. Where a name cannot be a level the pattern is left out, or, if
    `widens`, is for all names."""
    # All names of a pattern at once: a user called `%c` must not be filled in again.
    names = {"%u": user, "%c": client}
    for pattern in patterns:
        levels: list[str] = []
        for level in pattern.split("/"):
            name = names.get(level, level)
            if name is None or (level in names and not _is_plain(name, first=not levels)):
                if not widens:
                    break
                name = name if name and not any(sign in name for sign in "+#/") else "+"
            levels.append(name)
        else:
            yield "/".join(levels)


def _is_plain(name: str, *, first: bool) -> bool:
    """Whether a name is just a level of a topic, and not one that means more."""
    return name != "" and not any(sign in name for sign in "+#/") and not (first and name.startswith("$"))


K = TypeVar("K")
V = TypeVar("V")


def _remember(memory: dict[K, V], key: K, value: V, at_most: int) -> None:
    if len(memory) >= at_most:
        memory.clear()
    memory[key] = value
