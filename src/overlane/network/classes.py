"""From a network file to the configuration of the core: QoS classes of topics, and the configuration of a broker."""

from collections.abc import Iterator

from overlane.core.config import BrokerConfig
from overlane.core.federation import Federation, Passage
from overlane.core.qos import HISTORY_ALL, Order, QosClass, QosTable, Routing
from overlane.core.requirements import DOMAIN_PREFIX
from overlane.core.units import NEVER
from overlane.network.schema import Border, Network, Topic
from overlane.network.sections.requirements import requirements
from overlane.pubsub.cluster.cluster import overlay_table
from overlane.pubsub.policies.policy import Policies, Policy
from overlane.pubsub.publishing.mirrored import MirroredTopics


def qos_class(topic: Topic, routing: str | None = None) -> QosClass:
    return QosClass(
        deadline_ns=topic.deadline_ns,
        reliable=topic.reliability == "reliable",
        routing=Routing(routing or topic.routing),
        paths=topic.paths,
        lifespan_ns=NEVER if topic.lifespan_ns is None else topic.lifespan_ns,
        history=HISTORY_ALL if topic.history == "all" else topic.history,
        order=Order(topic.order),
        requires=requirements(topic),
    )


def qos_table(network: Network) -> QosTable:
    """The classes that applications' topics have."""
    return QosTable({topic.filter: qos_class(topic) for topic in network.topics}, _default(network))


def mirrored_topics(network: Network) -> MirroredTopics | None:
    """None where no topic is."""
    filters = {topic.filter: topic.durability == "mirrored" for topic in network.topics}
    return MirroredTopics(filters) if any(filters.values()) else None


def policies(network: Network) -> Policies | None:
    """None where no topic has any."""
    found = {
        topic.filter: Policy(
            NEVER if topic.liveliness_ns is None else topic.liveliness_ns,
            NEVER if topic.period_ns is None else topic.period_ns,
            topic.ownership == "exclusive",
        )
        for topic in network.topics
    }
    return Policies(found) if any(one != Policy() for one in found.values()) else None


def _default(network: Network) -> QosClass:
    return QosClass(routing=Routing(network.defaults.routing))


def federation(network: Network, name: str) -> Federation:
    """What may cross the border of a broker's domain: without any rule for a direction, everything."""
    borders = [border for border in network.federation if name in brokers_at(network, border.broker)]
    leave = [passage for border in borders for passage in _passages(network, border, border.leave, name)]
    enter = [passage for border in borders for passage in _passages(network, border, border.enter, name)]
    return Federation(
        tuple(leave) if any(border.leave is not None for border in borders) else None,
        tuple(enter) if any(border.enter is not None for border in borders) else None,
    )


def brokers_at(network: Network, place: str) -> tuple[str, ...]:
    """The brokers that a rule names: one, or those of a domain."""
    if not place.startswith(DOMAIN_PREFIX):
        return (place,)
    domain = place.removeprefix(DOMAIN_PREFIX)
    return tuple(one.name for one in network.brokers if (one.domain or one.name) == domain)


def _passages(network: Network, border: Border, filters: tuple[str, ...] | None, name: str) -> Iterator[Passage]:
    """Of one rule, for one broker. Within the domain that a rule is for, everything passes."""
    if filters is None:
        return
    yield from (Passage(other, filters) for other in brokers_at(network, border.other))
    if border.broker.startswith(DOMAIN_PREFIX):
        yield from (Passage(other, ("#",)) for other in brokers_at(network, border.broker) if other != name)


def may_cross(network: Network, topic: str, source: str, destination: str) -> bool:
    """Whether the borders of both brokers let a topic pass from one to the other; within a domain everything passes."""
    return source == destination or (
        federation(network, source).may_leave(topic, destination)
        and federation(network, destination).may_enter(topic, source)
    )


def broker_config(network: Network, name: str) -> BrokerConfig:
    broker = next(one for one in network.brokers if one.name == name)
    links = [link for link in network.links if name in link.ends]
    return BrokerConfig(
        name=name,
        qos=overlay_table(qos_table(network)),
        scheduling=network.defaults.scheduling,
        ping_interval_ns=network.defaults.ping_interval_ns,
        failure=broker.failure,
        link_failure={end: link.failure for link in links for end in link.ends if end != name},
        federation=federation(network, name),
        link_queue_bytes_max={
            end: link.from_end(name).queue_bytes for link in links for end in link.ends if end != name
        },
        named=frozenset(one.name for one in network.brokers),
        brokers_max=network.limits.brokers,
        routes_max=network.limits.routes,
        role=broker.role,
        domains={one.name: one.domain for one in network.brokers},
        encrypted=frozenset(end for link in links if link.encrypted for end in link.ends if end != name),
    )
