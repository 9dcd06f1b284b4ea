"""The soak of replicas notices when a rule of the protocol is taken away.

Each sabotage breaks one rule of decision 28. Beside it stands a seed that shows it; how many seeds it takes prints

    python tests/recovery/test_replica_sabotage.py [SEEDS [NAMES]]

Seeds depend on everything that a replica does, so that another change may move one: then one of the next few does.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

import pytest
from replica_soak import run_seed
from replica_world import Disk, Host, Violation, World

from overlane.core.units import NEVER, Nanos
from overlane.recovery.claim import Claim
from overlane.recovery.events import Effect, Send, Serving, Stored, Write
from overlane.recovery.register import Register
from overlane.recovery.replica import Replica
from overlane.recovery.replica_set import ReplicaSet
from overlane.recovery.replication import primary as primary_module
from overlane.recovery.replication.frames import Acknowledge, Append, Begin, Change, Frame, FromPrimary
from overlane.recovery.replication.lease import MirrorLease, PrimaryLease
from overlane.recovery.replication.mirror import Mirror
from overlane.recovery.replication.own_storage import OwnStorage
from overlane.recovery.replication.primary import Primary

Sabotage = Callable[[], AbstractContextManager[object]]

_write = OwnStorage.write
_required = Primary._required
_received = Replica._received
_crash = World.crash
_hear = Mirror._hear


@contextmanager
def frames_of_any_epoch() -> Iterator[None]:
    """Rule 1: a mirror promises nothing, and follows whoever sends."""

    def hear(self: Mirror, host: str, frame: FromPrimary, now: Nanos) -> list[Effect]:
        written = self._own.written
        if frame.epoch < written.promised:
            self._own.written = Stored(written.storage, frame.epoch - 1, written.position)
        return _hear(self, host, frame, now)

    with (
        patch.object(Mirror, "_may_accept", lambda *_: True),
        patch.object(Mirror, "_hear", hear),
        patch.object(Replica, "_known_epoch", 0),
    ):
        yield


def an_emptied_disk_keeps_its_id() -> AbstractContextManager[object]:
    """Rule 1: a storage id that is not made with the database."""

    def crash(self: World, host: Host, *, is_wiped: bool = False) -> None:
        storage = host.disk.stored.storage
        _crash(self, host, is_wiped=is_wiped)
        if is_wiped:
            host.disk = Disk(Stored(storage))

    return patch.object(World, "crash", crash)


def acknowledgements_before_the_commit() -> AbstractContextManager[object]:
    """Rule 2: what was given to the disk counts as being on it."""

    def write(
        self: OwnStorage, stored: Stored, changes: tuple[Change, ...] = (), *, is_snapshot: bool = False
    ) -> Write:
        effect = _write(self, stored, changes, is_snapshot=is_snapshot)
        self.durable = stored
        return effect

    return patch.object(OwnStorage, "write", write)


def mirrors_do_not_count() -> AbstractContextManager[object]:
    """Rule 2: the primary's disk is enough."""
    return patch.object(primary_module, "required", lambda *_: frozenset())


def alone_before_the_compare_and_set() -> AbstractContextManager[object]:
    """Rule 3: a mirror that is silent does not count, though it is still in the replica set."""

    def required(self: Primary) -> frozenset[int]:
        stamps = self._lease._echoed
        latest = max(stamps.values(), default=0)
        return frozenset(one for one in _required(self) if stamps.get(one, 0) + self._settings.heartbeat >= latest)

    return patch.object(Primary, "_required", required)


def joining_before_it_is_complete() -> AbstractContextManager[object]:
    """Rule 4: a mirror enters the set though it lacks something that was acknowledged."""
    return patch.object(Primary, "_is_complete", lambda *_: True)


@contextmanager
def one_set_instead_of_all_possible() -> Iterator[None]:
    """Rule 4: durability does not wait for a set that may already be there."""

    def possible(self: Register) -> list[ReplicaSet]:
        return [] if self.known is None else [self.known.value]

    def required(sets: list[ReplicaSet], _: frozenset[int], own: int) -> frozenset[int]:
        return sets[0].storages - {own}

    with patch.object(Register, "possible", property(possible)), patch.object(primary_module, "required", required):
        yield


def late_snapshots() -> AbstractContextManager[object]:
    """Rule 4: a snapshot replaces newer content of its own epoch."""
    return patch.object(Mirror, "_is_late", lambda *_: False)


def frames_while_it_serves() -> AbstractContextManager[object]:
    """Rule 5: a mirror that promotes itself still acknowledges frames of the old epoch: they are not served."""

    def received(self: Replica, host: str, frame: Frame, now: Nanos) -> list[Effect]:
        if isinstance(self.role, Claim | Primary) and isinstance(frame, Append) and frame.epoch < self.role.epoch:
            return [Send(host, Acknowledge(frame.broker, frame.epoch, frame.sequence, self._own.id, frame.stamp))]
        return _received(self, host, frame, now)

    return patch.object(Replica, "_received", received)


def the_same_epoch_after_a_restart() -> AbstractContextManager[object]:
    """Rule 6: a primary that restarts goes on in its epoch."""

    def resume(self: Replica, now: Nanos) -> list[Effect]:
        value = self.replica_set
        if value is None or value.epoch > self._own.written.promised:
            return self._claim(now)
        base = self._own.written.position
        self.role = Primary(self._broker, value.epoch, base, self._own, self._register, self._settings, now)
        return [Serving(value.epoch, base), *self.role.want(self._wanted, now), *self.role.tick(now)]

    return patch.object(Replica, "_resume", resume)


def a_primary_without_a_lease() -> AbstractContextManager[object]:
    """Rule 7: the primary acknowledges though a mirror may have promoted itself."""
    return patch.object(PrimaryLease, "until", lambda *_: NEVER)


def a_mirror_that_does_not_wait() -> AbstractContextManager[object]:
    """Rule 7: a mirror promotes itself before the primary's lease has ended."""
    return patch.object(MirrorLease, "until", property(lambda _: 0))


def an_empty_storage_as_the_first_content() -> AbstractContextManager[object]:
    """A storage that was never in a set counts as equal to one with records from before the first set."""

    def begin(self: Mirror, frame: Begin) -> list[Effect]:
        written = self._own.written
        if written.position == (frame.base_epoch, frame.sequence) and frame.base_epoch < frame.epoch:
            position = written.position._replace(epoch=frame.epoch)
            return [self._own.write(Stored(written.storage, written.promised, position))]
        return self._reply()

    return patch.object(Mirror, "_begin", begin)


SABOTAGES: dict[Sabotage, int] = {
    frames_of_any_epoch: 237,
    an_emptied_disk_keeps_its_id: 0,
    acknowledgements_before_the_commit: 0,
    mirrors_do_not_count: 0,
    alone_before_the_compare_and_set: 2,
    joining_before_it_is_complete: 1,
    one_set_instead_of_all_possible: 3,
    late_snapshots: 80,
    frames_while_it_serves: 289,
    the_same_epoch_after_a_restart: 30,
    a_primary_without_a_lease: 52,
    a_mirror_that_does_not_wait: 29,
    an_empty_storage_as_the_first_content: 0,
}


@pytest.mark.parametrize(("sabotage", "seed"), SABOTAGES.items(), ids=[one.__name__ for one in SABOTAGES])
def test_the_soak_notices_that_a_rule_is_missing(sabotage: Sabotage, seed: int) -> None:
    run_seed(seed)
    with sabotage(), pytest.raises(Violation):
        run_seed(seed)


def count(seeds: int, only: list[str]) -> None:
    """For each sabotage: how many seeds notice it, and the first of each invariant that does not hold."""
    for sabotage in [one for one in SABOTAGES if not only or one.__name__ in only]:
        found: dict[str, list[int]] = {}
        for seed in range(seeds):
            with sabotage():
                try:
                    run_seed(seed)
                except Violation as violation:
                    found.setdefault(str(violation).partition("ms: ")[2].partition(":")[0], []).append(seed)
        kinds = ", ".join(f"{kind} by {len(by)}, first {by[0]}" for kind, by in sorted(found.items()))
        print(f"{sabotage.__name__}: {sum(map(len, found.values()))} of {seeds} seeds ({kinds})", flush=True)


if __name__ == "__main__":
    count(int(sys.argv[1]) if len(sys.argv) > 1 else 300, sys.argv[2:])
