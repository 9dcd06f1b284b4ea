"""The overlay as pubsub sees it: it carries messages and filters, and knows nothing of sessions."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol

from overlane.core.events import PublishResult
from overlane.core.qos import QosClass
from overlane.core.units import Nanos
from overlane.core.wire.mixed_run import MixedRun


class Uplink(Protocol):
    @property
    def is_alone(self) -> bool:
        """Whether there are no other brokers at all."""

    @property
    def is_edge(self) -> bool: ...

    @property
    def is_routing(self) -> bool: ...

    @property
    def has_names(self) -> bool:
        """Whether topics have other names in the overlay than here."""

    def mediates(self, topic: str) -> bool:
        """Whether messages of the topic may change on their way to others, so that they are looked at one by one."""

    def can_share(self, topic_filter: str) -> bool:
        """Whether a shared subscription to a filter can have members at other brokers."""

    def bundle_of(self, topic: str) -> int | None: ...

    def carriers(self) -> Mapping[int, str]:
        """Bundles, and the routing brokers that carry them."""

    def needing(self, topic: str) -> Sequence[str]:
        """The other brokers that need a topic."""

    @property
    def changes(self) -> int:
        """Grows whenever another broker needs something else than before."""

    def way_share(self, topic: str, qos: QosClass) -> float:
        """How full the first queues are that messages of the topic join on their way: from 0, 1 is full."""

    def way_of(self, topic: str, qos: QosClass) -> Hashable:
        """What all topics have in common whose messages join the same queues."""

    def share_of(self, way: Hashable) -> float:
        """As `way_share`, of a way."""

    def progress_of(self, way: Hashable) -> int:
        """Grows whenever something has left on a way."""

    def crowding(self, topic: str, qos: QosClass, now: Nanos) -> float:
        """How far readers elsewhere are behind what was published here on the topic, or the way to them: from 0, not at
        all, to 1 where their queues are full, and somewhat more where more waits for them."""

    def carries(self, topic: str) -> bool:
        """Whether another broker needs the topic, or its history is kept for late subscribers."""

    @property
    def has_border(self) -> bool:
        """Whether rules say what may leave this broker."""

    def withheld_from(self, topic: str) -> Sequence[str]:
        """The other brokers that need the topic, and may not get it from here."""

    def reserved_interest(self) -> Sequence[tuple[str, str]]:
        """What other brokers need under names that begin with `$`, as far as it was known at the start: names and
        brokers. Changes are reported (`PubSub.interest_changed`)."""

    def send_to(self, peer: str, body: bytes, now: Nanos) -> bool:
        """Bytes for the session lookup of a neighbour; False, and nothing happened, if it is not linked."""

    def needs_size(self) -> tuple[int, int]:
        """Number and bytes of the filters that this broker has announced to others."""

    def can_reach(self, broker: str) -> bool: ...

    def destinations(self, topic: str) -> Hashable:
        """What all topics have in common whose messages go to the same other brokers."""

    def is_subscribed(self, topic: str) -> bool:
        """Whether this broker has announced a filter for the topic to the overlay."""

    def publish(
        self, topic: str, body: bytes, flags: int, qos: QosClass, now: Nanos, served: tuple[str, ...] = ()
    ) -> PublishResult:
        """`served`: shared subscriptions that get the message in other ways, in case that it has to wait."""

    def publish_mixed_run(
        self,
        topics: Sequence[str],
        encoded: bytes,
        count: int,
        flags: int,
        alone: tuple[int, bytes] | None,
        qos: QosClass,
        now: Nanos,
    ) -> PublishResult:
        """Messages that others may join (`core.wire.mixed_run`), of topics with the same destinations, in a class that
        keeps nothing. `alone`: flags and body of a single one, in case that no other joins it."""

    def subscribe(self, subscriber: str, topic_filter: str, durable: bool, now: Nanos) -> None: ...

    def unsubscribe(self, subscriber: str, topic_filter: str, now: Nanos) -> None: ...

    def renew(self, topic_filter: str, now: Nanos) -> None:
        """Send this edge the retained messages of the filter, even if the filter was needed before."""


class Alone:
    """No overlay at all."""

    is_alone = True
    is_edge = False
    is_routing = False
    changes = 0
    has_border = False
    has_names = False

    def mediates(self, topic: str) -> bool:  # noqa: ARG002
        return False

    def can_share(self, topic_filter: str) -> bool:  # noqa: ARG002
        return True

    def bundle_of(self, topic: str) -> int | None:  # noqa: ARG002
        return None

    def carriers(self) -> Mapping[int, str]:
        return {}

    def withheld_from(self, topic: str) -> Sequence[str]:  # noqa: ARG002
        return ()

    def needing(self, topic: str) -> Sequence[str]:  # noqa: ARG002
        return ()

    def way_share(self, topic: str, qos: QosClass) -> float:  # noqa: ARG002
        return 0.0

    def way_of(self, topic: str, qos: QosClass) -> Hashable:  # noqa: ARG002
        return None

    def share_of(self, way: Hashable) -> float:  # noqa: ARG002
        return 0.0

    def progress_of(self, way: Hashable) -> int:  # noqa: ARG002
        return 0

    def crowding(self, topic: str, qos: QosClass, now: Nanos) -> float:  # noqa: ARG002
        return 0.0

    def carries(self, topic: str) -> bool:  # noqa: ARG002
        return False

    def reserved_interest(self) -> Sequence[tuple[str, str]]:
        return ()

    def send_to(self, peer: str, body: bytes, now: Nanos) -> bool:  # noqa: ARG002
        return False

    def needs_size(self) -> tuple[int, int]:
        return 0, 0

    def can_reach(self, broker: str) -> bool:  # noqa: ARG002
        return False

    def publish(
        self,
        topic: str,  # noqa: ARG002
        body: bytes,  # noqa: ARG002
        flags: int,  # noqa: ARG002
        qos: QosClass,  # noqa: ARG002
        now: Nanos,  # noqa: ARG002
        served: tuple[str, ...] = (),  # noqa: ARG002
    ) -> PublishResult:
        return PublishResult.ACCEPTED

    def destinations(self, topic: str) -> Hashable:  # noqa: ARG002
        return ()

    def is_subscribed(self, topic: str) -> bool:  # noqa: ARG002
        return True

    def publish_mixed_run(
        self,
        topics: Sequence[str],
        encoded: bytes,
        count: int,
        flags: int,
        alone: tuple[int, bytes] | None,
        qos: QosClass,
        now: Nanos,
    ) -> PublishResult:
        mixed_run = MixedRun(flags)
        mixed_run.add(topics, encoded, count, alone)
        topic, flags, body = mixed_run.message()
        return self.publish(topic, body, flags, qos, now)

    def subscribe(self, subscriber: str, topic_filter: str, durable: bool, now: Nanos) -> None:
        pass

    def unsubscribe(self, subscriber: str, topic_filter: str, now: Nanos) -> None:
        pass

    def renew(self, topic_filter: str, now: Nanos) -> None:
        pass
