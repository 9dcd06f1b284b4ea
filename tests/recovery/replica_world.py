"""Several hosts with a replica of one broker each, under virtual time: processes, disks, clocks, a network, an arbiter.

The world keeps what was acknowledged and checks at every step that could break it (decision 28):

    A   every storage of the replica set that exists has every acknowledged batch
    B   when a primary has begun to serve, none of an earlier epoch acknowledges
    C   what was acknowledged as mirrored was so while the replica set had a mirror
    D   storages at the same position have the same content

Clocks of hosts differ in rate by a few per cent. With wild clocks A and D have to hold, B and C need not.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush

from replica_arbiter import Arbiter

from overlane.coordination.contract import Event as CoordinationEvent
from overlane.core.records import Record
from overlane.core.units import MS, NEVER, Nanos
from overlane.recovery.events import (
    NOWHERE,
    Alarm,
    Ask,
    Deposed,
    Durable,
    Effect,
    Event,
    MirrorLost,
    MirrorsWanted,
    Position,
    PrimaryLost,
    Received,
    ReplicaSettings,
    Send,
    SendSnapshot,
    Serving,
    SnapshotSent,
    StageSnapshot,
    Stored,
    Tick,
    Write,
    Written,
)
from overlane.recovery.hosts.host_records import HostRecord
from overlane.recovery.hosts.succession import claim_delay
from overlane.recovery.replica import Replica
from overlane.recovery.replica_set import ReplicaSet, replica_path
from overlane.recovery.replication.frames import Change, Frame, snapshot_parts
from overlane.recovery.replication.mirror import Mirror

BROKER = "seattle"
SETTINGS = ReplicaSettings(
    heartbeat=40 * MS,
    primary_lease=100 * MS,
    mirror_lease=150 * MS,
    sync_max=250 * MS,
    retry=40 * MS,
    join_lag_max=3,
    log_bytes_max=600,
)
PART_BYTES = 300


class Violation(AssertionError):
    """An invariant does not hold."""


@dataclass
class Disk:
    stored: Stored
    content: dict[tuple[str, bytes], bytes] = field(default_factory=dict)
    batches: set[int] = field(default_factory=set)
    """Those whose record is in the content."""

    def commit(self, write: Write, staged: dict[tuple[str, bytes], bytes]) -> None:
        if write.is_snapshot:
            self.content = dict(staged)
            self.batches = {int.from_bytes(key) for table, key in staged if table == "batch"}
        for table, key, value in write.changes:
            if value is None:
                self.content.pop((table, key), None)
            else:
                self.content[table, key] = value
                if table == "batch":
                    self.batches.add(int.from_bytes(key))
        self.stored = write.stored

    def records(self) -> list[Record]:
        return [(table, key, value) for (table, key), value in self.content.items()]


@dataclass
class Host:
    name: str
    disk: Disk
    rate: float
    """Of its clock."""
    offset: Nanos
    replica: Replica | None = None
    life: int = 0
    is_lost: bool = False
    """For good."""
    paused_until: Nanos = 0
    disk_slow: Nanos = 0
    armed: Nanos = NEVER
    committing_until: Nanos = 0
    staged: dict[tuple[str, bytes], bytes] = field(default_factory=dict)
    epoch: int = 0
    """That it serves in; 0: none."""
    pending: dict[int, int] = field(default_factory=dict)
    """What clients of this primary wait for: number of the batch by its sequence."""
    acked_local: int = 0
    acked_mirrored: int = 0


class World:
    def __init__(
        self, seed: int, hosts: int = 3, settings: ReplicaSettings = SETTINGS, *, has_wild_clocks: bool = False
    ) -> None:
        self.luck = random.Random(seed)
        self.settings = settings
        self.has_wild_clocks = has_wild_clocks
        self.now: Nanos = 0
        self.acked: set[int] = set()
        self.published = 0
        self.served = 0
        """The highest epoch in which a primary has begun to serve."""
        self.cuts: set[tuple[str, str]] = set()
        self.slow: Nanos = 0
        self.alarms: list[Alarm] = []
        self.trace: list[str] | None = None
        self.scores: dict[str, HostRecord] = {}
        """Of hosts that are there; without any, whoever notices first that the primary is lost claims."""
        self._queue: list[tuple[Nanos, int, Callable[[], None]]] = []
        self._count = 0
        self._storages = 0
        self._contents: dict[Position, frozenset[int]] = {}
        self.sets: list[ReplicaSet] = []
        """Every value of the znode."""
        self.arbiter = Arbiter(self.luck, self.after, self._tell, self._set_changed, replica_path(BROKER))
        self.hosts: dict[str, Host] = {}
        for name in "abcd"[:hosts]:
            rate = self.luck.uniform(0.96, 1.04) if not has_wild_clocks else self.luck.choice((0.2, 1.0, 5.0))
            offset = self.luck.randrange(1000) * MS
            self.hosts[name] = Host(name, Disk(Stored(self._new_storage())), rate, offset)
        self.hosts["a"].disk.content["batch", (0).to_bytes(4)] = b"from before"
        self.hosts["a"].disk.batches.add(0)
        self.acked.add(0)
        for host in self.hosts.values():
            self.start(host)

    def _new_storage(self) -> int:
        self._storages += 1
        return self._storages

    # Time

    def after(self, delay: Nanos, action: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._queue, (self.now + delay, self._count, action))

    def run(self, duration: Nanos) -> None:
        end = self.now + duration
        queue = self._queue
        while queue and queue[0][0] <= end:
            self.now, _, action = heappop(queue)
            action()
        self.now = end

    def clock(self, host: Host) -> Nanos:
        return host.offset + int(self.now * host.rate)

    # Processes

    def start(self, host: Host) -> None:
        host.life += 1
        host.armed = NEVER
        host.committing_until = self.now
        now = self.clock(host)
        is_home = host.name == "a"
        host.replica = Replica(BROKER, host.name, host.disk.stored, now, is_home=is_home, settings=self.settings)
        host.replica.handle(MirrorsWanted(frozenset(self.hosts) - {host.name}), now)
        self.arbiter.connect(host.name, host.life)

    def crash(self, host: Host, *, is_wiped: bool = False) -> None:
        host.replica = None
        host.life += 1
        host.staged, host.pending, host.epoch, host.paused_until = {}, {}, 0, 0
        if is_wiped:
            host.disk = Disk(Stored(self._new_storage()))
        for other in self.hosts.values():
            if other is not host:
                delay = self.luck.randrange(2, 12) * MS
                self.after(delay, partial(self._notice_death, other, host, host.life))

    @property
    def lasting(self) -> list[Host]:
        return [host for host in self.hosts.values() if not host.is_lost]

    def lose(self, host: Host) -> None:
        """A host that has crashed, and its disk, for good."""
        host.is_lost = True
        host.disk = Disk(Stored(self._new_storage()))

    def may_wipe(self, host: Host) -> bool:
        """Whether another storage of the set, whatever becomes of requests on their way, exists."""
        value = self.arbiter.value
        if value is None:
            return host.name != "a"
        existing = {one.disk.stored.storage for one in self.hosts.values() if one is not host}
        return all(one.storages & existing for one in [value, *self.arbiter.flying])

    def _notice_death(self, host: Host, dead: Host, life: int) -> None:
        """The connection was closed, and another is refused."""
        if host.replica is None or dead.life != life or (host.name, dead.name) in self.cuts:
            return
        value = host.replica.replica_set
        self.give(host, MirrorLost(dead.name))
        if value is not None and any(one.host == dead.name and one.storage == value.primary for one in value.in_sync):
            self.give(host, PrimaryLost(value.epoch, is_dead=True, delay=self._delay_of(host, value)))

    def watch(self, host: Host, *, is_mistaken: bool = False) -> None:
        """Silence of the primary; or a mistake."""
        if host.replica is None or not isinstance(host.replica.role, Mirror):
            return
        value = host.replica.replica_set
        silent = self.clock(host) - host.replica.role.lease.heard_at
        if value is not None and (is_mistaken or silent > self.settings.heartbeat * 2):
            self.give(host, PrimaryLost(value.epoch, delay=self._delay_of(host, value)))

    def _delay_of(self, host: Host, value: ReplicaSet) -> Nanos:
        return claim_delay(BROKER, host.name, value, self.scores) if self.scores else 0

    # A process

    def give(self, host: Host, event: Event) -> None:
        if host.replica is None:
            return
        if host.paused_until > self.now:
            life = host.life
            self.after(host.paused_until - self.now, lambda: self.give(host, event) if host.life == life else None)
            return
        if self.trace is not None:
            self.trace.append(f"{self.now / MS:8.1f} {host.name} {event}")
        self.carry_out(host, host.replica.handle(event, self.clock(host)))

    def _tell(self, name: str, event: CoordinationEvent) -> None:
        host = self.hosts[name]
        life = host.life
        self.after(0, lambda: self.give(host, event) if host.life == life else None)

    def publish(self, host: Host) -> int | None:
        """A turn with one record of its own, and one that all of them replace."""
        if host.replica is None or not host.epoch or host.paused_until > self.now:
            return None
        self.published += 1
        number = self.published
        changes: tuple[Change, ...] = (
            ("batch", number.to_bytes(4), b"x" * self.luck.randrange(60)),
            ("last", b"", number.to_bytes(4)),
        )
        sequence, effects = host.replica.submit(changes, self.clock(host))
        host.pending[sequence] = number
        self.carry_out(host, effects)
        return number

    def carry_out(self, host: Host, effects: list[Effect]) -> None:
        for effect in effects:
            if self.trace is not None:
                self.trace.append(f"{self.now / MS:8.1f} {host.name}     {effect}")
            match effect:
                case Send(to, frame):
                    self._send(host.name, to, frame)
                case Write():
                    self._write(host, effect)
                case Durable(local, mirrored):
                    self._acknowledge(host, local, mirrored)
                case Ask(number, request):
                    self.arbiter.ask(host.name, number, request)
                case StageSnapshot(changes, is_first):
                    self._stage(host, changes, is_first=is_first)
                case SendSnapshot():
                    self._send_snapshot(host, effect)
                case Serving(epoch, base):
                    host.epoch, host.pending = epoch, {}
                    host.acked_local = host.acked_mirrored = base.sequence
                    self.served = max(self.served, epoch)
                case Deposed():
                    host.epoch, host.pending = 0, {}
                case Alarm():
                    self.alarms.append(effect)
        self._arm(host)

    def _arm(self, host: Host) -> None:
        if host.replica is None:
            return
        deadline = host.replica.next_deadline()
        if deadline >= NEVER:
            return
        due = max(self.now, int((deadline - host.offset) / host.rate) + 2)
        if due < host.armed:
            host.armed = due
            self.after(due - self.now, partial(self._tick, host, host.life, due))

    def _tick(self, host: Host, life: int, due: Nanos) -> None:
        if host.life == life and host.armed == due:
            host.armed = NEVER
            self.give(host, Tick())

    # Network and disk

    def _send(self, sender: str, to: str, frame: Frame) -> None:
        self.after(self._delay(), lambda: self._arrive(sender, to, frame))

    def _delay(self) -> Nanos:
        return self.luck.randrange(500, 8000) * 1000 + (self.luck.randrange(self.slow) if self.slow else 0)

    def _sync_delay(self) -> Nanos:
        return self.luck.randrange(200, 4000) * 1000

    def _arrive(self, sender: str, to: str, frame: Frame) -> None:
        if (sender, to) not in self.cuts:
            self.give(self.hosts[to], Received(sender, frame))

    def _write(self, host: Host, write: Write) -> None:
        delay = self._sync_delay() + host.disk_slow
        host.committing_until = max(host.committing_until, self.now + delay)
        staged, life = host.staged, host.life

        def commit() -> None:
            if host.life == life:
                host.disk.commit(write, staged)
                self._check_storage(host)
                self._check_position(host)
                self.give(host, Written(write.number))

        self.after(host.committing_until - self.now, commit)

    def _stage(self, host: Host, changes: tuple[Change, ...], *, is_first: bool) -> None:
        if is_first:
            host.staged = {}
        host.staged.update({(table, key): value for table, key, value in changes if value is not None})

    def _send_snapshot(self, host: Host, effect: SendSnapshot) -> None:
        """Its parts stay in their order, among themselves."""
        position, to = host.disk.stored.position, effect.host
        if position.epoch == effect.epoch:
            through, now = position.sequence, self.clock(host)
            records = host.disk.records()
            delay = 0
            for part in snapshot_parts(BROKER, effect.epoch, through, effect.snapshot, records, now, PART_BYTES):
                delay += self._delay() // 4
                self.after(delay, partial(self._arrive, host.name, to, part))
        life = host.life
        self.after(0, lambda: self.give(host, SnapshotSent(to, position.sequence)) if host.life == life else None)

    # What must hold

    def _acknowledge(self, host: Host, local: int, mirrored: int) -> None:
        for sequence in sorted(host.pending):
            number = host.pending[sequence]
            is_mirrored = number % 2 == 1
            if sequence > (mirrored if is_mirrored else local):
                continue
            del host.pending[sequence]
            self.acked.add(number)
            if self.has_wild_clocks:
                continue
            if host.epoch < self.served:
                raise Violation(f"B: {host.name} acknowledges {number} in epoch {host.epoch}, after {self.served}")
            value = self.arbiter.value
            if is_mirrored and (value is None or len(value.in_sync) < 2):
                raise Violation(f"C: {host.name} acknowledges {number} as mirrored, and {value} has no mirror")
        self._check_all()

    def _set_changed(self, value: ReplicaSet) -> None:
        self.sets.append(value)
        if self.trace is not None:
            self.trace.append(f"{self.now / MS:8.1f} znode {value}")
        self._check_all()

    def _check_all(self) -> None:
        for host in self.hosts.values():
            self._check_storage(host)

    def _check_storage(self, host: Host) -> None:
        value = self.arbiter.value
        if value is None or not value.has(host.disk.stored.storage):
            return
        if lost := self.acked - host.disk.batches:
            raise Violation(f"A: {host.name} of {value} lacks {sorted(lost)[:5]}")

    def _check_position(self, host: Host) -> None:
        position = host.disk.stored.position
        if position == NOWHERE:
            return
        batches = frozenset(host.disk.batches)
        other = self._contents.setdefault(position, batches)
        if batches != other:
            raise Violation(f"D: {host.name} has other content than another storage at {position}")
