"""SUBSCRIBE and UNSUBSCRIBE: each filter is granted or refused on its own, and retained messages follow the SUBACK."""

import mqtt5

from overlane.core.units import Nanos
from overlane.mqtt.codec.malformed import PACKET_TOO_LARGE, Malformed
from overlane.mqtt.connection import V5, Connection
from overlane.mqtt.reasons import Granted, subscribe_reason
from overlane.pubsub.counters import Refusal
from overlane.pubsub.refused import STORE_FAILS, SubscribeRefused
from overlane.pubsub.sessions.session import Session
from overlane.pubsub.state import State
from overlane.pubsub.subscriptions.subscribing import Replay, Subscribing, SubscriptionRequest, Unsubscribed
from overlane.pubsub.subscriptions.table import SHARED, Subscription

FAULTS_CHARS_MAX = 500

Ended = mqtt5.UnsubAckReasonCode

_REPLAYS = (Replay.ALWAYS, Replay.IF_NEW, Replay.NEVER)
"""By the number that MQTT gives each way to handle retained messages."""

_ENDED = {
    Unsubscribed.ENDED: Ended.SUCCESS,
    Unsubscribed.UNKNOWN: Ended.NO_SUBSCRIPTION_EXISTED,
    Unsubscribed.STORE_FAILS: Ended.IMPLEMENTATION_SPECIFIC_ERROR,
}


class SubscribePackets:
    def __init__(self, state: State, subscribing: Subscribing) -> None:
        self._state = state
        self._subscribing = subscribing

    def subscribe(self, connection: Connection, session: Session, packet: mqtt5.SubscribePacket, now: Nanos) -> None:
        codes: list[Granted] = []
        faults: list[str] = []
        replayed: list[Subscription] = []
        for asked in packet.topic_filters:
            is_of_bridge = connection.is_bridge and not asked.pattern.startswith(SHARED)
            request = SubscriptionRequest(
                asked.pattern,
                int(asked.max_qos),
                asked.no_local or is_of_bridge,
                asked.retain_as_published or is_of_bridge,
                packet.subscription_id or 0,
                _REPLAYS[int(asked.retain_handling)],
                packet.user_properties,
            )
            try:
                subscription, is_replayed = self._subscribing.subscribe(session, request, now)
            except SubscribeRefused as refused:
                codes.append(subscribe_reason(refused.fault))
                faults.append(refused.told)
                self._state.refuse(refused.why, refused.told, connection)
                continue
            codes.append(Granted(subscription.qos))
            connection.waits |= session.is_known  # the store keeps the subscription, and what of it is replayed
            if is_replayed:
                replayed.append(subscription)
        told = "; ".join(faults)[:FAULTS_CHARS_MAX] if faults else None
        if not connection.send_explained(
            lambda told: mqtt5.SubAckPacket(packet.packet_id, codes, reason_str=told), told
        ):
            raise Malformed(PACKET_TOO_LARGE, "the client does not take a packet as large as the SUBACK")
        for subscription in replayed:
            self._subscribing.replay(session, connection, subscription, now)

    def unsubscribe(
        self, connection: Connection, session: Session, packet: mqtt5.UnsubscribePacket, now: Nanos
    ) -> None:
        codes: list[Ended] = []
        for name in packet.patterns:
            outcome = self._subscribing.unsubscribe(session, name, connection.version == V5, now)
            codes.append(_ENDED[outcome])
            if outcome is Unsubscribed.STORE_FAILS:
                self._state.refuse(Refusal.STORE, STORE_FAILS, connection)
            elif outcome is Unsubscribed.ENDED and session.is_known:
                connection.waits = True
        if not connection.send_packet(mqtt5.UnsubAckPacket(packet.packet_id, codes)):
            raise Malformed(PACKET_TOO_LARGE, "the client does not take a packet as large as the UNSUBACK")
