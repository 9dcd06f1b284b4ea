"""The overlay, as the MQTT server sees it: topics go up, filters are asked for, and nothing of MQTT is known there."""

from typing import Protocol

from overlane.core.events import Published
from overlane.core.qos import QosClass
from overlane.core.units import Nanos


class Uplink(Protocol):
    @property
    def is_alone(self) -> bool:
        """Whether there are no other brokers at all."""

    @property
    def changes(self) -> int:
        """Grows whenever another broker needs something else than before."""

    def way_share(self, topic: str, qos: QosClass) -> float:
        """How full the first queues are that messages of the topic join on their way: from 0, 1 is full."""

    def crowding(self, topic: str, qos: QosClass, now: Nanos) -> float:
        """How far readers elsewhere are behind what was published here on the topic, or the way to them: from 0, not at
        all, to 1 where their queues are full, and somewhat more where more waits for them."""

    def carries(self, topic: str) -> bool:
        """Whether somebody elsewhere needs the topic, or its past is kept for those who come late."""

    def reserved_needs(self) -> list[tuple[str, str]]:
        """What other brokers need under names that begin with `$`: (filter, broker)."""

    def can_reach(self, broker: str) -> bool: ...

    def publish(self, topic: str, body: bytes, flags: int, qos: QosClass, now: Nanos) -> Published: ...

    def subscribe(self, subscriber: str, topic_filter: str, durable: bool, now: Nanos) -> None: ...

    def unsubscribe(self, subscriber: str, topic_filter: str, now: Nanos) -> None: ...


class Alone:
    """No overlay at all."""

    is_alone = True
    changes = 0

    def way_share(self, topic: str, qos: QosClass) -> float:  # noqa: ARG002
        return 0.0

    def crowding(self, topic: str, qos: QosClass, now: Nanos) -> float:  # noqa: ARG002
        return 0.0

    def carries(self, topic: str) -> bool:  # noqa: ARG002
        return False

    def reserved_needs(self) -> list[tuple[str, str]]:
        return []

    def can_reach(self, broker: str) -> bool:  # noqa: ARG002
        return False

    def publish(self, topic: str, body: bytes, flags: int, qos: QosClass, now: Nanos) -> Published:  # noqa: ARG002
        return Published.ACCEPTED

    def subscribe(self, subscriber: str, topic_filter: str, durable: bool, now: Nanos) -> None:
        pass

    def unsubscribe(self, subscriber: str, topic_filter: str, now: Nanos) -> None:
        pass
