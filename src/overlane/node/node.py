"""A broker that runs: its store, its state machines, its listeners, from start to a clean end.

    open the store -> recover core and server from its records -> listen -> serve

SIGTERM or SIGINT: clients are told to use another server, accepted messages are written to the disk and sent, then the
process ends. SIGHUP: the network file is read again; everything that can change while running changes; an invalid file
changes nothing.
"""

import asyncio
import logging
import secrets
import signal
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import structs

from overlane.core.broker import OverlayBroker
from overlane.core.gossip.incarnation_proofs import BrokerIdentity
from overlane.errors import ConfigError, Unavailable
from overlane.membership.membership import BadMembership, Membership
from overlane.network.classes import broker_config, mirrored_topics, policies, qos_table
from overlane.network.endpoints import Endpoints, endpoints
from overlane.network.members import members_of, of_broker
from overlane.network.reading import read_network
from overlane.network.schema import Network, Security
from overlane.network.sections.mediation import border_rules_of, mediation_of
from overlane.network.sections.names import names_of
from overlane.network.sections.reservations import reservation_settings
from overlane.node.admin.service import AdminService
from overlane.node.clients.client_listeners import ClientListeners, PreparedListener, abandon, renew
from overlane.node.clock import Clock
from overlane.node.coordination.own_network import unconfigured
from overlane.node.driver import Driver
from overlane.node.end_signals import heed_end_signals
from overlane.node.failures import unhandled
from overlane.node.links.multipath.uplinks import OwnUplinks, is_literal
from overlane.node.links.overlay import Overlay
from overlane.node.open_files import are_too_few, connections_possible, raise_file_limit
from overlane.node.options import Options, Replicated
from overlane.node.reconfiguring import NO_BUNDLES, AssignedBundles, Reconfiguring
from overlane.node.reloading import ReloadedConfig, needs_restart, reload_config, with_fixed_part
from overlane.node.security.logins import LoginFiles, Logins, open_logins
from overlane.node.security.open_secrets import open_secrets
from overlane.node.security.tls import LinkContexts, link_contexts, renew_link_contexts
from overlane.node.store.durable import Store, StoreError
from overlane.node.store.none import NoStore
from overlane.node.store.timed import TimedStore
from overlane.node.suspect_file import SuspectFile
from overlane.node.telemetry import recording_of
from overlane.pubsub.access import Access
from overlane.pubsub.contract.questions import CallFunction
from overlane.pubsub.limits import NONE
from overlane.pubsub.state import Settings
from overlane.secret_file import read_token
from overlane.turn.assembly import assemble
from overlane.turn.reconfigure import RestartNeeded

if TYPE_CHECKING:
    from overlane.node.channels.reviewing import ChannelReviewing
    from overlane.node.coordination.joining import Coordinating
    from overlane.node.mediation.function_calls import FunctionCalls
    from overlane.node.otlp.reporting import Reporting

DRAIN_S = 5.0
"""How long a broker that ends waits for its clients to read DISCONNECT."""

log = logging.getLogger("overlane.node")


class Node:
    def __init__(
        self,
        options: Options,
        network: Network,
        incarnation_min: int = 0,
        *,
        replicated: "Replicated | None" = None,
    ) -> None:
        """ConfigError when the file asks for what cannot be. It lives under no lesser incarnation than that.

        `replicated`: where its records are on several hosts.
        """
        self._incarnation_min = incarnation_min
        self.replicated = replicated
        self.begins_anew_with: int | None = None
        """The incarnation with which another node is to take this one's place, once it has ended."""
        self.options = options
        self.network = network = of_broker(network, options.name)
        self._started_with = network
        self.endpoints: Endpoints = endpoints(network, options.name, str(options.file))
        self.unwritten: StoreError | None = None
        """What the store could not write before the end."""
        self._listeners = ClientListeners()
        self._serving = asyncio.Event()
        self._ending = asyncio.Event()
        self._one_reload = asyncio.Lock()
        self._reloads: set[asyncio.Task[None]] = set()
        self.coordinating: Coordinating | None = None
        self.overlay: Overlay
        self._function_calls: FunctionCalls | None = None
        """Where a rule of mediation has called a function."""
        self._reporting: Reporting | None = None
        self._channels: ChannelReviewing | None = None

    @property
    def is_serving(self) -> bool:
        return self._serving.is_set()

    async def until_serving(self) -> None:
        await self._serving.wait()

    @property
    def is_ending(self) -> bool:
        """Whether it was asked to end, for good."""
        return self._ending.is_set() and self.begins_anew_with is None

    # Life

    async def start(self) -> None:
        """Serve; ConfigError or Unavailable when it cannot."""
        self._files_max = raise_file_limit()
        loop = asyncio.get_running_loop()
        self._heed_signals(loop)
        _warn_of_open_secrets(self.network.security)
        self.clock = Clock()
        self.store = self._open_store(loop)
        settings = self._settings(self.network)
        self._link_tls = link_tls = link_contexts(self.network.security)
        turn = assemble(
            broker_config(self.network, self.options.name),
            settings,
            self.store.incarnation,
            self.store.records(),
            self.clock.now(),
            _fresh_id,
            is_alone=not self.network.links and self.network.coordination is None,
            identity=self._link_identity(),
            instance=self.store.instance,
        )
        server, core = turn.server, turn.core

        def make_links(driver: Driver) -> Overlay:
            self.overlay = self._overlay(core, driver, link_tls)
            return self.overlay

        self.driver = Driver(
            loop, self.clock, turn, self.store, open_logins(self.network.security), make_links, self._begin_anew
        )
        if self.options.data is not None:
            suspects = SuspectFile(self.options.data)
            server.state.suspects = suspects.refused()
            self.driver.failures.remember = suspects.note
        loop.set_exception_handler(lambda _, context: unhandled(self.driver.failures, context))
        self.driver.call_function = self._call_function
        self._reconfiguring = Reconfiguring(self.driver, settings)
        self.recording = recording_of(
            self.options.file, self.options.data, self.options.telemetry, self.network, server, core, self.overlay
        )
        if self.recording is not None:
            self.driver.observing.observers.append(self.recording)
        self.admin_service = AdminService(
            self.options.name,
            self.network,
            self.endpoints,
            self.driver,
            self.store,
            self.options.data,
            self.overlay,
            self._reconfiguring,
            self.options.is_chaotic,
        )
        if self.network.otlp.endpoint is not None:
            # Only where it is needed: a broker without it traces nothing, and its messages take no other way.
            from overlane.node.admin.metrics import Metrics
            from overlane.node.otlp.reporting import Reporting

            families = Metrics(self.admin_service.inspection).families
            self._reporting = Reporting(
                self.options.name, self.network.otlp.endpoint, self.network.otlp, self.driver, families
            )
            self._reporting.start()
        await self.admin_service.start()
        self.driver.start()
        self.admin_service.follow_plan()
        await self._listeners.open(self.driver, self.network, self.endpoints)
        await self.overlay.listen(self.endpoints.overlay)
        if self.network.coordination is not None:
            # Only where it is needed: a broker of a file alone does without kazoo.
            from overlane.node.coordination.joining import Coordinating

            self.coordinating = Coordinating(self, self.network.coordination)
        self._follow(self.network)
        if self.recording is not None:
            self.recording.start()
        inspection = self.admin_service.inspection
        inspection.closed_listeners = self._listeners.closed
        if self.replicated is not None:
            inspection.recovery = self.replicated.view
            self.admin_service.tell_plans(self.replicated.planned)
        inspection.is_serving = True
        self._serving.set()
        for damaged in self.store.quarantined:
            log.error("quarantined a damaged record: %s %s", damaged.table, damaged.reason)

    async def run(self) -> None:
        """Serve until the end is requested, then shut down."""
        leaving = asyncio.create_task(self._end_when_left())
        await self._ending.wait()
        leaving.cancel()
        await self.end()

    async def _end_when_left(self) -> None:
        await self.admin_service.links.left.wait()
        self.end_soon()

    def _heed_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        """From the first moment on: one that comes while the broker starts is heeded when it serves."""
        heed_end_signals(loop, self.end_soon)
        loop.add_signal_handler(signal.SIGHUP, self.reload)

    def end_soon(self) -> None:
        self.begins_anew_with = None
        self._ending.set()

    def _begin_anew(self, incarnation: int, told_by: str) -> None:
        """Other brokers would not heed this life: end it, and let one follow that they do."""
        if self._ending.is_set():
            return
        told = "%s knows a later incarnation of this broker than %d; restarting as incarnation %d. Was the store lost?"
        log.error(told, told_by, self.store.incarnation, incarnation)
        self.begins_anew_with = incarnation
        self._ending.set()

    def leave(self) -> None:
        """Leave the overlay for good, and end."""
        if self.coordinating is None:
            self.admin_service.links.leave()
            return
        task = asyncio.get_running_loop().create_task(self._give_away_and_leave(self.coordinating))
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def _give_away_and_leave(self, coordinating: "Coordinating") -> None:
        await coordinating.leave()
        self.admin_service.links.leave()

    async def end(self) -> None:
        """Drain: accept no new clients, disconnect all others, write everything."""
        log.info("shutting down")
        if self.coordinating is not None:
            await self.coordinating.leave()
        await self._listeners.close()
        self.driver.server.drain(self.clock.now())
        self.driver.end_turn_soon()
        loop = asyncio.get_running_loop()
        until = loop.time() + DRAIN_S
        while loop.time() < until and not (self.driver.turn.is_quiet and not self.driver.server.state.connections):
            await asyncio.sleep(0.01)
        await self.overlay.end()
        self.driver.stop()
        if self._function_calls is not None:
            await self._function_calls.stop()
        if self.recording is not None:
            await self.recording.stop()
        if self._reporting is not None:
            await self._reporting.stop()
        if self._channels is not None:
            await self._channels.stop()
        self.unwritten = await loop.run_in_executor(None, self.store.close)
        if self.unwritten is not None:
            log.error("%s", self.unwritten)
        if self.driver.logins is not None:
            self.driver.logins.close()
        if self.coordinating is not None:
            await self.coordinating.end()
        await self.admin_service.stop()

    def _call_function(self, question: CallFunction) -> None:
        if self._function_calls is None:
            # Only where it is needed: most brokers have no functions.
            from overlane.node.mediation.function_calls import FunctionCalls

            self._function_calls = FunctionCalls(self.driver)
        self._function_calls.call(question)

    def reload(self) -> None:
        """Take over what may change while running from the network file; refuse it whole if anything is wrong."""
        task = asyncio.get_running_loop().create_task(self._reload())
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)
        task.add_done_callback(lambda done: self.driver.failures.look_at(done, "the network file was half taken over"))

    async def _reload(self) -> None:
        await self._serving.wait()
        async with self._one_reload:
            loop = asyncio.get_running_loop()
            try:
                fresh = await loop.run_in_executor(None, reload_config, self._read_network, self.endpoints)
                logins = self._fresh_logins(fresh)
                renewed = await self._listeners.prepare(fresh.tls)
                self._follow(fresh.network, renewed)
            except (ConfigError, Unavailable, BadMembership, RestartNeeded) as error:
                log.error("configuration unchanged: %s", error)
                return
            found = needs_restart(self.network, fresh.network, self.options.name, self.options.file)
            restarts = bool(found) and self._restarts_for(fresh.network)
            if found and not restarts:
                log.warning("changes that need a restart: %s", ", ".join(found))
            self.network = fresh.network
            self.overlay.multipath.set_uplinks(self._uplinks())
            _warn_of_open_secrets(fresh.network.security)
            if self._link_tls is not None and fresh.network.security.overlay_tls:
                renew_link_contexts(self._link_tls, fresh.network.security)
            self._use_logins(logins, fresh.login_files)
            self.admin_service.reconfigure(fresh.network, fresh.token)
            if self.recording is not None:
                self.recording.reconfigure(fresh.network.telemetry)
            await renew(renewed)
            if self.coordinating is not None:
                self.coordinating.config_taken_up()
            log.info("reloaded %s", self.options.file)
            if restarts and not self._ending.is_set():
                log.info("restarting for the first configuration that was pushed: %s", ", ".join(found))
                self.begins_anew_with = self.store.incarnation + 1
                self._ending.set()

    def _restarts_for(self, network: Network) -> bool:
        """Whether it restarts by itself: it has started before a configuration was pushed, and links that are not
        secure yet must not stay so. A broker in memory has nothing to copy to mirrors: it goes on without."""
        own = self.options.own
        if own is None or (network.recovery.mirrors and self.options.data is None):
            return False
        return self.network == of_broker(unconfigured(own), self.options.name)

    def _read_network(self) -> Network:
        """ConfigError."""
        if self.coordinating is not None and self.options.own is not None:
            return of_broker(self.coordinating.read_network(), self.options.name)
        return of_broker(read_network(self.options.file), self.options.name)

    def _follow(self, network: Network, renewed: Iterable[PreparedListener] = ()) -> None:
        """Make of the file what the broker can take up while it runs; BadMembership, RestartNeeded or ConfigError."""
        membership = members_of(network, is_emulated=self.options.is_emulated)
        bundles = NO_BUNDLES
        try:
            if self.coordinating is not None:
                membership, bundles = self.coordinating.follow(network.routing, membership)
                self.coordinating.follow_items(network)
            settings = self._settings(with_fixed_part(network, self._started_with))
            self._reconfiguring.follow(membership, settings, bundles)
        except (BadMembership, RestartNeeded, ConfigError):
            abandon(renewed)
            raise
        if network.limits.routes and self._channels is None:
            # Only where it is needed: the solver takes memory.
            from overlane.node.channels.reviewing import ChannelReviewing

            self._channels = ChannelReviewing(self.driver)

    def take_up_membership(self, membership: Membership, bundles: AssignedBundles) -> None:
        """A new configuration from the coordination."""
        try:
            self._reconfiguring.follow(membership, None, bundles)
        except (BadMembership, RestartNeeded) as error:
            log.error("the membership in ZooKeeper was rejected: %s", error)

    def _fresh_logins(self, fresh: ReloadedConfig) -> Logins | None:
        """The present logins if they are of the same files; ConfigError if a new one is invalid."""
        present, security = self.driver.logins, fresh.network.security
        return present if present is not None and present.is_for(security) else open_logins(security)

    def _use_logins(self, logins: Logins | None, files: LoginFiles) -> None:
        before, self.driver.logins = self.driver.logins, logins
        if before is not None and before is not logins:
            before.close()
        elif before is not None:
            before.adopt(files)

    # Parts

    def _settings(self, network: Network) -> Settings:
        """As the file has them; with no more connections than there can be open files."""
        limits, possible = network.limits, connections_possible(self._files_max)
        if limits.connections > possible:
            if are_too_few(possible, limits.connections):
                told = "the system allows %d open files; accepting at most %d connections instead of %d"
                log.warning(told, self._files_max, possible, limits.connections)
            limits = structs.replace(limits, connections=possible)
        return Settings(
            limits,
            Access(network.access),
            qos_table(network),
            network.security.anonymous,
            mirrored_topics(network),
            reservation_settings(network, self.options.name),
            mediation_of(network, self.options.name),
            policies(network),
            border_rules_of(network, self.options.name),
            names_of(network, self.options.name),
        )

    def _open_store(self, loop: asyncio.AbstractEventLoop) -> TimedStore:
        if self.replicated is not None:
            return TimedStore(self.replicated.store)
        if self.options.data is None:
            return TimedStore(NoStore(loop.call_soon_threadsafe, self._incarnation_min))
        limit = self.network.limits.store_bytes
        opened = Store.open(
            self.options.data,
            loop.call_soon_threadsafe,
            self.store_changed,
            bytes_max=None if limit == NONE else limit,
            synced=self.options.is_synced,
            incarnation_min=self._incarnation_min,
        )
        return TimedStore(opened)

    def _link_identity(self) -> BrokerIdentity | None:
        security = self.network.security
        if not security.overlay_tls:
            return None
        # Only where it is needed, since it takes as long to load as much of the rest.
        from overlane.node.security.incarnation_proof import CertifiedIdentity

        return CertifiedIdentity(self.options.name, self.store.incarnation, security)

    def _overlay(self, core: OverlayBroker, driver: Driver, link_tls: LinkContexts | None) -> Overlay:
        security = self.network.security
        server_tls, client_tls = link_tls or (None, None)
        return Overlay(
            core,
            self.clock.now,
            driver,
            failures=driver.failures,
            secret=read_token(security.overlay_secret) if security.overlay_secret is not None else None,
            is_open=security.overlay_open,
            instance=self.store.instance,
            server_tls=server_tls,
            client_tls=client_tls,
            datagram_port=self.endpoints.overlay.port if self._has_datagrams() else None,
            uplinks=self._uplinks(),
        )

    def _uplinks(self) -> OwnUplinks:
        for broker in self.network.brokers:
            if broker.name == self.options.name:
                hosts = tuple(one.host for one in broker.reach or () if is_literal(one.host))
                return OwnUplinks(hosts, tuple(one.interface for one in broker.uplinks if one.interface is not None))
        return OwnUplinks()

    def _has_datagrams(self) -> bool:
        return any(one.name == self.options.name and one.datagrams for one in self.network.brokers)

    def store_changed(self, error: StoreError | None) -> None:
        """What the store could not write, or that it writes again."""
        self.driver.store_changed(error)


def _warn_of_open_secrets(security: Security) -> None:
    for warning in open_secrets(security):
        log.warning("%s", warning)


def _fresh_id() -> str:
    return f"overlane-{secrets.token_hex(8)}"
