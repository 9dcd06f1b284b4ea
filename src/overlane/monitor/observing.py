"""Observing: from what the brokers of an overlay answer to pictures of it, and to what happened.

Each look is told the time, and of every broker what it answered, or why it did not. Both ends of a link tell of it; the
link is as bad as the worse of them says. What happened at the brokers they tell themselves, with causes; that a broker
is lost or back only somebody outside can tell, which is us. Nothing here reads a clock or asks anybody.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from overlane.core.units import MS, NEVER
from overlane.monitor.figures import AgesGrowth, Growth, Smoothing, TopicLedger
from overlane.monitor.picture import (
    DROPPED,
    PATHS_SHOWN,
    TOPICS_SHOWN,
    Broker,
    Change,
    Link,
    Picture,
    Route,
    Topic,
    Way,
    difference,
    link_name,
    rounded,
    worse,
)
from overlane.monitor.timeline import Timeline
from overlane.network.schema import Network
from overlane.node.tally import Rows
from overlane.node.views import DeliveryList, EmulationView, EventView, GlanceView, LinkView, RouteView

OTHER_TOPICS = "(other topics)"
"""What topics are called that no filter of the network file matches."""
MISSES_MAX = 1
"""So many times in a row a broker may keep silent before it is lost. One that refuses connections is lost at once."""

Answer = GlanceView | str
"""What a broker answered, or why it did not."""


@dataclass(slots=True)
class _Known:
    """What is known of one broker."""

    glance: GlanceView | None = None
    why: str = ""
    misses: int = 0
    is_lost: bool = False
    event: int = 0
    cpu: float = 0.0
    cpu_s: float = 0.0
    cpu_at_s: float = 0.0


class Observer:
    """`picture` is the newest; what is put into the timeline is told with the next look."""

    def __init__(self, network: Network, at_s: float = 0.0) -> None:
        self._rows = Rows(network)
        self._network = network
        self._places = {broker.name: broker for broker in network.brokers}
        self._known: dict[str, _Known] = {name: _Known() for name in self._places}
        self._ledgers: dict[str, TopicLedger] = {topic.filter: TopicLedger() for topic in network.topics}
        self._arrivals: dict[str, TopicLedger] = {}
        self._growth, self._ages = Growth(), AgesGrowth()
        self._rates = Smoothing()
        self.timeline = Timeline()
        self.picture = Picture(at_s=at_s)
        self.picture = self._draw(at_s)

    def after(self, broker: str) -> int:
        """The number of the last event of a broker that is known: it need not be asked for earlier ones."""
        return self._known[broker].event

    @property
    def is_answered(self) -> bool:
        """Whether any broker answers."""
        return any(known.glance is not None and not known.is_lost for known in self._known.values())

    def look(self, at_s: float, answers: Mapping[str, Answer]) -> Change:
        """What is different from the last look."""
        for name, answer in sorted(answers.items()):
            if isinstance(answer, GlanceView):
                self._heard(name, answer, at_s)
            else:
                self._missed(name, answer, at_s)
        for ledger in (*self._ledgers.values(), *self._arrivals.values()):
            ledger.look(at_s)
        fresh = self._draw(at_s)
        self.timeline.measured(at_s, fresh.links)
        change = difference(self.picture, fresh, self.timeline.take())
        self.picture = fresh
        return change

    # Brokers

    def _heard(self, name: str, glance: GlanceView, at_s: float) -> None:
        known, broker = self._known[name], glance.broker
        before = known.glance
        is_new_life = before is not None and before.broker.incarnation != broker.incarnation
        if known.is_lost:
            self.timeline.broker(at_s, "good", name, "is back, restarted" if is_new_life else "answers again")
        elif is_new_life:
            self.timeline.broker(at_s, "warning", name, "was restarted")
        if before is not None and broker.state == "draining" and before.broker.state != "draining":
            self.timeline.broker(at_s, "warning", name, "shuts down")
        if is_new_life or before is None:
            known.event, known.cpu = 0, 0.0
        else:
            past_s = at_s - known.cpu_at_s
            known.cpu = max(0.0, broker.process.cpu_s - known.cpu_s) / past_s if past_s > 0 else 0.0
        known.cpu_s, known.cpu_at_s = broker.process.cpu_s, at_s
        for event in glance.events.items:
            if event.number > known.event:
                self._tell(name, event, at_s - event.ago_s, is_old=before is None)
        known.event = max(known.event, glance.events.newest)
        known.glance, known.why, known.misses, known.is_lost = glance, "", 0, False
        self._count(name, broker.incarnation, glance.deliveries)

    def _missed(self, name: str, why: str, at_s: float) -> None:
        known = self._known[name]
        known.misses += 1
        known.why = why
        if known.glance is None or known.is_lost:
            return
        if known.misses > MISSES_MAX or "refused" in why:
            known.is_lost = True
            self.timeline.broker(at_s, "bad", name, "is lost", why)

    def _broker(self, name: str) -> Broker:
        place, known = self._places.get(name), self._known.get(name)
        latitude, longitude = (place.latitude, place.longitude) if place is not None else (None, None)
        if known is None or known.glance is None:
            why = known.why if known is not None else "not in the network file: it is not asked"
            return Broker(latitude=latitude, longitude=longitude, state="unknown", why=why)
        told = known.glance.broker
        if known.is_lost:
            return Broker(
                latitude=latitude, longitude=longitude, state="lost", why=known.why, incarnation=told.incarnation
            )
        arrivals = self._arrivals.get(name)
        return Broker(
            latitude=latitude,
            longitude=longitude,
            state=told.state,
            why="; ".join(told.not_ready),
            incarnation=told.incarnation,
            clients=told.clients,
            subscriptions=told.subscriptions,
            in_hz=rounded(told.rates.messages_in),
            out_hz=rounded(told.rates.messages_out),
            queue_messages=told.queues.messages,
            dropped=sum(told.dropped.values()) + sum(told.overlay.get(what, 0) for what in DROPPED),
            lag_ms=rounded(told.loop.lag_max_us / 1000, 2),
            cpu=round(known.cpu, 2),
            memory_mib=told.process.memory_bytes >> 20,
            in_time=arrivals.in_time_lately() if arrivals is not None else None,
            address=told.listeners.get("mqtt", ""),
        )

    # Links

    def _links(self, at_s: float) -> dict[str, Link]:
        pairs: dict[str, tuple[str, str]] = {}
        ways: dict[tuple[str, str], Way] = {}
        for link in self._network.links:
            one, other = sorted(link.ends)
            pairs[link_name(one, other)] = one, other
        for name, known in self._known.items():
            if known.glance is not None and not known.is_lost:
                for view in known.glance.links:
                    one, other = sorted((name, view.peer))
                    pairs[link_name(one, other)] = one, other
                    ways[name, view.peer] = self._way(name, view, at_s)
        links = {}
        for name, (one, other) in pairs.items():
            there, back = ways.get((one, other), Way()), ways.get((other, one), Way())
            links[name] = Link(ends=(one, other), state=worse(there.state, back.state), ways=(there, back))
        return links

    def _way(self, sender: str, view: LinkView, at_s: float) -> Way:
        return Way(
            state=view.state,
            latency_ms=None if view.latency_ms is None else rounded(view.latency_ms),
            jitter_ms=None if view.jitter_ms is None else round(view.jitter_ms, 2),
            loss=None if view.loss is None else rounded(view.loss, 2),
            rate_bps=self._rates.of((sender, view.peer), 8 * view.bytes_out, at_s),
            queue_bytes=view.queue_bytes,
            queue_bytes_max=view.queue_bytes_max,
            emulated=_emulated(view.emulation),
        )

    # Routes and topics

    def _routes(self) -> Iterator[tuple[str, Route]]:
        for name, known in self._known.items():
            if known.glance is not None and not known.is_lost:
                for view in known.glance.routes:
                    topics = tuple(topic for topic in view.topics if not topic.startswith("$"))
                    if topics or not view.topics:
                        yield f"{name}/{view.id}", self._route(name, view, topics)

    def _route(self, source: str, view: RouteView, topics: tuple[str, ...]) -> Route:
        return Route(
            source=source,
            destinations=view.destinations,
            filters=self._filters(topics, view.deadline_ms),
            topics=topics[:TOPICS_SHOWN],
            paths={to: paths[:PATHS_SHOWN] for to, paths in view.paths.items()},
            latency_ms={to: rounded(latency_ms) for to, latency_ms in view.latency_ms.items()},
            deadline_ms=view.deadline_ms,
            reliable=view.reliable,
            routing=view.routing,
            cause=view.cause,
            version=view.version,
            is_established=view.is_established,
        )

    def _filters(self, topics: tuple[str, ...], deadline_ms: float | None) -> tuple[str, ...]:
        """Of the network file; where no topic is known, those of the same deadline."""
        if topics:
            return tuple(dict.fromkeys(self._rows.of(topic) or OTHER_TOPICS for topic in topics))
        return tuple(topic.filter for topic in self._network.topics if _ms(topic.deadline_ns) == deadline_ms)

    def _count(self, name: str, life: int, told: DeliveryList) -> None:
        for one in told.published:
            row = one.filter or OTHER_TOPICS
            grown = self._growth.of(("published", name, row), life, one.messages)
            if grown or row in self._ledgers:
                self._ledgers.setdefault(row, TopicLedger()).totals.published += grown
        arrivals = self._arrivals.setdefault(name, TopicLedger())
        for item in told.items:
            row, key = item.filter or OTHER_TOPICS, (name, item.filter, item.origin)
            messages = self._growth.of(("messages", *key), life, item.messages)
            in_time = self._growth.of(("in time", *key), life, item.in_time)
            missing = self._growth.of(("missing", *key), life, item.missing)
            ages_us = self._ages.of(key, life, item.ages_us)
            for ledger in (arrivals, self._ledgers.setdefault(row, TopicLedger())):
                ledger.totals.delivered += messages
                ledger.totals.in_time += in_time
                ledger.totals.missing += missing
                ledger.totals.ages_us += ages_us

    def _topics(self) -> dict[str, Topic]:
        classes = {topic.filter: topic for topic in self._network.topics}
        topics = {}
        for row, ledger in self._ledgers.items():
            described = classes.get(row)
            topics[row] = Topic(
                deadline_ms=_ms(described.deadline_ns) if described is not None else None,
                reliable=described is not None and described.reliability == "reliable",
                routing=described.routing if described is not None else self._network.defaults.routing,
                rate_hz=ledger.rate_hz(),
                lately=ledger.lately(),
                total=ledger.total(),
            )
        return topics

    # The whole

    def _draw(self, at_s: float) -> Picture:
        links = self._links(at_s)
        names = dict.fromkeys([*self._places, *(end for link in links.values() for end in link.ends)])
        return Picture(
            at_s=round(at_s, 3),
            brokers={name: self._broker(name) for name in names},
            links=links,
            routes=dict(self._routes()),
            topics=self._topics(),
        )

    # Happenings

    def _tell(self, name: str, event: EventView, at_s: float, is_old: bool) -> None:
        """`is_old`: it happened before anybody looked."""
        match event.kind:
            case "link":
                self.timeline.link(at_s, name, event.peer, event.state, is_old=is_old)
            case "route":
                topics = tuple(topic for topic in event.topics if not topic.startswith("$"))
                if topics or not event.topics:  # others are the brokers' own
                    filters = self._filters(topics, event.deadline_ms)
                    self.timeline.route(at_s, name, filters, event.destinations, event.paths, event.cause)
            case "deadline":
                self.timeline.deadline(at_s, name, event.peer, event.deadline_ms, event.latency_ms)


def _ms(deadline_ns: int) -> float | None:
    return None if deadline_ns >= NEVER else deadline_ns / MS


def _emulated(view: EmulationView | None) -> str:
    if view is None:
        return ""
    if view.is_cut:
        return "cut"
    words = [f"{view.latency_ms:g} ms"]
    words += [f"jitter {view.jitter_ms:g} ms"] if view.jitter_ms else []
    words += [f"loss {view.loss:.1%}"] if view.loss else []
    words += [f"{view.rate_bps / 1e6:g} Mbit/s"] if view.rate_bps is not None else []
    return ", ".join(words)
