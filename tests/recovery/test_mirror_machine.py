"""A mirror, frame by frame: what it writes, and what it says is on its disk."""

from overlane.core.units import MS
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
    Write,
)
from overlane.recovery.replication.frames import (
    Acknowledge,
    Append,
    Begin,
    Change,
    FromPrimary,
    Heartbeat,
    Lacks,
    Refuse,
    SnapshotPart,
)
from overlane.recovery.replication.mirror import Mirror
from overlane.recovery.replication.own_storage import OwnStorage

ID = 77
CHANGES: tuple[Change, ...] = (("parcel", b"k", b"v"),)


class Bench:
    """A mirror whose disk commits when it is told to."""

    def __init__(self, promised: int = 0, position: Position = NOWHERE) -> None:
        self.own = OwnStorage(Stored(ID, promised, position))
        self.mirror = Mirror("seattle", self.own, ReplicaSettings(), 0)

    def receive(self, frame: FromPrimary, host: str = "a") -> list[Effect]:
        return self.mirror.received(host, frame, 5 * MS)

    def commit(self) -> list[Effect]:
        self.own.confirm(1_000)
        return self.mirror.committed()


def ack(epoch: int, sequence: int, echo: int) -> Send:
    return Send("a", Acknowledge("seattle", epoch, sequence, ID, echo))


def lacks(epoch: int, position: Position, echo: int) -> Send:
    return Send("a", Lacks("seattle", epoch, position.sequence, ID, position.epoch, echo))


def part(number: int, through: int, snapshot: int = 1, *, is_last: bool = False) -> SnapshotPart:
    return SnapshotPart("seattle", 3, through, snapshot, number, CHANGES, is_last, 30)


def test_a_batch_is_acknowledged_when_it_is_on_disk_with_the_storage_id() -> None:
    bench = Bench(3, Position(3, 7))
    assert bench.receive(Append("seattle", 3, 8, CHANGES, 10)) == [
        Write(1, CHANGES, Stored(ID, 3, Position(3, 8))),
    ]
    assert bench.commit() == [ack(3, 8, echo=10)]


def test_a_later_epoch_is_promised_on_disk_before_it_is_answered() -> None:
    bench = Bench(3, Position(3, 7))
    assert bench.receive(Begin("seattle", 5, 9, 4, 10)) == [Write(1, (), Stored(ID, 5, Position(3, 7)))]
    assert bench.commit() == [lacks(5, Position(3, 7), echo=10)]


def test_a_lower_epoch_is_refused_and_changes_nothing() -> None:
    bench = Bench(5, Position(3, 7))
    refusal = [Send("a", Refuse("seattle", 5, 7, ID))]
    assert bench.receive(Append("seattle", 3, 8, CHANGES, 10)) == refusal
    assert bench.receive(Heartbeat("seattle", 4, 8, 10)) == refusal
    assert bench.receive(SnapshotPart("seattle", 4, 8, 1, 0, CHANGES, True, 10)) == refusal
    assert bench.own.written == Stored(ID, 5, Position(3, 7))
    assert bench.mirror.lease.heard_at == 0


def test_an_epoch_that_goes_on_from_the_same_position_needs_no_snapshot() -> None:
    bench = Bench(3, Position(3, 7))
    assert bench.receive(Begin("seattle", 4, 7, 3, 10)) == [
        Write(1, (), Stored(ID, 4, Position(3, 7))),
        Write(2, (), Stored(ID, 4, Position(4, 7))),
    ]
    assert bench.commit() == [ack(4, 7, echo=10)]


def test_an_empty_storage_does_not_equal_the_records_from_before_the_first_set() -> None:
    bench = Bench()
    assert bench.receive(Begin("seattle", 1, 0, 0, 10)) == [Write(1, (), Stored(ID, 1, NOWHERE))]
    assert bench.commit() == [lacks(1, NOWHERE, echo=10)]


def test_a_gap_is_told_once_and_again_with_the_next_heartbeat() -> None:
    bench = Bench(3, Position(3, 7))
    assert bench.receive(Append("seattle", 3, 9, CHANGES, 10)) == [lacks(3, Position(3, 7), echo=10)]
    assert bench.receive(Append("seattle", 3, 10, CHANGES, 11)) == []
    assert bench.receive(Heartbeat("seattle", 3, 10, 12)) == [lacks(3, Position(3, 7), echo=12)]


def test_a_batch_that_comes_again_is_acknowledged_and_not_written_again() -> None:
    bench = Bench(3, Position(3, 7))
    assert bench.receive(Append("seattle", 3, 6, CHANGES, 10)) == [ack(3, 7, echo=10)]


def test_a_heartbeat_is_answered_with_what_is_on_disk() -> None:
    bench = Bench(3, Position(3, 7))
    bench.receive(Append("seattle", 3, 8, CHANGES, 10))
    assert bench.receive(Heartbeat("seattle", 3, 8, 11)) == [ack(3, 7, echo=11)]


def test_a_snapshot_is_staged_and_replaces_all_in_one_transaction() -> None:
    bench = Bench(3, Position(2, 5))
    assert bench.receive(part(0, through=9)) == [StageSnapshot(CHANGES, is_first=True)]
    assert bench.receive(part(1, through=9, is_last=True)) == [
        StageSnapshot(CHANGES, is_first=False),
        Write(1, (), Stored(ID, 3, Position(3, 9)), is_snapshot=True),
    ]
    assert bench.commit() == [ack(3, 9, echo=30)]


def test_a_snapshot_within_the_epoch_never_replaces_newer_content() -> None:
    bench = Bench(3, Position(3, 9))
    assert bench.receive(part(0, through=8, is_last=True)) == [ack(3, 9, echo=30)]
    assert bench.own.written.position == Position(3, 9)


def test_parts_of_two_snapshots_are_not_mixed() -> None:
    bench = Bench(3, Position(2, 5))
    bench.receive(part(0, through=9, snapshot=1))
    assert bench.receive(part(0, through=9, snapshot=2)) == [StageSnapshot(CHANGES, is_first=True)]
    assert bench.receive(part(1, through=9, snapshot=1, is_last=True)) == []
    assert bench.receive(part(1, through=9, snapshot=2, is_last=True))[0] == StageSnapshot(CHANGES, is_first=False)


def test_parts_of_a_snapshot_are_forgotten_with_their_epoch() -> None:
    bench = Bench(3, Position(2, 5))
    bench.receive(part(0, through=9))
    bench.receive(Begin("seattle", 4, 9, 3, 40))
    late = SnapshotPart("seattle", 4, 9, 1, 1, CHANGES, True, 41)
    assert bench.receive(late) == []


def test_while_a_snapshot_arrives_nothing_is_asked_for() -> None:
    bench = Bench(3, Position(2, 5))
    bench.receive(part(0, through=9))
    assert bench.receive(Heartbeat("seattle", 3, 9, 50)) == []
    # Nothing more has come by the next heartbeat: the rest is lost.
    assert bench.receive(Heartbeat("seattle", 3, 9, 51)) == [lacks(3, Position(2, 5), echo=51)]


def test_a_snapshot_whose_parts_were_lost_is_asked_for_again_also_where_the_primary_says_begin() -> None:
    bench = Bench(3, Position(2, 5))
    bench.receive(part(0, through=9))
    assert bench.receive(Begin("seattle", 3, 9, 2, 50)) == []
    assert bench.receive(Begin("seattle", 3, 9, 2, 51)) == [lacks(3, Position(2, 5), echo=51)]


def test_a_tail_that_nobody_acknowledged_is_discarded_and_reported() -> None:
    bench = Bench(2, Position(2, 12))
    bench.receive(Begin("seattle", 3, 9, 2, 20))
    assert bench.commit() == [lacks(3, Position(2, 12), echo=20)]
    effects = bench.receive(part(0, through=9, is_last=True))
    assert Alarm(AlarmKind.TAIL_DISCARDED, "3 batches of epoch 2") in effects
    assert bench.own.written.position == Position(3, 9)


def test_stamps_of_another_primary_are_not_echoed() -> None:
    bench = Bench(3, Position(3, 7))
    bench.receive(Heartbeat("seattle", 3, 7, 1_000))
    bench.receive(Begin("seattle", 4, 7, 3, 10))
    assert bench.commit() == [ack(4, 7, echo=10)]
