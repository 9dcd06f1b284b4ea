"""The core of the overlay as the MQTT server sees it.

Effects that the core returns are kept here until the end of the turn, which takes them.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace

from overlane.core.broker import OverlayBroker
from overlane.core.bundles import bundle_of
from overlane.core.config import BACKUP, EDGE, ROUTING
from overlane.core.events import Effect, Event, PublishResult, RenewInterest, SendToNeighbour, Subscribe, Unsubscribe
from overlane.core.qos import QosClass
from overlane.core.topic_cache import TopicCache
from overlane.core.units import Nanos


class CoreUplink:
    has_names = False

    def __init__(self, core: OverlayBroker, is_alone: bool) -> None:
        self._core = core
        self.is_alone = is_alone
        self.has_border = core.config.federation.leave is not None
        self._withheld: TopicCache[str, Sequence[str]] = TopicCache()
        self._carried: TopicCache[str, bool] = TopicCache()
        self._carried_of = -1
        self._effects: list[Effect] = []
        self.has_effects = False
        self.is_touched = True
        """Whether the core has had input from the server since the end of its turn."""
        # What the core is only asked about, it is asked directly.
        self.way_share, self.way_of = core.path_fullness, core.flow_key
        self.share_of, self.progress_of = core.fullness_of, core.progress_of
        self.crowding, self.can_reach = core.backpressure, core.can_reach
        self.reserved_interest, self.needs_size = core.reserved_interest, core.needs_size
        self.needing, self.carriers = core.needing, core.carriers
        self.bundle_of = bundle_of

    def take_effects(self) -> list[Effect]:
        """The effects of the core for all input of the server."""
        effects, self._effects = self._effects, []
        self.has_effects = False
        return effects

    def tell(self, event: Event, now: Nanos) -> None:
        """Something for the core; its effects are for the end of the turn."""
        self.is_touched = True
        self._effects += self._core.handle(event, now)
        self.has_effects = bool(self._effects)

    @property
    def is_edge(self) -> bool:
        return self._core.config.role == EDGE

    @property
    def is_routing(self) -> bool:
        return self._core.config.role in (ROUTING, BACKUP)

    @property
    def changes(self) -> int:
        return self._core.interest_changes

    def carries(self, topic: str) -> bool:
        if self._carried_of != self._core.interest_changes:
            self._forget_topics()
        found = self._carried.get(topic)
        if found is None:
            self._carried.make_room(topic)
            found = self._carried[topic] = self._core.carries(topic)
        return found

    def withheld_from(self, topic: str) -> Sequence[str]:
        if not self.has_border:
            return ()
        if self._carried_of != self._core.interest_changes:
            self._forget_topics()
        found = self._withheld.get(topic)
        if found is None:
            self._withheld.make_room(topic)
            found = self._withheld[topic] = self._core.withheld_from(topic)
        return found

    def _forget_topics(self) -> None:
        self._carried.clear()
        self._withheld.clear()
        self._carried_of = self._core.interest_changes

    def publish(
        self, topic: str, body: bytes, flags: int, qos: QosClass, now: Nanos, served: tuple[str, ...] = ()
    ) -> PublishResult:
        self.is_touched = True
        if qos.reservation > 0:
            # Apart from those that have asked for the reservation, to all others.
            rest = replace(qos, reservation=-qos.reservation)
            result = self._core.send(topic, body, now, flags, rest, served)
            if result is not PublishResult.ACCEPTED:
                return result
        return self._core.send(topic, body, now, flags, qos, served)

    def destinations(self, topic: str) -> Hashable:
        return self._core.destinations(topic)

    def is_subscribed(self, topic: str) -> bool:
        return self._core.is_subscribed(topic)

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
        self.is_touched = True
        return self._core.send_mixed_run(topics, encoded, count, flags, alone, qos, now)

    def send_to(self, peer: str, body: bytes, now: Nanos) -> bool:
        """To the lookup of sessions of a neighbour; False if it is not linked."""
        if not self._core.is_linked(peer):
            return False
        self.tell(SendToNeighbour(peer, body), now)
        return True

    def subscribe(self, subscriber: str, topic_filter: str, durable: bool, now: Nanos) -> None:
        self.tell(Subscribe(subscriber, topic_filter, durable), now)

    def mediates(self, topic: str) -> bool:  # noqa: ARG002
        return False

    def can_share(self, topic_filter: str) -> bool:  # noqa: ARG002
        return True

    def unsubscribe(self, subscriber: str, topic_filter: str, now: Nanos) -> None:
        self.tell(Unsubscribe(subscriber, topic_filter), now)

    def renew(self, topic_filter: str, now: Nanos) -> None:
        self.tell(RenewInterest(topic_filter), now)
