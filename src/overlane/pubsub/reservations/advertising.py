"""What publishers of this broker advertise, and which class their messages are sent in.

An advertisement has an owner: the client, the retained document, or the network file. All advertisements of one filter
are one flow, whose traffic is their sum. A flow is announced to the other brokers (`$advertise/FILTER`), and offered to
those that ask for it (`$reserve/FILTER`). Messages within the profile are sent in the class of the reservation to the
brokers that have asked; messages beyond it as the flow's policy says.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from overlane.core.qos import QosClass
from overlane.core.topic_cache import TopicCache
from overlane.core.topics import FilterTrie, specificity
from overlane.core.units import Nanos
from overlane.planning.reserve import TSpec
from overlane.pubsub.cluster.cluster import LOCAL_SUBSCRIBERS
from overlane.pubsub.cluster.names import ADVERTISED
from overlane.pubsub.cluster.uplink import Uplink
from overlane.pubsub.reservations.advertisement import Advertisement
from overlane.pubsub.reservations.network import ReservationNetwork
from overlane.pubsub.reservations.policing import Policer
from overlane.pubsub.reservations.profile_meter import ProfileMeter
from overlane.pubsub.reservations.request import HEADER_BYTES, BadReservation

ADVERTISEMENTS_MAX = 1024
"""At one broker."""
FILE_OWNER, RETAINED_OWNER = "file:", "retained:"
"""Of what is in the network file, and of retained documents; clients' names follow `CLIENT_OWNER`."""
CLIENT_OWNER = "client:"


@dataclass(slots=True)
class AdvertisedFlow:
    filter: str
    policer: Policer
    meter: ProfileMeter
    owners: dict[str, Advertisement] = field(default_factory=dict)
    leaves: frozenset[str] = frozenset()
    number: int = 0
    messages: int = 0
    excess_messages: int = 0
    link_bytes: int = 0
    """Of its messages, with what these have on a link beside their payload."""
    classes: dict[QosClass, QosClass] = field(default_factory=dict)

    @property
    def excess(self) -> str:
        """The strictest policy of its advertisements."""
        policies = {one.excess for one in self.owners.values()}
        return next((one for one in ("drop", "wait") if one in policies), "best-effort")

    def class_of(self, qos: QosClass) -> QosClass:
        found = self.classes.get(qos)
        if found is None:
            found = self.classes[qos] = replace(qos, reservation=self.number)
        return found


class Advertising:
    def __init__(self, uplink: Uplink, network: ReservationNetwork) -> None:
        self._uplink = uplink
        self.network = network
        self.flows: dict[str, AdvertisedFlow] = {}
        self._trie: FilterTrie[str] = FilterTrie()
        self._by_topic: TopicCache[str, AdvertisedFlow | None] = TopicCache()
        self._leaves: dict[str, set[str]] = {}
        """By filter, the other brokers that ask for a reservation."""
        self.changes = 0

    # Advertisements

    def advertise(self, owner: str, advertisement: Advertisement, now: Nanos) -> None:
        """BadReservation if there is no room for more."""
        flow = self.flows.get(advertisement.filter)
        if flow is None:
            if len(self.flows) >= ADVERTISEMENTS_MAX:
                raise BadReservation(
                    f"got more than {ADVERTISEMENTS_MAX} advertisements at this broker; expected fewer"
                )
            flow = self.flows[advertisement.filter] = AdvertisedFlow(
                advertisement.filter,
                Policer(advertisement.tspec, now),
                ProfileMeter(advertisement.tspec.rate, now),
            )
            self._trie.add(flow.filter, flow.filter)
            self._uplink.subscribe(LOCAL_SUBSCRIBERS, ADVERTISED + flow.filter, False, now)
        elif flow.owners.get(owner) == advertisement:
            return
        flow.owners[owner] = advertisement
        self._changed(flow, now)

    def withdraw(self, owner: str, topic_filter: str, now: Nanos) -> None:
        flow = self.flows.get(topic_filter)
        if flow is None or flow.owners.pop(owner, None) is None:
            return
        if flow.owners:
            self._changed(flow, now)
            return
        del self.flows[topic_filter]
        self._trie.remove(topic_filter, topic_filter)
        self._uplink.unsubscribe(LOCAL_SUBSCRIBERS, ADVERTISED + topic_filter, now)
        self._forget()
        self.network.withdraw(topic_filter, now)

    def withdraw_all(self, owner: str, now: Nanos) -> None:
        for flow in list(self.flows.values()):
            self.withdraw(owner, flow.filter, now)

    def set_file(self, advertisements: Iterable[Advertisement], now: Nanos) -> None:
        """All those of the network file."""
        wanted = {one.filter: one for one in advertisements}
        for flow in list(self.flows.values()):
            if flow.filter not in wanted:
                self.withdraw(FILE_OWNER, flow.filter, now)
        for one in wanted.values():
            self.advertise(FILE_OWNER, one, now)

    def owned_by(self, owner: str) -> bool:
        return any(owner in flow.owners for flow in self.flows.values())

    def _changed(self, flow: AdvertisedFlow, now: Nanos) -> None:
        flow.policer.change(_sum([one.tspec for one in flow.owners.values()]))
        flow.meter.change(flow.policer.tspec.rate)
        flow.leaves = frozenset(self._leaves.get(flow.filter, ()))
        flow.number = self.network.offer(flow.filter, flow.policer.tspec, flow.leaves, now)
        flow.classes.clear()
        self._forget()

    def note_leaf(self, topic_filter: str, broker: str, is_leaf: bool, now: Nanos) -> None:
        """Another broker asks for a reservation, or does so no more."""
        leaves = self._leaves.setdefault(topic_filter, set())
        if is_leaf:
            leaves.add(broker)
        else:
            leaves.discard(broker)
            if not leaves:
                del self._leaves[topic_filter]
        flow = self.flows.get(topic_filter)
        if flow is not None:
            self._changed(flow, now)

    def _forget(self) -> None:
        self.changes += 1
        self._by_topic.clear()

    # Messages

    def flow_of(self, topic: str) -> AdvertisedFlow | None:
        """The flow that messages on a topic belong to: of several that of the most specific filter."""
        if not self.flows:
            return None
        if topic in self._by_topic:
            return self._by_topic[topic]
        found = self._trie.match(topic)
        flow = self.flows[max(found, key=specificity)] if found else None
        self._by_topic.make_room(topic)
        self._by_topic[topic] = flow
        return flow

    def classify(self, flow: AdvertisedFlow, qos: QosClass, payload_bytes: int, now: Nanos) -> QosClass | None:
        """The class to send a message in; None if it is beyond the profile and to be refused."""
        flow.messages += 1
        size = payload_bytes + HEADER_BYTES + len(flow.filter.encode())
        flow.link_bytes += size
        flow.meter.note(payload_bytes, now)
        if not flow.policer.conforms(size, now):
            flow.excess_messages += 1
            return None if flow.excess == "drop" else qos
        # What is kept for late subscribers is kept once, whoever has asked for it.
        return flow.class_of(qos) if flow.leaves and flow.number and not qos.history else qos


def _sum(tspecs: list[TSpec]) -> TSpec:
    """The traffic of several publishers together."""
    if len(tspecs) == 1:
        return tspecs[0]
    return TSpec(
        sum(one.rate for one in tspecs),
        sum(one.bucket_bytes for one in tspecs),
        float("inf"),
        min(one.size_min_bytes for one in tspecs),
        max(one.size_max_bytes for one in tspecs),
    )
