"""SUBSCRIBE and UNSUBSCRIBE: each filter is granted or refused on its own, and retained messages follow the SUBACK.

A SUBSCRIBE that asks for reservations is answered when the network has granted or refused all of them, or has taken too
long. Until then none of its filters is subscribed to. An UNSUBSCRIBE of one of them, or another SUBSCRIBE to it, takes
the request back. The SUBACK tells in user properties what was granted, and what could have been had.
"""

from dataclasses import dataclass, field
from functools import partial

import mqtt5

from overlane.core.units import Nanos
from overlane.mqtt.codec.malformed import PACKET_TOO_LARGE, Malformed
from overlane.mqtt.connection import V5, Connection
from overlane.mqtt.reasons import Granted, subscribe_reason
from overlane.pubsub.contract.refused import STORE_FAILS, RequestFault, SubscriptionNotGranted
from overlane.pubsub.counters import Refusal
from overlane.pubsub.policies.policy import INCOMPATIBLE, NO_REQUEST
from overlane.pubsub.policies.publishers import PublisherPolicies
from overlane.pubsub.reservations.verdict import ReservationVerdict
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.state import State
from overlane.pubsub.subscriptions.subscribing import Replay, Subscribing, SubscriptionRequest, Unsubscribed
from overlane.pubsub.subscriptions.table import SHARED, Subscription

FAULTS_CHARS_MAX = 500
TAKEN_BACK = ReservationVerdict(None, reason="taken back before it was answered")

Ended = mqtt5.UnsubAckReasonCode

_REPLAYS = (Replay.ALWAYS, Replay.IF_NEW, Replay.NEVER)
"""By the number that MQTT gives each way to handle retained messages."""

_ENDED = {
    Unsubscribed.ENDED: Ended.SUCCESS,
    Unsubscribed.UNKNOWN: Ended.NO_SUBSCRIPTION_EXISTED,
    Unsubscribed.STORE_FAILS: Ended.IMPLEMENTATION_SPECIFIC_ERROR,
}


@dataclass(slots=True, eq=False)
class _Pending:
    """A SUBSCRIBE that waits for reservations."""

    connection: Connection
    session: Session
    packet: mqtt5.SubscribePacket
    waiting: set[str] = field(default_factory=set)
    verdicts: dict[str, ReservationVerdict] = field(default_factory=dict)
    is_begun: bool = False
    """Whether all have been asked for: none is answered before."""


class SubscribePackets:
    def __init__(self, state: State, subscribing: Subscribing, policies: PublisherPolicies) -> None:
        self._state = state
        self._policies = policies
        self._subscribing = subscribing
        self._pending: list[_Pending] = []

    def subscribe(self, connection: Connection, session: Session, packet: mqtt5.SubscribePacket, now: Nanos) -> None:
        if self._pending:
            self._take_back(session, [asked.pattern for asked in packet.topic_filters], now)
        pending = _Pending(connection, session, packet)
        if packet.user_properties:
            self._reserve(pending, now)
        if not pending.waiting:
            self._answer(pending, now)

    def _reserve(self, pending: _Pending, now: Nanos) -> None:
        """Ask for what the packet asks for. What is refused for other reasons is refused with the answer."""
        session = pending.session
        self._pending.append(pending)
        for asked in pending.packet.topic_filters:
            try:
                subscription = self._subscribing.check(session, _request(pending, asked), now)
                if subscription.reserve is not None and asked.pattern not in pending.verdicts:
                    pending.waiting.add(asked.pattern)
                    answer = partial(self._answered, pending, asked.pattern)
                    self._subscribing.reserve(subscription, answer, now)
            except SubscriptionNotGranted as refused:
                if asked.pattern in pending.waiting:
                    pending.waiting.discard(asked.pattern)
                    pending.verdicts[asked.pattern] = ReservationVerdict(None, reason=refused.told)
        pending.is_begun = True
        if not pending.waiting:
            self._pending.remove(pending)

    def _answered(self, pending: _Pending, name: str, verdict: ReservationVerdict, now: Nanos) -> None:
        """The network has answered for one of the filters."""
        pending.verdicts[name] = verdict
        pending.waiting.discard(name)
        if pending.waiting or not pending.is_begun:
            return
        self._pending.remove(pending)
        if pending.connection.session is pending.session:
            try:
                self._answer(pending, now)
            except Malformed as malformed:
                pending.connection.close(malformed.reason, str(malformed))
        else:
            for one in pending.verdicts:
                self._subscribing.release(pending.session, one, now)

    def _take_back(self, session: Session, names: list[str], now: Nanos) -> None:
        for pending in list(self._pending):
            if pending.session is session:
                for name in names:
                    if name in pending.waiting:
                        self._subscribing.release(session, name, now)
                        self._answered(pending, name, TAKEN_BACK, now)

    def _answer(self, pending: _Pending, now: Nanos) -> None:
        connection, session, packet = pending.connection, pending.session, pending.packet
        codes: list[Granted] = []
        faults: list[str] = []
        replayed: list[Subscription] = []
        incompatible: list[tuple[str, str]] = []
        for asked in packet.topic_filters:
            verdict = pending.verdicts.get(asked.pattern)
            try:
                if verdict is not None and not verdict.is_granted:
                    raise SubscriptionNotGranted(
                        RequestFault.NO_ROOM, Refusal.QUOTA, f"{asked.pattern[:100]}: {verdict.reason}"
                    )
                subscription, is_replayed = self._subscribing.subscribe(session, _request(pending, asked), now)
            except SubscriptionNotGranted as refused:
                codes.append(subscribe_reason(refused.fault))
                faults.append(refused.told)
                self._state.refuse(refused.why, refused.told, connection)
                if verdict is not None and verdict.is_granted:
                    self._subscribing.release(session, asked.pattern, now)
                continue
            codes.append(Granted(subscription.qos))
            if subscription.request != NO_REQUEST:
                found = self._policies.check_subscription(subscription, now)
                incompatible += [(INCOMPATIBLE, f"{subscription.filter}: {one}") for one in found]
            connection.waits |= session.is_known  # the store keeps the subscription, and what of it is replayed
            if is_replayed:
                replayed.append(subscription)
        told = "; ".join(faults)[:FAULTS_CHARS_MAX] if faults else None
        self._send(connection, packet.packet_id, codes, told, [*_properties(pending), *incompatible])
        for subscription in replayed:
            self._subscribing.replay(session, connection, subscription, now)

    @staticmethod
    def _send(
        connection: Connection,
        packet_id: int,
        codes: list[Granted],
        told: str | None,
        properties: list[tuple[str, str]],
    ) -> None:
        if properties and connection.version == V5 and (connection.tells_problems or not told):
            whole = mqtt5.SubAckPacket(packet_id, codes, reason_str=told, user_properties=properties)
            if connection.send_packet(whole):
                return
        if not connection.send_explained(lambda told: mqtt5.SubAckPacket(packet_id, codes, reason_str=told), told):
            raise Malformed(PACKET_TOO_LARGE, "the SUBACK is larger than the client's maximum packet size")

    def unsubscribe(
        self, connection: Connection, session: Session, packet: mqtt5.UnsubscribePacket, now: Nanos
    ) -> None:
        if self._pending:
            self._take_back(session, list(packet.patterns), now)
        codes: list[Ended] = []
        for name in packet.patterns:
            outcome = self._subscribing.unsubscribe(session, name, connection.version == V5, now)
            codes.append(_ENDED[outcome])
            if outcome is Unsubscribed.STORE_FAILS:
                self._state.refuse(Refusal.STORE, STORE_FAILS, connection)
            elif outcome is Unsubscribed.ENDED and session.is_known:
                connection.waits = True
        if not connection.send_packet(mqtt5.UnsubAckPacket(packet.packet_id, codes)):
            raise Malformed(PACKET_TOO_LARGE, "the UNSUBACK is larger than the client's maximum packet size")


def _request(pending: _Pending, asked: mqtt5.TopicFilter) -> SubscriptionRequest:
    packet = pending.packet
    is_of_bridge = pending.connection.is_bridge and not asked.pattern.startswith(SHARED)
    return SubscriptionRequest(
        asked.pattern,
        int(asked.max_qos),
        asked.no_local or is_of_bridge,
        asked.retain_as_published or is_of_bridge,
        packet.subscription_id or 0,
        _REPLAYS[int(asked.retain_handling)],
        packet.user_properties,
    )


def _properties(pending: _Pending) -> list[tuple[str, str]]:
    """What is told of reservations; of several, each behind the filter that it is about."""
    found: list[tuple[str, str]] = []
    for name, verdict in pending.verdicts.items():
        if len(pending.verdicts) > 1:
            found.append(("overlane-filter", name))
        found += verdict.properties()
    return found
