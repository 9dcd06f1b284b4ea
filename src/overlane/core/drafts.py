"""Drafts: what is published here, until the end of the turn.

A message joins the draft of the flow that its topic goes by, which is found out once and remembered until somebody's
needs change. At the end of the turn the source makes parcels of the drafts, and local subscribers get what is theirs.
What finds no room on its first link stays a draft for another turn. How full it is there, and how far readers
elsewhere are behind, is for publishers to stop and rest by.
"""

from collections.abc import Mapping
from itertools import chain, islice

from overlane.core.events import Deliver, Published
from overlane.core.neighbour import Neighbour
from overlane.core.outflow import Outflow
from overlane.core.parcel import MESSAGE_BYTES_MAX, Message
from overlane.core.qos import TOPICS_REMEMBERED, QosClass
from overlane.core.sink import Sink
from overlane.core.source import Source
from overlane.core.units import NEVER, Nanos

TopicEntry = tuple[Outflow | None, tuple[str, ...], int]
"""Of a topic: the flow that its messages join, its local subscribers, and the longest body."""

_ACCEPTED = Published.ACCEPTED


class Drafts:
    """`queue_bytes_max`: of the queue of a link, where nothing else is said of it."""

    def __init__(
        self, source: Source, sink: Sink, neighbours: Mapping[str, Neighbour], queue_bytes_max: int, now: Nanos
    ) -> None:
        self._source = source
        self._sink = sink
        self._neighbours = neighbours
        self._queue_bytes_max = queue_bytes_max
        self._topics: dict[str, TopicEntry] = {}
        self._carried: dict[tuple[str, QosClass], Outflow | None] = {}
        self._flushed_ns: Nanos = now
        self.open: list[Outflow] = []
        """Flows with a draft."""
        self.published: list[Message] = []
        """What local subscribers get."""

    def publish(self, topic: str, body: bytes, now: Nanos, flags: int = 0) -> Published:
        """A local publisher's message. Nothing leaves before `flush`."""
        entry = self._topics.get(topic)
        if entry is None:
            entry = self._enter(topic, now)
        flow, subscribers, body_max = entry
        if len(body) > body_max:
            return Published.TOO_LARGE
        if flow is None:
            self._source.keep_unsent(topic, body, flags, now)
        else:
            if flow.reliable:
                source = self._source
                source.room -= len(body)
                if source.room < 0:
                    source.room += len(body)
                    return Published.BUSY
            draft = flow.draft
            if not draft:
                self.open.append(flow)
            draft.append((topic, flags, body))
            flow.draft_bytes += len(body)
        if subscribers:
            self.published.append((topic, flags, body))
        return _ACCEPTED

    def send(self, topic: str, body: bytes, now: Nanos, flags: int, qos: QosClass) -> Published:
        """As `publish`, in a class of its own, by a driver that serves the local subscribers itself."""
        if len(body) > MESSAGE_BYTES_MAX - 4 * len(topic):
            return Published.TOO_LARGE
        key = topic, qos
        flow = self._carried.get(key)
        if flow is None:
            if key not in self._carried:
                if len(self._carried) >= TOPICS_REMEMBERED:
                    self._carried.clear()
                flow = self._carried[key] = self._source.flow_of(topic, now, qos)
            if flow is None:
                self._source.keep_unsent(topic, body, flags, now)
                return _ACCEPTED
        if flow.reliable:
            if flow.behind:
                flow = self._source.aside(flow, topic, now)
            self._source.room -= len(body)
            if self._source.room < 0:
                self._source.room += len(body)
                return Published.BUSY
        if not flow.draft:
            self.open.append(flow)
        flow.draft.append((topic, flags, body))
        flow.draft_bytes += len(body)
        return _ACCEPTED

    def flush(self, now: Nanos) -> bool:
        """The end of a turn; whether anything is to be done later about what was sent."""
        is_more_to_do = False
        if self.open:
            self._flushed_ns = now
            self.open, is_more_to_do = self._source.flush(self.open, now)
        if self.published:
            messages, self.published = self.published, []
            found = {topic: self._sink.subscribers(topic) for topic in dict.fromkeys(one[0] for one in messages)}
            self._sink.effects.append(Deliver(messages, found, self._source.me, 0, NEVER))
        return is_more_to_do

    def next_deadline(self) -> Nanos:
        """What has waited for room may go as soon as there is some."""
        if self.open and any(self._source.has_room(flow) for flow in self.open):
            return self._flushed_ns + 1
        return NEVER

    def _enter(self, topic: str, now: Nanos) -> TopicEntry:
        if len(self._topics) >= TOPICS_REMEMBERED:
            self._topics.clear()
        flow, subscribers = self._source.flow_of(topic, now), self._sink.subscribers(topic)
        entry = self._topics[topic] = flow, subscribers, MESSAGE_BYTES_MAX - 4 * len(topic)
        return entry

    def forget_topics(self) -> None:
        """Who gets which topic must be found out anew."""
        self._topics.clear()
        self._carried.clear()

    # How far the way and those at its end are behind

    def way_share(self, topic: str, qos: QosClass) -> float:
        """How full the queues are that messages of the topic join, with what waits to join them: from 0, 1 is full."""
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
        if found is None:
            return 0.0
        return self._source.way_share(found) + found.draft_bytes / self._queue_bytes_max

    def crowding(self, topic: str, qos: QosClass, now: Nanos) -> float:
        """How far readers elsewhere, or the way to them, are behind what is published here: from 0, not at all."""
        flow = self._carried.get((topic, qos))
        return 0.0 if flow is None else flow.crowding(topic, now)

    def carried_topics(self, topics_max: int) -> dict[tuple[QosClass, tuple[str, ...]], list[str]]:
        """Topics that lately went along each route, which has this class and these destinations; some of them."""
        found: dict[tuple[QosClass, tuple[str, ...]], list[str]] = {}
        sent = ((topic, flow) for (topic, _), flow in self._carried.items())
        published = ((topic, entry[0]) for topic, entry in self._topics.items())
        for topic, flow in islice(chain(sent, published), topics_max):
            if flow is not None:
                found.setdefault((flow.qos, flow.destinations), []).append(topic)
        return found
