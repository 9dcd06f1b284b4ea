"""The mirror: it applies the log of a primary to its storage, and reports the batches on its disk.

    knows      the epoch that it has promised, its position, a snapshot that is being staged
    changed by frames of a primary, commits of its own disk
    promises   no frame of an epoch below the promised one is applied (rule 1); what is acknowledged is on disk, with
               the storage id; a snapshot of the same epoch never replaces newer content (rule 4)

A frame of a later epoch is promised on disk before it is answered. Batches are applied in their order, without gaps,
onto content of the same epoch. Content of another epoch is kept if the primary continues from exactly this position
(`Begin`), and is otherwise replaced completely by a snapshot, in one transaction.
"""

from dataclasses import dataclass
from typing import assert_never

from overlane.core.units import Nanos
from overlane.recovery.events import (
    NOWHERE,
    Alarm,
    AlarmKind,
    Effect,
    Position,
    ReplicaSettings,
    Send,
    StageSnapshot,
    Stored,
)
from overlane.recovery.replication.frames import (
    Acknowledge,
    Append,
    Begin,
    FromPrimary,
    Heartbeat,
    Lacks,
    Refuse,
    SnapshotPart,
)
from overlane.recovery.replication.lease import MirrorLease
from overlane.recovery.replication.own_storage import OwnStorage


@dataclass(slots=True)
class Staging:
    """A snapshot of which some parts have come."""

    snapshot: int
    parts: int = 0
    has_grown: bool = False
    """Since the primary last asked, by a heartbeat or by `Begin`."""


class Mirror:
    def __init__(self, broker: str, own: OwnStorage, settings: ReplicaSettings, now: Nanos) -> None:
        self.lease = MirrorLease(settings.mirror_lease, now)
        self.primary_host: str | None = None
        """Whose frames were accepted last."""
        self._broker = broker
        self._own = own
        self._echo = 0
        self._base: Position | None = None
        """From which the promised epoch goes on, as its primary says."""
        self._staging: Staging | None = None
        self._lacks_told: Position | None = None

    # Inputs

    def received(self, host: str, frame: FromPrimary, now: Nanos) -> list[Effect]:
        if not self._may_accept(frame):
            promised = self._own.written.promised
            return [Send(host, Refuse(self._broker, promised, self._own.written.position.sequence, self._own.id))]
        effects = self._hear(host, frame, now)
        match frame:
            case Begin():
                return [*effects, *self._begin(frame)]
            case Append():
                return [*effects, *self._append(frame)]
            case SnapshotPart():
                return [*effects, *self._stage(frame)]
            case Heartbeat():
                return [*effects, *self._answer(frame)]
            case _:
                assert_never(frame)

    def committed(self) -> list[Effect]:
        """Writes have become durable."""
        return self._reply()

    # The promise

    def _may_accept(self, frame: FromPrimary) -> bool:
        return frame.epoch >= self._own.written.promised

    def _hear(self, host: str, frame: FromPrimary, now: Nanos) -> list[Effect]:
        """A sign of life. A later epoch is promised."""
        self.lease.hear(now)
        self.primary_host = host
        written = self._own.written
        if frame.epoch <= written.promised:
            self._echo = max(self._echo, frame.stamp)
            return []
        self._echo = frame.stamp  # of another clock than those before
        self._base = self._staging = self._lacks_told = None
        return [self._own.write(Stored(written.storage, frame.epoch, written.position))]

    # The log

    def _begin(self, frame: Begin) -> list[Effect]:
        written = self._own.written
        self._base = base = Position(frame.base_epoch, frame.sequence)
        if written.position == base != NOWHERE and base.epoch < frame.epoch:
            return [self._own.write(Stored(written.storage, written.promised, Position(frame.epoch, frame.sequence)))]
        if self._staging is not None and not self._take_growth():
            return self._lacks()
        return self._reply()

    def _append(self, frame: Append) -> list[Effect]:
        written = self._own.written
        if written.position.epoch == frame.epoch:
            if frame.sequence == written.position.sequence + 1:
                position = Position(frame.epoch, frame.sequence)
                return [self._own.write(Stored(written.storage, written.promised, position), frame.changes)]
            if frame.sequence <= written.position.sequence:
                return self._reply()
        if self._staging is not None or self._lacks_told == written.position:
            return []
        return self._lacks()

    def _answer(self, frame: Heartbeat) -> list[Effect]:
        position = self._own.written.position
        if position.epoch == frame.epoch and frame.sequence <= position.sequence:
            return self._reply()
        return self._reply() if self._take_growth() else self._lacks()

    # The snapshot

    def _stage(self, frame: SnapshotPart) -> list[Effect]:
        written = self._own.written
        if self._is_late(frame):
            return self._reply()
        if frame.part == 0:
            self._staging = Staging(frame.snapshot)
        staging = self._staging
        if staging is None or frame.part != staging.parts or frame.snapshot != staging.snapshot:
            return []
        staging.parts += 1
        staging.has_grown = True
        effects: list[Effect] = [StageSnapshot(frame.changes, frame.part == 0)]
        if frame.is_last:
            self._staging = None
            effects += self._report_tail()
            position = Position(frame.epoch, frame.sequence)
            stored = Stored(written.storage, written.promised, position)
            effects.append(self._own.write(stored, is_snapshot=True))
        return effects

    def _take_growth(self) -> bool:
        """Whether parts of a snapshot have come since the primary last asked. If none have, the rest is lost."""
        staging = self._staging
        if staging is None:
            return False
        has_grown, staging.has_grown = staging.has_grown, False
        return has_grown

    def _is_late(self, frame: SnapshotPart) -> bool:
        """Whether there is newer content of its epoch."""
        position = self._own.written.position
        return position.epoch == frame.epoch and frame.sequence <= position.sequence

    def _report_tail(self) -> list[Effect]:
        position, base = self._own.written.position, self._base
        if base is None or position.epoch != base.epoch or position.sequence <= base.sequence:
            return []
        return [Alarm(AlarmKind.TAIL_DISCARDED, f"{position.sequence - base.sequence} batches of epoch {base.epoch}")]

    # Answers

    def _reply(self) -> list[Effect]:
        """What is on disk. Nothing, while the promise is not."""
        durable, written = self._own.durable, self._own.written
        if self.primary_host is None or durable.promised != written.promised:
            return []
        if durable.position.epoch == durable.promised:
            sequence = durable.position.sequence
            frame = Acknowledge(self._broker, durable.promised, sequence, durable.storage, self._echo)
            return [Send(self.primary_host, frame)]
        if written.position.epoch == written.promised or self._staging is not None:
            return []  # the acknowledgement follows
        return self._lacks()

    def _lacks(self) -> list[Effect]:
        durable, written = self._own.durable, self._own.written
        if self.primary_host is None or durable.promised != written.promised:
            return []
        position = self._lacks_told = written.position
        return [
            Send(
                self.primary_host,
                Lacks(self._broker, written.promised, position.sequence, written.storage, position.epoch, self._echo),
            )
        ]
