"""The state of a primary's mirrors: connections by host, progress by storage.

Progress is stored by storage id, from acknowledgements. A host with an emptied disk has another storage, without known
content; the content of the former one does not count for it.

    unknown  --Begin-->  acknowledged, or needs a snapshot  --snapshot-->  streaming: gets every batch at once
"""

from collections.abc import Collection
from dataclasses import dataclass

from overlane.core.units import Nanos


@dataclass(frozen=True, slots=True)
class MirrorState:
    """What a primary knows of a mirror, for people."""

    host: str
    is_in_sync: bool
    lag_batches: int | None
    """None: it has nothing of this epoch yet."""
    lag_bytes: int
    lag: Nanos
    """Age of the first change that it lacks; 0 if it has all."""
    heard_ago: Nanos | None
    """Since the stamp that it has echoed last; None: it has not."""


@dataclass(slots=True)
class MirrorHost:
    host: str
    storage: int | None = None
    """As it said last."""
    is_streaming: bool = False
    is_joining: bool = False
    """Acknowledgements wait for it, though it is not in the replica set yet."""
    snapshot_floor: int | None = None
    """A snapshot is on its way, or was sent and not acknowledged: batches behind this one are needed after it."""
    snapshot_until: Nanos = 0
    """When an acknowledgement of the snapshot that was sent is overdue; 0 while it is being sent."""

    def restart(self) -> None:
        """Forget what was sent: it is begun anew."""
        self.is_streaming = self.is_joining = False
        self.snapshot_floor = None
        self.snapshot_until = 0


class Mirrors:
    def __init__(self) -> None:
        self.hosts: dict[str, MirrorHost] = {}
        self.progress: dict[int, int] = {}
        """By storage: the last batch of this epoch that is on disk there."""
        self.behind_since: dict[int, Nanos] = {}
        """By storage: since when it lacks the batch that it lacks next; none where it is level."""

    def keep(self, hosts: Collection[str]) -> None:
        """Talk to these hosts and no others."""
        for host in [one for one in self.hosts if one not in hosts]:
            del self.hosts[host]
        for host in sorted(hosts):
            self.hosts.setdefault(host, MirrorHost(host))

    def identify(self, mirror: MirrorHost, storage: int) -> None:
        """It says that this is its storage. Another than before is another mirror."""
        if mirror.storage not in (None, storage):
            mirror.restart()
        mirror.storage = storage

    def acknowledge(self, storage: int, sequence: int, last: int, now: Nanos) -> None:
        """`last`: the last batch that there is."""
        before = self.progress.get(storage, -1)
        self.progress[storage] = max(sequence, before)
        if self.progress[storage] >= last:
            self.behind_since.pop(storage, None)
        elif sequence > before:
            self.behind_since[storage] = now

    def appended(self, now: Nanos) -> None:
        """There is a batch that none of them has yet."""
        for storage in self.progress:
            self.behind_since.setdefault(storage, now)

    def progress_of(self, mirror: MirrorHost) -> int | None:
        return None if mirror.storage is None else self.progress.get(mirror.storage)

    @property
    def joining(self) -> frozenset[int]:
        return frozenset(
            mirror.storage for mirror in self.hosts.values() if mirror.is_joining and mirror.storage is not None
        )

    def log_floor(self, last: int) -> int:
        """No mirror needs batches up to this one; `last` is the last batch."""
        floor = last
        for mirror in self.hosts.values():
            progress = self.progress_of(mirror)
            for needed in (progress, mirror.snapshot_floor):
                if needed is not None:
                    floor = min(floor, needed)
        return floor
