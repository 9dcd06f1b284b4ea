"""Events and effects of the machines, their settings, and what a storage must not forget.

Effects are carried out in the order in which they are returned. A driver that was given a `Write` commits it as one
transaction, after all that were returned before it, and answers with `Written`. Answers of the coordination service
are events as they come from it (`coordination.contract`).
"""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from overlane.coordination import contract
from overlane.core.units import MS, SECOND, Nanos
from overlane.recovery.replication.frames import Change, Frame
from overlane.recovery.replication.stored_record import NOWHERE as NOWHERE
from overlane.recovery.replication.stored_record import REPLICA_TABLE as REPLICA_TABLE
from overlane.recovery.replication.stored_record import Position as Position
from overlane.recovery.replication.stored_record import Stored as Stored


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    heartbeat: Nanos = 300 * MS
    primary_lease: Nanos = 500 * MS
    """How long after a stamp that a mirror has echoed the primary acknowledges; then it drops that mirror."""
    mirror_lease: Nanos = 600 * MS
    """How long after the last stamp a mirror does not promote itself, unless the primary's process has ended."""
    sync_max: Nanos = 2 * SECOND
    """How long durability waits, when an epoch begins, for a mirror of the set that needs a snapshot."""
    stall_max: Nanos = 5 * SECOND
    """How long durability waits for a mirror that is heard, and whose disk does not get on."""
    alone_max: Nanos = 30 * SECOND
    """How long an epoch may begin without a mirror before that is an alarm: the first one takes a while to join."""
    retry: Nanos = 200 * MS
    """When the coordination service is asked again for what it has not answered."""
    join_lag_max: int = 64
    """Batches that a candidate may lack when acknowledgements begin to wait for it."""
    log_bytes_max: int = 64 * 2**20

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat < self.primary_lease:
            raise ValueError("the primary's lease must be longer than the time between heartbeats")
        # Clocks may differ in rate: see decision 28.
        if self.mirror_lease * 5 < self.primary_lease * 6:
            raise ValueError("the mirror's lease must be longer than the primary's by a fifth or more")


# Events


@dataclass(frozen=True, slots=True)
class Received:
    host: str
    frame: Frame


@dataclass(frozen=True, slots=True)
class Written:
    """A `Write` of this number, and all before it, are on disk."""

    number: int


@dataclass(frozen=True, slots=True)
class SnapshotSent:
    """The driver has sent a snapshot that contains all batches up to `through`, or the connection broke before."""

    host: str
    through: int


@dataclass(frozen=True, slots=True)
class MirrorsWanted:
    """By plan or file: the hosts that should have a copy, this one excluded."""

    hosts: frozenset[str]


@dataclass(frozen=True, slots=True)
class MirrorLost:
    """The process of a mirror has ended: its connection was closed, and another is refused."""

    host: str


@dataclass(frozen=True, slots=True)
class PrimaryLost:
    """The primary is silent, and neighbours confirm it; `is_dead`: its process has ended, as with `MirrorLost`.

    To be told again while it is so: a frame of the primary, or a change of the replica set, may have outdated it.
    """

    epoch: int
    """Which primary is meant."""
    is_dead: bool = False
    delay: Nanos = 0
    """How long better candidates get to claim first (`succession`)."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """The broker is to be continued at this host, which has a copy: as soon as it is in sync. To be told again while it
    is wanted."""

    host: str


@dataclass(frozen=True, slots=True)
class Tick:
    pass


Event: TypeAlias = (
    Received | Written | SnapshotSent | MirrorsWanted | MirrorLost | PrimaryLost | HandOver | Tick | contract.Event
)


# Effects


@dataclass(frozen=True, slots=True)
class Send:
    host: str
    frame: Frame


@dataclass(frozen=True, slots=True)
class Write:
    """One transaction: the changes and `stored`. With `is_snapshot` what was staged replaces all records but those of
    REPLICA_TABLE."""

    number: int
    changes: tuple[Change, ...]
    stored: Stored
    is_snapshot: bool = False


@dataclass(frozen=True, slots=True)
class StageSnapshot:
    """A part of a snapshot, to be kept aside; with `is_first` all that was kept is thrown away before."""

    changes: tuple[Change, ...]
    is_first: bool


@dataclass(frozen=True, slots=True)
class SendSnapshot:
    """Send all records as they are on disk now (`frames.snapshot_parts`), and answer with `SnapshotSent`.

    Nothing is sent where the position on disk, read together with the records, is of another epoch.
    """

    host: str
    epoch: int
    snapshot: int
    """Its number: parts of two snapshots are never mixed."""


@dataclass(frozen=True, slots=True)
class Ask:
    number: int
    request: contract.Request


@dataclass(frozen=True, slots=True)
class Serving:
    """This host is the primary now: continue the broker from the records on disk, under a later incarnation."""

    epoch: int
    base: Position
    """The content that it continues."""


@dataclass(frozen=True, slots=True)
class Deposed:
    """Another primary continues the broker, or this one has to ask again: stop to serve. What was submitted and is not
    durable will never be acknowledged."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Durable:
    """Which batches may be acknowledged, by the policy of their topics. Numbers only grow within an epoch."""

    local: int
    mirrored: int


class AlarmKind(Enum):
    NO_MIRROR = "there is no mirror: acknowledged messages are on one disk only"
    MIRROR_DROPPED = "a mirror was dropped"
    MALFORMED_SET = "the replica set in the coordination service cannot be read"
    TAIL_DISCARDED = "batches that were never acknowledged are discarded"


@dataclass(frozen=True, slots=True)
class Alarm:
    kind: AlarmKind
    detail: str = ""


Effect: TypeAlias = Send | Write | StageSnapshot | SendSnapshot | Ask | Serving | Deposed | Durable | Alarm
