"""Delivery statistics: messages from other brokers that were delivered to clients, their ages, and how many were in
time.

Counted by the topic filter of the network file that gives the messages their deadline, and by their source broker. Ages
are counted in histogram buckets, sixteen per doubling, so that percentiles of any period can be computed from the
counts at its start and its end, within a few percent. Messages of one parcel are counted together.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from overlane.adminapi.topic_filters import TopicFilters
from overlane.core.events import Deliver, ReportedEffect
from overlane.core.units import NEVER, US
from overlane.mqtt.arrival_counts import Tally

STEPS_BITS = 4
STEPS = 1 << STEPS_BITS


def bucket(age_us: int) -> int:
    """Which bucket an age belongs into."""
    shift = max(0, age_us.bit_length() - STEPS_BITS - 1)
    return shift * STEPS + (age_us >> shift)


def bucket_us(index: int) -> int:
    """The greatest age in a bucket."""
    shift = max(0, index // STEPS - 1)
    return ((index - shift * STEPS + 1) << shift) - 1


@dataclass(slots=True)
class Count:
    messages: int = 0
    in_time: int = 0
    ages: dict[int, int] = field(default_factory=dict)
    """Messages by bucket."""


class DeliveryStats:
    """`filters` is replaced when the network file is read again. An observer of the driver."""

    def __init__(self, name: str, filters: TopicFilters) -> None:
        self.filters = filters
        self._name = name
        self._counts: dict[tuple[str, str], Count] = {}

    def delivered(self, tally: Tally) -> None:
        effect, row_of = tally.effect, self.filters.of
        if effect.origin == self._name:
            return  # of our own past: it was not under way
        for topic, messages, _ in tally.together:
            self._add(effect, row_of(topic), messages)
        for mixed in tally.mixed:
            for row, messages in self.filters.count(mixed.topics).items():
                self._add(effect, row, messages)

    def _add(self, effect: Deliver, row: str, messages: int) -> None:
        count = self._counts.get((row, effect.origin))
        if count is None:
            count = self._counts[row, effect.origin] = Count()
        count.messages += messages
        # The deadline a parcel travels with may be later than what was asked for, where no route could meet that.
        if effect.age_ns <= min(effect.deadline_ns, self.filters.deadlines.get(row, NEVER)):
            count.in_time += messages
        index = bucket(effect.age_ns // US)
        count.ages[index] = count.ages.get(index, 0) + messages

    def happened(self, effect: ReportedEffect) -> None:
        """The logbook has it."""

    def counts(self) -> Iterable[tuple[str, str, Count]]:
        """(row, origin, count), sorted."""
        return [(row, origin, count) for (row, origin), count in sorted(self._counts.items())]
