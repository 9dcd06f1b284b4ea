"""A process with one storage: it runs the replica of one broker, and the broker itself while this host is its primary.

    open the storage -> mirror, until this host is the primary -> assemble the broker from the records -> serve
                     -> another host continues it: end at once, and begin anew as a mirror

The home process of a broker and the process of a mirror are the same but for two things: the home process may create
the first replica set, and it keeps processes for mirrors of other brokers (`children`). That of a backup has no broker
of its own: it does only that.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from time import monotonic_ns

from overlane.adminapi.views import RecoveryView
from overlane.coordination.access import access_of
from overlane.coordination.contract import Answered, Deliver, Event, Request, Service
from overlane.coordination.zookeeper import ZooKeeper
from overlane.network.endpoints import endpoints
from overlane.network.schema import Network
from overlane.node.coordination.closing import close_soon
from overlane.node.coordination.joining import own_host
from overlane.node.coordination.shared_session import SharedSession
from overlane.node.end_signals import heed_end_signals, was_told_to_end
from overlane.node.failures import end_process
from overlane.node.links.overlay import Overlay
from overlane.node.node import Node
from overlane.node.options import Options, Replicated
from overlane.node.recovery.certified import named_in_certificate
from overlane.node.recovery.children import DEPOSED, Children
from overlane.node.recovery.host_options import HostOptions, host_options
from overlane.node.recovery.host_view import recovery_view, why_waiting
from overlane.node.recovery.hosts.directory import HostDirectory
from overlane.node.recovery.hosts.distances import Distances
from overlane.node.recovery.hosts.lines import Lines
from overlane.node.recovery.hosts.measuring import Measuring
from overlane.node.recovery.hosts.own_endpoint import OwnEndpoint
from overlane.node.recovery.hosts.placing import Placing, wanted_here
from overlane.node.recovery.hosts.primary_watch import PrimaryWatch
from overlane.node.recovery.replication.replica_driver import ReplicaDriver
from overlane.node.recovery.replication.replicated_store import ReplicatedStore
from overlane.node.recovery.replication.replication import ReplicaIdentity, Replication
from overlane.node.recovery.replication.storage import ReplicaStorage
from overlane.node.recovery.takeover_hook import Taken, former_host, run_hook
from overlane.node.recovery.waiting_page import WaitingPage
from overlane.node.security.tls import link_contexts
from overlane.node.store.errors import StoreError
from overlane.pubsub.limits import NONE
from overlane.recovery.events import Alarm, Deposed, Durable, Serving
from overlane.recovery.hosts.host_records import EndpointRecord, HostRecord, encode_record, endpoint_name
from overlane.secret_file import read_token

LIVES_MAX = 4
"""How often a broker begins anew because others know a later life of it: a liar must not keep it busy."""
LOOK_S = 0.2
"""How often is looked whether other hosts should have copies; changes in ZooKeeper are looked at at once."""
SHOWN_AFTER_S = 1.0
"""How long a start may take before the admin API tells why the broker waits."""

log = logging.getLogger("overlane.recovery")

READY, HOSTED = "ready", "hosted"
DIRECTORY, REPLICA = "directory", "replica"
Live = Callable[[Node, str], Awaitable[None]]
"""Starts a node, prints the word and its addresses, and runs it to its end."""


TellWaiting = Callable[[str, str], None]
"""Called with the name of a host whose broker another host serves, and why it waits: it does what it has to do."""


def hosting(options: Options, network: Network, hosted: str, live: Live, tell_waiting: TellWaiting) -> "Hosting":
    """ConfigError or Unavailable. `hosted`: see `host_options`."""
    return Hosting(host_options(options, network, hosted), live, tell_waiting)


class Hosting:
    """The owner of the replica's driver."""

    def __init__(self, options: HostOptions, live: Live, tell_waiting: TellWaiting) -> None:
        self._options = options
        self._live = live
        self._tell_waiting = tell_waiting
        self._loop = asyncio.get_running_loop()
        self._ending = asyncio.Event()
        self._serving = asyncio.Event()
        self._epoch = 0
        self._former_host = ""
        """Which has served the broker before this one; empty where that is not known."""
        self._store: ReplicatedStore | None = None
        self._node: Node | None = None
        self._alarms: Counter[str] = Counter()
        self._unwritten: StoreError | None = None
        coordination, data = options.network.coordination, options.broker.data
        assert coordination is not None
        self._access = access_of(coordination, data.parent if data is not None else None)
        security = options.network.security
        secret = read_token(security.overlay_secret) if security.overlay_secret is not None else None
        identity = ReplicaIdentity(options.name, options.host, secret, security.overlay_open, link_contexts(security))
        self._replication = Replication(identity, options.settings.log_bytes_max)
        self._directory = HostDirectory(options.domain)
        self._directory.on_change = self._look
        self._children = Children(options.command_of_mirror)
        self._lines = Lines(options, self._directory, self._replication, self._overlay)
        self._driver: ReplicaDriver | None = None
        self._placing: Placing | None = None
        self._distances: Distances | None = None
        self._watch: PrimaryWatch | None = None
        self._may_continue = named_in_certificate(options)
        self._measuring: Measuring | None = None
        self._session: SharedSession | None = None
        """With ZooKeeper: of the directory, the replica, and the broker while it runs here."""
        self._asking: dict[str, Service] = {}
        """The parts of the session."""
        self._endpoint: OwnEndpoint | None = None

    # Life

    async def run(self) -> None:
        """Until the end is requested. ConfigError, StoreError or Unavailable."""
        options = self._options
        heed_end_signals(self._loop, self.end_soon)
        # A broker that serves reads its file again. One that waits does so when it begins to serve.
        self._loop.add_signal_handler(signal.SIGHUP, lambda: None)
        if options.has_broker:
            self._open_replica()
        address = await self._replication.listen(endpoints(options.network, options.host).overlay.host)
        self._endpoint = OwnEndpoint(
            address, lambda: own_host(self._access.hosts), socket.gethostname(), self._announce_endpoint
        )
        if options.is_home:
            self._tell_score(1.0)
            self._measuring = Measuring(options.network.recovery.scoring, self._lines.rates_bps, self._tell_score)
        session = self._session = SharedSession(lambda deliver: ZooKeeper(self._access, deliver))
        # The directory first: it makes the parents of what the replica reads and writes.
        self._asking = {DIRECTORY: session.part(self._directory_heard), REPLICA: session.part(self._replica_heard)}
        looking = self._loop.create_task(self._look_always())
        try:
            await self._run_broker()
        finally:
            looking.cancel()
            await self._end()
        if self._unwritten is not None:
            raise self._unwritten

    def _announce_endpoint(self, address: str) -> None:
        name = endpoint_name(self._options.name, self._options.host)
        self._directory.announce_endpoint(name, encode_record(EndpointRecord(address)))
        if self._watch is not None:
            self._watch.moved()

    def _open_replica(self) -> None:
        options = self._options
        limit = options.network.limits.store_bytes
        storage = ReplicaStorage.open(
            options.data,
            self._loop.call_soon_threadsafe,
            self._store_changed,
            bytes_max=None if limit == NONE else limit,
            is_synced=options.broker.is_synced,
        )
        driver = self._driver = ReplicaDriver(
            options.name,
            options.host,
            storage,
            options.settings,
            lambda number, request: self._ask(REPLICA, number, request),
            self._replication,
            self,
            is_home=options.is_home,
        )
        self._replication.on_event = driver.handle
        self._distances = Distances(self._replication, self._look)
        self._placing = Placing(options, self._directory, driver.replica, driver.handle, self._distances, monotonic_ns)
        self._watch = PrimaryWatch(driver, self._directory, self._replication, options.watch_settings)
        self._replication.on_sign_of_life = self._watch.heard

    async def _run_broker(self) -> None:
        incarnation_min: int | None = 0
        for _ in range(LIVES_MAX):
            await self._wait_as_mirror()
            if self._ending.is_set() or incarnation_min is None:
                return
            node = self._node = await self._begin(incarnation_min)
            if node is None:
                return
            hook = self._loop.create_task(self._tell_taken(node, self._former_host))
            await self._live(node, READY if self._options.is_home else HOSTED)
            hook.cancel()
            self._node, self._former_host = None, self._options.host
            incarnation_min, self._unwritten = node.begins_anew_with, node.unwritten

    async def _tell_taken(self, node: Node, former: str) -> None:
        """Run the operator's command where the broker is at other addresses than before."""
        command, options = self._options.network.recovery.on_takeover, self._options
        if not command or (options.is_home and former in ("", options.host)):
            return
        await node.until_serving()
        at = node.endpoints
        addresses = {**at.listeners, "overlay": at.overlay, "admin": at.admin}
        shown = {kind: str(address) for kind, address in addresses.items()}
        await run_hook(command, Taken(options.name, self._epoch, options.host, former, shown))

    async def _wait_as_mirror(self) -> None:
        """Until this host is the primary, or the end."""
        page, has_told = None, False
        try:
            while not await self._first_of(self._serving, self._ending, within_s=SHOWN_AFTER_S):
                if page is None and self._options.is_home:
                    page = WaitingPage(
                        endpoints(self._options.network, self._options.host).admin, lambda: why_waiting(self._driver)
                    )
                    await page.start()
                if not has_told and self._is_mirror():
                    has_told = True
                    # All that is loaded stays. A broker that begins to serve collects garbage, and clients wait for it.
                    gc.collect()
                    gc.freeze()
                    log.info("%s waits: %s", self._options.name, why_waiting(self._driver))
                    if self._options.is_home:
                        self._tell_waiting(self._options.name, why_waiting(self._driver))
        finally:
            if page is not None:
                await page.stop()

    async def _first_of(self, *events: asyncio.Event, within_s: float | None = None) -> bool:
        """Whether one of them was set within the time."""
        waits = [self._loop.create_task(one.wait()) for one in events]
        done, _ = await asyncio.wait(waits, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        for one in waits:
            one.cancel()
        return bool(done)

    def _is_mirror(self) -> bool:
        """Whether it is known that another host serves the broker, or there is none here."""
        if self._driver is None:
            return self._directory.is_complete
        value = self._driver.replica.replica_set
        return value is not None and value.primary != self._driver.storage.stored.storage

    async def _begin(self, incarnation_min: int) -> Node | None:
        """The broker from the records, under an incarnation that is durable; None if the end comes before that."""
        driver = self._driver
        assert driver is not None
        records = await self._loop.run_in_executor(None, driver.storage.records)
        store = self._store = ReplicatedStore(driver, records, incarnation_min)
        begun = asyncio.Event()
        store.begin(lambda _: begun.set())
        await self._first_of(begun, self._ending)
        if self._ending.is_set():
            return None
        options, network = self._options.configuration()
        assert self._placing is not None
        replicated = Replicated(
            store, self._epoch, self._options.host, self._view, self._placing.planned, self._broker_session
        )
        return Node(options, network, replicated=replicated)

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
        self._lines.end()
        if self._endpoint is not None:
            self._endpoint.close()
        if self._measuring is not None:
            self._measuring.end()
        if self._watch is not None:
            self._watch.end()
        if self._distances is not None:
            self._distances.end()
        if self._driver is not None:
            self._driver.stop()
        self._replication.close()
        if self._driver is not None:
            await self._loop.run_in_executor(None, self._driver.storage.close)
        if self._session is not None:
            await close_soon(self._session)

    # replica_driver.Owner

    def serving(self, effect: Serving) -> None:
        self._epoch = effect.epoch
        self._serving.set()
        self._look()

    def deposed(self, effect: Deposed) -> None:  # noqa: ARG002
        """At once: nothing more may be acknowledged, delivered or written."""
        if self._store is not None:
            self._store.void()
        logging.shutdown()
        if was_told_to_end() or self._ending.is_set() or (self._node is not None and self._node.is_ending):
            os._exit(0)  # it was asked to end, and must not begin anew
        self._options.begin_anew(DEPOSED)

    def durable(self, effect: Durable) -> None:
        if self._store is not None:
            self._store.durable(effect)

    def failed(self, error: StoreError) -> None:
        """As a broker whose store has stopped: the process ends, and nothing was acknowledged that is not on disk."""
        log.error("the storage of %s has stopped: %s", self._options.name, error)
        end_process()

    def alarm(self, effect: Alarm) -> None:
        self._alarms[effect.kind.name.lower()] += 1
        self._tell_mirrors()

    def _view(self) -> RecoveryView:
        assert self._driver is not None
        return recovery_view(self._driver, self._epoch, self._alarms, self._replication)

    def _store_changed(self, error: StoreError | None) -> None:
        if self._node is not None and self._node.is_serving:
            self._node.store_changed(error)

    def _overlay(self) -> Overlay | None:
        node = self._node
        return node.overlay if node is not None and node.is_serving else None

    def _tell_score(self, score: float) -> None:
        record = HostRecord(self._options.described.role, score, self._may_continue)
        self._directory.announce_host(self._options.host, encode_record(record))

    # ZooKeeper

    def _broker_session(self, deliver: Deliver) -> Service:
        """For the broker that runs here: it registers as soon as it serves."""
        assert self._session is not None
        return self._session.part(deliver)

    def _ask(self, part: str, number: int, request: Request) -> None:
        if part in self._asking:
            self._asking[part].ask(number, request)

    def _directory_heard(self, event: Event) -> None:
        self._directory.handle(event, monotonic_ns())
        self._ask_for_directory()

    def _replica_heard(self, event: Event) -> None:
        if self._driver is None:
            return
        if isinstance(event, Answered):
            self._note_former_host()
        self._driver.handle(event)
        self._ask_for_directory()

    def _ask_for_directory(self) -> None:
        for number, request in self._directory.requests.take():
            self._ask(DIRECTORY, number, request)

    async def _look_always(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self._look()

    def _tell_mirrors(self) -> None:
        """The broker refuses what needs a mirror while there is none."""
        if self._driver is not None and self._node is not None and self._node.is_serving:
            value = self._driver.replica.replica_set
            self._node.driver.mirrors_changed(value is not None and bool(value.mirrors))

    def _note_former_host(self) -> None:
        value = None if self._driver is None else self._driver.replica.replica_set
        if value is not None and not self._serving.is_set():
            self._former_host = former_host(self._former_host, value.primary_host, self._options.host)

    def _look(self) -> None:
        self._note_former_host()
        self._tell_mirrors()
        if self._placing is not None:
            self._placing.look(self._epoch)
        if self._options.is_home and self._directory.is_complete:
            self._children.want(wanted_here(self._options, self._directory, self._access.hosts))
        self._directory.tick(monotonic_ns())
        self._ask_for_directory()
