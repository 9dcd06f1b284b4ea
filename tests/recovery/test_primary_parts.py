"""What a primary is made of: the log, leases, its own storage."""

import pytest

from overlane.core.units import MS, NEVER
from overlane.recovery.events import Position, Stored
from overlane.recovery.replication.batch_log import BatchLog
from overlane.recovery.replication.frames import CHANGE_OVERHEAD
from overlane.recovery.replication.lease import MirrorLease, PrimaryLease
from overlane.recovery.replication.mirrors import Mirrors
from overlane.recovery.replication.own_storage import OwnStorage

BATCH = (("t", b"", b"x" * (99 - CHANGE_OVERHEAD)),)
"""100 bytes."""


def log_of(count: int, bytes_max: int = 1_000) -> BatchLog:
    log = BatchLog(5, bytes_max)
    for _ in range(count):
        log.append(BATCH)
    return log


def test_batches_are_numbered_and_found_behind_any_of_them() -> None:
    log = log_of(3)
    assert (log.start, log.last, log.size_bytes) == (5, 8, 300)
    assert [sequence for sequence, _ in log.after(6)] == [7, 8]
    assert [log.reaches(sequence) for sequence in (4, 5, 8, 9)] == [False, True, True, False]


def test_the_oldest_batches_are_forgotten_at_the_limit_and_the_last_is_kept() -> None:
    assert log_of(12).start == 7
    log = log_of(2, bytes_max=50)
    assert (log.start, log.last, log.size_bytes) == (6, 7, 100)
    assert [sequence for sequence, _ in log.after(6)] == [7]


def test_what_every_mirror_has_is_forgotten() -> None:
    log = log_of(4)
    log.forget(7)
    assert (log.start, log.size_bytes) == (7, 200)
    log.forget(100)
    assert (log.start, log.size_bytes) == (9, 0)


def test_the_log_is_kept_for_the_slowest_mirror_and_for_a_snapshot_on_its_way() -> None:
    mirrors = Mirrors()
    mirrors.keep({"b", "c", "d"})
    for host, storage, sequence in (("b", 2, 8), ("c", 3, 6)):
        mirrors.identify(mirrors.hosts[host], storage)
        mirrors.acknowledge(storage, sequence, last=9, now=0)
    assert mirrors.log_floor(9) == 6
    mirrors.hosts["d"].snapshot_floor = 5
    assert mirrors.log_floor(9) == 5
    mirrors.keep({"b"})
    assert mirrors.log_floor(9) == 8


def test_a_mirror_is_behind_since_the_batch_that_it_lacks_next_was_there_or_it_last_got_on() -> None:
    mirrors = Mirrors()
    mirrors.acknowledge(2, 8, last=8, now=10)
    assert mirrors.behind_since == {}
    mirrors.appended(now=20)
    mirrors.appended(now=30)
    assert mirrors.behind_since == {2: 20}
    mirrors.acknowledge(2, 9, last=10, now=40)
    mirrors.acknowledge(2, 9, last=10, now=50)
    assert mirrors.behind_since == {2: 40}
    mirrors.acknowledge(2, 10, last=10, now=60)
    assert mirrors.behind_since == {}


def test_the_progress_of_an_emptied_disk_is_not_that_of_the_former() -> None:
    mirrors = Mirrors()
    mirrors.keep({"b"})
    mirror = mirrors.hosts["b"]
    mirrors.identify(mirror, 2)
    mirrors.acknowledge(2, 8, last=9, now=0)
    mirror.is_streaming = mirror.is_joining = True
    mirrors.identify(mirror, 9)
    assert mirrors.progress_of(mirror) is None
    assert (mirror.is_streaming, mirror.is_joining, mirrors.joining) == (False, False, frozenset())


def test_the_lease_needs_an_echo_of_every_mirror() -> None:
    lease = PrimaryLease(600 * MS)
    lease.echo(2, 100 * MS, 150 * MS)
    assert lease.until([2]) == 700 * MS
    assert lease.until([2, 3]) == 0
    assert lease.until([]) == NEVER
    lease.echo(2, 50 * MS, 160 * MS)  # an older one that comes late
    lease.echo(2, 900 * MS, 160 * MS)  # of the future: not one of ours
    assert lease.until([2]) == 700 * MS


def test_a_mirror_waits_for_longer_than_the_primary_acknowledges() -> None:
    lease = MirrorLease(900 * MS, started=1_000 * MS)
    assert lease.until == 1_900 * MS
    lease.hear(1_200 * MS)
    assert lease.until == 2_100 * MS


@pytest.mark.parametrize(("confirmed", "sequence"), [(0, 0), (1, 1), (3, 3), (9, 3)])
def test_writes_become_durable_in_their_order(confirmed: int, sequence: int) -> None:
    own = OwnStorage(Stored(1))
    for number in (1, 2, 3):
        assert own.write(Stored(1, 1, Position(1, number))).number == number
    own.confirm(confirmed)
    assert own.durable.position.sequence == sequence
    assert own.written.position.sequence == 3
    assert [own.is_durable(number) for number in (1, 2, 3)] == [number <= confirmed for number in (1, 2, 3)]
