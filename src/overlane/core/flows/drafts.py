"""Drafts: messages published here, until the end of the turn.

A message joins the draft of its topic's flow. The flow of a topic is looked up once and cached until the interest of
some broker changes. At the end of the turn the source makes parcels of the drafts, and local subscribers get theirs. A
draft without space on its first link stays for another turn. The fullness of that link, and the lag of subscribers at
other brokers, are the backpressure that slows down and stops publishers.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from itertools import chain, islice

from overlane.core.bundles import HANDOUT, group_of
from overlane.core.events import PublishResult
from overlane.core.flows.held_messages import HeldMessage, Served
from overlane.core.flows.outflow import Outflow
from overlane.core.flows.sink import Sink
from overlane.core.flows.source import Source
from overlane.core.gossip.edge_scope import EdgeScope
from overlane.core.limits import TOPIC_BYTES_MAX, fits
from overlane.core.links.neighbour import Neighbour
from overlane.core.qos import QosClass
from overlane.core.topic_cache import TopicCache
from overlane.core.units import NEVER, Nanos
from overlane.core.wire.mixed_run import MixedRun
from overlane.core.wire.parcel import MESSAGE_BYTES_MAX, Message

TopicEntry = tuple[Outflow | None, tuple[str, ...], int]
"""Of a topic: the flow that its messages join, its local subscribers, and the longest body."""

_ACCEPTED = PublishResult.ACCEPTED
_SHORT_CHARS = TOPIC_BYTES_MAX // 4


class Drafts:
    """`queue_bytes_max`: of the queue of a link, where nothing else is said of it."""

    def __init__(
        self, source: Source, sink: Sink, neighbours: Mapping[str, Neighbour], queue_bytes_max: int, now: Nanos
    ) -> None:
        self._source = source
        self._sink = sink
        self._neighbours = neighbours
        self._queue_bytes_max = queue_bytes_max
        self._topics: TopicCache[str, TopicEntry] = TopicCache()
        self._carried: TopicCache[tuple[str, QosClass], Outflow | None] = TopicCache()
        self._drafted: dict[str, Outflow] = {}
        """The reliable flow whose draft has the last message of a topic."""
        self._flushed_ns: Nanos = now
        self.scope: EdgeScope | None = None
        """Where this broker is an edge: which messages have to wait."""
        self.open: list[Outflow] = []
        """Flows with a draft."""
        self.published: list[Message] = []
        """Messages for local subscribers."""

    def publish(self, topic: str, body: bytes, now: Nanos, flags: int = 0) -> PublishResult:
        """A local publisher's message. Nothing leaves before `flush`."""
        entry = self._topics.get(topic)
        if entry is None:
            if self.scope is not None and self.waits(topic):
                return self._hold_published(topic, body, flags, now)
            entry = self._enter(topic, now)
        flow, subscribers, body_max = entry
        if len(body) > body_max:
            return PublishResult.TOO_LARGE
        if flow is None:
            self._source.keep_unsent(topic, body, flags, now)
        else:
            if flow.reliable:
                source = self._source
                source.room -= len(body)
                if source.room < 0:
                    source.room += len(body)
                    return PublishResult.BUSY
                if self._drafted.get(topic) is not flow:
                    self._change_flow(topic, flow, now)
            self._add(flow, (topic, flags, body))
        if subscribers:
            self.published.append((topic, flags, body))
        return _ACCEPTED

    def send(
        self,
        topic: str,
        body: bytes,
        now: Nanos,
        flags: int,
        qos: QosClass,
        served: Served = (),
        is_released: bool = False,
    ) -> PublishResult:
        """As `publish`, in a class of its own, by a driver that serves the local subscribers itself. `served`: returned
        with the message if it has to wait (HeldMessageSent). `is_released`: the message has waited."""
        chars = len(topic)
        if len(body) > MESSAGE_BYTES_MAX - 4 * chars or (chars > _SHORT_CHARS and not fits(topic, TOPIC_BYTES_MAX)):
            return PublishResult.TOO_LARGE
        flow = self._carried.get((topic, qos))
        if flow is None:
            if self.scope is not None and not is_released and self.waits(topic):
                return self._source.hold(topic, body, flags, qos, now, served)
            flow = self._flow_of(topic, qos, now)
            if flow is None:
                self._source.keep_unsent(topic, body, flags, now)
                return _ACCEPTED
        if flow.reliable:
            if flow.behind:
                flow = self._source.separate_flow(flow, topic, now)
            self._source.room -= len(body)
            if self._source.room < 0:
                self._source.room += len(body)
                return PublishResult.BUSY
            if self._drafted.get(topic) is not flow:
                self._change_flow(topic, flow, now)
        self._add(flow, (topic, flags, body))
        return _ACCEPTED

    def send_mixed_run(
        self,
        topics: Sequence[str],
        encoded: bytes,
        count: int,
        flags: int,
        alone: tuple[int, bytes] | None,
        qos: QosClass,
        now: Nanos,
    ) -> PublishResult:
        """As `send`, for messages that may join a mixed run (`mixed_run.py`). All topics have the same destinations,
        and `qos` keeps nothing. `alone`: flags and body of a single message, in case that no other joins it."""
        if len(encoded) > MESSAGE_BYTES_MAX:
            return PublishResult.TOO_LARGE
        flow = self._carried.get((topics[0], qos))
        if flow is None:
            if self.scope is not None and self.waits(topics[0]):
                return self._hold_mixed_run(topics, encoded, count, flags, alone, qos, now)
            for topic in topics:
                flow = self._flow_of(topic, qos, now)
            if flow is None:
                return _ACCEPTED
        flow.draft_bytes += len(encoded)
        if flow.mixed_run is None and not flow.draft:
            self.open.append(flow)
            if alone is not None:
                message = topics[0], *alone
                flow.draft.append(message)
                flow.joinable = message, flags, encoded
                return _ACCEPTED
        flow.open_mixed_run(flags, len(encoded)).add(topics, encoded, count, alone)
        return _ACCEPTED

    # Messages that wait until their destinations are known

    def waits(self, topic: str) -> bool:
        """Whether a message on the topic has to wait, at an edge; that it is published is noted."""
        if self.scope is None or topic.startswith(HANDOUT):
            return False
        if self.scope.must_wait(topic) or self._source.held.has(group_of(topic)):
            return True
        # Others of the group may have been sent; who gets this one may still be new. One that is sent already does not
        # wait for somebody who comes to need it.
        return (
            bool(self.scope.newcomers) and self._source.is_unsent(topic) and self._source.destinations.awaits_map(topic)
        )

    def _hold_published(self, topic: str, body: bytes, flags: int, now: Nanos) -> PublishResult:
        if not fits(topic, TOPIC_BYTES_MAX) or len(body) > MESSAGE_BYTES_MAX - 4 * len(topic):
            return PublishResult.TOO_LARGE
        result = self._source.hold(topic, body, flags, self._source.qos.of(topic), now)
        if result is _ACCEPTED and self._sink.subscribers(topic):
            self.published.append((topic, flags, body))
        return result

    def _hold_mixed_run(
        self,
        topics: Sequence[str],
        encoded: bytes,
        count: int,
        flags: int,
        alone: tuple[int, bytes] | None,
        qos: QosClass,
        now: Nanos,
    ) -> PublishResult:
        """Its topics need not have the same destinations when they are known: they are told apart."""
        mixed_run = MixedRun(flags)
        mixed_run.add(topics, encoded, count, alone)
        topic, flags, body = mixed_run.message()
        for one, its_flags, its_body in [(topic, flags, body)] if topic else self._sink.split(flags, body):
            self._source.hold(one, its_body, its_flags, qos, now)
        return _ACCEPTED

    def release_held(self, groups: Collection[int], now: Nanos) -> None:
        """Send waiting messages. Where some of a group have to wait on, topics of those that were sent are forgotten,
        or later messages on them would overtake others that still wait."""
        source = self._source

        def send(held: HeldMessage, may_wait: bool) -> PublishResult:
            if may_wait and not held.qos.reliable and source.destinations.awaits_map(held.topic):
                return PublishResult.BUSY
            taken_bytes = held.size if held.qos.reliable else 0
            source.room += taken_bytes
            result = self._send_held(held, now)
            if result is PublishResult.BUSY:
                source.room -= taken_bytes
            return result

        source.release_held(groups, send, now)
        if any(source.held.has(group) for group in groups):
            self.forget_topics()

    def _send_held(self, held: HeldMessage, now: Nanos) -> PublishResult:
        """One that has a deadline is a parcel of its own: the messages of a parcel have one age."""
        is_aged = held.qos.deadline_ns < NEVER and held.published_ns < now
        flow = self._flow_of(held.topic, held.qos, now) if is_aged else None
        if flow is not None and flow in self.open:
            self._seal_draft(flow, now)
        result = self.send(held.topic, held.body, now, held.flags, held.qos, is_released=True)
        if flow is not None and result is _ACCEPTED:
            # A reliable one may have joined a flow of its topic alone.
            self._seal_draft(self._drafted[held.topic] if flow.reliable else flow, now, held.published_ns)
        return result

    def _seal_draft(self, flow: Outflow, now: Nanos, published_ns: Nanos | None = None) -> None:
        """Before the end of the turn."""
        self.open.remove(flow)
        self._source.seal_draft(flow, now, published_ns)

    def _add(self, flow: Outflow, message: Message) -> None:
        if flow.mixed_run is not None:
            flow.close_mixed_run()
        elif not flow.draft:
            self.open.append(flow)
        flow.draft.append(message)
        flow.draft_bytes += len(message[2])

    def _flow_of(self, topic: str, qos: QosClass, now: Nanos) -> Outflow | None:
        key = topic, qos
        if key in self._carried:
            return self._carried[key]
        self._carried.make_room(topic)
        flow = self._carried[key] = self._source.flow_of(topic, now, qos)
        return flow

    def _change_flow(self, topic: str, flow: Outflow, now: Nanos) -> None:
        """A topic's reliable messages go here from now on. Those of this turn that went elsewhere are sealed before."""
        before = self._drafted.get(topic)
        if before is not None and before.draft:
            self._seal_draft(before, now)
        self._drafted[topic] = flow

    def flush(self, now: Nanos) -> bool:
        """The end of a turn; whether anything is to be done later about what was sent."""
        is_more_to_do = False
        if self._drafted:
            is_more_to_do = True
            self._drafted.clear()
        if self.open:
            self._flushed_ns = now
            self.open, is_more_to_do = self._source.flush(self.open, now)
        if self.published:
            messages, self.published = self.published, []
            found = {topic: self._sink.subscribers(topic) for topic in dict.fromkeys(one[0] for one in messages)}
            self._sink.deliver_own(messages, found)
        return is_more_to_do

    def next_deadline(self) -> Nanos:
        """Messages that wait for space may be sent as soon as there is some."""
        if self.open and any(self._source.has_room(flow) for flow in self.open):
            return self._flushed_ns + 1
        return NEVER

    def _enter(self, topic: str, now: Nanos) -> TopicEntry:
        self._topics.make_room(topic)
        flow, subscribers = self._source.flow_of(topic, now), self._sink.subscribers(topic)
        body_max = MESSAGE_BYTES_MAX - 4 * len(topic) if fits(topic, TOPIC_BYTES_MAX) else -1
        entry = self._topics[topic] = flow, subscribers, body_max
        return entry

    def forget_topics(self) -> None:
        """The destinations of topics must be computed again."""
        self._topics.clear()
        self._carried.clear()

    # Backpressure of the path and of remote subscribers

    def path_fullness(self, topic: str, qos: QosClass) -> float:
        """Fullness of the queues for the topic's messages, including waiting messages: from 0, 1 is full."""
        much = self._queue_bytes_max // 4
        for flow in self.open:
            if flow.draft_bytes > much:
                break
        else:
            for one in self._neighbours.values():
                if 4 * one.queue.bytes > one.queue.bytes_max:
                    break
            else:
                return 0.0  # as nearly always, and found out quickly
        found = self._carried.get((topic, qos))
        return 0.0 if found is None else self._fullness(found)

    def flow_key(self, topic: str, qos: QosClass) -> Hashable:
        """The same for topics that share a flow; None if this topic has none."""
        found = self._carried.get((topic, qos))
        return None if found is None else found.name

    def fullness_of(self, flow_key: Hashable) -> float:
        """As `path_fullness`, for a result of `flow_key`; 0 if that flow no longer exists."""
        found = self._source.flows.get(flow_key)  # type: ignore[call-overload]  # a name of no flow is found nowhere
        return 0.0 if found is None else self._fullness(found)

    def progress_of(self, flow_key: Hashable) -> int:
        """Bytes sent over the first links of the path; it grows while they send anything."""
        found = self._source.flows.get(flow_key)  # type: ignore[call-overload]
        return 0 if found is None else self._source.progress(found)

    def _fullness(self, flow: Outflow) -> float:
        return self._source.path_fullness(flow) + flow.draft_bytes / self._queue_bytes_max

    def backpressure(self, topic: str, qos: QosClass, now: Nanos) -> float:
        """Lag of remote subscribers, or of the path to them: from 0, none."""
        flow = self._carried.get((topic, qos))
        return 0.0 if flow is None else flow.backpressure(topic, now)

    def carried_topics(self, topics_max: int) -> dict[tuple[QosClass, tuple[str, ...]], list[str]]:
        """Some of the topics that recently used each route, by its class and destinations."""
        found: dict[tuple[QosClass, tuple[str, ...]], list[str]] = {}
        sent = ((topic, flow) for (topic, _), flow in self._carried.items())
        published = ((topic, entry[0]) for topic, entry in self._topics.items())
        for topic, flow in islice(chain(sent, published), topics_max):
            if flow is not None:
                for destinations in self._source.channels.ways_of(flow):
                    found.setdefault((flow.qos, destinations), []).append(topic)
        return found
