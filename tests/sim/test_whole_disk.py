"""The simulated disk keeps what was synced, and of anything else what the crash left."""

from random import Random

import pytest

from overlane.core.units import MS
from overlane.sim.engine import Engine
from overlane.sim.whole.disk import Disk, SimulatedStore, Trouble

NAME, OTHER = ("table", b"1"), ("table", b"2")
LATENCY = (10 * MS, 10 * MS)


class Rig:
    """A store whose writes, and syncs, take 10 ms each."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.disk = Disk()
        self.told: list[int | Trouble | None] = []
        self.store = SimulatedStore(self.engine, self.disk, Random(1), LATENCY, self.told.append, self.told.append)

    def after(self, ms: int) -> "Rig":
        self.engine.run_until(ms * MS)
        return self


def test_a_batch_is_told_only_when_it_is_synced() -> None:
    rig = Rig()
    rig.store.submit(1, {NAME: b"a"})
    assert rig.after(19).told == []
    assert rig.disk.records == {}
    assert rig.after(20).told == [1]
    assert rig.disk.records == {NAME: b"a"}


def test_batches_that_wait_are_written_together_and_told_in_order() -> None:
    rig = Rig()
    for batch in range(1, 5):
        rig.store.submit(batch, {NAME: bytes([batch])})
    assert rig.after(40).told == [1, 2, 3, 4]
    assert rig.disk.records == {NAME: b"\4"}


def test_a_killed_process_leaves_what_it_has_written() -> None:
    rig = Rig()
    rig.store.submit(1, {NAME: b"a"})
    rig.after(15)
    rig.store.gone()
    rig.disk.kill()
    assert rig.after(100).told == []
    assert rig.disk.records == {NAME: b"a"}


def test_a_batch_that_was_not_synced_is_there_whole_or_not_at_all_when_the_power_has_failed() -> None:
    found = set()
    for seed in range(50):
        rig = Rig()
        rig.store.submit(1, {NAME: b"a", OTHER: b"b"})
        rig.after(15)
        rig.store.gone()
        rig.disk.lose_power(Random(seed))
        found.add(tuple(sorted(rig.disk.records.items())))
    assert found == {(), ((NAME, b"a"), (OTHER, b"b"))}


@pytest.mark.parametrize("trouble", [Trouble.FULL, Trouble.BROKEN])
def test_what_a_disk_in_trouble_does_not_take_is_written_when_it_is_well_again(trouble: Trouble) -> None:
    rig = Rig()
    rig.disk.trouble = trouble
    rig.store.submit(1, {NAME: b"a"})
    assert rig.after(50).told == [trouble]
    rig.disk.trouble = None
    assert rig.after(400).told == [trouble, None, 1]
    assert rig.disk.records == {NAME: b"a"}


def test_a_full_disk_takes_what_makes_it_no_larger() -> None:
    rig = Rig()
    rig.store.submit(1, {NAME: b"a"})
    rig.after(20)
    rig.disk.trouble = Trouble.FULL
    rig.store.submit(2, {NAME: None})
    assert rig.after(40).told == [1, Trouble.FULL, 2]
    assert rig.disk.records == {}
