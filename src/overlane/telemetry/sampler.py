"""The sampler: once per second the counters and queue depths of the broker become rows.

It samples at whole seconds of the clock, so that the seconds of different brokers coincide. What grows with the number
of topics or clients is read in pieces, between which the event loop runs; all clients are read so rarely that it costs
at most a hundredth of the time.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nlargest
from itertools import islice
from time import monotonic_ns, time_ns
from typing import Protocol, TypeVar

from overlane.core.broker import OverlayBroker
from overlane.core.links.link_view import LinkStatus
from overlane.core.units import SECOND, Nanos
from overlane.mqtt.server import MqttServer
from overlane.pubsub.sessions.session import Session
from overlane.telemetry.file_rotation import DAY
from overlane.telemetry.flow_rates import FlowRates
from overlane.telemetry.rows import Event, EventKind, Interest, LinkSample, QueueDepth, QueueKind, Row
from overlane.telemetry.topic_rates import TopicRates

PIECE = 500
CLIENTS_SHOWN = 20
SHARE_OF_TIME = 100
"""A look at all clients may take one in so many nanoseconds."""

Thing = TypeVar("Thing")


class Counted(Protocol):
    """A connection to a neighbour."""

    @property
    def bytes_in(self) -> int: ...
    @property
    def bytes_out(self) -> int: ...


class Neighbours(Protocol):
    """The broker's side of the overlay."""

    @property
    def neighbours(self) -> list[str]: ...
    @property
    def links(self) -> Mapping[str, Counted]: ...


class Sampler:
    def __init__(
        self,
        server: MqttServer,
        core: OverlayBroker,
        overlay: Neighbours,
        rates: TopicRates,
        add: Callable[[Row], None],
        wall: Callable[[], Nanos] = time_ns,
        now: Callable[[], Nanos] = monotonic_ns,
    ) -> None:
        self._server = server
        self._core = core
        self._overlay = overlay
        self._rates = rates
        self._add = add
        self._wall = wall
        self._now = now
        self._last_ns = now()
        self._link_bytes: dict[str, tuple[Counted, int, int]] = {}
        self._told: Counter[tuple[str, str]] = Counter()
        """What was counted, by kind and reason, up to the last look."""
        self._clients_due_ns = self._last_ns
        self._flow_rates = FlowRates(server.advertising)
        self._interests: dict[tuple[str, str], int] = {}
        self._interests_of: tuple[int, int] = (-1, -1)

    async def wait_for_second(self) -> None:
        """Until the next whole second of the clock."""
        await asyncio.sleep((SECOND - self._wall() % SECOND) / SECOND)

    async def sample(self) -> None:
        now = self._now()
        at_ns, interval_ns = self._wall(), now - self._last_ns
        self._last_ns = now
        self._add_all(self._links(at_ns, interval_ns))
        self._add_all(self._queues(at_ns))
        self._add_all(self._counted(at_ns))
        self._add_all(self._flow_rates.rows(at_ns, now))
        for topics in _pieces(self._rates.topics()):
            self._add_all(self._rates.rows(topics, at_ns, interval_ns))
            await asyncio.sleep(0)
        if now >= self._clients_due_ns:
            await self._look_at_clients(at_ns)
            self._clients_due_ns = now + SHARE_OF_TIME * (self._now() - now)

    def _add_all(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._add(row)

    # Links

    def _links(self, at_ns: Nanos, interval_ns: Nanos) -> Iterator[LinkSample]:
        known = {view.peer: view for view in self._core.link_views()}
        for peer in sorted(known.keys() | set(self._overlay.neighbours)):
            view = known.get(peer)
            bytes_in, bytes_out = self._traffic(peer)
            is_measured = view is not None and view.is_measured
            yield LinkSample(
                at_ns,
                interval_ns,
                peer,
                _condition(view),
                view.latency_ns if view is not None and is_measured else None,
                view.jitter_ns if view is not None and is_measured else None,
                view.loss_millionths / 1e6 if view is not None and is_measured else None,
                view.queue_parcels if view is not None else 0,
                view.queue_bytes if view is not None else 0,
                view.queue_bytes_max if view is not None else 0,
                bytes_in,
                bytes_out,
            )

    def _traffic(self, peer: str) -> tuple[int, int]:
        """Bytes since the last look; those of a connection that has ended meanwhile are not known any more."""
        link = self._overlay.links.get(peer)
        if link is None:
            self._link_bytes.pop(peer, None)
            return 0, 0
        before = self._link_bytes.get(peer)
        self._link_bytes[peer] = link, link.bytes_in, link.bytes_out
        if before is None or before[0] is not link:
            return link.bytes_in, link.bytes_out
        return link.bytes_in - before[1], link.bytes_out - before[2]

    # Queues

    def _queues(self, at_ns: Nanos) -> Iterator[QueueDepth]:
        retained = self._server.state.retained
        yield QueueDepth(at_ns, QueueKind.RETAINED, None, len(retained), retained.bytes, retained.limits.retained_bytes)
        owed = self._core.counters["retained_bytes"]
        yield QueueDepth(at_ns, QueueKind.UNACKNOWLEDGED, None, None, owed, self._core.config.retention_bytes_max)
        for view in self._core.link_views():
            yield QueueDepth(
                at_ns, QueueKind.LINK, view.peer, view.queue_parcels, view.queue_bytes, view.queue_bytes_max
            )

    async def _look_at_clients(self, at_ns: Nanos) -> None:
        state = self._server.state
        day, changes = at_ns // DAY, state.subscriptions.changes
        is_news = self._interests_of != (day, changes)
        messages = size_bytes = unsent_bytes = 0
        deepest: list[tuple[int, int, str]] = []
        interests: Counter[tuple[str, str]] = Counter()
        for sessions in _pieces(list(state.sessions.values())):
            for session in sessions:
                window = session.window
                unsent_bytes += 0 if session.consumer is None else session.consumer.backlog_bytes
                if count := len(window):
                    messages += count
                    size_bytes += window.bytes
                    deepest.append((window.bytes, count, session.client_id))
                if is_news:
                    interests.update(_filters(session))
            deepest = nlargest(CLIENTS_SHOWN, deepest)
            await asyncio.sleep(0)
        self._add(QueueDepth(at_ns, QueueKind.CLIENTS, None, messages, size_bytes, None))
        self._add(QueueDepth(at_ns, QueueKind.UNSENT, None, None, unsent_bytes, None))
        for depth, count, client_id in deepest:
            self._add(QueueDepth(at_ns, QueueKind.CLIENT, client_id, count, depth, state.limits.queue_bytes))
        if is_news:
            self._tell_interests(interests, at_ns, is_new_day=self._interests_of[0] != day)
            self._interests_of = day, changes

    def _tell_interests(self, interests: Mapping[tuple[str, str], int], at_ns: Nanos, is_new_day: bool) -> None:
        before = self._interests
        for (topic_filter, group), count in interests.items():
            if is_new_day or before.get((topic_filter, group)) != count:
                self._add(Interest(at_ns, topic_filter, group, count))
        for topic_filter, group in before.keys() - interests.keys():
            self._add(Interest(at_ns, topic_filter, group, 0))
        self._interests = dict(interests)

    # What is only counted

    def _counted(self, at_ns: Nanos) -> Iterator[Event]:
        counters, core = self._server.counters, self._core.counters
        now: dict[tuple[str, str], int] = {}
        now |= {(EventKind.CLIENT_DROPPED, why.value): count for why, count in counters.dropped.items()}
        now |= {(EventKind.CLIENT_REFUSED, why.value): count for why, count in counters.refused.items()}
        for name, count in core.items():
            if name.endswith("_dropped") or name in ("violations", "refused_at_border"):
                now[EventKind.OVERLAY_DROPPED, name.removesuffix("_dropped").replace("_", " ")] = count
        yield from self.told(now, at_ns)

    def told(self, now: Mapping[tuple[str, str], int], at_ns: Nanos) -> Iterator[Event]:
        """An event for everything that was counted further, by kind and reason."""
        for (kind, reason), count in sorted(now.items()):
            if more := count - self._told[kind, reason]:
                self._told[kind, reason] = count
                yield Event(at_ns, kind, reason=reason, times=more)


def _condition(view: LinkStatus | None) -> str:
    return view.state.name.lower() if view is not None and view.is_open else "down"


def _filters(session: Session) -> Iterator[tuple[str, str]]:
    return ((one.filter, one.group) for one in session.subscriptions.values())


def _pieces(things: Iterable[Thing]) -> Iterator[list[Thing]]:
    rest = iter(things)
    while piece := list(islice(rest, PIECE)):
        yield piece
