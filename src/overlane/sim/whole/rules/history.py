"""When brokers were down, and when their disks were in trouble: the faults of a run, as they happened."""

from overlane.core.units import NEVER, Nanos

Span = tuple[Nanos, Nanos]


class History:
    def __init__(self) -> None:
        self._down: dict[str, list[Span]] = {}
        self._trouble: dict[str, list[Span]] = {}

    def went_down(self, broker: str, now: Nanos) -> None:
        _begin(self._down, broker, now)

    def came_up(self, broker: str, now: Nanos) -> None:
        _end(self._down, broker, now)

    def disk_failed(self, broker: str, now: Nanos) -> None:
        _begin(self._trouble, broker, now)

    def disk_works(self, broker: str, now: Nanos) -> None:
        _end(self._trouble, broker, now)

    def was_down(self, broker: str, since: Nanos, until: Nanos = NEVER) -> bool:
        """At any time between these two, both included."""
        return any(_overlap(span, since, until) for span in self._down.get(broker, ()))

    def was_in_trouble(self, broker: str, since: Nanos, until: Nanos) -> bool:
        return any(_overlap(span, since, until) for span in self._trouble.get(broker, ()))

    def last_start(self, broker: str, until: Nanos) -> Nanos:
        """When the broker last came up before this; -NEVER if it was never down."""
        return max((up for _, up in self._down.get(broker, ()) if up <= until), default=-NEVER)

    def trouble_ends(self, broker: str, since: Nanos) -> Nanos:
        """When the disk works, from `since` on."""
        for begin, end in self._trouble.get(broker, ()):
            if begin <= since < end:
                since = end
        return since


def _begin(spans: dict[str, list[Span]], broker: str, now: Nanos) -> None:
    entries = spans.setdefault(broker, [])
    if not entries or entries[-1][1] < NEVER:
        entries.append((now, NEVER))


def _end(spans: dict[str, list[Span]], broker: str, now: Nanos) -> None:
    entries = spans.get(broker)
    if entries and entries[-1][1] == NEVER:
        entries[-1] = entries[-1][0], now


def _overlap(span: Span, since: Nanos, until: Nanos) -> bool:
    return span[0] <= until and since <= span[1]
