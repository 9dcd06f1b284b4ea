"""A broker joins the coordination: what of the broker the coordination is shown, and what it gives back."""

import asyncio
import logging
import socket
from collections import Counter
from typing import TYPE_CHECKING

from overlane import __version__
from overlane.adminapi.views import CoordinationView
from overlane.coordination.access import access_of
from overlane.coordination.contract import Deliver, Service
from overlane.coordination.records import BrokerRecord, ConfigRecord
from overlane.coordination.zookeeper import ZooKeeper
from overlane.core.links.link_health import LinkState
from overlane.core.units import NEVER, US
from overlane.membership.endpoint import Endpoint
from overlane.membership.membership import Membership
from overlane.network.schema import Coordination, Network, RoutingTier
from overlane.node.clients.pass_through import PassThrough
from overlane.node.clients.passed_in import PassedIn
from overlane.node.coordination.driver import Coordinated
from overlane.node.coordination.overlay_cache import read_kept
from overlane.node.coordination.own_network import own_network
from overlane.node.reconfiguring import AssignedBundles
from overlane.pubsub.sessions.domain import ALONE, Domain

if TYPE_CHECKING:
    from overlane.node.items.agent_driver import ItemsAgent
    from overlane.node.node import Node


SETTLES_S = 0.2
"""How long after a change of addresses it is looked up which one is used: routes follow addresses."""

log = logging.getLogger("overlane.coordination")


class Coordinating:
    """ConfigError or Unavailable if ZooKeeper cannot be asked as the file says."""

    def __init__(self, node: "Node", coordination: Coordination) -> None:
        self._node = node
        data = node.options.data
        access = access_of(coordination, data.parent if data is not None else None)
        self._config: ConfigRecord | None = None
        """That of ZooKeeper, whether it was taken up or not."""

        def connect(deliver: Deliver) -> Service:
            return ZooKeeper(access, deliver) if node.replicated is None else node.replicated.connect(deliver)

        self._coordinated = Coordinated(
            node.options.name,
            _record(node, own_host(access.hosts) or socket.gethostname()),
            node.network.routing,
            read_kept(data),
            data,
            node.clock.now,
            self,
            connect,
            self._take_up,
            self._config_changed,
            self._domain_changed,
        )
        self._domain: Domain = ALONE
        self._share_clients()
        self._config = self._coordinated.view.config
        started_with = node.options.config
        if started_with is not None and (self._config is None or self._config.version < started_with.version):
            self._config = started_with
            self._coordinated.config_taken_up(started_with)
        node.admin_service.inspection.coordination = self.coordination_view
        node.admin_service.tell_plans(self._coordinated.planned)
        node.driver.observing.on_scope_changed = self._coordinated.scope_changed
        node.driver.observing.on_direct_links_wanted = self._coordinated.direct_links_wanted
        node.overlay.on_stranger = self._coordinated.dialled_by
        node.overlay.multipath.on_addresses = self._addresses_changed
        self._items: ItemsAgent | None = None
        if node.network.items:
            # Only where it is needed: the solvers take as long to load as much of the rest.
            from overlane.node.items import agent_driver

            if _is_edge(node):
                coordinated = self._coordinated
                self._items = agent_driver.ItemsAgent(
                    node.options.name, node.network, node.clock.now, Around(self, node), coordinated.ask_for
                )
                coordinated.attach(self._items.heard)
                node.admin_service.tell_plans(self._items.planned)
                node.admin_service.inspection.directory = self._items.view
                node.admin_service.inspection.item_of = self._items.item_of
        self._hosts = access.hosts
        self._looking: asyncio.Task[None] | None = None
        self._coordinated.scope_changed(node.driver.core.scope_digest())  # what its records of before say

    # What the node asks

    def follow(self, tier: RoutingTier, file: Membership) -> tuple[Membership, AssignedBundles]:
        """ConfigError."""
        self._coordinated.follow(tier, file)
        return self._coordinated.membership(), self._bundles()

    def read_network(self) -> Network:
        """Of a broker without a file. ConfigError."""
        own = self._node.options.own
        assert own is not None
        return own_network(self._config, own)

    def config_taken_up(self) -> None:
        if self._config is not None and self._node.options.own is not None:
            self._coordinated.config_taken_up(self._config)

    def coordination_view(self) -> CoordinationView:
        coordinated = self._coordinated
        view, participant = coordinated.view, coordinated.participant
        return CoordinationView(
            role=view.own.role,
            domain=view.own.domain,
            is_connected=coordinated.is_connected,
            leader=participant.leader.name or "",
            bundles=dict(sorted(Counter(view.assignment.values()).items())),
            members={name: (one.role, one.domain) for name, one in sorted(view.members.items())},
        )

    async def leave(self) -> None:
        await self._coordinated.leave()

    @property
    def items(self) -> "ItemsAgent | None":
        return self._items

    def follow_items(self, network: Network) -> None:
        """ConfigError."""
        if self._items is not None:
            self._items.follow(network)

    def domain_edges(self) -> dict[str, BrokerRecord]:
        return self._coordinated.view.domain_edges()

    def own_record(self) -> BrokerRecord:
        return self._coordinated.view.own

    async def end(self) -> None:
        if self._items is not None:
            self._items.end()
        if self._looking is not None:
            self._looking.cancel()
        await self._coordinated.end()

    def _share_clients(self) -> None:
        """Clients whose sessions are at another broker of the domain are passed on, and come in."""
        driver, overlay = self._node.driver, self._node.overlay
        pass_through = PassThrough(driver, overlay)
        driver.pass_on = pass_through.pass_on
        driver.observing.on_link_changed = pass_through.link_changed
        overlay.on_passed_in = PassedIn(driver).take

    def _domain_changed(self) -> None:
        if (domain := self._coordinated.domain()) != self._domain:
            self._domain = domain
            self._node.driver.follow_domain(domain)

    def _addresses_changed(self) -> None:
        """Of this machine. Where the broker listens on all of them, it may be reached at another one now."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look_for_host())

    async def _look_for_host(self) -> None:
        await asyncio.sleep(SETTLES_S)
        # In a thread: names are resolved by servers that may not be reached at this moment.
        host = await asyncio.to_thread(own_host, self._hosts)
        record = _record(self._node, host) if host is not None else self._coordinated.view.own
        if record != self._coordinated.view.own:
            log.info("new address: %s", ", ".join(record.overlay))
            self._coordinated.reached_at(record)

    def _take_up(self) -> None:
        self._node.take_up_membership(self._coordinated.membership(), self._bundles())

    def _bundles(self) -> AssignedBundles:
        view = self._coordinated.view
        return AssignedBundles(view.assignment, view.standbys)

    def _config_changed(self, config: ConfigRecord) -> None:
        before, self._config = self._config, config
        if config == before:
            return
        if self._node.options.own is not None:
            self._node.reload()
        else:
            file = self._node.options.file
            log.warning("configuration %d in ZooKeeper is ignored: %s has settings of its own", config.version, file)

    # What the coordination asks of the links (driver.Links)

    def is_up(self, peer: str) -> bool:
        if peer not in self._node.overlay.links:
            return False
        return self._node.driver.core.link_state(peer) is not LinkState.FAILED

    def latencies_us(self) -> dict[str, int]:
        views = self._node.driver.core.link_views()
        return {view.peer: view.latency_ns // US for view in views if view.is_measured}

    def deadline_partners(self) -> set[str]:
        core = self._node.driver.core
        sources = {route.origin for route in core.inbound_routes() if route.deadline_ns < NEVER}
        routes = [route for route in core.routes() if route.qos.deadline_ns < NEVER]
        return sources.union(*(route.destinations for route in routes))

    def sent(self) -> tuple[int, int | None]:
        overlay = self._node.overlay
        rates = [rate for peer in overlay.links if (rate := overlay.rate_bps(peer)) is not None]
        is_known = bool(rates) and len(rates) == len(overlay.links)
        return sum(link.bytes_out for link in overlay.links.values()), sum(rates) if is_known else None

    def lag_s(self) -> float:
        return self._node.admin_service.inspection.loop_lag.lag_s


class Around:
    """What the management agent needs of its broker (`agent_driver.Surroundings`)."""

    def __init__(self, coordinating: Coordinating, node: "Node") -> None:
        self._coordinating = coordinating
        self._node = node
        self.domain_edges = coordinating.domain_edges
        self.own_record = coordinating.own_record
        self.is_up = coordinating.is_up

    def topic_counts(self) -> dict[str, int]:
        topics = self._node.driver.server.pubsub.state.topics
        return {topic: stats.messages for topic, stats in topics.items()}

    def publish_own(self, topic: str, payload: bytes) -> None:
        self._node.driver.publish_own(topic, payload)


def _is_edge(node: "Node") -> bool:
    return any(one.name == node.options.name and one.role == "edge" for one in node.network.brokers)


def _record(node: "Node", host: str) -> BrokerRecord:
    """`host`: the address of this machine."""
    name, at = node.options.name, node.endpoints
    broker = next(one for one in node.network.brokers if one.name == name)
    reach = (at.overlay,) if broker.reach is None else broker.reach
    return BrokerRecord(
        domain=broker.domain or name,
        role=broker.role,
        instance=node.store.instance,
        overlay=tuple(str(_reachable(endpoint, host)) for endpoint in reach),
        clients={kind: str(_reachable(endpoint, host)) for kind, endpoint in at.listeners.items()},
        admin=str(_reachable(at.admin, host)),
        version=__version__,
        epoch=node.replicated.epoch if node.replicated is not None else 0,
        host=node.replicated.host if node.replicated is not None and node.replicated.host != name else "",
        takes_clients=broker.role == "edge",
    )


def _reachable(endpoint: Endpoint, host: str) -> Endpoint:
    return Endpoint(host, endpoint.port) if endpoint.is_wildcard() else endpoint


def own_host(hosts: str) -> str | None:
    """The address of this machine on the way to ZooKeeper: others reach it there if it listens on all addresses. None
    if there is no way."""
    host, _, port = hosts.split(",")[0].rpartition(":")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return None
