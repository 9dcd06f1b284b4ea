"""Policies of publishers: what they offer on a topic, what subscribers request, and whether the two go together.

A topic's policy is in the network file: `liveliness` (a lease), `period`, `ownership`. A publisher may offer more with
user properties of its messages, a subscriber requests with those of its subscription; other protocols have headers or
application properties for that.

    publisher     overlane-lease "2s"        it publishes at least this often while it is alive
                  overlane-period "500ms"    it publishes at least this often
                  overlane-strength "10"     which of several publishers owns a topic with exclusive ownership
    subscriber    overlane-liveliness "2s"   the longest lease that it accepts
                  overlane-period "500ms"    the longest period
                  overlane-ownership         "shared" or "exclusive"

The publisher's broker adds `overlane-publisher`, "CLIENT@BROKER", and what the file gives. Who claims to be another
publisher is overruled. Rules of compatibility are those of DDS (DDS 1.4, 2.2.3): an offered lease or period is no
longer than the requested one, and ownership is the same.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from overlane.core.federation import overlap
from overlane.core.topics import FilterTrie, specificity
from overlane.core.units import NEVER, Nanos
from overlane.pubsub.publishing.qos_override import BadOverride
from overlane.quantities import format_duration, parse_duration

PUBLISHER = "overlane-publisher"
LEASE = "overlane-lease"
PERIOD = "overlane-period"
STRENGTH = "overlane-strength"
LIVELINESS = "overlane-liveliness"
OWNERSHIP = "overlane-ownership"
STAMPED = frozenset((PUBLISHER, LEASE, PERIOD, STRENGTH))
INCOMPATIBLE = "overlane-incompatible"
"""Of the answer to a subscription whose requests are not satisfied."""

STRENGTH_MAX = 2**31 - 1
DURATION_MIN: Nanos = 1_000_000
OWNERSHIPS = {"shared": False, "exclusive": True}


class Policy(NamedTuple):
    """Of a topic, by the network file."""

    lease_ns: Nanos = NEVER
    period_ns: Nanos = NEVER
    is_exclusive: bool = False


class Offer(NamedTuple):
    """Of one publisher on one topic."""

    publisher: str
    lease_ns: Nanos = NEVER
    period_ns: Nanos = NEVER
    strength: int = 0
    is_exclusive: bool = False


class Request(NamedTuple):
    """Of one subscription; None: any ownership will do."""

    lease_ns: Nanos = NEVER
    period_ns: Nanos = NEVER
    is_exclusive: bool | None = None


NO_REQUEST = Request()


class Mismatch(NamedTuple):
    policy: str
    offered: str
    requested: str

    def __str__(self) -> str:
        return f"{self.policy}: offered {self.offered}, requested {self.requested}"


class Policies:
    """The policies of topics; the most specific pattern counts, as with QoS classes."""

    def __init__(
        self,
        patterns: Mapping[str, Policy],
        renamed: Callable[[str], str | None] | None = None,
        filters: Callable[[str], tuple[str, ...]] | None = None,
    ) -> None:
        """`renamed`, `filters`: the names of a topic and of a filter that the patterns are for."""
        self._patterns = dict(patterns)
        self._renamed = renamed
        self._filters = filters
        self._trie: FilterTrie[str] = FilterTrie()
        for pattern in patterns:
            self._trie.add(pattern, pattern)

    def of(self, topic: str) -> Policy | None:
        """None if publishers of the topic need not be told apart."""
        matching = self._trie.match(topic if self._renamed is None else self._renamed(topic) or topic)
        if not matching:
            return None
        found = self._patterns[max(matching, key=specificity)]
        return None if found == Policy() else found

    def offered(self, topic_filter: str) -> list[Policy]:
        """The policies that topics of a filter may have; that of other topics where there is none."""
        filters = (topic_filter,) if self._filters is None else self._filters(topic_filter)
        found = self._patterns.items()
        return [policy for pattern, policy in found if any(overlap(pattern, one) for one in filters)] or [Policy()]

    def under(self, renamed: Callable[[str], str | None], filters: Callable[[str], tuple[str, ...]]) -> "Policies":
        """The same policies, for topics that have other names."""
        return Policies(self._patterns, renamed, filters)


def read_offer(user_properties: Iterable[tuple[str, str]], publisher: str, policy: Policy) -> Offer:
    """What a publisher offers; BadOverride. Lease and period may be shorter than those of the topic, not longer."""
    lease_ns, period_ns, strength = policy.lease_ns, policy.period_ns, 0
    for name, value in user_properties:
        if name == LEASE:
            lease_ns = min(lease_ns, _duration(name, value))
        elif name == PERIOD:
            period_ns = min(period_ns, _duration(name, value))
        elif name == STRENGTH:
            if not (value.isascii() and value.isdigit() and int(value[:11]) <= STRENGTH_MAX and len(value) < 11):
                raise BadOverride(f"{STRENGTH}: {value[:40]!a} is no whole number from 0 to {STRENGTH_MAX}")
            strength = int(value)
    return Offer(publisher, lease_ns, period_ns, strength, policy.is_exclusive)


def stamps(offer: Offer) -> tuple[tuple[str, str], ...]:
    """The user properties by which other brokers and subscribers know it."""
    return (
        (PUBLISHER, offer.publisher),
        *(((LEASE, format_duration(offer.lease_ns)),) if offer.lease_ns < NEVER else ()),
        *(((PERIOD, format_duration(offer.period_ns)),) if offer.period_ns < NEVER else ()),
        *(((STRENGTH, str(offer.strength)),) if offer.strength else ()),
    )


def read_policy_request(user_properties: Iterable[tuple[str, str]]) -> Request:
    """Of several values the strictest; BadOverride."""
    lease_ns, period_ns, is_exclusive = NO_REQUEST
    for name, value in user_properties:
        if name == LIVELINESS:
            lease_ns = min(lease_ns, _duration(name, value))
        elif name == PERIOD:
            period_ns = min(period_ns, _duration(name, value))
        elif name == OWNERSHIP:
            if value not in OWNERSHIPS:
                raise BadOverride(f"{OWNERSHIP}: {value[:40]!a} is neither shared nor exclusive")
            is_exclusive = OWNERSHIPS[value]
    return Request(lease_ns, period_ns, is_exclusive)


def mismatches(offered: Offer | Policy, requested: Request) -> list[Mismatch]:
    """The requests that an offer does not satisfy."""
    found = []
    if offered.lease_ns > requested.lease_ns:
        found.append(Mismatch("liveliness", _shown(offered.lease_ns), _shown(requested.lease_ns)))
    if offered.period_ns > requested.period_ns:
        found.append(Mismatch("period", _shown(offered.period_ns), _shown(requested.period_ns)))
    if requested.is_exclusive not in (None, offered.is_exclusive):
        kinds = {is_exclusive: name for name, is_exclusive in OWNERSHIPS.items()}
        found.append(Mismatch("ownership", kinds[offered.is_exclusive], kinds[bool(requested.is_exclusive)]))
    return found


def _shown(duration_ns: Nanos) -> str:
    return "none" if duration_ns >= NEVER else format_duration(duration_ns)


def _duration(name: str, text: str) -> Nanos:
    try:
        duration_ns = parse_duration(text)
    except ValueError:
        duration_ns = 0
    if duration_ns < DURATION_MIN:
        raise BadOverride(f'{name}: {text[:40]!a} is no duration of at least 1 ms such as "2s"')
    return duration_ns
