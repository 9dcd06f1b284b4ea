"""From a network file to brokers: their QoS classes, their configuration, and the rows of the report.

A topic belongs to the row of the most specific filter of the file that matches it, which also determines its class. A
topic that no filter of the file matches has the default class and the row of the first subscriber to it, or
`(default)`.
"""

from collections.abc import Mapping

from overlane.core.broker import OverlayBroker
from overlane.core.config import PLAIN, BrokerConfig
from overlane.core.qos import QosClass, QosTable, Routing
from overlane.core.topics import FilterTrie, matches, specificity
from overlane.core.units import Nanos
from overlane.network import Network
from overlane.network.classes import federation, qos_class
from overlane.sim.host import Make, Record

DEFAULT_ROW = "(default)"


class SimulationSetup:
    """What a network and the options of a run mean for its brokers. `routing` and `scheduling` override the file's."""

    def __init__(self, network: Network, routing: str | None, scheduling: str | None) -> None:
        self.network = network
        self.scheduling = scheduling or network.defaults.scheduling
        self.default = QosClass(routing=Routing(routing or network.defaults.routing))
        self.classes = {topic.filter: qos_class(topic, routing) for topic in network.topics}
        self._table = QosTable(self.classes, self.default)
        self._filters: FilterTrie[str] = FilterTrie()
        for topic_filter in self.classes:
            self._filters.add(topic_filter, topic_filter)
        self._published: dict[str, frozenset[str]] = {}
        """Filters with publishers, per broker."""
        self.roles: Mapping[str, str] = {}
        """Of brokers that are not plain."""
        self.assignment: Mapping[int, str] = {}
        """The current assignment: bundles, and the routing brokers that carry them."""
        self.standbys: Mapping[int, str] = {}
        """Bundles, and the routing brokers that would carry them next."""

    def filters_of_classes(self) -> dict[QosClass, tuple[str, ...]]:
        filters: dict[QosClass, tuple[str, ...]] = {self.default: (DEFAULT_ROW,)} if not self.classes else {}
        for topic_filter, qos in self.classes.items():
            filters[qos] = (*filters.get(qos, ()), topic_filter)
        return filters

    def filters_affected(self, broker: str, qos: QosClass) -> tuple[str, ...]:
        """Filters of a class that a change of its routes at a broker concerns: those that are published there."""
        filters = self.filters_of_classes().get(qos, (DEFAULT_ROW,))
        if broker not in self._published:
            rows = (self.row_of(one.topic) for one in self.network.publishers if one.broker == broker)
            self._published[broker] = frozenset(rows)
        return tuple(one for one in filters if one in self._published[broker]) or filters

    def row_of(self, topic: str) -> str:
        if found := self._filters.match(topic):
            return max(found, key=specificity)
        asked = (subscriber.topic for subscriber in self.network.subscribers if matches(subscriber.topic, topic))
        return next(asked, DEFAULT_ROW)

    def qos_of(self, topic: str) -> QosClass:
        return self._table.of(topic)

    def maker(self, name: str, failure: float) -> Make[OverlayBroker]:
        """What makes the broker of this name, each time it starts."""

        def make(incarnation: int, records: list[Record], now: Nanos) -> OverlayBroker:
            return OverlayBroker(self.config_of(name, failure), incarnation, records, now)

        return make

    def config_of(self, name: str, failure: float) -> BrokerConfig:
        """The configuration of a broker, as it would start now."""
        links = {end: link for link in self.network.links if name in link.ends for end in link.ends if end != name}
        return BrokerConfig(
            name=name,
            qos=self._table,
            scheduling=self.scheduling,
            ping_interval_ns=self.network.defaults.ping_interval_ns,
            failure=failure,
            link_failure={peer: link.failure for peer, link in links.items()},
            federation=federation(self.network, name),
            link_queue_bytes_max={peer: link.from_end(name).queue_bytes for peer, link in links.items()},
            named=frozenset(broker.name for broker in self.network.brokers),
            brokers_max=self.network.limits.brokers,
            role=self.roles.get(name, PLAIN),
            assignment=self.assignment,
            standbys=self.standbys,
            domains={broker.name: broker.domain for broker in self.network.brokers},
            encrypted=frozenset(
                peer for peer, link in links.items() if link.encrypted or self.network.security.overlay_tls
            ),
        )
