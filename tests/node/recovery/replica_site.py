"""Hosts with a replica of one broker each: real databases, a coordination service in memory, transport in one loop."""

import asyncio
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from overlane.coordination.contract import Create, Event, Request, Transaction
from overlane.coordination.in_memory import InMemoryClient, InMemoryEnsemble
from overlane.core.units import MS
from overlane.node.recovery.replication.replica_driver import ReplicaDriver
from overlane.node.recovery.replication.replicated_store import ReplicatedStore
from overlane.node.recovery.replication.storage import ReplicaStorage
from overlane.node.store.errors import StoreError
from overlane.recovery.events import (
    Alarm,
    Deposed,
    Durable,
    MirrorLost,
    MirrorsWanted,
    PrimaryLost,
    Received,
    ReplicaSettings,
    Serving,
)
from overlane.recovery.replica_set import REPLICAS
from overlane.recovery.replication.frames import PART_BYTES, Frame, decode, encode

BROKER = "seattle"
SETTINGS = ReplicaSettings(
    heartbeat=20 * MS, primary_lease=300 * MS, mirror_lease=400 * MS, sync_max=600 * MS, retry=20 * MS, join_lag_max=8
)


class Host:
    """One process on one disk. `store` is there while it serves."""

    def __init__(self, site: "Site", name: str, *, is_home: bool) -> None:
        self.site, self.name, self.is_home = site, name, is_home
        self.store: ReplicatedStore | None = None
        self.alarms: list[Alarm] = []
        self.lives_ended = 0
        loop = asyncio.get_running_loop()
        self.storage = ReplicaStorage.open(site.folder / name, loop.call_soon_threadsafe, is_synced=False)
        self.driver = ReplicaDriver(BROKER, name, self.storage, SETTINGS, self._ask, self, self, is_home=is_home)
        self.service: InMemoryClient = site.ensemble.connect(self._heard)

    def _ask(self, number: int, request: Request) -> None:
        asyncio.get_running_loop().call_soon(lambda: self.service.ask(number, request))

    def _heard(self, event: Event) -> None:
        self.driver.handle(event)

    # Transport

    def send(self, host: str, frame: Frame) -> None:
        to = self.site.hosts.get(host)
        if to is not None and not self.site.is_cut(self.name, host):
            asyncio.get_running_loop().call_soon(to.driver.handle, Received(self.name, decode(encode(frame))))

    async def send_slowly(self, host: str, frame: Frame) -> bool:
        await asyncio.sleep(0)
        self.send(host, frame)
        return host in self.site.hosts

    def part_bytes(self, host: str) -> int:  # noqa: ARG002
        return PART_BYTES

    # Owner

    def serving(self, effect: Serving) -> None:
        self.store = ReplicatedStore(self.driver, self.storage.records())
        self.site.began(self, effect.epoch)
        self.store.begin(lambda _: None)

    def deposed(self, effect: Deposed) -> None:  # noqa: ARG002
        assert self.store is not None
        self.lives_ended += 1
        self.store.void()
        self.store = None

    def durable(self, effect: Durable) -> None:
        if self.store is not None:
            self.store.durable(effect)

    def alarm(self, effect: Alarm) -> None:
        self.alarms.append(effect)

    def failed(self, error: StoreError) -> None:
        raise AssertionError(error)


class Site:
    def __init__(self, folder: Path, names: tuple[str, ...], luck: random.Random) -> None:
        self.folder, self.names, self.luck = folder, names, luck
        self.ensemble = InMemoryEnsemble()
        self.hosts: dict[str, Host] = {}
        self.cuts: set[frozenset[str]] = set()
        self.acknowledged: set[bytes] = set()
        self.lives: list[tuple[int, int, int, str]] = []
        """Epoch, incarnation and instance of every life of the broker, and its host."""
        self.published = 0
        maker = self.ensemble.connect(lambda _: None)
        maker.ask(1, Transaction((Create(REPLICAS),)))

    def start(self, name: str) -> Host:
        host = self.hosts[name] = Host(self, name, is_home=name == self.names[0])
        for one in self.hosts.values():
            one.driver.handle(MirrorsWanted(frozenset(self.names) - {one.name}))
        return host

    async def kill(self, name: str, *, is_wiped: bool = False) -> None:
        """Its process ends, and others notice it."""
        host = self.hosts.pop(name)
        host.driver.stop()
        host.service.close()
        await asyncio.to_thread(host.storage.close)
        if is_wiped:
            shutil.rmtree(self.folder / name)
        for one in self.hosts.values():
            one.driver.handle(MirrorLost(name))

    def watch(self) -> None:
        """Mirrors notice that the process of their primary has ended."""
        for host in self.hosts.values():
            value = host.driver.replica.replica_set
            if value is None or host.store is not None:
                continue
            at = next(copy.host for copy in value.in_sync if copy.storage == value.primary)
            if at not in self.hosts or self.hosts[at].storage.stored.storage != value.primary:
                host.driver.handle(PrimaryLost(value.epoch, is_dead=True))

    def is_cut(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self.cuts

    def began(self, host: Host, epoch: int) -> None:
        assert host.store is not None
        self.lives.append((epoch, host.store.incarnation, host.store.instance, host.name))
        found = {key for table, key, _ in host.store.replica() if table == "test.batch"}
        lost = self.acknowledged - found
        assert not lost, f"{host.name} serves epoch {epoch} without {len(lost)} acknowledged records"

    def publish(self) -> bool:
        """A turn with a record of its own, at whoever serves."""
        serving = [one for one in self.hosts.values() if one.store is not None]
        if not serving:
            return False
        host = self.luck.choice(serving)
        assert host.store is not None
        self.published += 1
        key = b"%d" % self.published
        epoch = self.lives[-1][0]

        def done(error: object) -> None:
            assert error is None
            assert self.lives[-1][0] == epoch, "an earlier epoch acknowledges"
            self.acknowledged.add(key)

        host.store.submit({("test.batch", key): b"v" * self.luck.randrange(200)}, done)
        return True

    @property
    def primary(self) -> Host | None:
        serving = [one for one in self.hosts.values() if one.store is not None]
        return serving[0] if len(serving) == 1 else None

    def is_mirrored(self, copies: int = 2) -> bool:
        primary = self.primary
        value = None if primary is None else primary.driver.replica.replica_set
        return primary is not None and value is not None and len(value.in_sync) >= copies

    async def until(self, holds: Callable[[], bool], what: str, within_s: float = 60.0) -> None:
        """While mirrors watch."""
        end = asyncio.get_running_loop().time() + within_s
        while not holds():
            assert asyncio.get_running_loop().time() < end, f"not within {within_s:g} s: {what}"
            self.watch()
            await asyncio.sleep(0.005)

    async def end(self) -> None:
        for name in list(self.hosts):
            host = self.hosts.pop(name)
            host.driver.stop()
            await asyncio.to_thread(host.storage.close)
