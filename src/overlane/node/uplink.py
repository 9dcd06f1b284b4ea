"""The overlay's core as the MQTT server sees it.

Effects that the core returns are collected for the driver, which carries them out at the end of the turn.
"""

from overlane.core.broker import Broker
from overlane.core.events import Effect, Published, Subscribe, Unsubscribe
from overlane.core.qos import TOPICS_REMEMBERED, QosClass
from overlane.core.units import Nanos


class CoreUplink:
    def __init__(self, core: Broker, is_alone: bool) -> None:
        self._core = core
        self.is_alone = is_alone
        self._carried: dict[str, bool] = {}
        self._carried_of = -1
        self.effects: list[Effect] = []
        self.is_touched = True
        """Whether the core has been told anything since the driver ended its turn."""

    @property
    def changes(self) -> int:
        return self._core.interest_changes

    def way_share(self, topic: str, qos: QosClass) -> float:
        return self._core.way_share(topic, qos)

    def crowding(self, topic: str, qos: QosClass, now: Nanos) -> float:
        return self._core.crowding(topic, qos, now)

    def carries(self, topic: str) -> bool:
        if self._carried_of != self._core.interest_changes or len(self._carried) >= TOPICS_REMEMBERED:
            self._carried.clear()
            self._carried_of = self._core.interest_changes
        found = self._carried.get(topic)
        if found is None:
            found = self._carried[topic] = self._core.carries(topic)
        return found

    def reserved_needs(self) -> list[tuple[str, str]]:
        return self._core.reserved_needs()

    def can_reach(self, broker: str) -> bool:
        return self._core.can_reach(broker)

    def publish(self, topic: str, body: bytes, flags: int, qos: QosClass, now: Nanos) -> Published:
        self.is_touched = True
        return self._core.send(topic, body, now, flags, qos)

    def subscribe(self, subscriber: str, topic_filter: str, durable: bool, now: Nanos) -> None:
        self.is_touched = True
        self.effects += self._core.handle(Subscribe(subscriber, topic_filter, durable), now)

    def unsubscribe(self, subscriber: str, topic_filter: str, now: Nanos) -> None:
        self.is_touched = True
        self.effects += self._core.handle(Unsubscribe(subscriber, topic_filter), now)
