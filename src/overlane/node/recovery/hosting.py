"""A process with one storage: it runs the replica of one broker, and the broker itself while this host is its primary.

    open the storage -> mirror, until this host is the primary -> assemble the broker from the records -> serve
                     -> another host continues it: end at once, and begin anew as a mirror

The home process of a broker and the process of a mirror are the same but for two things: the home process may create
the first replica set, and it keeps processes for mirrors of other brokers (`children`). That of a backup has no broker
of its own: it does only that.

The primary publishes which hosts should have a copy; the hosts follow.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic_ns
from typing import NoReturn

import msgspec
from msgspec import structs

from overlane.coordination.access import access_of
from overlane.coordination.contract import Answered, Event, Request
from overlane.coordination.zookeeper import ZooKeeper
from overlane.core.units import SECOND
from overlane.errors import ConfigError
from overlane.network.endpoints import endpoints
from overlane.network.reading import read_network
from overlane.network.schema import Broker, Coordination, Network
from overlane.node.links.overlay import Overlay
from overlane.node.node import Node, Options
from overlane.node.recovery.children import DEPOSED, Children
from overlane.node.recovery.directory import Directory
from overlane.node.recovery.heard import HeardBrokers
from overlane.node.recovery.hosted import Hosted, hosted_broker, with_broker
from overlane.node.recovery.primary_watch import PrimaryWatch
from overlane.node.recovery.replica_driver import ReplicaDriver
from overlane.node.recovery.replicated_store import ReplicatedStore
from overlane.node.recovery.replication import Identity, Replication
from overlane.node.recovery.storage import ReplicaStorage
from overlane.node.recovery.waiting_page import WaitingPage
from overlane.node.store.errors import StoreError
from overlane.pubsub.limits import NONE
from overlane.recovery.events import Alarm, Deposed, Durable, MirrorsWanted, Serving
from overlane.recovery.events import Settings as ReplicaSettings
from overlane.recovery.host_records import (
    EndpointRecord,
    HostRecord,
    MirrorsRecord,
    decode_record,
    encode_record,
    endpoint_name,
)
from overlane.recovery.placement import choose_mirrors
from overlane.recovery.watching import WatchSettings
from overlane.secret_file import read_token

LIVES_MAX = 4
"""How often a broker begins anew because others know a later life of it: a liar must not keep it busy."""
PLACE_EVERY_S = 0.2
SHOWN_AFTER_S = 1.0
"""How long a start may take before the admin API tells why the broker waits."""
ZOOKEEPER_S = 2.0
"""How long the end waits for ZooKeeper to be told."""

log = logging.getLogger("overlane.recovery")

Live = Callable[[Node, str], Awaitable[None]]
"""Starts a node, prints the word and its addresses, and runs it to its end."""
READY, HOSTED = "ready", "hosted"


@dataclass(frozen=True, slots=True)
class HostOptions:
    """`broker`: the options of the broker of this host."""

    broker: Options
    network: Network
    hosted: Hosted | None = None
    """Which mirror this process is, if it is one."""

    @property
    def host(self) -> str:
        return self.broker.name

    @property
    def name(self) -> str:
        """Of the broker whose replica runs here."""
        return self.host if self.hosted is None else self.hosted.broker

    @property
    def data(self) -> Path:
        assert self.broker.data is not None
        return self.broker.data if self.hosted is None else self.broker.data / "mirrors" / self.hosted.broker

    @property
    def described(self) -> Broker:
        """The broker of this host."""
        return next(one for one in self.network.brokers if one.name == self.host)

    @property
    def domain(self) -> str:
        return self.described.domain or self.host


class Hosting:
    """The owner of the replica's driver."""

    def __init__(self, options: HostOptions, live: Live) -> None:
        self._options = options
        self._live = live
        self._loop = asyncio.get_running_loop()
        self._ending = asyncio.Event()
        self._serving = asyncio.Event()
        self._epoch = 0
        self._store: ReplicatedStore | None = None
        self._node: Node | None = None
        self._wanted: frozenset[str] | None = None
        recovery, coordination = options.network.recovery, options.network.coordination
        assert coordination is not None
        data = options.broker.data
        self._access = access_of(coordination, data.parent if data is not None else None)
        silence = recovery.silence_ns
        self._settings = ReplicaSettings(
            heartbeat=silence // 3,
            primary_lease=2 * silence // 3,
            mirror_lease=silence,
            sync_max=max(2 * SECOND, 2 * silence),
        )
        self._watch_settings = WatchSettings(silence=silence, unconfirmed=10 * silence // 3)
        security = options.network.security
        secret = read_token(security.overlay_secret) if security.overlay_secret is not None else None
        identity = Identity(options.name, options.host, secret, security.overlay_open)
        self.replication = Replication(identity, self._settings.log_bytes_max)
        self.directory = Directory(options.domain)
        self.directory.on_change = self._directory_changed
        self._children = Children(self._child_command)
        self._heard_brokers = HeardBrokers(self._overlay)
        self.replication.heard_ago_ns = self._heard_brokers.ago_ns
        self.driver: ReplicaDriver | None = None
        self._watch: PrimaryWatch | None = None
        self._service: ZooKeeper | None = None
        self._unwritten: StoreError | None = None

    def _overlay(self) -> Overlay | None:
        node = self._node
        return node.overlay if node is not None and node.is_serving else None

    @property
    def _has_broker(self) -> bool:
        return self._options.hosted is not None or self._options.described.role != "backup"

    # Life

    async def run(self) -> None:
        """Until the end is requested. ConfigError, StoreError or Unavailable."""
        options = self._options
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self.end_soon)
        at = endpoints(options.network, options.host)
        if self._has_broker:
            limit = options.network.limits.store_bytes
            storage = ReplicaStorage.open(
                options.data,
                self._loop.call_soon_threadsafe,
                self._store_changed,
                bytes_max=None if limit == NONE else limit,
                is_synced=options.broker.is_synced,
            )
            self.driver = ReplicaDriver(
                options.name,
                options.host,
                storage,
                self._settings,
                lambda number, request: self._ask(2 * number, request),
                self.replication,
                self,
                is_home=options.hosted is None,
            )
            self.replication.on_event = self.driver.handle
            self._watch = PrimaryWatch(self.driver, self.directory, self.replication, self._watch_settings)
            self.replication.on_sign_of_life = self._watch.heard
        address = await self.replication.listen(at.overlay.host)
        reachable = _reachable(str(address), self._access.hosts)
        self.directory.announce_endpoint(
            endpoint_name(options.name, options.host), encode_record(EndpointRecord(reachable))
        )
        if options.hosted is None:
            self.directory.announce_host(options.host, encode_record(HostRecord(options.described.role)))
        self._service = ZooKeeper(self._access, self._heard)
        placing = self._loop.create_task(self._place_always())
        try:
            await self._run_broker()
        finally:
            placing.cancel()
            await self._end()
        if self._unwritten is not None:
            raise self._unwritten

    async def _run_broker(self) -> None:
        incarnation_min: int | None = 0
        for _ in range(LIVES_MAX):
            await self._wait_as_mirror()
            if self._ending.is_set() or incarnation_min is None:
                return
            node = await self._begin(incarnation_min)
            self._node = node
            await self._live(node, READY if self._options.hosted is None else HOSTED)
            self._unwritten = node.unwritten
            self._node = None
            incarnation_min = node.begins_anew_with

    async def _wait_as_mirror(self) -> None:
        """Until this host is the primary, or the end."""
        if self._serving.is_set() or self._ending.is_set():
            return
        options = self._options
        page = None
        waits = [self._loop.create_task(one.wait()) for one in (self._serving, self._ending)]
        try:
            done, _ = await asyncio.wait(waits, timeout=SHOWN_AFTER_S, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                log.info("waiting: %s", self.why_waiting())
                if options.hosted is None:
                    page = WaitingPage(endpoints(options.network, options.host).admin, self.why_waiting)
                    await page.start()
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
            if page is not None:
                await page.stop()

    def why_waiting(self) -> str:
        """Why the broker of this host does not serve."""
        if self.driver is None:
            return "this is a backup: it has no broker of its own"
        value = self.driver.replica.replica_set
        if value is None:
            return "ZooKeeper has not told yet which host serves this broker"
        host = next(copy.host for copy in value.in_sync if copy.storage == value.primary)
        if host == self._options.host and value.primary == self.driver.storage.stored.storage:
            return "the broker starts"
        is_known = value.has(self.driver.storage.stored.storage)
        return f"{host} serves this broker; this host {'has' if is_known else 'is getting'} a copy"

    async def _begin(self, incarnation_min: int) -> Node:
        """The broker from the records, under an incarnation that is durable."""
        driver = self.driver
        assert driver is not None
        records = await self._loop.run_in_executor(None, driver.storage.records)
        store = self._store = ReplicatedStore(driver, records, incarnation_min)
        begun = asyncio.Event()
        store.begin(lambda _: begun.set())
        await begun.wait()
        broker, network = self._configuration()
        node = Node(broker, network, store=store, epoch=self._epoch, host=self._options.host)
        if self._ending.is_set():
            node.end_soon()
        return node

    def _configuration(self) -> tuple[Options, Network]:
        """Of the broker that runs in this process."""
        options, hosted = self._options, self._options.hosted
        network = options.network
        if hosted is None:
            return options.broker, network
        if options.broker.own is None:
            try:
                fresh: Network = read_network(options.broker.file)
                network = structs.replace(fresh, coordination=network.coordination)
            except ConfigError as error:
                log.error("the configuration of before holds: %s", error)
        described = hosted_broker(network, options.host, hosted)
        own = options.broker.own
        if own is not None:
            own = replace(
                own,
                name=hosted.broker,
                role=None,
                domain=None,
                listeners=None,
                overlay=None,
                admin=None,
                broker=described,
            )
        broker = replace(options.broker, name=hosted.broker, data=options.data, own=own, telemetry=None)
        return broker, with_broker(network, described)

    def end_soon(self) -> None:
        self._ending.set()
        if self._node is not None:
            self._node.end_soon()

    def leave(self) -> None:
        """Leave the overlay for good, and end."""
        if self._node is not None:
            self._node.leave()
        else:
            self.end_soon()

    async def _end(self) -> None:
        await self._children.end()
        if self._watch is not None:
            self._watch.end()
        self._heard_brokers.end()
        if self.driver is not None:
            self.driver.stop()
        self.replication.close()
        if self.driver is not None:
            await self._loop.run_in_executor(None, self.driver.storage.close)
        if self._service is not None:
            closing = self._loop.run_in_executor(None, self._service.close)
            await asyncio.wait([closing], timeout=ZOOKEEPER_S)

    # replica_driver.Owner

    def serving(self, effect: Serving) -> None:
        self._epoch = effect.epoch
        self._serving.set()
        self._place()

    def deposed(self, effect: Deposed) -> None:  # noqa: ARG002
        """At once: nothing more may be acknowledged, delivered or written."""
        if self._store is not None:
            self._store.void()
        begin_anew(is_home=self._options.hosted is None)

    def durable(self, effect: Durable) -> None:
        if self._store is not None:
            self._store.durable(effect)

    def alarm(self, effect: Alarm) -> None: ...

    def _store_changed(self, error: StoreError | None) -> None:
        if self._node is not None and self._node.is_serving:
            self._node.store_changed(error)

    # ZooKeeper

    def _ask(self, number: int, request: Request) -> None:
        if self._service is not None:
            self._service.ask(number, request)

    def _heard(self, event: Event) -> None:
        """Even numbers are those of the replica, odd ones those of the directory."""
        if isinstance(event, Answered):
            number, is_of_directory = divmod(event.request, 2)
            own = Answered(number, event.answer)
            if is_of_directory:
                self.directory.handle(own, monotonic_ns())
            elif self.driver is not None:
                self.driver.handle(own)
        else:
            # The directory first: it makes the parents of what the replica reads and writes.
            self.directory.handle(event, monotonic_ns())
            self._ask_for_directory()
            if self.driver is not None:
                self.driver.handle(event)
        self._ask_for_directory()

    def _ask_for_directory(self) -> None:
        for number, request in self.directory.requests.take():
            self._ask(2 * number + 1, request)

    # Mirrors

    async def _place_always(self) -> None:
        while True:
            await asyncio.sleep(PLACE_EVERY_S)
            self.directory.tick(monotonic_ns())
            self._ask_for_directory()
            self._place()

    def _directory_changed(self) -> None:
        self._place()
        if self._options.hosted is None:
            self._children.want(self._wanted_here())

    def _place(self) -> None:
        """Choose the hosts that should have a copy, while this one is the primary."""
        driver, options = self.driver, self._options
        if driver is None or not driver.replica.is_primary or not self.directory.is_complete:
            return
        value = driver.replica.replica_set
        present = {copy.host for copy in value.in_sync} if value is not None else set()
        count = options.network.recovery.mirrors
        present |= self._wanted or set()
        hosts = choose_mirrors(options.name, count, self.directory.hosts, present, options.host)
        if frozenset(hosts) == self._wanted and not self._is_epoch_new():
            return
        self._wanted = frozenset(hosts)
        self._published_epoch = self._epoch
        broker = self._described_broker()
        record = MirrorsRecord(
            self._epoch, options.host, hosts, broker.role, tuple(sorted(broker.listeners)) or ("mqtt",)
        )
        self.directory.publish_mirrors(options.name, encode_record(record), self._may_replace)
        driver.handle(MirrorsWanted(self._wanted))

    _published_epoch = 0

    def _is_epoch_new(self) -> bool:
        return self._published_epoch != self._epoch

    def _may_replace(self, data: bytes) -> bool:
        try:
            return decode_record(self._options.name, data, MirrorsRecord).epoch <= self._epoch
        except Exception:
            return True

    def _described_broker(self) -> Broker:
        hosted = self._options.hosted
        if hosted is None:
            return self._options.described
        nowhere = endpoints(self._options.network, self._options.host).mqtt
        return Broker(
            name=hosted.broker,
            role=hosted.role,
            domain=hosted.domain,
            listeners=dict.fromkeys(hosted.listeners, nowhere),
        )

    def _wanted_here(self) -> frozenset[Hosted]:
        options = self._options
        return frozenset(
            Hosted(name, record.role, options.domain, record.listeners, self._access.hosts)
            for name, record in self.directory.mirrors.items()
            if name != options.host and (options.host in record.hosts or options.host == record.primary)
        )

    def _child_command(self, hosted: Hosted) -> list[str]:
        words = [word for word in sys.argv[1:] if word != "--supervised"]
        text = msgspec.json.encode(hosted).decode()
        return [sys.executable, "-m", "overlane", *words, "--supervised", "--hosted", text]


def hosting(options: Options, network: Network, hosted: str, live: Live) -> Hosting:
    """`hosted`: what a mirror's process was told by its host; empty: this is the host."""
    if not hosted:
        return Hosting(HostOptions(options, network), live)
    described = msgspec.json.decode(hosted, type=Hosted)
    return Hosting(HostOptions(options, with_zookeeper(network, described), described), live)


def with_zookeeper(network: Network, hosted: Hosted) -> Network:
    """The addresses that the parent has resolved: an embedded ensemble is found by the folder of its data."""
    assert network.coordination is not None
    coordination: Coordination = structs.replace(network.coordination, zookeeper=hosted.zookeeper)
    replaced: Network = structs.replace(network, coordination=coordination)
    return replaced


def begin_anew(*, is_home: bool) -> NoReturn:
    """End this process without writing anything more, and start it again: by its host, or by itself."""
    logging.shutdown()
    if is_home:
        os.execv(sys.executable, [sys.executable, "-m", "overlane", *sys.argv[1:]])
    os._exit(DEPOSED)


def _reachable(address: str, hosts: str) -> str:
    from overlane.node.coordination.joining import own_host

    host, _, port = address.rpartition(":")
    wildcard = host.strip("[]") in ("0.0.0.0", "::", "")
    return f"{own_host(hosts)}:{port}" if wildcard else address
