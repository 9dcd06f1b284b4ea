"""A replica: one host's part of one broker.

    mirror  --the primary is lost, or the znode names this storage as primary-->  claim
            (since it was the primary before a restart, or another primary has handed the broker over to it)
    claim   --won-->  primary          claim  --another was first-->  mirror
    primary --the znode names another epoch-->  mirror

A storage that the replica set does not contain never claims. The first set is created by the host that the broker is
configured for, where there is no znode or a forgotten one, and its storage has never been in a set. Nothing here does
I/O or reads a clock: `handle` is told the time, and returns what is to be done.
"""

from typing import assert_never

from overlane.coordination.contract import Answered, Changed, ChildrenChanged, Connected, LoginRefused, Suspended
from overlane.core.units import NEVER, Nanos
from overlane.errors import OverlaneError
from overlane.recovery.claim import Claim, ClaimState
from overlane.recovery.events import (
    NOWHERE,
    Deposed,
    Effect,
    Event,
    HandOver,
    MirrorLost,
    MirrorsWanted,
    PrimaryLost,
    Received,
    ReplicaSettings,
    Send,
    Serving,
    SnapshotSent,
    Stored,
    Tick,
    Written,
)
from overlane.recovery.register import Register
from overlane.recovery.replica_set import Copy, ReplicaSet, first_set
from overlane.recovery.replication.frames import (
    Acknowledge,
    Append,
    Begin,
    Change,
    Frame,
    Heartbeat,
    Lacks,
    Refuse,
    SnapshotPart,
)
from overlane.recovery.replication.mirror import Mirror
from overlane.recovery.replication.mirrors import MirrorState
from overlane.recovery.replication.own_storage import OwnStorage
from overlane.recovery.replication.primary import Primary

DEFAULTS = ReplicaSettings()


class NotPrimary(OverlaneError):
    """A batch was submitted to a replica that does not serve: by a driver that ignores `Deposed`."""


class Replica:
    def __init__(
        self,
        broker: str,
        host: str,
        stored: Stored,
        now: Nanos,
        *,
        is_home: bool = False,
        settings: ReplicaSettings = DEFAULTS,
    ) -> None:
        self.role: Mirror | Claim | Primary
        self._broker = broker
        self._host = host
        self._settings = settings
        self._is_home = is_home
        self._own = OwnStorage(stored)
        self._register = Register(broker, settings.retry)
        self._wanted: frozenset[str] = frozenset()
        self._mirror = self.role = Mirror(broker, self._own, settings, now)
        self._lost: PrimaryLost | None = None
        """Until the primary is heard, or another follows it."""
        self._lost_at: Nanos = 0
        """When that was told first."""
        self._promote_at: Nanos = NEVER
        """When the lease ends that is waited for, or the turns of better candidates."""

    # What the rest of the broker asks

    @property
    def replica_set(self) -> ReplicaSet | None:
        return self._register.known.value if self._register.known is not None else None

    @property
    def is_primary(self) -> bool:
        return isinstance(self.role, Primary)

    def mirror_states(self, now: Nanos) -> list[MirrorState]:
        """While this host is the primary."""
        return self.role.mirror_states(now) if isinstance(self.role, Primary) else []

    def may_deliver(self, now: Nanos) -> bool:
        return isinstance(self.role, Primary) and self.role.may_deliver(now)

    def next_deadline(self) -> Nanos:
        if isinstance(self.role, Primary):
            return self.role.next_deadline()
        return min(self._promote_at, self._register.due)

    def submit(self, changes: tuple[Change, ...], now: Nanos) -> tuple[int, list[Effect]]:
        """The records of a turn, while this host serves: the number of the batch, for `Durable`."""
        if not isinstance(self.role, Primary):
            raise NotPrimary(self._broker)
        return self.role.submit(changes, now)

    # Events

    def handle(self, event: Event, now: Nanos) -> list[Effect]:
        match event:
            case Received(host, frame):
                return self._received(host, frame, now)
            case Written(number):
                self._own.confirm(number)
                return self._committed(now)
            case Tick():
                return self._tick(now)
            case Answered():
                return [*self._register.answered(event, now), *self._set_changed(now)]
            case Connected():
                return self._register.read()
            case Changed():
                return self._register.read()
            case Suspended() | ChildrenChanged() | LoginRefused():
                return []
            case SnapshotSent():
                return self.role.snapshot_sent(event, now) if isinstance(self.role, Primary) else []
            case MirrorsWanted(hosts):
                self._wanted = hosts
                return self.role.want(hosts, now) if isinstance(self.role, Primary) else []
            case MirrorLost(host):
                return self.role.mirror_lost(host, now) if isinstance(self.role, Primary) else []
            case HandOver(host):
                return self.role.hand_over(host, now) if isinstance(self.role, Primary) else []
            case PrimaryLost():
                if self._lost is None or self._lost.epoch != event.epoch:
                    self._lost_at = now
                self._lost = event
                return self._consider_claim(now)
            case _:
                assert_never(event)

    def _received(self, host: str, frame: Frame, now: Nanos) -> list[Effect]:
        role = self.role
        match frame:
            case Begin() | Append() | SnapshotPart() | Heartbeat():
                if self.role is self._mirror and frame.epoch >= self._known_epoch:
                    self._lost, self._promote_at = None, NEVER
                    return self._mirror.received(host, frame, now)
                return self._outranked(host, frame.epoch)
            case Acknowledge() | Lacks() | Refuse():
                return role.received(host, frame, now) if isinstance(role, Primary) else []
            case _:
                assert_never(frame)

    def _outranked(self, host: str, epoch: int) -> list[Effect]:
        """A frame of a primary whose epoch has ended, or of any while this host claims or serves."""
        if isinstance(self.role, Claim):
            return self._register.read() if epoch > self.role.epoch else []
        own = self.role.epoch if isinstance(self.role, Primary) else self._known_epoch
        if epoch > own:
            return self._register.read()
        return [Send(host, Refuse(self._broker, own, self._own.written.position.sequence, self._own.id))]

    @property
    def _known_epoch(self) -> int:
        """Of the znode: what it says ends the epochs before, also where their primary does not know yet."""
        value = self.replica_set
        return 0 if value is None else value.epoch

    def _committed(self, now: Nanos) -> list[Effect]:
        match self.role:
            case Mirror():
                return self.role.committed()
            case Claim():
                self.role.committed()
                return self._serve(self.role, now) if self.role.state is ClaimState.WON else []
            case Primary():
                return self.role.committed(now)
            case _:
                assert_never(self.role)

    def _tick(self, now: Nanos) -> list[Effect]:
        if isinstance(self.role, Primary):
            return self.role.tick(now)
        return [*self._register.tick(now), *self._consider_claim(now)]

    # Roles

    def _set_changed(self, now: Nanos) -> list[Effect]:
        known = self._register.known
        if known is None:
            return self._found(now)
        value = known.value
        match self.role:
            case Primary() as primary:
                if (value.epoch, value.primary) != (primary.epoch, self._own.id):
                    return [Deposed(primary.epoch), *self._become_mirror(now)]
                return primary.set_changed(now)
            case Claim() as claim:
                effects = claim.set_changed()
                if claim.state is ClaimState.FAILED:
                    self.role = self._mirror
                    return [*effects, *self._consider_claim(now)]
                return effects
            case Mirror():
                return self._consider_claim(now)
            case _:
                assert_never(self.role)

    def _found(self, now: Nanos) -> list[Effect]:
        """There is no znode: make the first set, if that is for this host to do."""
        if not self._register.is_missing or not self._is_home or self._own.written.position != NOWHERE:
            return []
        self._register.is_missing = False
        return self._register.create(first_set(Copy(self._own.id, self._host)), now)

    def _consider_claim(self, now: Nanos) -> list[Effect]:
        self._promote_at = NEVER
        value = self.replica_set
        if self.role is not self._mirror or value is None or self._register.is_reading:
            return []
        if value.is_forgotten:
            return self._begin_anew(value, now)
        return self._resume(now) if value.primary == self._own.id else self._promote(value, now)

    def _begin_anew(self, value: ReplicaSet, now: Nanos) -> list[Effect]:
        """An operator has given all copies up: as where there is no znode. A storage that was in a set does not begin
        by itself: somebody may still want what it has."""
        if not self._is_home or self._own.written.position != NOWHERE or not self._register.is_settled:
            return []
        return self._register.propose(value.begun(Copy(self._own.id, self._host)), now)

    def _resume(self, now: Nanos) -> list[Effect]:
        """A primary that has restarted raises the epoch before it serves (rule 6)."""
        return self._claim(now)

    def _promote(self, value: ReplicaSet, now: Nanos) -> list[Effect]:
        lost = self._lost
        if lost is None:
            return []
        if value.epoch != lost.epoch or not value.has(self._own.id):
            self._lost = None
            return self._register.read() if value.epoch < lost.epoch else []
        allowed_at = self._lost_at if lost.is_dead else max(self._lost_at, self._mirror.lease.until)
        if now < allowed_at + lost.delay:
            self._promote_at = allowed_at + lost.delay
            return []
        return self._claim(now)

    def _claim(self, now: Nanos) -> list[Effect]:
        self.role = Claim(self._host, self._own, self._register)
        return self.role.start(now)

    def _become_mirror(self, now: Nanos) -> list[Effect]:
        self._mirror = self.role = Mirror(self._broker, self._own, self._settings, now)
        return self._consider_claim(now)

    def _serve(self, claim: Claim, now: Nanos) -> list[Effect]:
        self._lost = None
        self.role = primary = Primary(
            self._broker, claim.epoch, claim.base, self._own, self._register, self._settings, now
        )
        effects: list[Effect] = [Serving(claim.epoch, claim.base)]
        known = self._register.known
        if known is not None and known.value != claim.target:
            return [*effects, *self._set_changed(now)]
        return [*effects, *primary.want(self._wanted, now), *primary.tick(now)]
