"""History: an initial overlay state, all deltas since, and timeline events, bounded.

A page that connects gets all of it as lines of JSON: the header first, then one line per delta, then new deltas as they
come. A recording is the same lines in a file. When the history grows too large, the oldest deltas are merged into the
initial state; their timeline events are kept longer.
"""

from collections import deque
from collections.abc import Iterator

import msgspec

from overlane.monitor.overlay_state import OverlayDelta, OverlayState, apply_delta
from overlane.monitor.timeline_events import TimelineEvent

FORMAT = "overlane recording"
VERSION = 1
TARGET = 0.9995
"""Target share of messages in time, as for adaptive routing."""
KEPT_S = 3_600.0
ITEMS_MAX = 150_000
"""Total number of items in all deltas kept."""
EVENTS_MAX = 2_000


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The first line. `began_ms`: time of `at_s` = 0 in milliseconds since 1970; None for virtual time."""

    format: str = FORMAT
    version: int = VERSION
    title: str
    is_live: bool
    began_ms: int | None = None
    is_chaotic: bool = False
    can_restart: bool = False
    """Whether brokers can be stopped, killed and restarted."""
    target: float
    """Target share of messages in time."""
    until_s: float | None = None
    """End of a recording."""
    step_s: float | None = None
    """Of a recording with less than a state per second: the time between two states."""
    picture: OverlayState
    happenings: tuple[TimelineEvent, ...] = ()


class History:
    def __init__(self, head: Head, kept_s: float = KEPT_S, items_max: int = ITEMS_MAX) -> None:
        self._head = head
        self._kept_s = kept_s
        self._items_max = items_max
        self._items = 0
        self._first = head.picture
        self._changes: deque[tuple[OverlayDelta, bytes]] = deque()
        self._happenings: deque[TimelineEvent] = deque(head.happenings, maxlen=EVENTS_MAX)

    def add(self, change: OverlayDelta) -> bytes:
        """The line to send to pages."""
        line = msgspec.json.encode(change) + b"\n"
        self._changes.append((change, line))
        self._items += change.size
        while len(self._changes) > 1 and self._is_too_large(change.at_s):
            self._merge_oldest()
        return line

    def lines(self) -> Iterator[bytes]:
        """The whole history."""
        head = msgspec.structs.replace(self._head, picture=self._first, happenings=tuple(self._happenings))
        yield msgspec.json.encode(head) + b"\n"
        for _, line in self._changes:
            yield line

    def _is_too_large(self, now_s: float) -> bool:
        return self._items > self._items_max or self._changes[0][0].at_s < now_s - self._kept_s

    def _merge_oldest(self) -> None:
        change, _ = self._changes.popleft()
        self._items -= change.size
        self._first = apply_delta(self._first, change)
        self._happenings.extend(change.happenings)
