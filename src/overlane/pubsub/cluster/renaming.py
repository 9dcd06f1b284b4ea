"""The uplink of a broker whose domain has topic names of its own: the overlay under local names (`local_names`).

To the service it is an uplink like any other. What the overlay brings passes `Renaming` on its way to the service
(`deliver`, `interest`, `held`). A broker without such names has the plain uplink, and nothing here runs.

A topic without a name in the overlay stays at this broker, and what has no local name is not delivered here. Filters
are translated to filters that may match somewhat more (`DomainNames.filters_to_overlay`); several filters of one
subscriber may become the same one, so they are counted.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Protocol

from overlane.core.events import Deliver, HeldMessageSent, PublishResult, Reception
from overlane.core.qos import QosClass
from overlane.core.units import Nanos
from overlane.core.wire.parcel import MIXED_RUN, Message
from overlane.pubsub.cluster import envelope
from overlane.pubsub.cluster.arrivals import Mixed
from overlane.pubsub.cluster.local_names import LocalNames
from overlane.pubsub.cluster.names import SHARE, read_share_name, tag_of
from overlane.pubsub.cluster.uplink import Uplink

RUN_HEAD_BYTES = 4
"""Of the number of messages in front of a run."""

Receive = Callable[[Deliver, Nanos, list[Mixed] | None], Reception]


class RenameRun(Protocol):
    def __call__(
        self,
        topic: str,
        flags: int,
        body: bytes,
        name_of: Callable[[str], str | None],
        properties_of: Callable[[bytes], bytes],
    ) -> tuple[Sequence[str], Sequence[Message]]:
        """As `mqtt.run_names.rename_run`."""


class RenamedUplink:
    def __init__(self, uplink: Uplink, local_names: LocalNames, rename_run: RenameRun) -> None:
        self._uplink = uplink
        self._names = local_names
        self._rename_run = rename_run
        self._announced: dict[tuple[str, str], tuple[str, ...]] = {}
        """By subscriber and local filter, what the overlay was told."""
        self._holders: dict[tuple[str, str], int] = {}
        """By subscriber and filter of the overlay, the number of local filters."""
        self.share_of, self.progress_of = uplink.share_of, uplink.progress_of
        self.send_to, self.needs_size = uplink.send_to, uplink.needs_size
        self.can_reach, self.carriers = uplink.can_reach, uplink.carriers

    has_names = True

    @property
    def is_alone(self) -> bool:
        return self._uplink.is_alone

    @property
    def is_edge(self) -> bool:
        return self._uplink.is_edge

    @property
    def is_routing(self) -> bool:
        return self._uplink.is_routing

    @property
    def changes(self) -> int:
        return self._uplink.changes

    # Questions about topics

    def mediates(self, topic: str) -> bool:
        found = self._names.to_overlay(topic)
        return found is not None and self._uplink.mediates(found)

    def can_share(self, topic_filter: str) -> bool:
        return self._names.names.exact_to_overlay(topic_filter) is not None

    def bundle_of(self, topic: str) -> int | None:
        found = self._names.to_overlay(topic)
        return None if found is None else self._uplink.bundle_of(found)

    def needing(self, topic: str) -> Sequence[str]:
        found = self._names.to_overlay(topic)
        return () if found is None else self._uplink.needing(found)

    @property
    def has_border(self) -> bool:
        return self._uplink.has_border

    def withheld_from(self, topic: str) -> Sequence[str]:
        found = self._names.to_overlay(topic)
        return () if found is None else self._uplink.withheld_from(found)

    def carries(self, topic: str) -> bool:
        found = self._names.to_overlay(topic)
        return found is not None and self._uplink.carries(found)

    def is_subscribed(self, topic: str) -> bool:
        found = self._names.to_overlay(topic)
        return found is not None and self._uplink.is_subscribed(found)

    def destinations(self, topic: str) -> Hashable:
        found = self._names.to_overlay(topic)
        return () if found is None else self._uplink.destinations(found)

    def way_share(self, topic: str, qos: QosClass) -> float:
        found = self._names.to_overlay(topic)
        return 0.0 if found is None else self._uplink.way_share(found, qos)

    def way_of(self, topic: str, qos: QosClass) -> Hashable:
        return self._uplink.way_of(self._names.to_overlay(topic) or topic, qos)

    def crowding(self, topic: str, qos: QosClass, now: Nanos) -> float:
        found = self._names.to_overlay(topic)
        return 0.0 if found is None else self._uplink.crowding(found, qos, now)

    # Messages

    def publish(
        self, topic: str, body: bytes, flags: int, qos: QosClass, now: Nanos, served: tuple[str, ...] = ()
    ) -> PublishResult:
        """A topic without a name in the overlay goes to no other broker."""
        names, uplink = self._names, self._uplink
        if flags & envelope.RUN_MASK and not topic.startswith("$"):
            _, carried = self._rename_run(topic, flags, body, names.to_overlay, names.properties_to_overlay)
            results = [
                uplink.publish(one, its_body, its_flags, qos, now, served) for one, its_flags, its_body in carried
            ]
            return max(results, default=PublishResult.ACCEPTED)
        found = names.to_overlay(topic)
        if found is None:
            return PublishResult.ACCEPTED
        return uplink.publish(found, names.body_to_overlay(topic, flags, body), flags, qos, now, served)

    def publish_mixed_run(
        self,
        topics: Sequence[str],  # noqa: ARG002 - they are in the run too
        encoded: bytes,
        count: int,
        flags: int,
        alone: tuple[int, bytes] | None,  # noqa: ARG002 - it is made from the run
        qos: QosClass,
        now: Nanos,
    ) -> PublishResult:
        names, uplink = self._names, self._uplink
        run = count.to_bytes(RUN_HEAD_BYTES) + encoded
        found, carried = self._rename_run(MIXED_RUN, flags, run, names.to_overlay, names.properties_to_overlay)
        results: list[PublishResult] = []
        for topic, its_flags, body in carried:
            if topic == MIXED_RUN:
                packets = body[RUN_HEAD_BYTES:]
                results.append(uplink.publish_mixed_run(found, packets, len(found), its_flags, None, qos, now))
            else:
                results.append(uplink.publish(topic, body, its_flags, qos, now))
        return max(results, default=PublishResult.ACCEPTED)

    # Filters

    def subscribe(self, subscriber: str, topic_filter: str, durable: bool, now: Nanos) -> None:
        for one in self._note(subscriber, topic_filter):
            self._uplink.subscribe(subscriber, one, durable, now)

    def renew(self, topic_filter: str, now: Nanos) -> None:
        for one in self._names.filters_to_overlay(topic_filter):
            self._uplink.renew(one, now)

    def _note(self, subscriber: str, topic_filter: str) -> tuple[str, ...]:
        known = self._announced.get((subscriber, topic_filter))
        if known is not None:
            return known
        found = self._announced[subscriber, topic_filter] = self._names.filters_to_overlay(topic_filter)
        for one in found:
            self._holders[subscriber, one] = self._holders.get((subscriber, one), 0) + 1
            if topic_filter.startswith(SHARE):
                self._names.note_group(topic_filter, one, True)
        return found

    def unsubscribe(self, subscriber: str, topic_filter: str, now: Nanos) -> None:
        found = self._note(subscriber, topic_filter)  # of an earlier run it may not be known
        del self._announced[subscriber, topic_filter]
        for one in found:
            if topic_filter.startswith(SHARE):
                self._names.note_group(topic_filter, one, False)
            self._holders[subscriber, one] -= 1
            if not self._holders[subscriber, one]:
                del self._holders[subscriber, one]
                self._uplink.unsubscribe(subscriber, one, now)

    def reserved_interest(self) -> Sequence[tuple[str, str]]:
        announced = self._uplink.reserved_interest()
        return [(one, broker) for name, broker in announced for one in self.interest(name, broker, True)]

    # What the overlay brings

    def interest(self, topic_filter: str, broker: str, is_needed: bool) -> Iterator[str]:
        """The local filters for one that another broker needs, or needs no more."""
        for one in self._names.filters_to_local(topic_filter):
            if topic_filter.startswith(SHARE):
                _, at, tag, its = read_share_name(topic_filter)
                if at != broker or tag != tag_of(its):
                    continue
                self._names.note_group(one, topic_filter, is_needed)
            yield one

    def held(self, held: HeldMessageSent) -> HeldMessageSent | None:
        """Under its local name; None if it has none."""
        topic = held.topic if held.flags & envelope.RUN_MASK else self._names.to_local(held.topic)
        if topic is None:
            return None
        return held._replace(topic=topic, body=self._names.body_to_local(held.topic, held.flags, held.body))

    def receiver(self, receive: Receive) -> Receive:
        """Receives messages under the names of the overlay, for the service."""

        def deliver(effect: Deliver, now: Nanos, opened: list[Mixed] | None = None) -> Reception:
            local, topics = self._to_local(effect)
            mixed: list[Mixed] | None = None if opened is None else []
            reception = receive(local, now, mixed)
            if opened is not None and mixed:
                opened += [Mixed([self._names.to_overlay(one) or one for one in topics_], sizes)
                           for topics_, sizes in mixed]  # fmt: skip
            if not reception.behind:
                return reception
            behind = {topics.get(topic, topic): percent for topic, percent in reception.behind.items()}
            return Reception(reception.is_taken, behind)

        return deliver

    def _to_local(self, effect: Deliver) -> tuple[Deliver, Mapping[str, str]]:
        """What has been brought, under local names, and the names of the overlay for these."""
        names = self._names
        messages: list[Message] = []
        subscribers: dict[str, tuple[str, ...]] = {}
        topics: dict[str, str] = {}
        for topic, flags, body in effect.messages:
            receivers = effect.subscribers.get(topic)
            if receivers is None:
                continue
            if flags & envelope.RUN_MASK and not topic.startswith("$"):
                brought = self._run_to_local(topic, flags, body)
            else:
                found = names.to_local(topic)
                brought = [] if found is None else [(found, flags, names.body_to_local(topic, flags, body))]
            for one, its_flags, its_body in brought:
                messages.append((one, its_flags, its_body))
                subscribers[one] = receivers
                if one != MIXED_RUN:
                    topics[one] = topic
        return effect._replace(messages=messages, subscribers=subscribers), topics

    def _run_to_local(self, topic: str, flags: int, body: bytes) -> Sequence[Message]:
        names = self._names
        try:
            return self._rename_run(topic, flags, body, names.to_local, names.properties_to_local)[1]
        except (ValueError, IndexError):
            # The service refuses it, and counts that.
            return [(topic, flags, body)] if topic == MIXED_RUN or names.to_local(topic) is not None else []
