"""The past: the first picture that is still known, every change since, and what happened, within bounds.

A page that comes is given all of it as lines of JSON, the head first, then one line for each change; from then on it
is told the changes as they come. A recording is the same lines in a file. When there is too much, the oldest changes
become part of the first picture; what happened then stays in the timeline for longer than its pictures.
"""

from collections import deque
from collections.abc import Iterator

import msgspec

from overlane.monitor.happenings import Happening
from overlane.monitor.picture import Change, Picture, changed

FORMAT = "overlane recording"
VERSION = 1
TARGET = 0.9995
"""The share of messages that should be in time: what adaptive routing aims at."""
KEPT_S = 3_600.0
THINGS_MAX = 150_000
"""Of all changes that are kept."""
HAPPENINGS_MAX = 2_000


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The first line. `began_ms`: when `at_s` was 0, in milliseconds since 1970; None for virtual time."""

    format: str = FORMAT
    version: int = VERSION
    title: str
    is_live: bool
    began_ms: int | None = None
    is_chaotic: bool = False
    can_restart: bool = False
    """Whether brokers can be stopped, killed and started by hand."""
    target: float
    """The share of messages that should be in time."""
    until_s: float | None = None
    """When a recording ends."""
    picture: Picture
    happenings: tuple[Happening, ...] = ()


class Past:
    def __init__(self, head: Head, kept_s: float = KEPT_S, things_max: int = THINGS_MAX) -> None:
        self._head = head
        self._kept_s = kept_s
        self._things_max = things_max
        self._things = 0
        self._first = head.picture
        self._changes: deque[tuple[Change, bytes]] = deque()
        self._happenings: deque[Happening] = deque(head.happenings, maxlen=HAPPENINGS_MAX)

    def add(self, change: Change) -> bytes:
        """The line that pages are told."""
        line = msgspec.json.encode(change) + b"\n"
        self._changes.append((change, line))
        self._things += change.size
        while len(self._changes) > 1 and self._is_too_much(change.at_s):
            self._fold()
        return line

    def lines(self) -> Iterator[bytes]:
        """Everything that is known."""
        head = msgspec.structs.replace(self._head, picture=self._first, happenings=tuple(self._happenings))
        yield msgspec.json.encode(head) + b"\n"
        for _, line in self._changes:
            yield line

    def _is_too_much(self, now_s: float) -> bool:
        return self._things > self._things_max or self._changes[0][0].at_s < now_s - self._kept_s

    def _fold(self) -> None:
        change, _ = self._changes.popleft()
        self._things -= change.size
        self._first = changed(self._first, change)
        self._happenings.extend(change.happenings)
