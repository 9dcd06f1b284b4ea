"""The lease: until when a primary may acknowledge and deliver, by what its mirrors have echoed. Rule 7.

A primary stamps its frames with its own clock. A mirror echoes the latest stamp, and does not promote itself on silence
before `mirror_lease` has passed on its own clock since that stamp arrived. It arrived after it was sent; so until
stamp + `primary_lease`, which is shorter, no mirror that has echoed it has promoted itself. No two clocks are compared:
only their rates have to agree within a fifth.

It prevents that two primaries deliver at the same time. It protects no message: the replica set does.
"""

from collections.abc import Iterable

from overlane.core.units import NEVER, Nanos


class PrimaryLease:
    """By storage: the latest stamp that it has echoed in this epoch."""

    def __init__(self, duration: Nanos) -> None:
        self._duration = duration
        self._echoed: dict[int, Nanos] = {}

    def echo(self, storage: int, stamp: Nanos, now: Nanos) -> None:
        """A stamp of the future is not one of ours."""
        if stamp <= now and stamp > self._echoed.get(storage, -1):
            self._echoed[storage] = stamp

    def until(self, storages: Iterable[int]) -> Nanos:
        """The end of the lease that needs all these mirrors; NEVER where there is none who could promote itself."""
        return min((self.of(storage) for storage in storages), default=NEVER)

    def echoed_at(self, storage: int) -> Nanos | None:
        return self._echoed.get(storage)

    def of(self, storage: int) -> Nanos:
        """0 where it has echoed nothing."""
        stamp = self._echoed.get(storage)
        return 0 if stamp is None else stamp + self._duration


class MirrorLease:
    """When a mirror has last received a stamp of its primary."""

    def __init__(self, duration: Nanos, started: Nanos) -> None:
        self._duration = duration
        # What a former life of the process has echoed, it echoed before this one began.
        self.heard_at = started

    def hear(self, now: Nanos) -> None:
        self.heard_at = max(self.heard_at, now)

    @property
    def until(self) -> Nanos:
        return self.heard_at + self._duration
