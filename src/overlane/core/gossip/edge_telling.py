"""The state of a group of topics at an edge, and the state that it has sent to a routing broker; see `edge_scope.py`.

**Renewals.** A routing broker keeps the filters that an edge has sent over an earlier connection. If the last
subscriber of a filter leaves while there is no connection, and another one subscribes, the routing broker would treat
the filter as an old one, and send no retained messages, although the edge has dropped its own. So each start of a
filter has a number, and a filter is sent as *renewed* to routing brokers that may not know the latest number. There is
no acknowledgement: a routing broker counts as informed if the same connection still exists a whole period later. After
a repeated renewal, retained messages are sent twice, which has no effect.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from overlane.core.links.interest_transfer import Filters


@dataclass(slots=True)
class Group:
    is_ready: bool = False
    period: int = 0
    """When a message was published last."""
    follows: int = 0
    """Advertisements and requests for reservations here that concern it."""

    def is_idle(self, until: int) -> bool:
        """Whether nothing was published since a period, and nobody has to know of it."""
        return self.period <= until and self.is_ready and not self.follows


@dataclass(slots=True)
class Telling:
    """What a routing broker is told over the present connection."""

    is_connected: bool = False
    filters: dict[str, int] = field(default_factory=dict)
    """With the numbers of the renewals that were told."""
    settled: int = 0
    """The renewals that had been told at the end of the period before."""
    groups: dict[int, int] = field(default_factory=dict)
    """With the serials under which they were told."""
    serial: int = 0
    covers: int = 0
    is_complete: bool = False
    """Whether it was told that it has been told everything of these bundles."""
    changed_filters: Filters = field(default_factory=dict)
    changed_groups: dict[int, None] = field(default_factory=dict)
    """What may have to be told."""
    asked: set[str] = field(default_factory=set)
    to_ask: dict[str, None] = field(default_factory=dict)
    """Brokers with doubtful filters: it was asked, or is to be asked, whether it has their word."""


@dataclass(slots=True)
class Renewals:
    count: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    """Of the latest renewal of a filter; 0 if it was needed before this run began."""
    _heard: dict[str, int] = field(default_factory=dict)
    """By routing broker, the renewals of which it has heard."""

    def add(self, topic_filter: str) -> None:
        self.count += 1
        self.numbers[topic_filter] = self.count

    def end(self, topic_filter: str) -> None:
        """The filter is not needed any more."""
        self.numbers.pop(topic_filter, None)

    def of(self, topic_filter: str) -> int:
        return self.numbers.get(topic_filter, 0)

    def is_news(self, topic_filter: str, peer: str) -> bool:
        return self.of(topic_filter) > self._heard.get(peer, 0)

    def period_ended(self, tellings: Mapping[str, Telling], is_needed: Callable[[str], bool]) -> None:
        for peer, telling in tellings.items():
            self._heard[peer] = max(self._heard.get(peer, 0), telling.settled)
            if not telling.changed_filters:
                telling.settled = self.count
        self.numbers = {one: number for one, number in self.numbers.items() if is_needed(one)}

    def forget(self, peer: str) -> None:
        self._heard.pop(peer, None)
