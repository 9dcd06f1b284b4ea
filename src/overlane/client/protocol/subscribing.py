"""Subscribing: the subscriptions of the application, and their requests to the broker.

    wanted      subscriptions by number; the number is also MQTT's subscription identifier
    granted     those that the session at the broker has
    asked       requests without a response, by packet id
    leaving     subscriptions to be ended, until the broker confirms

A lost connection loses requests and responses: on the next one, subscriptions that are not known to be granted are
requested again, and those that are leaving are ended again. If the session is lost too, none is granted any more.

A subscription with several filters is granted as a whole or not at all.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import mqtt5

from overlane.client.protocol.events import Event, Subscribed, SubscriptionRefused, Unsubscribed
from overlane.client.protocol.outgoing import FAILURE
from overlane.client.protocol.packet_ids import PacketIds
from overlane.client.qos import Qos
from overlane.mqtt.codec import codec5
from overlane.mqtt.codec.malformed import PROTOCOL_ERROR, Malformed


@dataclass(frozen=True, slots=True)
class WantedSubscription:
    """One subscription as the application asked for it."""

    filters: tuple[str, ...]
    qos: Qos = Qos.AT_MOST_ONCE
    no_local: bool = False
    retain_handling: int = 0
    properties: tuple[tuple[str, str], ...] = ()
    retain_as_published: bool = False

    def packet(self, packet_id: int, identifier: int | None) -> mqtt5.SubscribePacket:
        filters = [
            mqtt5.TopicFilter(
                topic_filter,
                max_qos=mqtt5.QoS(self.qos),
                # A shared subscription with no-local is a protocol error (3.8.3-4).
                no_local=self.no_local and not topic_filter.startswith("$share/"),
                retain_as_published=self.retain_as_published,
                retain_handling=mqtt5.RetainHandling(self.retain_handling),
            )
            for topic_filter in self.filters
        ]
        return mqtt5.SubscribePacket(
            packet_id, filters, subscription_id=identifier, user_properties=list(self.properties)
        )


class Subscribing:
    def __init__(self, ids: PacketIds, out: list[bytes]) -> None:
        self._ids = ids
        self._out = out
        self._online = False
        self._identifiers = True
        self._wanted: dict[int, WantedSubscription] = {}
        self._granted: set[int] = set()
        self._asked: dict[int, int] = {}
        self._leaving: dict[int, WantedSubscription] = {}

    @property
    def unanswered(self) -> int:
        return len(self._asked)

    def connected(self, session_present: bool, identifiers: bool) -> None:
        self._online = True
        self._identifiers = identifiers
        if not session_present:
            self._granted.clear()
        for packet_id in self._asked:
            self._ids.give_back(packet_id)
        self._asked.clear()
        for number in list(self._leaving):
            self._ask_to_leave(number)
        for number in self._wanted:
            if number not in self._granted:
                self._ask(number)

    def lost(self) -> None:
        self._online = False

    def subscribe(self, number: int, wanted: WantedSubscription) -> None:
        self._wanted[number] = wanted
        if self._online:
            self._ask(number)

    def unsubscribe(self, number: int) -> None:
        wanted = self._wanted.pop(number, None)
        if wanted is None:
            return
        self._granted.discard(number)
        self._leaving[number] = wanted
        if self._online:
            self._ask_to_leave(number)

    def forget(self, number: int) -> None:
        """Neither end it nor renew it."""
        self._wanted.pop(number, None)
        self._granted.discard(number)

    def subscribed(self, packet: mqtt5.SubAckPacket) -> Iterator[Event]:
        number = self._answered(packet.packet_id, "SUBACK")
        wanted = self._wanted.get(number)
        if wanted is None:
            return
        if len(packet.reason_codes) != len(wanted.filters):
            raise Malformed(
                PROTOCOL_ERROR, f"SUBACK with {len(packet.reason_codes)} codes for {len(wanted.filters)} filters"
            )
        answers = list(zip(wanted.filters, map(int, packet.reason_codes), strict=True))
        refused = [(topic_filter, code) for topic_filter, code in answers if code >= FAILURE]
        if not refused:
            self._granted.add(number)
            yield Subscribed(number)
            return
        if len(refused) < len(answers):
            self.unsubscribe(number)
        self._wanted.pop(number, None)
        yield SubscriptionRefused(number, *refused[0], packet.reason_str or "")

    def unsubscribed(self, packet: mqtt5.UnsubAckPacket) -> Iterator[Event]:
        number = self._answered(packet.packet_id, "UNSUBACK")
        if self._leaving.pop(number, None) is not None:
            yield Unsubscribed(number)

    def _answered(self, packet_id: int, name: str) -> int:
        number = self._asked.pop(packet_id, None)
        if number is None:
            raise Malformed(PROTOCOL_ERROR, f"{name} for packet id {packet_id}, which was not asked")
        self._ids.give_back(packet_id)
        return number

    def _ask(self, number: int) -> None:
        packet_id = self._ids.take()
        self._asked[packet_id] = number
        packet = self._wanted[number].packet(packet_id, number if self._identifiers else None)
        self._out.append(codec5.write(packet))

    def _ask_to_leave(self, number: int) -> None:
        packet_id = self._ids.take()
        self._asked[packet_id] = number
        self._out.append(codec5.write(mqtt5.UnsubscribePacket(packet_id, list(self._leaving[number].filters))))
