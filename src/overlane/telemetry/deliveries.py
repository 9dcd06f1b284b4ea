"""A sample of deliveries: the age of messages from other brokers when they are delivered to clients.

On average one of n messages is sampled, with random gaps: a fixed gap could synchronise with alternating topics. n
follows the traffic, so that about the requested number of rows is produced per second; each row says how many messages
it stands for. Messages that arrive together produce at most one row, which stands for all of them. A message that is
not sampled costs one subtraction.
"""

from collections.abc import Callable, Sequence
from random import Random

from overlane.core.events import Deliver
from overlane.core.qos import QosTable
from overlane.core.units import NEVER, Nanos
from overlane.telemetry.message_paths import MessagePaths
from overlane.telemetry.rows import DeliveryRow

BURST = 2
"""So many times the rows that were asked for may come in one second before the sample gets thinner at once."""

MANY = 8
"""Points beyond this many are not drawn one by one."""


class DeliverySample:
    """`qos` tells the class of a topic; `rows_per_second` may be changed at any time."""

    def __init__(
        self,
        qos: Callable[[], QosTable],
        ways: MessagePaths,
        add: Callable[[DeliveryRow], None],
        wall: Callable[[], Nanos],
        rows_per_second: int,
        luck: Random | None = None,
    ) -> None:
        self.rows_per_second = rows_per_second
        self._qos = qos
        self._ways = ways
        self._add = add
        self._wall = wall
        self._luck = luck or Random()
        self._one_in = 1
        self._gap = 0
        """Messages to pass over before the next that is looked at."""
        self._seen = 0
        self._rows = 0

    def offer(self, effect: Deliver, topic: str, messages: int, size_bytes: int) -> None:
        """Messages of one topic that came together, at least one; they have this size together."""
        self._seen += messages
        self._gap -= messages
        if self._gap < 0 and self.rows_per_second:
            self._add(self._row(effect, topic, size_bytes // messages, self._points() * self._one_in))
            self._rows += 1
            if self._rows >= BURST * self.rows_per_second:
                self._one_in *= 2
                self._rows = 0

    def offer_mixed(self, effect: Deliver, topics: Sequence[str], sizes: Sequence[int]) -> None:
        """Messages of several topics that came together: any of them may be the one that is looked at."""
        if topics:
            one = self._luck.randrange(len(topics)) if self._gap < len(topics) else 0
            self.offer(effect, topics[one], len(topics), sizes[one] * len(topics))

    def next_second(self) -> None:
        """Adapt to what came in the last one: thinner at once, denser by and by."""
        wanted = -(-self._seen // self.rows_per_second) if self.rows_per_second else 1
        self._one_in = max(1, wanted, self._one_in // 2)
        self._gap = max(0, min(self._gap, 2 * self._one_in - 2))
        self._seen = self._rows = 0

    def _points(self) -> int:
        """How many of the points at which a message is looked at were passed, until there is a gap again."""
        points, one_in = 0, self._one_in
        if -self._gap > MANY * one_in:
            points = -self._gap // one_in
            self._gap += points * one_in
        while self._gap < 0:
            points += 1
            self._gap += self._luck.randint(1, 2 * one_in - 1)
        return points

    def _row(self, effect: Deliver, topic: str, size_bytes: int, weight: int) -> DeliveryRow:
        qos = self._qos().of(topic)
        # The deadline a parcel travels with may be later than what was asked for, where no route could meet that.
        deadline_ns = min(effect.deadline_ns, qos.deadline_ns)
        is_bound = deadline_ns < NEVER
        path = self._ways.path(effect.origin, effect.deadline_ns)
        return DeliveryRow(
            self._wall(),
            topic,
            effect.origin,
            effect.age_ns,
            deadline_ns if is_bound else None,
            effect.age_ns <= deadline_ns if is_bound else None,
            qos.reliable,
            qos.routing.value,
            size_bytes,
            None if path is None else len(path) - 1,
            path,
            weight,
        )
