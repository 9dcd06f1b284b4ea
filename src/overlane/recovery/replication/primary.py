"""The primary in one epoch: it numbers batches, streams them, changes the replica set, and says what is durable.

    knows      the possible replica sets (`register`), the progress of each storage (`mirrors`), its own disk, the lease
    changed by batches of turns, commits, frames of mirrors, answers of the coordination service, time
    promises   a batch is reported as durable only when it is on every storage of every possible set (rules 2 to 4),
               and only while no mirror can have promoted itself (rule 7)

A mirror that does not answer is dropped by compare-and-set; until that is known to have succeeded, it counts. A
candidate that has nearly caught up is joining: durability waits for it from then on, so that it soon has all that was
acknowledged; then the compare-and-set takes it in. One change of the set is under way at a time.
"""

from overlane.core.units import NEVER, Nanos
from overlane.recovery.events import (
    Alarm,
    AlarmKind,
    Durable,
    Effect,
    Position,
    ReplicaSettings,
    Send,
    SendSnapshot,
    SnapshotSent,
    Stored,
)
from overlane.recovery.register import Register
from overlane.recovery.replica_set import Copy, ReplicaSet
from overlane.recovery.replication.batch_log import BatchLog
from overlane.recovery.replication.durability import durable_through, is_mirrored, required
from overlane.recovery.replication.frames import (
    Acknowledge,
    Append,
    Begin,
    Change,
    FromMirror,
    Heartbeat,
    Lacks,
    Refuse,
)
from overlane.recovery.replication.lease import PrimaryLease
from overlane.recovery.replication.mirrors import MirrorHost, Mirrors, MirrorState
from overlane.recovery.replication.own_storage import OwnStorage


class Primary:
    def __init__(
        self,
        broker: str,
        epoch: int,
        base: Position,
        own: OwnStorage,
        register: Register,
        settings: ReplicaSettings,
        now: Nanos,
    ) -> None:
        self.epoch = epoch
        self.base = base
        self.durable = Durable(base.sequence, base.sequence)
        self.mirrors = Mirrors()
        self._broker = broker
        self._own = own
        self._register = register
        self._settings = settings
        self._log = BatchLog(base.sequence, settings.log_bytes_max)
        self._lease = PrimaryLease(settings.primary_lease)
        self._wanted: frozenset[str] = frozenset()
        self._lost: set[int] = set()
        """Storages whose process has ended."""
        self._snapshots = 0
        self._had_mirror = False
        """In this epoch."""
        self._has_alarmed = False
        self._is_handing_over = False
        self._started = now
        self._heartbeat_due = now

    # What the rest of the broker asks

    def may_deliver(self, now: Nanos) -> bool:
        return now < self._lease.until(self._required())

    def mirror_states(self, now: Nanos) -> list[MirrorState]:
        """By host."""
        current = self._set()
        found = []
        for host, mirror in sorted(self.mirrors.hosts.items()):
            progress = self.mirrors.progress_of(mirror)
            echoed = None if mirror.storage is None else self._lease.echoed_at(mirror.storage)
            behind_since = now if mirror.storage is None else self.mirrors.behind_since.get(mirror.storage, now)
            found.append(
                MirrorState(
                    host,
                    mirror.storage is not None and current.has(mirror.storage),
                    None if progress is None else self._log.last - progress,
                    self._log.bytes_after(self._log.start if progress is None else progress),
                    max(0, now - behind_since),
                    None if echoed is None else max(0, now - echoed),
                )
            )
        return found

    def next_deadline(self) -> Nanos:
        deadline = min(self._heartbeat_due, self._register.due)
        if not self._has_alarmed and not self._set().mirrors:
            deadline = min(deadline, self._alarm_due)
        if self._register.is_settled:
            deadline = min([deadline, *(self._drop_due(copy) for copy in self._set().mirrors)])
        return deadline

    # Inputs

    def submit(self, changes: tuple[Change, ...], now: Nanos) -> tuple[int, list[Effect]]:
        """The records of a turn: the number of the batch."""
        sequence = self._log.append(changes)
        self.mirrors.appended(now)
        stored = Stored(self._own.id, self._own.written.promised, Position(self.epoch, sequence))
        effects: list[Effect] = [self._own.write(stored, changes)]
        for mirror in self.mirrors.hosts.values():
            if mirror.is_streaming:
                effects.append(Send(mirror.host, Append(self._broker, self.epoch, sequence, changes, now)))
        return sequence, effects

    def committed(self, now: Nanos) -> list[Effect]:
        """Writes of our own have become durable."""
        return self._advance(now)

    def set_changed(self, now: Nanos) -> list[Effect]:
        """The register has learnt something, and we are still the primary."""
        self._talk_to_all()
        for copy in self._set().mirrors:
            mirror = self.mirrors.hosts.get(copy.host)
            if mirror is not None and mirror.storage == copy.storage:
                mirror.is_joining = False
        return [*self._report_alone(now), *self._decide(now), *self._advance(now)]

    def want(self, hosts: frozenset[str], now: Nanos) -> list[Effect]:
        self._wanted = hosts
        self._talk_to_all()
        self._heartbeat_due = now
        return [*self._report_alone(now), *self._decide(now)]

    def mirror_lost(self, host: str, now: Nanos) -> list[Effect]:
        mirror = self.mirrors.hosts.get(host)
        if mirror is None:
            return []
        if mirror.storage is not None:
            self._lost.add(mirror.storage)
        else:
            # It has said nothing in this epoch yet: what the set has of this host is meant.
            self._lost |= {copy.storage for copy in self._set().mirrors if copy.host == host}
        mirror.restart()
        return [*self._decide(now), *self._advance(now)]

    def hand_over(self, host: str, now: Nanos) -> list[Effect]:
        """Name the mirror of this host as the primary of the next epoch, by compare-and-set. From the request on
        nothing is reported as durable, unless it fails: the mirror has all that was, and may begin to serve."""
        current = self._set()
        copy = next((one for one in current.mirrors if one.host == host), None)
        if copy is None or not self._register.is_settled:
            return []
        self._is_handing_over = True
        return self._register.propose(current.handed_over(copy.storage), now)

    def received(self, host: str, frame: FromMirror, now: Nanos) -> list[Effect]:
        mirror = self.mirrors.hosts.get(host)
        if isinstance(frame, Refuse):
            return self._register.read() if frame.epoch > self.epoch else []
        if mirror is None or frame.epoch != self.epoch:
            return []
        self.mirrors.identify(mirror, frame.storage)
        self._lost.discard(frame.storage)
        self._lease.echo(frame.storage, frame.echo, now)
        effects = (
            self._acknowledged(mirror, frame, now)
            if isinstance(frame, Acknowledge)
            else self._send_missing(mirror, frame, now)
        )
        return [*effects, *self._decide(now), *self._advance(now)]

    def snapshot_sent(self, event: SnapshotSent, now: Nanos) -> list[Effect]:
        mirror = self.mirrors.hosts.get(event.host)
        if mirror is None or mirror.snapshot_floor is None or mirror.snapshot_until:
            return []
        mirror.snapshot_until = now + self._settings.primary_lease
        return self._stream(mirror, event.through, now)

    def tick(self, now: Nanos) -> list[Effect]:
        effects = self._register.tick(now)
        if now >= self._heartbeat_due:
            self._heartbeat_due = now + self._settings.heartbeat
            effects += [Send(mirror.host, self._heartbeat(mirror, now)) for mirror in self.mirrors.hosts.values()]
        for mirror in self.mirrors.hosts.values():
            if mirror.is_joining and mirror.storage is not None and not self._is_sound(mirror.storage, now):
                mirror.restart()
        return [*effects, *self._report_alone(now), *self._decide(now), *self._advance(now)]

    # The stream

    def _heartbeat(self, mirror: MirrorHost, now: Nanos) -> Begin | Heartbeat:
        if self.mirrors.progress_of(mirror) is None and mirror.snapshot_floor is None:
            return Begin(self._broker, self.epoch, self.base.sequence, self.base.epoch, now)
        return Heartbeat(self._broker, self.epoch, self._log.last, now)

    def _acknowledged(self, mirror: MirrorHost, frame: Acknowledge, now: Nanos) -> list[Effect]:
        if not self.base.sequence <= frame.sequence <= self._log.last:
            return []  # no batch of ours
        self.mirrors.acknowledge(frame.storage, frame.sequence, self._log.last, now)
        mirror.snapshot_floor = None
        effects: list[Effect] = []
        if not mirror.is_streaming:
            if not self._log.reaches(frame.sequence):
                return []  # it will say what it lacks
            effects = self._stream(mirror, frame.sequence, now)
        self._log.forget(self.mirrors.log_floor(self._log.last))
        return effects

    def _send_missing(self, mirror: MirrorHost, frame: Lacks, now: Nanos) -> list[Effect]:
        if mirror.snapshot_floor is not None and (not mirror.snapshot_until or now < mirror.snapshot_until):
            return []  # a snapshot is on its way
        if frame.content_epoch == self.epoch and self._log.reaches(frame.sequence):
            mirror.snapshot_floor = None
            return self._stream(mirror, frame.sequence, now)
        mirror.is_streaming = False
        # What is read from the disk contains at least what is on it now.
        mirror.snapshot_floor, mirror.snapshot_until = self._committed, 0
        self._snapshots += 1
        return [SendSnapshot(mirror.host, self.epoch, self._snapshots)]

    def _stream(self, mirror: MirrorHost, after: int, now: Nanos) -> list[Effect]:
        if not self._log.reaches(after):
            mirror.restart()
            return []
        mirror.is_streaming = True
        return [
            Send(mirror.host, Append(self._broker, self.epoch, sequence, changes, now))
            for sequence, changes in self._log.after(after)
        ]

    # The replica set

    def _set(self) -> ReplicaSet:
        known = self._register.known
        if known is None:
            raise ValueError("a primary knows its replica set")
        return known.value

    def _talk_to_all(self) -> None:
        hosts = {copy.host for one in self._register.possible for copy in one.in_sync if copy.storage != self._own.id}
        self.mirrors.keep(self._wanted | hosts)

    @property
    def _alarm_due(self) -> Nanos:
        return 0 if self._had_mirror else self._started + self._settings.alone_max

    def _report_alone(self, now: Nanos) -> list[Effect]:
        """Once, when the last mirror has gone, or none has joined in time."""
        if self._set().mirrors:
            self._had_mirror, self._has_alarmed = True, False
            return []
        if self._has_alarmed or now < self._alarm_due:
            return []
        self._has_alarmed = True
        return [Alarm(AlarmKind.NO_MIRROR)]

    def _drop_due(self, copy: Copy) -> Nanos:
        """When a mirror of the set is dropped, unless it is heard: by the lease, or where it has not caught up."""
        if copy.storage in self._lost:
            return 0
        lease_end = max(self._lease.of(copy.storage), self._started + self._settings.primary_lease)
        if self.mirrors.progress.get(copy.storage) is None:
            return min(lease_end, self._started + self._settings.sync_max)
        if not self._log.reaches(self.mirrors.progress[copy.storage]):
            return 0  # it is behind the whole log: durability would wait for a snapshot
        behind_since = self.mirrors.behind_since.get(copy.storage, NEVER)
        return min(lease_end, behind_since + self._settings.stall_max)

    def _decide(self, now: Nanos) -> list[Effect]:
        """At most one change of the set, where none is under way."""
        if not self._register.is_settled:
            return []
        current = self._set()
        for copy in current.mirrors:
            if now >= self._drop_due(copy):
                self._restart_mirror(copy)
                return [
                    Alarm(AlarmKind.MIRROR_DROPPED, copy.host),
                    *self._register.propose(current.without(copy.storage), now),
                ]
        self._begin_joining(now)
        for mirror in self.mirrors.hosts.values():
            if mirror.is_joining and mirror.storage is not None and self._is_complete(mirror):
                return self._register.propose(current.joined(Copy(mirror.storage, mirror.host)), now)
        if any(copy.host in self._wanted for copy in current.mirrors):
            for copy in current.mirrors:
                if copy.host not in self._wanted:
                    return self._register.propose(current.without(copy.storage), now)
        return []

    def _restart_mirror(self, copy: Copy) -> None:
        """What was sent to a mirror that is dropped may not have arrived."""
        mirror = self.mirrors.hosts.get(copy.host)
        if mirror is not None and mirror.storage == copy.storage:
            mirror.restart()

    def _is_sound(self, storage: int, now: Nanos) -> bool:
        """Whether it is heard, and its disk gets on: one that was dropped must not join for what it had before."""
        stalled_at = self.mirrors.behind_since.get(storage, NEVER) + self._settings.stall_max
        return storage not in self._lost and now < self._lease.of(storage) and now < stalled_at

    def _begin_joining(self, now: Nanos) -> None:
        current = self._set()
        for mirror in self.mirrors.hosts.values():
            progress = self.mirrors.progress_of(mirror)
            if mirror.storage is None or progress is None or mirror.host not in self._wanted:
                continue
            if current.has(mirror.storage) or not mirror.is_streaming:
                continue
            is_near = self._log.last - progress <= self._settings.join_lag_max
            mirror.is_joining = is_near and self._is_sound(mirror.storage, now)

    def _is_complete(self, mirror: MirrorHost) -> bool:
        """Whether it has all that was acknowledged (rule 4)."""
        progress = self.mirrors.progress_of(mirror)
        return progress is not None and progress >= self.durable.local

    # What is durable

    @property
    def _committed(self) -> int:
        position = self._own.durable.position
        return position.sequence if position.epoch == self.epoch else self.base.sequence

    def _required(self) -> frozenset[int]:
        return required(self._register.possible, self.mirrors.joining, self._own.id)

    def _review_handover(self) -> bool:
        """End a handover that is settled; whether a mirror may have been named as the next primary."""
        self._is_handing_over = self._is_handing_over and not self._register.is_settled
        return self._is_handing_over

    def _advance(self, now: Nanos) -> list[Effect]:
        mirrors = self._required()
        if now >= self._lease.until(mirrors) or self._review_handover():
            return []
        through = durable_through(self._committed, self.mirrors.progress, mirrors)
        if through is None:
            return []
        before = self.durable
        mirrored = through if is_mirrored(self._register.possible) else before.mirrored
        self.durable = Durable(max(before.local, through), max(before.mirrored, mirrored))
        return [self.durable] if self.durable != before else []
