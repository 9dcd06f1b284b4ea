"""Filters that neighbours of the other tier have sent, per connection.

A routing broker sends an edge the filters of many brokers, an edge sends a routing broker its own. Each connection
starts with an empty set: filters from the previous one are *leftover*, and are used until the neighbour has sent them
again or has reported that its filters are complete (`complete`). So no filter is missing while a neighbour restarts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from overlane.core.bundles import ANY, bundle_of_group, decode_mask, groups_of
from overlane.core.links.interest_transfer import Filters
from overlane.core.wire.control_messages import ScopedInterest


@dataclass(slots=True)
class FilterClaim:
    """What one neighbour has told of one broker."""

    covers: int = 0
    """The bundles for which the neighbour has that broker's word."""
    filters: Filters = field(default_factory=dict)
    leftover: Filters = field(default_factory=dict)
    """Filters that were told over an earlier connection, and not yet over this one."""


@dataclass(slots=True)
class LinkInterest:
    words: dict[str, FilterClaim] = field(default_factory=dict)
    """By the broker they are about."""
    serial: int = 0
    complete: int = 0
    """The bundles of which everything was told, for groups up to this serial."""

    def connected(self) -> None:
        """A new connection: everything will be told anew."""
        for word in self.words.values():
            word.leftover.update(word.filters)
            word.filters, word.covers = {}, 0
        self.serial = self.complete = 0

    def take(self, message: ScopedInterest) -> tuple[list[str], list[str]]:
        """The filters that were not known from this neighbour before, and those that it does not tell any more."""
        word = self.words.get(message.broker)
        if word is None:
            word = self.words[message.broker] = FilterClaim()
        word.covers = decode_mask(message.covers)
        added, removed = [], []
        for topic_filter in message.added:
            if topic_filter not in word.filters:
                word.filters[topic_filter] = None
                if topic_filter in word.leftover:
                    del word.leftover[topic_filter]
                else:
                    added.append(topic_filter)
        for topic_filter in message.removed:
            if topic_filter in word.filters or topic_filter in word.leftover:
                word.filters.pop(topic_filter, None)
                word.leftover.pop(topic_filter, None)
                removed.append(topic_filter)
        return added, removed

    def completed(self, serial: int, bundles: int) -> Iterator[tuple[str, str]]:
        """The neighbour has told everything of these bundles: which filters of which brokers it has not told again."""
        self.serial, self.complete = serial, bundles
        for broker, word in self.words.items():
            if not word.leftover:
                continue
            gone = [one for one in word.leftover if _is_among(one, bundles)]
            for topic_filter in gone:
                del word.leftover[topic_filter]
                yield broker, topic_filter

    def prune(self) -> None:
        """Forget brokers of which nothing is told."""
        for broker in [one for one, word in self.words.items() if not word.filters and not word.leftover]:
            del self.words[broker]

    def tells(self, broker: str, topic_filter: str) -> bool:
        word = self.words.get(broker)
        return word is not None and (topic_filter in word.filters or topic_filter in word.leftover)

    def covers(self, broker: str, bundle: int) -> bool:
        """Whether it has told everything that a broker has told it of a bundle."""
        word = self.words.get(broker)
        return word is not None and bool((word.covers & self.complete) >> bundle & 1)

    def forget(self, broker: str) -> None:
        self.words.pop(broker, None)


def _is_among(topic_filter: str, bundles: int) -> bool:
    group = groups_of(topic_filter)
    if group is None or group == ANY:
        return bool(bundles)
    return bool(bundles >> bundle_of_group(group) & 1)
