"""The replicated store over real databases: what was acknowledged is at whoever continues the broker."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from replica_site import Site

from overlane.core.gossip.incarnation import TABLE as OWN_KIND
from overlane.node.recovery.replication.storage import ReplicaStorage
from overlane.recovery.events import REPLICA_TABLE, AlarmKind, Position, Stored, Write
from overlane.recovery.replication.stored_record import decode_stored, encode_stored

NAMES = ("home", "second", "third")


def run(folder: Path, story: Callable[[Site], Awaitable[None]], seed: int = 1, names: tuple[str, ...] = NAMES) -> None:
    async def go() -> None:
        site = Site(folder, names, random.Random(seed))
        try:
            await story(site)
        finally:
            await site.end()

    asyncio.run(go())


def content(site: Site, name: str) -> list[tuple[str, bytes, bytes]]:
    return sorted(site.hosts[name].storage.records())


def test_what_a_storage_knows_of_itself_survives_its_bytes() -> None:
    stored = Stored(17, 5, Position(4, 99))
    assert decode_stored(encode_stored(stored)) == stored


def test_a_storage_keeps_its_id_and_a_damaged_one_gets_another(tmp_path: Path) -> None:
    def soon(act: Callable[..., object], *arguments: object) -> None:
        act(*arguments)

    first = ReplicaStorage.open(tmp_path, soon)
    stored = Stored(first.stored.storage, 3, Position(2, 1))
    first.write(Write(1, (("test.batch", b"k", b"v"),), stored), lambda _: None)
    first.close()
    again = ReplicaStorage.open(tmp_path, soon)
    again.close()
    assert again.stored == stored
    file = tmp_path / "broker.db"
    file.write_bytes(bytes(60) + file.read_bytes()[60:])
    damaged = ReplicaStorage.open(tmp_path, soon)
    damaged.close()
    assert damaged.stored.storage != first.stored.storage
    assert damaged.stored.position == Position()


def test_a_snapshot_replaces_all_records_but_those_of_the_storage(tmp_path: Path) -> None:
    def soon(act: Callable[..., object], *arguments: object) -> None:
        act(*arguments)

    storage = ReplicaStorage.open(tmp_path, soon, is_synced=False)
    own = storage.stored.storage
    storage.write(Write(1, (("a", b"1", b"old"), ("a", b"2", b"old")), Stored(own, 1, Position(1, 1))), lambda _: None)
    storage.stage((("never", b"", b""),), is_first=True)
    storage.stage((("a", b"2", b"new"),), is_first=True)
    storage.stage((("b", b"3", b"new"), (REPLICA_TABLE, b"stored", b"of another")), is_first=False)
    storage.write(Write(2, (), Stored(own, 2, Position(2, 7)), is_snapshot=True), lambda _: None)
    storage.write(Write(3, (("b", b"4", b"later"),), Stored(own, 2, Position(2, 8))), lambda _: None)
    storage.close()
    again = ReplicaStorage.open(tmp_path, soon)
    assert again.stored == Stored(own, 2, Position(2, 8))
    assert sorted(again.records()) == [("a", b"2", b"new"), ("b", b"3", b"new"), ("b", b"4", b"later")]
    again.close()


def test_a_host_that_is_lost_with_its_disk_is_continued_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        for name in NAMES[:2]:
            site.start(name)
        await site.until(site.is_mirrored, "the second host has a copy")
        for _ in range(200):
            site.publish()
            await asyncio.sleep(0)
        await site.until(lambda: len(site.acknowledged) > 50, "some are acknowledged")
        # On a busy machine the copy may have been dropped meanwhile: then nobody could go on.
        await site.until(site.is_mirrored, "the second host has a copy still, or again")
        await site.kill("home", is_wiped=True)
        await site.until(lambda: site.primary is not None and site.primary.name == "second", "it goes on there")
        await site.until(lambda: site.publish() and len(site.acknowledged) > 200, "it acknowledges")
        (_, before, instance, _), (_, after, same, _) = site.lives
        assert (before < after, instance == same) == (True, True)
        # The old host comes back empty, and gets everything.
        site.start("home")
        await site.until(site.is_mirrored, "the old host has a copy")
        await site.kill("second", is_wiped=True)
        await site.until(lambda: site.primary is not None and site.primary.name == "home", "it goes on at home")

    run(tmp_path, story)


def test_a_host_that_returns_with_its_disk_discards_its_tail_and_has_the_same_content(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        home = site.start("home")
        site.start("second")
        await site.until(site.is_mirrored, "the second host has a copy")
        site.cuts.add(frozenset(("home", "second")))
        home.service.cut_off()
        for _ in range(5):
            site.publish()
        count = len(site.acknowledged)
        await site.until(lambda: home.store is not None and home.store.pending >= 5, "they wait")
        await site.kill("home")
        await site.until(lambda: site.primary is not None and site.primary.name == "second", "it goes on there")
        assert len(site.acknowledged) == count, "none of them was acknowledged"
        site.cuts.clear()
        home = site.start("home")
        await site.until(site.is_mirrored, "the old host has a copy")
        await site.until(lambda: content(site, "home") == content(site, "second"), "both have the same")
        assert [one.kind for one in home.alarms] == [AlarmKind.TAIL_DISCARDED]

    run(tmp_path, story)


def test_a_restart_without_a_lost_host_needs_no_snapshot_and_a_later_incarnation(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        site.start("home")
        await site.until(lambda: site.publish() and len(site.acknowledged) > 3, "it acknowledges alone")
        await site.kill("home")
        home = site.start("home")
        await site.until(lambda: home.store is not None and not home.store.pending, "it serves again")
        assert home.alarms == []
        assert site.lives[0][0] < site.lives[1][0]
        assert site.lives[0][1] < site.lives[1][1]
        assert (OWN_KIND, b"incarnation", b"%d" % site.lives[1][1]) in content(site, "home")

    run(tmp_path, story, names=("home",))


def test_a_batch_that_needs_a_mirror_waits_for_one_and_later_ones_wait_behind_it(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        home = site.start("home")
        await site.until(lambda: home.store is not None and not home.store.pending, "it serves alone")
        assert home.store is not None
        done: list[str] = []
        home.store.submit({("test.batch", b"a"): b""}, lambda _: done.append("local"))
        home.store.submit({("test.batch", b"b"): b""}, lambda _: done.append("mirrored"), needs_mirror=True)
        home.store.submit({("test.batch", b"c"): b""}, lambda _: done.append("behind"))
        await site.until(lambda: done == ["local"], "the first is done")
        site.start("second")
        await site.until(lambda: len(done) == 3, "all are done")
        assert done == ["local", "mirrored", "behind"]
        assert {key for table, key, _ in content(site, "second") if table == "test.batch"} == {b"a", b"b", b"c"}

    run(tmp_path, story, names=NAMES[:2])


@pytest.mark.parametrize("seed", range(6))
def test_nothing_acknowledged_is_lost_under_faults_and_all_copies_are_equal_at_the_end(
    tmp_path: Path, seed: int
) -> None:
    print(f"seed {seed}")

    async def story(site: Site) -> None:
        luck = site.luck
        for name in NAMES:
            site.start(name)
        for _ in range(400):
            kinds = {"publish": 20, "watch": 4, "kill": 0.5, "start": 1, "cut": 0.3, "heal": 1, "cut off": 0.3, "on": 1}
            match luck.choices(list(kinds), list(kinds.values()))[0]:
                case "publish":
                    site.publish()
                case "watch":
                    site.watch()
                case "kill" if len(site.hosts) == len(NAMES):
                    name = luck.choice(NAMES)
                    primary = site.primary
                    # A storage is wiped only where another of the set is left.
                    value = None if primary is None else primary.driver.replica.replica_set
                    is_wiped = value is not None and len(value.in_sync) > 1 and luck.random() < 0.5
                    await site.kill(name, is_wiped=is_wiped)
                case "start":
                    for name in set(NAMES) - site.hosts.keys():
                        site.start(name)
                case "cut":
                    site.cuts.add(frozenset(luck.sample(NAMES, 2)))
                case "heal":
                    site.cuts.clear()
                case "cut off" if site.hosts:
                    luck.choice(list(site.hosts.values())).service.cut_off()
                case "on":
                    _reconnect(site)
            await asyncio.sleep(luck.choice((0, 0, 0.001, 0.003)))
        site.cuts.clear()
        for name in set(NAMES) - site.hosts.keys():
            site.start(name)
        _reconnect(site)
        await site.until(lambda: site.is_mirrored(3), "all have a copy")
        before = len(site.acknowledged)
        await site.until(lambda: site.publish() and len(site.acknowledged) > before + 3, "it acknowledges")
        await site.until(lambda: len({tuple(content(site, name)) for name in NAMES}) == 1, "all are equal")

    run(tmp_path, story, seed)


def _reconnect(site: Site) -> None:
    for host in site.hosts.values():
        if not host.service.is_connected:
            host.service.reconnect()
