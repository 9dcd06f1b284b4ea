"""Reservations of a broker's clients: advertisements of publishers, requests of subscribers, and reports about them.

Other brokers announce their advertisements and requests by cluster names (`interest_changed`).

Changes after a subscription was granted are published only for its client, at this broker, on
`$overlane/reservations/CLIENT` as a JSON document.
"""

from collections.abc import Callable, Sequence

import msgspec

from overlane.core.bundles import ANY, groups_of
from overlane.core.qos import QosClass
from overlane.core.units import SECOND, Nanos
from overlane.pubsub.cluster.names import ADVERTISED, RESERVE
from overlane.pubsub.cluster.uplink import Uplink
from overlane.pubsub.reservations.advertisement import (
    ADVERTISE,
    FILTER_BYTES_MAX,
    Advertisement,
    read_advertisement,
)
from overlane.pubsub.reservations.advertising import CLIENT_OWNER, RETAINED_OWNER, AdvertisedFlow, Advertising
from overlane.pubsub.reservations.network import ReservationNetwork
from overlane.pubsub.reservations.request import BadReservation, ReservationRequest
from overlane.pubsub.reservations.reserving import Answer, Reserved, SubscriberReservations
from overlane.pubsub.timers import Timers

RESERVATIONS = "$overlane/reservations/"
AWAY_NS: Nanos = 10 * SECOND
"""How long the advertisements of a client outlive its connection."""
REQUESTS_MAX = 4096
ROUTING = "got a reservation at a routing broker; expected an edge"
NAMED = "got a reservation in a domain with its own topic names; expected a domain without"
WILD = "got a wildcard in the first two levels of {}; expected none, since routing brokers share topics by these levels"


def own_topic(client_id: str) -> str:
    """Where a client is told of its reservations; empty if its name cannot be a level of a topic."""
    return "" if not client_id or any(sign in client_id for sign in "+#/") else RESERVATIONS + client_id


class Reservations:
    def __init__(
        self,
        uplink: Uplink,
        network: ReservationNetwork,
        timers: Timers,
        on_flows: Callable[[], None],
        publish: Callable[[str, bytes, Nanos], None],
    ) -> None:
        """`network`: what makes reservations at other brokers. `on_flows`: what was known of the class of topics is not
        true any more. `publish`: gives a message to subscribers at this broker."""
        self._uplink = uplink
        self._timers = timers
        self._publish = publish
        self._on_flows = on_flows
        self.advertising = Advertising(uplink, network)
        self.reserving = SubscriberReservations(uplink, network, timers, lambda: self.advertising.flows, self._changed)
        self.flow_of = self.advertising.flow_of
        self._named: dict[str, str] = {}
        """Names of documents, and the filters that they advertise."""
        self._seen_changes = 0
        network.listener = self.reserving.heard

    # Other brokers

    def interest_changed(self, name: str, broker: str, is_needed: bool, now: Nanos) -> None:
        """Another broker has announced a name, or has withdrawn it; names that mean something else are ignored."""
        kind = ADVERTISED if name.startswith(ADVERTISED) else RESERVE
        if not name.startswith(kind):
            return
        topic_filter = name[len(kind) :]
        if not topic_filter or len(topic_filter.encode()) > FILTER_BYTES_MAX:
            return
        if kind == ADVERTISED:
            self.reserving.note_advertised(topic_filter, broker, is_needed, now)
        else:
            self.advertising.note_leaf(topic_filter, broker, is_needed, now)
        self._flows_changed()

    # Publishers

    def document(self, name: str, payload: bytes, client_id: str, is_retained: bool, now: Nanos) -> None:
        """A document on `$overlane/advertise/NAME`; without payload it takes the one before back. BadReservation."""
        owner = RETAINED_OWNER + name if is_retained else CLIENT_OWNER + client_id
        if not payload:
            for one in (RETAINED_OWNER + name, CLIENT_OWNER + client_id):
                self.advertising.withdraw(one, self._named.get(name, name), now)
            self._named.pop(name, None)
            self._flows_changed()
            return
        advertisement = read_advertisement(name, payload)
        self._check_tiers(advertisement.filter)
        if (before := self._named.get(name)) is not None and before != advertisement.filter:
            self.advertising.withdraw(owner, before, now)
        self._named[name] = advertisement.filter
        self.advertising.advertise(owner, advertisement, now)
        self._flows_changed()
        self.reserving.own_changed(now)

    def filter_of(self, name: str, payload: bytes) -> str:
        """What a document is about: for that, rights are needed. BadReservation."""
        return read_advertisement(name, payload).filter if payload else self._named.get(name, name)

    def set_file(self, advertisements: Sequence[Advertisement], now: Nanos) -> None:
        self.advertising.set_file(advertisements, now)
        self._flows_changed()
        if advertisements:
            self.reserving.own_changed(now)

    def left(self, client_id: str, is_back: Callable[[], bool], now: Nanos) -> None:
        """A client's connection has ended."""
        if not self.advertising.flows or not self.advertising.owned_by(CLIENT_OWNER + client_id):
            return

        def withdraw(at: Nanos) -> None:
            if not is_back():
                self.advertising.withdraw_all(CLIENT_OWNER + client_id, at)
                self._flows_changed()

        self._timers.at(now + AWAY_NS, withdraw)

    def classify(self, flow: AdvertisedFlow, qos: QosClass, payload_bytes: int, now: Nanos) -> QosClass | None:
        return self.advertising.classify(flow, qos, payload_bytes, now)

    def _flows_changed(self) -> None:
        if self._seen_changes != self.advertising.changes:
            self._seen_changes = self.advertising.changes
            self._on_flows()

    def _check_tiers(self, topic_filter: str) -> None:
        if self._uplink.has_names:
            raise BadReservation(NAMED)
        if self._uplink.is_routing:
            raise BadReservation(ROUTING)
        if self._uplink.is_edge and groups_of(topic_filter) == ANY:
            raise BadReservation(WILD.format(topic_filter))

    # Subscribers

    def ask(
        self,
        client_id: str,
        name: str,
        topic_filter: str,
        request: ReservationRequest,
        answer: Answer | None,
        now: Nanos,
    ) -> None:
        """BadReservation."""
        self._check_tiers(topic_filter)
        if len(self.reserving.requests) >= REQUESTS_MAX and (client_id, name) not in self.reserving.requests:
            raise BadReservation(f"got more than {REQUESTS_MAX} reservations at this broker; expected fewer")
        self.reserving.ask((client_id, name), topic_filter, request, answer, now)

    def has(self, client_id: str, name: str) -> bool:
        return (client_id, name) in self.reserving.requests

    def release(self, client_id: str, name: str, now: Nanos) -> None:
        self.reserving.release((client_id, name), now)

    def _changed(self, one: Reserved, change: str, now: Nanos) -> None:
        topic = own_topic(one.key[0])
        if not topic:
            return
        verdict = one.verdict
        told: dict[str, object] = {"filter": one.key[1], "state": change}
        told |= {name.removeprefix("overlane-").replace("-", "_"): value for name, value in verdict.properties()}
        if verdict.reason:
            told["reason"] = verdict.reason
        self._publish(topic, msgspec.json.encode(told), now)


def is_advertisement(topic: str) -> bool:
    return topic.startswith(ADVERTISE)
